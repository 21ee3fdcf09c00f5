"""The words of decisions: outcomes, reasons, steps and policies; codes and facts in, sentences out.

The status in a manifest has the words of KubeFleet instead (`hub_status.py`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from clusters.fleet import CORDON_KEY, CORDON_VALUE, EligibilityKind
from fleetui.apimachinery.model import DEFAULT_SEMANTICS, Semantics
from fleetui.apimachinery.quantity import quantity_words
from fleetui.apimachinery.words import counted, first_names, joined
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import CycleKind, Decision
from placements.engine.scheduling.outcome import BLOCKED, ClusterOutcome, Outcome
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.reason import Reason, ReasonCode
from placements.engine.scheduling.replay import RoundSummary, Spread
from placements.engine.scheduling.round import SpreadScore
from placements.engine.scheduling.spread.base import is_hard
from placements.manifests.affinity import (
    ClusterSelectorTerm,
    LabelOperator,
    LabelRequirement,
    LabelSelector,
    PreferredTerm,
    SortOrder,
)
from placements.manifests.ocm_options import (
    OcmOptions,
    PrioritizerMode,
    Unsatisfiable,
    UnsetPolicy,
    parse_ocm_options,
)
from placements.manifests.policy import (
    InclusionPolicy,
    KeyType,
    PlacementPolicy,
    PlacementType,
    TolerationOperator,
    TopologySpreadConstraint,
)

# The states of outcomes: what people look for first comes first.
OUTCOME_ORDER = (
    Outcome.PICKED,
    Outcome.KEPT,
    Outcome.UNSCHEDULED,
    Outcome.OUTRANKED,
    BLOCKED,
    Outcome.FILTERED,
    Outcome.NOT_ELIGIBLE,
    Outcome.NOT_NAMED,
    Outcome.NOT_REACHED,
)
OUTCOME_WORDS: dict[str, str] = {
    Outcome.PICKED: "Selected",
    Outcome.KEPT: "Kept",
    Outcome.UNSCHEDULED: "Deselected",
    Outcome.OUTRANKED: "Not selected (lower rank)",
    BLOCKED: "Blocked by the spread limit",
    Outcome.FILTERED: "Filtered out",
    Outcome.NOT_ELIGIBLE: "Not ready",
    Outcome.NOT_NAMED: "Not named",
    Outcome.NOT_REACHED: "Not evaluated",
}

Facts = Mapping[str, Any]

TIMES = "×"  # noqa: RUF001 -- the sign of a product
NONE = "–"  # noqa: RUF001 -- the dash of tables, not a minus

COLUMN_WORDS = {
    "topology": "topology spread",
    "affinity": "affinity",
    "was-here": "previously placed",
    "name": "name",
    "preference": "preference",
    "score": f"2 {TIMES} spread + affinity",
    "final": f"u {TIMES} spread + preference",
    None: "only candidate",
}
# By whether the smaller name wins.
ALPHABET = {True: "first", False: "last"}
# By whether a constraint is hard, and by whether its rules limit the skew.
SORTS = {True: "hard", False: "soft"}
MEASURES = {True: "skew", False: "gap"}
_CLAIMS: dict[str | None, str] = {KeyType.CLAIM: "claim "}
# Columns of tables whose head or caption names what is summed.
HEADINGS = {"final": "sum", "score": "sum"}
_SCORED = {
    Semantics.FLEET: "",
    Semantics.KUBEFLEET: "",
    Semantics.OCM: " gap",
    Semantics.KUBERNETES: " cost",
}
ELIGIBILITY_WORDS = {
    EligibilityKind.LEAVING: "Leaving",
    EligibilityKind.NO_AGENT: "Never reported (agent offline)",
    EligibilityKind.STALE_HEARTBEAT: "Heartbeat lost",
    EligibilityKind.NOT_JOINED: "Not joined (agent not ready)",
    EligibilityKind.NO_HEALTH: "Health unknown",
    EligibilityKind.UNHEALTHY: "Unhealthy",
    EligibilityKind.UNSPECIFIED: "Not ready",
}
OPERATOR_WORDS = {"Gt": ">", "Ge": "≥", "Eq": "=", "Ne": "≠", "Lt": "<", "Le": "≤"}
NAMES_SHOWN = 5


def minus_signs(text: str) -> str:
    """Return a text of numbers with minus signs, which are as wide as a plus, for hyphens."""
    return text.replace("-", "−")


def score_text(value: SpreadScore | None) -> str:
    """Return a score: whole where it is, level by level where it has levels, a dash where there is none."""
    if isinstance(value, tuple):
        return "/".join(map(score_text, value)) or NONE
    if value is None:
        return NONE
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))


def signed_text(value: SpreadScore | None) -> str:
    """Return a score with its sign: "+1", "0", "−1"."""
    text = minus_signs(score_text(value))
    return f"+{text}" if isinstance(value, int | float) and value > 0 else text


_PLURALS = {"is": "are", "was": "were", "has": "have", "does": "do"}


def verb(number: int, singular: str) -> str:
    """Return a verb that agrees with a count: "is" and "are", "runs" and "run"."""
    return (
        singular if number == 1 else _PLURALS.get(singular, singular.removesuffix("s"))
    )


def headline(decision: Decision) -> str:
    policy, kind = decision.cycle.policy, decision.kind
    selected, kept, ended = (
        len(decision.picked),
        len(decision.kept),
        len(decision.unscheduled),
    )
    wanted = policy.number_of_clusters
    if kind in (CycleKind.PICK, CycleKind.PICK_ALL):
        active = {
            binding.cluster
            for binding in decision.cycle.live_bindings
            if binding.is_active
        }
        again = sum(name in active for name in decision.picked_names)
        of = (
            "All matching clusters"
            if wanted is None
            else f"{selected + kept:,} of {wanted:,} clusters"
        )
        # After a change of the policy nothing is kept; a cluster that was selected may be selected again.
        counts = [
            (selected - again, "new", True),
            (again, "again", False),
            (kept, "kept", not again),
        ]
        if profile_of(decision.cycle).chooses_again:
            counts = [
                (selected - again, "new", False),
                (again, "again", False),
                (ended, "deselected", False),
            ]
        parts = [
            f"{count:,} {what}"
            for count, what, is_always in counts
            if count or is_always
        ]
        return f"{of} selected ({', '.join(parts)})" if parts else f"{of} selected"
    if kind is CycleKind.FAILED and decision.is_unsatisfiable:
        return f"No cluster selected: fewer than {counted(wanted or 0, 'cluster')} can be, and all are required"
    number_of_names = len(policy.cluster_names)
    sentences = {
        CycleKind.PICK_FIXED: f"{selected + kept:,} of {number_of_names:,} named clusters selected",
        CycleKind.NO_NAMES: "No change: the list of cluster names is empty",
        CycleKind.SCALE_DOWN: f"{kept:,} of {wanted or 0:,} clusters selected ({kept:,} kept, {ended:,} deselected)",
        CycleKind.NOTHING_TO_DO: f"No change: {kept:,} of {wanted or 0:,} clusters already selected",
        CycleKind.FAILED: "Scheduling failed: property value is not a valid quantity",
        CycleKind.REBALANCE: f"Few moves: {selected:,} selected, {ended:,} deselected, {kept:,} kept",
    }
    return sentences[kind]


_FILTER_WORDS = {
    "affinity": "do not match the required affinity",
    "eligibility": "not ready",
    "namespace": "without the namespace",
    "taints": "cordoned or with an untolerated taint",
    "already placed": "placed before",
    "topology keys": "without a topology key",
}


def candidate_words(decision: Decision) -> str:
    """Return how many clusters were candidates, and what ruled out the others."""
    clusters = counted(len(decision.cycle.fleet), "cluster")
    if decision.verdicts is None:
        return clusters
    candidates = int((decision.verdicts == 0).sum())
    if candidates == len(decision.cycle.fleet):
        return f"{clusters}, all of them candidates"
    # A cluster counts for the first filter that it fails, the lowest bit.
    first = decision.verdicts & (~decision.verdicts + 1)
    counts = [
        (int((first == 1 << bit).sum()), rule.name)
        for bit, rule in enumerate(profile_of(decision.cycle).filters)
    ]
    parts = [
        f"{count:,} {_FILTER_WORDS.get(name, name)}" for count, name in counts if count
    ]
    are = "was a candidate" if candidates == 1 else "were candidates"
    return f"{candidates:,} of {clusters} {are}; others: {', '.join(parts)}"


def only_words(step: RoundSummary) -> str:
    """Return how the selected cluster of a step is the only one: others may be candidates and blocked."""
    return "the only candidate" + " that no limit blocks" * (step.candidates != 1)


def change_of_clusters(decision: Decision) -> str:
    """Return what a decision did to the clusters that were placed before; empty where none was."""
    before = {
        binding.cluster for binding in decision.cycle.live_bindings if binding.is_active
    }
    if not before or not decision.picked_names:
        return ""
    again = sum(name in before for name in decision.picked_names)
    counts = [
        (again + len(decision.kept), "stay"),
        (len(decision.picked_names) - again, "new"),
        (len(decision.unscheduled), "deselected"),
    ]
    parts = ", ".join(f"{count:,} {what}" for count, what in counts if count)
    start = "" if decision.kept else "Rescheduled: "
    return f"{start}{len(before):,} {verb(len(before), 'was')} placed before, {parts}."


def round_sentence(step: RoundSummary) -> str:
    if step.winner is None:
        limits = [
            spread_limit(spread)
            for spread in step.spreads
            if spread.forbids > spread.without_key
        ]
        keys = joined(
            [spread.topology_key for spread in step.spreads if spread.without_key], "or"
        )
        if limits:
            without = f", or the cluster has no label {keys}" * bool(keys)
            return (
                "no candidate can be selected: every one "
                f"would break {' or '.join(limits)}{without}"
            )
        if keys:
            return f"no candidate can be selected: none has the label {keys}"
        why = f"no {'other ' * step.others_stay}cluster passes the filters"
        if step.number > 1:
            why = "every cluster that passes the filters is selected"
        return f"no candidates left: {why}"
    if step.cut is not None:
        cut = step.cut
        if cut.first_out is None:
            return "all clusters that pass the filters, ranked once"
        deciding = decided_words(cut.decided_by, cut.equal)
        return f"the best {cut.size:,} of one ranking; {cut.last_in} before {cut.first_out} on {deciding}"
    if step.runner_up is None:
        return f"{step.winner}, {only_words(step)}"
    deciding = decided_words(step.decided_by, step.equal)
    return f"{step.winner} before {step.runner_up} on {deciding}"


def decided_words(column: str | None, equal: Sequence[str]) -> str:
    """Return which score decided, and which before it were equal: "name (affinity equal)"."""
    same = joined([COLUMN_WORDS[one] for one in equal])
    return COLUMN_WORDS[column] + (f" ({same} equal)" if equal else "")


def spread_limit(spread: Spread) -> str:
    hard, limits_skew = spread.is_hard, spread.limits_skew
    return limit_words(
        spread.topology_key, spread.max_skew, hard=hard, limits_skew=limits_skew
    )


def limit_words(
    key: str,
    max_skew: int,
    *,
    hard: bool,
    limits_skew: bool,
) -> str:
    """Return a constraint with its limit, if it is one: not that of a soft one whose rules score counts."""
    limit = f"max skew {max_skew}, " if hard or limits_skew else ""
    return f"{key} ({limit}{SORTS[hard]})"


def max_skew_words(max_skew: int, *, hard: bool, is_limit: bool = True) -> str:
    """Return the limit beside a skew: "max 1, hard"; of one that is no limit only "soft"."""
    return f"max {max_skew}, {SORTS[hard]}" if is_limit else SORTS[hard]


def measure_word(semantics: Semantics) -> str:
    return MEASURES[not _SCORED[semantics]]


def scored_heading(key: str, semantics: Semantics) -> str:
    """Return the heading of what a constraint scores: its key, and the unit where it is no score."""
    return f"{key}{_SCORED[semantics]}"


def bindings_sentence(cycle: Cycle) -> str:
    classes = cycle.binding_classes
    counts = {
        "current": len(classes.current),
        "obsolete": len(classes.obsolete),
        "of clusters that left": len(classes.dangling),
        "unscheduled before": len(classes.unscheduled),
        "being deleted and ignored": len(cycle.bindings) - len(cycle.live_bindings),
    }
    parts = [f"{count} {what}" for what, count in counts.items() if count]
    return f"{counted(len(cycle.bindings), 'binding')}: {joined(parts)}"


def outcome_sentences(outcome: ClusterOutcome) -> list[str]:
    """Return the reasons for an outcome, the deciding first; with how a blocked cluster lost its domain."""
    sentences = list(map(reason_sentence, outcome.reasons))
    if outcome.lost:
        sentences[0] = f"{reason_sentence(outcome.lost)}. {sentences[0]}"
    return sentences


def reason_sentence(reason: Reason) -> str:
    words = _SENTENCES[reason.code]
    return words if isinstance(words, str) else words(reason.facts)


def taint_words(facts: Facts) -> str:
    if (facts["key"], facts["value"]) == (CORDON_KEY, CORDON_VALUE):
        return "of a cordon"
    return f"{facts['key']}={facts['value']}" if facts["value"] else str(facts["key"])


def _untolerated(taints: Sequence[Facts]) -> str:
    others = [
        taint_words(taint)
        for taint in taints
        if (taint["key"], taint["value"]) != (CORDON_KEY, CORDON_VALUE)
    ]
    plural = "s" if len(others) > 1 else ""
    words = f"Untolerated taint{plural}: {joined(others)}"
    if len(others) == len(taints):
        return words
    return f"Cordoned; {words[0].lower()}{words[1:]}" if others else "Cordoned"


def _scores(facts: Facts) -> str:
    """A list of numbers are gaps, level by level (`ocm`, strict)."""
    spread, affinity = facts["topologySpreadScore"], score_text(facts["affinityScore"])
    if isinstance(spread, list | tuple):
        return (
            f"gap {score_text(tuple(spread))}, affinity {affinity}"
            if spread
            else f"affinity {affinity}"
        )
    return f"topology spread {score_text(spread)}, affinity {affinity}"


def _requirement(facts: Facts) -> str:
    actual, values = facts["actual"], facts["values"]
    if "cel" in facts:
        return f"CEL expression {facts['cel']} is not true"
    if "property" in facts:
        name, sign = facts["property"], OPERATOR_WORDS[facts["operator"]]
        have = (
            "is not reported"
            if actual is None
            else f"is {quantity_words(actual, name, exact=True)}"
        )
        return f"{name} {have}, required {sign} {quantity_words(values[0], name, exact=True)}"
    sort = "claim" if "claim" in facts else "label"
    have = f"no {sort} {facts[sort]}" if actual is None else f"{facts[sort]}={actual}"
    wants = {
        "In": f"required {joined(values, 'or')}",
        "NotIn": f"required any value except {joined(values, 'or')}",
        "Exists": "required any value",
        "DoesNotExist": f"required no such {sort}",
    }
    return f"{have}, {wants[facts['operator']]}"


def _topology_spread(facts: Facts) -> str:
    key, limit = facts["topologyKey"], facts["maxSkew"]
    if facts["group"] is None:
        return f"No label {key}, which the topology spread requires"
    claim = _CLAIMS.get(facts.get("topologyKeyType"), "")
    minimum = minimum_words(
        facts["smallest"],
        lacks=facts.get("lacksDomains"),
        is_nested=bool(facts.get("nested")),
    )
    broken = f"gap {facts.get('aboveSmallest')}"
    if "skewAfter" in facts:
        broken = f"skew {facts['skewAfter']}"
    return (
        f"Step {facts['round']}: selecting it would make {claim}{key}={facts['group']}"
        f" {facts['count'] + 1} vs. {minimum} ({broken} > maxSkew {limit})"
    )


def minimum_words(smallest: int, *, lacks: int | None, is_nested: bool) -> str:
    """Return the count that a domain is compared with: 0 while there are fewer domains than minDomains."""
    among = " among its siblings" * is_nested
    too_few = f"minimum 0, as there are fewer than {lacks} domains"
    return too_few if lacks else f"minimum {smallest}{among}"


_LOST_ON = {
    "topology": ("topology spread", "topologySpreadScore", "behindTopologySpreadScore"),
    "affinity": ("affinity", "affinityScore", "behindAffinityScore"),
}


def _outranked(facts: Facts) -> str:
    column = facts["decidedBy"]
    words = decided_words(column, facts.get("equal", ()))
    what, own, best = _LOST_ON.get(column, (words, "score", "behindScore"))
    decided = _compared(facts, what, own, best) if own in facts else what
    if "isFirstName" in facts:
        decided += f", {ALPHABET[facts['isFirstName']]} of the alphabet first"
    return (
        f"Rank {facts['rank']:,} in step {facts['round']:,}; lost to {facts['behind']}"
        f" on {decided}"
    )


def _compared(
    facts: Facts,
    what: str,
    own: str,
    best: str,
) -> str:
    """Return what decided, with both scores; those with levels, which are lists in a record, are gaps."""
    scores = [facts[one] for one in (own, best)]
    if isinstance(scores[0], list | tuple):
        what = "the gap"
        scores = [tuple(score) for score in scores]
    return f"{what} ({score_text(scores[0])} vs. {score_text(scores[1])})"


def _scaled_down(facts: Facts) -> str:
    """Return the rule that removed a cluster before the one that would have been next."""
    column = facts.get("decidedBy", "")
    if not column:
        return "Fewer clusters are requested; none is kept"
    removed = f"Fewer clusters are requested; removed before {facts['behind']}"
    if column == "state":
        return f"{removed} as it was not rolled out yet"
    spread = f"topology spread {score_text(facts['topologySpreadScore'])}"
    if column not in _LOST_ON:
        affinity = score_text(facts["affinityScore"])
        return (
            f"{removed} on name (stored {spread} and affinity {affinity} equal),"
            " first of the alphabet first"
        )
    equal = f", {spread} equal" if column == "affinity" else ""
    return f"{removed} on the stored {_compared(facts, *_LOST_ON[column])}{equal}"


_SENTENCES: dict[ReasonCode, str | Callable[[Facts], str]] = {
    ReasonCode.PICKED: lambda facts: (
        f"Selected with rank {facts['rank']:,} (affinity {score_text(facts['affinityScore'])})"
        if "rank" in facts
        else f"Selected in step {facts['round']} ({_scores(facts)})"
    ),
    ReasonCode.PICKED_ALL: "Passes every filter",
    ReasonCode.PICKED_BY_NAME: "Named and ready",
    ReasonCode.PICKED_BY_PLAN: lambda facts: (
        f"Selected by rescheduling with few moves ({_scores(facts)})"
    ),
    ReasonCode.MOVED_BY_PLAN: "Moved to another cluster by rescheduling with few moves",
    ReasonCode.NOT_IN_BATCH: "Not evaluated: rescheduled with few moves",
    ReasonCode.KEPT: "Already placed; existing placements are kept",
    ReasonCode.CLUSTER_LEFT: "The cluster is leaving the fleet",
    ReasonCode.POLICY_CHANGED: "Selected by the previous policy, not by the current one",
    ReasonCode.SCALED_DOWN: _scaled_down,
    ReasonCode.CHOSEN_AGAIN: "Placed before, not selected again",
    ReasonCode.NOT_NAMED: "Not in the list of cluster names",
    ReasonCode.SCALING_DOWN: "Not evaluated: this cycle only removes clusters",
    ReasonCode.NOTHING_TO_DO: "Not evaluated: placement already satisfied",
    ReasonCode.NO_NAMES: "Not evaluated: the list of cluster names is empty",
    ReasonCode.CYCLE_FAILED: lambda facts: (
        "Not selected: fewer clusters than requested can be, and all are required"
        if facts.get("allOrNone")
        else "Not evaluated: scheduling failed"
    ),
    ReasonCode.REQUIRED_AFFINITY: lambda facts: (
        "Does not match required affinity: "
        + "; or ".join(
            joined([_requirement(one) for one in term]) for term in facts["terms"]
        )
    ),
    ReasonCode.NOT_ELIGIBLE: lambda facts: (
        facts["reason"] or ELIGIBILITY_WORDS[EligibilityKind(facts["kind"])]
    ),
    ReasonCode.NAMESPACE_MISSING: lambda facts: (
        f"Namespace {facts['namespace']} does not exist on the cluster"
        if facts["known"]
        else f"No information about its namespaces; the placement needs {facts['namespace']}"
    ),
    ReasonCode.UNTOLERATED_TAINT: lambda facts: _untolerated(facts["taints"]),
    ReasonCode.ALREADY_PLACED: "Already placed",
    ReasonCode.NOT_IN_CLUSTER_SET: lambda facts: (
        "Being deleted on its hub, so in no cluster set"
        if facts["leaving"]
        else f"In none of its cluster sets: {joined(facts['sets']) or 'none is bound'}"
    ),
    ReasonCode.MISSING_TOPOLOGY_KEY: lambda facts: (
        f"No label {joined(facts['keys'], 'or')}, which the topology spread requires"
    ),
    ReasonCode.TOPOLOGY_SPREAD: _topology_spread,
    ReasonCode.OUTRANKED: _outranked,
}


def policy_sentence(
    policy: PlacementPolicy,
    semantics: Semantics = DEFAULT_SEMANTICS,
    options: Mapping[str, Any] | None = None,
) -> str:
    """Return how many clusters a policy requests, from which, spread how, preferring and tolerating what.

    The spread is in the words of its semantics; `options` are those of `ocm`.
    """
    terms = [
        joined([*_conditions(term)]) or "any cluster matches"
        for term in policy.required_terms
    ]
    required = f" where {', or '.join(terms)}" if terms else ""
    if policy.placement_type is PlacementType.PICK_FIXED:
        names = policy.cluster_names
        select = (
            f"Select by name: {first_names(names, NAMES_SHOWN)}"
            if names
            else "PickFixed with no cluster names"
        )
    elif policy.placement_type is PlacementType.PICK_ALL:
        select = f"Select all clusters{required}"
    else:
        select = (
            f"Select {counted(policy.number_of_clusters or 0, 'cluster')}{required}"
        )
    spread: Iterable[str] = _spread_by_skew(policy)
    preferred: Iterable[str] = _preferences(policy)
    if semantics is Semantics.OCM:
        parsed = parse_ocm_options(dict(options or {}))
        spread, preferred = (
            _spread_by_level(policy, parsed),
            _preferred_by_weight(policy, parsed),
        )
    elif semantics is Semantics.KUBERNETES:
        spread = map(_limit_by_count, policy.topology_spread_constraints)
    tolerations = []
    for toleration in policy.tolerations:
        is_any = toleration.operator is TolerationOperator.EXISTS
        words = f"any {toleration.key}" if toleration.key else "every taint"
        tolerations.append(
            words
            if is_any
            else f"{toleration.key}={toleration.value}"
            if toleration.value
            else toleration.key
        )
    tolerate = [f"tolerate {joined(tolerations)}"] if tolerations else []
    return "; ".join([select, *spread, *preferred, *tolerate]) + "."


def _conditions(term: ClusterSelectorTerm) -> Iterator[str]:
    yield from _selector(term.label_selector)
    if term.property_selector is not None:
        for expression in term.property_selector.match_expressions:
            value = quantity_words(expression.values[0], expression.name, exact=True)
            yield f"{expression.name} {OPERATOR_WORDS[expression.operator]} {value}"
    yield from (f"claim {words}" for words in _selector(term.claim_selector))
    yield from (f"CEL {text}" for text in term.cel_expressions)
    if term.property_sorter is not None:
        is_more = term.property_sorter.sort_order is SortOrder.DESCENDING
        yield f"{'more' if is_more else 'less'} {term.property_sorter.name}"


def term_words(term: ClusterSelectorTerm) -> str:
    """Return what a term requires or prefers: "system=critical and env=prod"."""
    return joined([*_conditions(term)]) or "any cluster"


def value_words(value: str | None) -> str:
    """Return a value of a label; one that is absent and one that is empty differ."""
    return "no label" if value is None else value or "(empty)"


def label_words(selector: LabelSelector) -> str:
    """Return the labels that a selector requires; empty where it requires none."""
    return joined([*_selector(selector)])


def _selector(selector: LabelSelector | None) -> Iterator[str]:
    if selector is not None:
        yield from (f"{key}={value}" for key, value in selector.match_labels.items())
        yield from map(_label, selector.match_expressions)


def _label(requirement: LabelRequirement) -> str:
    key, values = requirement.key, requirement.values
    match requirement.operator:
        case LabelOperator.EXISTS:
            return f"{key} is set"
        case LabelOperator.DOES_NOT_EXIST:
            return f"{key} is not set"
        case LabelOperator.IN:
            return (
                f"{key}={values[0]}"
                if len(values) == 1
                else f"{key} is {joined(values, 'or')}"
            )
    return (
        f"{key}≠{values[0]}"
        if len(values) == 1
        else f"{key} is neither {joined(values, 'nor')}"
    )


def _key(constraint: TopologySpreadConstraint) -> str:
    claim = _CLAIMS.get(constraint.topology_key_type, "")
    return f"{claim}{constraint.topology_key}"


def _spread_by_skew(policy: PlacementPolicy) -> list[str]:
    limits: list[str] = []
    for constraint in policy.topology_spread_constraints:
        domains = (
            f", at least {constraint.min_domains} domains"
            if constraint.min_domains
            else ""
        )
        apart = "" if limits else " apart"
        limits.append(
            f"{constraint.max_skew}{apart} across {_key(constraint)} ({SORTS[is_hard(constraint)]}{domains})"
        )
    return [f"at most {joined(limits)}"] if limits else []


def _limit_by_count(constraint: TopologySpreadConstraint) -> str:
    """Kubernetes: a limit above the smallest domain, or an even spread."""
    fewest, key = constraint.min_domains or 1, constraint.topology_key
    notes = [f"minimum 0 below {fewest} domains"] if fewest > 1 else []
    if constraint.node_affinity_policy is InclusionPolicy.IGNORE:
        notes.append("domains outside the affinity count too")
    if constraint.node_taints_policy is InclusionPolicy.HONOR:
        notes.append("domains behind a taint do not count")
    if is_hard(constraint):
        return (
            f"at most {constraint.max_skew} above the smallest domain of {key}"
            f" ({', '.join(['hard', *notes])})"
        )
    return f"evenly across {key} ({', '.join(['soft', *notes])})"


def _spread_by_level(policy: PlacementPolicy, options: OcmOptions) -> Iterator[str]:
    levels = []
    for constraint in policy.topology_spread_constraints:
        weights = options.domain_weights.get(constraint.topology_key, {})
        if weights:
            shares = ", ".join(f"{value} {weight}" for value, weight in weights.items())
            levels.append(f"across {_key(constraint)} by weight ({shares}, others 1)")
        elif is_hard(constraint):
            levels.append(
                f"at most {constraint.max_skew} above the emptiest {_key(constraint)} (hard)"
            )
        else:
            levels.append(f"evenly across {_key(constraint)} (soft)")
    if levels:
        yield (", and within it " if options.nested else " and ").join(levels)
        if options.unset_policy is UnsetPolicy.EXCLUDE:
            yield "clusters without a key are excluded"
        if options.unset_policy is UnsetPolicy.FREE:
            yield "clusters without a key are free"
        if options.unsatisfiable is Unsatisfiable.ERROR:
            yield "all or none"


def _preferred_by_weight(policy: PlacementPolicy, options: OcmOptions) -> Iterator[str]:
    """OCM: the terms, or the rows that replace them, and the weights of the prioritizers."""
    if not options.affinity_terms:
        yield from _preferences(policy)
    rows = []
    for term in options.affinity_terms:
        claim = _CLAIMS.get(term.topology_key_type, "")
        for row in term.topology_weights:
            if row.weight:
                label = LabelRequirement(
                    key=term.topology_key, operator=row.operator, values=row.values
                )
                rows.append(_weighted(f"{claim}{_label(label)}", row.weight))
    if rows:
        yield ", ".join(rows)
    if options.mode is PrioritizerMode.WEIGHTED:
        yield f"spread weighted against preference, u = {options.u}"
    weights_of_scores = {
        "Steady": (options.steady_weight / 100, 1),
        "Balance": (options.balance_weight, 1),
        "ResourceAllocatableCPU": (options.cpu_weight, 0),
        "ResourceAllocatableMemory": (options.memory_weight, 0),
    }
    changed = [
        f"{name} {weight:g}"
        for name, (weight, usual) in weights_of_scores.items()
        if weight != usual
    ]
    if changed:
        yield f"weights: {', '.join(changed)}"


def _preferences(policy: PlacementPolicy) -> list[str]:
    terms = ", ".join(
        preference_words(term) for term in policy.preferred_terms if term.weight
    )
    return [terms] if terms else []


def preference_words(term: PreferredTerm) -> str:
    """Return one preferred term with its weight: "prefer system=critical (+20)"."""
    return _weighted(
        joined([*_conditions(term.preference)]) or "every cluster alike", term.weight
    )


def _weighted(words: str, weight: int) -> str:
    verb, sign = ("prefer", "+") if weight > 0 else ("avoid", "−")
    return f"{verb} {words} ({sign}{abs(weight)})"


def seconds_between(since: datetime, until: datetime) -> float:
    return max(0.0, (until - since).total_seconds())


def silence_words(silence: timedelta) -> str:
    return f"Not observed for {duration_text(60 * (silence // timedelta(minutes=1)))}"


def moment_words(moment: datetime) -> str:
    """Return a moment with its date, as the template filter `moments` finds it in a sentence."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def duration_text(seconds: float) -> str:
    """Return a duration as kubectl prints it, in at most two units: "0.4s", "31s", "6m12s", "1h2m", "3d"."""
    tenths = int(seconds * 10 + 1e-6)
    if seconds < 10 and tenths % 10:
        return f"{tenths / 10}s"
    minutes, whole = divmod(tenths // 10, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    units = [(days, "d"), (hours, "h"), (minutes, "m"), (whole, "s")]
    first = next(
        (place for place, (number, _) in enumerate(units) if number), len(units) - 1
    )
    parts = units[first : first + 2]
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"
