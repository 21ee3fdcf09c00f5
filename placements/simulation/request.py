"""One simulation: texts of files in, a decision with its warnings out, or every fault of every file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from placements.scheduling.bindings import Binding
from placements.scheduling.comparison import Comparison
from placements.scheduling.decision import Decision
from placements.scheduling.faults import Caveat, Fault, Faults
from placements.scheduling.fleet import Fleet
from placements.scheduling.fleet_caveats import decision_caveats, fleet_caveats
from placements.scheduling.scheduler import schedule
from placements.scheduling.semantics import Semantics
from placements.simulation.inputs import BindingsFile, read_bindings, read_fleet, read_wish
from placements.simulation.wish import Wish, carried_over

Value = TypeVar("Value")
_TOLD = 200


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
    """The decision for one placement, what to warn of, and when the heartbeats were judged.

    `asked_for` are the semantics of the document, which need not be those of the decision.
    """

    placement: str
    decision: Decision
    warnings: tuple[Caveat, ...]
    asked_for: Semantics
    judged_at: datetime | None = None


class BadInputError(ValueError):
    """At least one file could not be used; `faults` pairs the name of a file with one of its faults."""

    def __init__(self, faults: list[tuple[str, Fault]]) -> None:
        told = [f"{name}: {fault}" for name, fault in faults[:_TOLD]]
        more = [f"… and {len(faults) - _TOLD} more"] if len(faults) > _TOLD else []
        super().__init__("\n".join([*told, *more]))
        self.faults = tuple(faults)


def simulate(request: Request) -> Simulation:
    """Read all files, then run one scheduling cycle. Raises BadInputError with the faults of all files."""
    inputs = _read(request)
    semantics = request.semantics or inputs.wish.semantics
    return _run(_carried_over(inputs.wish, semantics, request), inputs)


def simulate_all(request: Request) -> dict[Semantics, Simulation]:
    """Read all files, then run the same wish under every semantics. Raises BadInputError."""
    inputs = _read(request)
    return {one: _run(_carried_over(inputs.wish, one, request), inputs) for one in Semantics}


def compared(simulations: Mapping[Semantics, Simulation]) -> Comparison:
    """Put simulations of one wish side by side, compared with what its document asks for."""
    own = next(iter(simulations.values())).asked_for
    return Comparison({semantics: one.decision for semantics, one in simulations.items()}, own)


def _carried_over(wish: Wish, semantics: Semantics, request: Request) -> Wish:
    try:
        return carried_over(wish, semantics)
    except Faults as found:
        raise BadInputError([(request.placement.name, fault) for fault in found.faults]) from found


@dataclass(frozen=True, slots=True)
class _Inputs:
    fleet: Fleet
    wish: Wish
    bindings: tuple[Binding, ...]
    caveats: tuple[Caveat, ...]
    judged_at: datetime | None


def _read(request: Request) -> _Inputs:
    reader = _Reader()
    fleet = reader.read(
        request.clusters,
        lambda text: read_fleet(text, now=request.now, strict_health=request.strict_health),
    )
    wish = reader.read(request.placement, lambda text: read_wish(text, name=request.name))
    bindings: BindingsFile | None = BindingsFile(())
    if request.bindings is not None:
        owner = request.name if wish is None else wish.name
        bindings = reader.read(
            request.bindings,
            lambda text: read_bindings(text, placement=owner, snapshot=request.snapshot),
        )
    if fleet is None or wish is None or bindings is None:
        raise BadInputError(reader.faults)
    caveats = (*fleet.caveats, *bindings.caveats)
    return _Inputs(fleet.fleet, wish, bindings.bindings, caveats, fleet.judged_at)


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


def _run(wish: Wish, inputs: _Inputs) -> Simulation:
    cycle = wish.cycle(inputs.fleet, inputs.bindings)
    decision = schedule(cycle)
    warnings = (
        *inputs.caveats,
        *wish.caveats,
        *fleet_caveats(cycle),
        *decision_caveats(decision),
    )
    told = tuple(map(wish.in_document, warnings))
    return Simulation(wish.name, decision, told, inputs.wish.semantics, inputs.judged_at)
