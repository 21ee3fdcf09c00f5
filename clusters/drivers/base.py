"""What a driver can be asked, and how it may fail."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


class DriverUnavailable(Exception):  # noqa: N818 -- the design's word for it
    """The cluster did not answer; asking again later may help."""


class UnknownDriverError(Exception):
    """A connection names a driver that this console does not have."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"{name!r} is no driver; there are: {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class Observation:
    """What a driver saw of a cluster: its health, and readings where it reports any.

    A driver that answers means that the agent reports and has joined; its health is the health condition.
    """

    is_healthy: bool
    properties: Mapping[str, str] | None = None
    usage: Mapping[str, Mapping[str, str]] | None = field(default=None)


class Driver(Protocol):
    """Speaks to one member cluster."""

    def observe(self) -> Observation:
        """Look at the cluster. Raises DriverUnavailable."""

    def leave(self) -> None:
        """Tell the cluster that it leaves the fleet; what is placed there stays. Raises DriverUnavailable."""
