"""The manifests of placements and their specs (`rules/lifecycle.md#placements`)."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from fleetui.apimachinery import fields
from fleetui.apimachinery.errors import (
    ErrorDetail,
    FieldError,
    InvalidManifest,
    ManifestWarning,
    format_path,
    warnings_of,
)
from fleetui.apimachinery.fields import (
    FleetDocument,
    NamespacedMeta,
    ObjectMeta,
    integer,
    list_of,
    one_of,
    pattern,
)
from fleetui.apimachinery.kinds import (
    NAMESPACED_PLACEMENT_KIND,
    OCM_GROUP,
    PLACEMENT_KIND,
    KindScope,
    refuse_other_kinds,
    scope_of,
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
    quote_value,
    required,
    semantics_problem,
)
from placements.manifests.affinity import LabelSelector
from placements.manifests.assertions import ASSERTIONS_ANNOTATION, assertions_problem
from placements.manifests.ocm import (
    OCM_KIND,
    RESOURCES_ANNOTATION,
    SPREAD_OPTIONS_ANNOTATION,
    STRATEGY_ANNOTATION,
    Gathering,
    annotated,
    annotation_of,
    annotation_path,
    in_annotations,
    json_problem,
)
from placements.manifests.ocm_placement import parse_ocm_placement
from placements.manifests.policy import PlacementPolicy, policy_warnings
from placements.manifests.strategy import (
    ApplyStrategy,
    ReportBackType,
    RolloutStrategy,
    StrategyType,
)


class SelectionScope(StrEnum):
    """How much of a selected namespace is included."""

    NAMESPACE_ONLY = "NamespaceOnly"
    NAMESPACE_WITH_RESOURCES = "NamespaceWithResources"
    NAMESPACE_WITH_RESOURCE_SELECTORS = "NamespaceWithResourceSelectors"


def is_reserved_namespace(name: str) -> bool:
    """Return whether a namespace belongs to the hub itself and is never placed."""
    return name == "default" or name.startswith(("fleet-", "kube-"))


class ResourceSelector(ManifestModel):
    """One sort of resources: one by name, some by label, or all of the kind."""

    group: Annotated[
        str,
        pattern(fields.group_problem, 'an API group, "" for the core', filled_in=False),
    ]
    version: Annotated[
        str, pattern(fields.version_problem, "an API version such as v1")
    ]
    kind: Annotated[str, pattern(fields.kind_problem, "a kind such as Namespace")]
    name: Annotated[
        str, pattern(fields.object_name_problem, fields.OBJECT_NAME, filled_in=False)
    ] = ""
    label_selector: LabelSelector | None = None
    selection_scope: Annotated[SelectionScope, one_of(SelectionScope)] = (
        SelectionScope.NAMESPACE_WITH_RESOURCES
    )

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """By name or by label, not both; and no reserved namespace.

        See `rules/lifecycle.md#resource-selection`.
        """
        name = raw.get("name")
        if name and "labelSelector" in raw:
            yield conflict(
                "labelSelector",
                "not allowed together with name",
                "name or labelSelector",
            )
        if (
            selects_namespace(raw)
            and isinstance(name, str)
            and is_reserved_namespace(name)
        ):
            yield reserved_namespace_problem(name)


def reserved_namespace_problem(name: str) -> ErrorDetail:
    return ErrorDetail(
        ("name",),
        "reserved-namespace",
        f"Forbidden: {quote_value(name)} belongs to the hub itself",
        "namespaces other than default, fleet-* and kube-*",
    )


def selects_namespace(raw: Raw) -> bool:
    return raw.get("kind") == "Namespace" and raw.get("group") == ""


def scope_problems(selectors: list[Any]) -> Iterator[ErrorDetail]:
    """A namespace with its own resource selectors is the only one and has a name.

    See `rules/lifecycle.md#placements`.
    """
    namespaces = [
        index
        for index, raw in enumerate(selectors)
        if selects_namespace(mapping_at(raw))
    ]
    scoped = [
        index
        for index in namespaces
        if _has_own_selectors(mapping_at(selectors[index]))
    ]
    for index in scoped:
        if not mapping_at(selectors[index]).get("name"):
            message = "NamespaceWithResourceSelectors needs the name of one namespace"
            yield required("name", message, "a name").under(index)
    others = [index for index in namespaces if index != scoped[0]] if scoped else []
    for index in others:
        yield ErrorDetail(
            (index,),
            "conflict",
            f"Forbidden: not allowed together with {SelectionScope.NAMESPACE_WITH_RESOURCE_SELECTORS}",
            "one selector of kind Namespace",
        )


def namespaced_problems(selectors: list[Any]) -> Iterator[ErrorDetail]:
    """A placement of a whole cluster takes kinds inside namespaces only from a namespace it names.

    See `rules/lifecycle.md#placements`.

    Of other groups than Kubernetes' own only the objects on the hub show it: `Inventory.is_namespaced` in
    `placements/engine/selection.py` reads them.
    """
    raws = [mapping_at(raw) for raw in selectors]
    if not any(selects_namespace(raw) and _has_own_selectors(raw) for raw in raws):
        yield from namespaced_kind_problems(selectors)


def namespaced_kind_problems(selectors: list[Any]) -> Iterator[ErrorDetail]:
    """Yield an error for each selector of a kind that is known to be namespaced."""
    for index, raw in enumerate(map(mapping_at, selectors)):
        group, kind = raw.get("group"), raw.get("kind")
        if (
            isinstance(group, str)
            and isinstance(kind, str)
            and scope_of(group, kind) is KindScope.NAMESPACED
        ):
            yield namespaced_kind_problem(kind).under(index)


def namespaced_kind_problem(kind: str) -> ErrorDetail:
    return ErrorDetail(
        ("kind",),
        "namespaced-kind",
        f"Forbidden: {kind} is namespaced: select its Namespace, which includes it",
        "cluster-scoped kinds, or a selector of a Namespace with NamespaceWithResourceSelectors",
    )


def cluster_scoped_kind_problem(kind: str) -> ErrorDetail:
    return ErrorDetail(
        ("kind",),
        "cluster-scoped-kind",
        f"Forbidden: {kind} is cluster-scoped, and this placement is in a namespace",
        f"namespaced kinds, or a {PLACEMENT_KIND}",
    )


def _has_own_selectors(raw: Raw) -> bool:
    return raw.get("selectionScope") == SelectionScope.NAMESPACE_WITH_RESOURCE_SELECTORS


SEMANTICS_ANNOTATION = "fleetui.io/semantics"
APPROVER_DIFFERS_ANNOTATION = "fleetui.io/approver-differs"
MOST_SELECTORS = 100
APPLY_STRATEGY = ".strategy.applyStrategy"
_STORED = "stored, but has no effect yet"
_NO_EFFECT = (
    f"no effect on a {NAMESPACED_PLACEMENT_KIND}, whose status is in its namespace"
)


class StatusReportingScope(StrEnum):
    """Who can read a placement's status on the hub."""

    CLUSTER_SCOPE_ONLY = "ClusterScopeOnly"
    NAMESPACE_ACCESSIBLE = "NamespaceAccessible"


class PlacementSpec(ManifestModel):
    """Which resources to place, where, and how changes are rolled out."""

    resource_selectors: Annotated[
        tuple[ResourceSelector, ...], list_of(low=1, high=MOST_SELECTORS)
    ]
    policy: PlacementPolicy = Field(default_factory=PlacementPolicy)
    strategy: RolloutStrategy = Field(default_factory=RolloutStrategy)
    revision_history_limit: Annotated[int, integer(1, 1000)] = 10
    status_reporting_scope: Annotated[
        StatusReportingScope, one_of(StatusReportingScope)
    ] = StatusReportingScope.CLUSTER_SCOPE_ONLY

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """What resource selectors demand of each other and of the status scope.

        See `rules/lifecycle.md#placements`.
        """
        selectors = items_at(raw, "resourceSelectors")[:MOST_SELECTORS]
        across = (*scope_problems(selectors), *namespaced_problems(selectors))
        yield from (problem.under("resourceSelectors") for problem in across)
        namespaces = sum(
            selects_namespace(mapping_at(selector)) for selector in selectors
        )
        if (
            raw.get("statusReportingScope") == StatusReportingScope.NAMESPACE_ACCESSIBLE
            and namespaces != 1
        ):
            yield conflict(
                "statusReportingScope",
                "NamespaceAccessible needs exactly one resource selector of kind Namespace",
                "ClusterScopeOnly",
            )


class NamespacedPlacementSpec(PlacementSpec):
    """The spec of a placement in a namespace, which selects resources of that namespace only."""

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """None: KubeFleet accepts a cluster-scoped kind, and reports it as an invalid selector.

        See `rules/lifecycle.md#resource-selection`.

        This console refuses one when the placement is saved: `placements/engine/selection.py`.
        """
        del raw
        yield from ()


class ClusterResourcePlacement(FleetDocument):
    spec: PlacementSpec

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """The annotations of this console must be readable."""
        annotations = mapping_at(raw, "metadata", "annotations")
        for key, problem_of in _OUR_ANNOTATIONS.items():
            problem = (
                problem_of(annotations[key])
                if isinstance(annotations.get(key), str)
                else None
            )
            if problem:
                yield problem.under("metadata", "annotations", key)

    @property
    def semantics(self) -> Semantics:
        return Semantics(
            self.metadata.annotations.get(SEMANTICS_ANNOTATION, DEFAULT_SEMANTICS)
        )

    @property
    def spread_options(self) -> dict[str, Any]:
        text = self.metadata.annotations.get(SPREAD_OPTIONS_ANNOTATION)
        return dict(json.loads(text)) if text else {}

    @property
    def approver_differs(self) -> bool:
        """Return whether stages must be approved by another person than the one who started the run."""
        return self.metadata.annotations.get(APPROVER_DIFFERS_ANNOTATION) == "true"

    @property
    def resource_namespace(self) -> str:
        """Return the namespace whose resources it selects, which a cluster must have, or ""."""
        return self.namespace

    @property
    def selectors_path(self) -> str:
        return "spec.resourceSelectors"

    def in_document(self, warning: ManifestWarning) -> ManifestWarning:
        """Return a warning about its policy or its spec with the path in the manifest."""
        return warning


class ResourcePlacement(ClusterResourcePlacement):
    """A placement in a namespace: it selects resources of its namespace, and is otherwise alike."""

    metadata: NamespacedMeta
    spec: NamespacedPlacementSpec


class OcmPlacementSpec(PlacementSpec):
    """The spec of a Placement of Open Cluster Management; it may select no resources at all."""

    resource_selectors: Annotated[
        tuple[ResourceSelector, ...], list_of(high=MOST_SELECTORS)
    ] = ()


class OcmPlacement(ClusterResourcePlacement):
    """A Placement of Open Cluster Management: a policy of `ocm` semantics, its resources by annotation.

    `places` maps paths of the policy to paths of the manifest, longest first. A namespace is a part of its
    name and has no other meaning: its resources are selected as those of a cluster-scoped placement.
    """

    spec: OcmPlacementSpec
    options: dict[str, Any]
    warnings: tuple[ManifestWarning, ...] = ()
    places: dict[str, str]

    @property
    def semantics(self) -> Semantics:
        return Semantics.OCM

    @property
    def spread_options(self) -> dict[str, Any]:
        return self.options

    @property
    def resource_namespace(self) -> str:
        return ""

    @property
    def selectors_path(self) -> str:
        return annotation_path(RESOURCES_ANNOTATION)

    def in_document(self, warning: ManifestWarning) -> ManifestWarning:
        path = warning.path.removeprefix("spec.")
        for here, there in (*self.places.items(), ("policy", "spec")):
            if path.startswith(here):
                return replace(warning, path=there + path.removeprefix(here))
        return (
            replace(warning, path=annotation_of(path))
            if path.startswith("strategy")
            else warning
        )


def truth_problem(text: str) -> ErrorDetail | None:
    """Return why a value of an annotation is neither `true` nor `false`."""
    return (
        None
        if text in ("true", "false")
        else ErrorDetail((), "bad-format", "Unsupported value", '"true" or "false"')
    )


def _misplaced(field: str) -> Callable[[str], ErrorDetail]:
    message = f"Forbidden: only allowed on an OCM Placement; use the field spec.{field}"
    return lambda _: ErrorDetail((), "misplaced", message, f"spec.{field}")


_OUR_ANNOTATIONS: dict[str, Callable[[str], ErrorDetail | None]] = {
    APPROVER_DIFFERS_ANNOTATION: truth_problem,
    ASSERTIONS_ANNOTATION: assertions_problem,
    RESOURCES_ANNOTATION: _misplaced("resourceSelectors"),
    SEMANTICS_ANNOTATION: semantics_problem,
    SPREAD_OPTIONS_ANNOTATION: partial(json_problem, SPREAD_OPTIONS_ANNOTATION),
    STRATEGY_ANNOTATION: _misplaced("strategy"),
}


def is_ocm_placement(document: object) -> bool:
    """Return whether a manifest claims to be a Placement of Open Cluster Management."""
    return (
        isinstance(document, Mapping)
        and document.get("kind") == OCM_KIND
        and str(document.get("apiVersion")).partition("/")[0] == OCM_GROUP
    )


def external_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a placement with the rollout strategy External, which has no limits of rolling updates."""
    is_ocm = is_ocm_placement(document)
    before = mapping_at(document, "spec", "strategy")
    if is_ocm:
        before = annotated(document, STRATEGY_ANNOTATION) or {}
    strategy = {**before, "type": StrategyType.EXTERNAL.value}
    strategy.pop("rollingUpdate", None)
    if not is_ocm:
        return {**document, "spec": {**document["spec"], "strategy": strategy}}
    metadata = document["metadata"]
    annotations = {
        **mapping_at(metadata, "annotations"),
        STRATEGY_ANNOTATION: json.dumps(strategy),
    }
    return {**document, "metadata": {**metadata, "annotations": annotations}}


def parse_placement(document: Any) -> ClusterResourcePlacement:
    """Parse a placement of the cluster, of a namespace or of OCM. Raise InvalidManifest with all its errors.

    For a manifest of another kind that is the only error.
    """
    if is_ocm_placement(document):
        gathering = Gathering()
        gathering.errors += _ocm_annotation_errors(document)
        options = gathering.read(lambda: annotated(document, SPREAD_OPTIONS_ANNOTATION))
        options_path = annotation_path(SPREAD_OPTIONS_ANNOTATION)
        parsed = gathering.read(
            lambda: parse_ocm_placement(
                document, options=options, options_path=options_path
            )
        )
        spec = gathering.read(lambda: _ocm_spec(document))
        if parsed is None or spec is None or gathering.errors:
            raise InvalidManifest(gathering.errors)
        metadata = document["metadata"]
        keys = ("namespace", "name", "labels", "annotations")
        fields = {key: metadata[key] for key in keys if metadata.get(key)}
        meta = NamespacedMeta if "namespace" in fields else ObjectMeta
        return OcmPlacement.model_construct(
            api_version=document["apiVersion"],
            kind=document["kind"],
            metadata=parse_manifest(
                meta, fields, semantics=Semantics.OCM, path="metadata"
            ),
            spec=spec.model_copy(update={"policy": parsed.policy}),
            options=parsed.options.to_plain(),
            warnings=parsed.warnings,
            places=dict(parsed.places),
        )
    refuse_other_kinds(document, PLACEMENT_KIND, NAMESPACED_PLACEMENT_KIND)
    annotation = mapping_at(document, "metadata", "annotations").get(
        SEMANTICS_ANNOTATION
    )
    semantics = (
        Semantics(annotation) if annotation in list(Semantics) else DEFAULT_SEMANTICS
    )
    is_namespaced = mapping_at(document).get("kind") == NAMESPACED_PLACEMENT_KIND
    model = ResourcePlacement if is_namespaced else ClusterResourcePlacement
    return parse_manifest(model, document, semantics=semantics, path="")


def _ocm_annotation_errors(document: Any) -> Iterator[FieldError]:
    annotations = mapping_at(document, "metadata", "annotations")
    if annotations.get(SEMANTICS_ANNOTATION, Semantics.OCM) != Semantics.OCM:
        message = "Forbidden: an OCM Placement always has ocm semantics"
        path, allowed = (
            annotation_path(SEMANTICS_ANNOTATION),
            "ocm, or no such annotation",
        )
        yield FieldError(path, "conflict", message, allowed)
    for key in (APPROVER_DIFFERS_ANNOTATION, ASSERTIONS_ANNOTATION):
        text = annotations.get(key)
        if isinstance(text, str) and (problem := _OUR_ANNOTATIONS[key](text)):
            path = format_path(("metadata", "annotations", key, *problem.keys))
            yield FieldError(path, problem.code, problem.message, problem.allowed)


def _ocm_spec(document: Any) -> OcmPlacementSpec:
    gathering = Gathering()
    selectors = gathering.read(lambda: annotated(document, RESOURCES_ANNOTATION))
    strategy = gathering.read(lambda: annotated(document, STRATEGY_ANNOTATION))
    raw = {"resourceSelectors": selectors, "strategy": strategy}
    spec = gathering.read(
        lambda: parse_manifest(OcmPlacementSpec, raw, semantics=Semantics.OCM, path="")
    )
    if spec is None or gathering.errors:
        raise InvalidManifest(map(in_annotations, gathering.errors))
    return spec


def selectors_of_document(document: Mapping[str, Any]) -> tuple[ResourceSelector, ...]:
    """Return the resource selectors of a manifest that was parsed before, without parsing the rest."""
    if is_ocm_placement(document):
        return parse_resource_selectors(annotated(document, RESOURCES_ANNOTATION) or ())
    return parse_resource_selectors(document["spec"]["resourceSelectors"])


def parse_resource_selectors(raw: Iterable[object]) -> tuple[ResourceSelector, ...]:
    """Parse resource selectors, each on its own. Raise InvalidManifest."""
    places = (
        (f"spec.resourceSelectors[{index}]", one) for index, one in enumerate(raw)
    )
    return tuple(
        parse_manifest(ResourceSelector, one, semantics=DEFAULT_SEMANTICS, path=path)
        for path, one in places
    )


NEVER_IN_PLACE = "Updates in place never start."


def placement_warnings(
    placement: ClusterResourcePlacement,
) -> tuple[ManifestWarning, ...]:
    """Return the warnings about a placement, each with its path in the manifest."""
    warnings = list(placement.warnings) if isinstance(placement, OcmPlacement) else []
    warnings += map(placement.in_document, spec_warnings(placement.spec))
    topology_keys = {
        constraint.topology_key
        for constraint in placement.spec.policy.topology_spread_constraints
    }
    for key in mapping_at(placement.spread_options, "domainWeights"):
        if key not in topology_keys:
            warnings.append(
                ManifestWarning(
                    "not-acted-on",
                    f"{annotation_path(SPREAD_OPTIONS_ANNOTATION)}.domainWeights",
                    f"weights without effect: no constraint has topologyKey {quote_value(key)}",
                )
            )
    return tuple(warnings)


def spec_warnings(spec: PlacementSpec) -> tuple[ManifestWarning, ...]:
    """Return the warnings that need no fleet (`rules/lifecycle.md#strategies`)."""
    is_namespaced = isinstance(spec, NamespacedPlacementSpec)
    budgets = spec.strategy.rolling_update
    report_back = spec.strategy.report_back_strategy
    checks = [
        (
            budgets and budgets.max_unavailable.number == 0,
            "zero-max-unavailable",
            "spec.strategy.rollingUpdate.maxUnavailable",
            NEVER_IN_PLACE,
        ),
        (
            budgets and budgets.max_surge.number == 0,
            "zero-max-surge",
            "spec.strategy.rollingUpdate.maxSurge",
            "0: a replacement starts only after a removal",
        ),
        (
            spec.strategy.apply_strategy != ApplyStrategy(),
            "not-acted-on-yet",
            f"spec{APPLY_STRATEGY}",
            (
                "other than the defaults: acts on clusters with the driver kubernetes; "
                "of it, simulated ones act on allowCoOwnership alone"
            ),
        ),
        (
            report_back and report_back.type is ReportBackType.MIRROR,
            "not-acted-on-yet",
            "spec.strategy.reportBackStrategy",
            f"Mirror: {_STORED}",
        ),
        (
            spec.status_reporting_scope is StatusReportingScope.NAMESPACE_ACCESSIBLE,
            "not-acted-on-yet",
            "spec.statusReportingScope",
            f"NamespaceAccessible: {_NO_EFFECT if is_namespaced else _STORED}",
        ),
    ]
    return (*policy_warnings(spec.policy, path="spec.policy"), *warnings_of(checks))
