"""Placements: the list, one as its manifest, and what belongs to it."""

import re
from collections.abc import Iterable

from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.bodies import Placed, document_of
from placements.api.describing import described, page_shape
from placements.api.endpoint import Endpoint, caller, refuse_other_names
from placements.api.lists import asked, is_confirmed, listed, page_asked, rows_as
from placements.api.lookups import placement_named
from placements.api.preconditions import answered, expected_revision, tag_of
from placements.api.shapes.manifests import PlacementManifest
from placements.api.shapes.queries import ConfirmQuery, PageQuery, PlacementQuery
from placements.api.shapes.rows import BindingRow, DecisionRow, PlacementRow
from placements.models import Placement as Row
from placements.operations.placements import Did, delete_placement, save_placement
from placements.queries.lists import (
    PlacementFilter,
    State,
    bindings_of,
    decisions_of,
    latest_decisions,
    placements_matching,
)
from placements.queries.status import status_of
from placements.scheduling.faults import Caveat

_MOST_WARNINGS, _LONGEST_WARNING = 10, 300


class Placements(Endpoint):
    """All placements."""

    @described("list_placements", {200: page_shape(PlacementRow)}, query=PlacementQuery)
    def get(self, request: Request) -> Response:
        """List placements."""
        wanted = asked(request, PlacementQuery)
        state = wanted.get("state")
        chosen = PlacementFilter(
            wanted["q"],
            State(state) if state else None,
            wanted.get("type", ""),
            wanted.get("semantics", ""),
            wanted["cluster"],
        )
        page = page_asked(placements_matching(chosen), wanted, order=wanted["order"])
        decisions = latest_decisions(page.rows)
        return listed(request, rows_as(PlacementRow, page.rows, decisions=decisions), page.after)


class Placement(Endpoint):
    """One placement, as its manifest."""

    @described("get_placement", {200: PlacementManifest}, has_tag=True)
    def get(self, request: Request, name: str) -> Response:
        """Give the manifest with its status."""
        return _answer(request, placement_named(name))

    @described(
        "put_placement",
        {200: PlacementManifest, 201: PlacementManifest},
        body=PlacementManifest,
        query=ConfirmQuery,
        problems=(409,),
        is_edit=True,
        has_tag=True,
    )
    def put(self, request: Request, name: str) -> Response:
        """Create a placement or change it; the same again changes nothing. It is decided soon after.

        A change that would unschedule everything is refused (409) until `confirm` says so.
        """
        confirmed = is_confirmed(request)
        expected = expected_revision(request, exists=Row.objects.filter(name=name).exists())
        with Placed(document_of(request)) as document:
            refuse_other_names(document, {"metadata.name": name})
            saved = save_placement(document, **caller(request), expected=expected, confirmed=confirmed)
        answer = _answer(request, saved.placement, status=201 if saved.did is Did.CREATED else 200)
        _warn(answer, saved.caveats)
        return answer

    @described("delete_placement", {202: PlacementManifest, 204: None}, is_edit=True)
    def delete(self, request: Request, name: str) -> Response:
        """Delete a placement: 204 when it is gone, 202 while clusters still hold what it placed."""
        if delete_placement(name, **caller(request), expected=expected_revision(request)):
            return Response(status=204)
        return _answer(request, placement_named(name), status=202)


def _answer(request: Request, row: Row, *, status: int = 200) -> Response:
    written = status_of(row)
    return answered(
        request, {**row.document, "status": written}, tag_of(row.revision, written), status=status
    )


def _warn(answer: Response, caveats: Iterable[Caveat]) -> None:
    """Tell what was accepted and may surprise, as Kubernetes does: in headers, which are ASCII."""
    told = [" ".join(f"{one.path}: {one.message}".split()) for one in caveats][:_MOST_WARNINGS]
    quoted = [re.sub(r"[^ !#-\[\]-~]", "?", one[:_LONGEST_WARNING]) for one in told]
    if quoted:
        answer.headers["Warning"] = ", ".join(f'299 fleetui "{one}"' for one in quoted)


class PlacementBindings(Endpoint):
    """Where a placement is."""

    @described("list_placement_bindings", {200: page_shape(BindingRow)}, query=PageQuery)
    def get(self, request: Request, name: str) -> Response:
        """List its bindings, by cluster."""
        wanted = asked(request, PageQuery)
        rows = bindings_of(placement_named(name))
        page = page_asked(rows, wanted, order="cluster_name", unique="cluster_name")
        return listed(request, rows_as(BindingRow, page.rows), page.after)


class PlacementDecisions(Endpoint):
    """What was decided on a placement."""

    @described("list_placement_decisions", {200: page_shape(DecisionRow)}, query=PageQuery)
    def get(self, request: Request, name: str) -> Response:
        """List its decisions, the newest first."""
        wanted = asked(request, PageQuery)
        rows = decisions_of(placement=placement_named(name).name)
        page = page_asked(rows, wanted, order="-id", unique="id")
        return listed(request, rows_as(DecisionRow, page.rows), page.after)
