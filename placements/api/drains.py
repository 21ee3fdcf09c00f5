"""Draining a cluster, and telling a simulated one to fail."""

from datetime import UTC, datetime, timedelta
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from clusters.models import MemberCluster
from clusters.operations.faults import faults_of, set_faults
from placements.api.bodies import Placed, document_of, has_body, words_of
from placements.api.describing import described
from placements.api.endpoint import Endpoint, caller
from placements.api.lookups import cluster_named
from placements.api.preconditions import answered, expected_revision, tag_of
from placements.api.shapes.disruptions import BringBackShape, DrainShape, PaceShape
from placements.operations.rollouts.draining import Pace, cancel_drain, drain
from placements.queries.disruptions import latest_drain
from placements.queries.drain_impact import drain_impact
from placements.queries.fresh import bring_back
from placements.scheduling.faults import Fault, Faults

FAULTS = {"type": "array", "items": {"type": "object", "additionalProperties": True}}


class Drain(Endpoint):
    """Emptying a cluster."""

    @described("get_drain", {200: DrainShape})
    def get(self, request: Request, name: str) -> Response:  # noqa: ARG002 -- the framework's
        """Say what draining would do to each placement now, and how far the last drain is."""
        return _answer(cluster_named(name))

    @described("begin_drain", {202: DrainShape}, body=PaceShape)
    def post(self, request: Request, name: str) -> Response:
        """Cordon the cluster and evict what is on it; one that is being drained goes on, at this pace.

        The body may be left out. At the deadline the drain ends as `expired`; what is not `gone` is left.
        """
        cluster_named(name)
        drain(name, **caller(request), pace=_pace(request))
        return _answer(cluster_named(name), status=202)

    @described("cancel_drain", {200: DrainShape}, problems=(409,))
    def delete(self, request: Request, name: str) -> Response:
        """Evict nothing more; the cordon stays, and nothing comes back by itself."""
        cluster_named(name)
        cancel_drain(name, **caller(request))
        return _answer(cluster_named(name))


def _pace(request: Request) -> Pace:
    """Read how a drain is to go; a request without a body says nothing. Raises Faults, ValidationError."""
    wish = words_of(request, PaceShape) if has_body(request) else {}
    seconds, order = wish.get("deadlineSeconds"), wish.get("order")
    deadline = None if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds)
    return Pace(wish.get("atOnce"), None, None if order is None else tuple(order), deadline)


class BringBack(Endpoint):
    """What a drained cluster could have back."""

    @described("get_bring_back", {200: BringBackShape})
    def get(self, request: Request, name: str) -> Response:  # noqa: ARG002 -- the framework's
        """Say of each placement that the last drain took off whether, and how, it would come back.

        As if the cluster were not cordoned. What is `rescheduled` comes back by POST to the placement's
        `/reschedule`; `joins` and `leaves` are what that would change.
        """
        return Response(BringBackShape(bring_back(cluster_named(name).name)).data)


def _answer(row: MemberCluster, *, status: int = 200) -> Response:
    impact = drain_impact(row.name, now=datetime.now(UTC))
    shown = {
        "cluster": row.name,
        "impact": impact.rows,
        "unlooked": impact.unlooked,
        "drain": latest_drain(row.name),
    }
    return Response(DrainShape(shown).data, status=status)


class ClusterFaults(Endpoint):
    """What a simulated cluster is told to fail with."""

    @described("get_cluster_faults", {200: FAULTS}, has_tag=True, problems=(409,))
    def get(self, request: Request, name: str) -> Response:
        """Give the faults; 409 where the cluster is not simulated."""
        return _faults(request, cluster_named(name))

    @described("put_cluster_faults", {200: FAULTS}, body=FAULTS, is_edit=True, has_tag=True, problems=(409,))
    def put(self, request: Request, name: str) -> Response:
        """Replace all faults, with an empty list end them; 409 where the cluster is not simulated."""
        expected = expected_revision(request)
        with Placed(document_of(request)) as faults:
            row = set_faults(name, _objects_in(faults), **caller(request), expected=expected)
        return _faults(request, row)


def _objects_in(faults: object) -> list[dict[str, Any]]:
    if not isinstance(faults, list) or not all(isinstance(one, dict) for one in faults):
        raise Faults([Fault("", "wrong-type", "is not a list of faults", "a list of objects")])
    return faults


def _faults(request: Request, row: MemberCluster) -> Response:
    return answered(request, faults_of(row), tag_of(row.revision))
