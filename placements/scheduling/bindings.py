"""Bindings: which clusters a placement has already, by class (`spec/scheduler.md` 1)."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from placements.scheduling.fleet import Fleet


class BindingState(StrEnum):
    """How far a binding has come."""

    SCHEDULED = "Scheduled"
    BOUND = "Bound"
    UNSCHEDULED = "Unscheduled"


@dataclass(frozen=True, slots=True)
class Binding:
    """A placement joined to one cluster.

    `is_current` says that it was decided under the latest policy snapshot; `previous_state` is what an
    Unscheduled binding returns to when its cluster is picked again.
    """

    cluster: str
    state: BindingState
    is_current: bool = True
    topology_spread_score: float | tuple[float, ...] | None = None
    affinity_score: float | None = None
    previous_state: BindingState = BindingState.SCHEDULED
    is_deleting: bool = False

    @property
    def is_active(self) -> bool:
        """Tell whether the cluster holds, or is about to hold, the resources."""
        return self.state is not BindingState.UNSCHEDULED


@dataclass(frozen=True)
class Standing:
    """The bindings of a placement by class, each by cluster name."""

    current: tuple[Binding, ...] = ()
    obsolete: tuple[Binding, ...] = ()
    dangling: tuple[Binding, ...] = ()
    unscheduled: tuple[Binding, ...] = ()


def classify(bindings: Iterable[Binding], fleet: Fleet) -> Standing:
    """Sort the bindings, which come by cluster name and without those being deleted, into classes."""
    classes: dict[str, list[Binding]] = {"current": [], "obsolete": [], "dangling": [], "unscheduled": []}
    for binding in bindings:
        classes[_class_of(binding, fleet)].append(binding)
    return Standing(**{name: tuple(members) for name, members in classes.items()})


def _class_of(binding: Binding, fleet: Fleet) -> str:
    if not binding.is_active:
        return "unscheduled"
    position = fleet.positions.get(binding.cluster)
    if position is None or fleet.clusters[position].is_leaving:
        return "dangling"
    return "current" if binding.is_current else "obsolete"
