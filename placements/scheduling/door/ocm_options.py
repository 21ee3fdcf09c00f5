"""The options of `ocm` semantics: two modes, what is done with clusters that lack the key, weights.

Names, values and defaults are those of `conformance/README.md`; the last fields are what an OCM Placement
document says of its prioritizers (`spec/other-schedulers.md` 6.6).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, ClassVar, TypeAlias, TypeVar

from pydantic import BeforeValidator, Field, ValidationError

from placements.scheduling.door import names
from placements.scheduling.door.fields import (
    FilledText,
    Flag,
    LabelValue,
    listed,
    one_of,
    whole_number,
)
from placements.scheduling.door.parsing import (
    Parsed,
    Raw,
    failure,
    items_at,
    parse_model,
    problems_in,
    shown,
    wrong_type,
)
from placements.scheduling.door.terms import MOST_PREFERRED_TERMS, LabelOperator
from placements.scheduling.faults import Fault, Faults, Problem
from placements.scheduling.policy import KeyType, PlacementPolicy
from placements.scheduling.semantics import Semantics

T = TypeVar("T")

MOST_STEADY = 1_000_000
LARGEST_U = 1_000_000.0
MOST_ROWS = MOST_PREFERRED_TERMS
"""As many as can become preferred terms under other semantics (`spec/other-schedulers.md` 6.4)."""


class Mode(StrEnum):
    """Whether spread comes strictly before preference, or is weighed against it."""

    STRICT = "strict"
    WEIGHTED = "weighted"


class UnsetPolicy(StrEnum):
    """What becomes of clusters without the topology key."""

    BUCKET = "bucket"
    EXCLUDE = "exclude"
    FREE = "free"


class Unsatisfiable(StrEnum):
    """What a hard constraint that cannot be met does to the whole choice."""

    FEWER = "fewer"
    ERROR = "error"


def _positive(value: object) -> float:
    return _number(value, 0, LARGEST_U)


def _steady(value: object) -> float:
    return _number(value, -MOST_STEADY, MOST_STEADY)


def _number(value: object, low: float, high: float) -> float:
    allowed = f"a number from {low:.0f} to {high:.0f}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise failure([wrong_type(value, allowed)])
    if not low <= value <= high:
        raise failure([Problem((), "out-of-range", f"{shown(value)} is out of range", allowed)])
    return value


def _counts(value: object, low: int) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise failure([wrong_type(value, "an object of whole numbers")])
    return _each(value, lambda number: whole_number(number, low, 2**31 - 1))


def _weights_by_key(value: object) -> dict[str, dict[str, int]]:
    if not isinstance(value, Mapping):
        raise failure([wrong_type(value, "an object of weights by topology key")])
    return _each(value, lambda weights: _counts(weights, 1))


def _each(found: Mapping[str, object], read: Callable[[object], T]) -> dict[str, T]:
    """Read every value of an object; a fault has the key in its path."""
    values: dict[str, T] = {}
    problems: list[Problem] = []
    for key, value in found.items():
        try:
            values[key] = read(value)
        except ValidationError as error:
            problems += [problem.under(key) for problem in problems_in(error)]
    if problems:
        raise failure(problems)
    return values


Weight: TypeAlias = Annotated[int, BeforeValidator(lambda value: whole_number(value, -10, 10))]


class TopologyWeight(Parsed):
    """How much the clusters of some topologies are preferred."""

    noun: ClassVar[str] = "topology weight"

    weight: Annotated[int, BeforeValidator(lambda value: whole_number(value, -100, 100))]
    operator: Annotated[LabelOperator, one_of(LabelOperator)]
    values: Annotated[tuple[LabelValue, ...], listed()] = ()

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """In and NotIn need values, Exists and DoesNotExist take none (`spec/other-schedulers.md` 2.1)."""
        values = items_at(raw, "values")
        if raw.get("operator") in ("In", "NotIn") and not values:
            yield Problem(
                ("values",), "required", "In and NotIn need at least one value", "one or more values"
            )
        if raw.get("operator") in ("Exists", "DoesNotExist") and values:
            yield Problem(("values",), "conflict", "Exists and DoesNotExist take no values", "no values")


def topology_key_problems(raw: Raw) -> Iterator[Problem]:
    """Refuse a key that no label can have; the names of claims are held to the same form."""
    key = raw.get("topologyKey")
    if not isinstance(key, str) or not key:
        return
    if problem := names.label_key_problem(key):
        yield Problem(("topologyKey",), problem.code, f"{shown(key)} {problem.words}", names.LABEL_KEY)


class AffinityTerm(Parsed):
    """The weights of the topologies of one key."""

    noun: ClassVar[str] = "affinity term"

    topology_key: FilledText
    topology_key_type: Annotated[KeyType, one_of(KeyType)] = KeyType.LABEL
    topology_weights: Annotated[tuple[TopologyWeight, ...], listed(low=1, high=MOST_ROWS, ours=True)]

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """A label must be able to have the key."""
        yield from topology_key_problems(raw)


class OcmOptions(Parsed):
    """How `ocm` semantics spread and weigh."""

    noun: ClassVar[str] = "set of ocm options"

    mode: Annotated[Mode, one_of(Mode)] = Mode.STRICT
    u: Annotated[int | float, BeforeValidator(_positive)] = 2
    nested: Flag = True
    unset_policy: Annotated[UnsetPolicy, one_of(UnsetPolicy)] = UnsetPolicy.BUCKET
    unsatisfiable: Annotated[Unsatisfiable, one_of(Unsatisfiable)] = Unsatisfiable.FEWER
    steady_weight: Annotated[int | float, BeforeValidator(_steady)] = 100
    balance: Annotated[dict[str, int], BeforeValidator(lambda value: _counts(value, 0))] = Field(
        default_factory=dict
    )
    domain_weights: Annotated[dict[str, dict[str, int]], BeforeValidator(_weights_by_key)] = Field(
        default_factory=dict
    )
    balance_weight: Weight = 1
    cpu_weight: Weight = 0
    memory_weight: Weight = 0
    affinity_terms: Annotated[tuple[AffinityTerm, ...], listed()] = ()


def parse_ocm_options(raw: object, *, path: str = "ocm") -> OcmOptions:
    """Read the options, null meaning all defaults. Raises Faults."""
    return parse_model(OcmOptions, {} if raw is None else raw, semantics=Semantics.OCM, path=path)


def refuse_weighted_limits(
    policy: PlacementPolicy, options: OcmOptions, *, places: Sequence[str] = ()
) -> None:
    """Raise Faults where a key has both domain weights and a hard limit (`spec/other-schedulers.md` 2.7).

    `places` are those of the constraints, if the policy was not written as one.
    """
    constraints = policy.topology_spread_constraints
    places = places or [f"policy.topologySpreadConstraints[{index}]" for index in range(len(constraints))]
    message = "has domain weights and cannot have a hard maxSkew as well"
    faults = [
        Fault(f"{place}.maxSkew", "conflict", message, "one of the two")
        for place, one in zip(places, constraints, strict=True)
        if options.domain_weights.get(one.topology_key) and one.when_unsatisfiable == "DoNotSchedule"
    ]
    if faults:
        raise Faults(faults)
