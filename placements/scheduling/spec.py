"""The documents of placements and their specs: `parse_placement` and `parse_placement_spec`.

A Placement of Open Cluster Management becomes the same sort of value (`docs/adr/0009`).

Rules: `spec/lifecycle.md` A.16, A.17, B.1.1 to B.1.4. The scheduling policy has its own module.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from placements.scheduling.door.fields import api_version, listed, one_of, whole, word_of
from placements.scheduling.door.kinds import PLACEMENT_KIND, PLACEMENT_VERSIONS, refuse_other_kinds
from placements.scheduling.door.metadata import ObjectMeta
from placements.scheduling.door.ocm_annotations import (
    RESOURCES_ANNOTATION,
    STRATEGY_ANNOTATION,
    Gathering,
    annotated,
    annotation_of,
    annotation_path,
    in_annotations,
)
from placements.scheduling.door.ocm_placement import OcmWish, is_ocm_placement, parse_ocm_placement
from placements.scheduling.door.parsing import Parsed, Raw, items_at, mapping_at, parse_model, shown
from placements.scheduling.door.plain import plain_problems
from placements.scheduling.door.resource_selectors import (
    ResourceSelector,
    SelectionScope,
    namespaced_problems,
    scope_problems,
    selects_namespace,
)
from placements.scheduling.door.strategy import ApplyStrategy, RollingUpdate, RolloutStrategy, StrategyType
from placements.scheduling.faults import Caveat, Fault, Faults, Problem
from placements.scheduling.policy import PlacementPolicy, policy_caveats
from placements.scheduling.semantics import DEFAULT_SEMANTICS, Semantics, semantics_problem

__all__ = [
    "APPROVER_DIFFERS_ANNOTATION",
    "RESOURCES_ANNOTATION",
    "SEMANTICS_ANNOTATION",
    "SPREAD_OPTIONS_ANNOTATION",
    "STRATEGY_ANNOTATION",
    "ApplyStrategy",
    "ClusterResourcePlacement",
    "OcmPlacement",
    "PlacementSpec",
    "ResourceSelector",
    "RollingUpdate",
    "RolloutStrategy",
    "SelectionScope",
    "StatusReportingScope",
    "StrategyType",
    "parse_placement",
    "parse_placement_spec",
    "parse_resource_selectors",
    "placement_caveats",
    "selectors_of_document",
    "spec_caveats",
]

SEMANTICS_ANNOTATION = "fleetui.io/semantics"
SPREAD_OPTIONS_ANNOTATION = "fleetui.io/spread-options"
APPROVER_DIFFERS_ANNOTATION = "fleetui.io/approver-differs"
MOST_SELECTORS = 100
_STORED = "stored, not acted on yet"


class StatusReportingScope(StrEnum):
    """Who can read a placement's status on the hub."""

    CLUSTER_SCOPE_ONLY = "ClusterScopeOnly"
    NAMESPACE_ACCESSIBLE = "NamespaceAccessible"


class PlacementSpec(Parsed):
    """What to place, where, and how changes get there."""

    noun: ClassVar[str] = "placement spec"

    resource_selectors: Annotated[tuple[ResourceSelector, ...], listed(low=1, high=MOST_SELECTORS)]
    policy: PlacementPolicy = Field(default_factory=PlacementPolicy)
    strategy: RolloutStrategy = Field(default_factory=RolloutStrategy)
    revision_history_limit: Annotated[int, whole(1, 1000)] = 10
    status_reporting_scope: Annotated[StatusReportingScope, one_of(StatusReportingScope)] = (
        StatusReportingScope.CLUSTER_SCOPE_ONLY
    )

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """What resource selectors demand of each other and of the status scope (lifecycle B.1.1)."""
        selectors = items_at(raw, "resourceSelectors")[:MOST_SELECTORS]
        across = (*scope_problems(selectors), *namespaced_problems(selectors))
        yield from (problem.under("resourceSelectors") for problem in across)
        namespaces = sum(selects_namespace(mapping_at(selector)) for selector in selectors)
        if raw.get("statusReportingScope") == StatusReportingScope.NAMESPACE_ACCESSIBLE and namespaces != 1:
            message = "NamespaceAccessible needs exactly one resource selector of kind Namespace"
            yield Problem(("statusReportingScope",), "conflict", message, "ClusterScopeOnly")


class ClusterResourcePlacement(Parsed):
    """A whole document; its status is accepted and left aside."""

    noun: ClassVar[str] = PLACEMENT_KIND
    left_aside: ClassVar[frozenset[str]] = frozenset({"status"})

    api_version: Annotated[str, api_version(*PLACEMENT_VERSIONS)]
    kind: Annotated[str, word_of(PLACEMENT_KIND)]
    metadata: ObjectMeta
    spec: PlacementSpec

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """The annotations of this console must be readable (lifecycle A.16)."""
        annotations = mapping_at(raw, "metadata", "annotations")
        for key, problem_of in _OUR_ANNOTATIONS.items():
            problem = problem_of(annotations[key]) if isinstance(annotations.get(key), str) else None
            if problem:
                yield problem.under("metadata", "annotations", key)

    @property
    def semantics(self) -> Semantics:
        """Give the semantics that the annotation names, `fleet` without one."""
        return Semantics(self.metadata.annotations.get(SEMANTICS_ANNOTATION, DEFAULT_SEMANTICS))

    @property
    def spread_options(self) -> dict[str, Any]:
        """Give the options of the spread rules, as the annotation holds them."""
        text = self.metadata.annotations.get(SPREAD_OPTIONS_ANNOTATION)
        return dict(json.loads(text)) if text else {}

    @property
    def approver_differs(self) -> bool:
        """Tell whether somebody else has to approve the stages of a run than who started it."""
        return self.metadata.annotations.get(APPROVER_DIFFERS_ANNOTATION) == "true"

    @property
    def selectors_path(self) -> str:
        """Give where its resource selectors stand in the document."""
        return "spec.resourceSelectors"

    def in_document(self, caveat: Caveat) -> Caveat:
        """Give a caveat about its policy or its spec with the path that this has in the document."""
        return caveat

    def to_manifest(self) -> dict[str, Any]:
        """Give the document to export; parsing it gives an equal value."""
        return self.to_plain()


class OcmPlacementSpec(PlacementSpec):
    """What a Placement of Open Cluster Management comes to; it may select no resources at all."""

    noun: ClassVar[str] = "set of annotations"

    resource_selectors: Annotated[tuple[ResourceSelector, ...], listed(high=MOST_SELECTORS)] = ()


class OcmPlacement(ClusterResourcePlacement):
    """A Placement of Open Cluster Management: its wish under `ocm` semantics, its resources by annotation.

    `places` give the document's paths for those of the policy, longest first.
    """

    spec: OcmPlacementSpec
    namespace: str = ""
    options: dict[str, Any]
    caveats: tuple[Caveat, ...] = ()
    places: dict[str, str]

    @property
    def semantics(self) -> Semantics:
        """Give `ocm`."""
        return Semantics.OCM

    @property
    def spread_options(self) -> dict[str, Any]:
        """Give the options that its constraints, its prioritizers and its annotation come to."""
        return self.options

    @property
    def selectors_path(self) -> str:
        """Give the annotation that holds its resource selectors."""
        return annotation_path(RESOURCES_ANNOTATION)

    def in_document(self, caveat: Caveat) -> Caveat:
        """Give a caveat about its policy or its spec with the path that this has in the document."""
        path = caveat.path.removeprefix("spec.")
        for here, there in (*self.places.items(), ("policy", "spec")):
            if path.startswith(here):
                return replace(caveat, path=there + path.removeprefix(here))
        return replace(caveat, path=annotation_of(path)) if path.startswith("strategy") else caveat


def _spread_options_problem(text: str) -> Problem | None:
    allowed = 'a JSON object such as {"mode": "strict"}'
    try:
        options = json.loads(text)
    except (ValueError, RecursionError):
        return Problem((), "bad-format", "is not JSON", allowed)
    if not isinstance(options, dict) or plain_problems(options):
        return Problem((), "bad-format", "is not a plain JSON object", allowed)
    return None


def _truth_problem(text: str) -> Problem | None:
    allowed = '"true" or "false"'
    return None if text in ("true", "false") else Problem((), "bad-format", "is neither", allowed)


def _misplaced(field: str) -> Callable[[str], Problem]:
    message = f"belongs to a Placement of Open Cluster Management; here it is the field spec.{field}"
    return lambda _: Problem((), "misplaced", message, f"spec.{field}")


_OUR_ANNOTATIONS = {
    APPROVER_DIFFERS_ANNOTATION: _truth_problem,
    RESOURCES_ANNOTATION: _misplaced("resourceSelectors"),
    SEMANTICS_ANNOTATION: semantics_problem,
    SPREAD_OPTIONS_ANNOTATION: _spread_options_problem,
    STRATEGY_ANNOTATION: _misplaced("strategy"),
}


def parse_placement(document: object) -> ClusterResourcePlacement:
    """Turn a ClusterResourcePlacement, or a Placement of OCM, into a value; raise Faults with all its faults.

    A document of another kind has that one fault only.
    """
    if is_ocm_placement(document):
        return _parse_ocm(document)
    refuse_other_kinds(document, PLACEMENT_KIND)
    named = mapping_at(document, "metadata", "annotations").get(SEMANTICS_ANNOTATION)
    semantics = Semantics(named) if named in list(Semantics) else DEFAULT_SEMANTICS
    return parse_model(ClusterResourcePlacement, document, semantics=semantics, path="")


def _parse_ocm(document: Any) -> OcmPlacement:
    found = Gathering()
    found.faults += _ocm_annotation_faults(document)
    options = found.read(lambda: _given_options(document))
    wish = found.read(lambda: _ocm_wish(document, options))
    spec = found.read(lambda: _ocm_spec(document))
    if wish is None or spec is None or found.faults:
        raise Faults(found.faults)
    metadata = document["metadata"]
    known = {key: metadata[key] for key in ("name", "labels", "annotations") if metadata.get(key)}
    return OcmPlacement.model_construct(
        api_version=document["apiVersion"],
        kind=document["kind"],
        metadata=parse_model(ObjectMeta, known, semantics=Semantics.OCM, path="metadata"),
        spec=spec.model_copy(update={"policy": wish.policy}),
        namespace=metadata.get("namespace") or "",
        options=wish.options.to_plain(),
        caveats=wish.caveats,
        places=dict(wish.places),
    )


def _ocm_annotation_faults(document: Any) -> Iterator[Fault]:
    annotations = mapping_at(document, "metadata", "annotations")
    if annotations.get(SEMANTICS_ANNOTATION, Semantics.OCM) != Semantics.OCM:
        message = "a Placement of Open Cluster Management is decided by ocm semantics"
        yield Fault(annotation_path(SEMANTICS_ANNOTATION), "conflict", message, "ocm, or no such annotation")
    differs = annotations.get(APPROVER_DIFFERS_ANNOTATION)
    if isinstance(differs, str) and (problem := _truth_problem(differs)):
        yield Fault(
            annotation_path(APPROVER_DIFFERS_ANNOTATION), problem.code, problem.message, problem.allowed
        )


def _given_options(document: Any) -> dict[str, Any] | None:
    text = mapping_at(document, "metadata", "annotations").get(SPREAD_OPTIONS_ANNOTATION)
    if not isinstance(text, str):
        return None
    if problem := _spread_options_problem(text):
        path = annotation_path(SPREAD_OPTIONS_ANNOTATION)
        raise Faults([Fault(path, problem.code, problem.message, problem.allowed)])
    return dict(json.loads(text))


def _ocm_wish(document: Any, options: Mapping[str, Any] | None) -> OcmWish:
    return parse_ocm_placement(
        document, options=options, options_path=annotation_path(SPREAD_OPTIONS_ANNOTATION)
    )


def _ocm_spec(document: Any) -> OcmPlacementSpec:
    found = Gathering()
    selectors = found.read(lambda: annotated(document, RESOURCES_ANNOTATION))
    strategy = found.read(lambda: annotated(document, STRATEGY_ANNOTATION))
    raw = {"resourceSelectors": selectors, "strategy": strategy}
    spec = found.read(lambda: parse_model(OcmPlacementSpec, raw, semantics=Semantics.OCM, path=""))
    if spec is None or found.faults:
        raise Faults(map(in_annotations, found.faults))
    return spec


def selectors_of_document(document: Mapping[str, Any]) -> tuple[ResourceSelector, ...]:
    """Give the resource selectors of a document that was parsed before, without parsing the rest of it."""
    if is_ocm_placement(document):
        return parse_resource_selectors(annotated(document, RESOURCES_ANNOTATION) or ())
    return parse_resource_selectors(document["spec"]["resourceSelectors"])


def parse_placement_spec(
    raw: object, *, semantics: Semantics = DEFAULT_SEMANTICS, path: str = "spec"
) -> PlacementSpec:
    """Turn the `spec` of a placement into a value; raise Faults with all that is wrong."""
    return parse_model(PlacementSpec, raw, semantics=semantics, path=path)


def parse_resource_selectors(
    raw: Iterable[object], *, path: str = "spec.resourceSelectors"
) -> tuple[ResourceSelector, ...]:
    """Turn resource selectors into values, each by itself. Raises Faults."""
    return tuple(
        parse_model(ResourceSelector, one, semantics=DEFAULT_SEMANTICS, path=f"{path}[{index}]")
        for index, one in enumerate(raw)
    )


def placement_caveats(placement: ClusterResourcePlacement) -> tuple[Caveat, ...]:
    """List what was accepted of a document and may surprise, each with its place in it."""
    found = (*map(placement.in_document, spec_caveats(placement.spec)), *_unused_weights(placement))
    return (*placement.caveats, *found) if isinstance(placement, OcmPlacement) else found


def _unused_weights(placement: ClusterResourcePlacement) -> Iterator[Caveat]:
    spread_over = {one.topology_key for one in placement.spec.policy.topology_spread_constraints}
    for key in mapping_at(placement.spread_options, "domainWeights"):
        if key not in spread_over:
            message = f"no constraint spreads over {shown(key)}, so its weights do nothing"
            path = f"{annotation_path(SPREAD_OPTIONS_ANNOTATION)}.domainWeights"
            yield Caveat("not-acted-on", path, message)


def spec_caveats(spec: PlacementSpec, *, path: str = "spec") -> tuple[Caveat, ...]:
    """List what was accepted and may surprise (lifecycle A.2, A.17); no fleet is needed to see it."""
    caveats = [*policy_caveats(spec.policy, path=f"{path}.policy"), *_strategy_caveats(spec.strategy, path)]
    if spec.status_reporting_scope is StatusReportingScope.NAMESPACE_ACCESSIBLE:
        caveats.append(
            Caveat("not-acted-on-yet", f"{path}.statusReportingScope", f"NamespaceAccessible: {_STORED}")
        )
    return tuple(caveats)


def _strategy_caveats(strategy: RolloutStrategy, path: str) -> Iterator[Caveat]:
    budgets = strategy.rolling_update
    if budgets and budgets.max_unavailable.number == 0:
        message = "0 means that in-place updates will not start"
        yield Caveat("zero-max-unavailable", f"{path}.strategy.rollingUpdate.maxUnavailable", message)
    if budgets and budgets.max_surge.number == 0:
        message = "0 means that a replacement starts only after a removal"
        yield Caveat("zero-max-surge", f"{path}.strategy.rollingUpdate.maxSurge", message)
    if strategy.apply_strategy != ApplyStrategy():
        message = f"anything but the defaults: {_STORED}"
        yield Caveat("not-acted-on-yet", f"{path}.strategy.applyStrategy", message)
