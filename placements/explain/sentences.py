"""A scheduling policy as one English sentence, for headers, lists and reviews."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from placements.explain.wording import OPERATOR_WORDS, counted, joined
from placements.scheduling.door.ocm_options import (
    AffinityTerm,
    Mode,
    OcmOptions,
    Unsatisfiable,
    UnsetPolicy,
    parse_ocm_options,
)
from placements.scheduling.policy import (
    ClusterSelectorTerm,
    InclusionPolicy,
    KeyType,
    LabelOperator,
    LabelRequirement,
    LabelSelector,
    PlacementPolicy,
    PlacementType,
    PreferredTerm,
    PropertyRequirement,
    SortOrder,
    Toleration,
    TolerationOperator,
    TopologySpreadConstraint,
    WhenUnsatisfiable,
)
from placements.scheduling.semantics import DEFAULT_SEMANTICS, Semantics
from placements.scheduling.spread.base import is_hard

_NAMES_SHOWN = 5


def policy_sentence(
    policy: PlacementPolicy,
    semantics: Semantics = DEFAULT_SEMANTICS,
    options: Mapping[str, Any] | None = None,
) -> str:
    """Say what a policy asks for: how many, from which, spread how, preferring and tolerating what.

    How it spreads is said in the words of its semantics; `options` are those of `ocm`.
    """
    spread, preferred = _SPREADS[semantics](policy, options or {})
    parts = [_pick(policy), *spread, *preferred, *_tolerations(policy)]
    return "; ".join(parts) + "."


def _pick(policy: PlacementPolicy) -> str:
    match policy.placement_type:
        case PlacementType.PICK_FIXED:
            return f"Pick by name: {_names(policy.cluster_names)}"
        case PlacementType.PICK_ALL:
            return f"Pick every cluster{_required(policy)}"
    return f"Pick {counted(policy.number_of_clusters or 0, 'cluster')}{_required(policy)}"


def _names(names: tuple[str, ...]) -> str:
    if not names:
        return "nobody"
    more = len(names) - _NAMES_SHOWN
    return joined([*names[:_NAMES_SHOWN], f"{more:,} more"] if more > 0 else names)


def _required(policy: PlacementPolicy) -> str:
    terms = [_term(term) for term in policy.required_terms]
    return f" where {', or '.join(terms)}" if terms else ""


def _term(term: ClusterSelectorTerm) -> str:
    return joined([*_conditions(term)]) or "anything goes"


def _conditions(term: ClusterSelectorTerm) -> Iterator[str]:
    yield from _selector(term.label_selector)
    if term.property_selector is not None:
        yield from map(_property, term.property_selector.match_expressions)
    yield from (f"claim {words}" for words in _selector(term.claim_selector))


def label_words(selector: LabelSelector) -> str:
    """Say which labels a selector asks for; empty where it asks for none."""
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
            return f"{key}={values[0]}" if len(values) == 1 else f"{key} is {joined(values, 'or')}"
    return f"{key}≠{values[0]}" if len(values) == 1 else f"{key} is neither {joined(values, 'nor')}"


def _property(requirement: PropertyRequirement) -> str:
    return f"{requirement.name} {OPERATOR_WORDS[requirement.operator]} {requirement.values[0]}"


_Said = tuple[list[str], list[str]]
"""How it spreads, and what is preferred."""


def _apart(policy: PlacementPolicy, _options: Mapping[str, Any]) -> _Said:
    limits = [_limit(one) for one in policy.topology_spread_constraints]
    if not limits:
        return [], [*_preference(policy)]
    apart = "at most " + joined([limits[0].replace(" across", " apart across", 1), *limits[1:]])
    return [apart], [*_preference(policy)]


def _counted(policy: PlacementPolicy, _options: Mapping[str, Any]) -> _Said:
    return [_limit_on_count(one) for one in policy.topology_spread_constraints], [*_preference(policy)]


def _levelled(policy: PlacementPolicy, options: Mapping[str, Any]) -> _Said:
    chosen = parse_ocm_options(dict(options))
    terms = () if chosen.affinity_terms else _preference(policy)
    return [*_even(policy, chosen)], [*terms, *_weighed(chosen)]


_SPREADS: Mapping[Semantics, Callable[[PlacementPolicy, Mapping[str, Any]], _Said]] = {
    Semantics.FLEET: _apart,
    Semantics.KUBEFLEET: _apart,
    Semantics.OCM: _levelled,
    Semantics.KUBERNETES: _counted,
}


def _limit_on_count(constraint: TopologySpreadConstraint) -> str:
    """Say what Kubernetes makes of a constraint: a limit above the smallest group, or an even spread."""
    fewest = constraint.min_domains or 1
    sort = [f"as from 0 below {fewest} groups"] if fewest > 1 else []
    if constraint.node_affinity_policy is InclusionPolicy.IGNORE:
        sort.append("groups out of the affinity count too")
    if constraint.node_taints_policy is InclusionPolicy.HONOR:
        sort.append("groups behind a taint do not count")
    key = constraint.topology_key
    if is_hard(constraint):
        most = f"at most {constraint.max_skew} above the smallest group of {key}"
        return f"{most} ({', '.join(['hard', *sort])})"
    return f"evenly across {key} ({', '.join(['soft', *sort])})"


def _even(policy: PlacementPolicy, options: OcmOptions) -> Iterator[str]:
    """Say how `ocm` spreads, level by level."""
    levels = [_level(one, options) for one in policy.topology_spread_constraints]
    if levels:
        yield (", and within it " if options.nested else " and ").join(levels)
    without = {
        UnsetPolicy.EXCLUDE: "clusters without a key are left out",
        UnsetPolicy.FREE: "clusters without a key are free",
    }
    if levels and options.unset_policy in without:
        yield without[options.unset_policy]
    if levels and options.unsatisfiable is Unsatisfiable.ERROR:
        yield "all of them or none"


def _level(constraint: TopologySpreadConstraint, options: OcmOptions) -> str:
    key = constraint.topology_key
    claim = "claim " if constraint.topology_key_type is KeyType.CLAIM else ""
    weights = options.domain_weights.get(key, {})
    if weights:
        shares = ", ".join(f"{value} {weight}" for value, weight in weights.items())
        return f"across {claim}{key} by weight ({shares}, others 1)"
    if is_hard(constraint):
        return f"at most {constraint.max_skew} above the emptiest {claim}{key} (hard)"
    return f"evenly across {claim}{key} (soft)"


def _weighed(options: OcmOptions) -> Iterator[str]:
    rows = [
        _row_words(term, row.weight, row.operator, row.values)
        for term in options.affinity_terms
        for row in term.topology_weights
        if row.weight
    ]
    if rows:
        yield ", ".join(rows)
    if options.mode is Mode.WEIGHTED:
        yield f"spread weighed against preference, u = {options.u}"
    scores = {
        "Steady": (options.steady_weight / 100, 1),
        "Balance": (options.balance_weight, 1),
        "ResourceAllocatableCPU": (options.cpu_weight, 0),
        "ResourceAllocatableMemory": (options.memory_weight, 0),
    }
    told = [f"{name} {weight:g}" for name, (weight, usual) in scores.items() if weight != usual]
    if told:
        yield f"weights: {', '.join(told)}"


def _row_words(term: AffinityTerm, weight: int, operator: LabelOperator, values: tuple[str, ...]) -> str:
    wanted = _label(LabelRequirement(key=term.topology_key, operator=operator, values=values))
    claim = "claim " if term.topology_key_type is KeyType.CLAIM else ""
    does, sign = ("prefer", "+") if weight > 0 else ("avoid", "−")
    return f"{does} {claim}{wanted} ({sign}{abs(weight)})"


def _limit(constraint: TopologySpreadConstraint) -> str:
    is_hard = constraint.when_unsatisfiable is WhenUnsatisfiable.DO_NOT_SCHEDULE
    groups = f", at least {constraint.min_domains} groups" if constraint.min_domains else ""
    sort = "hard" if is_hard else "soft"
    key = f"{'claim ' if constraint.topology_key_type == 'Claim' else ''}{constraint.topology_key}"
    return f"{constraint.max_skew} across {key} ({sort}{groups})"


def _preference(policy: PlacementPolicy) -> Iterator[str]:
    terms = [preference_words(term) for term in policy.preferred_terms if term.weight]
    if terms:
        yield ", ".join(terms)


def preference_words(term: PreferredTerm) -> str:
    """Say one preferred term with its weight: "prefer system=critical (+20)"."""
    wanted, sorter = [*_conditions(term.preference)], term.preference.property_sorter
    if sorter is not None:
        wanted.append(f"{'more' if sorter.sort_order is SortOrder.DESCENDING else 'less'} {sorter.name}")
    verb, sign = ("prefer", "+") if term.weight > 0 else ("avoid", "−")
    return f"{verb} {joined(wanted) or 'every cluster alike'} ({sign}{abs(term.weight)})"


def _tolerations(policy: PlacementPolicy) -> Iterator[str]:
    if policy.tolerations:
        yield f"tolerate {joined([_toleration(one) for one in policy.tolerations])}"


def _toleration(one: Toleration) -> str:
    if one.operator is TolerationOperator.EXISTS:
        return f"any {one.key}" if one.key else "every taint"
    return f"{one.key}={one.value}" if one.value else one.key
