"""A cluster that exists only here, for demos and rehearsals; it can be told to fail."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from clusters.drivers.base import DriverUnavailable, Observation


class SimulatedFault(StrEnum):
    """What can be wrong with a simulated cluster."""

    SILENT = "silent"
    UNHEALTHY = "unhealthy"


class SimulatedDriver:
    """Answers for a cluster from the faults in its connection: `{"fault": "silent"}`."""

    def __init__(self, connection: Mapping[str, Any]) -> None:
        self._fault = connection.get("fault")

    def observe(self) -> Observation:
        """Report health. Raises DriverUnavailable when silent."""
        self._answer()
        return Observation(is_healthy=self._fault != SimulatedFault.UNHEALTHY)

    def leave(self) -> None:
        """Let go. Raises DriverUnavailable when silent."""
        self._answer()

    def _answer(self) -> None:
        if self._fault == SimulatedFault.SILENT:
            raise DriverUnavailable("the simulated cluster is silent")
