"""Comparison of a replay with what a live hub wrote: a pure function of both.

See `rules/live-hub.md#agreement`.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from fleetui.apimachinery.model import mapping_at
from placements.engine.scheduling.comparison import placed
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.outcome import Outcome, Outcomes
from placements.explain.decisions import explain_rank
from placements.explain.hub_status import HubStatus, Plain
from placements.explain.vocabulary import reason_sentence
from placements.hubs.explain.agreements import Agreement
from placements.models import ReplayInputs

MOST_LISTED = 1_000
"""Decisions in the status of a policy snapshot."""
MOST_DIFFERENCES = 200
# How long ago a heartbeat was received, which no replay can know.
_AGES = re.compile(r" \((?:last|never) (?:received|transitioned)[^)]*\)$")
_CAUSES = 20
"""Differences whose cause is looked for: each evaluates a round over the whole fleet."""


@dataclass(slots=True)
class StatusComparison:
    """What differs between a hub and a replay: a document for the condition and for each cluster.

    `is_forgotten`: the hub lists fewer of the clusters that were not selected, and nothing else differs.
    """

    differences: list[Plain] = field(default_factory=list)
    is_same_condition: bool = True
    is_same_selection: bool = True
    is_forgotten: bool = False

    def agreement(self, inputs: str) -> Agreement:
        if self.is_forgotten:
            return Agreement.FORGOTTEN
        if not self.differences:
            return Agreement.AGREES
        if inputs == ReplayInputs.OBSERVED:
            return Agreement.DIFFERS
        if self.is_same_condition and self.is_same_selection:
            return Agreement.AGREES_ON_PICKS
        return Agreement.UNCERTAIN


def selected_in(status: HubStatus) -> frozenset[str]:
    return frozenset(
        decision["cluster"] for decision in status.decisions if decision["selected"]
    )


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
    hub: HubStatus,
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
        {decision["cluster"]: decision for decision in hub_status.decisions}
        for hub_status in (hub, replay)
    )
    condition = {key: hub.condition.get(key) for key in replay.condition}
    if condition != replay.condition:
        status.is_same_condition = False
        status.differences.append(_difference("", condition, replay.condition))
    sides = selected_in(hub), selected_in(replay)
    is_full = len(hub.decisions) >= MOST_LISTED
    for name in sorted(sides[0] | sides[1]):
        if is_full and name not in by_name:
            continue
        if not all(name in side for side in sides):
            status.is_same_selection = False
        ours = expected.get(name)
        theirs = by_name.get(name)
        if not _is_equal(theirs, ours):
            status.differences.append(_difference(name, theirs, ours))

    rest = [
        document
        for name, document in by_name.items()
        if name not in sides[0] | sides[1]
    ]
    compared = [_unselected(rest, sequence) for sequence in lists]
    is_shorter = is_any_unselected and not rest
    if compared:
        differences, is_shorter = min(compared, key=lambda one: (len(one[0]), one[1]))
        status.differences += differences
    status.is_forgotten = is_shorter and not status.differences
    return status


def _unselected(
    decisions: Sequence[Plain], expected: Sequence[Plain]
) -> tuple[list[Plain], bool]:
    """Return the differences among clusters not selected, and whether the hub lists fewer."""
    by_name = {
        document["cluster"]: document
        for document in expected
        if not document["selected"]
    }
    differences = [
        _difference(decision["cluster"], decision, by_name.get(decision["cluster"]))
        for decision in decisions
        if not _is_equal(decision, by_name.get(decision["cluster"]))
    ]
    return differences, not {
        decision["cluster"] for decision in decisions
    } >= by_name.keys()


def _is_equal(one: Plain | None, other: Plain | None) -> bool:
    if one is None or other is None:
        return one is other
    scores = ("affinityScore", "topologySpreadScore")
    return (
        one["selected"] == other["selected"]
        and all(one[key] == other[key] for key in scores)
        and _AGES.sub("", one["reason"]) == _AGES.sub("", other["reason"])
    )


def _difference(cluster: str, hub: Plain | None, replay: Plain | None) -> Plain:
    sides = {
        side: document
        and {key: value for key, value in document.items() if key != "cluster"}
        for side, document in (("hub", hub), ("replay", replay))
    }
    return {"cluster": cluster, **sides, "cause": ""}


def is_part_of(decisions: Iterable[Plain], recorded: Iterable[Plain]) -> bool:
    """Return whether all that a hub lists of clusters not selected was recorded before."""
    known = {document["cluster"]: document for document in recorded}
    return all(
        decision["selected"] or _is_equal(decision, known.get(decision["cluster"]))
        for decision in decisions
    )


def with_causes(
    differences: Sequence[Plain], decision: Decision, hub: HubStatus
) -> list[Plain]:
    """Add to the first differences what made the replay decide as it did."""
    outcomes = Outcomes(decision)
    first = list(differences[:MOST_DIFFERENCES])
    for document in first[:_CAUSES]:
        if document["cluster"]:
            document["cause"] = _cause(document["cluster"], outcomes, selected_in(hub))
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
