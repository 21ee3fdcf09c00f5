"""The status that a released hub would show for a decision: its limits, its order, its words.

A hub lists at most 20 clusters that were not chosen (`spec/scheduler.md` 4.4). The words are those of
the released scheduler's own status, so that the two can be compared line by line.
"""

from dataclasses import dataclass

from placements.scheduling.bindings import Binding, BindingState
from placements.scheduling.decision import CycleKind, Decision
from placements.scheduling.outcomes import ClusterOutcome, Outcome, Outcomes
from placements.scheduling.reasons import Reason, ReasonCode
from placements.scheduling.rounds import SpreadScore

MOST_UNSELECTED = 20


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition `Scheduled` of a policy snapshot."""

    status: str
    reason: str
    message: str

    def plain(self) -> dict[str, str]:
        """Give the condition as plain data."""
        return {"status": self.status, "reason": self.reason, "message": self.message}


@dataclass(frozen=True, slots=True)
class ClusterDecision:
    """One line of a hub's decisions."""

    cluster: str
    is_selected: bool
    affinity_score: float | None
    topology_spread_score: SpreadScore | None
    reason: str

    def plain(self) -> dict[str, object]:
        """Give the line as plain data."""
        return {
            "cluster": self.cluster,
            "selected": self.is_selected,
            "affinityScore": self.affinity_score,
            "topologySpreadScore": self.topology_spread_score,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class HubStatus:
    """What the status of a policy snapshot would hold."""

    condition: Condition
    decisions: tuple[ClusterDecision, ...]


def condition_of(decision: Decision) -> Condition | None:
    """Give the condition, or None where a hub writes no status: a failed cycle, a list without names."""
    if decision.kind in (CycleKind.FAILED, CycleKind.NO_NAMES):
        return None
    found = len(decision.picked) + len(decision.kept) - len(_kept_but_refused(decision))
    if decision.is_fulfilled:
        message = f"found all cluster needed as specified by the scheduling policy, found {found} cluster(s)"
        return Condition("True", "SchedulingPolicyFulfilled", message)
    message = (
        "could not find all clusters needed as specified by the scheduling policy, "
        f"found {found} cluster(s) instead"
    )
    return Condition("False", "SchedulingPolicyUnfulfilled", message)


def hub_status(decision: Decision) -> HubStatus | None:
    """Give the status that a hub would write after this cycle, None where it writes none."""
    condition = condition_of(decision)
    if condition is None:
        return None
    selected = [_selected(binding) for binding in _in_hub_order(decision)]
    unselected = [*_unselected(decision), *_not_found(decision)]
    return HubStatus(condition, (*selected, *unselected[:MOST_UNSELECTED]))


def _in_hub_order(decision: Decision) -> list[Binding]:
    """Order what is placed: new picks, re-used ones, then kept ones, scheduled before bound."""
    after = {binding.cluster: binding for binding in decision.bindings_after}
    before = {binding.cluster for binding in decision.cycle.live_bindings}
    new = [name for name in decision.picked_names if name not in before]
    reused = [name for name in decision.picked_names if name in before]
    kept = [name for name in decision.kept if name not in _kept_but_refused(decision)]
    scheduled = [name for name in kept if after[name].state is BindingState.SCHEDULED]
    bound = [name for name in kept if after[name].state is BindingState.BOUND]
    return [after[name] for name in (*new, *reused, *scheduled, *bound)]


def _kept_but_refused(decision: Decision) -> frozenset[str]:
    """Give the named clusters that stay placed though no longer eligible: a hub counts them as not found."""
    if decision.kind is not CycleKind.PICK_FIXED:
        return frozenset()
    outcomes = Outcomes(decision)
    return frozenset(name for name in decision.kept if _is_refused(outcomes.of(name)))


def _is_refused(outcome: ClusterOutcome) -> bool:
    return any(reason.code is ReasonCode.NOT_ELIGIBLE for reason in outcome.reasons)


def _selected(binding: Binding) -> ClusterDecision:
    scores = ""
    if binding.affinity_score is not None and binding.topology_spread_score is not None:
        scores = _scores(binding.affinity_score, binding.topology_spread_score)
    return ClusterDecision(
        binding.cluster,
        is_selected=True,
        affinity_score=binding.affinity_score,
        topology_spread_score=binding.topology_spread_score,
        reason=f'Successfully scheduled resources for placement in "{binding.cluster}"{scores}: '
        "picked by scheduling policy",
    )


def _scores(affinity: object, spread: object) -> str:
    return f" (affinity score: {affinity}, topology spread score: {spread})"


def _unselected(decision: Decision) -> list[ClusterDecision]:
    """List outranked clusters, best first, then the others by name; none where no picking took place.

    A placed cluster that would not pass the filters today takes up a line of the 20 without being shown.
    """
    if decision.kind in (CycleKind.SCALE_DOWN, CycleKind.NOTHING_TO_DO):
        return []
    ranked: list[tuple[int, ClusterDecision]] = []
    others: list[ClusterDecision | None] = []
    for outcome in Outcomes(decision):
        reason = _against(outcome)
        if reason is None:
            continue
        if reason.code is ReasonCode.OUTRANKED:
            ranked.append((reason.facts["rank"], _outranked(outcome.cluster, reason)))
        else:
            is_hidden = outcome.outcome is Outcome.KEPT and decision.kind is not CycleKind.PICK_FIXED
            others.append(None if is_hidden else _refused(decision, outcome.cluster, reason))
    if decision.kind is CycleKind.PICK_FIXED:
        order = {name: place for place, name in enumerate(decision.cycle.policy.cluster_names)}
        others.sort(key=lambda line: order[line.cluster] if line is not None else -1)
    lines = [line for _, line in sorted(ranked, key=lambda pair: pair[0])] + others
    return [line for line in lines[:MOST_UNSELECTED] if line is not None]


def _against(outcome: ClusterOutcome) -> Reason | None:
    """Give the first reason against a cluster, None for one that a hub lists as chosen or not at all."""
    codes = (ReasonCode.REQUIRED_AFFINITY, ReasonCode.NOT_ELIGIBLE, ReasonCode.UNTOLERATED_TAINT)
    against = (*codes, ReasonCode.TOPOLOGY_SPREAD, ReasonCode.OUTRANKED)
    return next((reason for reason in outcome.reasons if reason.code in against), None)


def _outranked(cluster: str, reason: Reason) -> ClusterDecision:
    affinity, spread = reason.facts["affinityScore"], reason.facts["topologySpreadScore"]
    words = f'Cluster "{cluster}" does not score high enough{_scores(affinity, spread)}'
    return ClusterDecision(cluster, False, affinity, spread, words)


def _refused(decision: Decision, cluster: str, reason: Reason) -> ClusterDecision:
    words = f"ClusterUnschedulable, {_cause(reason)}"
    if decision.kind is CycleKind.PICK_FIXED:
        words = f'Cluster "{cluster}" is not eligible for resource placement yet: {reason.facts["reason"]}'
    return ClusterDecision(cluster, False, None, None, words)


def _cause(reason: Reason) -> str:
    facts = reason.facts
    if reason.code is ReasonCode.REQUIRED_AFFINITY:
        return "cluster does not match with any of the required cluster affinity terms"
    if reason.code is ReasonCode.TOPOLOGY_SPREAD:
        limit = f'"{facts["topologyKey"]}" (max skew {facts["maxSkew"]})'
        return f"violated doNotSchedule topology spread constraint {limit}"
    if reason.code is ReasonCode.UNTOLERATED_TAINT:
        first = facts["taints"][0]
        written = f"Key:{first['key']} Value:{first['value']} Effect:{first['effect']}"
        return f"taint &{{{written}}} cannot be tolerated"
    return str(facts["reason"])


def _not_found(decision: Decision) -> list[ClusterDecision]:
    return [
        ClusterDecision(name, False, None, None, f'Specified cluster "{name}" is not found')
        for name in decision.not_found
    ]
