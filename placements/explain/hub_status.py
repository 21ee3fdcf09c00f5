"""The status that a hub would show for a decision (`rules/scheduler.md#unusual-values`), and that of OCM.

There are no cluster sets here: Open Cluster Management would report an empty fleet as an empty set.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from placements.engine.scheduling.decision import (
    WITHOUT_EVALUATION,
    CycleKind,
    Decision,
)
from placements.engine.scheduling.outcome import ClusterOutcome, Outcome, Outcomes
from placements.engine.scheduling.reason import Reason, ReasonCode
from placements.explain.hub_conditions import Condition, Truth
from placements.manifests.binding import BindingState

MOST_UNSELECTED = 20
_AGAINST = frozenset(
    {
        ReasonCode.REQUIRED_AFFINITY,
        ReasonCode.NOT_ELIGIBLE,
        ReasonCode.NAMESPACE_MISSING,
        ReasonCode.UNTOLERATED_TAINT,
        ReasonCode.TOPOLOGY_SPREAD,
        ReasonCode.OUTRANKED,
    }
)
Plain: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class HubStatus:
    """What the status of a policy snapshot would hold."""

    condition: Plain
    decisions: tuple[Plain, ...]


def condition_of(decision: Decision) -> Plain | None:
    """Return the condition, or None where a hub writes no status: a failed cycle, a list without names."""
    if decision.kind in (CycleKind.FAILED, CycleKind.NO_NAMES):
        return None
    count = len(decision.picked) + len(decision.kept) - len(_kept_but_refused(decision))
    if decision.is_fulfilled:
        message = f"found all cluster needed as specified by the scheduling policy, found {count} cluster(s)"
        return {
            "status": "True",
            "reason": "SchedulingPolicyFulfilled",
            "message": message,
        }
    message = (
        "could not find all clusters needed as specified by the scheduling policy, "
        f"found {count} cluster(s) instead"
    )
    return {
        "status": "False",
        "reason": "SchedulingPolicyUnfulfilled",
        "message": message,
    }


def hub_status(decision: Decision) -> HubStatus | None:
    """Return the status that a hub would write after this cycle, None where it writes none."""
    condition = condition_of(decision)
    if condition is None:
        return None
    selected = []
    # New clusters, those placed before, then kept ones, scheduled before bound.
    after = {binding.cluster: binding for binding in decision.bindings_after}
    before = {binding.cluster for binding in decision.cycle.live_bindings}
    kept = [
        after[name] for name in decision.kept if name not in _kept_but_refused(decision)
    ]
    placed = [
        after[name] for name in sorted(decision.picked_names, key=before.__contains__)
    ]
    for state in (BindingState.SCHEDULED, BindingState.BOUND):
        placed += [binding for binding in kept if binding.state is state]
    for binding in placed:
        affinity = integer_score(binding.affinity_score)
        spread = integer_score(binding.topology_spread_score)
        selected.append(
            _decision(
                binding.cluster,
                selected=True,
                affinity=affinity,
                spread=spread,
                reason=why_selected(binding.cluster, affinity, spread),
            )
        )
    not_found = [
        _decision(
            name, selected=False, reason=f'Specified cluster "{name}" is not found'
        )
        for name in decision.not_found
    ]
    return HubStatus(
        condition, (*selected, *[*_unselected(decision), *not_found][:MOST_UNSELECTED])
    )


def why_selected(cluster: str, affinity: object, spread: object) -> str:
    """Return the reason of a selected cluster; named clusters (PickFixed) have no scores."""
    scores = ""
    if affinity is not None and spread is not None:
        scores = _scores(integer_score(affinity), integer_score(spread))
    words = f'Successfully scheduled resources for placement in "{cluster}"{scores}'
    return f"{words}: picked by scheduling policy"


def integer_score(value: object) -> object:
    """Return a score as an integer where it is one, as a hub writes it; a record has them as floats."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _kept_but_refused(decision: Decision) -> frozenset[str]:
    """Return the named clusters that stay placed though not eligible: a hub counts them as not found."""
    if decision.kind is not CycleKind.PICK_FIXED:
        return frozenset()
    outcomes = Outcomes(decision)
    return frozenset(
        name
        for name in decision.kept
        if any(
            reason.code is ReasonCode.NOT_ELIGIBLE
            for reason in outcomes.of(name).reasons
        )
    )


def _decision(
    cluster: str,
    *,
    selected: bool,
    affinity: Any = None,
    spread: Any = None,
    reason: str,
) -> Plain:
    scores = {"affinityScore": affinity, "topologySpreadScore": spread}
    return {"cluster": cluster, "selected": selected, **scores, "reason": reason}


def _scores(affinity: object, spread: object) -> str:
    return f" (affinity score: {affinity}, topology spread score: {spread})"


def _unselected(decision: Decision) -> list[Plain]:
    """List outranked clusters, best first, then the others by name; none where no picking took place.

    A placed cluster that would not pass the filters today takes up a line of the 20 without being shown.
    """
    if decision.kind in WITHOUT_EVALUATION:
        return []
    names, outcomes = decision.cycle.fleet.names, Outcomes(decision)
    is_fixed = decision.kind is CycleKind.PICK_FIXED
    if is_fixed:
        named = decision.cycle.policy.cluster_names
        names = tuple(name for name in named if name not in decision.not_found)
    lines: list[Plain | None] = [*_outranked(decision, outcomes)]
    for name in names:
        if len(lines) == MOST_UNSELECTED:
            break
        outcome = outcomes.of(name)
        reason = _against(outcome)
        if reason is None or reason.code is ReasonCode.OUTRANKED:
            continue
        words = f"ClusterUnschedulable, {_CAUSES[reason.code](reason.facts)}"
        if is_fixed:
            why = (
                f"is not eligible for resource placement yet: {reason.facts['reason']}"
            )
            words = f'Cluster "{name}" {why}'
        is_kept = not is_fixed and outcome.outcome is Outcome.KEPT
        lines.append(None if is_kept else _decision(name, selected=False, reason=words))
    return [line for line in lines if line is not None]


def _outranked(decision: Decision, outcomes: Outcomes) -> list[Plain]:
    """List the best clusters that were not picked for their rank; a large fleet has many more of them."""
    lines: list[Plain] = []
    rounds, names = decision.number_of_rounds, decision.cycle.fleet.names
    for position in decision.round(rounds).ranked.tolist() if rounds else ():
        reason = _against(outcomes.of(names[position]))
        if reason is None or reason.code is not ReasonCode.OUTRANKED:
            continue
        affinity, spread = (
            reason.facts["affinityScore"],
            reason.facts["topologySpreadScore"],
        )
        words = f'Cluster "{names[position]}" does not score high enough{_scores(affinity, spread)}'
        lines.append(
            _decision(
                names[position],
                selected=False,
                affinity=affinity,
                spread=spread,
                reason=words,
            )
        )
        if len(lines) == MOST_UNSELECTED:
            break
    return lines


def _against(outcome: ClusterOutcome) -> Reason | None:
    """Return the first reason of a cluster that a hub names, if there is one."""
    return next((reason for reason in outcome.reasons if reason.code in _AGAINST), None)


_NAMESPACES = {
    True: "target namespace does not exist on cluster",
    False: "cluster has no namespace information available",
}
# Why a cluster cannot be selected, from the facts of the reason.
_CAUSES: dict[ReasonCode, Callable[[Mapping[str, Any]], str]] = {
    ReasonCode.REQUIRED_AFFINITY: lambda _: (
        "cluster does not match with any of the required cluster affinity terms"
    ),
    ReasonCode.NOT_ELIGIBLE: lambda facts: str(facts["reason"]),
    ReasonCode.NAMESPACE_MISSING: lambda facts: _NAMESPACES[bool(facts["known"])],
    ReasonCode.UNTOLERATED_TAINT: lambda facts: (
        "taint &{{Key:{key} Value:{value} Effect:{effect}}} cannot be tolerated".format(
            **facts["taints"][0]
        )
    ),
    ReasonCode.TOPOLOGY_SPREAD: lambda facts: (
        "violated doNotSchedule topology spread constraint "
        f'"{facts["topologyKey"]}" (max skew {facts["maxSkew"]})'
    ),
}


_SATISFIED, _MISCONFIGURED = "PlacementSatisfied", "PlacementMisconfigured"


def satisfied(decision: Decision | None, *, since: datetime) -> Condition:
    """Return `PlacementSatisfied`; unknown while nothing is decided."""
    if decision is None:
        return Condition(
            _SATISFIED,
            Truth.UNKNOWN,
            "SchedulePending",
            "scheduling has not completed yet",
            since,
        )
    count = sum(binding.is_active for binding in decision.bindings_after)
    number = decision.cycle.policy.number_of_clusters
    missing = (number or 0) - count
    rows = (
        (
            not len(decision.cycle.fleet),
            Truth.FALSE,
            "AllManagedClusterSetsEmpty",
            "there is no cluster in the fleet",
        ),
        (
            decision.is_failed,
            Truth.FALSE,
            "NotAllDecisionsScheduled",
            "the constraints cannot be met; nothing was changed",
        ),
        (
            not count and number != 0,
            Truth.FALSE,
            "NoManagedClusterMatched",
            "no cluster passes the predicates and the taints",
        ),
        (
            missing > 0,
            Truth.FALSE,
            "NotAllDecisionsScheduled",
            f"{missing} cluster decisions unscheduled",
        ),
        (
            True,
            Truth.TRUE,
            "AllDecisionsScheduled",
            "all cluster decisions scheduled",
        ),
    )
    _, status, reason, message = next(row for row in rows if row[0])
    return Condition(_SATISFIED, status, reason, message, since)


def misconfigured(errors: list[dict[str, str]], *, since: datetime) -> Condition:
    """Return `PlacementMisconfigured`: a document at fault is refused, so only what it selects can be."""
    if errors:
        words = "; ".join(error["message"] for error in errors)
        return Condition(_MISCONFIGURED, Truth.TRUE, "Misconfigured", words, since)
    return Condition(
        _MISCONFIGURED,
        Truth.FALSE,
        "Succeedconfigured",
        "the document could be read",
        since,
    )
