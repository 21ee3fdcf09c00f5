"""The resources on the hub, and what selectors select of them."""

from collections.abc import Iterable, Iterator

from placements.models import Placement, Resource
from placements.scheduling.door.resource_selectors import is_reserved_namespace
from placements.scheduling.faults import Caveat
from placements.scheduling.hub.objects import HubObject
from placements.scheduling.hub.selection import Selection, select
from placements.scheduling.spec import (
    ClusterResourcePlacement,
    OcmPlacement,
    ResourceSelector,
    parse_placement,
    selectors_of_document,
)

_MOST_NAMES = 50


def hub_objects() -> Iterator[HubObject]:
    """Give every object on the hub."""
    for content in Resource.objects.values_list("content", flat=True).iterator():
        yield HubObject.of(content)


def selection_of(draft: ClusterResourcePlacement, objects: Iterable[HubObject] | None = None) -> Selection:
    """Select what a placement takes along from what is on the hub now, or from these. Raises Faults."""
    path, selectors = draft.selectors_path, draft.spec.resource_selectors
    hub = hub_objects() if objects is None and selectors else objects or ()
    found = select(selectors, hub, path=path)
    if selectors or not isinstance(draft, OcmPlacement):
        return found
    return Selection((), (Caveat("no-resources", path, _NO_RESOURCES), *found.caveats))


_NO_RESOURCES = (
    "there is no such annotation, so clusters are picked and nothing is placed on them: "
    'write for example [{"group": "", "version": "v1", "kind": "Namespace", "name": "my-namespace"}]'
)


def selection_for(placement: Placement) -> Selection:
    """Select what a saved placement takes along. Raises Faults."""
    return selection_of(parse_placement(placement.document))


def selectors_of(placement: Placement) -> tuple[ResourceSelector, ...]:
    """Give the resource selectors of a saved placement."""
    return selectors_of_document(placement.document)


def names_among(objects: Iterable[HubObject], group: str, kind: str, typed: str) -> tuple[str, ...]:
    """Give up to 50 names of a kind that lives in no namespace, first those that hold what was typed."""
    is_hubs_own = is_reserved_namespace if (group, kind) == ("", "Namespace") else lambda _: False
    found = (one.name for one in objects if (one.group, one.kind, one.namespace) == (group, kind, ""))
    names = (name for name in found if not is_hubs_own(name))
    return tuple(sorted(names, key=lambda name: (typed not in name, name))[:_MOST_NAMES])


def existing_namespaces(names: Iterable[str]) -> set[str]:
    """Give those of these namespaces that are on the hub."""
    found = Resource.objects.filter(group="", kind="Namespace", name__in=set(names))
    return set(found.values_list("name", flat=True))
