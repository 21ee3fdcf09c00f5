"""What the overview shows beside what needs somebody: headroom and runs."""

from collections.abc import Collection
from dataclasses import dataclass

from django.db.models import Case, Count, F, IntegerField, OuterRef, Subquery, Value, When

from clusters.models import MemberCluster, Membership
from placements.explain.wording import ELIGIBILITY_WORDS
from placements.models import Placement, Rollout, StagedRun
from placements.queries.headroom import Skew, skews_of
from placements.queries.runs import runs_to_show
from placements.scheduling.fleet import EligibilityKind

MANY_CLUSTERS = 200
"""Above this an overview names no cluster; it counts them."""


@dataclass(frozen=True, slots=True)
class Tight:
    """A placement with its skews now, and its latest run: a rolling one, or a staged one."""

    placement: Placement
    skews: list[Skew]
    run: Rollout | None
    staged: StagedRun | None = None

    @property
    def verdict(self) -> str | None:
        """Give what the last look at the run said of it, if it is under way."""
        is_running = self.run is not None and self.run.state == Rollout.State.RUNNING
        found: str | None = getattr(self.run, "verdict", None) if is_running else None
        return found


def tightest(*, most: int = 10) -> list[Tight]:
    """Give the placements that lack most clusters first, then those nearest to a limit."""
    missing = F("number_of_clusters") - F("placed_count")
    is_short = Case(When(is_fulfilled=False, then=Value(0)), default=Value(1), output_field=IntegerField())
    rows = Placement.objects.select_related("freshness").annotate(is_short=is_short)
    order = ("is_short", missing.desc(nulls_last=True), F("freshness__headroom").asc(nulls_last=True), "name")
    return tight_of(list(rows.order_by(*order)[:most]))


def tight_of(placements: Collection[Placement]) -> list[Tight]:
    """Give these placements, read with their `freshness`, each with its skews and its run.

    One query; one more where staged runs update some of them.
    """
    staged = _latest_staged([one.pk for one in placements if one.is_staged])
    runs = _latest_runs([one for one in placements if one.pk not in staged])
    return [Tight(one, skews_of(one), runs.get(one.pk), staged.get(one.pk)) for one in placements]


def _latest_staged(placements: Collection[int]) -> dict[int, StagedRun]:
    if not placements:
        return {}
    same = StagedRun.objects.filter(placement=OuterRef("placement")).order_by("-pk")
    rows = StagedRun.objects.filter(placement__in=placements, pk=Subquery(same.values("pk")[:1]))
    shown = rows.select_related("placement").only("name", "status", "ended_at", "placement__paused_since")
    return {row.placement_id: row for row in shown if row.placement_id}


def _latest_runs(placements: Collection[Placement]) -> dict[int, Rollout]:
    rows = runs_to_show().filter(placement__in=placements, number=F("placement__runs_made"))
    return {row.placement_id: row for row in rows if row.placement_id}


def ineligible_counts() -> list[tuple[str, int]]:
    """Count the clusters that may not be picked though they are to stay, by the reason in words."""
    rows = MemberCluster.objects.exclude(verdict="").exclude(membership=Membership.LEAVING)
    counted = rows.values_list("verdict").annotate(count=Count("pk")).order_by("-count", "verdict")
    return [(ELIGIBILITY_WORDS[EligibilityKind(verdict)], count) for verdict, count in counted]
