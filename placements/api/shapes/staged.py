"""Staged updates and overrides: rows of lists, manifests, what a run is doing, what hands send."""

from rest_framework import serializers

from placements.api.shapes.manifests import AnyObject
from placements.models import Override, StagedRun, StagedStrategy
from placements.models.overrides import OVERRIDE_KINDS
from placements.scheduling.door.kinds import (
    ALPHA_VERSION,
    PLACEMENT_VERSIONS,
    STAGED_RUN_KIND,
    STAGED_STRATEGY_KIND,
)
from placements.scheduling.door.staged_documents import RunState


class OverrideRow(serializers.Serializer[Override]):
    """An override in a list; its manifest has the rest."""

    kind = serializers.CharField()
    namespace = serializers.CharField(help_text="Empty for one that is for clusters.")
    name = serializers.CharField()
    placement = serializers.CharField(source="placement_name", help_text="Empty: it is for every placement.")
    revision = serializers.IntegerField()
    createdAt = serializers.DateTimeField(source="created_at")
    updatedAt = serializers.DateTimeField(source="updated_at")


class StagedStrategyRow(serializers.Serializer[StagedStrategy]):
    """A strategy of staged updates in a list."""

    name = serializers.CharField()
    revision = serializers.IntegerField()
    createdAt = serializers.DateTimeField(source="created_at")
    updatedAt = serializers.DateTimeField(source="updated_at")


class StagedRunRow(serializers.Serializer[StagedRun]):
    """A staged run in a list."""

    name = serializers.CharField()
    placement = serializers.CharField(source="placement_name")
    status = serializers.CharField()
    snapshot = serializers.IntegerField(source="resource_number", allow_null=True)
    revision = serializers.IntegerField()
    createdAt = serializers.DateTimeField(source="created_at")
    createdBy = serializers.CharField(source="created_by")
    startedAt = serializers.DateTimeField(source="started_at", allow_null=True)
    startedBy = serializers.CharField(source="started_by")
    endedAt = serializers.DateTimeField(source="ended_at", allow_null=True)


class OverrideManifest(serializers.Serializer[object]):
    """A ClusterResourceOverride or ResourceOverride."""

    apiVersion = serializers.CharField(help_text=", ".join((*PLACEMENT_VERSIONS, ALPHA_VERSION)))
    kind = serializers.ChoiceField(OVERRIDE_KINDS)
    metadata = AnyObject()
    spec = AnyObject()


class StagedStrategyManifest(serializers.Serializer[object]):
    """A ClusterStagedUpdateStrategy."""

    apiVersion = serializers.ChoiceField(PLACEMENT_VERSIONS)
    kind = serializers.ChoiceField([STAGED_STRATEGY_KIND])
    metadata = AnyObject()
    spec = AnyObject()


class StagedRunManifest(serializers.Serializer[object]):
    """A ClusterStagedUpdateRun; the status is ours, and what an edit says of it changes nothing."""

    apiVersion = serializers.ChoiceField(PLACEMENT_VERSIONS)
    kind = serializers.ChoiceField([STAGED_RUN_KIND])
    metadata = AnyObject()
    spec = AnyObject()
    status = AnyObject(required=False)


class WaitShape(serializers.Serializer[object]):
    """One thing that a run waits for."""

    stage = serializers.CharField(allow_blank=True)
    clusters = serializers.ListField(child=serializers.CharField())
    until = serializers.DateTimeField(allow_null=True)

    def get_fields(self) -> dict[str, serializers.Field[object, object, object, object]]:
        """Add the field whose name is a word of Python."""
        return {"for": serializers.CharField(), **super().get_fields()}


class StepShape(serializers.Serializer[object]):
    """What a run does on one cluster."""

    name = serializers.CharField()
    state = serializers.CharField(help_text="`to come`, `running`, `failed` or `done`.")
    version = serializers.CharField(help_text="Empty: everything of the placement is taken away.")
    startedAt = serializers.DateTimeField(allow_null=True)
    doneAt = serializers.DateTimeField(allow_null=True)
    failedAt = serializers.DateTimeField(allow_null=True)
    failures = serializers.IntegerField()
    retryAt = serializers.DateTimeField(allow_null=True)


class StageShape(serializers.Serializer[object]):
    """One stage of a run; the last one takes away what is no longer wanted."""

    name = serializers.CharField()
    state = serializers.CharField(help_text="`to come`, `current`, `skipped` or `done`.")
    atOnce = serializers.IntegerField(help_text="How many clusters may run at once.")
    needsApprovalBefore = serializers.BooleanField()
    needsApprovalAfter = serializers.BooleanField()
    approvedBefore = serializers.DateTimeField(allow_null=True)
    approvedAfter = serializers.DateTimeField(allow_null=True)
    waitSeconds = serializers.IntegerField()
    updatedAt = serializers.DateTimeField(allow_null=True, help_text="When its last cluster was done.")
    endedAt = serializers.DateTimeField(allow_null=True)
    clusters = StepShape(many=True)


class ApprovalShape(serializers.Serializer[object]):
    """A request that somebody lets a stage go on."""

    name = serializers.CharField()
    stage = serializers.CharField()
    side = serializers.ChoiceField(["before", "after"])
    askedAt = serializers.DateTimeField()
    approvedAt = serializers.DateTimeField(allow_null=True)
    approvedBy = serializers.CharField(allow_blank=True)


class ProgressShape(serializers.Serializer[object]):
    """What a run is doing, and how far it has come."""

    name = serializers.CharField()
    placement = serializers.CharField()
    snapshot = serializers.IntegerField(allow_null=True, help_text="The resource snapshot that it brings.")
    startedBy = serializers.CharField(allow_blank=True)
    status = serializers.CharField()
    sentences = serializers.ListField(child=serializers.CharField())
    stage = serializers.CharField(allow_null=True, help_text="The stage that has not ended.")
    waits = WaitShape(many=True)
    stuck = serializers.ListField(child=serializers.CharField())
    mayStillHold = serializers.ListField(child=serializers.CharField())
    approvals = ApprovalShape(many=True)
    stages = StageShape(many=True)


class StateShape(serializers.Serializer[object]):
    """What is wanted of a run: `Stop` pauses it, `Run` lets it go, or go on."""

    state = serializers.ChoiceField([str(one) for one in RunState])


class StageNameShape(serializers.Serializer[object]):
    """Which stage is meant."""

    stage = serializers.CharField()


class ClusterNameShape(serializers.Serializer[object]):
    """Which cluster is meant."""

    cluster = serializers.CharField()
