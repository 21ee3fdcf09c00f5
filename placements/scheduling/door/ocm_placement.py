"""The Placement document of Open Cluster Management: predicates, spread, prioritizers, tolerations.

It becomes the policy and the options that `ocm` semantics run on (`spec/other-schedulers.md` 2.1, 6.4,
6.6). `v1alpha1` carries the proposal's `spreadConstraints`, `v1beta1` the merged `spreadPolicy`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from placements.scheduling.door.fields import FilledText, Text, api_version, listed, one_of, whole, word_of
from placements.scheduling.door.metadata import WRITTEN_BY_A_HUB
from placements.scheduling.door.ocm_options import (
    AffinityTerm,
    OcmOptions,
    TopologyWeight,
    Weight,
    parse_ocm_options,
    refuse_weighted_limits,
)
from placements.scheduling.door.parsing import Parsed, Raw, items_at, mapping_at, parse_model
from placements.scheduling.door.terms import LabelSelector
from placements.scheduling.faults import Caveat, Problem
from placements.scheduling.policy import KeyType, PlacementPolicy, WhenUnsatisfiable, parse_policy
from placements.scheduling.semantics import Semantics

OCM_KIND = "Placement"
OCM_VERSIONS = ("cluster.open-cluster-management.io/v1alpha1", "cluster.open-cluster-management.io/v1beta1")


class ConstraintType(StrEnum):
    """Even spreads; Affinity prefers."""

    EVEN = "Even"
    AFFINITY = "Affinity"


class SpreadTerm(Parsed):
    """One entry of the proposal's `spreadConstraints`."""

    noun: ClassVar[str] = "spread constraint"

    type: Annotated[ConstraintType, one_of(ConstraintType)]
    topology_key: FilledText
    topology_key_type: Annotated[KeyType, one_of(KeyType)] = KeyType.LABEL
    topology_weights: Annotated[tuple[TopologyWeight, ...], listed()] = ()
    max_skew: Annotated[int, whole(1)] | None = None
    order: Annotated[int, whole(-(2**31))] | None = None

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """Weights belong to Affinity, maxSkew and order to Even (`spec/other-schedulers.md` 2.1)."""
        kind = raw.get("type")
        if kind == "Affinity":
            for key in filter(raw.__contains__, ("maxSkew", "order")):
                yield Problem((key,), "conflict", "belongs to constraints of type Even", "no such field")
            if not items_at(raw, "topologyWeights"):
                message = "an Affinity constraint needs at least one weight"
                yield Problem(("topologyWeights",), "required", message, "one or more")
        elif kind == "Even" and items_at(raw, "topologyWeights"):
            message = "belongs to constraints of type Affinity"
            yield Problem(("topologyWeights",), "conflict", message, "no such field")


class SpreadPolicyTerm(Parsed):
    """One entry of the merged API's `spreadPolicy.spreadConstraints`."""

    noun: ClassVar[str] = "spread constraint"

    topology_key: FilledText
    topology_key_type: Annotated[KeyType, one_of(KeyType)] = KeyType.LABEL
    max_skew: Annotated[int, whole(1)] = 1
    when_unsatisfiable: Annotated[WhenUnsatisfiable, one_of(WhenUnsatisfiable)] = (
        WhenUnsatisfiable.SCHEDULE_ANYWAY
    )


class SpreadPolicy(Parsed):
    """The merged API's spread policy."""

    noun: ClassVar[str] = "spread policy"

    spread_constraints: Annotated[tuple[SpreadPolicyTerm, ...], listed(high=8)] = ()


class RequiredClusterSelector(Parsed):
    """What one predicate asks of labels and claims."""

    noun: ClassVar[str] = "cluster selector"

    label_selector: LabelSelector | None = None
    claim_selector: LabelSelector | None = None


class Predicate(Parsed):
    """One of the predicates, of which a cluster must match any."""

    noun: ClassVar[str] = "predicate"

    required_cluster_selector: RequiredClusterSelector = Field(default_factory=RequiredClusterSelector)


class ScoreCoordinate(Parsed):
    """Which prioritizer is meant."""

    noun: ClassVar[str] = "score coordinate"

    type: Annotated[str, word_of("BuiltIn")] = "BuiltIn"
    built_in: Annotated[
        str, word_of("Steady", "Balance", "ResourceAllocatableCPU", "ResourceAllocatableMemory")
    ]


class PrioritizerConfig(Parsed):
    """The weight of one prioritizer."""

    noun: ClassVar[str] = "prioritizer configuration"

    score_coordinate: ScoreCoordinate
    weight: Weight = 1


class PrioritizerPolicy(Parsed):
    """Which prioritizers count, and how much."""

    noun: ClassVar[str] = "prioritizer policy"

    mode: Annotated[str, word_of("Additive", "Exact")] = "Additive"
    configurations: Annotated[tuple[PrioritizerConfig, ...], listed()] = ()


class OcmSpec(Parsed):
    """The `spec` of a Placement, as far as it bears on which clusters are chosen."""

    noun: ClassVar[str] = "Placement's spec"

    number_of_clusters: Annotated[int, whole(0)] | None = None
    predicates: Annotated[tuple[Predicate, ...], listed()] = ()
    spread_constraints: Annotated[tuple[SpreadTerm, ...], listed(high=60, ours=True)] = ()
    spread_policy: SpreadPolicy | None = None
    prioritizer_policy: PrioritizerPolicy = Field(default_factory=PrioritizerPolicy)
    tolerations: Annotated[tuple[dict[str, Any], ...], listed()] = ()

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """Even needs a number, several Even constraints an order each (`spec/other-schedulers.md` 2.1)."""
        terms = [mapping_at(item) for item in items_at(raw, "spreadConstraints")]
        merged = items_at(mapping_at(raw, "spreadPolicy"), "spreadConstraints")
        even = [index for index, term in enumerate(terms) if term.get("type") == "Even"]
        if (even or merged) and raw.get("numberOfClusters") is None:
            message = "is missing; a constraint of type Even needs it"
            yield Problem(("numberOfClusters",), "required", message, "0 or more")
        if terms and merged:
            yield Problem(("spreadPolicy",), "conflict", "goes without spreadConstraints", "one of the two")
        yield from _order_problems({index: terms[index].get("order") for index in even})


def _order_problems(orders: Mapping[int, object]) -> Iterator[Problem]:
    seen: set[object] = set()
    for index, order in orders.items():
        place = ("spreadConstraints", index, "order")
        if order is None and len(orders) > 1:
            yield Problem(place, "required", "several Even constraints need an order each", "a whole number")
        elif isinstance(order, int) and order in seen:
            yield Problem(
                place, "duplicate", f"{order} is the order of a constraint above", "each order once"
            )
        elif isinstance(order, int):
            seen.add(order)


class OcmMeta(Parsed):
    """Name, namespace, labels and annotations of a Placement."""

    noun: ClassVar[str] = "document's metadata"
    left_aside: ClassVar[frozenset[str]] = WRITTEN_BY_A_HUB

    name: FilledText
    namespace: Text = ""
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class OcmDocument(Parsed):
    """A whole Placement document; its status is left aside."""

    noun: ClassVar[str] = OCM_KIND
    left_aside: ClassVar[frozenset[str]] = frozenset({"status"})

    api_version: Annotated[str, api_version(*OCM_VERSIONS)]
    kind: Annotated[str, word_of(OCM_KIND)]
    metadata: OcmMeta
    spec: OcmSpec = Field(default_factory=OcmSpec)


@dataclass(frozen=True, slots=True)
class OcmWish:
    """What a Placement document asks for, as a policy and options of `ocm` semantics."""

    name: str
    policy: PlacementPolicy
    options: OcmOptions
    caveats: tuple[Caveat, ...] = ()


def parse_ocm_placement(document: object, *, options: object = None, path: str = "") -> OcmWish:
    """Turn a Placement document into a policy and options; `options` may accompany it. Raises Faults."""
    parsed = parse_model(OcmDocument, document, semantics=Semantics.OCM, path=path)
    given = parse_ocm_options(options).to_plain()
    policy = parse_policy(
        _policy(parsed.spec), semantics=Semantics.OCM, path=f"{path}.spec" if path else "spec"
    )
    chosen = parse_ocm_options({**given, **_options(parsed.spec)})
    refuse_weighted_limits(policy, chosen)
    return OcmWish(parsed.metadata.name, policy, chosen)


def _policy(spec: OcmSpec) -> dict[str, Any]:
    plain: dict[str, Any] = {"placementType": "PickAll"}
    constraints = [
        *map(_even, _in_order(spec)),
        *map(_merged, spec.spread_policy.spread_constraints if spec.spread_policy else ()),
    ]
    if spec.number_of_clusters is not None:
        plain = {"placementType": "PickN", "numberOfClusters": spec.number_of_clusters}
        if constraints:
            plain["topologySpreadConstraints"] = constraints
    if spec.predicates:
        terms = [one.required_cluster_selector.to_plain() for one in spec.predicates]
        required = {"clusterSelectorTerms": terms}
        plain["affinity"] = {"clusterAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    if spec.tolerations:
        plain["tolerations"] = [_toleration(one) for one in spec.tolerations]
    return plain


def _in_order(spec: OcmSpec) -> list[SpreadTerm]:
    even = [one for one in spec.spread_constraints if one.type is ConstraintType.EVEN]
    return sorted(even, key=lambda one: one.order or 0)


def _even(term: SpreadTerm) -> dict[str, Any]:
    hard = term.max_skew is not None
    return {
        "topologyKey": term.topology_key,
        "topologyKeyType": term.topology_key_type.value,
        "maxSkew": term.max_skew or 1,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
    }


def _merged(term: SpreadPolicyTerm) -> dict[str, Any]:
    return {
        "topologyKey": term.topology_key,
        "topologyKeyType": term.topology_key_type.value,
        "maxSkew": term.max_skew,
        "whenUnsatisfiable": term.when_unsatisfiable.value,
    }


def _toleration(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key in ("key", "operator", "value", "effect")}


def _options(spec: OcmSpec) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    affinity = [one for one in spec.spread_constraints if one.type is ConstraintType.AFFINITY]
    if affinity:
        plain["affinityTerms"] = [
            AffinityTerm(
                topology_key=one.topology_key,
                topology_key_type=one.topology_key_type,
                topology_weights=one.topology_weights,
            ).to_plain()
            for one in affinity
        ]
    weights = {one.score_coordinate.built_in: one.weight for one in spec.prioritizer_policy.configurations}
    is_exact = spec.prioritizer_policy.mode == "Exact"
    if is_exact or "Steady" in weights:
        plain["steadyWeight"] = 100 * weights.get("Steady", 0)
    if is_exact or "Balance" in weights:
        plain["balanceWeight"] = weights.get("Balance", 0)
    plain["cpuWeight"] = weights.get("ResourceAllocatableCPU", 0)
    plain["memoryWeight"] = weights.get("ResourceAllocatableMemory", 0)
    return plain
