"""What is wrong: the problems of each hub, from their first to their last observation."""

from datetime import datetime

from django.db import models
from django.db.models import Q

from clusters.models import Hub
from placements.engine.problems import Noun, ProblemFacts, ProblemLevel
from placements.models.closed_sets import known


class ProblemKind(models.TextChoices):
    """What a problem is about; those of `NOTIFIED` are events of rules."""

    CLUSTER_NOT_READY = "cluster-not-ready", "Cluster not ready"
    CLUSTER_WORKLOADS = "cluster-workloads", "Workloads fail on a cluster"
    APPROVAL_PENDING = "approval-pending", "Approval pending"
    PLACEMENT_NOT_FULFILLED = "placement-not-fulfilled", "Placement not fulfilled"
    PLACEMENT_DEGRADED = "placement-degraded", "Placement degraded or failed"
    ROLLOUT_STALLED = "rollout-stalled", "Rollout stalled"
    ROLLOUT_FAILED = "rollout-failed", "Rollout failed"
    ROLLOUT_HELD = "rollout-held", "Rollout paused or stopped"
    REMOVAL_WAITS = "removal-waits", "Removal waits"
    EVICTION_NOT_EXECUTED = "eviction-not-executed", "Eviction not executed"
    DRIFT = "drift", "Drift"
    DECISION_NOT_REPRODUCIBLE = "decision-not-reproducible", "Decision not reproducible"
    HUB_NOT_LIVE = "hub-not-live", "Hub not live"
    CREDENTIAL_EXPIRES = "credential-expires", "Credential expires"
    CHANNEL_SILENT = "channel-silent", "Notifications fail"
    PLACEMENT_OUTDATED = "placement-outdated", "Placement outdated"
    CLUSTER_LEAVING = "cluster-leaving", "Cluster leaving"


NOT_NOTIFIED = (
    ProblemKind.ROLLOUT_HELD,
    ProblemKind.CHANNEL_SILENT,
    ProblemKind.PLACEMENT_OUTDATED,
    ProblemKind.CLUSTER_LEAVING,
)
"""What a person has asked for, needs no action soon, or cannot be sent."""
NOTIFIED = tuple(kind for kind in ProblemKind if kind not in NOT_NOTIFIED)


class Problem(models.Model):
    """A problem of an object (`placements.engine.problems.ProblemFacts`); the sweep brings it up to date.

    `key` names kind and object, `path` is its page below the root of the hub. `causes` are the keys of the
    problems that it follows from; a root cause has none.
    """

    CHANGING = (
        "level",
        "message",
        "path",
        "reason",
        "placement",
        "causes",
        "labels",
    )
    is_shown = False
    hub = models.ForeignKey(Hub, models.CASCADE, related_name="+")
    key = models.CharField(max_length=400)
    kind = models.CharField(max_length=25, choices=ProblemKind.choices)
    noun = models.CharField(
        max_length=20, default=Noun.PLACEMENT.value, db_default="placement"
    )
    name = models.CharField(max_length=330)
    level = models.CharField(
        max_length=10, default=ProblemLevel.ATTENTION.value, db_default="attention"
    )
    message = models.CharField(max_length=500)
    reason = models.CharField(max_length=40, default="", db_default="")
    placement = models.CharField(max_length=330, default="", db_default="")
    causes = models.JSONField(default=list, db_default=[])
    path = models.CharField(max_length=500)
    labels = models.JSONField(default=dict)
    since = models.DateTimeField()
    seen_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "placements_notificationproblem"
        indexes = [models.Index(fields=["ended_at"], name="problem_by_end")]
        constraints = [
            models.UniqueConstraint(
                fields=["hub", "key"],
                condition=Q(ended_at__isnull=True),
                name="one_open_problem",
            ),
            known("kind", ProblemKind, "problem_kind_known"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @classmethod
    def of(cls, facts: ProblemFacts, *, hub: int, now: datetime) -> "Problem":
        """Return the row of a problem that is seen for the first time; long texts are cut."""
        return cls(
            hub_id=hub,
            key=facts.key[:400],
            kind=facts.kind,
            noun=facts.noun.value,
            name=facts.name[:330],
            level=facts.level.value,
            message=facts.message[:500],
            reason=facts.reason[:40],
            placement=facts.placement[:330],
            causes=list(facts.causes),
            path=facts.path[:500],
            labels=dict(facts.labels),
            since=facts.since or now,
            seen_at=now,
        )

    def take_over(self, fresh: "Problem") -> bool:
        """Take over what has changed since; return whether anything has."""
        changed = [
            name
            for name in self.CHANGING
            if getattr(self, name) != getattr(fresh, name)
        ]
        for name in changed:
            setattr(self, name, getattr(fresh, name))
        return bool(changed)

    @property
    def facts(self) -> ProblemFacts:
        """Return the problem as a value; which clusters may be its cause is known by its causes."""
        return ProblemFacts(
            self.kind,
            self.key,
            Noun(self.noun),
            self.name,
            ProblemLevel(self.level),
            self.message,
            self.path,
            self.since,
            self.reason,
            self.placement,
            causes=tuple(self.causes),
            labels=self.labels,
        )


class ProblemBook(models.Model):
    """When problems and statuses of a hub were compared with the facts last; `totals` counts its placements.

    `version` increases when they change, and when something may have changed that they follow from. The last
    comparison has seen everything up to `observed_version`, and a user has changed something with
    `requested_version`.
    """

    is_shown = False
    hub = models.OneToOneField(Hub, models.CASCADE, related_name="+", primary_key=True)
    version = models.PositiveBigIntegerField(default=0)
    observed_version = models.PositiveBigIntegerField(default=0, db_default=0)
    requested_version = models.PositiveBigIntegerField(default=0, db_default=0)
    totals = models.JSONField(default=dict, db_default={})
    compared_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"problems {self.version} of hub {self.hub_id}"
