"""What drivers and overrides say of a failure, as facts for the binding's columns."""

from collections.abc import Iterable, Mapping

from clusters.drivers.base import DriverRejected, ObjectRef, ObjectSeen
from clusters.drivers.readiness import Readiness
from placements.models import Binding
from placements.rollout.failures import Failure, FailureKind, ObjectFault, OverrideFault
from placements.rollout.overrides import OverrideFailed

MOST_OBJECTS = 100
"""As many a hub lists for one cluster (lifecycle B.7.2)."""
NOT_READY = "ManifestNotAvailableYet"


def override_failure(failed: OverrideFailed) -> Failure:
    """Tell of an override that does not apply."""
    said = OverrideFault(failed.snapshot, failed.path, failed.resource, failed.message)
    return Failure(FailureKind.OVERRIDE, override=said)


def refusal_failure(binding: Binding, error: DriverRejected) -> Failure:
    """Tell of what a cluster refused, object by object where it says so."""
    versions = _versions(binding)
    found = (_object(one.object, one.code, one.message, versions) for one in error.refusals)
    return Failure(FailureKind.REFUSED, _listed(found))


def unready_failure(binding: Binding, unready: Iterable[ObjectSeen]) -> Failure:
    """Tell of objects that are not available yet; those that cannot be observed are not among them."""
    waiting = [one for one in unready if one.readiness is not Readiness.NOT_TRACKABLE]
    versions = _versions(binding) if waiting else {}
    return Failure(objects=_listed(_object(one.object, NOT_READY, one.reason, versions) for one in waiting))


def _listed(found: Iterable[ObjectFault]) -> tuple[ObjectFault, ...]:
    in_order = sorted(found, key=lambda one: (one.group, one.version, one.kind, one.namespace, one.name))
    return tuple(in_order[:MOST_OBJECTS])


def _object(ref: ObjectRef, code: str, message: str, versions: Mapping[ObjectRef, str]) -> ObjectFault:
    version = versions.get(ref, "")
    return ObjectFault(ref.group, version, ref.kind, ref.namespace, ref.name, code, message)


def _versions(binding: Binding) -> dict[ObjectRef, str]:
    """Give the API version in which each object was handed to the cluster."""
    snapshot = binding.resource_snapshot
    found = {}
    for api_version, kind, namespace, name in snapshot.identities if snapshot else ():
        group, _, version = api_version.rpartition("/")
        found[ObjectRef(group, kind, namespace, name)] = version
    return found
