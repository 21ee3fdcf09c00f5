"""The actions of users on rollouts: one table that pages, commands and REST read."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any

from django.contrib.auth.models import User

from fleetui.permissions import Role
from placements.manifests.staged_update import RunState
from placements.services.rollouts import operations, staged_operations


class RolloutKind(StrEnum):
    """What an action is about: the rolling updates of a placement, or a staged run."""

    ROLLING = "rolling"
    STAGED = "staged"


@dataclass(frozen=True, slots=True)
class RolloutAction:
    """An action with its texts, in which {name} is the placement or run, {value} the argument.

    `argument` is the keyword of the operation beside the name, if it has one. The message may use the result
    of the operation as {result}.
    """

    kind: RolloutKind
    name: str
    title: str
    confirmation: str
    message: str
    operation: Callable[..., Any]
    argument: str = ""
    permission: Role = Role.OPERATOR
    is_dangerous: bool = False
    starts_rollout: bool = False

    def run(
        self, name: str, value: str | int | None = "", *, by: User | None, now: datetime, **more: Any
    ) -> str:
        """Run the operation and return the message; raise what the operation raises."""
        argument = {self.argument: value} if self.argument else {}
        result = self.operation(name, **argument, by=by, now=now, **more)
        return self.message.format(name=name, value=value, result=result)


_rolling = partial(RolloutAction, RolloutKind.ROLLING)
_staged = partial(RolloutAction, RolloutKind.STAGED)
_ACTIONS = (
    _rolling(
        "pause",
        "Pause {name}",
        "No new updates start. Running updates finish. New revisions wait.",
        "Rollout of {name} paused.",
        operations.pause,
    ),
    _rolling(
        "resume",
        "Resume {name}",
        "The rollout resumes where it was paused.",
        "Rollout of {name} resumed.",
        operations.resume,
    ),
    _rolling(
        "stop",
        "Stop rollout of {name}",
        "Stops the rollout permanently. Clusters keep their current revision. Start a new rollout to"
        " continue.",
        "Rollout of {name} stopped.",
        operations.stop,
        is_dangerous=True,
    ),
    _rolling(
        "start",
        "Start rollout of {name}",
        "A new rollout continues from the current state of the clusters.",
        "Rollout of {name} started.",
        operations.restart,
        starts_rollout=True,
    ),
    _rolling(
        "unpin",
        "Unpin {name}",
        "Rolls {name} forward to the current hub resources.",
        "{name} unpinned. Rolling forward to the current hub resources.",
        operations.unpin,
        starts_rollout=True,
    ),
    _rolling(
        "roll-back",
        "Roll back {name}",
        "The resources of the selected revision are rolled out as a new revision. {name} is pinned to it: hub"
        " changes are not rolled out until you unpin {name}.",
        "Rolling back {name} to r{value} (as r{result.number}). {name} is pinned to r{result.number}; hub"
        " changes are not rolled out until you unpin it.",
        operations.roll_back,
        argument="number",
        is_dangerous=True,
        starts_rollout=True,
    ),
    _rolling(
        "retry",
        "Retry {name} on {value}",
        "Retries the failed update on {value} immediately.",
        "Retrying {name} on {value}.",
        operations.retry,
        argument="cluster",
    ),
    _rolling(
        "retry-failed",
        "Retry failed clusters of {name}",
        "Retries the failed updates on all clusters immediately.",
        "Retrying {name} on its failed clusters.",
        operations.retry,
    ),
    _rolling(
        "reapply",
        "Apply {name} again on {value}",
        "Applies the current revision of {name} on {value} again. Changes to its fields on the cluster are"
        " overwritten, unless whenToApply is IfNotDrifted or the type is ReportDiff. Other clusters are not"
        " affected.",
        "Applying {name} again on {value}.",
        operations.reapply_on,
        argument="cluster",
        is_dangerous=True,
    ),
    _staged(
        "resume",
        "Start or resume run {name}",
        "Starts the run, or resumes it. A timed wait in progress restarts.",
        "Staged update run {name} started.",
        partial(staged_operations.set_state, state=RunState.RUN),
    ),
    _staged(
        "stop",
        "Stop run {name}",
        "No new updates start. Running updates finish. The run can be resumed.",
        "Staged update run {name} stopped.",
        partial(staged_operations.set_state, state=RunState.STOP),
    ),
    _staged(
        "abandon",
        "Abort run {name}",
        "Ends the run. Clusters keep their current revision. Running updates finish. Failed updates are not"
        " retried.",
        "Staged update run {name} aborted.",
        staged_operations.abandon,
        is_dangerous=True,
    ),
    _staged(
        "approve",
        "Approve stage {value} of {name}",
        "Approves stage {value}. Your name and the time are recorded.",
        "Stage {value} of {name} approved.",
        staged_operations.approve,
        argument="stage",
        permission=Role.APPROVER,
    ),
    _staged(
        "skip-wait",
        "Skip the wait of stage {value}",
        "The wait after stage {value} of {name} ends now. An approval cannot be skipped.",
        "Wait skipped for stage {value} of {name}.",
        staged_operations.skip_wait,
        argument="stage",
    ),
    _staged(
        "retry",
        "Retry {name} on {value}",
        "Retries the failed update on {value} immediately.",
        "Retrying {name} on {value}.",
        staged_operations.retry,
        argument="cluster",
    ),
)
ACTIONS = {(action.kind, action.name): action for action in _ACTIONS}
