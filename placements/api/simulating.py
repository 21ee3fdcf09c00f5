"""A fleet and a placement in one body: decided and explained, nothing saved, nothing of the hub read."""

import json
from collections.abc import Mapping
from typing import Any

from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from placements.api.bodies import LARGEST_BATCH, document_of, object_in
from placements.api.describing import described
from placements.api.endpoint import Endpoint
from placements.api.permissions import MayRead
from placements.api.shapes.decisions import SimulateShape
from placements.api.shapes.manifests import ANY_OBJECT
from placements.explain.document import advice_document, comparison_document, decision_document
from placements.scheduling.advice.search import why_not
from placements.scheduling.faults import Fault, Faults
from placements.scheduling.semantics import Semantics
from placements.simulation import request as simulation

ALL = "all"


class Simulate(Endpoint):
    """The words of `manage.py simulate`; a reader may ask, nothing is saved."""

    permission_classes = (MayRead,)
    largest_body = LARGEST_BATCH

    @described("simulate", {200: ANY_OBJECT}, body=SimulateShape)
    def post(self, request: Request) -> Response:
        """Decide a placement on the clusters of the body; `semantics: all` compares."""
        wanted = _asked(object_in(document_of(request), what="what to simulate"))
        inputs = _request(wanted)
        if wanted.get("semantics") == ALL:
            return Response(_compared(inputs))
        return Response(_decided(simulation.simulate(inputs), wanted))


def _asked(document: dict[str, Any]) -> dict[str, Any]:
    reader = SimulateShape(data=document)
    unknown = sorted(set(document) - set(reader.fields))
    if unknown:
        known = ", ".join(reader.fields)
        raise Faults(Fault(name[:80], "unknown-field", "is not known here", known) for name in unknown)
    if not reader.is_valid():
        raise ValidationError(reader.errors)
    wanted = dict(reader.validated_data)
    extra = [name for name in ("step", "why") if name in wanted]
    if wanted.get("semantics") == ALL and extra:
        raise Faults([Fault(extra[0], "conflict", "does not go with semantics: all", "one semantics")])
    return wanted


def _request(wanted: Mapping[str, Any]) -> simulation.Request:
    semantics = wanted.get("semantics")
    return simulation.Request(
        _source("clusters", wanted["clusters"]),
        _source("placement", wanted["placement"]),
        _source("bindings", wanted["bindings"]) if wanted.get("bindings") is not None else None,
        snapshot=wanted.get("snapshot"),
        semantics=Semantics(semantics) if semantics and semantics != ALL else None,
        now=wanted.get("now"),
        strict_health=wanted["strictHealth"],
    )


def _source(name: str, part: object) -> simulation.Source:
    return simulation.Source(name, json.dumps(part, ensure_ascii=False).encode())


def _compared(inputs: simulation.Request) -> dict[str, Any]:
    simulations = simulation.simulate_all(inputs)
    comparison = simulation.compared(simulations)
    warnings = {semantics: one.warnings for semantics, one in simulations.items()}
    return comparison_document(comparison, warnings=warnings)


def _decided(found: simulation.Simulation, wanted: Mapping[str, Any]) -> dict[str, Any]:
    try:
        document = decision_document(found.decision, warnings=found.warnings, step=wanted.get("step"))
    except IndexError as error:
        raise Faults([Fault("step", "out-of-range", str(error))]) from error
    why = wanted.get("why")
    if why is not None:
        if why not in found.decision.cycle.fleet.positions:
            raise Faults([Fault("why", "unknown-cluster", f"the fleet has no cluster {why[:63]!r}")])
        document["why"] = advice_document(why_not(found.decision, why))
    return document
