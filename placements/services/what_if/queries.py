"""Impact on all placements if clusters left the fleet or were drained; nothing is written.

Budgets and pauses are ignored: they affect when placements move, not the result.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from django.db.models import Count, QuerySet, Sum
from django.db.models.functions import Least

from clusters.filters import ClusterFilter, clusters_matching
from clusters.fleet import Fleet
from clusters.models import MemberCluster
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.bulk import batched
from fleetui.errors import UnknownObject
from placements.engine.balance import exceeded_limits
from placements.engine.disruption import KeptReason
from placements.engine.resilience import (
    active,
    cordoned,
    decisions_until_rest,
    placed_after,
    why_stays,
    without,
)
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Decision, Picked
from placements.explain.staged_updates import STAYS_SENTENCES
from placements.explain.what_if import balance_sentence, difference_note, stuck_words
from placements.models import Placement, Scenario, ScenarioDecision
from placements.services.decisions.records import records_named


class UnknownScenarioError(UnknownObject):
    """The scenario does not exist or was pruned."""

    problem_type = "unknown-scenario"

    def __init__(self, number: int) -> None:
        super().__init__(f"what-if analysis {number} not found")


Variant = ScenarioDecision.Variant


class PlacementImpact(StrEnum):
    """Impact on a placement, the worst first."""

    STUCK = "stuck"
    """Loses clusters or fulfillment, without replacements."""
    SHRINKS = "shrinks"
    """Loses clusters, and is fulfilled without them."""
    MOVES = "moves"
    """Loses clusters, with replacements."""
    CANNOT = "cannot"
    """Not evictable."""
    STAYS = "stays"
    """Not affected."""


RANKS = {impact: rank for rank, impact in enumerate(PlacementImpact)}


@dataclass(frozen=True)
class ScenarioResult:
    """The result for one placement; `decision` is its last cycle with a change, else its first."""

    decision: Decision
    impact: PlacementImpact
    joins: tuple[Picked, ...]
    leaves: tuple[str, ...]
    placed_before: int
    placed_after: int
    why: str


def chosen_clusters(names: Collection[str], labels: Sequence[str]) -> tuple[str, ...]:
    """Return the clusters with these names and those with all of these labels (`key:value` or `key`).

    Raise InvalidManifest for an unknown name, labels that no cluster has, and an empty choice.
    """
    known = set[str]()
    for part in batched(names):
        known |= set(MemberCluster.objects.filter(name__in=part).values_list("name", flat=True))
    errors = [
        FieldError(f"clusters[{at}]", "unknown-cluster", f"Invalid value: {name[:63]!r}: cluster not found")
        for at, name in enumerate(names)
        if name not in known
    ]
    rows = clusters_matching(ClusterFilter(labels=tuple(labels)))
    labelled = set(rows.values_list("name", flat=True)) if labels else set()
    if labels and not labelled:
        errors.append(FieldError("labels", "unsatisfiable", f"No cluster has {', '.join(labels)[:200]}"))
    if not names and not labels:
        allowed = "names, or labels such as region=east"
        errors.append(FieldError("clusters", "required", "Required value", allowed))
    if errors:
        raise InvalidManifest(errors)
    return tuple(sorted({*names, *labelled}))


def fleet_under(fleet: Fleet, clusters: Collection[str], variant: str) -> Fleet:
    gone = frozenset(clusters)
    if variant == Variant.LEAVE:
        return Fleet(one for one in fleet if one.name not in gone)
    return cordoned(fleet, *gone)


def evaluate(
    cycle: Cycle,
    clusters: Collection[str],
    variant: str,
    *,
    was_fulfilled: bool | None,
    is_namespaced: bool = False,
) -> ScenarioResult:
    """Schedule a placement until nothing changes, on the hypothetical fleet of the cycle."""
    stays = why_stays(cycle.policy, is_namespaced=is_namespaced) if variant == Variant.CORDON else None
    evicted = variant == Variant.CORDON and stays is None
    start = without(cycle, *clusters) if evicted else cycle
    chain = decisions_until_rest(start)
    decision, before = chain[-1], active(cycle.live_bindings)
    after = placed_after(decision)
    picked = {one.cluster: one for link in chain for one in link.picked}
    joins = tuple(one for name, one in picked.items() if name in after - before)
    leaves = tuple(sorted(before - after))

    is_there = not before.isdisjoint(clusters)
    is_short = decision.is_failed or not decision.is_fulfilled
    is_worse = len(after) < len(before) or was_fulfilled is True
    is_touched = is_there or bool(joins or leaves)
    is_stuck = is_short and is_worse and (is_touched or was_fulfilled)
    impact, why = PlacementImpact.STAYS, ""
    if stays and not leaves and (is_stuck or (is_there and not joins)):
        impact, why = PlacementImpact.CANNOT, STAYS_SENTENCES[KeptReason(stays)]
    elif is_stuck:
        impact, why = PlacementImpact.STUCK, stuck_words(decision)
    elif joins:
        impact = PlacementImpact.MOVES
    elif leaves:
        impact = PlacementImpact.SHRINKS
    if is_touched and (balance := balance_sentence(exceeded_limits(cycle, after))):
        why = f"{why}. {balance}" if why else balance
    return ScenarioResult(decision, impact, joins, leaves, len(before), len(after), why)


def note_on(leave: ScenarioResult, cordon: ScenarioResult, clusters: Collection[str]) -> str:
    """Return why the results of the two variants differ for a placement; empty if equal."""
    if (leave.impact, leave.placed_after) == (cordon.impact, cordon.placed_after):
        return ""
    cycle = cordon.decision.cycle
    keys = [one.topology_key for one in cycle.policy.topology_spread_constraints]
    return difference_note(cycle, emptied_groups(cycle.fleet, clusters, keys))


def emptied_groups(fleet: Fleet, clusters: Collection[str], keys: Iterable[str]) -> tuple[str, ...]:
    """Return the domains of these keys, as `key=value`, whose clusters are all among the chosen ones."""
    gone, domains = frozenset(clusters), list[str]()
    for key in dict.fromkeys(keys):
        left = {one.labels[key] for one in fleet if key in one.labels and one.name not in gone}
        there = {one.labels[key] for one in fleet if key in one.labels and one.name in gone}
        domains += [f"{key}={value}" for value in sorted(there - left)]
    return tuple(domains)


def valid_placements() -> QuerySet[Placement]:
    return Placement.objects.filter(deleting_since=None, selection_faults=[])


def impact_counts(scenarios: Collection[Scenario]) -> dict[tuple[int, str], dict[str, int]]:
    """Count the impacts by scenario and variant, in one query."""
    rows = ScenarioDecision.objects.filter(scenario__in=[one.pk for one in scenarios])
    counted = rows.values_list("scenario_id", "variant", "impact").annotate(count=Count("pk")).order_by()
    counts: dict[tuple[int, str], dict[str, int]] = {}
    for scenario, variant, impact, count in counted:
        counts.setdefault((scenario, variant), {})[impact] = count
    return counts


def scenario_numbered(number: int) -> Scenario:
    """Return a scenario. Raise UnknownScenarioError."""
    scenario = Scenario.objects.filter(pk=number).first()
    if scenario is None:
        raise UnknownScenarioError(number)
    return scenario


def outcomes_in(scenario: Scenario, variant: str) -> QuerySet[ScenarioDecision]:
    """Return the results for all placements, the worst first, without the content of records."""
    rows = ScenarioDecision.objects.filter(scenario=scenario, variant=variant)
    rows = rows.select_related("record", "placement").defer("record__content", "placement__document")
    return rows.order_by("rank", "placement_name")


@dataclass(frozen=True, slots=True)
class Totals:
    """Numbers of clusters: placed before, deselected, selected."""

    before: int
    leaves: int
    joins: int

    @classmethod
    def of(cls, outcome: ScenarioDecision) -> "Totals":
        return cls(outcome.placed_before, outcome.leaves_count, outcome.joins_count)


def totals_in(scenario: Scenario, variant: str) -> Totals:
    """Sum up all placements; of each at most as many replacements as deselected clusters count."""
    rows = ScenarioDecision.objects.filter(scenario=scenario, variant=variant)
    totals = rows.aggregate(
        before=Sum("placed_before", default=0),
        leaves=Sum("leaves_count", default=0),
        joins=Sum(Least("joins_count", "leaves_count"), default=0),
    )
    return Totals(**totals)


def done_count(scenario: Scenario) -> int:
    return ScenarioDecision.objects.filter(scenario=scenario, variant=Variant.CORDON).count()


def waiting_before(scenario: Scenario) -> int:
    """Return how many analyses are evaluated before this one."""
    return Scenario.objects.filter(evaluate_at__isnull=False, pk__lt=scenario.pk).count()


def hypothetical_named(prefix: str) -> list[ScenarioDecision]:
    """Return the latest hypothetical decision for each id with this prefix, as `decisions_named` does."""
    decisions = ScenarioDecision.objects.filter(record__in=records_named(prefix))
    rows = decisions.select_related("record", "placement", "scenario").defer("record__content")
    latest = {row.record_id: row for row in rows.order_by("pk")}
    return sorted(latest.values(), key=lambda row: row.record.decision_id)
