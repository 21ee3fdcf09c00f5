"""Starting a staged run from a few words instead of a document: what a page and a command line have."""

from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from fleetui.revisions import StaleEditError
from placements.models import StagedRun
from placements.operations.staged.runs import save_run
from placements.scheduling.door.kinds import STAGED_RUN_KIND
from placements.scheduling.door.staged_documents import RunState
from placements.scheduling.faults import Fault, Faults

_NONE_YET = 0
_VERSION = "placement.kubernetes-fleet.io/v1beta1"


@transaction.atomic
def start_run(
    name: str,
    *,
    placement: str,
    strategy: str,
    snapshot: int | None = None,
    is_prepared: bool = False,
    by: User | None,
    now: datetime,
) -> StagedRun:
    """Make a run; it begins at once, or, only prepared, when somebody lets it go.

    Without a snapshot it brings what the hub has when it begins. Raises Faults, also when the name is taken.
    """
    state = RunState.INITIALIZE if is_prepared else RunState.RUN
    document = _document(name, placement, strategy, snapshot, state)
    try:
        return save_run(document, by=by, now=now, expected=_NONE_YET).run
    except StaleEditError as taken:
        message = f"a run is named {name} already; it keeps its name for good"
        raise Faults([Fault("metadata.name", "duplicate", message, "another name")]) from taken


def _document(
    name: str, placement: str, strategy: str, snapshot: int | None, state: RunState
) -> dict[str, Any]:
    index = {} if snapshot is None else {"resourceSnapshotIndex": str(snapshot)}
    return {
        "apiVersion": _VERSION,
        "kind": STAGED_RUN_KIND,
        "metadata": {"name": name},
        "spec": {
            "placementName": placement,
            "stagedRolloutStrategyName": strategy,
            **index,
            "state": str(state),
        },
    }
