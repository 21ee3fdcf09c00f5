"""What draining a cluster would do to each placement on it: decided anew in memory, nothing is written."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from clusters.models import CORDON_KEY, CORDON_VALUE
from clusters.queries import fleet_now
from placements.explain.staged_wording import STAYS_SENTENCES, eviction_sentence
from placements.explain.what_if_wording import stuck_words
from placements.explain.wording import joined, verb
from placements.models import Binding, Placement, StagedRun
from placements.queries.disruptions import budget_for
from placements.queries.impact import MOST_LOOKED_AT, with_clusters
from placements.rollout.disruption import Executed, Why, WhyStays, judge_eviction
from placements.scheduling.bindings import Binding as BindingValue
from placements.scheduling.bindings import BindingState
from placements.scheduling.cycle import Cycle
from placements.scheduling.decision import Decision, Picked
from placements.scheduling.filters.taints import untolerated
from placements.scheduling.fleet import NO_SCHEDULE, Cluster, Fleet, Taint
from placements.scheduling.policy import PlacementPolicy, PlacementType
from placements.scheduling.scheduler import schedule
from placements.scheduling.spec import parse_placement
from placements.snapshots import cycles_of
from placements.standing import Standing, evictable, standing_of

_NAMES_SAID = 5
CORDON = Taint(CORDON_KEY, CORDON_VALUE, NO_SCHEDULE)


class Fate(StrEnum):
    """What would become of a placement."""

    MOVES = "moves"
    """It leaves, and another cluster takes its place."""
    SHRINKS = "shrinks"
    """It leaves, and has what it asks for without that cluster."""
    STUCK = "stuck"
    """It leaves, and no cluster takes its place."""
    BLOCKED = "blocked"
    """Its budget, or somebody who paused it, does not let it go now."""
    STAYS = "stays"
    """It cannot be evicted."""
    LEAVING = "leaving"
    """It leaves already, or is being deleted."""


@dataclass(frozen=True, slots=True)
class DrainRow:
    """What would become of one placement; `said` is the sentence for it.

    `scores` are those that join with the scores of their picks.
    """

    placement: str
    fate: Fate
    joins: tuple[str, ...]
    placed_before: int
    placed_after: int
    said: str
    scores: tuple[Picked, ...] = ()

    @property
    def gets_worse(self) -> bool:
        """Tell whether somebody should look before draining."""
        return self.fate in (Fate.STUCK, Fate.BLOCKED, Fate.STAYS)


@dataclass(frozen=True, slots=True)
class DrainImpact:
    """What would become of the placements of a cluster, those that get worse first."""

    cluster: str
    rows: tuple[DrainRow, ...]
    unlooked: int = 0

    @property
    def asks_for_the_name(self) -> bool:
        """Tell whether something would be stuck or shrink, so that whoever drains types the name."""
        return any(row.fate in (Fate.STUCK, Fate.SHRINKS) for row in self.rows)

    @property
    def count(self) -> dict[str, int]:
        """Count the placements of each fate."""
        fates = [row.fate for row in self.rows]
        return {str(fate): fates.count(fate) for fate in Fate}


def drain_impact(cluster: str, *, now: datetime, beside: Collection[str] = ()) -> DrainImpact:
    """Say what draining a cluster would do; at most 200 placements are looked at, by name.

    `beside`: clusters that are drained together with it, and take nothing over.
    """
    here = Binding.objects.filter(cluster_name=cluster).values("placement_id")
    rows = Placement.objects.filter(pk__in=here)
    looked = list(rows.order_by("name")[:MOST_LOOKED_AT])
    fleet = cordoned(fleet_now().fleet, cluster, *beside)
    found = list(_rows(looked, cluster, fleet, now=now))
    found.sort(key=lambda row: (not row.gets_worse, row.placement))
    return DrainImpact(cluster, tuple(found), rows.count() - len(looked))


def cordoned(fleet: Fleet, *names: str) -> Fleet:
    """Give the fleet with these clusters cordoned."""
    wanted = frozenset(names)
    return with_clusters(fleet, [_cordoned(one) for one in fleet if one.name in wanted])


def _cordoned(cluster: Cluster) -> Cluster:
    is_already = CORDON in cluster.taints
    return cluster if is_already else cluster._replace(taints=(*cluster.taints, CORDON))


def why_stays(policy: PlacementPolicy) -> WhyStays | None:
    """Say why a drain leaves a placement alone: it names its clusters, or would come right back."""
    if policy.placement_type is PlacementType.PICK_FIXED:
        return WhyStays.PICK_FIXED
    return None if untolerated((CORDON,), policy.tolerations) else WhyStays.TOLERATES


def is_held(placement: Placement) -> bool:
    """Tell whether somebody keeps a replacement from starting, so that a drain waits."""
    return placement.paused_since is not None or placement.is_stopped


def has_begun_run(placement: Placement) -> bool:
    """Tell whether a staged run is under way, which would fail when a cluster left it (lifecycle B.5.3)."""
    begun = StagedRun.objects.filter(placement=placement, ended_at=None, started_at__isnull=False)
    return begun.exists()


def _rows(
    placements: Iterable[Placement], cluster: str, fleet: Fleet, *, now: datetime
) -> Iterator[DrainRow]:
    listed = list(placements)
    for placement, cycle in cycles_of(listed, fleet):
        yield _stays_anyway(placement, cycle) or _asked(standing_of(placement, now=now), cycle, cluster)


def _stays_anyway(placement: Placement, cycle: Cycle) -> DrainRow | None:
    """Give the row of a placement that no drain evicts, wherever its clusters stand."""
    name, placed = placement.name, _placed(cycle.live_bindings)
    if placement.deleting_since:
        return DrainRow(name, Fate.LEAVING, (), placed, placed, "Is being deleted.")
    stays = why_stays(parse_placement(placement.document).spec.policy)
    return DrainRow(name, Fate.STAYS, (), placed, placed, STAYS_SENTENCES[stays]) if stays else None


def _asked(standing: Standing, cycle: Cycle, cluster: str) -> DrainRow:
    return _stays(standing, cycle, cluster) or _leaves(standing, cycle, cluster)


def _stays(standing: Standing, cycle: Cycle, cluster: str) -> DrainRow | None:
    """Give the row of a placement that would not be evicted, or is leaving."""
    name, placed = standing.placement.name, _placed(cycle.live_bindings)
    verdict = judge_eviction(evictable(standing), cluster, budget_for(name))
    if verdict.why is Why.LEAVING:
        return DrainRow(name, Fate.LEAVING, (), placed, placed, "Is leaving already.")
    if is_held(standing.placement):
        return DrainRow(name, Fate.BLOCKED, (), placed, placed, STAYS_SENTENCES[WhyStays.HELD])
    if standing.is_staged and has_begun_run(standing.placement):
        return DrainRow(name, Fate.BLOCKED, (), placed, placed, STAYS_SENTENCES[WhyStays.STAGED_RUN])
    if isinstance(verdict, Executed) or verdict.why is Why.PLANNED:
        return None
    return DrainRow(name, Fate.BLOCKED, (), placed, placed, eviction_sentence(verdict))


def _leaves(standing: Standing, cycle: Cycle, cluster: str) -> DrainRow:
    decision = schedule(without(cycle, cluster))
    before, after = _placed(cycle.live_bindings), _placed(decision.bindings_after)
    there = {one.cluster for one in cycle.live_bindings if one.is_active} | {cluster}
    joins = tuple(name for name in decision.picked_names if name not in there)
    staged = f" {STAYS_SENTENCES[WhyStays.NEXT_RUN]}" if standing.is_staged else ""
    fate, said = _fate(decision, joins)
    scores = tuple(one for one in decision.picked if one.cluster not in there)
    return DrainRow(standing.placement.name, fate, joins, before, after, f"{said}{staged}", scores)


def _fate(decision: Decision, joins: tuple[str, ...]) -> tuple[Fate, str]:
    if not decision.is_fulfilled or decision.is_failed:
        return Fate.STUCK, f"No replacement: {stuck_words(decision)}."
    if joins:
        return Fate.MOVES, f"{joined(_few(joins))} {verb(len(joins), 'joins')}."
    is_all = decision.cycle.policy.placement_type is PlacementType.PICK_ALL
    return Fate.SHRINKS, "PickAll: leaves." if is_all else "Leaves; it has as many as it asks for."


def _few(names: tuple[str, ...]) -> tuple[str, ...]:
    """Keep a sentence short: of more than five names the first four, and how many more there are."""
    return names if len(names) <= _NAMES_SAID else (*names[:4], f"{len(names) - 4} more")


def without(cycle: Cycle, *clusters: str) -> Cycle:
    """Give the cycle that follows the eviction from these clusters."""
    gone = frozenset(clusters)
    bindings = tuple(
        replace(one, state=BindingState.UNSCHEDULED, previous_state=BindingState.BOUND)
        if one.cluster in gone and one.is_active
        else one
        for one in cycle.bindings
    )
    return replace(cycle, bindings=bindings)


def _placed(bindings: Iterable[BindingValue]) -> int:
    return sum(one.is_active for one in bindings)
