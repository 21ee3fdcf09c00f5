"""Runs of rolling updates, their plans, and people's hands on them."""

from rest_framework import serializers

from placements.api.shapes.manifests import AnyObject, AnyValue
from placements.api.shapes.queries import NumberedPageQuery, PageQuery
from placements.models import ClusterUpdate, Placement, Rollout


class RolloutQuery(PageQuery):
    """What a list of runs is narrowed down to."""

    placement = serializers.CharField(required=False, default="", allow_blank=True, max_length=400)
    state = serializers.ChoiceField([str(one) for one in Rollout.State], required=False)


class RunClusterQuery(NumberedPageQuery):
    """Which clusters of a run."""


class RolloutRow(serializers.Serializer[Rollout]):
    """A run in a list."""

    placement = serializers.CharField(source="placement_name")
    number = serializers.IntegerField()
    state = serializers.CharField(help_text="`running`, `finished`, `superseded` or `stopped`.")
    version = serializers.CharField()
    resourceSnapshot = serializers.IntegerField(source="resource_number", allow_null=True)
    isDeletion = serializers.BooleanField(source="is_deletion")
    because = serializers.CharField()
    startedAt = serializers.DateTimeField(source="started_at")
    startedBy = serializers.CharField(source="started_by")
    endedAt = serializers.DateTimeField(source="ended_at", allow_null=True)
    endedBecause = serializers.CharField(source="ended_because")
    changes = serializers.IntegerField(help_text="Moves with everything that happens in it.")
    wavesCount = serializers.SerializerMethodField()

    def get_wavesCount(self, row: Rollout) -> int:  # noqa: N802 -- named after its field
        """Count the waves."""
        return len(row.waves)


class RunClusterShape(serializers.Serializer[object]):
    """One cluster of a run: how far it is, what it runs and what it is to run."""

    cluster = serializers.CharField()
    wave = serializers.IntegerField(allow_null=True, help_text="As planned; null for one that joined later.")
    phase = serializers.CharField(help_text="After the run: how it came out of it.")
    since = serializers.DateTimeField(allow_null=True)
    running = serializers.CharField(allow_null=True, help_text="Such as `r4`: of resource snapshot 4.")
    wanted = serializers.CharField(allow_null=True)
    attempts = serializers.IntegerField()
    retryAt = serializers.DateTimeField(source="retry_at", allow_null=True)
    message = serializers.CharField()
    block = serializers.CharField(help_text="What keeps it waiting; empty when nothing does.")
    why = serializers.CharField(help_text="The same in words.")


class RolloutShape(RolloutRow):
    """A run: its waves, what may happen next and why not more, and its clusters."""

    waves = serializers.ListField(child=serializers.ListField(child=serializers.CharField()))
    answer = AnyValue(allow_null=True, help_text="Facts; null once it has ended. Lists have their counts.")
    sentences = AnyValue(allow_null=True, help_text="The same in words.")
    clusters = RunClusterShape(many=True, allow_null=True, help_text="null where there are many.")


class ClusterUpdateRow(serializers.Serializer[ClusterUpdate]):
    """One start on one cluster, and what became of it."""

    id = serializers.IntegerField()
    cluster = serializers.CharField(source="cluster_name")
    what = serializers.CharField(help_text="`add`, `update`, `new`, `retry` or `remove`.")
    version = serializers.CharField()
    attempt = serializers.IntegerField()
    startedAt = serializers.DateTimeField(source="started_at")
    appliedAt = serializers.DateTimeField(source="applied_at", allow_null=True)
    endedAt = serializers.DateTimeField(source="ended_at", allow_null=True)
    outcome = serializers.CharField(help_text="Empty while it is under way.")
    message = serializers.CharField()


class WaveShape(serializers.Serializer[object]):
    """What starts together, and the budgets after that."""

    number = serializers.IntegerField()
    count = serializers.IntegerField()
    actions = serializers.ListField(child=AnyObject())
    budgets = AnyObject()


class PlanShape(serializers.Serializer[object]):
    """The waves, and who would still wait after them."""

    waves = WaveShape(many=True)
    rest = AnyObject()


class HandShape(serializers.Serializer[Placement]):
    """How people's hands lie on a placement."""

    placement = serializers.CharField(source="name")
    revision = serializers.IntegerField()
    pausedSince = serializers.DateTimeField(source="paused_since", allow_null=True)
    pausedBy = serializers.CharField(source="paused_by")
    stopped = serializers.BooleanField(source="is_stopped")
    heldAt = serializers.IntegerField(
        source="held_number", allow_null=True, help_text="The resource snapshot that a rollback holds it at."
    )
    run = serializers.SerializerMethodField(help_text="The number of the run that is under way.")

    def get_run(self, row: Placement) -> int | None:  # noqa: ARG002 -- the framework's
        """Give the number of the run that is under way."""
        found: int | None = self.context.get("run")
        return found


class RetryShape(serializers.Serializer[object]):
    """Where to try again."""

    cluster = serializers.CharField(max_length=63)


class RollBackShape(serializers.Serializer[object]):
    """To which resources to go back."""

    resourceSnapshot = serializers.IntegerField(min_value=0, max_value=10**9)
