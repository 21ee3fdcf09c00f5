"""The models of an OCM Placement, field by field, with its annotations (`docs/adr/0009`)."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BeforeValidator, Field

from fleetui.apimachinery.errors import (
    ErrorDetail,
    FieldError,
    InvalidManifest,
    format_path,
)
from fleetui.apimachinery.fields import (
    DNS_LABEL,
    WRITTEN_BY_A_HUB,
    Annotations,
    ClusterName,
    FilledText,
    Labels,
    Text,
    api_version,
    dns_label_problem,
    integer,
    list_of,
    literal,
    one_of,
    pattern,
)
from fleetui.apimachinery.kinds import OCM_GROUP
from fleetui.apimachinery.model import (
    IntOrPercent,
    ManifestModel,
    Raw,
    conflict,
    duplicate_problems,
    items_at,
    mapping_at,
    plain_problems,
    required,
)
from placements.manifests.affinity import (
    MOST_REQUIRED_TERMS,
    CelSelector,
    LabelSelector,
)
from placements.manifests.ocm_options import (
    MOST_ROWS,
    TopologyWeight,
    Weight,
    topology_key_problems,
)
from placements.manifests.policy import (
    MOST_TOLERATIONS,
    SOFT_EFFECTS,
    KeyType,
    Toleration,
    WhenUnsatisfiable,
)
from placements.manifests.strategy import amount

OCM_KIND = "Placement"
OCM_VERSIONS = (f"{OCM_GROUP}/v1alpha1", f"{OCM_GROUP}/v1beta1")


class ConstraintType(StrEnum):
    """Even spreads; Affinity prefers."""

    EVEN = "Even"
    AFFINITY = "Affinity"


class SpreadTerm(ManifestModel):
    """One entry of the proposal's `spreadConstraints`."""

    type: Annotated[ConstraintType, one_of(ConstraintType)]
    topology_key: FilledText
    topology_key_type: Annotated[KeyType, one_of(KeyType)] = KeyType.LABEL
    topology_weights: Annotated[
        tuple[TopologyWeight | None, ...], list_of(high=MOST_ROWS, ours=True)
    ] = ()
    max_skew: Annotated[int, integer(1)] | None = None
    order: Annotated[int, integer(-(2**31))] | None = None

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """Weights belong to Affinity, maxSkew and order to Even.

        See `rules/other-schedulers.md#placements-of-open-cluster-management`.
        """
        yield from topology_key_problems(raw)
        kind = raw.get("type")
        if kind == "Affinity":
            yield from (
                conflict(key, "only allowed for type Even", "no such field")
                for key in filter(raw.__contains__, ("maxSkew", "order"))
            )
            if not items_at(raw, "topologyWeights"):
                yield required(
                    "topologyWeights",
                    "type Affinity needs at least one weight",
                    "one or more",
                )
        elif kind == "Even" and items_at(raw, "topologyWeights"):
            yield conflict(
                "topologyWeights", "only allowed for type Affinity", "no such field"
            )

    @property
    def rows(self) -> tuple[TopologyWeight, ...]:
        return tuple(weight for weight in self.topology_weights if weight is not None)


class SpreadPolicyTerm(ManifestModel):
    """One entry of the merged API's `spreadPolicy.spreadConstraints`."""

    topology_key: FilledText
    topology_key_type: Annotated[KeyType, one_of(KeyType)] = KeyType.LABEL
    max_skew: Annotated[int, integer(1)] = 1
    when_unsatisfiable: Annotated[WhenUnsatisfiable, one_of(WhenUnsatisfiable)] = (
        WhenUnsatisfiable.SCHEDULE_ANYWAY
    )

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        yield from topology_key_problems(raw)


class SpreadPolicy(ManifestModel):
    """The merged API's spread policy."""

    spread_constraints: Annotated[tuple[SpreadPolicyTerm, ...], list_of(high=8)] = ()


class RequiredClusterSelector(ManifestModel):
    """Requirements of one predicate on labels and claims."""

    label_selector: LabelSelector | None = None
    claim_selector: LabelSelector | None = None
    cel_selector: CelSelector | None = None

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """A claim selector has expressions only.

        See `rules/other-schedulers.md#placements-of-open-cluster-management`.
        """
        if "matchLabels" in mapping_at(raw, "claimSelector"):
            yield ErrorDetail(
                ("claimSelector", "matchLabels"),
                "unknown-field",
                'Unknown field "matchLabels": claims have no labels',
                "matchExpressions",
            )


class Predicate(ManifestModel):
    """One of the predicates, of which a cluster must match any."""

    required_cluster_selector: RequiredClusterSelector = Field(
        default_factory=RequiredClusterSelector
    )


class ScoreType(StrEnum):
    """Where a score comes from."""

    BUILT_IN = "BuiltIn"
    ADD_ON = "AddOn"


class AddOnCoordinate(ManifestModel):
    """The score of that name in the AddOnPlacementScore of each cluster."""

    resource_name: FilledText
    score_name: FilledText


class ScoreCoordinate(ManifestModel):
    """The prioritizer: a built-in one by its name, or the score of an add-on."""

    type: Annotated[ScoreType, one_of(ScoreType)] = ScoreType.BUILT_IN
    built_in: Annotated[
        str,
        literal(
            "",
            "Steady",
            "Balance",
            "ResourceAllocatableCPU",
            "ResourceAllocatableMemory",
        ),
    ] = ""
    add_on: AddOnCoordinate | None = None

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """A coordinate has what its type names; of another type's field a hub reads nothing."""
        field = "addOn" if raw.get("type") == "AddOn" else "builtIn"
        if not raw.get(field):
            yield ErrorDetail((field,), "required", "Required value")


class PrioritizerConfig(ManifestModel):
    """The weight of one prioritizer."""

    score_coordinate: ScoreCoordinate
    weight: Weight = 1


class PrioritizerPolicy(ManifestModel):
    """Which prioritizers count, and how much."""

    mode: Annotated[str, literal("Additive", "Exact", "")] = "Additive"
    configurations: Annotated[tuple[PrioritizerConfig, ...], list_of()] = ()


class OcmToleration(Toleration):
    """A toleration with the effects of Open Cluster Management."""

    effect: Annotated[str, literal("NoSelect", *SOFT_EFFECTS, "NoSchedule", "")] = ""


class DecisionGroup(ManifestModel):
    """One group of clusters; ignored, but a selector that OCM cannot read deletes all decisions there."""

    group_name: Text = ""
    group_cluster_selector: RequiredClusterSelector | None = None


class DecisionGroupStrategy(ManifestModel):
    """The groups of decisions; text is a percentage, else OCM deletes all decisions."""

    clusters_per_decision_group: (
        Annotated[
            IntOrPercent,
            # An integer below 0 means all, as 0 does.
            BeforeValidator(
                lambda value: amount(
                    0 if isinstance(value, int) and value < 0 else value
                ),
                json_schema_input_type=int | str,
            ),
        ]
        | None
    ) = None
    decision_groups: Annotated[tuple[DecisionGroup, ...], list_of()] = ()


class DecisionStrategy(ManifestModel):
    """How decisions are grouped; ignored."""

    allow_unknown: ClassVar[bool] = True

    group_strategy: DecisionGroupStrategy | None = None


class OcmSpec(ManifestModel):
    """The `spec` of a Placement, as far as it bears on which clusters are chosen."""

    cluster_sets: Annotated[tuple[Text, ...], list_of()] = ()
    decision_strategy: DecisionStrategy | None = None
    number_of_clusters: Annotated[int, integer(0)] | None = None
    predicates: Annotated[tuple[Predicate | None, ...], list_of()] = ()
    spread_constraints: Annotated[
        tuple[SpreadTerm, ...], list_of(high=60, ours=True)
    ] = ()
    spread_policy: SpreadPolicy | None = None
    prioritizer_policy: PrioritizerPolicy = Field(default_factory=PrioritizerPolicy)
    tolerations: Annotated[
        tuple[OcmToleration, ...], list_of(high=MOST_TOLERATIONS)
    ] = ()
    sort_by: Text = ""
    score_rate_limit: Text = ""

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """Even needs a number, several Even constraints an order each.

        See `rules/other-schedulers.md#placements-of-open-cluster-management`.
        """
        terms = [mapping_at(item) for item in items_at(raw, "spreadConstraints")]
        merged = items_at(mapping_at(raw, "spreadPolicy"), "spreadConstraints")
        even = [index for index, term in enumerate(terms) if term.get("type") == "Even"]
        if even and raw.get("numberOfClusters") is None:
            yield required("numberOfClusters", "type Even needs it", "0 or more")
        if terms and merged:
            yield conflict(
                "spreadPolicy",
                "not allowed together with spreadConstraints",
                "one of the two",
            )
        if (count := len(items_at(raw, "predicates"))) > MOST_REQUIRED_TERMS:
            message = (
                f"Too many: {count}: must have at most {MOST_REQUIRED_TERMS} items"
            )
            yield ErrorDetail(
                ("predicates",),
                "too-many",
                message,
                f"0 to {MOST_REQUIRED_TERMS} items",
            )
        orders = [
            (("spreadConstraints", index, "order"), terms[index].get("order"))
            for index in even
        ]
        for place, order in orders:
            if order is None and len(orders) > 1:
                message = "Required value: several Even constraints need an order each"
                yield ErrorDetail(place, "required", message, "an integer")
        yield from duplicate_problems(orders, "unique orders", types=int)

        # Rows that are too many only together; a single long list has its error already.
        count = 0
        for index, term in enumerate(terms):
            count += min(len(items_at(term, "topologyWeights")), MOST_ROWS)
            if count > MOST_ROWS:
                message = f"Too many: {count} rows in all (a limit of this console)"
                place = ("spreadConstraints", index, "topologyWeights")
                yield ErrorDetail(
                    place, "too-many", message, f"up to {MOST_ROWS} rows in all"
                )
                return


class OcmMeta(ManifestModel):
    """Name, namespace, labels and annotations of a Placement."""

    ignored_fields: ClassVar[frozenset[str]] = WRITTEN_BY_A_HUB

    name: ClusterName
    namespace: Annotated[
        str, pattern(dns_label_problem, DNS_LABEL, filled_in=False)
    ] = ""
    labels: Labels = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)


class OcmDocument(ManifestModel):
    """A whole Placement; its status is ignored."""

    ignored_fields: ClassVar[frozenset[str]] = frozenset({"status"})

    api_version: Annotated[str, api_version(*OCM_VERSIONS)]
    kind: Annotated[str, literal(OCM_KIND)]
    metadata: OcmMeta
    spec: OcmSpec = Field(default_factory=OcmSpec)


RESOURCES_ANNOTATION = "fleetui.io/resource-selectors"
SPREAD_OPTIONS_ANNOTATION = "fleetui.io/spread-options"
STRATEGY_ANNOTATION = "fleetui.io/strategy"

Value = TypeVar("Value")
_SORTS: Mapping[str, tuple[type, str]] = {
    RESOURCES_ANNOTATION: (
        list,
        'a JSON list such as [{"group": "", "version": "v1", "kind": "Namespace", "name": "web"}]',
    ),
    SPREAD_OPTIONS_ANNOTATION: (dict, 'a JSON object such as {"mode": "strict"}'),
    STRATEGY_ANNOTATION: (
        dict,
        'a JSON object such as {"rollingUpdate": {"maxUnavailable": 1}}',
    ),
}


def annotation_path(key: str) -> str:
    return format_path(("metadata", "annotations", key))


def json_problem(key: str, text: str) -> ErrorDetail | None:
    sort, allowed = _SORTS[key]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return ErrorDetail((), "bad-format", "Invalid value: must be JSON", allowed)
    if not isinstance(value, sort) or plain_problems(value):
        message = f"Invalid value: must be a plain JSON {'list' if sort is list else 'object'}"
        return ErrorDetail((), "bad-format", message, allowed)
    return None


def annotated(document: object, key: str) -> Any:
    """Return the value of one of these annotations, None without it. Raise InvalidManifest."""
    text = mapping_at(document, "metadata", "annotations").get(key)
    if not isinstance(text, str):
        return None
    if problem := json_problem(key, text):
        raise InvalidManifest.of(
            annotation_path(key), problem.code, problem.message, problem.allowed
        )
    return json.loads(text)


def in_annotations(error: FieldError) -> FieldError:
    return replace(error, path=annotation_of(error.path))


def annotation_of(path: str) -> str:
    """Return the path in the manifest for a path in the spec that was made of annotations."""
    for field, key in (
        ("resourceSelectors", RESOURCES_ANNOTATION),
        ("strategy", STRATEGY_ANNOTATION),
    ):
        if path.startswith(field):
            return annotation_path(key) + path.removeprefix(field)
    return path


class Gathering:
    """Calls one parser after another and collects the errors of all of them."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []

    def read(self, parse: Callable[[], Value]) -> Value | None:
        """Return the result of a parser, None if it raises InvalidManifest."""
        try:
            return parse()
        except InvalidManifest as invalid:
            self.errors += invalid.errors
            return None
