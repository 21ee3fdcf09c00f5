"""A draft scheduled without saving it: small and quick, however large the fleet."""

from collections.abc import Iterable, Sequence
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.bodies import Placed, document_of
from placements.api.describing import described
from placements.api.endpoint import Endpoint
from placements.api.permissions import MayRead
from placements.api.placements import Placement
from placements.api.shapes.decisions import ComparisonShape, PreviewShape
from placements.api.shapes.manifests import PlacementManifest
from placements.explain.document import bounded_document, caveat_document, comparison_document
from placements.queries.preview import Preview as Found
from placements.queries.preview import preview
from placements.queries.semantics import side_by_side_of_draft
from placements.scheduling.decision import Decision, Picked
from placements.scheduling.replay import Replay, Spread
from placements.scheduling.spec import parse_placement

MOST_SHOWN = 20
MOST_GROUPS = 50


class Preview(Endpoint):
    """What a draft would do; a reader may ask, nothing is saved."""

    permission_classes = (MayRead,)

    @described("preview_placement", {200: PreviewShape}, body=PlacementManifest)
    def post(self, request: Request) -> Response:
        """Schedule a draft as saving it would, against what is placed now."""
        with Placed(document_of(request)) as document:
            found = preview(parse_placement(document))
        return Response(_document(found))


class PreviewSemantics(Endpoint):
    """What a draft would do under the rules of all four systems; a reader may ask, nothing is saved."""

    permission_classes = (MayRead,)

    @described("preview_semantics", {200: ComparisonShape}, body=PlacementManifest)
    def post(self, request: Request) -> Response:
        """Decide a draft once under each semantics; give the decisions, and where their choices part."""
        with Placed(document_of(request)) as document:
            sides = side_by_side_of_draft(parse_placement(document))
        found = comparison_document(sides.comparison, warnings=sides.warnings, write=bounded_document)
        return Response({**found, "refused": {str(one): why for one, why in sides.refused.items()}})


def _document(found: Found) -> dict[str, Any]:
    decision = found.decision
    return {
        "decision": decision.id,
        "fulfilled": decision.is_fulfilled,
        "isIncremental": found.is_incremental,
        "picked": _some(decision.picked, _pick),
        "joins": _some(found.joins),
        "leaves": _some(found.leaves),
        "stays": _some(found.stays),
        "selectedResources": len(found.selection.objects),
        "spread": [_spread(one) for one in _final_spreads(decision)],
        "warnings": [caveat_document(one) for one in found.caveats],
    }


def _some(values: Sequence[Any], write: Any = lambda value: value) -> dict[str, Any]:
    return {"count": len(values), "first": [write(one) for one in values[:MOST_SHOWN]]}


def _pick(one: Picked) -> dict[str, Any]:
    return {
        "cluster": one.cluster,
        "topologySpreadScore": one.topology_spread_score,
        "affinityScore": one.affinity_score,
    }


def _final_spreads(decision: Decision) -> Iterable[Spread]:
    """Give the groups after the last pick; a cycle without rounds has none."""
    rounds = decision.number_of_rounds
    return Replay(decision).step(rounds).spreads if rounds else ()


def _spread(one: Spread) -> dict[str, Any]:
    groups = sorted(one.after.items(), key=lambda pair: (-pair[1], pair[0]))
    half = MOST_GROUPS // 2
    shown = groups if len(groups) <= MOST_GROUPS else [*groups[:half], *groups[-half:]]
    return {
        "topologyKey": one.topology_key,
        "maxSkew": one.max_skew,
        "hard": one.is_hard,
        "skew": one.skew_after,
        "groupsCount": len(groups),
        "groups": [{"group": group, "count": count} for group, count in shown],
    }


class PreviewAndNamesake(Preview):
    """The address of the preview is also that of a placement named `preview`: their methods differ."""

    def get_permissions(self) -> Any:
        """Let readers preview; what belongs to the placement is for whom it is elsewhere."""
        is_preview = self.request.method == "POST"
        return super().get_permissions() if is_preview else Placement().get_permissions()

    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        """Give that placement."""
        return Placement().get(request, _NAMESAKE)

    @extend_schema(exclude=True)
    def put(self, request: Request) -> Response:
        """Create that placement or change it."""
        return Placement().put(request, _NAMESAKE)

    @extend_schema(exclude=True)
    def delete(self, request: Request) -> Response:
        """Delete that placement."""
        return Placement().delete(request, _NAMESAKE)


_NAMESAKE = "preview"
