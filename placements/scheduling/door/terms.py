"""Affinity terms: label selectors, property selectors and sorters (`spec/scheduler.md` 4.1, 4.2)."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, ValidationInfo

from placements.scheduling.door.fields import (
    LabelKey,
    Labels,
    LabelValue,
    PropertyName,
    QuantityText,
    listed,
    one_of,
    whole_number,
)
from placements.scheduling.door.intervals import Interval
from placements.scheduling.door.parsing import Parsed, Raw, failure, items_at, mapping_at
from placements.scheduling.faults import Problem
from placements.scheduling.quantity import QuantityError, parse_quantity
from placements.scheduling.semantics import DEFAULT_SEMANTICS, Semantics

MOST_REQUIRED_TERMS = 10
MOST_PREFERRED_TERMS = 1000
LARGEST_WEIGHT = 100
LARGEST_WEIGHT_ELSEWHERE = 1_000_000
MOST_REQUIREMENTS = 100


class LabelOperator(StrEnum):
    """How a label is compared with the listed values."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class PropertyOperator(StrEnum):
    """How a property is compared with the one listed quantity."""

    GT = "Gt"
    GE = "Ge"
    EQ = "Eq"
    NE = "Ne"
    LT = "Lt"
    LE = "Le"


class SortOrder(StrEnum):
    """Whether large or small values of a property are better."""

    ASCENDING = "Ascending"
    DESCENDING = "Descending"


_NOT_EXISTS = {"NotExists": '"NotExists" is a slip in the guide\'s prose; write DoesNotExist'}


class LabelRequirement(Parsed):
    """One condition on one label (Kubernetes label selector rules)."""

    noun: ClassVar[str] = "label requirement"

    key: LabelKey
    operator: Annotated[LabelOperator, one_of(LabelOperator, hints=_NOT_EXISTS)]
    values: Annotated[tuple[LabelValue, ...], listed()] = ()

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """In and NotIn need values, Exists and DoesNotExist take none."""
        operator, values = raw.get("operator"), raw.get("values", [])
        if not isinstance(values, (list, tuple)):
            return
        if operator in ("In", "NotIn") and not values:
            yield Problem(
                ("values",), "too-few", f"{operator} needs values to compare with", "1 or more values"
            )
        if operator in ("Exists", "DoesNotExist", "NotExists") and values:
            yield Problem(("values",), "conflict", f"{operator} takes no values", "no values")


class LabelSelector(Parsed):
    """Conditions on labels, all of which must hold; without any it selects everything."""

    noun: ClassVar[str] = "label selector"

    match_labels: Labels = Field(default_factory=dict)
    match_expressions: Annotated[tuple[LabelRequirement, ...], listed(high=MOST_REQUIREMENTS, ours=True)] = ()


class PropertyRequirement(Parsed):
    """One condition on one property: exactly one quantity to compare with (lifecycle B.1.3)."""

    noun: ClassVar[str] = "property requirement"

    name: PropertyName
    operator: Annotated[PropertyOperator, one_of(PropertyOperator)]
    values: Annotated[tuple[QuantityText, ...], listed(low=1, high=1)]


class PropertySelector(Parsed):
    """Conditions on properties, all of which must hold."""

    noun: ClassVar[str] = "property selector"

    match_expressions: Annotated[
        tuple[PropertyRequirement, ...], listed(high=MOST_REQUIREMENTS, ours=True)
    ] = ()

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """The requirements on one property must leave some value (lifecycle B.1.3)."""
        intervals: dict[str, Interval] = {}
        for index, requirement in enumerate(items_at(raw, "matchExpressions")[:MOST_REQUIREMENTS]):
            found = _readable(requirement)
            if found is None:
                continue
            name, operator, nano = found
            before = intervals.get(name, Interval())
            intervals[name] = before.narrowed(operator, nano)
            if intervals[name].is_empty and not before.is_empty:
                message = f"together with the requirements above it leaves no possible value of {name}"
                yield Problem(("matchExpressions", index), "unsatisfiable-requirements", message)


def _readable(raw: object) -> tuple[str, str, int] | None:
    """Give property, operator and quantity of a requirement that has all three."""
    requirement = mapping_at(raw)
    name, operator = requirement.get("name"), requirement.get("operator")
    values = items_at(requirement, "values")
    if not isinstance(name, str) or operator not in list(PropertyOperator) or not _is_one_text(values):
        return None
    try:
        return name, str(operator), parse_quantity(values[0]).nano
    except QuantityError:
        return None


def _is_one_text(values: list[Any]) -> bool:
    return len(values) == 1 and isinstance(values[0], str)


class PropertySorter(Parsed):
    """Prefer clusters by where their value of a property lies between smallest and largest."""

    noun: ClassVar[str] = "property sorter"

    name: PropertyName
    sort_order: Annotated[SortOrder, one_of(SortOrder)]


def _under_ocm(value: object, info: ValidationInfo) -> object:
    if (info.context or {}).get("semantics", Semantics.OCM) is not Semantics.OCM:
        message = "is a field of ocm semantics, where claims are properties compared as text"
        raise failure([Problem((), "field-of-other-semantics", message)])
    return value


class ClusterSelectorTerm(Parsed):
    """What one term asks of a cluster; a property selector filters, a property sorter only scores."""

    noun: ClassVar[str] = "cluster selector term"

    label_selector: LabelSelector | None = None
    property_selector: PropertySelector | None = None
    property_sorter: PropertySorter | None = None
    claim_selector: Annotated[LabelSelector, BeforeValidator(_under_ocm)] | None = None

    @property
    def asks_nothing(self) -> bool:
        """Tell whether every cluster matches, because there is neither a condition nor a sorter."""
        labels, properties = self.label_selector, self.property_selector
        has_labels = labels is not None and bool(labels.match_labels or labels.match_expressions)
        has_properties = properties is not None and bool(properties.match_expressions)
        return not (has_labels or has_properties or self.property_sorter or self.claim_selector)


class RequiredTerms(Parsed):
    """Terms of which a cluster must match at least one."""

    noun: ClassVar[str] = "list of required terms"

    cluster_selector_terms: Annotated[tuple[ClusterSelectorTerm, ...], listed(high=MOST_REQUIRED_TERMS)]

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """A required term filters and cannot sort (lifecycle B.1.3)."""
        for index, term in enumerate(items_at(raw, "clusterSelectorTerms")[:MOST_REQUIRED_TERMS]):
            if mapping_at(term).get("propertySorter") is not None:
                keys = ("clusterSelectorTerms", index, "propertySorter")
                message = "sorts clusters, which only a preferred term can do"
                yield Problem(keys, "misplaced", message, "labelSelector, propertySelector")


def _weight(value: object, info: ValidationInfo) -> int:
    """Take a weight; the limit of 100 is Fleet's, other semantics weigh against other scores."""
    semantics = (info.context or {}).get("semantics", DEFAULT_SEMANTICS)
    is_fleet = semantics in (Semantics.FLEET, Semantics.KUBEFLEET)
    limit = LARGEST_WEIGHT if is_fleet else LARGEST_WEIGHT_ELSEWHERE
    return whole_number(value, -limit, limit)


class PreferredTerm(Parsed):
    """A term and the weight that a matching cluster gets."""

    noun: ClassVar[str] = "preferred term"

    weight: Annotated[int, BeforeValidator(_weight)]
    preference: ClusterSelectorTerm

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """A preferred term sorts and cannot filter by property (lifecycle B.1.3)."""
        if mapping_at(raw, "preference").get("propertySelector") is not None:
            message = "filters clusters, which only a required term can do"
            yield Problem(
                ("preference", "propertySelector"), "misplaced", message, "labelSelector, propertySorter"
            )


class ClusterAffinity(Parsed):
    """Required terms filter clusters, preferred terms score them."""

    noun: ClassVar[str] = "cluster affinity"

    required_during_scheduling_ignored_during_execution: RequiredTerms | None = None
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredTerm, ...], listed(high=MOST_PREFERRED_TERMS, ours=True)
    ] = ()


class Affinity(Parsed):
    """The affinity of a policy; only clusters can be its subject."""

    noun: ClassVar[str] = "policy's affinity"

    cluster_affinity: ClusterAffinity | None = None
