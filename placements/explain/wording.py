"""Every sentence about a decision: reason codes and facts in, words for people out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from placements.scheduling.decision import CycleKind, Decision
from placements.scheduling.fleet import EligibilityKind
from placements.scheduling.reasons import Reason, ReasonCode
from placements.scheduling.replay import Spread, Step

Facts = Mapping[str, Any]

COLUMN_WORDS = {
    "topology": "topology spread",
    "affinity": "affinity",
    "was-here": "having been here before",
    "name": "the larger name",
    None: "only one left",
}
ELIGIBILITY_WORDS = {
    EligibilityKind.LEAVING: "is leaving the fleet",
    EligibilityKind.NO_AGENT: "has never reported: its member agent is not online",
    EligibilityKind.STALE_HEARTBEAT: "has sent no recent heartbeat",
    EligibilityKind.NOT_JOINED: "has not joined: its member agent is not ready",
    EligibilityKind.NO_HEALTH: "does not report its health",
    EligibilityKind.UNHEALTHY: "has been unhealthy for too long",
    EligibilityKind.UNSPECIFIED: "is not eligible",
}
_OPERATOR_WORDS = {"Gt": ">", "Ge": "≥", "Eq": "=", "Ne": "≠", "Lt": "<", "Le": "≤"}


def reason_sentence(reason: Reason) -> str:
    """Say one reason; it reads after the name of the cluster."""
    return _SENTENCES[reason.code](reason.facts)


def headline(decision: Decision) -> str:
    """Say in one sentence how the cycle came out."""
    picked, kept = len(decision.picked), len(decision.kept)
    wanted = decision.cycle.policy.number_of_clusters
    named = len(decision.cycle.policy.cluster_names)
    sentences = {
        CycleKind.PICK_FIXED: f"{picked + kept} of {named} named clusters placed",
        CycleKind.NO_NAMES: "the list of cluster names is empty: nothing was done",
        CycleKind.PICK_ALL: f"every cluster that passes: {picked} picked, {kept} kept",
        CycleKind.PICK: f"{picked + kept} of {wanted} placed: {picked} picked, {kept} kept",
        CycleKind.SCALE_DOWN: f"{kept} of {wanted} kept, {len(decision.unscheduled)} unscheduled",
        CycleKind.NOTHING_TO_DO: f"{kept} of {wanted} placed already: nothing to do",
        CycleKind.FAILED: "the cycle failed: a property value is no quantity",
    }
    return sentences[decision.kind]


def round_sentence(step: Step) -> str:
    """Say what one round did, and what decided it."""
    if step.winner is None:
        return f"nobody left: {_nobody(step)}"
    if step.cut is not None:
        return _cut_sentence(step)
    if step.runner_up is None:
        return f"{step.winner}, the only one left"
    return f"{step.winner} before {step.runner_up}, by {COLUMN_WORDS[step.decided_by]}"


def _cut_sentence(step: Step) -> str:
    cut = step.cut
    if cut is None or cut.first_out is None:
        return "all that pass the filters, ranked once"
    deciding = COLUMN_WORDS[cut.decided_by]
    return f"the best {cut.size} of one ranking; {cut.last_in} before {cut.first_out}, by {deciding}"


def _nobody(step: Step) -> str:
    limits = [spread_limit(one) for one in step.spreads if one.forbids]
    if limits:
        return "every pick would break " + " or ".join(limits)
    if step.number > 1:
        return "every cluster that passes the filters is picked"
    return "no cluster passes the filters"


def spread_limit(spread: Spread) -> str:
    """Name a constraint with its limit."""
    return f"{spread.topology_key} (max skew {spread.max_skew}, {'hard' if spread.is_hard else 'soft'})"


def joined(words: Sequence[str], last: str = "and") -> str:
    """Join words with commas and a last conjunction."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def _picked(facts: Facts) -> str:
    scores = f"topology spread {facts['topologySpreadScore']}, affinity {facts['affinityScore']}"
    return f"picked in step {facts['round']} ({scores})"


def _kept(facts: Facts) -> str:
    return f"placed already ({facts['state']}); a placed cluster stays"


def _required_affinity(facts: Facts) -> str:
    terms = [joined([_requirement(one) for one in term]) for term in facts["terms"]]
    return "matches no required term: " + "; or ".join(terms)


def _requirement(facts: Facts) -> str:
    actual = facts["actual"]
    if "property" in facts:
        have = "is not reported" if actual is None else f"is {actual}"
        return f"{facts['property']} {have}, wanted {_OPERATOR_WORDS[facts['operator']]} {facts['values'][0]}"
    have = f"no label {facts['label']}" if actual is None else f"{facts['label']}={actual}"
    wants = {
        "In": f"wanted {joined(facts['values'], 'or')}",
        "NotIn": f"wanted anything but {joined(facts['values'], 'or')}",
        "Exists": "wanted any value",
        "DoesNotExist": "wanted no such label",
    }
    return f"{have}, {wants[facts['operator']]}"


def _not_eligible(facts: Facts) -> str:
    words = ELIGIBILITY_WORDS[EligibilityKind(facts["kind"])]
    return f"{words} ({facts['reason']})" if facts["reason"] else words


def _untolerated(facts: Facts) -> str:
    written = [taint_words(one) for one in facts["taints"]]
    return f"has {'a taint' if len(written) == 1 else 'taints'} that nothing tolerates: {joined(written)}"


def taint_words(facts: Facts) -> str:
    """Write a taint as people do: its key, and its value where it has one."""
    return f"{facts['key']}={facts['value']}" if facts["value"] else str(facts["key"])


def _topology_spread(facts: Facts) -> str:
    group, count = f"{facts['topologyKey']}={facts['group']}", facts["count"]
    if facts["group"] is None:
        return f"has no label {facts['topologyKey']}, which the spread needs"
    after = f"one more makes the skew {facts['skewAfter']}, limit {facts['maxSkew']}"
    return f"{group} has {count} already, the emptiest group {facts['smallest']}: {after}"


def _outranked(facts: Facts) -> str:
    behind = f"place {facts['rank']} in step {facts['round']}, behind {facts['behind']}"
    if facts["decidedBy"] == "topology":
        scores = f"{facts['topologySpreadScore']} against {facts['behindTopologySpreadScore']}"
        return f"{behind} on topology spread ({scores})"
    if facts["decidedBy"] == "affinity":
        return f"{behind} on affinity ({facts['affinityScore']} against {facts['behindAffinityScore']})"
    return f"{behind}, by {COLUMN_WORDS[facts['decidedBy']]}"


_SENTENCES: dict[ReasonCode, Callable[[Facts], str]] = {
    ReasonCode.PICKED: _picked,
    ReasonCode.PICKED_ALL: lambda _: "picked: it passes every filter",
    ReasonCode.PICKED_BY_NAME: lambda _: "picked by name",
    ReasonCode.KEPT: _kept,
    ReasonCode.CLUSTER_LEFT: lambda _: "unscheduled: the cluster has left the fleet, or is leaving it",
    ReasonCode.POLICY_CHANGED: lambda _: "unscheduled: placed by an older policy, not picked by this one",
    ReasonCode.SCALED_DOWN: lambda _: "unscheduled: fewer clusters are wanted, and it was the first to go",
    ReasonCode.NOT_NAMED: lambda _: "is not in the list of cluster names",
    ReasonCode.SCALING_DOWN: lambda _: "was not looked at: this cycle only removes clusters",
    ReasonCode.NOTHING_TO_DO: lambda _: "was not looked at: enough clusters are placed already",
    ReasonCode.NO_NAMES: lambda _: "was not looked at: the list of cluster names is empty",
    ReasonCode.CYCLE_FAILED: lambda _: "was not looked at: the cycle failed",
    ReasonCode.REQUIRED_AFFINITY: _required_affinity,
    ReasonCode.NOT_ELIGIBLE: _not_eligible,
    ReasonCode.UNTOLERATED_TAINT: _untolerated,
    ReasonCode.ALREADY_PLACED: lambda facts: f"has the placement already ({facts['state']})",
    ReasonCode.TOPOLOGY_SPREAD: _topology_spread,
    ReasonCode.OUTRANKED: _outranked,
}
