"""What every placement would do if some clusters left, or were cordoned and emptied: nothing is written.

Budgets and pauses are left aside: they say when something moves, and this says where it ends.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from django.db.models import Count, Q, QuerySet, Sum
from django.db.models.functions import Least

from clusters.listing import ClusterFilter, clusters_matching
from clusters.models import MemberCluster
from placements.explain.what_if_wording import difference_note, stays_words, stuck_words
from placements.models import HypotheticalDecision, Placement, Scenario
from placements.queries.drain_impact import cordoned, why_stays, without
from placements.queries.records import records_named
from placements.rollout.disruption import WhyStays
from placements.scheduling.bindings import Binding as BindingValue
from placements.scheduling.cycle import Cycle
from placements.scheduling.decision import Decision, Picked
from placements.scheduling.faults import Fault, Faults
from placements.scheduling.fleet import Fleet
from placements.scheduling.scheduler import schedule


class UnknownScenarioError(LookupError):
    """Nobody asked this, or the answer was let go."""

    def __init__(self, number: int) -> None:
        super().__init__(f"there is no what-if {number}")


MOST_CYCLES = 10
"""A placement has come to rest after one cycle or two; this many end the search where it has not."""
_BATCH = 500
Variant = HypotheticalDecision.Variant


class Fate(StrEnum):
    """What would become of a placement, the worst first."""

    STUCK = "stuck"
    """It loses clusters, or what it wants, and finds no others."""
    SHRINKS = "shrinks"
    """It loses clusters, and has what it asks for without them."""
    MOVES = "moves"
    """It loses clusters, and others take their places."""
    CANNOT = "cannot"
    """It is there and cannot be moved."""
    STAYS = "stays"
    """It is not concerned."""


RANKS = {fate: rank for rank, fate in enumerate(Fate)}


@dataclass(frozen=True)
class Supposed:
    """What one placement would do; `decision` is its last cycle that changes something, else its first."""

    decision: Decision
    fate: Fate
    joins: tuple[Picked, ...]
    leaves: tuple[str, ...]
    placed_before: int
    placed_after: int
    why: str


def chosen_clusters(names: Collection[str], labels: Sequence[str]) -> tuple[str, ...]:
    """Give the clusters with these names, and those that carry all of these labels (`key:value`, or `key`).

    Raises Faults for a name that is unknown, labels that no cluster has, and for nothing at all.
    """
    faults = [
        Fault(f"clusters[{at}]", "unknown-cluster", f"the fleet has no cluster named {name[:63]!r}")
        for at, name in _unknown(names)
    ]
    labelled: set[str] = set()
    if labels:
        rows = clusters_matching(ClusterFilter(labels=tuple(labels)))
        labelled = set(rows.values_list("name", flat=True))
        if not labelled:
            faults.append(Fault("labels", "unsatisfiable", f"no cluster carries {', '.join(labels)[:200]}"))
    if not names and not labels:
        allowed = "names, or labels such as region=east"
        faults.append(Fault("clusters", "required", "no cluster is chosen", allowed))
    if faults:
        raise Faults(faults)
    return tuple(sorted({*names, *labelled}))


def _unknown(names: Collection[str]) -> Iterable[tuple[int, str]]:
    listed, known = list(names), set[str]()
    for start in range(0, len(listed), _BATCH):
        rows = MemberCluster.objects.filter(name__in=listed[start : start + _BATCH])
        known |= set(rows.values_list("name", flat=True))
    return [(at, name) for at, name in enumerate(listed) if name not in known]


def fleet_under(fleet: Fleet, clusters: Collection[str], variant: str) -> Fleet:
    """Give the fleet once these clusters have left it, or are cordoned."""
    gone = frozenset(clusters)
    if variant == Variant.LEAVE:
        return Fleet(one for one in fleet if one.name not in gone)
    return cordoned(fleet, *gone)


def suppose(cycle: Cycle, clusters: Collection[str], variant: str, *, was_fulfilled: bool | None) -> Supposed:
    """Decide a placement until it rests; the fleet of the cycle is the supposed one."""
    stays = why_stays(cycle.policy) if variant == Variant.CORDON else None
    evicted = variant == Variant.CORDON and stays is None
    chain = _until_it_rests(without(cycle, *clusters) if evicted else cycle)
    before, after = _active(cycle.live_bindings), _after(chain[-1])
    picked = {one.cluster: one for decision in chain for one in decision.picked}
    supposed = Supposed(
        chain[-1],
        Fate.STAYS,
        tuple(one for name, one in picked.items() if name in after - before),
        tuple(sorted(before - after)),
        len(before),
        len(after),
        "",
    )
    is_there = not before.isdisjoint(clusters)
    fate, why = _fate(supposed, is_there=is_there, stays=stays, was_fulfilled=was_fulfilled)
    return replace(supposed, fate=fate, why=why)


def _until_it_rests(cycle: Cycle) -> list[Decision]:
    chain = [schedule(cycle)]
    while len(chain) < MOST_CYCLES and _changes(chain[-1]):
        following = schedule(replace(cycle, bindings=chain[-1].bindings_after))
        if not _changes(following):
            break
        chain.append(following)
    return chain


def _changes(decision: Decision) -> bool:
    return not decision.is_failed and bool(_after(decision) != _active(decision.cycle.live_bindings))


def _fate(
    found: Supposed, *, is_there: bool, stays: WhyStays | None, was_fulfilled: bool | None
) -> tuple[Fate, str]:
    decision = found.decision
    is_short = decision.is_failed or not decision.is_fulfilled
    is_worse = found.placed_after < found.placed_before or was_fulfilled is True
    is_touched = is_there or bool(found.joins or found.leaves)
    if is_short and is_worse and (is_touched or was_fulfilled):
        return (
            (Fate.CANNOT, stays_words(stays))
            if stays and not found.leaves
            else (Fate.STUCK, stuck_words(decision))
        )
    if found.joins:
        return Fate.MOVES, ""
    if found.leaves:
        return Fate.SHRINKS, ""
    return (Fate.CANNOT, stays_words(stays)) if is_there and stays else (Fate.STAYS, "")


def _after(decision: Decision) -> frozenset[str]:
    if decision.is_failed:
        standing = decision.cycle.standing
        return frozenset(one.cluster for one in (*standing.current, *standing.obsolete))
    return _active(decision.bindings_after)


def _active(bindings: Iterable[BindingValue]) -> frozenset[str]:
    return frozenset(one.cluster for one in bindings if one.is_active)


def note_on(leave: Supposed, cordon: Supposed, clusters: Collection[str]) -> str:
    """Say why the two answers differ for a placement; nothing where they do not."""
    if (leave.fate, leave.placed_after) == (cordon.fate, cordon.placed_after):
        return ""
    cycle = cordon.decision.cycle
    keys = [one.topology_key for one in cycle.policy.topology_spread_constraints]
    return difference_note(cycle, emptied_groups(cycle.fleet, clusters, keys))


def emptied_groups(fleet: Fleet, clusters: Collection[str], keys: Iterable[str]) -> tuple[str, ...]:
    """Give the groups of these labels all of whose clusters are among the chosen ones, as `key=value`."""
    gone, found = frozenset(clusters), list[str]()
    for key in dict.fromkeys(keys):
        left = {one.labels[key] for one in fleet if key in one.labels and one.name not in gone}
        there = {one.labels[key] for one in fleet if key in one.labels and one.name in gone}
        found += [f"{key}={value}" for value in sorted(there - left)]
    return tuple(found)


def asked_placements() -> QuerySet[Placement]:
    """Give the placements that a scenario asks: those that are decided at all."""
    return Placement.objects.filter(deleting_since=None, selection_faults=[])


def fate_counts(scenarios: Collection[Scenario]) -> dict[tuple[int, str], dict[str, int]]:
    """Count the fates of these scenarios by scenario and variant, in one query."""
    rows = HypotheticalDecision.objects.filter(scenario__in=[one.pk for one in scenarios])
    counted = rows.values_list("scenario_id", "variant", "fate").annotate(count=Count("pk")).order_by()
    found: dict[tuple[int, str], dict[str, int]] = {}
    for scenario, variant, fate, count in counted:
        found.setdefault((scenario, variant), {})[fate] = count
    return found


def scenario_numbered(number: int) -> Scenario:
    """Give a scenario. Raises UnknownScenarioError."""
    found = Scenario.objects.filter(pk=number).first()
    if found is None:
        raise UnknownScenarioError(number)
    return found


def outcomes_in(scenario: Scenario, variant: str) -> QuerySet[HypotheticalDecision]:
    """Give what each placement would do, the worst first, without the records themselves."""
    rows = HypotheticalDecision.objects.filter(scenario=scenario, variant=variant)
    rows = rows.select_related("record", "placement").defer("record__content", "placement__document")
    return rows.order_by("rank", "placement_name")


@dataclass(frozen=True, slots=True)
class Totals:
    """On how many clusters something is placed before, how many it leaves, and how many it joins."""

    before: int
    leaves: int
    joins: int

    @classmethod
    def of(cls, outcome: HypotheticalDecision) -> "Totals":
        """Give those of one placement."""
        return cls(outcome.placed_before, outcome.leaves_count, outcome.joins_count)


def totals_in(scenario: Scenario, variant: str) -> Totals:
    """Sum up all placements of a scenario; nobody joins more than it leaves."""
    rows = HypotheticalDecision.objects.filter(scenario=scenario, variant=variant)
    found = rows.aggregate(
        before=Sum("placed_before", default=0),
        leaves=Sum("leaves_count", default=0),
        joins=Sum(Least("joins_count", "leaves_count"), default=0),
    )
    return Totals(**found)


def done_count(scenario: Scenario) -> int:
    """Count the placements that were asked under both variants."""
    return HypotheticalDecision.objects.filter(scenario=scenario, variant=Variant.CORDON).count()


def scenario_pulse(number: int) -> str:
    """Give how many placements were asked and whether that is all, as `12.0`, in one query."""
    done = Count("outcomes", filter=Q(outcomes__variant=Variant.CORDON))
    rows = Scenario.objects.filter(pk=number).annotate(done=done)
    found = rows.values_list("work_at", "placements_count", "done").first()
    if found is None:
        return ""
    at, in_all, done_by_now = found
    return f"{in_all}.1" if at is None else f"{done_by_now}.0"


def hypothetical_named(prefix: str) -> list[HypotheticalDecision]:
    """Give the latest hypothetical decision for each id that begins so, as `decisions_named` does."""
    found = HypotheticalDecision.objects.filter(record__in=records_named(prefix))
    rows = found.select_related("record", "placement", "scenario").defer("record__content")
    latest = {row.record_id: row for row in rows.order_by("pk")}
    return sorted(latest.values(), key=lambda row: row.record.decision_id)
