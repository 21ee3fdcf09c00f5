"""What if clusters went: asked once, answered for every placement."""

from typing import Any

from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from placements.api.bodies import document_of, object_in
from placements.api.describing import described, page_shape
from placements.api.endpoint import Endpoint, caller
from placements.api.lists import asked, listed, page_asked, rows_as
from placements.api.permissions import MayRead
from placements.api.shapes.queries import PageQuery
from placements.api.shapes.scenarios import OutcomeQuery, ScenarioShape, SupposedRow, WhatIfShape
from placements.models import HypotheticalDecision, Scenario
from placements.operations.scenarios import ask_what_if
from placements.queries.what_if import Variant, scenario_numbered
from placements.scheduling.faults import Fault, Faults


class WhatIf(Endpoint):
    """Questions; a reader may ask, as an answer changes nothing on the fleet."""

    permission_classes = (MayRead,)

    @described("list_what_ifs", {200: page_shape(ScenarioShape)}, query=PageQuery)
    def get(self, request: Request) -> Response:
        """List what was asked, the newest first."""
        wanted = asked(request, PageQuery)
        page = page_asked(Scenario.objects.all(), wanted, order="-id", unique="id")
        return listed(request, [_document(request, row) for row in page.rows], page.after)

    @described("ask_what_if", {201: ScenarioShape}, body=WhatIfShape)
    def post(self, request: Request) -> Response:
        """Ask what every placement would do if clusters left, and if they were cordoned and emptied."""
        wanted = _wanted(object_in(document_of(request), what="a question"))
        row = ask_what_if(names=wanted["clusters"], labels=wanted["labels"], **caller(request))
        document = _document(request, row, wanted.get("variant", Variant.LEAVE))
        return Response(document, status=201, headers={"Location": _address(request, row, "scenario")})


class Scenarios(Endpoint):
    """One question."""

    @described("get_what_if", {200: ScenarioShape})
    def get(self, request: Request, number: int) -> Response:
        """Give a question, how far its answer is, and how many placements have which fate."""
        return Response(_document(request, scenario_numbered(number)))


class ScenarioPlacements(Endpoint):
    """What each placement would do."""

    @described("list_what_if_placements", {200: page_shape(SupposedRow)}, query=OutcomeQuery)
    def get(self, request: Request, number: int) -> Response:
        """List the placements of a question by name, each with its fate and its hypothetical decision."""
        wanted = asked(request, OutcomeQuery)
        rows = HypotheticalDecision.objects.filter(
            scenario=scenario_numbered(number), variant=wanted["variant"]
        )
        rows = rows.filter(fate=wanted["fate"]) if "fate" in wanted else rows
        rows = rows.select_related("record").defer("record__content")
        page = page_asked(rows, wanted, order="placement_name", unique="placement_name")
        return listed(request, rows_as(SupposedRow, page.rows), page.after)


def _wanted(document: dict[str, Any]) -> dict[str, Any]:
    reader = WhatIfShape(data=document)
    unknown = sorted(set(document) - set(reader.fields))
    if unknown:
        known = ", ".join(reader.fields)
        raise Faults(Fault(name[:80], "unknown-field", "is not known here", known) for name in unknown)
    if not reader.is_valid():
        raise ValidationError(reader.errors)
    return dict(reader.validated_data)


def _document(request: Request, row: Scenario, variant: str = Variant.LEAVE) -> dict[str, Any]:
    result = f"{_address(request, row, 'scenario-placements')}?variant={variant}"
    return dict(ScenarioShape(row, context={"result": result}).data)


def _address(request: Request, row: Scenario, name: str) -> str:
    return reverse(f"api:{name}", args=[row.pk], request=request)
