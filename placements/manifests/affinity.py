"""Affinity terms: selectors and sorters (`rules/scheduler.md#selectors-and-quantities`)."""

from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from math import inf
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator, Field, ValidationInfo

from fleetui.apimachinery.errors import ErrorDetail
from fleetui.apimachinery.fields import (
    LabelKey,
    Labels,
    LabelValue,
    PropertyName,
    QuantityText,
    Text,
    list_of,
    one_of,
    refusal,
    whole_number,
)
from fleetui.apimachinery.model import (
    DEFAULT_SEMANTICS,
    ManifestModel,
    Raw,
    Semantics,
    conflict,
    items_at,
    mapping_at,
    parse_manifest,
)
from fleetui.apimachinery.quantity import QuantityError, parse_quantity
from placements.manifests.cel_expression import CelError, compile_cel

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


_NOT_EXISTS = {
    "NotExists": 'Unsupported value: "NotExists". Did you mean "DoesNotExist"?'
}


class LabelRequirement(ManifestModel):
    """One condition on one label (Kubernetes label selector rules)."""

    key: LabelKey
    operator: Annotated[LabelOperator, one_of(LabelOperator, hints=_NOT_EXISTS)]
    values: Annotated[tuple[LabelValue, ...], list_of()] = ()

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """In and NotIn need values, Exists and DoesNotExist take none."""
        operator, values = raw.get("operator"), raw.get("values", [])
        if not isinstance(values, (list, tuple)):
            return
        if operator in ("In", "NotIn") and not values:
            yield ErrorDetail(
                ("values",),
                "too-few",
                f"Too few: 0: operator {operator} needs at least 1 value",
                "1 or more values",
            )
        if operator in ("Exists", "DoesNotExist", "NotExists") and values:
            yield conflict(
                "values", f"not allowed for operator {operator}", "no values"
            )


class LabelSelector(ManifestModel):
    """Conditions on labels, all of which must hold; without any it selects everything."""

    match_labels: Labels = Field(default_factory=dict)
    match_expressions: Annotated[
        tuple[LabelRequirement, ...], list_of(high=MOST_REQUIREMENTS, ours=True)
    ] = ()


def set_selector(chosen: Raw) -> LabelSelector | None:
    """Return the selector of a set of clusters of the type `LabelSelector`; None: it has no cluster.

    Raise InvalidManifest.
    """
    raw = chosen.get("labelSelector")
    if raw is None:
        return None
    return parse_manifest(LabelSelector, raw, semantics=DEFAULT_SEMANTICS, path="")


class PropertyRequirement(ManifestModel):
    """One condition on one property: exactly one quantity to compare with (`rules/lifecycle.md#policies`)."""

    name: PropertyName
    operator: Annotated[PropertyOperator, one_of(PropertyOperator)]
    values: Annotated[tuple[QuantityText, ...], list_of(low=1, high=1)]


class Interval(NamedTuple):
    """Whole numbers from `low` to `high`, without the `excluded` ones."""

    low: float = -inf
    high: float = inf
    excluded: frozenset[int] = frozenset()

    def narrowed(self, operator: str, bound: int) -> "Interval":
        """Return what is left under one more requirement (`Gt Ge Eq Ne Lt Le`)."""
        if operator == "Ne":
            return self._replace(excluded=self.excluded | {bound})
        low = {"Gt": bound + 1, "Ge": bound, "Eq": bound}.get(operator, self.low)
        high = {"Lt": bound - 1, "Le": bound, "Eq": bound}.get(operator, self.high)
        return self._replace(low=max(self.low, low), high=min(self.high, high))

    @property
    def is_empty(self) -> bool:
        within = sum(self.low <= value <= self.high for value in self.excluded)
        return self.high - self.low + 1 <= within


class PropertySelector(ManifestModel):
    """Conditions on properties, all of which must hold."""

    match_expressions: Annotated[
        tuple[PropertyRequirement, ...], list_of(high=MOST_REQUIREMENTS, ours=True)
    ] = ()

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """The requirements on one property must leave some value (`rules/lifecycle.md#policies`)."""
        intervals: dict[str, Interval] = {}
        for index, requirement in enumerate(
            items_at(raw, "matchExpressions")[:MOST_REQUIREMENTS]
        ):
            # A requirement that is invalid has been reported and is left out here.
            match requirement:
                case {
                    "name": str(name),
                    "operator": str(operator),
                    "values": [str(text)],
                }:
                    before = intervals.get(name, Interval())
                case _:
                    continue
            with suppress(QuantityError):
                intervals[name] = before.narrowed(operator, parse_quantity(text).nano)
            if name in intervals and intervals[name].is_empty and not before.is_empty:
                yield ErrorDetail(
                    ("matchExpressions", index),
                    "unsatisfiable-requirements",
                    f"Invalid value: with the requirements above, no value of {name} is possible",
                )


class PropertySorter(ManifestModel):
    """Prefer clusters by where their value of a property lies between smallest and largest."""

    name: PropertyName
    sort_order: Annotated[SortOrder, one_of(SortOrder)]


def only_under_ocm(value: object, info: ValidationInfo) -> object:
    if (info.context or {}).get("semantics", Semantics.OCM) is not Semantics.OCM:
        raise refusal(
            "field-of-other-semantics", "Forbidden: only allowed for ocm semantics"
        )
    return value


class CelSelector(ManifestModel):
    """CEL expressions, all of which must be true; without any it selects everything."""

    cel_expressions: Annotated[
        tuple[Text, ...], list_of(high=MOST_REQUIREMENTS, ours=True)
    ] = ()

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """Every expression must compile: a hub deselects every cluster otherwise."""
        expressions = raw.get("celExpressions")
        if not isinstance(expressions, (list, tuple)):
            return
        for index, text in enumerate(expressions[:MOST_REQUIREMENTS]):
            if not isinstance(text, str):
                continue
            try:
                compile_cel(text)
            except CelError as error:
                yield ErrorDetail(
                    ("celExpressions", index),
                    "bad-format",
                    f"Invalid value: does not compile: {error}",
                    "a CEL expression",
                )


class ClusterSelectorTerm(ManifestModel):
    """Requirements on a cluster; a property selector filters, a property sorter only scores."""

    label_selector: LabelSelector | None = None
    property_selector: PropertySelector | None = None
    property_sorter: PropertySorter | None = None
    claim_selector: Annotated[LabelSelector, BeforeValidator(only_under_ocm)] | None = (
        None
    )
    cel_selector: Annotated[CelSelector, BeforeValidator(only_under_ocm)] | None = None

    @property
    def cel_expressions(self) -> tuple[str, ...]:
        return () if self.cel_selector is None else self.cel_selector.cel_expressions

    @property
    def matches_everything(self) -> bool:
        labels, properties = self.label_selector, self.property_selector
        has_labels = labels is not None and bool(
            labels.match_labels or labels.match_expressions
        )
        has_properties = properties is not None and bool(properties.match_expressions)
        return not (
            has_labels
            or has_properties
            or self.property_sorter
            or self.claim_selector
            or self.cel_expressions
        )


class RequiredTerms(ManifestModel):
    """Terms of which a cluster must match at least one."""

    cluster_selector_terms: Annotated[
        tuple[ClusterSelectorTerm, ...], list_of(high=MOST_REQUIRED_TERMS)
    ]

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """A required term filters and cannot sort (`rules/lifecycle.md#policies`)."""
        for index, term in enumerate(
            items_at(raw, "clusterSelectorTerms")[:MOST_REQUIRED_TERMS]
        ):
            if mapping_at(term).get("propertySorter") is not None:
                yield ErrorDetail(
                    ("clusterSelectorTerms", index, "propertySorter"),
                    "misplaced",
                    "Forbidden: only allowed in preferred terms",
                    "labelSelector, propertySelector",
                )


def _weight(value: object, info: ValidationInfo) -> int:
    """Check a weight; the limit of 100 is Fleet's, other semantics weigh against other scores."""
    semantics = (info.context or {}).get("semantics", DEFAULT_SEMANTICS)
    is_fleet = semantics in (Semantics.FLEET, Semantics.KUBEFLEET)
    limit = LARGEST_WEIGHT if is_fleet else LARGEST_WEIGHT_ELSEWHERE
    return whole_number(value, -limit, limit)


class PreferredTerm(ManifestModel):
    """A term and the weight that a matching cluster gets."""

    weight: Annotated[int, BeforeValidator(_weight)]
    preference: ClusterSelectorTerm

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """A preferred term sorts and cannot filter by property (`rules/lifecycle.md#policies`)."""
        if mapping_at(raw, "preference").get("propertySelector") is not None:
            keys, message = (
                ("preference", "propertySelector"),
                "Forbidden: only allowed in required terms",
            )
            yield ErrorDetail(
                keys, "misplaced", message, "labelSelector, propertySorter"
            )


class ClusterAffinity(ManifestModel):
    """Required terms filter clusters, preferred terms score them."""

    required_during_scheduling_ignored_during_execution: RequiredTerms | None = None
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredTerm, ...], list_of(high=MOST_PREFERRED_TERMS, ours=True)
    ] = ()


class Affinity(ManifestModel):
    """The affinity of a policy; only clusters can be its subject."""

    cluster_affinity: ClusterAffinity | None = None
