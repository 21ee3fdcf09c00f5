"""The Placement document of Open Cluster Management: predicates, spread, prioritizers, tolerations.

It becomes the policy and the options that `ocm` semantics run on (`spec/other-schedulers.md` 2.1, 6.4,
6.6). `v1alpha1` carries the proposal's `spreadConstraints`, `v1beta1` the merged `spreadPolicy`.
An entry of a list with nothing but a comment in it, as the proposal's examples have, is left out, with a
warning.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from placements.scheduling.door.fields import (
    Annotations,
    ClusterName,
    FilledText,
    Labels,
    Text,
    api_version,
    listed,
    one_of,
    whole,
    word_of,
)
from placements.scheduling.door.kinds import OCM_GROUP
from placements.scheduling.door.metadata import WRITTEN_BY_A_HUB
from placements.scheduling.door.ocm_options import (
    MOST_ROWS,
    AffinityTerm,
    OcmOptions,
    TopologyWeight,
    Weight,
    parse_ocm_options,
    refuse_weighted_limits,
    topology_key_problems,
)
from placements.scheduling.door.parsing import Parsed, Raw, Refusal, items_at, mapping_at, parse_model
from placements.scheduling.door.terms import MOST_REQUIRED_TERMS, LabelSelector
from placements.scheduling.faults import Caveat, Problem
from placements.scheduling.policy import (
    MOST_TOLERATIONS,
    KeyType,
    PlacementPolicy,
    Toleration,
    WhenUnsatisfiable,
    parse_policy,
)
from placements.scheduling.semantics import Semantics

OCM_KIND = "Placement"
OCM_VERSIONS = (f"{OCM_GROUP}/v1alpha1", f"{OCM_GROUP}/v1beta1")

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_SOFT_EFFECTS = ("PreferNoSelect", "NoSelectIfNew")
_NOT_READ = Refusal("not-supported", "is a field of Open Cluster Management that is not read here")


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
    topology_weights: Annotated[tuple[TopologyWeight | None, ...], listed(high=MOST_ROWS, ours=True)] = ()
    max_skew: Annotated[int, whole(1)] | None = None
    order: Annotated[int, whole(-(2**31))] | None = None

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """Weights belong to Affinity, maxSkew and order to Even (`spec/other-schedulers.md` 2.1)."""
        yield from topology_key_problems(raw)
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

    @property
    def rows(self) -> tuple[TopologyWeight, ...]:
        """Give the weights without the empty entries."""
        return tuple(one for one in self.topology_weights if one is not None)


class SpreadPolicyTerm(Parsed):
    """One entry of the merged API's `spreadPolicy.spreadConstraints`."""

    noun: ClassVar[str] = "spread constraint"

    topology_key: FilledText
    topology_key_type: Annotated[KeyType, one_of(KeyType)] = KeyType.LABEL
    max_skew: Annotated[int, whole(1)] = 1
    when_unsatisfiable: Annotated[WhenUnsatisfiable, one_of(WhenUnsatisfiable)] = (
        WhenUnsatisfiable.SCHEDULE_ANYWAY
    )

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """A label must be able to have the key."""
        yield from topology_key_problems(raw)


class SpreadPolicy(Parsed):
    """The merged API's spread policy."""

    noun: ClassVar[str] = "spread policy"

    spread_constraints: Annotated[tuple[SpreadPolicyTerm, ...], listed(high=8)] = ()


class RequiredClusterSelector(Parsed):
    """What one predicate asks of labels and claims."""

    noun: ClassVar[str] = "cluster selector"
    refused: ClassVar[Mapping[str, Refusal]] = {"celSelector": _NOT_READ}

    label_selector: LabelSelector | None = None
    claim_selector: LabelSelector | None = None


class Predicate(Parsed):
    """One of the predicates, of which a cluster must match any."""

    noun: ClassVar[str] = "predicate"

    required_cluster_selector: RequiredClusterSelector = Field(default_factory=RequiredClusterSelector)


class ScoreType(StrEnum):
    """Where a score comes from."""

    BUILT_IN = "BuiltIn"


_ADD_ON = {"AddOn": '"AddOn" is a type of Open Cluster Management that is not read here'}


class ScoreCoordinate(Parsed):
    """Which prioritizer is meant."""

    noun: ClassVar[str] = "score coordinate"
    refused: ClassVar[Mapping[str, Refusal]] = {"addOn": _NOT_READ}

    type: Annotated[ScoreType, one_of(ScoreType, hints=_ADD_ON)] = ScoreType.BUILT_IN
    built_in: Annotated[
        str, word_of("Steady", "Balance", "ResourceAllocatableCPU", "ResourceAllocatableMemory")
    ] = ""

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """A prioritizer has a name, unless it is refused for its type."""
        if "builtIn" not in raw and raw.get("type") != "AddOn":
            yield Problem(("builtIn",), "required", "is missing")


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


class OcmToleration(Toleration):
    """Put up with the taints that this matches, in the words of Open Cluster Management."""

    effect: Annotated[str, word_of("NoSelect", *_SOFT_EFFECTS, "NoSchedule", "")] = ""
    toleration_seconds: Annotated[int, whole(0, 2**63 - 1)] | None = None


class DecisionStrategy(Parsed):
    """How decisions are grouped; nothing in it is looked at."""

    noun: ClassVar[str] = "decision strategy"
    takes_unknown: ClassVar[bool] = True


class OcmSpec(Parsed):
    """The `spec` of a Placement, as far as it bears on which clusters are chosen."""

    noun: ClassVar[str] = "Placement's spec"

    cluster_sets: Annotated[tuple[Text, ...], listed()] = ()
    decision_strategy: DecisionStrategy | None = None
    number_of_clusters: Annotated[int, whole(0)] | None = None
    predicates: Annotated[tuple[Predicate | None, ...], listed()] = ()
    spread_constraints: Annotated[tuple[SpreadTerm, ...], listed(high=60, ours=True)] = ()
    spread_policy: SpreadPolicy | None = None
    prioritizer_policy: PrioritizerPolicy = Field(default_factory=PrioritizerPolicy)
    tolerations: Annotated[tuple[OcmToleration, ...], listed(high=MOST_TOLERATIONS)] = ()

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
        if (count := len(items_at(raw, "predicates"))) > MOST_REQUIRED_TERMS:
            message = f"has {count} items; FleetUI reads at most {MOST_REQUIRED_TERMS}"
            yield Problem(("predicates",), "too-many", message, f"0 to {MOST_REQUIRED_TERMS} items")
        yield from _order_problems({index: terms[index].get("order") for index in even})
        yield from _row_problems(terms)


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


def _row_problems(terms: list[Raw]) -> Iterator[Problem]:
    """Refuse rows that are too many only together; a single long list has a fault of its own."""
    count = 0
    for index, term in enumerate(terms):
        count += min(len(items_at(term, "topologyWeights")), MOST_ROWS)
        if count > MOST_ROWS:
            message = f"brings the rows of this document to {count} (a limit of this console)"
            place = ("spreadConstraints", index, "topologyWeights")
            yield Problem(place, "too-many", message, f"up to {MOST_ROWS} rows in all")
            return


class OcmMeta(Parsed):
    """Name, namespace, labels and annotations of a Placement."""

    noun: ClassVar[str] = "document's metadata"
    left_aside: ClassVar[frozenset[str]] = WRITTEN_BY_A_HUB

    name: ClusterName
    namespace: Text = ""
    labels: Labels = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)


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
    """What a Placement document asks for, as a policy and options of `ocm` semantics.

    `places` give the document's paths for those of the policy, which is arranged in another way.
    """

    name: str
    policy: PlacementPolicy
    options: OcmOptions
    caveats: tuple[Caveat, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)


def is_ocm_placement(document: object) -> bool:
    """Tell whether a document says that it is a Placement of Open Cluster Management."""
    if not isinstance(document, Mapping) or document.get("kind") != OCM_KIND:
        return False
    return str(document.get("apiVersion")).partition("/")[0] == OCM_GROUP


def parse_ocm_placement(
    document: object, *, options: object = None, path: str = "", options_path: str = "ocm"
) -> OcmWish:
    """Turn a Placement document into a policy and options; `options` may accompany it. Raises Faults."""
    spec_path = f"{path}.spec" if path else "spec"
    parsed = parse_model(OcmDocument, document, semantics=Semantics.OCM, path=path)
    given = parse_ocm_options(options, path=options_path).to_plain()
    constraints = _constraints(parsed.spec)
    policy = parse_policy(
        _policy(parsed.spec, list(constraints.values())), semantics=Semantics.OCM, path=spec_path
    )
    chosen = parse_ocm_options({**given, **_options(parsed.spec)})
    refuse_weighted_limits(policy, chosen, places=[f"{spec_path}.{place}" for place in constraints])
    caveats, places = tuple(_caveats(parsed.spec, spec_path)), _places(parsed.spec, constraints, spec_path)
    return OcmWish(parsed.metadata.name, policy, chosen, caveats, places)


def _places(spec: OcmSpec, constraints: Iterable[str], path: str) -> dict[str, str]:
    terms = f"policy.affinity.clusterAffinity.{_REQUIRED}.clusterSelectorTerms"
    spreads = (
        (f"policy.topologySpreadConstraints[{index}]", place) for index, place in enumerate(constraints)
    )
    written = [index for index, one in enumerate(spec.predicates) if one is not None]
    predicates = (
        (f"{terms}[{index}]", f"predicates[{place}].requiredClusterSelector")
        for index, place in enumerate(written)
    )
    return {here: f"{path}.{there}" for here, there in (*spreads, *predicates)}


def _caveats(spec: OcmSpec, path: str) -> Iterator[Caveat]:
    yield from _empty_entries(spec, path)
    if spec.cluster_sets:
        message = "cluster sets are not known here: every cluster of the fleet is taken to be in them"
        yield Caveat("not-acted-on", f"{path}.clusterSets", message)
    if spec.decision_strategy is not None:
        message = "decision groups change only how decisions are grouped, not which clusters are chosen"
        yield Caveat("not-acted-on", f"{path}.decisionStrategy", message)
    for index, one in enumerate(spec.tolerations):
        place = f"{path}.tolerations[{index}]"
        if one.effect in _SOFT_EFFECTS:
            message = (
                f"taints are hard here, so there is no {one.effect} to tolerate; the toleration is dropped"
            )
            yield Caveat("not-acted-on", f"{place}.effect", message)
        if one.toleration_seconds is not None:
            message = "what is tolerated is tolerated for good here, not for a number of seconds"
            yield Caveat("not-acted-on", f"{place}.tolerationSeconds", message)


def _empty_entries(spec: OcmSpec, path: str) -> Iterator[Caveat]:
    for index, predicate in enumerate(spec.predicates):
        if predicate is None:
            yield _empty(f"{path}.predicates[{index}]", "asks nothing")
    for index, term in enumerate(spec.spread_constraints):
        place = f"{path}.spreadConstraints[{index}]"
        for row, weight in enumerate(term.topology_weights):
            if weight is None:
                yield _empty(f"{place}.topologyWeights[{row}]", "prefers nothing")


def _empty(path: str, words: str) -> Caveat:
    return Caveat("empty-entry", path, f"has nothing in it, so it {words}; left out")


def _policy(spec: OcmSpec, constraints: list[dict[str, Any]]) -> dict[str, Any]:
    plain: dict[str, Any] = {"placementType": "PickAll"}
    if spec.number_of_clusters is not None:
        plain = {"placementType": "PickN", "numberOfClusters": spec.number_of_clusters}
        if constraints:
            plain["topologySpreadConstraints"] = constraints
    terms = [one.required_cluster_selector.to_plain() for one in spec.predicates if one is not None]
    if terms:
        plain["affinity"] = {"clusterAffinity": {_REQUIRED: {"clusterSelectorTerms": terms}}}
    tolerations: list[dict[str, Any]] = []
    for toleration in map(_toleration, spec.tolerations):
        if toleration["effect"] not in _SOFT_EFFECTS and toleration not in tolerations:
            tolerations.append(toleration)
    return {**plain, "tolerations": tolerations}


def _toleration(one: OcmToleration) -> dict[str, Any]:
    effect = "NoSchedule" if one.effect == "NoSelect" else one.effect
    return {"key": one.key, "operator": one.operator.value, "value": one.value, "effect": effect}


def _constraints(spec: OcmSpec) -> dict[str, dict[str, Any]]:
    """Give the Even constraints in their order, each under its place in the document's spec."""
    terms = enumerate(spec.spread_constraints)
    even = [(index, one) for index, one in terms if one.type is ConstraintType.EVEN]
    even.sort(key=lambda term: term[1].order or 0)
    merged = enumerate(spec.spread_policy.spread_constraints if spec.spread_policy else ())
    return {
        **{f"spreadConstraints[{index}]": _even(one) for index, one in even},
        **{f"spreadPolicy.spreadConstraints[{index}]": _merged(one) for index, one in merged},
    }


def _even(term: SpreadTerm) -> dict[str, Any]:
    is_hard = term.max_skew is not None
    return {
        "topologyKey": term.topology_key,
        "topologyKeyType": term.topology_key_type.value,
        "maxSkew": term.max_skew or 1,
        "whenUnsatisfiable": "DoNotSchedule" if is_hard else "ScheduleAnyway",
    }


def _merged(term: SpreadPolicyTerm) -> dict[str, Any]:
    return {
        "topologyKey": term.topology_key,
        "topologyKeyType": term.topology_key_type.value,
        "maxSkew": term.max_skew,
        "whenUnsatisfiable": term.when_unsatisfiable.value,
    }


def _options(spec: OcmSpec) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    affinity = [one for one in spec.spread_constraints if one.type is ConstraintType.AFFINITY and one.rows]
    if affinity:
        plain["affinityTerms"] = [
            AffinityTerm(
                topology_key=one.topology_key,
                topology_key_type=one.topology_key_type,
                topology_weights=one.rows,
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
