"""Evictions of a placement, its disruption budget, and clusters that its deletion forgets."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.bodies import Placed, document_of, object_in
from placements.api.describing import described, page_shape
from placements.api.endpoint import Endpoint, caller, refuse_other_names
from placements.api.lists import asked, listed, page_asked, rows_as
from placements.api.lookups import placement_named
from placements.api.preconditions import answered, expected_revision, tag_of
from placements.api.shapes.disruptions import BudgetManifest, ClusterWish, EvictionRow
from placements.api.shapes.manifests import PlacementManifest
from placements.api.shapes.queries import PageQuery
from placements.models import DisruptionBudget, Eviction
from placements.operations.budgets import UnknownBudgetError, delete_budget, save_budget
from placements.operations.placements import Did
from placements.operations.rollouts.evictions import evict
from placements.operations.rollouts.forgetting import forget_cluster
from placements.queries.status import manifest_of
from placements.scheduling.faults import Fault, Faults, format_path


class Evict(Endpoint):
    """Let a placement leave a cluster."""

    @described("evict_placement", {200: EvictionRow}, body=ClusterWish)
    def post(self, request: Request, name: str) -> Response:
        """Evict: the answer says whether it was carried out, or why not, with the budget's numbers."""
        placement_named(name)
        return Response(EvictionRow(evict(name, _cluster_in(request), **caller(request))).data)


class Evictions(Endpoint):
    """What was evicted, and what was not."""

    @described("list_evictions", {200: page_shape(EvictionRow)}, query=PageQuery)
    def get(self, request: Request, name: str) -> Response:
        """List evictions of a placement, the newest first."""
        wanted = asked(request, PageQuery)
        rows = Eviction.objects.filter(placement_name=placement_named(name).name).defer("document")
        page = page_asked(rows, wanted, order="-id", unique="id")
        return listed(request, rows_as(EvictionRow, page.rows), page.after)


class Forget(Endpoint):
    """Let a deletion end without a cluster."""

    @described("forget_cluster", {202: PlacementManifest}, body=ClusterWish, problems=(409,))
    def post(self, request: Request, name: str) -> Response:
        """Forget a cluster out of reach for 15 minutes; what is there may stay there."""
        row = placement_named(name)
        forget_cluster(name, _cluster_in(request), **caller(request))
        return Response(manifest_of(row), status=202)


def _cluster_in(request: Request) -> str:
    document = document_of(request)
    with Placed(document):
        wish = object_in(document, what="an object that names a cluster")
        cluster: Any = wish.get("cluster")
        if not isinstance(cluster, str) or not 0 < len(cluster) <= 253 or "\0" in cluster:
            raise Faults([Fault("cluster", "required", "names no cluster", "the name of a cluster")])
        unknown = [key for key in wish if key != "cluster"]
        if unknown:
            raise Faults(
                [Fault(format_path((str(unknown[0]),)), "unknown-field", "is not known here", "cluster")]
            )
    return cluster


class Budget(Endpoint):
    """The disruption budget of a placement; it may be there before the placement."""

    @described("get_budget", {200: BudgetManifest}, has_tag=True)
    def get(self, request: Request, name: str) -> Response:
        """Give the budget."""
        row = DisruptionBudget.objects.filter(name=name).first()
        if row is None:
            raise UnknownBudgetError(name)
        return _answer(request, row)

    @described(
        "put_budget",
        {200: BudgetManifest, 201: BudgetManifest},
        body=BudgetManifest,
        is_edit=True,
        has_tag=True,
    )
    def put(self, request: Request, name: str) -> Response:
        """Create the budget or change it; it holds from the next eviction on."""
        exists = DisruptionBudget.objects.filter(name=name).exists()
        expected = expected_revision(request, exists=exists)
        with Placed(document_of(request)) as document:
            refuse_other_names(document, {"metadata.name": name})
            saved = save_budget(document, **caller(request), expected=expected)
        return _answer(request, saved.budget, status=201 if saved.did is Did.CREATED else 200)

    @described("delete_budget", {204: None}, is_edit=True)
    def delete(self, request: Request, name: str) -> Response:
        """Delete the budget: nothing holds evictions back any more."""
        delete_budget(name, **caller(request), expected=expected_revision(request))
        return Response(status=204)


def _answer(request: Request, row: DisruptionBudget, *, status: int = 200) -> Response:
    return answered(request, row.document, tag_of(row.revision), status=status)
