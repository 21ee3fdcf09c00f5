"""Overrides: what of the placed resources differs on which clusters (`spec/lifecycle.md` B.1.8)."""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from placements.scheduling.door import names
from placements.scheduling.door.builtin_kinds import KindScope, scope_of
from placements.scheduling.door.fields import listed, one_of, spelled, word_of
from placements.scheduling.door.fleet_documents import (
    FleetDocument,
    Name,
    Namespace,
    WithAlpha,
    immutable_faults,
    parse_document,
)
from placements.scheduling.door.kinds import CLUSTER_OVERRIDE_KIND, OVERRIDE_KIND
from placements.scheduling.door.metadata import ObjectMeta
from placements.scheduling.door.parsing import Parsed, Raw, Refusal, items_at, mapping_at, shown
from placements.scheduling.door.resource_selectors import namespaced_kind_problem
from placements.scheduling.door.terms import LabelSelector
from placements.scheduling.faults import Fault, Problem

MOST = 20
_PATH = "a path such as /spec/replicas or /metadata/labels/tier"
_ESCAPE = re.compile(r"~(?![01])")
_UNTOUCHABLE = ("kind", "apiVersion", "status")
_OPEN_METADATA = ("annotations", "labels")


class OverrideType(StrEnum):
    """What a rule does with the resources: change them, or leave them out."""

    JSON_PATCH = "JSONPatch"
    DELETE = "Delete"


class PatchOperator(StrEnum):
    """What one patch does."""

    ADD = "add"
    REMOVE = "remove"
    REPLACE = "replace"


class PlacementScope(StrEnum):
    """Where the placement lives that an override refers to."""

    CLUSTER = "Cluster"
    NAMESPACED = "Namespaced"


def _path_problem(path: str) -> names.NameProblem | None:
    """Say why a path may not be patched: what an object is, and its status, are not open to overrides."""
    if not path.startswith("/") or _ESCAPE.search(path):
        return names.NameProblem("bad-format", 'is no JSON pointer: "/", then parts divided by "/"')
    first, *rest = path[1:].split("/")
    if not all((first, *rest)):
        return names.NameProblem("bad-format", "has an empty part")
    if first in _UNTOUCHABLE:
        return names.NameProblem("not-supported", f"touches {first}, which overrides may not change")
    if first == "metadata" and (not rest or rest[0] not in _OPEN_METADATA):
        return names.NameProblem("not-supported", "touches metadata other than labels and annotations")
    return None


class JsonPatch(Parsed):
    """One change to a resource; texts in its value may hold variables."""

    noun: ClassVar[str] = "JSON patch"

    op: Annotated[PatchOperator, one_of(PatchOperator)]
    path: Annotated[str, spelled(_path_problem, _PATH)]
    value: Any = None

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """Adding and replacing need a value, removing takes none."""
        if raw.get("op") == PatchOperator.REMOVE and "value" in raw:
            yield Problem(("value",), "conflict", "remove takes no value", "nothing")
        if raw.get("op") in (PatchOperator.ADD, PatchOperator.REPLACE) and "value" not in raw:
            message = f"{raw['op']} needs a value; to take something away: remove"
            yield Problem(("value",), "required", message, "anything but null")

    def to_plain(self) -> dict[str, Any]:
        """Give the JSON form; an empty value is a value."""
        plain: dict[str, Any] = {"op": self.op.value, "path": self.path}
        return plain if self.op is PatchOperator.REMOVE else {**plain, "value": self.value}


class OverrideSelectorTerm(Parsed):
    """Labels that a cluster has to have."""

    noun: ClassVar[str] = "cluster selector term"
    refused: ClassVar[dict[str, Refusal]] = {
        key: Refusal("not-supported", "overrides choose clusters by label only")
        for key in ("propertySelector", "propertySorter")
    }

    label_selector: LabelSelector


class OverrideClusterSelector(Parsed):
    """Terms of which a cluster has to match one; without any, every cluster is meant."""

    noun: ClassVar[str] = "cluster selector"

    cluster_selector_terms: Annotated[tuple[OverrideSelectorTerm, ...], listed()] = ()


class OverrideRule(Parsed):
    """What to do on the clusters that match; without a cluster selector there are none."""

    noun: ClassVar[str] = "override rule"

    cluster_selector: OverrideClusterSelector | None = None
    override_type: Annotated[OverrideType, one_of(OverrideType)] = OverrideType.JSON_PATCH
    json_patch_overrides: Annotated[tuple[JsonPatch, ...], listed(high=MOST)] = ()

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """A rule that deletes has no patches, any other has one at least."""
        is_delete = raw.get("overrideType") == OverrideType.DELETE
        patches = raw.get("jsonPatchOverrides", [])
        if is_delete and patches:
            yield Problem(("jsonPatchOverrides",), "conflict", "a rule of type Delete has no patches", "none")
        if not is_delete and patches in ([], ()):
            yield Problem(
                ("jsonPatchOverrides",), "too-few", "has no patches", "1 to 20 items, or type Delete"
            )


class OverridePolicy(Parsed):
    """The rules, in the order in which they are followed."""

    noun: ClassVar[str] = "override policy"

    override_rules: Annotated[tuple[OverrideRule, ...], listed(low=1, high=MOST)]


class OverriddenResource(Parsed):
    """One resource by its name."""

    noun: ClassVar[str] = "resource selector of an override"
    refused: ClassVar[dict[str, Refusal]] = {
        key: Refusal("not-supported", "an override names its resources one by one")
        for key in ("labelSelector", "selectionScope")
    }

    group: Annotated[str, spelled(names.group_problem, 'an API group, "" for the core', filled_in=False)]
    version: Annotated[str, spelled(names.version_problem, "an API version such as v1")]
    kind: Annotated[str, spelled(names.kind_problem, "a kind such as Namespace")]
    name: Annotated[str, spelled(names.object_name_problem, names.OBJECT_NAME)]


class ClusterPlacementRef(Parsed):
    """The placement that an override is for; one for the whole cluster."""

    noun: ClassVar[str] = "placement reference"

    name: Name
    scope: Annotated[str, word_of(PlacementScope.CLUSTER)] = PlacementScope.CLUSTER


class PlacementRef(Parsed):
    """The placement that an override is for."""

    noun: ClassVar[str] = "placement reference"

    name: Name
    scope: Annotated[PlacementScope, one_of(PlacementScope)] = PlacementScope.CLUSTER


class ClusterOverrideSpec(Parsed):
    """Changes to resources outside namespaces; one that names a Namespace changes all that is inside it."""

    noun: ClassVar[str] = "cluster resource override"

    placement: ClusterPlacementRef | None = None
    cluster_resource_selectors: Annotated[tuple[OverriddenResource, ...], listed(low=1, high=MOST)]
    policy: OverridePolicy

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """Each resource once, and none that lives inside a namespace."""
        selectors = items_at(raw, "clusterResourceSelectors")[:MOST]
        for problem in (*_repeated(selectors), *_namespaced(selectors)):
            yield problem.under("clusterResourceSelectors")


class OverrideSpec(Parsed):
    """Changes to resources of one namespace."""

    noun: ClassVar[str] = "resource override"

    placement: PlacementRef | None = None
    resource_selectors: Annotated[tuple[OverriddenResource, ...], listed(low=1, high=MOST)]
    policy: OverridePolicy

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """Each resource once."""
        selectors = items_at(raw, "resourceSelectors")[:MOST]
        yield from (problem.under("resourceSelectors") for problem in _repeated(selectors))


def _repeated(selectors: list[Any]) -> Iterator[Problem]:
    seen: set[tuple[str, ...]] = set()
    for index, raw in enumerate(selectors):
        found = tuple(str(mapping_at(raw).get(key)) for key in ("group", "version", "kind", "name"))
        if found in seen:
            message = f"{shown(found[-1])} is selected above"
            yield Problem((index,), "duplicate", message, "each resource once")
        seen.add(found)


def _namespaced(selectors: list[Any]) -> Iterator[Problem]:
    for index, raw in enumerate(map(mapping_at, selectors)):
        group, kind = raw.get("group"), raw.get("kind")
        if isinstance(group, str) and isinstance(kind, str) and scope_of(group, kind) is KindScope.NAMESPACED:
            yield namespaced_kind_problem(kind).under(index)


class ClusterResourceOverride(FleetDocument):
    """A whole document."""

    noun: ClassVar[str] = CLUSTER_OVERRIDE_KIND

    api_version: WithAlpha
    kind: Annotated[str, word_of(CLUSTER_OVERRIDE_KIND)]
    spec: ClusterOverrideSpec


class NamespacedMeta(ObjectMeta):
    """Metadata of a document inside a namespace."""

    refused: ClassVar[dict[str, Refusal]] = {}

    namespace: Namespace


class ResourceOverride(FleetDocument):
    """A whole document."""

    noun: ClassVar[str] = OVERRIDE_KIND

    api_version: WithAlpha
    kind: Annotated[str, word_of(OVERRIDE_KIND)]
    metadata: NamespacedMeta
    spec: OverrideSpec


def parse_cluster_override(document: object) -> ClusterResourceOverride:
    """Turn a document of this kind into a value. Raises Faults."""
    return parse_document(ClusterResourceOverride, document)


def parse_override(document: object) -> ResourceOverride:
    """Turn a document of this kind into a value. Raises Faults."""
    return parse_document(ResourceOverride, document)


def override_change_faults(before: FleetDocument, after: FleetDocument) -> list[Fault]:
    """List every forbidden change of an override: it stays with its placement, or with none."""
    return list(immutable_faults(before, after, ("spec", "placement")))
