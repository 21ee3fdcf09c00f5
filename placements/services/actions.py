"""The actions of people on placements, staged runs and clusters: one table for pages, REST and commands."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any

from django.contrib.auth.models import User

from clusters.operations.edit import (
    change_labels,
    change_taints,
    cordon,
    leave,
    uncordon,
)
from fleetui.hub_backend import current_backend
from fleetui.permissions import FLEET, Labels, LabelsOf, Role, may_change
from placements.manifests.staged_update import RunState
from placements.services.disruption.drains import (
    cancel_drain,
    drain,
    why_not_cancel,
    why_not_drain,
)
from placements.services.disruption.evictions import evict
from placements.services.rescheduling import reschedule, reschedule_refusal
from placements.services.rollouts import operations
from placements.services.rollouts.queries import why_not_approve
from placements.services.rollouts.staged_runs import why_not_state
from placements.services.teams import labels_in, labels_of_run, of_placement, of_run


class ActionKind(StrEnum):
    """What an action is about: the rolling updates of a placement, a staged run, or a cluster."""

    ROLLING = "rolling"
    STAGED = "staged"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Action:
    """An action with its texts, in which {name} is its subject, {value} the argument.

    `verb` ends the sentence "You don't have permission to …"; `labels_of` are the labels of the subject, and
    `labels_at` finds them by the arguments of a path. `argument` is the keyword of the operation
    beside the name, if it has one. The message may use the result of the operation as {result}.
    `precondition` returns why the action is not possible now, and is what the operation checks;
    `permission` why a user may not, if that is more than the role for the labels of the subject.
    """

    kind: ActionKind
    name: str
    title: str
    confirmation: str
    message: str
    operation: Callable[..., Any]
    precondition: Callable[..., str] | None = None
    argument: str = ""
    verb: str = field(kw_only=True)
    labels_of: Callable[[Any], Labels] = field(kw_only=True)
    labels_at: LabelsOf | None = field(kw_only=True)
    permission: Callable[[Any, User | None], str] | None = None
    role: Role = Role.OPERATOR
    is_dangerous: bool = False
    starts_rollout: bool = False
    takes_many: bool = False
    """The operation takes the names of several subjects: all or none."""
    is_undone: bool = True
    """What it changed can be restored."""
    has_form: bool = False
    """It has a page and a command of its own, for what the operation takes besides the argument."""

    @property
    def short_title(self) -> str:
        """The title without its subject, such as "Remove from fleet"."""
        return self.title.replace(" of {name}", "").replace(" {name}", "")

    @property
    def denial(self) -> str:
        return f"You don't have permission to {self.verb}. Required role: {self.role}."

    def why_not(self, subject: Any, user: User | None, *about: Any) -> str:
        """Return why a user may not do this now; empty if they may. Without a user the state decides."""
        refusal = self.refusal(subject, user) if user else ""
        if refusal or self.precondition is None:
            return refusal
        return self.precondition(subject, *about)

    def refusal(self, subject: Any, user: User) -> str:
        """Return why a user may not do this, whatever the state; empty if they may."""
        if self.permission is not None:
            return self.permission(subject, user)
        is_allowed = may_change(user, self.labels_of(subject), role=self.role)
        return "" if is_allowed else f"required role: {self.role}"

    def perform(
        self,
        name: str,
        value: str | int | None = "",
        *,
        by: User | None,
        now: datetime,
        **more: Any,
    ) -> Any:
        """Run the operation, or that of a live hub, and return its result; raise what it raises."""
        argument = {self.argument: value} if self.argument else {}
        subject = [name] if self.takes_many else name
        operation = current_backend().operation(self.kind, self.name, self.operation)
        return operation(subject, **argument, by=by, now=now, **more)

    def run(self, name: str, value: str | int | None = "", **options: Any) -> str:
        """Run the operation and return the message; raise what the operation raises."""
        result = self.perform(name, value, **options)
        return self.message.format(name=name, value=value, result=result)


class Reasons:
    """Why a user may not do something now, by action, read when a template asks: `why_not.roll_back`.

    `about` has what a precondition needs beside its subject, by action.
    """

    def __init__(
        self, kind: ActionKind, subject: Any, user: User | None = None, **about: Any
    ) -> None:
        self._kind, self._subject, self._user, self._about = kind, subject, user, about
        self._known: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        if name not in self._known:
            about = [self._about[name]] if name in self._about else []
            self._known[name] = ACTIONS[self._kind, name.replace("_", "-")].why_not(
                self._subject, self._user, *about
            )
        return self._known[name]


_rolling = partial(
    Action,
    ActionKind.ROLLING,
    verb="manage rollouts",
    labels_of=lambda placement: labels_in(placement.document),
    labels_at=of_placement,
)
_staged = partial(
    Action,
    ActionKind.STAGED,
    verb="manage staged update runs",
    labels_of=labels_of_run,
    labels_at=of_run,
)
_cluster = partial(
    Action,
    ActionKind.CLUSTER,
    verb="change clusters",
    labels_of=lambda _cluster: FLEET,
    labels_at=None,
    takes_many=True,
)
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
        operations.why_not_stop,
        is_dangerous=True,
    ),
    _rolling(
        "start",
        "Start rollout of {name}",
        "A new rollout continues from the current state of the clusters.",
        "Rollout of {name} started.",
        operations.restart,
        operations.why_not_start,
        starts_rollout=True,
    ),
    _rolling(
        "unpin",
        "Unpin {name}",
        "Rolls {name} forward to the current hub resources.",
        "{name} unpinned. Rolling forward to the current hub resources.",
        operations.unpin,
        operations.why_not_unpin,
        starts_rollout=True,
    ),
    _rolling(
        "roll-back",
        "Roll back {name}",
        "The resources of the selected revision are rolled out as a new revision. {name} is pinned to it: hub"
        " changes are not rolled out until you unpin {name}.",
        "Rolling back {name} to resource snapshot {value}, as revision {result.revision_number}. {name} is"
        " pinned to it: hub changes are not rolled out until you unpin it.",
        operations.roll_back,
        operations.why_not_roll_back,
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
        operations.why_not_retry,
        argument="cluster",
    ),
    _rolling(
        "retry-failed",
        "Retry failed clusters of {name}",
        "Retries the failed updates on all clusters immediately.",
        "Retrying {name} on its failed clusters.",
        operations.retry,
        operations.why_not_retry,
    ),
    _rolling(
        "reapply",
        "Apply {name} again on {value}",
        "Applies the current revision of {name} on {value} again. Changes to its fields on the cluster are"
        " overwritten, unless whenToApply is IfNotDrifted or the type is ReportDiff. Other clusters are not"
        " affected.",
        "Applying {name} again on {value}.",
        operations.reapply_on,
        operations.why_not_reapply,
        argument="cluster",
        is_dangerous=True,
    ),
    _rolling(
        "reschedule",
        "Reschedule {name}",
        "Every cluster is a candidate again; present clusters win ties.",
        "Placement {name} rescheduled.",
        reschedule,
        reschedule_refusal,
        verb="reschedule placements",
        has_form=True,
    ),
    _rolling(
        "evict",
        "Evict {name} from {value}",
        "Removes {name} from {value} within its disruption budget.",
        "{result}",
        evict,
        argument="cluster",
        verb="evict placements",
        is_dangerous=True,
        has_form=True,
    ),
    _staged(
        "resume",
        "Start or resume run {name}",
        "Starts the run, or resumes it. A timed wait in progress restarts.",
        "Staged update run {name} started.",
        partial(operations.set_state, state=RunState.RUN),
        partial(why_not_state, state=RunState.RUN),
    ),
    _staged(
        "pause",
        "Pause run {name}",
        "No new updates start. Running updates finish. The run can be resumed.",
        "Staged update run {name} paused.",
        partial(operations.set_state, state=RunState.STOP),
        partial(why_not_state, state=RunState.STOP),
    ),
    _staged(
        "abandon",
        "Abort run {name}",
        "Ends the run. Clusters keep their current revision. Running updates finish. Failed updates are not"
        " retried.",
        "Staged update run {name} aborted.",
        operations.abandon,
        operations.why_not_abandon,
        is_dangerous=True,
    ),
    _staged(
        "approve",
        "Approve stage {value} of {name}",
        "Approves stage {value}. Your name and the time are recorded.",
        "Stage {value} of {name} approved.",
        operations.approve,
        operations.why_not_pending,
        argument="stage",
        permission=why_not_approve,
        verb="approve stages",
        role=Role.APPROVER,
    ),
    _staged(
        "skip-wait",
        "Skip the wait of stage {value}",
        "The wait after stage {value} of {name} ends now. An approval cannot be skipped.",
        "Wait skipped for stage {value} of {name}.",
        operations.skip_wait,
        operations.why_not_skip_wait,
        argument="stage",
    ),
    _staged(
        "retry",
        "Retry {name} on {value}",
        "Retries the failed update on {value} immediately.",
        "Retrying {name} on {value}.",
        operations.retry_run,
        operations.why_not_retry_run,
        argument="cluster",
    ),
    _staged(
        "retry-failed",
        "Retry failed clusters of {name}",
        "Retries the failed updates on all clusters immediately.",
        "Retrying {name} on its failed clusters.",
        operations.retry_run,
        operations.why_not_retry_run,
    ),
    _cluster(
        "cordon",
        "Cordon {name}",
        "Adds a NoSchedule taint. Existing placements stay; new ones need a matching toleration.",
        "{name} cordoned.",
        cordon,
    ),
    _cluster(
        "uncordon",
        "Uncordon {name}",
        "Removes the cordon taint.",
        "{name} uncordoned.",
        uncordon,
    ),
    _cluster(
        "leave",
        "Remove {name} from fleet",
        "Placements are rescheduled. Workloads keep running but are no longer managed. This cannot be"
        " undone.",
        "Removing {name} from the fleet.",
        leave,
        is_dangerous=True,
        is_undone=False,
    ),
    _cluster(
        "drain",
        "Drain {name}",
        "Cordons, and evicts placements within their disruption budgets.",
        "Drain of {name} started.",
        drain,
        why_not_drain,
        verb="drain clusters",
        has_form=True,
    ),
    _cluster(
        "cancel-drain",
        "Cancel drain of {name}",
        "Stops evicting; the cordon stays.",
        "Drain of {name} canceled; the cordon stays.",
        cancel_drain,
        why_not_cancel,
        verb="drain clusters",
        has_form=True,
        is_dangerous=True,
    ),
    _cluster(
        "labels",
        "Edit labels of {name}",
        "Sets and removes labels. Other labels stay.",
        "Labels of {name} saved.",
        change_labels,
        verb="edit labels and taints",
        has_form=True,
    ),
    _cluster(
        "taints",
        "Edit taints of {name}",
        "Adds and removes taints. Other taints stay.",
        "Taints of {name} saved.",
        change_taints,
        verb="edit labels and taints",
        has_form=True,
    ),
)
ACTIONS = {(action.kind, action.name): action for action in _ACTIONS}
