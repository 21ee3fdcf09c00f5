"""The drivers by name, in plain sight."""

from collections.abc import Callable, Mapping
from typing import Any

from clusters.drivers.base import Driver, UnknownDriverError
from clusters.drivers.simulated import SimulatedDriver

SIMULATED = "simulated"
REPORTED = "reported"
"""No driver of ours: the cluster's own agent reports over REST."""

DRIVERS: Mapping[str, Callable[[Mapping[str, Any]], Driver]] = {SIMULATED: SimulatedDriver}


def driver_for(name: str, connection: Mapping[str, Any]) -> Driver:
    """Make the driver that a connection names. Raises UnknownDriverError."""
    if name not in DRIVERS:
        raise UnknownDriverError(name, tuple(DRIVERS))
    return DRIVERS[name](connection)
