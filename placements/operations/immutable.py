"""What may not be changed on a saved placement, why, and what to do instead (`spec/lifecycle.md` A.10).

A Placement of Open Cluster Management is decided from scratch each time: its number may come and go, and
so may its tolerations (`docs/adr/0009`).
"""

from collections.abc import Iterator

from placements.scheduling.door.ocm_annotations import STRATEGY_ANNOTATION, annotation_path
from placements.scheduling.faults import Fault
from placements.scheduling.spec import ClusterResourcePlacement, OcmPlacement, StrategyType

_ANEW = "make a placement with another name, and delete this one when the new one is in place"


def immutability_faults(
    before: ClusterResourcePlacement, after: ClusterResourcePlacement, *, had_policy: bool, has_policy: bool
) -> list[Fault]:
    """List every forbidden change from one manifest to the next."""
    if before.kind != after.kind:
        return [_other_kind(before, after)]
    if isinstance(before, OcmPlacement) and isinstance(after, OcmPlacement):
        return [*_namespace(before, after), *_strategy(before, after)]
    found = [*_type(before, after), *_tolerations(before, after), *_strategy(before, after)]
    if had_policy and not has_policy:
        message = "cannot be removed once it was set"
        found.append(
            Fault("spec.policy", "immutable", message, "to pick every cluster: placementType: PickAll")
        )
    if before.spec.status_reporting_scope != after.spec.status_reporting_scope:
        message = f"cannot change from {before.spec.status_reporting_scope}"
        found.append(Fault("spec.statusReportingScope", "immutable", message, _ANEW))
    return found


def _other_kind(before: ClusterResourcePlacement, after: ClusterResourcePlacement) -> Fault:
    message = f"{before.metadata.name} is a {before.kind} already; names are unique across both kinds"
    return Fault("kind", "immutable", message, f"{before.kind}, or another name than {after.metadata.name}")


def _namespace(before: OcmPlacement, after: OcmPlacement) -> Iterator[Fault]:
    if before.namespace != after.namespace:
        there = f"in namespace {before.namespace}" if before.namespace else "without a namespace"
        message = (
            f"a Placement {before.metadata.name} is here already, {there}; names are unique across namespaces"
        )
        same = before.namespace or "no namespace"
        yield Fault("metadata.namespace", "immutable", message, f"{same}, or another name")


def _type(before: ClusterResourcePlacement, after: ClusterResourcePlacement) -> Iterator[Fault]:
    old, new = before.spec.policy.placement_type, after.spec.policy.placement_type
    if old != new:
        message = f"cannot change from {old} to {new}: what is placed was chosen in another way"
        yield Fault("spec.policy.placementType", "immutable", message, _ANEW)


def _tolerations(before: ClusterResourcePlacement, after: ClusterResourcePlacement) -> Iterator[Fault]:
    kept = after.spec.policy.tolerations
    for index, toleration in enumerate(before.spec.policy.tolerations):
        if toleration not in kept:
            words = toleration.key or "every taint"
            message = f"tolerations may only be added: the one for {words} (number {index + 1}) is missing"
            yield Fault("spec.policy.tolerations", "immutable", message, f"put it back; or {_ANEW}")


def _strategy(before: ClusterResourcePlacement, after: ClusterResourcePlacement) -> Iterator[Fault]:
    old, new = before.spec.strategy.type, after.spec.strategy.type
    if old is StrategyType.EXTERNAL and new is not StrategyType.EXTERNAL:
        message = "a staged placement cannot go back to rolling updates"
        is_ocm = isinstance(after, OcmPlacement)
        path = f"{annotation_path(STRATEGY_ANNOTATION)}.type" if is_ocm else "spec.strategy.type"
        yield Fault(path, "immutable", message, _ANEW)
