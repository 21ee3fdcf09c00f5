"""The waves of a rolling update before it starts."""

from datetime import UTC, datetime

from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.bodies import Placed, document_of
from placements.api.describing import described
from placements.api.endpoint import Endpoint, refuse_other_names
from placements.api.lookups import placement_named
from placements.api.permissions import MayRead
from placements.api.shapes.manifests import PlacementManifest
from placements.api.shapes.rollouts import PlanShape
from placements.explain.run_wording import plan_document
from placements.queries.planning import plan_now, plan_of_draft
from placements.scheduling.spec import parse_placement


class Plan(Endpoint):
    """The waves that a placement needs; a reader may ask, nothing is saved."""

    permission_classes = (MayRead,)

    @described("get_plan", {200: PlanShape})
    def get(self, request: Request, name: str) -> Response:  # noqa: ARG002 -- the framework's
        """Plan from where the clusters are to what is wanted."""
        return Response(plan_document(plan_now(placement_named(name), now=datetime.now(UTC))))

    @described("plan_draft", {200: PlanShape}, body=PlacementManifest)
    def post(self, request: Request, name: str) -> Response:
        """Plan what saving a draft of this placement would need."""
        with Placed(document_of(request)) as document:
            refuse_other_names(document, {"metadata.name": name})
            found = plan_of_draft(parse_placement(document), now=datetime.now(UTC))
        return Response(plan_document(found))
