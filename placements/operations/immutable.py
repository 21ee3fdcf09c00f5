"""What may not be changed on a saved placement, why, and what to do instead (`spec/lifecycle.md` A.10)."""

from collections.abc import Iterator

from placements.scheduling.faults import Fault
from placements.scheduling.spec import ClusterResourcePlacement, StrategyType

_ANEW = "make a placement with another name, and delete this one when the new one is in place"


def immutability_faults(
    before: ClusterResourcePlacement, after: ClusterResourcePlacement, *, had_policy: bool, has_policy: bool
) -> list[Fault]:
    """List every forbidden change from one manifest to the next."""
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
        yield Fault("spec.strategy.type", "immutable", message, _ANEW)
