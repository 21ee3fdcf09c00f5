"""Staged update strategies and runs, and the actions on runs."""

from functools import partial
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.base import (
    FullNameViewSet,
    Params,
    Rows,
    actor,
    paged_list,
    route_of,
)
from placements.api.filters import DeleteQuery, PutObjectQuery, StagedRunQuery
from placements.api.parsers import parse_body
from placements.api.preconditions import expected_revision
from placements.api.rollouts import EtaSerializer, rollout_action
from placements.api.schema import (
    documented,
    documented_patch,
    documented_put,
    operation,
)
from placements.api.serializers import (
    RUN_MANIFEST,
    STRATEGY_MANIFEST,
    CamelCaseSerializer,
    RowSerializer,
    Text,
    enum,
    names,
    number,
    text,
)
from placements.engine.rollout.staged_run import RunStatus, WaitReason
from placements.manifests.staged_update import RunState
from placements.models import StagedRun, StagedStrategy
from placements.models.rollouts import INITIALISING
from placements.services.actions import ACTIONS, ActionKind
from placements.services.rollouts.operations import (
    LONGEST_COMMENT,
    set_state,
)
from placements.services.rollouts.queries import (
    UnknownRunError,
    progress_document,
    run_manifest,
    runs_matching,
)
from placements.services.rollouts.staged_runs import save_run
from placements.services.rollouts.staged_strategies import (
    UnknownStrategyError,
    delete_strategy,
    save_strategy,
)
from placements.services.teams import of_run, of_strategy


class StagedStrategySerializer(RowSerializer):
    """A staged update strategy in a list."""

    class Meta:
        model = StagedStrategy
        fields = ("namespace", "name", "revision", "created_at", "updated_at")


class StagedRunSerializer(RowSerializer):
    """A staged update run in a list."""

    placement = text("placement_name")
    snapshot = number("resource_number", allow_null=True)

    class Meta:
        model = StagedRun
        fields = (
            "namespace",
            "name",
            "placement",
            "status",
            "snapshot",
            "revision",
            "created_at",
            "created_by",
            "started_at",
            "started_by",
            "ended_at",
        )


class WaitSerializer(CamelCaseSerializer):
    """One thing that a run waits for."""

    stage = serializers.CharField(allow_blank=True)
    clusters = names()
    until = serializers.DateTimeField(allow_null=True)

    def get_fields(
        self,
    ) -> dict[str, serializers.Field[object, object, object, object]]:
        return {"for": enum(WaitReason), **super().get_fields()}


class StageClusterSerializer(CamelCaseSerializer):
    """A cluster of a stage, and its progress."""

    name = serializers.CharField()
    state = enum(["to come", "running", "failed", "done"])
    version = serializers.CharField(
        help_text="Empty: the placement is removed from the cluster."
    )
    started_at = serializers.DateTimeField(allow_null=True)
    done_at = serializers.DateTimeField(allow_null=True)
    failed_at = serializers.DateTimeField(allow_null=True)
    failures = serializers.IntegerField()
    retry_at = serializers.DateTimeField(allow_null=True)


class StageSerializer(CamelCaseSerializer):
    """One stage of a run; the last one removes the placement from clusters that are no longer selected."""

    name = serializers.CharField()
    state = enum(
        ["to come", "current", "skipped", "done", "aborted", "failed", "not reached"]
    )
    at_once = serializers.IntegerField(
        help_text="The number of clusters that may be updated concurrently."
    )
    needs_approval_before = serializers.BooleanField()
    needs_approval_after = serializers.BooleanField()
    approved_before = serializers.DateTimeField(allow_null=True)
    approved_after = serializers.DateTimeField(allow_null=True)
    wait_seconds = serializers.IntegerField()
    updated_at = serializers.DateTimeField(
        allow_null=True, help_text="When its last cluster was updated."
    )
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
    comment = serializers.CharField(allow_blank=True)


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

    state = serializers.ChoiceField([str(one) for one in RunState])


class StageRefSerializer(CamelCaseSerializer):
    """The name of a stage."""

    stage = Text()


class ApproveSerializer(StageRefSerializer):
    """The name of a stage, and a comment that is kept with the approval."""

    comment = Text(required=False, allow_blank=True, max_length=LONGEST_COMMENT)


class FailedClusterSerializer(CamelCaseSerializer):
    """The name of a cluster."""

    cluster = Text()


class StagedStrategyViewSet(FullNameViewSet):
    """All staged update strategies."""

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


_staged = partial(rollout_action, ActionKind.STAGED, ProgressSerializer, is_edit=False)


class StagedRunViewSet(FullNameViewSet):
    """All staged update runs."""

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
        "Retry a failed cluster immediately.",
        body=FailedClusterSerializer,
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

    @operation("get_staged_progress", ProgressSerializer)
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
    )
    def state(self, request: Request, name: str) -> Response:
        """Start, stop or resume a run."""
        (state,) = parse_body(request, RunStateInputSerializer).values()
        set_state(name, state, **actor(request), expected=expected_revision(request))
        return self.action_response(name)
