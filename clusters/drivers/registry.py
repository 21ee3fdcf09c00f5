"""The drivers by name, in plain sight."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clusters.drivers.base import Driver, UnknownDriverError
from clusters.drivers.simulated.configuration import parse_configuration
from clusters.drivers.simulated.driver import SimulatedDriver
from clusters.drivers.simulated.state import StateStore

SIMULATED = "simulated"
REPORTED = "reported"
"""No driver of ours: the cluster's own agent reports over REST."""


@dataclass(frozen=True, slots=True)
class DriverContext:
    """What a driver may need besides its connection."""

    clock: Callable[[], datetime]
    store: StateStore


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """One sort of driver: `check` raises Faults where a connection is malformed, with its path."""

    make: Callable[[Mapping[str, Any], DriverContext], Driver]
    check: Callable[[Mapping[str, Any]], object]


def create_simulated(connection: Mapping[str, Any], around: DriverContext) -> Driver:
    return SimulatedDriver(connection, around.store, around.clock)


DRIVERS: Mapping[str, DriverInfo] = {SIMULATED: DriverInfo(create_simulated, parse_configuration)}


def driver_named(name: str, connection: Mapping[str, Any], around: DriverContext) -> Driver:
    """Create a driver by name. Raises UnknownDriverError, Faults."""
    if name not in DRIVERS:
        raise UnknownDriverError(name, tuple(DRIVERS))
    return DRIVERS[name].make(connection, around)
