"""The options of `ocm` semantics: mode, `unsetPolicy` for clusters without the key, weights.

Names, values and defaults: `docs/reference/cases.md#ocm`. The last fields come from the prioritizers of an
OCM Placement (`rules/other-schedulers.md#ocm`).
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, TypeAlias, TypeVar

from pydantic import BeforeValidator

from fleetui.apimachinery import fields
from fleetui.apimachinery.errors import ErrorDetail, FieldError, InvalidManifest
from fleetui.apimachinery.fields import (
    FilledText,
    Flag,
    LabelValue,
    integer,
    list_of,
    mapping,
    one_of,
    refusal,
    whole_number,
)
from fleetui.apimachinery.model import (
    ManifestModel,
    Raw,
    Semantics,
    conflict,
    failure,
    items_at,
    parse_manifest,
    quote_value,
    required,
    wrong_type,
)
from placements.manifests.affinity import MOST_PREFERRED_TERMS, LabelOperator
from placements.manifests.policy import KeyType, PlacementPolicy

T = TypeVar("T")

MOST_STEADY = 1_000_000
LARGEST_U = 1_000_000.0
MOST_ROWS = MOST_PREFERRED_TERMS
"""As many as can become preferred terms under other semantics (`rules/other-schedulers.md#translation`)."""


class PrioritizerMode(StrEnum):
    """Whether spread comes strictly before preference, or is weighed against it."""

    STRICT = "strict"
    WEIGHTED = "weighted"


class UnsetPolicy(StrEnum):
    """How clusters without the topology key are treated."""

    BUCKET = "bucket"
    EXCLUDE = "exclude"
    FREE = "free"


class Unsatisfiable(StrEnum):
    """The effect of a hard constraint that cannot be met on the whole choice."""

    FEWER = "fewer"
    ERROR = "error"


def _number(value: object, low: float, high: float) -> float:
    allowed = f"a number from {low:.0f} to {high:.0f}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise failure([wrong_type(value, allowed)])
    if not low <= value <= high:
        raise refusal(
            "out-of-range",
            f"Invalid value: {quote_value(value)}: must be from {low:.0f} to {high:.0f}",
            allowed,
        )
    return value


def _object_of(values: str) -> BeforeValidator:
    return BeforeValidator(lambda value: dict(mapping(value, f"an object of {values}")))


Weight: TypeAlias = Annotated[
    int, BeforeValidator(lambda value: whole_number(value, -10, 10))
]


DomainWeights: TypeAlias = Annotated[
    dict[str, Annotated[int, integer(1)]], _object_of("integers")
]


class TopologyWeight(ManifestModel):
    """How much the clusters of some topologies are preferred."""

    weight: Annotated[
        int, BeforeValidator(lambda value: whole_number(value, -100, 100))
    ]
    operator: Annotated[LabelOperator, one_of(LabelOperator)]
    values: Annotated[tuple[LabelValue, ...], list_of()] = ()

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """In and NotIn need values, Exists and DoesNotExist take none.

        See `rules/other-schedulers.md#placements-of-open-cluster-management`.
        """
        values = items_at(raw, "values")
        if raw.get("operator") in ("In", "NotIn") and not values:
            yield required(
                "values", "In and NotIn need at least one value", "one or more values"
            )
        if raw.get("operator") in ("Exists", "DoesNotExist") and values:
            yield conflict(
                "values", "not allowed for operator Exists or DoesNotExist", "no values"
            )


def topology_key_problems(raw: Raw) -> Iterator[ErrorDetail]:
    """Yield an error for a key that no label can have; names of claims have the same syntax."""
    key = raw.get("topologyKey")
    if not isinstance(key, str) or not key:
        return
    if problem := fields.label_key_problem(key):
        yield ErrorDetail(
            ("topologyKey",),
            problem.code,
            f"Invalid value: {quote_value(key)}: {problem.words}",
            fields.LABEL_KEY,
        )


class AffinityTerm(ManifestModel):
    """The weights of the topologies of one key."""

    topology_key: FilledText
    topology_key_type: Annotated[KeyType, one_of(KeyType)] = KeyType.LABEL
    topology_weights: Annotated[
        tuple[TopologyWeight, ...], list_of(low=1, high=MOST_ROWS, ours=True)
    ]

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        yield from topology_key_problems(raw)


class AddOnWeight(ManifestModel):
    """The weight of the scores of one add-on (`rules/other-schedulers.md#prioritizers`)."""

    resource_name: FilledText
    score_name: FilledText
    weight: Weight = 1


class OcmOptions(ManifestModel):
    """How `ocm` semantics spread and weigh."""

    mode: Annotated[PrioritizerMode, one_of(PrioritizerMode)] = PrioritizerMode.STRICT
    u: Annotated[
        int | float, BeforeValidator(lambda value: _number(value, 0, LARGEST_U))
    ] = 2
    nested: Flag = True
    unset_policy: Annotated[UnsetPolicy, one_of(UnsetPolicy)] = UnsetPolicy.BUCKET
    unsatisfiable: Annotated[Unsatisfiable, one_of(Unsatisfiable)] = Unsatisfiable.FEWER
    steady_weight: Annotated[
        int | float,
        BeforeValidator(lambda value: _number(value, -MOST_STEADY, MOST_STEADY)),
    ] = 100
    balance: Annotated[
        dict[str, Annotated[int, integer(0)]], _object_of("integers")
    ] = {}
    domain_weights: Annotated[
        dict[str, DomainWeights], _object_of("weights by topology key")
    ] = {}
    balance_weight: Weight = 1
    cpu_weight: Weight = 0
    memory_weight: Weight = 0
    affinity_terms: Annotated[tuple[AffinityTerm, ...], list_of()] = ()
    add_ons: Annotated[tuple[AddOnWeight, ...], list_of()] = ()
    cluster_sets: Annotated[tuple[FilledText, ...], list_of()] = ()


def parse_ocm_options(raw: object, *, path: str = "ocm") -> OcmOptions:
    """Return the options, null meaning all defaults. Raise InvalidManifest."""
    return parse_manifest(
        OcmOptions, {} if raw is None else raw, semantics=Semantics.OCM, path=path
    )


def refuse_weighted_limits(
    policy: PlacementPolicy, options: OcmOptions, *, places: Sequence[str] = ()
) -> None:
    """Raise InvalidManifest where a key has domain weights and a hard limit.

    See `rules/other-schedulers.md#placements-of-open-cluster-management`.

    `places` are those of the constraints, if the policy was not written as one.
    """
    constraints = policy.topology_spread_constraints
    places = places or [
        f"policy.topologySpreadConstraints[{index}]"
        for index in range(len(constraints))
    ]
    message = "Forbidden: not allowed for a key with domain weights and DoNotSchedule"
    errors = [
        FieldError(f"{place}.maxSkew", "conflict", message, "one of the two")
        for place, constraint in zip(places, constraints, strict=True)
        if options.domain_weights.get(constraint.topology_key)
        and constraint.when_unsatisfiable == "DoNotSchedule"
    ]
    if errors:
        raise InvalidManifest(errors)
