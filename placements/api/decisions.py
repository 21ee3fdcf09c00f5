"""Decisions: the records, and why each cluster was picked or not."""

from typing import Any

from django.http import Http404
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.describing import OF_A_RECORD, described, page_shape
from placements.api.endpoint import Endpoint
from placements.api.lists import asked, listed, page_asked, rows_as
from placements.api.rendering import CsvRenderer, YamlRenderer
from placements.api.shapes.decisions import ComparisonShape, DecisionShape, OutcomeShape, RoundShape
from placements.api.shapes.queries import (
    CandidateQuery,
    DecisionQuery,
    NoQuery,
    NumberedPageQuery,
    OutcomeQuery,
)
from placements.api.shapes.rows import DecisionRow
from placements.explain.advice_wording import trap_sentences
from placements.explain.document import (
    bounded_document,
    candidate_document,
    comparison_document,
    outcome_document,
    round_document,
)
from placements.explain.tables import outcome_csv
from placements.queries.lists import decisions_of
from placements.queries.records import cycles_of, recorded
from placements.queries.semantics import side_by_side
from placements.scheduling.decision import Decision as Value
from placements.scheduling.fleet_caveats import decision_caveats, fleet_caveats
from placements.scheduling.outcomes import Outcomes as OutcomesOf
from placements.scheduling.replay import Replay

_CYCLES_SHOWN = 20


class Decisions(Endpoint):
    """What was decided."""

    @described("list_decisions", {200: page_shape(DecisionRow)}, query=DecisionQuery)
    def get(self, request: Request) -> Response:
        """List decisions of all placements, those that are gone among them, the newest first."""
        wanted = asked(request, DecisionQuery)
        page = page_asked(decisions_of(placement=wanted["placement"]), wanted, order="-id", unique="id")
        return listed(request, rows_as(DecisionRow, page.rows), page.after)


class Decision(Endpoint):
    """One record; the beginning of its id will do."""

    renderer_classes = (JSONRenderer, YamlRenderer, CsvRenderer)

    @described("get_decision", {200: DecisionShape, (200, "text/csv"): str}, problems=OF_A_RECORD)
    def get(self, request: Request, decision: str) -> Response:
        """Give the record, or the outcome of every cluster as CSV."""
        asked(request, NoQuery)
        key, found = recorded(decision)
        if request.accepted_renderer.format == CsvRenderer.format:
            return Response(outcome_csv(found))
        return Response(_document(key, found))


class DecisionCsv(Endpoint):
    """The outcomes as a table."""

    renderer_classes = (CsvRenderer,)

    @described("get_decision_csv", {(200, "text/csv"): str}, problems=OF_A_RECORD)
    def get(self, request: Request, decision: str) -> Response:
        """Give the outcome of every cluster as CSV."""
        asked(request, NoQuery)
        return Response(outcome_csv(recorded(decision)[1]))


def _document(key: int, decision: Value) -> dict[str, Any]:
    warnings = (*fleet_caveats(decision.cycle), *decision_caveats(decision))
    return {
        **bounded_document(decision, warnings=warnings),
        "traps": list(trap_sentences(decision)),
        "cycles": rows_as(DecisionRow, cycles_of(key)[:_CYCLES_SHOWN]),
    }


class DecisionSemantics(Endpoint):
    """The same inputs under the rules of all four systems."""

    @described("get_decision_semantics", {200: ComparisonShape}, problems=OF_A_RECORD)
    def get(self, request: Request, decision: str) -> Response:
        """Decide once more under each semantics; give the decisions, and where their choices part."""
        asked(request, NoQuery)
        sides = side_by_side(recorded(decision)[1], name=decision)
        document = comparison_document(sides.comparison, warnings=sides.warnings, write=bounded_document)
        return Response({**document, "refused": {str(one): why for one, why in sides.refused.items()}})


class Rounds(Endpoint):
    """The steps of a decision."""

    @described("list_rounds", {200: page_shape(RoundShape)}, query=NumberedPageQuery, problems=OF_A_RECORD)
    def get(self, request: Request, decision: str) -> Response:
        """List rounds, without their candidates."""
        wanted = asked(request, NumberedPageQuery)
        found = recorded(decision)[1]
        replay, last = Replay(found), wanted["after"] + wanted["limit"]
        numbers = range(wanted["after"] + 1, min(last, found.number_of_rounds) + 1)
        items = [round_document(replay.step(number)) for number in numbers]
        return listed(request, items, last if last < found.number_of_rounds else None)


class Round(Endpoint):
    """One step of a decision."""

    @described("get_round", {200: RoundShape}, query=CandidateQuery, problems=OF_A_RECORD)
    def get(self, request: Request, decision: str, number: int) -> Response:
        """Give one round with its first candidates, ranked, then those that a constraint forbids."""
        limit = asked(request, CandidateQuery)["limit"]
        replay = Replay(recorded(decision)[1])
        try:
            step = replay.step(number)
        except IndexError as error:
            raise Http404 from error
        candidates = [candidate_document(one) for one in replay.candidates(number, most=limit)]
        document = {**round_document(step), "candidates": candidates, "candidatesCount": step.candidates}
        return Response(document)


class Outcomes(Endpoint):
    """What became of the clusters."""

    @described("list_outcomes", {200: page_shape(OutcomeShape)}, query=OutcomeQuery, problems=OF_A_RECORD)
    def get(self, request: Request, decision: str) -> Response:
        """List the outcomes of the clusters, by name."""
        wanted = asked(request, OutcomeQuery)
        outcomes = OutcomesOf(recorded(decision)[1])
        only, limit = wanted.get("outcome"), wanted["limit"]
        items: list[dict[str, Any]] = []
        for name in sorted(outcomes.cycle.fleet.names):
            if name <= wanted["after"]:
                continue
            one = outcomes.of(name)
            if only and one.outcome != only:
                continue
            if len(items) == limit:
                return listed(request, items, items[-1]["cluster"])
            items.append(outcome_document(one))
        return listed(request, items, None)
