"""Rolling updates, staged update runs with their strategies, and the actions on both."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from fleetui.bulk import filter_by
from fleetui.permissions import Role
from placements.api.authentication import APPROVING, COMPUTING, OPERATING
from placements.api.base import (
    FullNameViewSet,
    Params,
    Rows,
    actor,
    command_of,
    page_response,
    paged_list,
    query_params,
    route_of,
)
from placements.api.filters import (
    ApprovalQuery,
    DeleteQuery,
    MovesQuery,
    NoQuery,
    NumberedPageQuery,
    PutObjectQuery,
    RescheduleQuery,
    RolloutQuery,
    StagedRunQuery,
)
from placements.api.parsers import has_body, parse_body
from placements.api.preconditions import etag, etag_response, expected_revision
from placements.api.schema import (
    documented,
    documented_patch,
    documented_put,
    operation,
    page_serializer,
)
from placements.api.serializers import (
    APPROVAL_MANIFEST,
    RUN_MANIFEST,
    STRATEGY_MANIFEST,
    AnyValue,
    CamelCaseSerializer,
    PlacementLossSerializer,
    RowSerializer,
    Text,
    enum,
    fields_of,
    names,
    text,
)
from placements.engine.exact.moves import CurvePoint, MovePlan
from placements.engine.rollout.staged_run import (
    ClusterStep,
    RunStatus,
    Stage,
    Wait,
    WaitReason,
)
from placements.explain.rollouts import (
    eta_document,
    result_sentences,
    short_result_document,
)
from placements.explain.staged_updates import StageWords
from placements.manifests.staged_update import RunState
from placements.models import (
    ClusterUpdate,
    Placement,
    Rollout,
    StagedRun,
    StagedStrategy,
)
from placements.models.rollouts import INITIALISING
from placements.services.actions import ACTIONS, ActionKind
from placements.services.disruption.restore import fresh_schedule
from placements.services.history.queries import revision_number_of
from placements.services.loss.evaluation import impact_of_decision
from placements.services.rescheduling import (
    moves_from,
    plan_few_moves,
    reschedule_with_few_moves,
)
from placements.services.results import get_placement
from placements.services.roll_back import roll_back_to
from placements.services.rollouts.controller import running_rollout
from placements.services.rollouts.operations import (
    LONGEST_COMMENT,
    set_state,
)
from placements.services.rollouts.queries import (
    ClusterInRun,
    UnknownRunError,
    approval_manifest,
    approvals_matching,
    clusters_in,
    names_in,
    progress_document,
    report_of,
    run_manifest,
    run_named,
    runs_matching,
)
from placements.services.rollouts.staged_runs import (
    UnknownStrategyError,
    delete_strategy,
    save_run,
    save_strategy,
)
from placements.services.rollouts.stages import RunPreview, preview_of
from placements.services.teams import of_placement, of_run, of_strategy


class RolloutRowSerializer(RowSerializer):
    """A rollout in a list."""

    waves_count = serializers.SerializerMethodField()

    class Meta:
        model = Rollout
        fields: tuple[str, ...] = (
            "placement",
            "placement_is_deleted",
            "number",
            "state",
            "version",
            "resource_snapshot",
            "revision_number",
            "is_deletion",
            "because",
            "started_at",
            "started_by",
            "ended_at",
            "ended_because",
            "changes",
            "waves_count",
        )
        extra_kwargs = {
            "state": {"help_text": "`running`, `finished`, `superseded` or `stopped`."},
            "placement": {"source": "placement_name"},
            "resource_snapshot": {"source": "resource_number"},
            "because": {"source": "trigger"},
            "ended_because": {"source": "ended_reason"},
            "changes": {
                "source": "progress_version",
                "help_text": "Changes on every update of the placement.",
            },
        }

    def get_waves_count(self, row: Rollout) -> int:
        return len(row.waves)


@fields_of(
    ClusterInRun,
    "cluster",
    "wave",
    "phase",
    "since",
    "running",
    "wanted",
    "attempts",
    "retry_at",
    "message",
    "block",
    "why",
    wave="As planned; null if it joined later.",
    phase="After the rollout has ended: the last phase.",
    running="Such as `revision 4`.",
    block="What blocks the cluster; empty when nothing does.",
    why="The same as a sentence, and what unblocks it.",
)
class RolloutClusterSerializer(CamelCaseSerializer):
    """One cluster of a rollout: its progress, the version that it runs and the one that it is to run."""


class EtaRemainingSerializer(CamelCaseSerializer):
    """The time until the rollout ends; 0 once it has ended."""

    seconds = serializers.FloatField()
    runs = serializers.IntegerField(
        help_text="Past rollouts of which it is the median; 0 at the rate of the rollout itself."
    )


class EtaWaitingSerializer(CamelCaseSerializer):
    """The time until now in which nothing could start, by its first cause."""

    approval = serializers.FloatField()
    period = serializers.FloatField()
    budget = serializers.FloatField()
    cluster = serializers.FloatField()


class EtaSerializer(CamelCaseSerializer):
    """The time that a rollout has taken until now, and the forecast of the rest."""

    elapsed = serializers.FloatField()
    waiting = EtaWaitingSerializer()
    remaining = EtaRemainingSerializer(allow_null=True)
    reason = serializers.CharField(
        allow_null=True, help_text="Reason for the missing forecast."
    )


class RolloutSerializer(RolloutRowSerializer):
    """A rollout with its waves, its last sync result and its clusters."""

    waves = serializers.ListField(child=names())
    answer = AnyValue(
        allow_null=True,
        help_text="Facts; null after the rollout has ended. Lists have their counts.",
    )
    sentences = AnyValue(allow_null=True, help_text="The same as sentences.")
    clusters = RolloutClusterSerializer(
        many=True, allow_null=True, help_text="null if there are many."
    )
    eta = EtaSerializer(help_text="The time left, in seconds.")

    class Meta(RolloutRowSerializer.Meta):
        fields = (
            *RolloutRowSerializer.Meta.fields,
            "waves",
            "answer",
            "sentences",
            "clusters",
            "eta",
        )


class ClusterUpdateSerializer(RowSerializer):
    """One update of one cluster, and its outcome."""

    class Meta:
        model = ClusterUpdate
        fields = (
            "id",
            "cluster",
            "what",
            "version",
            "attempt",
            "started_at",
            "applied_at",
            "ended_at",
            "outcome",
            "message",
        )
        extra_kwargs = {
            "what": {"help_text": "`add`, `update`, `new`, `retry` or `remove`."},
            "outcome": {"help_text": "Empty while it is in progress."},
            "cluster": {"source": "cluster_name"},
        }


class RolloutControlsSerializer(RowSerializer):
    """Rollout controls of a placement: paused, stopped, pinned."""

    placement = text("full_name")
    can_roll_back = serializers.SerializerMethodField(
        help_text="Whether there is an earlier revision."
    )
    run = serializers.SerializerMethodField(
        help_text="The number of the rollout in progress."
    )
    revision_number = serializers.SerializerMethodField(
        help_text="The revision as pages name it; `revision` also counts pauses."
    )

    class Meta:
        model = Placement
        fields = (
            "placement",
            "revision",
            "revision_number",
            "paused_since",
            "paused_by",
            "stopped",
            "held_at",
            "can_roll_back",
            "run",
        )
        extra_kwargs = {
            "stopped": {"source": "is_stopped"},
            "held_at": {
                "source": "pinned_snapshot",
                "help_text": "The resource snapshot that the placement is pinned to after a rollback.",
            },
        }

    def get_can_roll_back(self, row: Placement) -> bool:
        return not ACTIONS[ActionKind.ROLLING, "roll-back"].why_not(row, None)

    get_revision_number = staticmethod(revision_number_of)

    def get_run(self, row: Placement) -> int | None:
        number: int | None = self.context["run"]
        return number


class RetrySerializer(CamelCaseSerializer):
    """The cluster on which to retry; without it all failed clusters."""

    cluster = Text(max_length=63, required=False)


class RollBackSerializer(CamelCaseSerializer):
    """What to roll back to: a revision, or only its resources; without both, the revision before."""

    revision = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=10**9,
        help_text="A revision: its policy and its resources.",
    )
    resource_snapshot = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=10**9,
        help_text="A resource snapshot: the policy stays.",
    )


MANY_CLUSTERS = 200


class RolloutViewSet(FullNameViewSet):
    lookup_path = "<full_name:name>/<number:number>"

    @paged_list(
        "list_rollouts",
        RolloutRowSerializer,
        query=RolloutQuery,
        order="-id",
        unique="id",
    )
    def list(self, params: Params) -> Rows:
        """List rollouts, including those of deleted placements, the newest first."""
        rows = runs_matching(Rollout, placement=params["placement"], text=params["q"])
        rows = rows.defer(None).defer("sync_result")  # the waves are counted
        return filter_by(rows, state=params.get("state"))

    @documented("get_rollout", RolloutSerializer)
    def retrieve(
        self,
        request: Request,
        name: str,
        number: int,
    ) -> Response:
        """Get a rollout with its waves, its last sync result and its clusters."""
        run = run_named(name, number)
        report, names = report_of(run), names_in(run)
        rows = clusters_in(run, names, report) if len(names) <= MANY_CLUSTERS else None
        return Response(
            {
                **RolloutRowSerializer(run).data,
                "waves": run.waves,
                "answer": short_result_document(report.result)
                if report.result
                else None,
                "sentences": result_sentences(report.result, is_initial=run.is_initial)
                if report.result
                else None,
                "clusters": None
                if rows is None
                else RolloutClusterSerializer(rows, many=True).data,
                "eta": eta_document(
                    run.forecast,
                    started_at=run.started_at,
                    ended_at=run.ended_at,
                    now=datetime.now(UTC),
                ),
            }
        )

    @operation(
        "list_rollout_clusters",
        page_serializer(RolloutClusterSerializer),
        query=NumberedPageQuery,
    )
    def clusters(
        self,
        request: Request,
        name: str,
        number: int,
    ) -> Response:
        """List the clusters of a rollout by wave, then those that joined later by name."""
        params = query_params(request, NumberedPageQuery)
        run = run_named(name, number)
        names, last = names_in(run), params["after"] + params["limit"]
        items = RolloutClusterSerializer(
            clusters_in(run, names[params["after"] : last], report_of(run)), many=True
        ).data
        return page_response(request, items, last if last < len(names) else None)

    @paged_list(
        "list_rollout_updates", ClusterUpdateSerializer, order="-id", unique="id"
    )
    def updates(
        self,
        params: Params,
        name: str,
        number: int,
    ) -> Rows:
        """List the updates of a rollout with their outcomes, the newest first."""
        return ClusterUpdate.objects.filter(rollout=run_named(name, number))


def rollout_action(
    kind: ActionKind,
    response: type[Serializer[Any]],
    name: str,
    operation_id: str,
    description: str,
    *,
    body: type[Serializer[Any]] | None = None,
    path: str = "",
    is_edit: bool = True,
    can_conflict: bool = True,
    **documentation: Any,
) -> Any:
    """Return the operation for an action of users; it responds with the viewset's `action_response`.

    `body` has the argument of the action, if it has one; `path` is the last part of the address where it
    is not the name of the action.
    """
    chosen, path = ACTIONS[kind, name], path or name
    documentation.setdefault("commands", [command_of(chosen)])

    def method(self: Any, request: Request, name: str) -> Response:
        expected: dict[str, Any] = (
            {"expected": expected_revision(request)} if is_edit else {}
        )
        values = parse_body(request, body) if body else {}
        # The first field is the argument of the action; others are keywords of its operation.
        argument = values.pop(next(iter(values))) if values else ""
        chosen.run(name, argument, **values, **actor(request), **expected)
        result: Response = self.action_response(name)
        return result

    method.__name__, method.__doc__ = path.replace("-", "_"), description
    describe = operation(
        operation_id,
        response,
        method="post",
        path=path,
        scopes=APPROVING if chosen.role is Role.APPROVER else OPERATING,
        route=route_of(chosen),
        body=body,
        is_edit=is_edit,
        problems=(409,) if can_conflict else (),
        **documentation,
    )
    return describe(method)


_rolling = partial(
    rollout_action, ActionKind.ROLLING, RolloutControlsSerializer, has_tag=True
)


@fields_of(CurvePoint)
class CurvePointSerializer(CamelCaseSerializer):
    """The best set of clusters with at most `limit` moves."""


@fields_of(
    MovePlan,
    "wanted",
    "current",
    "curve",
    "chosen",
    "is_cut",
    "refusal",
    "hub",
    is_cut="The search ended before its result is proved.",
)
class MovePlanSerializer(CamelCaseSerializer):
    """What each number of moves reaches, and the chosen one."""

    current = CurvePointSerializer()
    curve = CurvePointSerializer(many=True)
    chosen = CurvePointSerializer()
    refusal = serializers.CharField(
        allow_blank=True, help_text="Why these moves are not possible now."
    )
    hub = serializers.CharField(
        allow_blank=True,
        help_text="On a live hub: whether the hub would follow the moves by evictions.",
    )


class RescheduleSerializer(PlacementLossSerializer):
    """What rescheduling a placement would change; `plan` with `moves` only."""

    plan = MovePlanSerializer(required=False)


class RolloutActionViewSet(FullNameViewSet):
    labels_of = staticmethod(of_placement)
    pause = _rolling(
        "pause",
        "pause_placement",
        "Pause a placement: no new updates start, running updates finish.",
        can_conflict=False,
    )
    resume = _rolling(
        "resume", "resume_placement", "Resume a paused placement.", can_conflict=False
    )
    stop = _rolling(
        "stop",
        "stop_placement",
        "Stop the rollout permanently; no updates start before a new rollout is started.",
    )
    start = _rolling("start", "start_placement", "Start a rollout after a stop.")
    unpin = _rolling("unpin", "unpin_placement", "Unpin a placement after a rollback.")
    retry = _rolling(
        "retry",
        "retry_placement",
        "Retry the failed update of one cluster, or of all, immediately.",
        body=RetrySerializer,
        is_edit=False,
    )

    @operation(
        "roll_back_placement",
        RolloutControlsSerializer,
        method="post",
        body=RollBackSerializer,
        is_edit=True,
        has_tag=True,
        problems=(409,),
        route=route_of(ACTIONS[ActionKind.ROLLING, "roll-back"]),
        commands=[
            {
                "words": "rollout undo",
                "message": "Rolling back {name}, as revision {revisionNumber}.",
                "body": {},
            }
        ],
    )
    def rollback(self, request: Request, name: str) -> Response:
        """Roll back to an older revision or resource snapshot, and pin the placement to its resources."""
        expected = expected_revision(request)
        body = parse_body(request, RollBackSerializer) if has_body(request) else {}
        options: dict[str, Any] = {**actor(request), "expected": expected}
        if "resource_snapshot" in body:
            ACTIONS[ActionKind.ROLLING, "roll-back"].run(
                name, body["resource_snapshot"], **options
            )
        else:
            roll_back_to(name, body.get("revision"), **options)
        return self.action_response(name)

    def action_response(self, name: str, *, status: int = 200) -> Response:
        row = get_placement(name)
        run = running_rollout(row)
        return etag_response(
            self.request,
            (
                RolloutControlsSerializer(
                    row, context={"run": run.number if run else None}
                ).data
            ),
            etag(row.revision),
            status=status,
        )

    @operation(
        "get_fresh_schedule",
        RescheduleSerializer,
        query=MovesQuery,
        is_costly=True,
        problems=(409, 422),
        route=route_of(ACTIONS[ActionKind.ROLLING, "reschedule"]),
        commands=[command_of(ACTIONS[ActionKind.ROLLING, "reschedule"])],
    )
    def reschedule(self, request: Request, name: str) -> Response:
        """Get the impact of rescheduling: every cluster is a candidate, present ones win ties.

        With `moves`, of the best set that so many moves reach, and `plan`, what each number of moves reaches.
        """
        placement, moves = (
            get_placement(name),
            query_params(request, MovesQuery)["moves"],
        )
        if not moves:
            return Response(RescheduleSerializer(fresh_schedule(placement)).data)
        few = plan_few_moves(placement, moves_from(moves))
        impact = RescheduleSerializer(impact_of_decision(placement, few.decision)).data
        plan = MovePlanSerializer(
            {**vars(few.plan), "refusal": few.refusal, "hub": few.hub}
        ).data
        return Response({**impact, "plan": plan})

    @documented(
        "reschedule_placement",
        RolloutControlsSerializer,
        status=202,
        query=RescheduleQuery,
        is_edit=True,
        has_tag=True,
        is_costly=True,
        problems=(409, 422),
        commands=[command_of(ACTIONS[ActionKind.ROLLING, "reschedule"])],
    )
    @reschedule.mapping.post
    def begin_reschedule(self, request: Request, name: str) -> Response:
        """Reschedule a placement under the same policy; the changes roll out.

        Refused (409) without `confirm` where no cluster would be selected.
        """
        query = query_params(request, RescheduleQuery)
        options: dict[str, Any] = {
            **actor(request),
            "expected": expected_revision(request),
        }
        if moves := query["moves"]:
            reschedule_with_few_moves(name, moves=moves_from(moves), **options)
        else:
            ACTIONS[ActionKind.ROLLING, "reschedule"].perform(
                name, confirmed="confirm" in query, **options
            )
        return self.action_response(name, status=202)


class StagedStrategySerializer(RowSerializer):
    """A staged update strategy in a list."""

    class Meta:
        model = StagedStrategy
        fields = ("namespace", "name", "revision", "created_at", "updated_at")


class NewRunSerializer(CamelCaseSerializer):
    """The placement of a run, and the resource snapshot that it would roll out."""

    placement = Text(max_length=400)
    snapshot = serializers.IntegerField(required=False, min_value=0, max_value=10**9)


@fields_of(StageWords, "name", "at_once", "clusters", within="words")
class StagePreviewSerializer(CamelCaseSerializer):
    """A stage of a run that has not started."""

    clusters = names()


@fields_of(
    RunPreview,
    "stages",
    "deletions",
    "problems",
    deletions="The clusters that the last stage removes it from.",
)
class RunPreviewSerializer(CamelCaseSerializer):
    """The stages of a run that would start now, or why none can."""

    stages = StagePreviewSerializer(many=True)


class StagedRunSerializer(RowSerializer):
    """A staged update run in a list."""

    class Meta:
        model = StagedRun
        fields = (
            "namespace",
            "name",
            "placement",
            "placement_is_deleted",
            "status",
            "snapshot",
            "revision_number",
            "revision",
            "created_at",
            "created_by",
            "started_at",
            "started_by",
            "ended_at",
        )
        extra_kwargs = {
            "placement": {"source": "placement_name"},
            "snapshot": {"source": "resource_number"},
        }


@fields_of(Wait, "stage", "clusters", "until")
class WaitSerializer(CamelCaseSerializer):
    """One thing that a run waits for."""

    clusters = names()

    def get_fields(
        self,
    ) -> dict[str, serializers.Field[object, object, object, object]]:
        return {"for": enum(WaitReason), **super().get_fields()}


@fields_of(
    ClusterStep,
    "name",
    "state",
    "version",
    "started_at",
    "done_at",
    "failed_at",
    "failures",
    "retry_at",
    version="Empty: the placement is removed from the cluster.",
)
class StageClusterSerializer(CamelCaseSerializer):
    """A cluster of a stage, and its progress."""

    state = enum(["to come", "running", "failed", "done"])


@fields_of(
    Stage,
    "name",
    "state",
    "at_once",
    "needs_approval_before",
    "needs_approval_after",
    "approved_before",
    "approved_after",
    "wait_seconds",
    "updated_at",
    "ended_at",
    "clusters",
    updated_at="When its last cluster was updated.",
)
class StageSerializer(CamelCaseSerializer):
    """One stage of a run; the last one removes the placement from clusters that are no longer selected."""

    state = enum(
        ["to come", "current", "skipped", "done", "aborted", "failed", "not reached"]
    )
    at_once = serializers.IntegerField(
        help_text="The number of clusters that may be updated concurrently."
    )
    approved_before = serializers.DateTimeField(allow_null=True)
    approved_after = serializers.DateTimeField(allow_null=True)
    wait_seconds = serializers.IntegerField()
    clusters = StageClusterSerializer(many=True)


class ApprovalSerializer(CamelCaseSerializer):
    """An approval request for a stage."""

    name = serializers.CharField()
    stage = serializers.CharField()
    side = serializers.ChoiceField(["before", "after"])
    asked_at = serializers.DateTimeField()
    approved_at = serializers.DateTimeField(allow_null=True)
    approved_by = serializers.CharField(allow_blank=True)
    comment = serializers.CharField(allow_blank=True)


class ApprovalRowSerializer(ApprovalSerializer):
    """An approval request in the list of all runs."""

    name = text("full_name")
    run = text("run.full_name")
    placement = text("run.placement_name")
    asked_at = serializers.DateTimeField(source="requested_at")


class ProgressSerializer(CamelCaseSerializer):
    """The progress of a staged update run."""

    name = serializers.CharField()
    placement = serializers.CharField()
    snapshot = serializers.IntegerField(
        allow_null=True, help_text="The resource snapshot of the run."
    )
    started_by = serializers.CharField(allow_blank=True)
    status = enum([INITIALISING, *RunStatus])
    sentences = names()
    stage = serializers.CharField(allow_null=True, help_text="The current stage.")
    waits = WaitSerializer(many=True)
    stuck = names()
    may_still_hold = names()
    approvals = ApprovalSerializer(many=True)
    eta = EtaSerializer(
        help_text="The time left, in seconds, without waiting for approvals."
    )
    stages = StageSerializer(many=True)


class RunStateInputSerializer(CamelCaseSerializer):
    """The state of a run: `Stop` pauses it, `Run` starts or resumes it."""

    state = serializers.ChoiceField([str(run_state) for run_state in RunState])


class StageRefSerializer(CamelCaseSerializer):
    """The name of a stage."""

    stage = Text()


class ApproveSerializer(StageRefSerializer):
    """The name of a stage, and a comment that is kept with the approval."""

    comment = Text(required=False, allow_blank=True, max_length=LONGEST_COMMENT)


class StagedStrategyViewSet(FullNameViewSet):
    labels_of = staticmethod(of_strategy)
    model = StagedStrategy
    not_found = UnknownStrategyError

    @paged_list("list_staged_strategies", StagedStrategySerializer, unique="full_name")
    def list(self, params: Params) -> Rows:
        """List staged update strategies, by name."""
        return StagedStrategy.objects.defer("document")

    @documented("get_staged_strategy", STRATEGY_MANIFEST, has_tag=True)
    def retrieve(self, request: Request, name: str) -> Response:
        """Get the manifest of a staged update strategy."""
        return self.manifest_response()

    @documented_put("put_staged_strategy", STRATEGY_MANIFEST, query=PutObjectQuery)
    def update(self, request: Request, name: str) -> Response:
        """Create or update a staged update strategy; runs keep the one that they started with."""
        return self.put_manifest(save_strategy, query=PutObjectQuery)

    @documented_patch("patch_staged_strategy", STRATEGY_MANIFEST, query=PutObjectQuery)
    def partial_update(self, request: Request, name: str) -> Response:
        """Change parts of a staged update strategy by a merge patch."""
        return self.update(request, name=name)

    @documented(
        "delete_staged_strategy", None, status=204, query=DeleteQuery, is_edit=True
    )
    def destroy(self, request: Request, name: str) -> Response:
        """Delete a staged update strategy; runs that started with it continue."""
        delete_strategy(name, **actor(request), expected=expected_revision(request))
        return Response(status=204)

    @documented(
        "preview_staged_run",
        RunPreviewSerializer,
        body=NewRunSerializer,
        scopes=COMPUTING,
        is_costly=True,
        commands=[{"words": "staged preview", "message": "", "body": {}}],
    )
    def preview(self, request: Request, name: str) -> Response:
        """Preview the stages of a run with their clusters; nothing is saved."""
        strategy: StagedStrategy = self.get_object()
        body = parse_body(request, NewRunSerializer)
        preview = preview_of(
            get_placement(body["placement"]),
            strategy,
            body.get("snapshot"),
            now=datetime.now(UTC),
        )
        return Response(RunPreviewSerializer(preview).data)


_staged = partial(rollout_action, ActionKind.STAGED, ProgressSerializer, is_edit=False)


class StagedRunViewSet(FullNameViewSet):
    labels_of = staticmethod(of_run)
    model = StagedRun
    not_found = UnknownRunError
    approve = _staged(
        "approve",
        "approve_stage",
        "Approve a stage; the user, the time and the comment are recorded.",
        body=ApproveSerializer,
    )
    skip_wait = _staged(
        "skip-wait",
        "skip_wait",
        "Skip the timed wait of a stage; approvals cannot be skipped.",
        body=StageRefSerializer,
    )
    retry = _staged(
        "retry",
        "retry_staged_cluster",
        "Retry the failed update of one cluster, or of all, immediately.",
        body=RetrySerializer,
    )
    abandon = _staged(
        "abandon",
        "abandon_staged_run",
        "Abort a run permanently; running updates finish.",
    )

    def manifest_and_status(self, row: StagedRun) -> tuple[Any, dict[str, Any]]:
        manifest = run_manifest(row)
        return manifest, manifest["status"]

    def action_response(self, name: str) -> Response:
        return Response(progress_document(self.get_object()))

    @paged_list(
        "list_staged_runs",
        StagedRunSerializer,
        query=StagedRunQuery,
        order="-id",
        unique="id",
    )
    def list(self, params: Params) -> Rows:
        """List staged update runs, the newest first."""
        rows = runs_matching(StagedRun, placement=params["placement"])
        is_active = params["active"]
        return rows if is_active is None else rows.filter(ended_at__isnull=is_active)

    @documented("get_staged_run", RUN_MANIFEST, has_tag=True)
    def retrieve(self, request: Request, name: str) -> Response:
        """Get the manifest of a staged update run with its status."""
        return self.manifest_response()

    @documented_put("put_staged_run", RUN_MANIFEST)
    def update(self, request: Request, name: str) -> Response:
        """Create a staged update run, or set the state of one; its status has what blocks its start."""
        return self.put_manifest(save_run)

    @operation(
        "get_staged_progress",
        ProgressSerializer,
        commands=[{"words": "staged status", "message": "", "body": {}}],
    )
    def progress(self, request: Request, name: str) -> Response:
        """Get the progress of a run as sentences, by stage and by cluster."""
        return Response(progress_document(self.get_object()))

    # One operation for the actions resume and stop: the state is a field of the manifest.
    @operation(
        "set_staged_state",
        ProgressSerializer,
        body=RunStateInputSerializer,
        is_edit=True,
        method="post",
        route=route_of(ACTIONS[ActionKind.STAGED, "resume"]),
        commands=[
            {
                **command_of(
                    ACTIONS[ActionKind.STAGED, "resume"], state=str(RunState.RUN)
                ),
                "help": "Start a run, or resume one that is paused",
            },
            {
                **command_of(
                    ACTIONS[ActionKind.STAGED, "pause"], state=str(RunState.STOP)
                ),
                "help": "Pause a run: no new updates start before it is resumed",
            },
        ],
    )
    def state(self, request: Request, name: str) -> Response:
        """Start, pause or resume a run."""
        (state,) = parse_body(request, RunStateInputSerializer).values()
        set_state(name, state, **actor(request), expected=expected_revision(request))
        return self.action_response(name)


class ApprovalViewSet(FullNameViewSet):
    """The approval requests of all staged update runs; `staged-runs/{name}/approve` approves one."""

    @paged_list(
        "list_approvals",
        ApprovalRowSerializer,
        query=ApprovalQuery,
        order="-id",
        unique="id",
    )
    def list(self, params: Params) -> Rows:
        """List approval requests, the newest first."""
        rows = approvals_matching(run=params["run"])
        pending = params.get("pending")
        if pending is None:
            return rows
        return rows.filter(approved_at__isnull=pending == "true")

    @documented("get_approval", APPROVAL_MANIFEST, query=NoQuery)
    def retrieve(self, request: Request, name: str) -> Response:
        """Get the manifest of an approval request, with its status once it is approved."""
        return Response(approval_manifest(name))
