"""One simulation: texts of files in; out comes a decision with warnings, or the errors of all files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any, TypeVar

from clusters.fleet import Fleet
from fleetui.apimachinery.errors import FieldError, InvalidManifest, ManifestWarning
from fleetui.apimachinery.model import Semantics
from fleetui.apimachinery.words import first_lines
from fleetui.errors import FleetError
from placements.engine.checks.examination import fleet_warnings
from placements.engine.ocm_hub import BlockedSetError, OcmHub
from placements.engine.scheduling.comparison import SemanticsComparison
from placements.engine.scheduling.decision import Decision, at_moment
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.scheduler import schedule
from placements.engine.scheduling.warnings import decision_warnings
from placements.manifests.binding import PlacedBinding
from placements.services.simulate.inputs import (
    BindingsFile,
    read_bindings,
    read_fleet,
    read_placement,
)
from placements.services.simulate.translate import PlacementInput, translate

Value = TypeVar("Value")
_MOST_LINES = 200


@dataclass(frozen=True, slots=True)
class RequestSource:
    """The bytes of a file, or why there are none, and the name to call it by."""

    name: str
    content: bytes | OSError


@dataclass(frozen=True, slots=True)
class Request:
    """What to simulate; `now` None means the newest heartbeat of the clusters file."""

    clusters: RequestSource
    placement: RequestSource
    bindings: RequestSource | None = None
    name: str | None = None
    snapshot: str | None = None
    semantics: Semantics | None = None
    now: datetime | None = None
    strict_health: bool = False


@dataclass(frozen=True, slots=True)
class Simulation:
    """The decision for one placement, its warnings, and when the heartbeats were judged."""

    placement: str
    decision: Decision
    warnings: tuple[ManifestWarning, ...]
    asked_for: Semantics
    judged_at: datetime | None = None


class BadInputError(FleetError, ValueError):
    """At least one file could not be used; `errors` pairs the name of a file with one of its errors."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY
    problem_type = "invalid-document"

    def __init__(self, errors: list[tuple[str, FieldError]]) -> None:
        lines = (f"{name}: {error}" if name else str(error) for name, error in errors)
        super().__init__("\n".join(first_lines(lines, _MOST_LINES)))
        self.errors = tuple(errors)

    @classmethod
    def of_text(cls, text: str) -> "BadInputError":
        lines = text.splitlines()
        return cls([("", FieldError("", "unreadable", line)) for line in lines])


def simulate(request: Request) -> Simulation:
    """Read all files, then run one scheduling cycle. Raise BadInputError with the errors of all files."""
    inputs = _read_inputs(request)
    semantics = request.semantics or inputs.placement_input.semantics
    return _run(_translated(inputs.placement_input, semantics, request), inputs)


def simulate_all(request: Request) -> dict[Semantics, Simulation]:
    """Read all files, then run the same placement under every semantics. Raise BadInputError."""
    inputs = _read_inputs(request)
    return {
        one: _run(_translated(inputs.placement_input, one, request), inputs)
        for one in Semantics
    }


def compared(simulations: Mapping[Semantics, Simulation]) -> SemanticsComparison:
    """Return simulations of one placement side by side, compared with the semantics of its manifest."""
    own = next(iter(simulations.values())).asked_for
    return SemanticsComparison(
        {semantics: one.decision for semantics, one in simulations.items()}, own
    )


def _translated(
    placement_input: PlacementInput, semantics: Semantics, request: Request
) -> PlacementInput:
    try:
        return translate(placement_input, semantics)
    except InvalidManifest as invalid:
        raise BadInputError(
            [(request.placement.name, error) for error in invalid.errors]
        ) from invalid


@dataclass(frozen=True, slots=True)
class _Inputs:
    fleet: Fleet
    placement_input: PlacementInput
    bindings: tuple[PlacedBinding, ...]
    warnings: tuple[ManifestWarning, ...]
    judged_at: datetime | None
    hub: OcmHub | None = None
    now: datetime | None = None
    clusters: str = ""


def _read_inputs(request: Request) -> _Inputs:
    errors: list[tuple[str, FieldError]] = []

    def read(
        source: RequestSource, parse: Callable[..., Value], **options: Any
    ) -> Value | None:
        if isinstance(source.content, OSError):
            reason = source.content.strerror or str(source.content)
            errors.append(
                (
                    source.name,
                    FieldError("", "unreadable", f"Cannot read the file: {reason}"),
                )
            )
            return None
        try:
            return parse(source.content, **options)
        except InvalidManifest as invalid:
            errors.extend((source.name, error) for error in invalid.errors)
            return None

    fleet = read(
        request.clusters,
        read_fleet,
        now=request.now,
        strict_health=request.strict_health,
    )
    placement_input = read(request.placement, read_placement, name=request.name)
    bindings: BindingsFile | None = BindingsFile(())
    if request.bindings is not None:
        owner = request.name if placement_input is None else placement_input.name
        bindings = read(
            request.bindings, read_bindings, placement=owner, snapshot=request.snapshot
        )
    if fleet is None or placement_input is None or bindings is None:
        raise BadInputError(errors)
    warnings = (*fleet.warnings, *bindings.warnings)
    return _Inputs(
        fleet.fleet,
        placement_input,
        bindings.bindings,
        warnings,
        fleet.judged_at,
        fleet.hub,
        request.now,
        request.clusters.name,
    )


def _run(placement_input: PlacementInput, inputs: _Inputs) -> Simulation:
    cycle = placement_input.cycle(inputs.fleet, inputs.bindings)
    if inputs.hub is not None and profile_of(cycle).has_hub_objects:
        if inputs.now is not None:
            cycle = at_moment(cycle, inputs.now)
        if inputs.hub.has_sets:
            try:
                cycle = inputs.hub.cycle(cycle, placement_input.name)
            except BlockedSetError as blocked:
                message = f"Invalid value: {blocked}: a hub would decide nothing"
                error = FieldError("spec.clusterSelector", "bad-format", message)
                raise BadInputError([(inputs.clusters, error)]) from blocked
    decision = schedule(cycle)
    of_cycle = (*fleet_warnings(cycle), *decision_warnings(decision))
    all_warnings = (*inputs.warnings, *placement_input.warnings, *of_cycle)
    warnings = tuple(map(placement_input.in_document, all_warnings))
    return Simulation(
        placement_input.name,
        decision,
        warnings,
        inputs.placement_input.semantics,
        inputs.judged_at,
    )
