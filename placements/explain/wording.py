"""Every sentence about a decision: reason codes and facts in, words for people out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from placements.scheduling.bindings import BindingState
from placements.scheduling.cycle import Cycle
from placements.scheduling.decision import CycleKind, Decision
from placements.scheduling.fleet import EligibilityKind
from placements.scheduling.outcomes import Outcome
from placements.scheduling.policy import KeyType, TopologySpreadConstraint
from placements.scheduling.profile import profile_of
from placements.scheduling.reasons import Reason, ReasonCode
from placements.scheduling.replay import Spread, Step
from placements.scheduling.rounds import SpreadScore
from placements.scheduling.semantics import Semantics
from placements.scheduling.spread.base import is_hard

OUTCOME_ORDER = (
    Outcome.PICKED,
    Outcome.KEPT,
    Outcome.UNSCHEDULED,
    Outcome.OUTRANKED,
    Outcome.FILTERED,
    Outcome.NOT_ELIGIBLE,
    Outcome.NOT_NAMED,
    Outcome.NOT_REACHED,
)
"""What people look for first comes first."""

Facts = Mapping[str, Any]

TIMES = "×"  # noqa: RUF001 -- the sign of a product
NONE = "–"  # noqa: RUF001 -- the dash of tables, not a minus

COLUMN_WORDS = {
    "topology": "topology spread",
    "affinity": "affinity",
    "was-here": "having been here before",
    "name": "name",
    "preference": "preference",
    "score": f"2 {TIMES} spread + affinity",
    "final": f"u {TIMES} spread + preference",
    None: "only one left",
}
HEADINGS = {"final": "sum", "score": "sum"}
"""What columns are called in tables whose head or caption says what the sum is of."""
_SCORED = {
    Semantics.FLEET: "",
    Semantics.KUBEFLEET: "",
    Semantics.OCM: " gap",
    Semantics.KUBERNETES: " cost",
}
_MEASURES = {
    Semantics.FLEET: "skew",
    Semantics.KUBEFLEET: "skew",
    Semantics.OCM: "gap",
    Semantics.KUBERNETES: "gap",
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
OPERATOR_WORDS = {"Gt": ">", "Ge": "≥", "Eq": "=", "Ne": "≠", "Lt": "<", "Le": "≤"}


def score_text(value: SpreadScore | None) -> str:
    """Write a score: whole where it is, level by level where it has levels, a dash where there is none."""
    if isinstance(value, tuple):
        return "/".join(map(score_text, value)) or NONE
    if value is None:
        return NONE
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))


def signed_text(value: SpreadScore | None) -> str:
    """Write a score with its sign, a minus as wide as a plus: "+1", "0", "−1"."""
    text = score_text(value).replace("-", "−")
    return f"+{text}" if isinstance(value, int | float) and value > 0 else text


def reason_sentence(reason: Reason) -> str:
    """Say one reason; it reads after the name of the cluster."""
    return _SENTENCES[reason.code](reason.facts)


def headline(decision: Decision) -> str:
    """Say in one sentence how the cycle came out."""
    if profile_of(decision.cycle).chooses_anew and decision.kind in (CycleKind.PICK, CycleKind.PICK_ALL):
        return _chosen_anew(decision)
    picked, kept = len(decision.picked), len(decision.kept)
    wanted = f"{decision.cycle.policy.number_of_clusters or 0:,}"
    named = len(decision.cycle.policy.cluster_names)
    sentences = {
        CycleKind.PICK_FIXED: f"{picked + kept:,} of {named:,} named clusters placed",
        CycleKind.NO_NAMES: "the list of cluster names is empty: nothing was done",
        CycleKind.PICK_ALL: f"every cluster that passes: {picked:,} picked, {kept:,} kept",
        CycleKind.PICK: f"{picked + kept:,} of {wanted} placed: {picked:,} picked, {kept:,} kept",
        CycleKind.SCALE_DOWN: f"{kept:,} of {wanted} kept, {len(decision.unscheduled):,} unscheduled",
        CycleKind.NOTHING_TO_DO: f"{kept:,} of {wanted} placed already: nothing to do",
        CycleKind.FAILED: _failure(decision),
    }
    return sentences[decision.kind]


def _failure(decision: Decision) -> str:
    """Say why a cycle failed; one that may choose fewer fails by no limit."""
    if not decision.is_unsatisfiable:
        return "the cycle failed: a property value is no quantity"
    wanted = counted(decision.cycle.policy.number_of_clusters or 0, "cluster")
    return f"nothing is chosen: not all of {wanted} can be picked, and fewer are not wanted"


def _chosen_anew(decision: Decision) -> str:
    """Say how a cycle came out that keeps nothing: who is chosen again, who is new, who has to go."""
    active = {one.cluster for one in decision.cycle.live_bindings if one.is_active}
    again = sum(name in active for name in decision.picked_names)
    wanted = decision.cycle.policy.number_of_clusters
    of = "every cluster that passes" if wanted is None else f"{len(decision.picked):,} of {wanted:,} chosen"
    counts = {"new": len(decision.picked) - again, "again": again, "no longer": len(decision.unscheduled)}
    told = joined([f"{count:,} {what}" for what, count in counts.items() if count])
    return f"{of}: {told}" if told else of


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
    return f"the best {cut.size:,} of one ranking; {cut.last_in} before {cut.first_out}, by {deciding}"


def _nobody(step: Step) -> str:
    limits = [spread_limit(one) for one in step.spreads if one.forbids > one.without_key]
    keys = [one.topology_key for one in step.spreads if one.without_key]
    if keys and not limits:
        return f"every cluster that is left lacks the label {joined(keys, 'or')}"
    if limits:
        lacking = f", or lacks the label {joined(keys, 'or')}" if keys else ""
        return f"every pick would break {' or '.join(limits)}{lacking}"
    if step.number > 1:
        return "every cluster that passes the filters is picked"
    return f"no {'other ' if step.others_stay else ''}cluster passes the filters"


def spread_limit(spread: Spread) -> str:
    """Name a constraint of a step with its limit."""
    return _limit(spread.topology_key, spread.max_skew, hard=spread.is_hard, limits_skew=spread.limits_skew)


def measure_word(semantics: Semantics) -> str:
    """Say what the limits of these rules are on: the skew, or the gap to the emptiest group."""
    return _MEASURES[semantics]


def scored_heading(key: str, semantics: Semantics) -> str:
    """Name the column of what a constraint on a key scores: the key, and in what where it is no score."""
    return f"{key}{_SCORED[semantics]}"


def spread_limit_of(constraint: TopologySpreadConstraint, *, limits_skew: bool = True) -> str:
    """Name a constraint of a policy with its limit."""
    hard = is_hard(constraint)
    return _limit(constraint.topology_key, constraint.max_skew, hard=hard, limits_skew=limits_skew)


def _limit(key: str, max_skew: int, *, hard: bool, limits_skew: bool) -> str:
    """Leave maxSkew out where it is no limit: of a soft constraint whose rules score counts, not the skew."""
    limit = f"max skew {max_skew}, " if hard or limits_skew else ""
    return f"{key} ({limit}{'hard' if hard else 'soft'})"


def counted(number: int, noun: str) -> str:
    """Count things: "1 cluster", "2 clusters"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


_PLURALS = {"is": "are", "has": "have", "does": "do"}


def verb(number: int, singular: str) -> str:
    """Let a verb agree with how many do it: "is" and "are", "runs" and "run"."""
    return singular if number == 1 else _PLURALS.get(singular, singular.removesuffix("s"))


def bindings_sentence(cycle: Cycle) -> str:
    """Say how the cycle took the bindings that it was given."""
    standing = cycle.standing
    deleting = len(cycle.bindings) - len(cycle.live_bindings)
    counts = {
        "current": len(standing.current),
        "obsolete": len(standing.obsolete),
        "of clusters that left": len(standing.dangling),
        "unscheduled before": len(standing.unscheduled),
        "being deleted and ignored": deleting,
    }
    told = [f"{count} {what}" for what, count in counts.items() if count]
    return f"{counted(len(cycle.bindings), 'binding')}: {joined(told)}"


def joined(words: Sequence[str], last: str = "and") -> str:
    """Join words with commas and a last conjunction."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def _picked(facts: Facts) -> str:
    return f"in step {facts['round']} ({_scores(facts)})"


def _scores(facts: Facts) -> str:
    """Tell the scores; a list of numbers are gaps, level by level (`ocm`, strict)."""
    spread, affinity = facts["topologySpreadScore"], score_text(facts["affinityScore"])
    if isinstance(spread, list | tuple):
        return f"gap {score_text(tuple(spread))}, affinity {affinity}" if spread else f"affinity {affinity}"
    return f"topology spread {score_text(spread)}, affinity {affinity}"


_HOW_FAR = {
    BindingState.SCHEDULED: "not carried out yet",
    BindingState.BOUND: "carried out",
    BindingState.UNSCHEDULED: "unscheduled",
}


def _kept(facts: Facts) -> str:
    return f"placed already ({_HOW_FAR[facts['state']]}), and a placed cluster stays"


def _scaled_down(facts: Facts) -> str:
    stored = f"stored {_scores(facts)}"
    return f"fewer clusters are wanted, and it goes first ({_HOW_FAR[facts['state']]}; {stored})"


def _required_affinity(facts: Facts) -> str:
    terms = [joined([_requirement(one) for one in term]) for term in facts["terms"]]
    if len(terms) == 1:
        return f"does not match the required term: {terms[0]}"
    return "matches no required term: " + "; or ".join(terms)


def _requirement(facts: Facts) -> str:
    actual = facts["actual"]
    if "property" in facts:
        have = "is not reported" if actual is None else f"is {actual}"
        return f"{facts['property']} {have}, wanted {OPERATOR_WORDS[facts['operator']]} {facts['values'][0]}"
    sort = "claim" if "claim" in facts else "label"
    have = f"no {sort} {facts[sort]}" if actual is None else f"{facts[sort]}={actual}"
    wants = {
        "In": f"wanted {joined(facts['values'], 'or')}",
        "NotIn": f"wanted anything but {joined(facts['values'], 'or')}",
        "Exists": "wanted any value",
        "DoesNotExist": f"wanted no such {sort}",
    }
    return f"{have}, {wants[facts['operator']]}"


def _not_eligible(facts: Facts) -> str:
    return facts["reason"] or ELIGIBILITY_WORDS[EligibilityKind(facts["kind"])]


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
    which = "sibling" if facts.get("nested") else "group"
    emptiest = f"the emptiest {which} {facts['smallest']}"
    if "lacksDomains" in facts:
        emptiest = f"and with fewer than {facts['lacksDomains']} groups the emptiest counts as 0"
    if "skewAfter" in facts:
        after = f"one more makes the skew {facts['skewAfter']}, limit {facts['maxSkew']}"
    else:
        after = f"one more would be {facts['aboveSmallest']} above it, limit {facts['maxSkew']}"
    if facts.get("topologyKeyType") == KeyType.CLAIM:
        group = f"claim {group}"
    return f"in step {facts['round']} {group} has {count}, {emptiest}: {after}"


def _outranked(facts: Facts) -> str:
    behind = f"place {facts['rank']:,} in step {facts['round']:,}, behind {facts['behind']}"
    if facts["decidedBy"] == "topology" and isinstance(facts["topologySpreadScore"], list | tuple):
        own, best = (
            score_text(tuple(facts[key])) for key in ("topologySpreadScore", "behindTopologySpreadScore")
        )
        return f"{behind} on the gap ({own} against {best})"
    if facts["decidedBy"] == "topology":
        own, best = score_text(facts["topologySpreadScore"]), score_text(facts["behindTopologySpreadScore"])
        return f"{behind} on topology spread ({own} against {best})"
    if facts["decidedBy"] == "affinity":
        own, best = score_text(facts["affinityScore"]), score_text(facts["behindAffinityScore"])
        return f"{behind} on affinity ({own} against {best})"
    words = f"{behind}, by {COLUMN_WORDS[facts['decidedBy']]}"
    if "score" in facts:
        words += f" ({score_text(facts['score'])} against {score_text(facts['behindScore'])})"
    return words


def _cycle_failed(facts: Facts) -> str:
    if facts.get("allOrNone"):
        return "nobody is chosen: fewer than are wanted can be picked, and all or none are to be"
    return "was not looked at: the cycle failed"


_SENTENCES: dict[ReasonCode, Callable[[Facts], str]] = {
    ReasonCode.PICKED: _picked,
    ReasonCode.PICKED_ALL: lambda _: "it passes every filter",
    ReasonCode.PICKED_BY_NAME: lambda _: "it is named and eligible",
    ReasonCode.KEPT: _kept,
    ReasonCode.CLUSTER_LEFT: lambda _: "the cluster is leaving the fleet",
    ReasonCode.POLICY_CHANGED: lambda _: "placed by an older policy, not picked by this one",
    ReasonCode.SCALED_DOWN: _scaled_down,
    ReasonCode.CHOSEN_ANEW: lambda _: "placed before, and not chosen again",
    ReasonCode.NOT_NAMED: lambda _: "the list of cluster names leaves it out",
    ReasonCode.SCALING_DOWN: lambda _: "was not looked at: this cycle only removes clusters",
    ReasonCode.NOTHING_TO_DO: lambda _: "was not looked at: enough clusters are placed already",
    ReasonCode.NO_NAMES: lambda _: "was not looked at: the list of cluster names is empty",
    ReasonCode.CYCLE_FAILED: _cycle_failed,
    ReasonCode.REQUIRED_AFFINITY: _required_affinity,
    ReasonCode.NOT_ELIGIBLE: _not_eligible,
    ReasonCode.UNTOLERATED_TAINT: _untolerated,
    ReasonCode.ALREADY_PLACED: lambda facts: f"has the placement already ({_HOW_FAR[facts['state']]})",
    ReasonCode.MISSING_TOPOLOGY_KEY: lambda facts: f"lacks {joined(facts['keys'])}, which the spread needs",
    ReasonCode.TOPOLOGY_SPREAD: _topology_spread,
    ReasonCode.OUTRANKED: _outranked,
}
