"""All clusters of a decision, filtered: by outcome, by the rule that decided, by name, by group."""

from collections.abc import Iterator
from dataclasses import dataclass

from django.http import HttpRequest

from placements.explain.charts.funnel import RULES
from placements.queries.records import AnyDecision, decision_of, outcomes_of
from placements.scheduling.fleet import Cluster
from placements.scheduling.outcomes import ClusterOutcome
from placements.scheduling.reasons import ReasonCode
from placements.views.lists import word_from
from placements.views.outcomes import OutcomeTable, outcome_table

_MOST_GROUPS = 60


@dataclass(frozen=True, slots=True)
class ClusterList:
    """The table with what filters it."""

    table: OutcomeTable
    text: str
    group: str
    reason: str
    reason_words: str
    groups: list[str]
    is_filtered: bool


def cluster_list(request: HttpRequest, row: AnyDecision) -> ClusterList:
    """Give the clusters that the address asks for: `?q=fox&group=region:east&reason=outranked`."""
    text = request.GET.get("q", "").strip().lower()
    group = request.GET.get("group", "").strip()
    reason = word_from(request, "reason", ReasonCode)
    found = list(_matching(row, text, group, reason))
    return ClusterList(
        outcome_table(request, row, found),
        text,
        group,
        str(reason or ""),
        RULES.get(reason, "") if reason else "",
        _groups(row),
        bool(text or group or reason),
    )


def _matching(row: AnyDecision, text: str, group: str, reason: ReasonCode | None) -> Iterator[ClusterOutcome]:
    key, _, value = group.partition(":")
    pairs = zip(outcomes_of(row), decision_of(row).cycle.fleet, strict=True)
    for one, cluster in pairs:
        if text not in one.cluster or (group and _value_of(cluster, key) != value):
            continue
        if reason and not _is_ruled_by(one, reason):
            continue
        yield one


def _value_of(cluster: Cluster, key: str) -> str:
    """Give a cluster's value of a topology key; a claim is one of its properties. Empty for none."""
    return cluster.labels.get(key) or cluster.properties.get(key, "")


def _is_ruled_by(one: ClusterOutcome, reason: ReasonCode) -> bool:
    """Compare as the funnel does: what people call the same is the same."""
    return one.ruled_by is reason or (reason in RULES and RULES.get(one.ruled_by) == RULES[reason])


def _groups(row: AnyDecision) -> list[str]:
    cycle = decision_of(row).cycle
    found = [
        f"{one.topology_key}:{value}"
        for one in cycle.policy.topology_spread_constraints
        for value in cycle.fleet.topology(one.topology_key, one.topology_key_type).values
    ]
    return found if len(found) <= _MOST_GROUPS else []
