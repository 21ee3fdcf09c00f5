"""The resources on the hub, and their selection by placements."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from django.db.models import Exists, OuterRef, Q

from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.errors import ManifestWarning
from fleetui.apimachinery.secrets import HubObject, sanitised
from fleetui.bulk import batched
from placements.engine.selection import (
    Selection,
    concerns,
    is_ever_placed,
    is_namespace_selector,
    select,
)
from placements.manifests.placement import (
    ClusterResourcePlacement,
    OcmPlacement,
    is_reserved_namespace,
    parse_placement,
    selectors_of_document,
)
from placements.manifests.strategy import StrategyType
from placements.models import Placement, Resource, ResourceSnapshot

_MOST_NAMES = 50


def hub_objects() -> Iterator[HubObject]:
    """Yield the objects on the hub without values of Secrets, which no selection needs."""
    yield from (
        HubObject.of(content)
        for content in Resource.objects.values_list("content", flat=True).iterator()
    )


def selection_of(
    draft: ClusterResourcePlacement, objects: Iterable[HubObject] | None = None
) -> Selection:
    """Return the selection of a placement among these objects or all of the hub. Raise InvalidManifest."""
    path, selectors = draft.selectors_path, draft.spec.resource_selectors
    hub = _objects_in_reach(draft) if objects is None and selectors else objects or ()
    selection = select(selectors, hub, namespace=draft.resource_namespace, path=path)
    if selectors or not isinstance(draft, OcmPlacement):
        return selection
    return Selection(
        (),
        (
            ManifestWarning(
                "no-resources",
                path,
                (
                    "the annotation is missing, so clusters are selected but no resources are placed: "
                    'set for example [{"group": "", "version": "v1", "kind": "Namespace", "name": "my-namespace"}]'
                ),
            ),
            *selection.warnings,
        ),
    )


def _objects_in_reach(draft: ClusterResourcePlacement) -> Iterator[HubObject]:
    """Yield the objects on the hub that can matter to the selectors of a placement, and few others."""
    reach = Q(pk__in=())
    for selector in draft.spec.resource_selectors:
        of_kind = Q(group=selector.group, kind=selector.kind)
        if not is_namespace_selector(selector):
            reach |= of_kind
        elif selector.name:
            reach |= Q(namespace=selector.name) | (of_kind & Q(name=selector.name))
        else:
            reach |= of_kind | ~Q(namespace="")
        if selector.kind == "Endpoints":  # those of a Service are not placed
            reach |= Q(group="", kind="Service")
    yield from (
        HubObject.of(content)
        for content in Resource.objects.filter(reach)
        .values_list("content", flat=True)
        .iterator()
    )


def plain_objects(objects: Iterable[HubObject]) -> tuple[HubObject, ...]:
    """Return objects of the hub as a snapshot stores them, with values of Secrets."""
    return tuple(
        sanitised(replace(hub_object, content=plain_manifest(hub_object.content)))
        for hub_object in objects
    )


def selection_for(placement: Placement) -> Selection:
    """Return the selection of a saved placement. Raise InvalidManifest."""
    return selection_of(parse_placement(placement.document))


def may_select(placement: Placement, changed: Iterable[HubObject]) -> bool:
    """Return whether a change of these objects may change what a placement selects."""
    return concerns(
        selectors_of_document(placement.document),
        changed,
        namespace=placement.resource_namespace,
    )


def placements_with(
    resources: Collection[Resource],
) -> dict[int, list[tuple[str, bool]]]:
    """Return the placements whose latest snapshot has each of these resources; two queries.

    Then those that may select it and wait for their first staged update run, which takes the snapshot: true.
    """
    keys = {
        (resource.group, resource.kind, resource.namespace, resource.name): resource.pk
        for resource in resources
    }
    by_resource: dict[int, list[tuple[str, bool]]] = {
        resource.pk: [] for resource in resources
    }
    rows = (
        ResourceSnapshot.objects.filter(is_latest=True, placement__deleting_since=None)
        .order_by("placement__full_name")
        .values_list("placement__full_name", "identities")
    )
    for placement, identities in rows:
        for api_version, kind, namespace, name in identities:
            pk = keys.get((api_version.rpartition("/")[0], kind, namespace, name))
            if pk is not None:
                by_resource[pk].append((placement, False))
    has_snapshot = Exists(ResourceSnapshot.objects.filter(placement=OuterRef("pk")))
    waiting = Placement.objects.filter(
        ~has_snapshot, strategy_type=StrategyType.EXTERNAL, deleting_since=None
    ).only("namespace", "full_name", "document")
    for row in waiting.order_by("full_name"):
        for resource in resources:
            key = (
                resource.group,
                resource.version,
                resource.kind,
                resource.namespace,
                resource.name,
            )
            if may_select(row, [HubObject(*key, resource.labels, {})]):
                by_resource[resource.pk].append((row.full_name, True))
    return by_resource


def names_among(
    objects: Iterable[HubObject],
    group: str,
    kind: str,
    typed: str,
    *,
    namespace: str = "",
) -> tuple[str, ...]:
    """Return up to 50 names of a kind in a namespace or outside, first those that contain the typed text."""
    is_hubs_own = (
        is_reserved_namespace if (group, kind) == ("", "Namespace") else lambda _: False
    )
    place = (group, kind, namespace)
    names = (
        hub_object.name
        for hub_object in objects
        if (hub_object.group, hub_object.kind, hub_object.namespace) == place
    )
    names = (name for name in names if not is_hubs_own(name))
    return tuple(
        sorted(names, key=lambda name: (typed not in name, name))[:_MOST_NAMES]
    )


def selectable_among(objects: Iterable[HubObject], namespace: str) -> list[HubObject]:
    """Return what a selector may name in a namespace, or outside where it is empty, Namespaces first."""
    selectable = (
        hub_object
        for hub_object in objects
        if hub_object.namespace == namespace
        and (not namespace or is_ever_placed(hub_object.group, hub_object.kind))
        and (
            hub_object.kind != "Namespace" or not is_reserved_namespace(hub_object.name)
        )
    )
    return sorted(
        selectable, key=lambda one: (one.kind != "Namespace", one.kind, one.name)
    )


def existing_namespaces(names: Iterable[str]) -> set[str]:
    namespaces = Resource.objects.filter(group="", kind="Namespace")
    found: set[str] = set()
    for part in batched(sorted(set(names))):
        found.update(namespaces.filter(name__in=part).values_list("name", flat=True))
    return found
