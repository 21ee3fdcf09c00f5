"""Staged update strategies and runs, and the actions on runs."""

from functools import partial
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.base import BaseViewSet, Params, Rows, actor, listed
from placements.api.filters import StagedRunQuery
from placements.api.parsers import parse_body
from placements.api.preconditions import expected_revision
from placements.api.rollouts import rollout_action
from placements.api.rollouts_serializers import (
    FailedClusterSerializer,
    ProgressSerializer,
    RunStateSerializer,
    StagedRunManifestSerializer,
    StagedRunSerializer,
    StagedStrategyManifestSerializer,
    StagedStrategySerializer,
    StageRefSerializer,
)
from placements.api.schema import documented, documented_put, operation
from placements.models import StagedRun, StagedStrategy
from placements.services.rollouts.actions import RolloutKind
from placements.services.rollouts.staged_operations import UnknownRunError, set_state
from placements.services.rollouts.staged_queries import progress_of, run_manifest, runs_matching
from placements.services.rollouts.staged_runs import save_run
from placements.services.rollouts.staged_strategies import (
    UnknownStrategyError,
    delete_strategy,
    save_strategy,
)


class StagedStrategyViewSet(BaseViewSet):
    """All staged update strategies."""

    queryset = StagedStrategy.objects.all()
    not_found = UnknownStrategyError

    @listed("list_staged_strategies", StagedStrategySerializer)
    def list(self, params: Params) -> Rows:
        """List staged update strategies, by name."""
        return StagedStrategy.objects.defer("document")

    @documented("get_staged_strategy", StagedStrategyManifestSerializer, has_tag=True)
    def retrieve(self, request: Request, name: str) -> Response:
        """Get the manifest of a staged update strategy."""
        return self.manifest_response()

    @documented_put("put_staged_strategy", StagedStrategyManifestSerializer)
    def update(self, request: Request, name: str) -> Response:
        """Create or update a staged update strategy; runs keep the one that they started with."""
        return self.put_manifest(save_strategy)[1]

    @documented("delete_staged_strategy", None, status=204, is_edit=True)
    def destroy(self, request: Request, name: str) -> Response:
        """Delete a staged update strategy; runs that started with it continue."""
        delete_strategy(name, **actor(request), expected=expected_revision(request))
        return Response(status=204)


_staged = partial(rollout_action, RolloutKind.STAGED, ProgressSerializer, is_edit=False)


class StagedRunViewSet(BaseViewSet):
    """All staged update runs."""

    queryset = StagedRun.objects.all()
    not_found = UnknownRunError
    approve = _staged(
        "approve",
        "approve_stage",
        "Approve a stage; the user and the time are recorded.",
        body=StageRefSerializer,
    )
    skip_wait = _staged(
        "skip-wait",
        "skip_wait",
        "Skip the timed wait of a stage; approvals cannot be skipped.",
        body=StageRefSerializer,
    )
    retry = _staged(
        "retry", "retry_staged_cluster", "Retry a failed cluster immediately.", body=FailedClusterSerializer
    )
    abandon = _staged("abandon", "abandon_staged_run", "Abort a run permanently; running updates finish.")

    def manifest_and_status(self, row: StagedRun) -> tuple[Any, dict[str, Any]]:
        manifest = run_manifest(row)
        return manifest, manifest["status"]

    def action_response(self, name: str) -> Response:
        return Response(progress_of(self.get_object()))

    @listed("list_staged_runs", StagedRunSerializer, query=StagedRunQuery, order="-id", unique="id")
    def list(self, params: Params) -> Rows:
        """List staged update runs, the newest first."""
        return runs_matching(placement=params["placement"], active=params["active"])

    @documented("get_staged_run", StagedRunManifestSerializer, has_tag=True)
    def retrieve(self, request: Request, name: str) -> Response:
        """Get the manifest of a staged update run with its status."""
        return self.manifest_response()

    @documented_put("put_staged_run", StagedRunManifestSerializer)
    def update(self, request: Request, name: str) -> Response:
        """Create a staged update run, or set the state of one; its status has what blocks its start."""
        return self.put_manifest(save_run)[1]

    @operation("get_staged_progress", ProgressSerializer)
    def progress(self, request: Request, name: str) -> Response:
        """Get the progress of a run as sentences, by stage and by cluster."""
        return Response(progress_of(self.get_object()))

    # One operation for the actions resume and stop: the state is a field of the manifest.
    @operation("set_staged_state", ProgressSerializer, body=RunStateSerializer, is_edit=True, method="post")
    def state(self, request: Request, name: str) -> Response:
        """Start, stop or resume a run."""
        (state,) = parse_body(request, RunStateSerializer).values()
        set_state(name, state, **actor(request), expected=expected_revision(request))
        return self.action_response(name)
