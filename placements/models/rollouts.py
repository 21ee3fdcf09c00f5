"""Runs, rolling and staged, with strategies of stages, approval requests, and progress over time."""

from datetime import datetime
from typing import Any
from uuid import uuid4

from django.db import models
from django.db.models import Q, Value
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce

from clusters.models import HubRow
from fleetui.apimachinery.kinds import APPROVAL_KIND, kind_in
from fleetui.apimachinery.model import omit_empty
from fleetui.apimachinery.words import split_full_name
from fleetui.fields import OrderedJSONField
from placements.engine.rollout.staged_run import ApprovalPoint, RunStatus
from placements.models.closed_sets import known, one_of
from placements.models.full_names import LONGEST_NAMESPACE, full_name_column
from placements.models.objects import ObjectRow
from placements.models.placements import LONGEST_FULL_NAME, LONGEST_NAME, Placement
from placements.models.snapshots import ResourceSnapshot


class RunKind(models.TextChoices):
    ROLLING = "rolling"
    STAGED = "staged"


class Run(HubRow):
    """What rolling updates and staged update runs have in common.

    `sync_result` is what happens next and what it waits for, `eta` the last forecast of the time left
    (`placements.services.rollouts.forecasts`). `progress_version` is incremented with every change.
    `revision_number` is the revision of the placement that it rolls out, None where that is not recorded.
    """

    kind: RunKind
    placement: Any
    BEGAN: str
    """The column by which lists order it."""
    LONG_COLUMNS: tuple[str, ...]
    placement_id: int | None
    failed: int
    gate: str | None = None
    """Annotated `with_status`: on how many clusters it failed, and what it waits for first."""

    placement_name = models.CharField(max_length=LONGEST_FULL_NAME)
    resource_snapshot = models.ForeignKey(
        ResourceSnapshot, models.SET_NULL, null=True, related_name="+"
    )
    resource_number = models.PositiveIntegerField(null=True)
    revision_number = models.PositiveBigIntegerField(null=True)
    ended_at = models.DateTimeField(null=True)
    progress_version = models.PositiveBigIntegerField(default=1)
    sync_result = models.JSONField(default=dict)
    eta = models.JSONField(default=dict)

    class Meta:
        abstract = True

    @property
    def label(self) -> str:
        return str(self)

    @property
    def page(self) -> tuple[str, ...]:
        return "staged-run", self.label

    @property
    def is_staged(self) -> bool:
        return self.kind == RunKind.STAGED

    @property
    def is_running(self) -> bool:
        return self.ended_at is None

    @property
    def placement_is_deleted(self) -> bool:  # its name may be that of a later one
        return self.placement_id is None

    @property
    def forecast(self) -> dict[str, Any]:
        # Whatever the last sync found: a staged run is not synced while its placement is paused.
        if self.placement is None or self.placement.paused_since is None:
            return self.eta
        return {**self.eta, "left": None, "reason": "paused"}

    @property
    def began_at(self) -> datetime:
        began_at: datetime = getattr(self, self.BEGAN)
        return began_at


class Rollout(Run):
    """One rolling update of a placement: from the first difference between wanted and running to the end.

    One of a live hub is observed: made by this console from the conditions of the bindings there.
    `verdict` is the phase in the result, which is long, as a column.
    """

    kind = RunKind.ROLLING
    BEGAN = "started_at"
    LONG_COLUMNS = ("sync_result", "waves")

    class State(models.TextChoices):
        RUNNING = "running"
        FINISHED = "finished"
        SUPERSEDED = "superseded"
        STOPPED = "stopped"

    placement = models.ForeignKey(
        Placement, models.SET_NULL, null=True, related_name="rollouts"
    )
    number = models.PositiveIntegerField()
    state = models.CharField(
        max_length=10, choices=State.choices, default=State.RUNNING
    )
    version = models.CharField(max_length=64, blank=True)
    is_deletion = models.BooleanField(default=False)
    trigger = models.CharField(max_length=200)
    started_at = models.DateTimeField()
    started_by = models.CharField(max_length=150)
    ended_reason = models.CharField(max_length=200, blank=True)
    waves = models.JSONField(default=list)
    verdict = models.GeneratedField(
        expression=Coalesce(
            KT("sync_result__verdict"), Value(""), output_field=models.TextField()
        ),
        output_field=models.TextField(),
        db_persist=True,
    )

    class Meta:
        indexes = [
            models.Index(
                fields=["placement_name", "hub", "-id"], name="rollout_of_placement"
            )
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["placement", "number"], name="rollout_number_once"
            ),
            models.UniqueConstraint(
                fields=["placement"],
                condition=Q(state="running"),
                name="one_running_rollout",
            ),
            models.CheckConstraint(
                condition=Q(state="running", ended_at__isnull=True)
                | (~Q(state="running") & Q(ended_at__isnull=False)),
                name="rollout_ended_at",
            ),
            known(
                "state",
                ("running", "finished", "superseded", "stopped"),
                "rollout_state_known",
            ),
        ]

    def __str__(self) -> str:
        return f"rollout {self.label}"

    @property
    def label(self) -> str:
        return f"{self.placement_name}/{self.number}"

    @property
    def page(self) -> tuple[str, ...]:
        return "rollout", self.placement_name, str(self.number)

    @property
    def wave_numbers(self) -> dict[str, int]:
        """The clusters in their planned order, each with the number of its wave."""
        return {
            name: number for number, wave in enumerate(self.waves, 1) for name in wave
        }

    @property
    def is_initial(self) -> bool:  # nothing was placed before
        return self.number == 1 and not self.is_deletion


class ClusterUpdate(HubRow):
    class Outcome(models.TextChoices):
        """How an update ended; empty while it is in progress."""

        AVAILABLE = "available"
        FAILED = "failed"
        REMOVED = "removed"
        SUPERSEDED = "superseded"

    rollout = models.ForeignKey(Rollout, models.CASCADE, related_name="updates")
    cluster_name = models.CharField(max_length=LONGEST_NAME)
    what = models.CharField(max_length=10)
    version = models.CharField(max_length=64, blank=True)
    attempt = models.PositiveIntegerField(default=1)
    started_at = models.DateTimeField()
    applied_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=10, blank=True)
    message = models.CharField(max_length=500, blank=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["rollout", "cluster_name", "-id"], name="update_of_cluster"
            )
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["rollout", "cluster_name"],
                condition=Q(outcome=""),
                name="one_start_under_way",
            ),
            models.CheckConstraint(
                condition=Q(outcome="", ended_at__isnull=True)
                | (~Q(outcome="") & Q(ended_at__isnull=False)),
                name="update_ended_at",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.what} {self.cluster_name}"


_LONGEST_NAME = 253
INITIALISING = "initialising"
"""The status of a run whose placement the scheduler has not decided yet."""
ENDS = (RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.ABANDONED)


class StagedStrategy(ObjectRow):
    """Stages as they were written; a run keeps a copy, so that changing them changes no run."""

    namespace = models.CharField(max_length=LONGEST_NAMESPACE, blank=True, default="")
    name = models.CharField(max_length=_LONGEST_NAME)
    full_name = full_name_column(_LONGEST_NAME)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["full_name", "hub"], name="staged_strategy_once"
            )
        ]

    def __str__(self) -> str:
        return self.full_name


class StagedRun(Run):
    """A staged run: its spec, and its progress.

    `strategy` holds the stages as they were when it was created. `plan` is the run as a value
    (`placements.engine.rollout.staged_run`), None until it is initialized; `overrides` the keys of the
    override snapshots that it froze, by cluster.
    `skipped_waits` and `retries` are actions of users: by stage since when the skipped wait counts, by
    cluster after how many failures it is to be retried.
    `hub_status` is the status of a run of a live hub as that wrote it, at its `generation`: that of its
    spec, 0 where it is not known.
    """

    kind = RunKind.STAGED
    BEGAN = "created_at"
    LONG_COLUMNS = ("plan", "sync_result", "strategy", "overrides", "document")

    namespace = models.CharField(max_length=LONGEST_NAMESPACE, blank=True, default="")
    name = models.CharField(max_length=_LONGEST_NAME)
    full_name = full_name_column(_LONGEST_NAME)
    uid = models.UUIDField(default=uuid4, editable=False)
    document = OrderedJSONField()
    revision = models.PositiveBigIntegerField(default=1)
    placement = models.ForeignKey(
        Placement, models.SET_NULL, null=True, related_name="staged_runs"
    )
    strategy = models.JSONField()
    overrides = models.JSONField(default=dict)
    plan = models.JSONField(null=True)
    status = models.CharField(max_length=12, default=INITIALISING)
    skipped_waits = models.JSONField(default=dict)
    retries = models.JSONField(default=dict)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    started_at = models.DateTimeField(null=True)
    started_by = models.CharField(max_length=150, blank=True)
    generation = models.PositiveBigIntegerField(default=0)
    hub_status = OrderedJSONField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["placement"],
                name="staged_run_active",
                condition=Q(ended_at=None),
            )
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["full_name", "hub"], name="staged_run_once"
            ),
            known("status", (INITIALISING, *RunStatus), "staged_run_status_known"),
            models.CheckConstraint(
                condition=Q(one_of("status", ENDS), ended_at__isnull=False)
                | (~one_of("status", ENDS) & Q(ended_at__isnull=True)),
                name="staged_run_ended_at",
            ),
            models.CheckConstraint(
                condition=Q(started_at__isnull=True, started_by="")
                | (Q(started_at__isnull=False) & ~Q(started_by="")),
                name="staged_run_started_by",
            ),
        ]

    def __str__(self) -> str:
        return self.full_name

    @property
    def spec_generation(self) -> int:
        return self.generation or 1


class RolloutSample(HubRow):
    """Counts of a run's clusters by state as they were observed at one time.

    It belongs to a rolling update or to a staged run. The columns are
    those of `placements.engine.rollout.waves.RolloutProgress`; written when they change.
    """

    rollout = models.ForeignKey(
        Rollout, models.CASCADE, null=True, related_name="samples"
    )
    staged_run = models.ForeignKey(
        StagedRun, models.CASCADE, null=True, related_name="samples"
    )
    at = models.DateTimeField()
    old = models.PositiveIntegerField()
    new = models.PositiveIntegerField()
    unavailable = models.PositiveIntegerField()
    removing = models.PositiveIntegerField()
    number = models.PositiveIntegerField()
    min_available = models.PositiveIntegerField()
    max_total = models.PositiveIntegerField()

    class Meta:
        indexes = [models.Index(fields=["rollout", "at"], name="point_of_rollout")]

    def __str__(self) -> str:
        return f"{self.at:%H:%M:%S}: {self.old + self.new} available of {self.number}"


WAITS_FOR_APPROVAL = Q(approved_at=None, run__ended_at=None) & ~Q(
    run__status__in=(RunStatus.STOPPING, RunStatus.STOPPED)
)
"""An approval request that a run waits for. One that is stopped waits to be resumed first."""


class ApprovalRequest(HubRow):
    """The approval that a stage of a run needs: when it was requested, who approved it, and when.

    `accepted_at` is when the controller of a live hub accepted the approval.
    """

    run = models.ForeignKey(StagedRun, models.CASCADE, related_name="approvals")
    stage = models.CharField(max_length=63)
    side = models.CharField(max_length=6)
    uid = models.UUIDField(default=uuid4, editable=False)
    requested_at = models.DateTimeField()
    approved_at = models.DateTimeField(null=True)
    approved_by = models.CharField(max_length=150, blank=True)
    comment = models.CharField(max_length=500, blank=True)
    accepted_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["run", "stage", "side"], name="approval_requested_once"
            ),
            known("side", ApprovalPoint, "approval_side_known"),
            models.CheckConstraint(
                condition=Q(approved_at__isnull=True, approved_by="")
                | (Q(approved_at__isnull=False) & ~Q(approved_by="")),
                name="approval_by_somebody",
            ),
        ]

    def __str__(self) -> str:
        return self.name_in(self.run)

    def name_in(self, run: StagedRun) -> str:
        """Return the full name of the request: it lives where its run does."""
        return f"{run.full_name}-{self.side}-{self.stage}"

    def to_manifest(self) -> dict[str, Any]:
        namespace, name = split_full_name(str(self))
        approved = {
            "type": "Approved",
            "status": "True",
            "reason": "ApprovedByUser",
            "message": f"by {self.approved_by}{self.comment and f': {self.comment}'}",
            "lastTransitionTime": self.approved_at.isoformat()
            if self.approved_at
            else None,
        }
        return {
            "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
            "kind": kind_in(namespace, APPROVAL_KIND),
            "metadata": omit_empty(name=name, namespace=namespace),
            "spec": {"parentStageRollout": self.run.name, "targetStage": self.stage},
            **({"status": {"conditions": [approved]}} if self.approved_at else {}),
        }
