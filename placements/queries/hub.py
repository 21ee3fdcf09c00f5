"""The resources on the hub, and what selectors select of them."""

from collections.abc import Iterable, Iterator

from placements.models import Placement, Resource
from placements.scheduling.hub.objects import HubObject
from placements.scheduling.hub.selection import Selection, select
from placements.scheduling.spec import ResourceSelector, parse_resource_selectors


def hub_objects() -> Iterator[HubObject]:
    """Give every object on the hub."""
    for content in Resource.objects.values_list("content", flat=True).iterator():
        yield HubObject.of(content)


def selection_of(selectors: tuple[ResourceSelector, ...]) -> Selection:
    """Select from what is on the hub now. Raises Faults."""
    return select(selectors, hub_objects())


def selectors_of(placement: Placement) -> tuple[ResourceSelector, ...]:
    """Give the resource selectors of a saved placement."""
    return parse_resource_selectors(placement.document["spec"]["resourceSelectors"])


def existing_namespaces(names: Iterable[str]) -> set[str]:
    """Give those of these namespaces that are on the hub."""
    found = Resource.objects.filter(group="", kind="Namespace", name__in=set(names))
    return set(found.values_list("name", flat=True))
