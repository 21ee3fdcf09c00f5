"""One cluster in a decision: its outcome, the rounds in which it competed, and what would change it."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.describing import OF_A_RECORD, described
from placements.api.endpoint import Endpoint
from placements.api.lists import asked, next_page
from placements.api.shapes.decisions import AdviceShape, ClusterOutcomeShape
from placements.api.shapes.queries import NoQuery, NumberedPageQuery
from placements.explain.document import advice_document, candidate_document, outcome_document
from placements.queries.records import UnknownInDecisionError, recorded
from placements.scheduling.advice.search import why_not
from placements.scheduling.decision import Decision
from placements.scheduling.outcomes import Outcome, Outcomes
from placements.scheduling.replay import Replay


class DecidedCluster(Endpoint):
    """What became of one cluster."""

    @described(
        "get_cluster_outcome", {200: ClusterOutcomeShape}, query=NumberedPageQuery, problems=OF_A_RECORD
    )
    def get(self, request: Request, decision: str, name: str) -> Response:
        """Give the outcome with its reasons, and how the cluster stood in the rounds."""
        wanted = asked(request, NumberedPageQuery)
        found = _decision_on(decision, name)
        last = _last_round(found, name)
        end = min(wanted["after"] + wanted["limit"], last)
        replay = Replay(found)
        document: dict[str, Any] = {
            **outcome_document(Outcomes(found).of(name)),
            "candidacies": [
                {"round": number, "candidate": candidate_document(replay.candidate(number, name))}
                for number in range(wanted["after"] + 1, end + 1)
            ],
            "next": next_page(request, end) if end < last else None,
        }
        return Response(document)


class Advice(Endpoint):
    """Why not this cluster."""

    @described("get_cluster_advice", {200: AdviceShape}, problems=OF_A_RECORD)
    def get(self, request: Request, decision: str, name: str) -> Response:
        """Try single changes that would get the cluster picked; it may take seconds on a large fleet."""
        asked(request, NoQuery)
        return Response(advice_document(why_not(_decision_on(decision, name), name)))


def _decision_on(given: str, name: str) -> Decision:
    found = recorded(given)[1]
    if name not in found.cycle.fleet.positions:
        raise UnknownInDecisionError(found.id, name)
    return found


def _last_round(decision: Decision, name: str) -> int:
    """Give the last round in which the cluster was there to be picked: until it was, or never."""
    outcome = Outcomes(decision).of(name)
    if outcome.outcome is Outcome.PICKED:
        return outcome.round or 0
    position = decision.cycle.fleet.positions[name]
    passed = decision.candidates is not None and bool(decision.candidates.passes[position])
    return decision.number_of_rounds if passed else 0
