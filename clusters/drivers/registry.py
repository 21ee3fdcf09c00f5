"""The drivers by name, in plain sight."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clusters.drivers.base import (
    KUBERNETES,
    SIMULATED,
    Driver,
    MemberIdentity,
    UnknownDriverError,
)
from clusters.drivers.kubernetes.client import Client
from clusters.drivers.kubernetes.configuration import parse_connection
from clusters.drivers.kubernetes.driver import KubernetesDriver
from clusters.drivers.simulated.driver import SimulatedDriver
from clusters.drivers.simulated.state import StateStore, parse_configuration


@dataclass(frozen=True, slots=True)
class DriverContext:
    """What a driver may need besides its connection.

    `client` is that of a Kubernetes cluster; it reads the secret only when it opens a connection.
    """

    clock: Callable[[], datetime]
    store: StateStore
    monotonic: Callable[[], float] = time.monotonic
    client: Client | None = None
    identity: MemberIdentity | None = None


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """One sort of driver: `check` raises InvalidManifest where a connection is malformed, with its path.

    `supports_apply_strategy`: the apply strategy of a placement changes what the driver does.
    """

    make: Callable[[Mapping[str, Any], DriverContext], Driver]
    check: Callable[[Mapping[str, Any]], object]
    supports_apply_strategy: bool = False


def create_kubernetes(connection: Mapping[str, Any], around: DriverContext) -> Driver:
    if around.client is None or around.identity is None:
        raise ValueError(
            "the driver of a Kubernetes cluster needs a client and an identity"
        )
    return KubernetesDriver(
        around.client,
        identity=around.identity,
        server=parse_connection(connection).server,
        monotonic=around.monotonic,
    )


DRIVERS: Mapping[str, DriverInfo] = {
    SIMULATED: DriverInfo(
        lambda connection, around: SimulatedDriver(
            connection, around.store, around.clock
        ),
        parse_configuration,
    ),
    KUBERNETES: DriverInfo(
        create_kubernetes, parse_connection, supports_apply_strategy=True
    ),
}

ACTING_DRIVERS = tuple(
    name for name, info in DRIVERS.items() if info.supports_apply_strategy
)
"""Drivers that act on the apply strategy of a placement."""


def driver_named(
    name: str, connection: Mapping[str, Any], around: DriverContext
) -> Driver:
    """Create a driver by name. Raises UnknownDriverError, InvalidManifest."""
    if name not in DRIVERS:
        raise UnknownDriverError(name, tuple(DRIVERS))
    return DRIVERS[name].make(connection, around)
