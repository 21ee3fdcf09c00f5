"""What other placements have on each cluster, for *Balance* of `ocm` (`spec/other-schedulers.md` 6.4).

What the others have is read whenever a cycle runs, and makes none run: of decisions, a placement there looks
anew only after its own (`spec/other-schedulers.md` 1.1, re-run triggers; in its source the scheduling
controller's informer of PlacementDecisions queues the placement of their label). So two that balance never
wake each other.
"""

from collections import Counter
from dataclasses import replace
from functools import cached_property

from django.db.models import Count

from placements.models import Binding
from placements.scheduling.bindings import BindingState
from placements.scheduling.cycle import Cycle
from placements.scheduling.profile import profile_of


class Usage:
    """How many placements each cluster has, counted once, and only if a cycle reads it."""

    def balanced(self, cycle: Cycle) -> Cycle:
        """Give the cycle with what other placements have as part of its inputs, where its rules read that.

        Counts that stand in the placement's own options come before those of the hub.
        """
        if not profile_of(cycle).reads_other_placements:
            return cycle
        own = Counter(binding.cluster for binding in cycle.bindings if binding.is_active)
        positions = cycle.fleet.positions
        others = {name: count for name, count in (self._placed - own).items() if name in positions}
        return replace(cycle, options={**cycle.options, "balance": others}) if others else cycle

    @cached_property
    def _placed(self) -> Counter[str]:
        rows = Binding.objects.exclude(state=BindingState.UNSCHEDULED).values_list("cluster_name")
        return Counter(dict(rows.annotate(Count("pk")).order_by("cluster_name")))
