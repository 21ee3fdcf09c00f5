"""The object that an address names, or the error of the operation that would miss it."""

from clusters.models import MemberCluster
from clusters.operations.editing import UnknownClusterError
from placements.models import Placement, Resource
from placements.operations.placements import UnknownPlacementError
from placements.operations.resources import UnknownResourceError
from placements.scheduling.hub.objects import ObjectKey


def cluster_named(name: str) -> MemberCluster:
    """Give a cluster of the fleet. Raises UnknownClusterError."""
    found = MemberCluster.objects.filter(name=name).first()
    if found is None:
        raise UnknownClusterError(name)
    return found


def placement_named(name: str) -> Placement:
    """Give a placement. Raises UnknownPlacementError."""
    found = Placement.objects.filter(name=name).first()
    if found is None:
        raise UnknownPlacementError(name)
    return found


def resource_of(key: ObjectKey) -> Resource:
    """Give an object on the hub. Raises UnknownResourceError."""
    group, kind, namespace, name = key
    found = Resource.objects.filter(group=group, kind=kind, namespace=namespace, name=name).first()
    if found is None:
        raise UnknownResourceError(key)
    return found
