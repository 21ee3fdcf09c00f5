"""A simulation of what is in the body; and the fleet for `simulate --diff`."""

import json
from functools import partial

from django.utils.decorators import method_decorator
from django.views.decorators.gzip import gzip_page
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.model import Semantics
from placements.api.authentication import COMPUTING
from placements.api.base import BaseViewSet, MayRead
from placements.api.filters import NoQuery
from placements.api.parsers import parse_body
from placements.api.preconditions import etag_response
from placements.api.schema import documented
from placements.api.serializers import (
    ANY_OBJECT,
    AnyObject,
    AnyValue,
    CamelCaseSerializer,
    json_field,
    map_of,
)
from placements.engine.advice.search import why_not
from placements.explain.decision_document import (
    MOST_FACTS,
    advice_document,
    comparison_document,
    decision_document,
)
from placements.services.decisions.exact import searched
from placements.services.fleet.snapshot import fleet_snapshot
from placements.services.simulate import request as simulation


class SimulateSerializer(CamelCaseSerializer):
    """A simulation, with the options of `manage.py simulate`."""

    clusters = AnyValue(
        help_text="MemberClusters or clusters of other systems, their List, or plain cases."
    )
    placement = AnyObject(
        help_text="A ClusterResourcePlacement or ResourcePlacement, or an OCM Placement."
    )
    bindings = AnyValue(
        required=False,
        help_text="ClusterResourceBindings, ResourceBindings or plain cases.",
    )
    snapshot = serializers.CharField(required=False)
    semantics = serializers.ChoiceField([*Semantics, "all"], required=False)
    now = serializers.DateTimeField(required=False)
    strict_health = serializers.BooleanField(required=False, default=False)
    step = serializers.IntegerField(required=False, min_value=1, max_value=10**9)
    why = serializers.CharField(required=False)
    exact = serializers.BooleanField(
        required=False, default=False, help_text="Search for the best set too."
    )


ALL = "all"


class SimulateViewSet(BaseViewSet):
    """The options of `manage.py simulate`."""

    permission_classes = (MayRead,)

    @documented(
        "simulate",
        ANY_OBJECT,
        body=SimulateSerializer,
        is_costly=True,
        scopes=COMPUTING,
    )
    def create(self, request: Request) -> Response:
        """Schedule a placement on the clusters of the body; `semantics: all` compares.

        `rounds` and `outcomes` are null where they would be too large; a warning `shortened` says so.
        """
        options = parse_body(request, SimulateSerializer, errors=ValidationError)
        semantics = options.get("semantics")
        extra = [name for name in ("step", "why", "exact") if options.get(name)]
        if semantics == ALL and extra:
            raise InvalidManifest.of(
                extra[0],
                "conflict",
                "cannot be combined with semantics: all",
                "one semantics",
            )
        bindings = options.get("bindings")
        inputs = simulation.Request(
            _source("clusters", options["clusters"]),
            _source("placement", options["placement"]),
            None if bindings is None else _source("bindings", bindings),
            snapshot=options.get("snapshot"),
            semantics=Semantics(semantics) if semantics and semantics != ALL else None,
            now=options.get("now"),
            strict_health=options["strict_health"],
        )
        if semantics != ALL:
            result = simulation.simulate(inputs)
            try:
                document = decision_document(
                    result.decision,
                    warnings=result.warnings,
                    step=options.get("step"),
                    most_facts=MOST_FACTS,
                )
            except IndexError as error:
                raise InvalidManifest.of("step", "out-of-range", str(error)) from error
            why = options.get("why")
            if why is not None:
                if why not in result.decision.cycle.fleet.positions:
                    raise InvalidManifest.of(
                        "why",
                        "unknown-cluster",
                        f"the fleet has no cluster {why[:63]!r}",
                    )
                document["why"] = advice_document(
                    why_not(result.decision, why), result.decision
                )
            if options["exact"]:
                document["exact"] = searched(
                    result.decision, user=request.user.pk
                ).to_plain()
            return Response(document)
        simulations = simulation.simulate_all(inputs)
        warnings = {rules: one.warnings for rules, one in simulations.items()}
        write = partial(decision_document, most_facts=MOST_FACTS)
        return Response(
            comparison_document(
                simulation.compared(simulations), warnings=warnings, write=write
            )
        )


def _source(name: str, part: object) -> simulation.RequestSource:
    return simulation.RequestSource(name, json.dumps(part, ensure_ascii=False).encode())


_BINDINGS = json_field(
    map_of({"type": "array", "items": {"type": "object", "additionalProperties": {}}})
)


class FleetSnapshotSerializer(CamelCaseSerializer):
    """Clusters and bindings as `simulate` reads them from files."""

    fleet_version = serializers.IntegerField()
    digest = serializers.CharField(help_text="SHA-256 of the clusters and bindings.")
    clusters = serializers.ListField(child=AnyObject(), help_text="Plain clusters.")
    bindings = _BINDINGS(help_text="Plain bindings by the full name of the placement.")


@method_decorator(gzip_page, name="dispatch")
class FleetSnapshotViewSet(BaseViewSet):
    """The whole fleet, compressed where the client accepts it."""

    permission_classes = (MayRead,)

    @documented(
        "get_fleet_snapshot",
        FleetSnapshotSerializer,
        has_tag=True,
        is_costly=True,
        query=NoQuery,
    )
    def retrieve(self, request: Request) -> Response:
        """Get all clusters and the bindings of all placements."""
        snapshot = fleet_snapshot()
        return etag_response(request, snapshot, f'"{snapshot["digest"]}"')
