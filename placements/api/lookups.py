"""The object that an address names, or the error of the operation that would miss it."""

from clusters.models import MemberCluster
from clusters.operations.editing import UnknownClusterError
from placements.models import Override, Placement, Resource, StagedRun, StagedStrategy
from placements.operations.overrides import UnknownOverrideError
from placements.operations.placements import UnknownPlacementError
from placements.operations.resources import UnknownResourceError
from placements.operations.staged.hands import UnknownRunError
from placements.operations.staged.strategies import UnknownStrategyError
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


def override_of(*, kind: str, namespace: str, name: str) -> Override:
    """Give an override. Raises UnknownOverrideError."""
    found = Override.objects.filter(kind=kind, namespace=namespace, name=name).first()
    if found is None:
        raise UnknownOverrideError(kind, namespace, name)
    return found


def strategy_named(name: str) -> StagedStrategy:
    """Give a strategy of staged updates. Raises UnknownStrategyError."""
    found = StagedStrategy.objects.filter(name=name).first()
    if found is None:
        raise UnknownStrategyError(name)
    return found


def run_named(name: str) -> StagedRun:
    """Give a staged run. Raises UnknownRunError."""
    found = StagedRun.objects.filter(name=name).first()
    if found is None:
        raise UnknownRunError(name)
    return found
