"""The clusters of a decision, and of a placement, as tables: 50 rows a page, filtered by outcome."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from heapq import nsmallest
from typing import Any

from django.http import HttpRequest

from clusters.queries import current_fleet
from fleetui.apimachinery.words import names_and_more
from placements.engine.scheduling.outcome import ClusterOutcome, Outcome
from placements.engine.status import TROUBLED, HealthLevel
from placements.explain.vocabulary import (
    OUTCOME_ORDER,
    OUTCOME_WORDS,
    outcome_sentences,
)
from placements.manifests.binding import BindingState
from placements.manifests.policy import PlacementType
from placements.models import Decision, Placement
from placements.services.decisions.records import (
    decision_of,
    summary_of,
)
from placements.services.decisions.why_not import (
    ExplainedCluster,
    bound_and_members,
    explained_clusters,
)
from placements.services.health import cluster_statuses
from placements.services.rollouts.queries import waiting_words
from placements.web.badges import Badge, outcome_kind
from placements.web.request import RowRange, range_from, word_from

_ORDER = {outcome: place for place, outcome in enumerate(OUTCOME_ORDER)}


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    cluster: str
    outcome: str
    kind: str
    why: str
    also: list[str]


@dataclass(frozen=True, slots=True)
class OutcomeTable(RowRange):
    """One page of the table, with all rows that the filters leave and the number of each outcome."""

    matches: tuple[ClusterOutcome, ...]
    rows: list[OutcomeRow]
    counts: list[tuple[str, str, int]]
    chosen: str


def outcome_table(
    request: HttpRequest,
    outcomes: Sequence[ClusterOutcome],
    *,
    hidden: str | None = None,
) -> OutcomeTable:
    """Return the page of these outcomes that the address selects: `?outcome=filtered&from=50`.

    A hidden state is counted and not listed. Ordered by outcome, then picks by step, the outranked by
    rank, all others by name.
    """

    def order(one: ClusterOutcome) -> tuple[int, int, str]:
        facts = one.reasons[0].facts
        return (
            _ORDER[one.state],
            int(facts.get("pick") or facts.get("rank") or 0),
            one.cluster,
        )

    chosen = request.GET.get("outcome", "")
    if chosen not in _ORDER:
        chosen = ""
    counts = Counter(outcome.state for outcome in outcomes)
    matching = (
        outcome
        for outcome in outcomes
        if chosen in ("", outcome.state) and outcome.state != hidden
    )
    matches = tuple(sorted(matching, key=order))
    shown = range_from(request, len(matches))
    return OutcomeTable(
        shown.start,
        shown.size,
        shown.total,
        matches=matches,
        rows=list(map(outcome_row, matches[shown.start : shown.last])),
        counts=[
            (str(one), OUTCOME_WORDS[one], counts[one]) for one in _ORDER if counts[one]
        ],
        chosen=chosen,
    )


def outcome_row(one: ClusterOutcome) -> OutcomeRow:
    why, *also = outcome_sentences(one)
    return OutcomeRow(
        one.cluster,
        OUTCOME_WORDS[one.state],
        outcome_kind(one.state),
        why,
        also,
    )


class ClusterFacet(StrEnum):
    SELECTED = "selected"
    NOT_SELECTED = "not-selected"
    OUTDATED = "outdated"
    WITH_PROBLEMS = "with-problems"


_MOST_KEYS = 3


@dataclass(frozen=True, slots=True)
class PlacementCluster:
    """One cluster of a placement: its status, or its outcome where it is not selected."""

    name: str
    status: Badge
    binding: Any
    # The number of the step that selected it in the decision shown.
    place: int | None
    domains: list[str]
    why: str
    message: str
    is_outdated: bool


@dataclass(frozen=True, slots=True)
class PlacementClusters(RowRange):
    """One page of the clusters of a placement; `keys` are the topology keys of its policy."""

    rows: list[PlacementCluster]
    keys: list[str]
    counts: list[tuple[ClusterFacet, int]]
    chosen: str
    count: int
    # Clusters that joined after the decision.
    newer: int


# Fewer than in a list: the page of a placement is polled.
_ROWS = 25
# Selected clusters of which all statuses are read, to list those with problems first.
_MOST_READ = 200


def placement_clusters(
    request: HttpRequest,
    placement: Any,
    decision: Decision | None,
    outdated: Mapping[str, str],
    *,
    problems: int,
    now: datetime,
) -> PlacementClusters:
    """Return the page that the address selects: `?outcome=not-selected&from=50`; the selected ones first.

    Of these, those with problems are first; in a large placement only the filter reads who has any.
    The placement is loaded `with_rollouts`; the decision is the one that explains who is not selected.
    """
    outcomes = summary_of(decision) if decision else {}
    bound, members = bound_and_members(placement)
    newer = members.difference(outcomes if decision else members)
    # Those being removed may have left the fleet.
    facets = dict.fromkeys([*bound, *newer, *outcomes], ClusterFacet.NOT_SELECTED)
    facets |= {
        one: ClusterFacet.SELECTED
        for one in bound
        if bound[one] != BindingState.UNSCHEDULED
    }
    counts = Counter(facets.values())
    counts[ClusterFacet.OUTDATED] = len(outdated)
    counts[ClusterFacet.WITH_PROBLEMS] = problems
    chosen = word_from(request, "outcome", ClusterFacet)

    places = {facet: place for place, facet in enumerate(ClusterFacet)}
    selected_in = _steps_of(decision)

    troubled: set[str] = set()
    if chosen is ClusterFacet.WITH_PROBLEMS or (problems and len(bound) <= _MOST_READ):
        active = placement.bindings.exclude(state=BindingState.UNSCHEDULED)
        troubled = {
            row.cluster_name
            for row, status in cluster_statuses(placement, active, now=now)
            if status.level in TROUBLED
        }

    def order(name: str) -> tuple[int, bool, bool, int, str]:
        if name in bound:
            return (
                places[ClusterFacet.SELECTED],
                name not in troubled,
                bound[name] == BindingState.UNSCHEDULED,
                selected_in.get(name, len(selected_in) + 1),
                name,
            )
        rank = outcomes[name][1] if name in outcomes else len(outcomes)
        return places[facets[name]], False, False, rank, name

    is_outdated = chosen is ClusterFacet.OUTDATED
    names = [
        facet
        for facet in facets
        if chosen in (None, facets[facet]) or (is_outdated and facet in outdated)
    ]
    if chosen is ClusterFacet.WITH_PROBLEMS:
        names = list(troubled)
    shown = range_from(request, len(names), _ROWS)
    page = nsmallest(shown.last, names, key=order)[shown.start :]
    return PlacementClusters(
        shown.start,
        shown.size,
        shown.total,
        rows=_cluster_rows(placement, decision, page, outdated, now=now),
        keys=_keys_of(decision),
        counts=[(facet, counts[facet]) for facet in ClusterFacet if counts[facet]],
        chosen=str(chosen or ""),
        count=len(facets),
        newer=len(newer),
    )


def placed_by_domain(placement: Placement, keys: Sequence[str]) -> dict[str, str]:
    """Return by topology key how many clusters of each domain are selected today, in words."""
    if not keys:
        return {}
    bound, _ = bound_and_members(placement)
    fleet = current_fleet().fleet
    at = [
        fleet.positions[name]
        for name, state in bound.items()
        if state != BindingState.UNSCHEDULED and name in fleet.positions
    ]
    words = {}
    for key in keys:
        counts = Counter(fleet.label(key).value_at(place) for place in at)
        domains = [f"{value} {counts[value]}" for value in fleet.label(key).values]
        words[key] = names_and_more(domains, _ROWS)
    return words


def _keys_of(decision: Decision | None) -> list[str]:
    constraints = (
        decision_of(decision).cycle.policy.topology_spread_constraints
        if decision
        else ()
    )
    return list(dict.fromkeys(constraint.topology_key for constraint in constraints))[
        :_MOST_KEYS
    ]


def _steps_of(decision: Decision | None) -> dict[str, int]:
    """Return the number of the step that selected each cluster; empty where none is ranked."""
    if decision is None:
        return {}
    value = decision_of(decision)
    if value.cycle.policy.placement_type is not PlacementType.PICK_N:
        return {}
    return {name: number for number, name in enumerate(value.picked_names, start=1)}


def _cluster_rows(
    placement: Any,
    decision: Decision | None,
    names: Sequence[str],
    outdated: Mapping[str, str],
    *,
    now: datetime,
) -> list[PlacementCluster]:
    bindings = placement.bindings.filter(cluster_name__in=names)
    statuses = {
        row.cluster_name: (row, cluster_status)
        for row, cluster_status in cluster_statuses(placement, bindings, now=now)
    }
    words = waiting_words(
        [
            row
            for row, cluster_status in statuses.values()
            if cluster_status.level != HealthLevel.HEALTHY
        ]
    )
    explained = (
        explained_clusters(placement, decision, names, now=now) if decision else {}
    )
    selected_in = _steps_of(decision)
    keys = _keys_of(decision)
    rows = []
    for name in names:
        row, status = statuses.get(name, (None, None))
        known = explained.get(name, ExplainedCluster())
        badge = Badge(outcome_kind(known.outcome), OUTCOME_WORDS[known.outcome])
        if status:
            badge = Badge(status.level, status.word)
        elif placement.deleting_since and known.outcome in (
            Outcome.PICKED,
            Outcome.KEPT,
        ):
            badge = Badge("suspended", "Removed")
        why = known.why + known.joined
        if outdated.get(name):
            why = f"Not selected if rescheduled: {outdated[name]}"
        rows.append(
            PlacementCluster(
                name,
                badge,
                row,
                selected_in.get(name),
                [known.labels.get(key, "") for key in keys],
                why,
                (row.message or words.get(row.pk, ""))
                if row and badge.kind != "healthy"
                else "",
                name in outdated,
            )
        )
    return rows
