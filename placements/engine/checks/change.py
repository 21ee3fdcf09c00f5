"""Rules about a change of placements: its gates in `.fleetui.yaml`."""

from collections.abc import Iterator
from dataclasses import dataclass

from placements.engine.checks.file import Gates, PlacementGates
from placements.engine.checks.findings import Finding, Needs, Rule, Severity


@dataclass(frozen=True, slots=True)
class GatedChange:
    """The numbers of a change, of one placement or together, and the gates for it."""

    gates: PlacementGates
    name: str
    leaves: int
    before: int
    after: int = 0
    becomes_unfulfilled: bool = False


def too_many_moves(change: GatedChange) -> Iterator[Finding]:
    percent = (
        change.gates.max_moves_percent if isinstance(change.gates, Gates) else None
    )
    if percent is not None and change.leaves * 100 > percent * change.before:
        message = (
            f"{change.leaves} of {change.before} bindings move, at most {percent} % may"
        )
        yield G01.finding("gates.max-moves-percent", message)


def too_many_leaves(change: GatedChange) -> Iterator[Finding]:
    most = change.gates.max_leaves
    if most is not None and change.leaves > most:
        message = (
            f"{change.name} leaves {change.leaves} clusters, at most {most} are allowed"
        )
        yield G02.finding("gates.max-leaves", message)


def new_unfulfilled(change: GatedChange) -> Iterator[Finding]:
    if change.gates.no_new_unfulfilled and change.becomes_unfulfilled:
        yield G03.finding(
            "gates.no-new-unfulfilled", f"{change.name} is not fulfilled afterwards"
        )


def unscheduled_everywhere(change: GatedChange) -> Iterator[Finding]:
    if change.gates.no_unschedule_everything and change.before and not change.after:
        message = f"{change.name} leaves all of its {change.before} clusters"
        yield G04.finding("gates.no-unschedule-everything", message)


G01 = Rule(
    "G01",
    Severity.ERROR,
    Needs.CHANGES,
    "More bindings move than allowed",
    too_many_moves,
)
G02 = Rule(
    "G02",
    Severity.ERROR,
    Needs.CHANGE,
    "More clusters left than allowed",
    too_many_leaves,
)
G03 = Rule(
    "G03",
    Severity.ERROR,
    Needs.CHANGE,
    "Fulfilled placement becomes unfulfilled",
    new_unfulfilled,
)
G04 = Rule(
    "G04", Severity.ERROR, Needs.CHANGE, "All clusters left", unscheduled_everywhere
)
GATES = {
    "max-moves-percent": G01,
    "max-leaves": G02,
    "no-new-unfulfilled": G03,
    "no-unschedule-everything": G04,
}
"""The gates that are rules of their own, in the order of a report."""
