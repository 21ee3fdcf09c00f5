"""Comparison of a replay with what a live hub wrote: a pure function of both.

See `rules/live-hub.md#agreement`.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from placements.engine.scheduling.comparison import placed
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.outcome import Outcome, Outcomes
from placements.explain.decisions import explain_rank
from placements.explain.hub_status import HubStatus, Plain
from placements.explain.vocabulary import reason_sentence
from placements.hubs.explain.agreements import Agreement
from placements.hubs.kinds.base import mapping_at
from placements.models import ReplayInputs

MOST_LISTED = 1_000
"""Decisions in the status of a policy snapshot."""
MOST_DIFFERENCES = 200
_AGES = re.compile(r" \((?:last|never) (?:received|transitioned)[^)]*\)$")
_CAUSES = 20
"""Differences whose cause is looked for: each evaluates a round over the whole fleet."""


@dataclass(frozen=True, slots=True)
class HubWords:
    """What a hub wrote about one decision: condition, and a plain document for each cluster it lists."""

    condition: Plain
    decisions: tuple[Plain, ...]

    @property
    def selected(self) -> frozenset[str]:
        return frozenset(one["cluster"] for one in self.decisions if one["selected"])

    @property
    def is_full(self) -> bool:
        return len(self.decisions) >= MOST_LISTED


@dataclass(slots=True)
class StatusComparison:
    """What differs between a hub and a replay: a document for the condition and for each cluster.

    `is_forgotten`: the hub lists fewer of the clusters that were not selected, and nothing else differs.
    """

    differences: list[Plain] = field(default_factory=list)
    is_same_condition: bool = True
    is_same_selection: bool = True
    is_forgotten: bool = False

    @property
    def is_equal(self) -> bool:
        return not self.differences


def plain_decisions(entries: Iterable[object]) -> tuple[Plain, ...]:
    """Return the decisions in the status of a policy snapshot as our documents have them."""
    decisions = []
    for entry in entries:
        one = mapping_at(entry)
        scores = mapping_at(one, "clusterScore")
        line = {
            "cluster": str(one.get("clusterName", ""))[:253],
            "selected": one.get("selected") is True,
            "affinityScore": scores.get("affinityScore"),
            "topologySpreadScore": scores.get("priorityScore"),
            "reason": str(one.get("reason", ""))[:4096],
        }
        decisions.append(line)
    return tuple(decisions)


def compare(
    hub: HubWords,
    replay: HubStatus,
    *,
    lists: Sequence[Sequence[Plain]],
    is_any_unselected: bool = False,
) -> StatusComparison:
    """Compare what a hub wrote with the status that a replay would write, by cluster and in any order.

    `lists` are decisions that may have written the clusters not selected, and the hub's may be a part of one
    of them. Without any they are not compared, and they are forgotten if there were some.
    """
    status = StatusComparison()
    by_name, expected = (
        {one["cluster"]: one for one in each.decisions} for each in (hub, replay)
    )
    selected = frozenset(name for name, one in expected.items() if one["selected"])
    condition = {key: hub.condition.get(key) for key in replay.condition}
    if condition != replay.condition:
        status.is_same_condition = False
        status.differences.append(_difference("", condition, replay.condition))
    for name in sorted(selected | hub.selected):
        if name not in by_name and hub.is_full:
            continue
        status.is_same_selection = (
            status.is_same_selection and name in selected and name in hub.selected
        )
        if not _is_equal(by_name.get(name), expected.get(name)):
            status.differences.append(
                _difference(name, by_name.get(name), expected.get(name))
            )

    rest = [one for name, one in by_name.items() if name not in selected | hub.selected]
    compared = [_unselected(rest, one) for one in lists]
    if compared:
        differences, is_shorter = min(compared, key=lambda one: (len(one[0]), one[1]))
        status.differences += differences
    else:
        is_shorter = is_any_unselected and not rest
    status.is_forgotten = is_shorter and not status.differences
    return status


def _unselected(
    decisions: Sequence[Plain], expected: Sequence[Plain]
) -> tuple[list[Plain], bool]:
    """Return the differences among clusters not selected, and whether the hub lists fewer."""
    by_name = {one["cluster"]: one for one in expected if not one["selected"]}
    differences = [
        _difference(one["cluster"], one, by_name.get(one["cluster"]))
        for one in decisions
        if not _is_equal(one, by_name.get(one["cluster"]))
    ]
    return differences, not {one["cluster"] for one in decisions} >= by_name.keys()


def _is_equal(one: Plain | None, other: Plain | None) -> bool:
    if one is None or other is None:
        return one is other
    scores = ("affinityScore", "topologySpreadScore")
    return (
        one["selected"] == other["selected"]
        and all(one[key] == other[key] for key in scores)
        and without_age(one["reason"]) == without_age(other["reason"])
    )


def without_age(reason: str) -> str:
    """Return a reason without how long ago a heartbeat was received, which no replay can know."""
    return _AGES.sub("", reason)


def _difference(cluster: str, hub: Plain | None, replay: Plain | None) -> Plain:
    keys = (
        ("selected", "affinityScore", "topologySpreadScore", "reason")
        if cluster
        else None
    )
    hub, replay = (
        None if one is None else {key: one.get(key) for key in keys or one}
        for one in (hub, replay)
    )
    return {"cluster": cluster, "hub": hub, "replay": replay, "cause": ""}


def is_part_of(decisions: Iterable[Plain], recorded: Iterable[Plain]) -> bool:
    """Return whether all that a hub lists of clusters not selected was recorded before."""
    known = {one["cluster"]: one for one in recorded}
    return all(
        one["selected"] or _is_equal(one, known.get(one["cluster"]))
        for one in decisions
    )


def agreement_of(comparison: StatusComparison, inputs: str) -> Agreement:
    if comparison.is_forgotten:
        return Agreement.FORGOTTEN
    if comparison.is_equal:
        return Agreement.AGREES
    if inputs == ReplayInputs.OBSERVED:
        return Agreement.DIFFERS
    if comparison.is_same_condition and comparison.is_same_selection:
        return Agreement.AGREES_ON_PICKS
    return Agreement.UNCERTAIN


def with_causes(
    differences: Sequence[Plain], decision: Decision, hub: HubWords
) -> list[Plain]:
    """Add to the first differences what made the replay decide as it did."""
    outcomes, first = Outcomes(decision), list(differences[:MOST_DIFFERENCES])
    for one in first[:_CAUSES]:
        if one["cluster"]:
            one["cause"] = _cause(one["cluster"], outcomes, hub.selected)
    return first


def _cause(name: str, outcomes: Outcomes, selected: Collection[str]) -> str:
    """Return the first step and column where both part, or the reason of the replay for a cluster."""
    decision = outcomes.decision
    positions = decision.cycle.fleet.positions
    if name not in positions:
        return "The cluster was not in the fleet of the replay"
    outcome = outcomes.of(name)
    others = sorted((set(selected) - set(placed(decision))) & positions.keys())
    if (
        outcome.outcome is Outcome.PICKED
        and name not in selected
        and others
        and outcome.round
    ):
        step = decision.round(outcome.round)
        why = explain_rank(decision, step, name, others[0])
        if step.contends[positions[others[0]]]:
            why = f"{name} comes before {others[0]}: {why}"
        return f"Step {outcome.round}: {why}"
    return reason_sentence(outcome.reasons[0])
