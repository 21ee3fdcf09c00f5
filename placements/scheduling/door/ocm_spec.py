"""The models of an OCM Placement document, field by field; `ocm_placement` says what they come to."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, ClassVar

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
    TopologyWeight,
    Weight,
    topology_key_problems,
)
from placements.scheduling.door.parsing import Parsed, Raw, Refusal, items_at, mapping_at, shown
from placements.scheduling.door.terms import MOST_REQUIRED_TERMS, LabelSelector
from placements.scheduling.faults import Problem
from placements.scheduling.policy import MOST_TOLERATIONS, KeyType, Toleration, WhenUnsatisfiable

OCM_KIND = "Placement"
OCM_VERSIONS = (f"{OCM_GROUP}/v1alpha1", f"{OCM_GROUP}/v1beta1")
SOFT_EFFECTS = ("PreferNoSelect", "NoSelectIfNew")

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

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """A claim selector has expressions only (`spec/other-schedulers.md` 1.2)."""
        if "matchLabels" in mapping_at(raw, "claimSelector"):
            message = "is not a field of a claim selector; a claim has no labels"
            yield Problem(("claimSelector", "matchLabels"), "unknown-field", message, "matchExpressions")


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

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """Each prioritizer has one weight; of two the first would be passed over."""
        seen: set[object] = set()
        for index, item in enumerate(items_at(raw, "configurations")):
            name = mapping_at(item, "scoreCoordinate").get("builtIn")
            if isinstance(name, str) and name in seen:
                place = ("configurations", index, "scoreCoordinate", "builtIn")
                yield Problem(place, "duplicate", f"{shown(name)} has a weight above", "each name once")
            elif isinstance(name, str):
                seen.add(name)


class OcmToleration(Toleration):
    """Put up with the taints that this matches, in the words of Open Cluster Management."""

    effect: Annotated[str, word_of("NoSelect", *SOFT_EFFECTS, "NoSchedule", "")] = ""
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
