"""Label and property selectors as columns over a fleet (`rules/scheduler.md#selectors-and-quantities`)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from clusters.columns import Bools
from clusters.fleet import Cluster, Fleet
from clusters.managed_cluster import managed_cluster
from fleetui.apimachinery.effort import check_time
from fleetui.apimachinery.fields import has_second_dash
from fleetui.apimachinery.quantity import parse_quantity
from placements.manifests.affinity import (
    ClusterSelectorTerm,
    LabelOperator,
    LabelRequirement,
    LabelSelector,
    PropertyRequirement,
)
from placements.manifests.cel_expression import compile_cel
from placements.manifests.cel_functions import CelScope


@dataclass(frozen=True, slots=True)
class Malformed:
    """A property value that is no quantity, met where a number was needed."""

    cluster: str
    property: str
    text: str


@dataclass(frozen=True)
class TermsColumn:
    """Which clusters match any of the terms, and which values were malformed on the way."""

    passes: Bools
    malformed: tuple[Malformed, ...]


def match_labels(
    selector: LabelSelector | None, fleet: Fleet, *, claims: bool = False
) -> Bools:
    """Return which clusters meet every requirement; an absent or empty selector matches all.

    With `claims` the requirements are about properties, compared as text.
    """
    matches = np.ones(len(fleet), dtype=np.bool_)
    for requirement in label_requirements(selector):
        check_time()
        column = (
            fleet.claim(requirement.key) if claims else fleet.label(requirement.key)
        )
        compares_values = requirement.operator in (
            LabelOperator.IN,
            LabelOperator.NOT_IN,
        )
        meets = (
            column.is_any_of(requirement.values)
            if compares_values
            else column.is_present
        )
        is_negated = requirement.operator in (
            LabelOperator.NOT_IN,
            LabelOperator.DOES_NOT_EXIST,
        )
        matches &= ~meets if is_negated else meets
    return matches


def label_requirements(selector: LabelSelector | None) -> tuple[LabelRequirement, ...]:
    """Return all requirements of a selector, `matchLabels` written as `In` with one value."""
    if selector is None:
        return ()
    exact = (
        LabelRequirement.model_construct(
            key=key, operator=LabelOperator.IN, values=(value,)
        )
        for key, value in selector.match_labels.items()
    )
    return (*exact, *selector.match_expressions)


def label_test(requirement: LabelRequirement) -> Callable[[Mapping[str, str]], bool]:
    """Return the test whether one object or cluster with such labels meets a requirement."""
    key, values = requirement.key, frozenset(requirement.values)
    match requirement.operator:
        case LabelOperator.IN:
            return lambda labels: labels.get(key) in values
        case LabelOperator.NOT_IN:
            return lambda labels: labels.get(key) not in values
        case LabelOperator.EXISTS:
            return lambda labels: key in labels
        case LabelOperator.DOES_NOT_EXIST:
            return lambda labels: key not in labels


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Return whether labels meet every requirement; an absent or empty selector selects all."""
    return all(
        label_test(requirement)(labels) for requirement in label_requirements(selector)
    )


def property_requirements(term: ClusterSelectorTerm) -> tuple[PropertyRequirement, ...]:
    return (
        ()
        if term.property_selector is None
        else term.property_selector.match_expressions
    )


def meets_property(
    requirement: PropertyRequirement, fleet: Fleet, *, only: int | None = None
) -> Bools:
    """Return which clusters meet a property requirement; absent or malformed values never do.

    With `only` the result is about the cluster at that position alone.
    """
    limit = parse_quantity(requirement.values[0])
    return fleet.property(requirement.name).compare(
        requirement.operator, limit, only=only
    )


def match_any_term(
    terms: Sequence[ClusterSelectorTerm], fleet: Fleet, *, splits_names: bool = False
) -> TermsColumn:
    """Return which clusters match at least one term; no terms match all.

    A malformed property is reported only where it is reached: terms and requirements are evaluated
    in order, and a cluster that has matched, or has failed a requirement, is not looked at again.
    `splits_names` is as for `malformed_values`.
    """
    if not terms:
        return TermsColumn(np.ones(len(fleet), dtype=np.bool_), ())
    passes = np.zeros(len(fleet), dtype=np.bool_)
    malformed: list[Malformed] = []
    for term in terms:
        check_time()
        reached = ~passes & match_labels(term.label_selector, fleet)
        if term.claim_selector is not None:
            reached &= match_labels(term.claim_selector, fleet, claims=True)
        for requirement in property_requirements(term):
            malformed += malformed_values(
                requirement.name, fleet, among=reached, splits_names=splits_names
            )
            reached &= meets_property(requirement, fleet)
        if term.cel_expressions:
            test = cel_test(term.cel_expressions)
            results = fleet.tested.setdefault(term.cel_expressions, {})
            for position in np.flatnonzero(reached).tolist():
                if position not in results:
                    check_time()
                    results[position] = test(fleet.clusters[position])
                reached[position] = results[position]
        passes |= reached
    return TermsColumn(passes, tuple(malformed))


def cel_test(texts: Sequence[str]) -> Callable[[Cluster], bool]:
    """Return the test whether all CEL expressions are true (`rules/other-schedulers.md#cel`)."""
    expressions = [compile_cel(text) for text in texts]
    scope = CelScope()

    def matches(cluster: Cluster) -> bool:
        document = managed_cluster(cluster)
        of_cluster = cluster.managed.scores if cluster.managed else {}
        scores = {
            name: [
                {"name": score, "value": value}
                for score, value in add_on_scores.values.items()
            ]
            for name, add_on_scores in of_cluster.items()
        }
        scope.enter(document, scores)
        return all(
            expression.matches(document, scope.context) for expression in expressions
        )

    return matches


def malformed_values(
    name: str, fleet: Fleet, *, among: Bools, splits_names: bool
) -> list[Malformed]:
    """Return the clusters among these whose value of this property is no quantity.

    With `splits_names` a resource name with a second dash has no value that can be read, on any cluster.
    """
    column = fleet.property(name)
    is_unreadable = (
        among if splits_names and has_second_dash(name) else column.is_malformed & among
    )
    positions = np.nonzero(is_unreadable)[0].tolist()
    return [
        Malformed(fleet.names[position], name, column.texts[position] or "")
        for position in positions
    ]
