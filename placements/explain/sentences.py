"""A scheduling policy as one English sentence, for headers, lists and reviews."""

from collections.abc import Iterator

from placements.explain.wording import OPERATOR_WORDS, counted, joined
from placements.scheduling.policy import (
    ClusterSelectorTerm,
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

_NAMES_SHOWN = 5


def policy_sentence(policy: PlacementPolicy) -> str:
    """Say what a policy asks for: how many, from which, spread how, preferring and tolerating what."""
    return "; ".join([_pick(policy), *_spread(policy), *_preference(policy), *_tolerations(policy)]) + "."


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


def _spread(policy: PlacementPolicy) -> Iterator[str]:
    limits = [_limit(one) for one in policy.topology_spread_constraints]
    if limits:
        yield "at most " + joined([limits[0].replace(" across", " apart across", 1), *limits[1:]])


def _limit(constraint: TopologySpreadConstraint) -> str:
    is_hard = constraint.when_unsatisfiable is WhenUnsatisfiable.DO_NOT_SCHEDULE
    groups = f", at least {constraint.min_domains} groups" if constraint.min_domains else ""
    sort = "hard" if is_hard else "soft"
    return f"{constraint.max_skew} across {constraint.topology_key} ({sort}{groups})"


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
