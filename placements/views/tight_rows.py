"""Rows of placements that tell how near each is to its limits, and how its run stands."""

from dataclasses import dataclass

from placements.explain.wording import measure_word
from placements.queries.glance import Tight
from placements.queries.headroom import Skew
from placements.scheduling.semantics import Semantics
from placements.views import states


@dataclass(frozen=True, slots=True)
class TightRow:
    """One placement: how much it has, how near it is to its limits, how its run stands.

    `measure` calls what the limits are on under its rules.
    """

    tight: Tight
    picked: str
    state: states.State
    skews: list[tuple[Skew, states.State]]
    run: states.State | None
    measure: str


def tight_row(tight: Tight) -> TightRow:
    """Put into words and marks how a placement stands."""
    run = states.run_state(tight.run, tight.verdict) if tight.run else None
    run = states.staged_state(tight.staged) if tight.staged else run
    skews = [(one, _skew_state(one)) for one in tight.skews]
    placement = tight.placement
    return TightRow(
        tight,
        states.picked_of(placement),
        states.placement_state(placement),
        skews,
        run,
        measure_word(Semantics(placement.semantics)),
    )


def _skew_state(one: Skew) -> states.State:
    words = f"{one.key} {one.skew} of {one.most}"
    return states.State("attention" if one.skew > one.most else "ok", words)
