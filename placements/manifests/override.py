"""Overrides: differences of placed resources on some clusters (`rules/lifecycle.md#overrides`)."""

import re
from collections.abc import (
    Callable,
    Iterator,
    Mapping,
)
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, ClassVar

from fleetui.apimachinery import fields
from fleetui.apimachinery.errors import ErrorDetail, FieldError
from fleetui.apimachinery.fields import (
    FleetDocument,
    Name,
    NamespacedMeta,
    WithAlpha,
    immutable_errors,
    list_of,
    literal,
    one_of,
    parse_document,
    pattern,
)
from fleetui.apimachinery.kinds import (
    CLUSTER_OVERRIDE_KIND,
    OVERRIDE_KIND,
)
from fleetui.apimachinery.model import (
    ManifestModel,
    Raw,
    UnsupportedField,
    conflict,
    items_at,
    mapping_at,
    quote_value,
    required,
)
from fleetui.apimachinery.words import full_name
from placements.manifests.affinity import LabelSelector
from placements.manifests.placement import namespaced_kind_problems

MOST = 20
_PATH = "a path such as /spec/replicas or /metadata/labels/tier"
_ESCAPE = re.compile(r"~(?![01])")


class OverrideType(StrEnum):
    JSON_PATCH = "JSONPatch"
    DELETE = "Delete"


class PatchOperator(StrEnum):
    ADD = "add"
    REMOVE = "remove"
    REPLACE = "replace"


class PlacementScope(StrEnum):
    """Where the placement lives that an override refers to."""

    CLUSTER = "Cluster"
    NAMESPACED = "Namespaced"


def _path_problem(path: str) -> fields.NameProblem | None:
    """Return why a path may not be patched: identity and status of an object are not open to overrides."""
    if not path.startswith("/") or _ESCAPE.search(path):
        return fields.NameProblem(
            "bad-format", 'must be a JSON pointer: "/", then parts separated by "/"'
        )
    first, *rest = path[1:].split("/")
    if not all((first, *rest)):
        return fields.NameProblem("bad-format", "must not have an empty part")
    if first in ("kind", "apiVersion", "status"):
        return fields.NameProblem("not-supported", f"must not change {first}")
    if first == "metadata" and (not rest or rest[0] not in ("annotations", "labels")):
        return fields.NameProblem(
            "not-supported",
            "must not change metadata other than labels and annotations",
        )
    return None


class JsonPatch(ManifestModel):
    """One change to a resource; texts in its value may hold variables."""

    op: Annotated[PatchOperator, one_of(PatchOperator)]
    path: Annotated[str, pattern(_path_problem, _PATH)]
    value: Any = None

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """Adding and replacing need a value, removing takes none."""
        if raw.get("op") == PatchOperator.REMOVE and "value" in raw:
            yield conflict("value", "not allowed for op remove", "no value")
        if (
            raw.get("op") in (PatchOperator.ADD, PatchOperator.REPLACE)
            and "value" not in raw
        ):
            yield required(
                "value",
                f"op {raw['op']} needs a value; use remove to delete",
                "anything but null",
            )

    def to_plain(self) -> dict[str, Any]:
        """Return the JSON form; unlike elsewhere, an empty value is a value."""
        plain: dict[str, Any] = {"op": self.op.value, "path": self.path}
        return (
            plain if self.op is PatchOperator.REMOVE else {**plain, "value": self.value}
        )


class OverrideSelectorTerm(ManifestModel):
    """Labels that a cluster has to have."""

    refused: ClassVar[dict[str, UnsupportedField]] = {
        key: UnsupportedField(
            "not-supported", "Forbidden: overrides select clusters by label only"
        )
        for key in ("propertySelector", "propertySorter")
    }

    label_selector: LabelSelector


class OverrideClusterSelector(ManifestModel):
    """Terms of which a cluster has to match one; without any, all clusters match."""

    cluster_selector_terms: Annotated[tuple[OverrideSelectorTerm, ...], list_of()] = ()


class OverrideRule(ManifestModel):
    """What to do on the clusters that match; without a cluster selector there are none."""

    cluster_selector: OverrideClusterSelector | None = None
    override_type: Annotated[OverrideType, one_of(OverrideType)] = (
        OverrideType.JSON_PATCH
    )
    json_patch_overrides: Annotated[tuple[JsonPatch, ...], list_of(high=MOST)] = ()

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """A rule that deletes has no patches, any other has one at least."""
        is_delete = raw.get("overrideType") == OverrideType.DELETE
        patches = raw.get("jsonPatchOverrides", [])
        if is_delete and patches:
            yield conflict(
                "jsonPatchOverrides",
                "not allowed for overrideType Delete",
                "no patches",
            )
        if not is_delete and patches in ([], ()):
            message, allowed = (
                "Too few: 0: must have at least 1 item",
                "1 to 20 items, or type Delete",
            )
            yield ErrorDetail(("jsonPatchOverrides",), "too-few", message, allowed)


class OverridePolicy(ManifestModel):
    """The rules, in the order in which they are followed."""

    override_rules: Annotated[tuple[OverrideRule, ...], list_of(low=1, high=MOST)]


class OverriddenResource(ManifestModel):
    refused: ClassVar[dict[str, UnsupportedField]] = {
        "labelSelector": UnsupportedField(
            "not-supported", "Forbidden: overrides select resources by name only"
        )
    }

    group: Annotated[
        str,
        pattern(fields.group_problem, 'an API group, "" for the core', filled_in=False),
    ]
    version: Annotated[
        str, pattern(fields.version_problem, "an API version such as v1")
    ]
    kind: Annotated[str, pattern(fields.kind_problem, "a kind such as Namespace")]
    name: Annotated[str, pattern(fields.object_name_problem, fields.OBJECT_NAME)]
    # The API server of a hub fills it in.
    selection_scope: Annotated[str, literal("NamespaceWithResources")] = (
        "NamespaceWithResources"
    )


class ClusterPlacementRef(ManifestModel):
    """The placement that an override is for; one for the whole cluster."""

    name: Name
    scope: Annotated[str, literal(PlacementScope.CLUSTER)] = PlacementScope.CLUSTER


class PlacementRef(ManifestModel):
    """The placement that an override is for."""

    name: Name
    scope: Annotated[PlacementScope, one_of(PlacementScope)] = PlacementScope.CLUSTER


class ClusterOverrideSpec(ManifestModel):
    """Changes to resources outside namespaces; one that names a Namespace changes all that is inside it."""

    SELECTORS: ClassVar[str] = "clusterResourceSelectors"

    placement: ClusterPlacementRef | None = None
    cluster_resource_selectors: Annotated[
        tuple[OverriddenResource, ...], list_of(low=1, high=MOST)
    ]
    policy: OverridePolicy

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        selectors = items_at(raw, cls.SELECTORS)[:MOST]
        yield from (
            problem.under(cls.SELECTORS)
            for problem in (*_repeated(selectors), *namespaced_kind_problems(selectors))
        )

    @property
    def selected(self) -> tuple[OverriddenResource, ...]:
        return self.cluster_resource_selectors


class OverrideSpec(ManifestModel):
    """Changes to resources of one namespace."""

    SELECTORS: ClassVar[str] = "resourceSelectors"

    placement: PlacementRef | None = None
    resource_selectors: Annotated[
        tuple[OverriddenResource, ...], list_of(low=1, high=MOST)
    ]
    policy: OverridePolicy

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        selectors = items_at(raw, cls.SELECTORS)[:MOST]
        yield from (problem.under(cls.SELECTORS) for problem in _repeated(selectors))

    @property
    def selected(self) -> tuple[OverriddenResource, ...]:
        return self.resource_selectors


def _repeated(selectors: list[Any]) -> Iterator[ErrorDetail]:
    identities: set[tuple[str, ...]] = set()
    for index, raw in enumerate(selectors):
        identity = tuple(
            str(mapping_at(raw).get(key))
            for key in ("group", "version", "kind", "name")
        )
        if identity in identities:
            yield ErrorDetail(
                (index,),
                "duplicate",
                f"Duplicate value: {quote_value(identity[-1])}",
                "unique resources",
            )
        identities.add(identity)


class ClusterResourceOverride(FleetDocument):
    api_version: WithAlpha
    spec: ClusterOverrideSpec

    @property
    def placement(self) -> str:
        """Return the full name of the placement that it is for; empty for every placement."""
        return self.spec.placement.name if self.spec.placement else ""


class ResourceOverride(FleetDocument):
    api_version: WithAlpha
    metadata: NamespacedMeta
    spec: OverrideSpec

    @property
    def placement(self) -> str:
        """Return the full name of the placement that it is for; empty for every placement."""
        reference = self.spec.placement
        if reference is None:
            return ""
        is_namespaced = reference.scope is PlacementScope.NAMESPACED
        return full_name(self.namespace if is_namespaced else "", reference.name)


parse_cluster_override = partial(parse_document, ClusterResourceOverride)
parse_override = partial(parse_document, ResourceOverride)
OVERRIDE_PARSERS: Mapping[
    str, Callable[[object], ClusterResourceOverride | ResourceOverride]
] = {
    CLUSTER_OVERRIDE_KIND: parse_cluster_override,
    OVERRIDE_KIND: parse_override,
}


def override_change_errors(
    before: FleetDocument, after: FleetDocument
) -> list[FieldError]:
    """Return an error for every forbidden change of an override: its placement is immutable."""
    return list(immutable_errors(before, after, ("spec", "placement")))
