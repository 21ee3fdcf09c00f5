"""What a live hub decided, beside the decision of its replay."""

from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.base import BaseViewSet, query_params
from placements.api.schema import documented
from placements.hubs.api.hubs import HubDecisionSerializer
from placements.hubs.replay.queries import hub_side_of
from placements.services.decisions.records import cycles_of, recorded


class DecisionOnHubViewSet(BaseViewSet):
    """Decisions of live hubs."""

    @documented("get_decision_on_hub", HubDecisionSerializer)
    def retrieve(self, request: Request, decision: str) -> Response:
        """Get what the live hub decided, and how the replay agrees with it."""
        query_params(request)
        row = (
            cycles_of(recorded(decision)[0]).filter(hub_decision__isnull=False).first()
        )
        side = hub_side_of(row) if row else None
        if side is None:
            raise Http404
        return Response(HubDecisionSerializer(side).data)
