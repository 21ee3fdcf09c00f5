"""What a change of the fleet does to a placement, evaluated on the changed clusters only.

`can_change_picks` returns whether a cycle has to run: "no" is exact. `schedule_changed` is that cycle for a
PickAll placement, without the clusters that stayed as they were
(`rules/foresight.md#decisions-after-a-change`).
"""

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import replace
from operator import attrgetter

import numpy as np

from clusters.fleet import Fleet
from placements.engine.scheduling.candidates import malformed_properties, verdicts
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import CycleKind, Decision
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.spread.base import is_hard
from placements.manifests.binding import PlacedBinding
from placements.manifests.policy import PlacementType

MOST_CHANGED = 500
"""With more changed clusters at once a full cycle runs."""


def can_change_picks(
    cycle: Cycle,
    *,
    label_keys: Collection[str],
    is_membership_changed: bool,
    has_failed: bool = False,
) -> bool:
    """Return whether a cycle on the whole fleet could decide anything else than the one before.

    The fleet of `cycle` holds the changed clusters as they are now, and its bindings are those on them. The
    former cycle left a PickAll placement, or a PickN one with too few clusters. `label_keys` are the labels
    that changed anywhere; `is_membership_changed` means that a cluster joined or left; `has_failed`, that the
    former cycle ended at a property that is no quantity.
    """
    policy = cycle.policy
    profile = profile_of(cycle)
    if profile.chooses_again or profile.domains_depend_on_filters:
        return True
    if policy.placement_type is PlacementType.PICK_FIXED:
        return True
    # Domains and their counts include clusters that pass no filter.
    hard_keys = {
        constraint.topology_key
        for constraint in policy.topology_spread_constraints
        if is_hard(constraint)
    }
    if hard_keys and (is_membership_changed or not hard_keys.isdisjoint(label_keys)):
        return True
    return (
        has_failed
        or bool(malformed_properties(cycle))
        or bool((verdicts(cycle) == 0).any())
    )


def schedule_changed(
    former: Decision, cycle: Cycle, changed: Collection[str]
) -> Decision | None:
    """Return the decision of a PickAll cycle, merged into the former one; None where a full cycle has to run.

    `changed` names the clusters that are not as they were, joined or left. The filters run on them and on
    those that the former decision selected.
    """
    was, profile = former.cycle, profile_of(cycle)
    if (
        former.kind is not CycleKind.PICK_ALL
        or former.verdicts is None
        or len(changed) > MOST_CHANGED
    ):
        return None
    if former.unscheduled or former.malformed or cycle.batch is not None:
        return None
    if profile.chooses_again or profile.domains_depend_on_filters:
        return None
    if any(
        getattr(was, of) != getattr(cycle, of)
        for of in ("policy", "semantics", "options", "namespace")
    ):
        return None
    names, kept, fleet = {*changed}, former.kept, cycle.fleet
    if cycle.bindings is not was.bindings and cycle.bindings != was.bindings:
        kept = tuple(
            binding.cluster for binding in cycle.binding_classes.current
        )  # sorted by cluster name
        expected = tuple(sorted((*former.kept, *former.picked_names)))
        if (
            kept != expected
            or cycle.binding_classes.obsolete
            or cycle.binding_classes.dangling
        ):
            return None
        names.update(former.picked_names)
    part = Fleet(
        fleet.clusters[fleet.positions[name]]
        for name in names
        if name in fleet.positions
    )
    bindings = tuple(
        binding for name in sorted(names) for binding in _bindings_on(name, cycle)
    )
    partial = replace(cycle, fleet=part, bindings=bindings)
    if (
        partial.binding_classes.obsolete
        or partial.binding_classes.dangling
        or len(names) > MOST_CHANGED
    ):
        return None
    if malformed_properties(partial):
        return None
    before, after = was.fleet.positions, fleet.positions
    removed = [before[name] for name in names if name in before and name not in after]
    joined = sorted(after[name] for name in part.names if name not in before)
    failed = np.delete(former.verdicts, np.array(removed, dtype=np.intp))
    failed = np.insert(
        failed, np.array(joined, dtype=np.intp) - np.arange(len(joined)), 0
    )
    failed[[after[name] for name in part.names]] = verdicts(partial)
    chosen = np.nonzero(failed == 0)[0].astype(np.int32)
    return Decision(
        cycle, CycleKind.PICK_ALL, chosen, kept, is_fulfilled=True, verdicts=failed
    )


def _bindings_on(name: str, cycle: Cycle) -> tuple[PlacedBinding, ...]:
    """Return the binding on a cluster, if there is one; there is never another."""
    at = bisect_left(cycle.live_bindings, name, key=attrgetter("cluster"))
    bindings = cycle.live_bindings[at : at + 1]
    return bindings if bindings and bindings[0].cluster == name else ()


def changed_clusters(before: Fleet, after: Fleet) -> set[str]:
    """Return the names of the clusters that are not the same object in both fleets."""
    if before.names is after.names:
        pairs = zip(before.clusters, after.clusters, strict=True)
        return {cluster.name for cluster, other in pairs if cluster is not other}
    former = dict(zip(before.names, before.clusters, strict=True))
    changed = {
        cluster.name
        for cluster in after.clusters
        if former.pop(cluster.name, None) is not cluster
    }
    return changed | former.keys()
