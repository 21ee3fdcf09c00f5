"""Staged updates: strategies, runs, and the requests that somebody lets a stage go on."""

from typing import Any

from django.db import models
from django.db.models import Q

from fleetui.written import WrittenField
from placements.models.closed_sets import one_of
from placements.models.placements import LONGEST_NAME, Placement
from placements.models.snapshots import ResourceSnapshot
from placements.rollout.staged_facts import RunStatus
from placements.rollout.stages import When
from placements.scheduling.door.kinds import APPROVAL_KIND

_LONGEST_NAME = 253
INITIALISING = "initialising"
"""The status of a run whose placement the scheduler has not decided yet."""
ENDS = (RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.ABANDONED)


class StagedStrategy(models.Model):
    """Stages as they were written; a run keeps a copy, so that changing them changes no run."""

    name = models.CharField(max_length=_LONGEST_NAME, unique=True)
    document = WrittenField()
    revision = models.PositiveBigIntegerField(default=1)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    def __str__(self) -> str:
        """Give its name."""
        return self.name


class StagedRun(models.Model):
    """A staged run: what its author wants, and how far it has come.

    `strategy` are the stages as they were when it was made. `plan` is the run as a value
    (`placements.rollout.stages`), None until it is initialised; `overrides` the keys of the override
    snapshots that it froze, by cluster; `answer` what happens next and what it waits for. `skipped_waits` and
    `retries` are what hands did, by stage and by cluster, and when. `changes` moves with all that happens.
    """

    name = models.CharField(max_length=_LONGEST_NAME, unique=True)
    document = WrittenField()
    revision = models.PositiveBigIntegerField(default=1)
    placement = models.ForeignKey(Placement, models.SET_NULL, null=True, related_name="staged_runs")
    placement_name = models.CharField(max_length=LONGEST_NAME)
    strategy = models.JSONField()
    resource_snapshot = models.ForeignKey(ResourceSnapshot, models.SET_NULL, null=True, related_name="+")
    resource_number = models.PositiveIntegerField(null=True)
    overrides = models.JSONField(default=dict)
    plan = models.JSONField(null=True)
    answer = models.JSONField(default=dict)
    status = models.CharField(max_length=12, default=INITIALISING)
    skipped_waits = models.JSONField(default=dict)
    retries = models.JSONField(default=dict)
    changes = models.PositiveBigIntegerField(default=1)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    started_at = models.DateTimeField(null=True)
    started_by = models.CharField(max_length=150, blank=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["placement"], name="staged_run_active", condition=Q(ended_at=None)),
        ]
        constraints = [
            models.CheckConstraint(
                condition=one_of("status", (INITIALISING, *RunStatus)), name="staged_run_status_known"
            ),
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
        """Give its name."""
        return self.name


class ApprovalRequest(models.Model):
    """A stage of a run waits for somebody: asked when, and approved by whom and when."""

    run = models.ForeignKey(StagedRun, models.CASCADE, related_name="approvals")
    stage = models.CharField(max_length=63)
    side = models.CharField(max_length=6)
    asked_at = models.DateTimeField()
    approved_at = models.DateTimeField(null=True)
    approved_by = models.CharField(max_length=150, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "stage", "side"], name="approval_asked_once"),
            models.CheckConstraint(condition=one_of("side", When), name="approval_side_known"),
            models.CheckConstraint(
                condition=Q(approved_at__isnull=True, approved_by="")
                | (Q(approved_at__isnull=False) & ~Q(approved_by="")),
                name="approval_by_somebody",
            ),
        ]

    def __str__(self) -> str:
        """Name it as the released system does."""
        return self.name_in(self.run)

    def name_in(self, run: StagedRun) -> str:
        """Give its name without looking its run up."""
        return f"{run.name}-{self.side}-{self.stage}"

    def to_manifest(self) -> dict[str, Any]:
        """Give the document, with who approved and when."""
        approved = {
            "type": "Approved",
            "status": "True",
            "reason": "ApprovedByUser",
            "message": f"by {self.approved_by}",
            "lastTransitionTime": self.approved_at.isoformat() if self.approved_at else None,
        }
        return {
            "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
            "kind": APPROVAL_KIND,
            "metadata": {"name": str(self)},
            "spec": {"parentStageRollout": self.run.name, "targetStage": self.stage},
            **({"status": {"conditions": [approved]}} if self.approved_at else {}),
        }
