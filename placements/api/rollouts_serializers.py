"""Fields of rollouts, rollout plans, staged update runs and strategies, overrides, and of their actions."""

from rest_framework import serializers

from fleetui.apimachinery.kinds import (
    ALPHA_VERSION,
    PLACEMENT_VERSIONS,
    STAGED_RUN_KIND,
    STAGED_STRATEGY_KIND,
)
from placements.api.serializers import (
    AnyObject,
    AnyValue,
    CamelCaseSerializer,
    RowSerializer,
    Text,
    names,
    number,
    text,
)
from placements.manifests.staged_update import RunState
from placements.models import ClusterUpdate, Override, Placement, Rollout, StagedRun, StagedStrategy
from placements.models.overrides import OVERRIDE_KINDS


class RolloutRowSerializer(RowSerializer):
    """A rollout in a list."""

    placement = text("placement_name")
    resource_snapshot = number("resource_number", allow_null=True)
    because = text("trigger")
    ended_because = text("ended_reason")
    changes = number("progress_version", help_text="Changes on every update of the placement.")
    waves_count = serializers.SerializerMethodField()

    class Meta:
        model = Rollout
        fields: tuple[str, ...] = (
            *("placement", "number", "state", "version", "resource_snapshot", "is_deletion", "because"),
            *("started_at", "started_by", "ended_at", "ended_because", "changes", "waves_count"),
        )
        extra_kwargs = {"state": {"help_text": "`running`, `finished`, `superseded` or `stopped`."}}

    def get_waves_count(self, row: Rollout) -> int:
        return len(row.waves)


class RolloutClusterSerializer(CamelCaseSerializer):
    """One cluster of a rollout: its progress, the version that it runs and the one that it is to run."""

    cluster = serializers.CharField()
    wave = serializers.IntegerField(allow_null=True, help_text="As planned; null if it joined later.")
    phase = serializers.CharField(help_text="After the rollout has ended: the last phase.")
    since = serializers.DateTimeField(allow_null=True)
    running = serializers.CharField(allow_null=True, help_text="Such as `r4`: of resource snapshot 4.")
    wanted = serializers.CharField(allow_null=True)
    attempts = serializers.IntegerField()
    retry_at = serializers.DateTimeField(allow_null=True)
    message = serializers.CharField()
    block = serializers.CharField(help_text="What blocks the cluster; empty when nothing does.")
    why = serializers.CharField(help_text="The same as a sentence.")


class RolloutSerializer(RolloutRowSerializer):
    """A rollout with its waves, its last sync result and its clusters."""

    waves = serializers.ListField(child=names())
    answer = AnyValue(
        allow_null=True, help_text="Facts; null after the rollout has ended. Lists have their counts."
    )
    sentences = AnyValue(allow_null=True, help_text="The same as sentences.")
    clusters = RolloutClusterSerializer(many=True, allow_null=True, help_text="null if there are many.")

    class Meta(RolloutRowSerializer.Meta):
        fields = (*RolloutRowSerializer.Meta.fields, "waves", "answer", "sentences", "clusters")


class ClusterUpdateSerializer(RowSerializer):
    """One update of one cluster, and its outcome."""

    cluster = text("cluster_name")

    class Meta:
        model = ClusterUpdate
        fields = (
            *("id", "cluster", "what", "version", "attempt", "started_at", "applied_at", "ended_at"),
            *("outcome", "message"),
        )
        extra_kwargs = {
            "what": {"help_text": "`add`, `update`, `new`, `retry` or `remove`."},
            "outcome": {"help_text": "Empty while it is in progress."},
        }


class WaveSerializer(CamelCaseSerializer):
    """Updates that start together, and the budgets afterwards."""

    number = serializers.IntegerField()
    count = serializers.IntegerField()
    actions = serializers.ListField(child=AnyObject())
    budgets = AnyObject()


class PlanSerializer(CamelCaseSerializer):
    """The waves of a rollout, and the clusters that are blocked after them."""

    waves = WaveSerializer(many=True)
    rest = AnyObject()


class RolloutControlsSerializer(RowSerializer):
    """Rollout controls of a placement: paused, stopped, pinned."""

    placement = text("name")
    stopped = serializers.BooleanField(source="is_stopped")
    held_at = number(
        "pinned_snapshot",
        allow_null=True,
        help_text="The resource snapshot that the placement is pinned to after a rollback.",
    )
    run = serializers.SerializerMethodField(help_text="The number of the rollout in progress.")

    class Meta:
        model = Placement
        fields = ("placement", "revision", "paused_since", "paused_by", "stopped", "held_at", "run")

    def get_run(self, row: Placement) -> int | None:
        number: int | None = self.context["run"]
        return number


class RetrySerializer(CamelCaseSerializer):
    """The cluster on which to retry."""

    cluster = Text(max_length=63)


class RollBackSerializer(CamelCaseSerializer):
    """The resource snapshot to which to roll back."""

    resource_snapshot = serializers.IntegerField(min_value=0, max_value=10**9)


class OverrideSerializer(RowSerializer):
    """An override in a list; its manifest has everything else."""

    placement = text("placement_name", help_text="Empty: it applies to every placement.")

    class Meta:
        model = Override
        fields = ("kind", "namespace", "name", "placement", "revision", "created_at", "updated_at")
        extra_kwargs = {"namespace": {"help_text": "Empty for an override of clusters."}}


class StagedStrategySerializer(RowSerializer):
    """A staged update strategy in a list."""

    class Meta:
        model = StagedStrategy
        fields = ("name", "revision", "created_at", "updated_at")


class StagedRunSerializer(RowSerializer):
    """A staged update run in a list."""

    placement = text("placement_name")
    snapshot = number("resource_number", allow_null=True)

    class Meta:
        model = StagedRun
        fields = (
            *("name", "placement", "status", "snapshot", "revision", "created_at", "created_by"),
            *("started_at", "started_by", "ended_at"),
        )


class OverrideManifestSerializer(CamelCaseSerializer):
    """A ClusterResourceOverride or ResourceOverride."""

    api_version = serializers.CharField(help_text=", ".join((*PLACEMENT_VERSIONS, ALPHA_VERSION)))
    kind = serializers.ChoiceField(OVERRIDE_KINDS)
    metadata = AnyObject()
    spec = AnyObject()


class StagedStrategyManifestSerializer(CamelCaseSerializer):
    """A ClusterStagedUpdateStrategy."""

    api_version = serializers.ChoiceField(PLACEMENT_VERSIONS)
    kind = serializers.ChoiceField([STAGED_STRATEGY_KIND])
    metadata = AnyObject()
    spec = AnyObject()


class StagedRunManifestSerializer(CamelCaseSerializer):
    """A ClusterStagedUpdateRun; the status is written by this console, and ignored in an edit."""

    api_version = serializers.ChoiceField(PLACEMENT_VERSIONS)
    kind = serializers.ChoiceField([STAGED_RUN_KIND])
    metadata = AnyObject()
    spec = AnyObject()
    status = AnyObject(required=False)


class WaitSerializer(CamelCaseSerializer):
    """One thing that a run waits for."""

    stage = serializers.CharField(allow_blank=True)
    clusters = names()
    until = serializers.DateTimeField(allow_null=True)

    def get_fields(self) -> dict[str, serializers.Field[object, object, object, object]]:
        """Add the field whose name is a keyword of Python."""
        return {"for": serializers.CharField(), **super().get_fields()}


class StageClusterSerializer(CamelCaseSerializer):
    """A cluster of a stage, and its progress."""

    name = serializers.CharField()
    state = serializers.CharField(help_text="`to come`, `running`, `failed` or `done`.")
    version = serializers.CharField(help_text="Empty: the placement is removed from the cluster.")
    started_at = serializers.DateTimeField(allow_null=True)
    done_at = serializers.DateTimeField(allow_null=True)
    failed_at = serializers.DateTimeField(allow_null=True)
    failures = serializers.IntegerField()
    retry_at = serializers.DateTimeField(allow_null=True)


class StageSerializer(CamelCaseSerializer):
    """One stage of a run; the last one removes the placement from clusters that are no longer selected."""

    name = serializers.CharField()
    state = serializers.CharField(help_text="`to come`, `current`, `skipped` or `done`.")
    at_once = serializers.IntegerField(help_text="The number of clusters that may be updated concurrently.")
    needs_approval_before = serializers.BooleanField()
    needs_approval_after = serializers.BooleanField()
    approved_before = serializers.DateTimeField(allow_null=True)
    approved_after = serializers.DateTimeField(allow_null=True)
    wait_seconds = serializers.IntegerField()
    updated_at = serializers.DateTimeField(allow_null=True, help_text="When its last cluster was updated.")
    ended_at = serializers.DateTimeField(allow_null=True)
    clusters = StageClusterSerializer(many=True)


class ApprovalSerializer(CamelCaseSerializer):
    """An approval request for a stage."""

    name = serializers.CharField()
    stage = serializers.CharField()
    side = serializers.ChoiceField(["before", "after"])
    asked_at = serializers.DateTimeField()
    approved_at = serializers.DateTimeField(allow_null=True)
    approved_by = serializers.CharField(allow_blank=True)


class ProgressSerializer(CamelCaseSerializer):
    """The progress of a staged update run."""

    name = serializers.CharField()
    placement = serializers.CharField()
    snapshot = serializers.IntegerField(allow_null=True, help_text="The resource snapshot of the run.")
    started_by = serializers.CharField(allow_blank=True)
    status = serializers.CharField()
    sentences = names()
    stage = serializers.CharField(allow_null=True, help_text="The current stage.")
    waits = WaitSerializer(many=True)
    stuck = names()
    may_still_hold = names()
    approvals = ApprovalSerializer(many=True)
    stages = StageSerializer(many=True)


class RunStateSerializer(CamelCaseSerializer):
    """The state of a run: `Stop` pauses it, `Run` starts or resumes it."""

    state = serializers.ChoiceField([str(one) for one in RunState])


class StageRefSerializer(CamelCaseSerializer):
    """The name of a stage."""

    stage = Text()


class FailedClusterSerializer(CamelCaseSerializer):
    """The name of a cluster."""

    cluster = Text()
