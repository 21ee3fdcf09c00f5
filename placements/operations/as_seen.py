"""Deciding what somebody saw in a preview and confirmed: just that, or nothing."""

from datetime import datetime

from placements.models import Placement
from placements.operations.scheduling import FleetMovedError, run_cycle, write_decision
from placements.operations.snapshotting import refresh_resources


class PreviewOutdatedError(Exception):
    """What was confirmed is not what would be saved and decided now: somebody else acted meanwhile.

    `is_text` tells that the draft itself was changed; else the fleet, or what is placed, was.
    """

    def __init__(self, *, is_text: bool) -> None:
        super().__init__("the draft changed" if is_text else "the fleet changed")
        self.is_text = is_text


def decide_as_seen(placement: Placement, decision_id: str, *, now: datetime) -> None:
    """Take the cycle that a change asked for, here and now; its answer has to be the one that was seen.

    Belongs into the transaction of the change. Raises PreviewOutdatedError.
    """
    placement.refresh_from_db()
    if not refresh_resources(placement, now=now):
        return
    cycled = run_cycle(placement)
    if cycled.decision.id != decision_id:
        raise PreviewOutdatedError(is_text=False)
    try:
        write_decision(cycled, now=now)
    except FleetMovedError as error:
        raise PreviewOutdatedError(is_text=False) from error
