"""One simulation: texts of files in, a decision with its warnings out, or every fault of every file."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from placements.scheduling.cycle import Cycle
from placements.scheduling.decision import Decision
from placements.scheduling.faults import Caveat, Fault, Faults
from placements.scheduling.fleet_caveats import decision_caveats, fleet_caveats
from placements.scheduling.scheduler import schedule
from placements.scheduling.semantics import Semantics
from placements.scheduling.spec import ClusterResourcePlacement, spec_caveats
from placements.simulation.inputs import BindingsFile, FleetFile, read_bindings, read_fleet, read_placement

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Source:
    """The bytes of a file, or why there are none, and the name to call it by."""

    name: str
    content: bytes | OSError


@dataclass(frozen=True, slots=True)
class Request:
    """What to simulate; `now` None means the newest heartbeat of the clusters file."""

    clusters: Source
    placement: Source
    bindings: Source | None = None
    name: str | None = None
    snapshot: str | None = None
    semantics: Semantics | None = None
    now: datetime | None = None
    strict_health: bool = False


@dataclass(frozen=True, slots=True)
class Simulation:
    """The decision for one placement, and what to warn of."""

    placement: str
    decision: Decision
    warnings: tuple[Caveat, ...]


class BadInputError(ValueError):
    """At least one file could not be used; `faults` pairs the name of a file with one of its faults."""

    def __init__(self, faults: list[tuple[str, Fault]]) -> None:
        super().__init__("\n".join(f"{name}: {fault}" for name, fault in faults))
        self.faults = tuple(faults)


def simulate(request: Request) -> Simulation:
    """Read all files, then run one scheduling cycle. Raises BadInputError with the faults of all files."""
    reader = _Reader()
    fleet = reader.read(
        request.clusters,
        lambda text: read_fleet(text, now=request.now, strict_health=request.strict_health),
    )
    placement = reader.read(request.placement, lambda text: read_placement(text, name=request.name))
    bindings: BindingsFile | None = BindingsFile(())
    if request.bindings is not None:
        owner = request.name if placement is None else placement.metadata.name
        bindings = reader.read(
            request.bindings,
            lambda text: read_bindings(text, placement=owner, snapshot=request.snapshot),
        )
    if fleet is None or placement is None or bindings is None:
        raise BadInputError(reader.faults)
    return _run(request, fleet, placement, bindings)


class _Reader:
    """Reads file after file and gathers what is wrong with any of them."""

    def __init__(self) -> None:
        self.faults: list[tuple[str, Fault]] = []

    def read(self, source: Source, parse: Callable[[bytes], Value]) -> Value | None:
        if isinstance(source.content, OSError):
            reason = source.content.strerror or str(source.content)
            self.faults.append((source.name, Fault("", "unreadable", f"cannot be read: {reason}")))
            return None
        try:
            return parse(source.content)
        except Faults as found:
            self.faults += [(source.name, fault) for fault in found.faults]
            return None


def _run(
    request: Request, fleet: FleetFile, placement: ClusterResourcePlacement, bindings: BindingsFile
) -> Simulation:
    policy = placement.spec.policy
    cycle = Cycle(
        fleet.fleet,
        policy,
        bindings.bindings,
        request.semantics or placement.semantics,
        placement.spread_options,
    )
    decision = schedule(cycle)
    warnings = (
        *fleet.caveats,
        *bindings.caveats,
        *spec_caveats(placement.spec),
        *fleet_caveats(policy, fleet.fleet, path="spec.policy"),
        *decision_caveats(decision),
    )
    return Simulation(placement.metadata.name, decision, warnings)
