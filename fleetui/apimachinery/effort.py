"""Bounds of what is computed for a person: set where a request arrives, looked at in the loops of the cores.

Passed by context and not by argument: between a request and a loop are dozens of functions, and one that
forgets to pass the bounds on would compute without end. Without bounds, as in a worker, nothing is refused:
a saved placement is decided, however large its fleet.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from fleetui.errors import FleetError


class TooMuchWorkError(FleetError):
    """The input needs more computing than a request may do; the message says what to reduce."""

    status = 422
    problem_type = "too-much-work"
    title = "Too much to compute"


@dataclass(frozen=True, slots=True)
class EffortBounds:
    """`check_time` raises when the time is over; `most_comparisons` bounds one run of the scheduler."""

    check_time: Callable[[], None]
    most_comparisons: int


_bounds: ContextVar[EffortBounds | None] = ContextVar("effort_bounds", default=None)


@contextmanager
def bounded_effort(bounds: EffortBounds) -> Iterator[None]:
    token = _bounds.set(bounds)
    try:
        yield
    finally:
        _bounds.reset(token)


def check_time() -> None:
    """Raise what ends the request if its time is over."""
    bounds = _bounds.get()
    if bounds is not None:
        bounds.check_time()


def check_picks(*, cells: int, picks: int, constraints: int) -> None:
    """Check the work of picking one by one before it starts. Raise TooMuchWorkError.

    Each pick compares the cells: the clusters that are in the same domain of every constraint are one.
    """
    bounds = _bounds.get()
    comparisons = cells * picks * constraints
    if bounds is None or comparisons <= bounds.most_comparisons:
        return
    raise TooMuchWorkError(
        f"Too much to compute: {picks:,} clusters to select from {cells:,} combinations of topology domains,"
        f" under {constraints:,} constraints are {comparisons:,} comparisons, and a request may have at most"
        f" {bounds.most_comparisons:,}. Reduce numberOfClusters, the constraints, or the distinct values of"
        " their keys."
    )
