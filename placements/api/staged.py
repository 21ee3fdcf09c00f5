"""Staged updates: strategies, runs as manifests and in their progress, and the hands laid on runs."""

from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.bodies import Placed, document_of
from placements.api.describing import described, page_shape
from placements.api.endpoint import Endpoint, caller, refuse_other_names
from placements.api.lists import asked, listed, page_asked, rows_as
from placements.api.lookups import run_named, strategy_named
from placements.api.permissions import MayApprove
from placements.api.preconditions import answered, expected_revision, tag_of
from placements.api.shapes.queries import PageQuery, StagedRunQuery
from placements.api.shapes.staged import (
    ClusterNameShape,
    ProgressShape,
    StagedRunManifest,
    StagedRunRow,
    StagedStrategyManifest,
    StagedStrategyRow,
    StageNameShape,
    StateShape,
)
from placements.models import StagedRun as RunRow
from placements.models import StagedStrategy as StrategyRow
from placements.operations.did import Did
from placements.operations.staged import hands
from placements.operations.staged.runs import save_run
from placements.operations.staged.strategies import delete_strategy, save_strategy
from placements.queries.staged import progress_of, run_manifest, runs_matching
from placements.scheduling.faults import Fault, Faults, format_path


class StagedStrategies(Endpoint):
    """All strategies of staged updates."""

    @described("list_staged_strategies", {200: page_shape(StagedStrategyRow)}, query=PageQuery)
    def get(self, request: Request) -> Response:
        """List strategies, by name."""
        page = page_asked(StrategyRow.objects.defer("document"), asked(request, PageQuery), order="name")
        return listed(request, rows_as(StagedStrategyRow, page.rows), page.after)


class StagedStrategy(Endpoint):
    """One strategy, as its manifest."""

    @described("get_staged_strategy", {200: StagedStrategyManifest}, has_tag=True)
    def get(self, request: Request, name: str) -> Response:
        """Give the manifest as it was applied."""
        row = strategy_named(name)
        return answered(request, row.document, tag_of(row.revision))

    @described(
        "put_staged_strategy",
        {200: StagedStrategyManifest, 201: StagedStrategyManifest},
        body=StagedStrategyManifest,
        is_edit=True,
        has_tag=True,
    )
    def put(self, request: Request, name: str) -> Response:
        """Create a strategy or change it; runs keep the one that they began with."""
        expected = expected_revision(request, exists=StrategyRow.objects.filter(name=name).exists())
        with Placed(document_of(request)) as document:
            refuse_other_names(document, {"metadata.name": name})
            saved = save_strategy(document, **caller(request), expected=expected)
        row, status = saved.strategy, 201 if saved.did is Did.CREATED else 200
        return answered(request, row.document, tag_of(row.revision), status=status)

    @described("delete_staged_strategy", {204: None}, is_edit=True)
    def delete(self, request: Request, name: str) -> Response:
        """Delete a strategy; runs that began with it go on."""
        delete_strategy(name, **caller(request), expected=expected_revision(request))
        return Response(status=204)


class StagedRuns(Endpoint):
    """All staged runs."""

    @described("list_staged_runs", {200: page_shape(StagedRunRow)}, query=StagedRunQuery)
    def get(self, request: Request) -> Response:
        """List runs, the newest first."""
        wanted = asked(request, StagedRunQuery)
        rows = runs_matching(placement=wanted["placement"], active=wanted["active"])
        page = page_asked(rows, wanted, order="-id", unique="id")
        return listed(request, rows_as(StagedRunRow, page.rows), page.after)


class StagedRun(Endpoint):
    """One run, as its manifest."""

    @described("get_staged_run", {200: StagedRunManifest}, has_tag=True)
    def get(self, request: Request, name: str) -> Response:
        """Give the manifest with its status."""
        return _answer(request, run_named(name))

    @described(
        "put_staged_run",
        {200: StagedRunManifest, 201: StagedRunManifest},
        body=StagedRunManifest,
        is_edit=True,
        has_tag=True,
    )
    def put(self, request: Request, name: str) -> Response:
        """Make a run, or set the state of one. It begins soon after, or says why it cannot."""
        expected = expected_revision(request, exists=RunRow.objects.filter(name=name).exists())
        with Placed(document_of(request)) as document:
            refuse_other_names(document, {"metadata.name": name})
            saved = save_run(document, **caller(request), expected=expected)
        return _answer(request, saved.run, status=201 if saved.did is Did.CREATED else 200)


def _answer(request: Request, row: RunRow, *, status: int = 200) -> Response:
    manifest = run_manifest(row)
    return answered(request, manifest, tag_of(row.revision, manifest["status"]), status=status)


class StagedProgress(Endpoint):
    """How far a run has come."""

    @described("get_staged_progress", {200: ProgressShape})
    def get(self, request: Request, name: str) -> Response:  # noqa: ARG002 -- the framework's
        """Tell what a run does and waits for, in sentences, by stage and by cluster."""
        return Response(progress_of(run_named(name)))


class StagedState(Endpoint):
    """What is wanted of a run."""

    @described("set_staged_state", {200: ProgressShape}, body=StateShape, is_edit=True)
    def post(self, request: Request, name: str) -> Response:
        """Let a run go, pause it, let it go on."""
        expected = expected_revision(request)
        hands.set_state(name, _word(request, "state"), **caller(request), expected=expected)
        return Response(progress_of(run_named(name)))


class StagedApproval(Endpoint):
    """Letting a stage go on."""

    permission_classes = [MayApprove]

    @described("approve_stage", {200: ProgressShape}, body=StageNameShape, problems=(409,))
    def post(self, request: Request, name: str) -> Response:
        """Approve the stage that waits; who did and when is kept."""
        hands.approve(name, _word(request, "stage"), **caller(request))
        return Response(progress_of(run_named(name)))


class StagedSkip(Endpoint):
    """Ending a timed wait."""

    @described("skip_wait", {200: ProgressShape}, body=StageNameShape, problems=(409,))
    def post(self, request: Request, name: str) -> Response:
        """End the timed wait of a stage; approvals cannot be skipped."""
        hands.skip_wait(name, _word(request, "stage"), **caller(request))
        return Response(progress_of(run_named(name)))


class StagedRetry(Endpoint):
    """Trying again."""

    @described("retry_staged_cluster", {200: ProgressShape}, body=ClusterNameShape, problems=(409,))
    def post(self, request: Request, name: str) -> Response:
        """Try a cluster that failed again at once."""
        hands.retry(name, _word(request, "cluster"), **caller(request))
        return Response(progress_of(run_named(name)))


class StagedAbandoning(Endpoint):
    """Giving a run up."""

    @described("abandon_staged_run", {200: ProgressShape}, problems=(409,))
    def post(self, request: Request, name: str) -> Response:
        """End a run for good; what is under way on clusters comes to its end."""
        hands.abandon(name, **caller(request))
        return Response(progress_of(run_named(name)))


def _word(request: Request, field: str) -> str:
    """Give the one field of a body. Raises Faults."""
    with Placed(document_of(request)) as data:
        if not isinstance(data, dict) or not isinstance(data.get(field), str):
            raise Faults([Fault(field, "required", "is missing, or is not text", "text")])
        for other in data.keys() - {field}:
            raise Faults([Fault(format_path((str(other)[:80],)), "unknown-field", "is no field here", field)])
    return str(data[field])
