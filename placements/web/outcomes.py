"""The clusters of a decision, and of a placement, as tables: 50 rows a page, filtered by outcome."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from heapq import nsmallest
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest

from placements.engine.scheduling.outcome import ClusterOutcome, Outcome, Outcomes
from placements.engine.scheduling.reason import ReasonCode
from placements.engine.status import HealthLevel
from placements.explain.charts.fleet import label_filter, value_words
from placements.explain.vocabulary import OUTCOME_ORDER, OUTCOME_WORDS, reason_sentence
from placements.manifests.binding import BindingState
from placements.models import Binding, Decision
from placements.services.decisions.records import decision_of, summary_of
from placements.services.decisions.why_not import age_words, bound_and_joined
from placements.services.health import SelectedClusters, cluster_statuses
from placements.services.rollouts.queries import applied_names, waiting_words
from placements.web.badges import Badge, Segment, outcome_kind, segments
from placements.web.request import PAGE_SIZE, number_of, word_from

_ORDER = {outcome: place for place, outcome in enumerate(OUTCOME_ORDER)}


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """One cluster: its outcome, the reason that decided it, and further reasons against it."""

    cluster: str
    outcome: str
    kind: str
    why: str
    also: list[str]


@dataclass(frozen=True, slots=True)
class OutcomeTable:
    """One page of the table, with all rows that the filters leave and the number of each outcome."""

    matches: tuple[ClusterOutcome, ...]
    rows: list[OutcomeRow]
    counts: list[tuple[str, str, int]]
    chosen: str
    total: int
    first: int
    last: int
    earlier: int | None
    later: int | None


def outcome_table(
    request: HttpRequest,
    outcomes: Sequence[ClusterOutcome],
    *,
    hidden: Outcome | None = None,
) -> OutcomeTable:
    """Return the page of these outcomes that the address selects: `?outcome=filtered&from=50`.

    A hidden outcome is counted and not listed. Ordered by outcome, then picks by step, the outranked by
    rank, all others by name.
    """

    def order(one: ClusterOutcome) -> tuple[int, int, str]:
        facts = one.reasons[0].facts
        return (
            _ORDER[one.outcome],
            int(facts.get("pick") or facts.get("rank") or 0),
            one.cluster,
        )

    chosen = word_from(request, "outcome", Outcome)
    counts = Counter(one.outcome for one in outcomes)
    matching = (
        one
        for one in outcomes
        if chosen in (None, one.outcome) and one.outcome is not hidden
    )
    matches = tuple(sorted(matching, key=order))
    start = number_of(request.GET.get("from", "")) or 0
    start = start - start % PAGE_SIZE if start < len(matches) else 0
    page = matches[start : start + PAGE_SIZE]
    return OutcomeTable(
        matches=matches,
        rows=list(map(outcome_row, page)),
        counts=[
            (str(one), OUTCOME_WORDS[one], counts[one]) for one in _ORDER if counts[one]
        ],
        chosen=str(chosen or ""),
        total=len(matches),
        first=start + 1 if page else 0,
        last=start + len(page),
        earlier=max(0, start - PAGE_SIZE) if start else None,
        later=start + PAGE_SIZE if start + PAGE_SIZE < len(matches) else None,
    )


def outcome_row(one: ClusterOutcome) -> OutcomeRow:
    first, *others = one.reasons
    words = OUTCOME_WORDS[one.outcome]
    if one.outcome is Outcome.FILTERED and one.ruled_by is ReasonCode.TOPOLOGY_SPREAD:
        words = f"Blocked in step {first.facts['round']:,}"
    return OutcomeRow(
        one.cluster,
        words,
        outcome_kind(one.outcome),
        reason_sentence(first),
        list(map(reason_sentence, others)),
    )


class ClusterFacet(StrEnum):
    """Filter values of the clusters of a placement."""

    SELECTED = "selected"
    NOT_SELECTED = "not-selected"
    FILTERED = "filtered"
    NOT_READY = "not-ready"
    OUTDATED = "outdated"


_FACETS = {
    Outcome.FILTERED: ClusterFacet.FILTERED,
    Outcome.NOT_ELIGIBLE: ClusterFacet.NOT_READY,
}
_MOST_KEYS = 3


@dataclass(frozen=True, slots=True)
class PlacementCluster:
    """One cluster of a placement: its status, or its outcome where it is not selected."""

    name: str
    status: Badge
    binding: Any
    revision: str
    domains: list[str]
    why: str
    message: str
    is_outdated: bool


@dataclass(frozen=True, slots=True)
class DomainNode:
    """A domain in the tree of a placement: its selected clusters by status; `query` selects its clusters."""

    words: str
    query: str
    total: int
    states: list[tuple[Badge, int]]
    segments: list[Segment]
    clusters: list[tuple[str, Badge]]


@dataclass(frozen=True, slots=True)
class PlacementClusters:
    """One page of the clusters of a placement; `keys` are the topology keys of its policy.

    `levels` counts the selected clusters by the level of their status.
    """

    rows: list[PlacementCluster]
    keys: list[str]
    counts: list[tuple[ClusterFacet, int]]
    levels: list[tuple[HealthLevel, str, int]]
    chosen: str
    level: str
    count: int
    total: int
    first: int
    last: int
    earlier: int | None
    later: int | None


_LEVEL_WORDS = {
    HealthLevel.FAILED: "Failed",
    HealthLevel.ATTENTION: "Degraded",
    HealthLevel.UNKNOWN: "Unreachable",
    HealthLevel.PROGRESS: "In progress",
    HealthLevel.SUSPENDED: "Paused or pending",
    HealthLevel.HEALTHY: "Available",
}
_MOST_DOMAINS, _SAMPLE, _ROWS = 12, 50, 20


def domain_key(decision: Decision | None) -> str:
    """Return the label that the tree of a placement groups clusters by; empty without labels.

    It is the first one that its policy spreads over, else the region, else the first label of a cluster.
    """
    if decision is None:
        return ""
    fleet = decision_of(decision).cycle.fleet
    known = sorted({key for one in fleet.clusters[:_SAMPLE] for key in one.labels})
    regions = [key for key in known if key.rpartition("/")[2] == "region"]
    return next(iter([*_keys_of(decision), *regions, *known]), "")


def domain_nodes(
    key: str, selected: Sequence[SelectedClusters]
) -> tuple[list[DomainNode], int]:
    """Return the domains with selected clusters, the largest share of problems first, and how many more."""
    by_domain: dict[str | None, list[SelectedClusters]] = {}
    for one in selected:
        by_domain.setdefault(one.domain, []).append(one)
    nodes = []
    for value, several in by_domain.items():
        counts: Counter[Badge] = Counter()
        for one in several:
            counts[Badge(one.status.level, one.status.word)] += one.count
        states = sorted(
            counts.items(),
            key=lambda state: list(HealthLevel).index(HealthLevel(state[0].kind)),
        )
        total = counts.total()
        healthy = sum(
            count for badge, count in states if badge.kind == HealthLevel.HEALTHY
        )
        node = DomainNode(
            value_words(value) if key else "all clusters",
            urlencode({"label": label_filter(key, value)}) if key else "",
            total,
            states,
            segments((badge.kind, badge.words, count) for badge, count in states),
            sorted(
                (one.name, Badge(one.status.level, one.name))
                for one in several
                if one.name
            ),
        )
        nodes.append(((healthy / total, value is None, value or ""), node))
    nodes.sort(key=lambda one: one[0])
    return [node for _, node in nodes[:_MOST_DOMAINS]], max(
        0, len(nodes) - _MOST_DOMAINS
    )


def placement_clusters(
    request: HttpRequest,
    placement: Any,
    decision: Decision | None,
    selected: Sequence[SelectedClusters],
    outdated: set[str],
    *,
    now: datetime,
) -> PlacementClusters:
    """Return the page that the address selects: `?outcome=not-selected&from=50`; the selected ones first.

    The placement is loaded `with_rollouts`; the decision is the one that explains who is not selected.
    """
    outcomes = summary_of(decision) if decision else {}
    bound, joined = bound_and_joined(placement, decision)
    facets = dict.fromkeys(
        bound, ClusterFacet.NOT_SELECTED
    )  # those being removed may have left the fleet
    facets |= dict.fromkeys(joined, ClusterFacet.NOT_SELECTED)
    facets |= {
        name: _FACETS.get(one, ClusterFacet.NOT_SELECTED)
        for name, (one, _) in outcomes.items()
    }
    facets |= {
        one: ClusterFacet.SELECTED
        for one in bound
        if bound[one] != BindingState.UNSCHEDULED
    }
    counts = Counter(facets.values()) + Counter({ClusterFacet.OUTDATED: len(outdated)})
    chosen, level = (
        word_from(request, "outcome", ClusterFacet),
        word_from(request, "health", HealthLevel),
    )
    levels: Counter[HealthLevel] = Counter()
    for one in selected:
        levels[one.status.level] += one.count

    places = {facet: place for place, facet in enumerate(ClusterFacet)}

    def order(name: str) -> tuple[int, bool, int, str]:
        if name in bound:
            return (
                places[ClusterFacet.SELECTED],
                bound[name] == BindingState.UNSCHEDULED,
                0,
                name,
            )
        rank = outcomes[name][1] if name in outcomes else len(outcomes)
        return places[facets[name]], False, rank, name

    is_outdated = chosen is ClusterFacet.OUTDATED
    names = [
        one
        for one in facets
        if chosen in (None, facets[one]) or (is_outdated and one in outdated)
    ]
    if level:
        rows = Binding.objects.filter(placement=placement).exclude(
            state=BindingState.UNSCHEDULED
        )
        statuses = cluster_statuses(placement, rows, now=now)
        names = [row.cluster_name for row, status in statuses if status.level == level]
    start = number_of(request.GET.get("from", "")) or 0
    start = start - start % _ROWS if start < len(names) else 0
    page = nsmallest(start + _ROWS, names, key=order)[start:]
    return PlacementClusters(
        rows=_cluster_rows(placement, decision, page, outdated, joined, now=now),
        keys=_keys_of(decision),
        counts=[(one, counts[one]) for one in ClusterFacet if counts[one]],
        levels=[
            (one, _LEVEL_WORDS[one], levels[one]) for one in HealthLevel if levels[one]
        ],
        chosen=str(chosen or ""),
        level=str(level or ""),
        count=len(facets),
        total=len(names),
        first=start + 1 if page else 0,
        last=start + len(page),
        earlier=max(0, start - _ROWS) if start else None,
        later=start + _ROWS if start + _ROWS < len(names) else None,
    )


def _keys_of(decision: Decision | None) -> list[str]:
    constraints = (
        decision_of(decision).cycle.policy.topology_spread_constraints
        if decision
        else ()
    )
    return list(dict.fromkeys(one.topology_key for one in constraints))[:_MOST_KEYS]


def _cluster_rows(
    placement: Any,
    decision: Decision | None,
    names: Sequence[str],
    outdated: set[str],
    joined: Mapping[str, datetime],
    *,
    now: datetime,
) -> list[PlacementCluster]:
    bindings = Binding.objects.filter(placement=placement, cluster_name__in=names)
    statuses = {
        row.cluster_name: (row, one)
        for row, one in cluster_statuses(placement, bindings, now=now)
    }
    versions = applied_names(placement.pk, cluster_name__in=names) if statuses else {}
    words = waiting_words(
        [row for row, one in statuses.values() if one.level != HealthLevel.HEALTHY]
    )
    outcomes = Outcomes(decision_of(decision)) if decision else None
    fleet, keys = outcomes.cycle.fleet if outcomes else None, _keys_of(decision)
    rows = []
    for name in names:
        row, status = statuses.get(name, (None, None))
        place = fleet.positions.get(name) if fleet else None
        outcome = outcomes.of(name) if outcomes and place is not None else None
        labels = fleet.clusters[place].labels if fleet and place is not None else {}
        if status:
            badge = Badge(status.level, status.word)
        else:
            code = outcome.outcome if outcome else Outcome.NOT_REACHED
            badge = Badge(outcome_kind(code), OUTCOME_WORDS[code])
            if placement.deleting_since and code in (Outcome.PICKED, Outcome.KEPT):
                badge = Badge("suspended", "Removed")
        why = reason_sentence(outcome.reasons[0]) if outcome else ""
        if decision and name in joined and outcome is None:
            why = f"Joined {age_words(joined[name], now=now)} ago, after decision {decision.number}"
        rows.append(
            PlacementCluster(
                name,
                badge,
                row,
                versions.get(row.applied_version, "") if row else "",
                [labels.get(key, "") for key in keys],
                why,
                (row.message or words.get(row.pk, ""))
                if row and badge.kind != "healthy"
                else "",
                name in outdated,
            )
        )
    return rows
