"""Objects of a placement on its clusters: those on one cluster, and all that differ from the hub."""

from datetime import UTC, datetime

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST, require_safe

from clusters.drivers.base import DriverError
from fleetui.htmx import render_page
from fleetui.pagination import BadCursorError
from fleetui.permissions import for_operators, for_readers
from placements.explain.cluster_objects import (
    DifferenceType,
    ObjectState,
    unavailable_words,
)
from placements.explain.connections import unreachable_words
from placements.models import Binding, Placement
from placements.services.actions import ACTIONS, ActionKind
from placements.services.rollouts.cluster_objects import (
    DifferenceFilter,
    differences_page,
    objects_on,
)
from placements.services.rollouts.read_objects import (
    NotReadableError,
    read_objects,
    readable_cluster,
)
from placements.services.teams import of_placement
from placements.web import badges
from placements.web.request import PAGE_SIZE, unknown_words, word_from

_STATES = {
    ObjectState.PENDING: "pending",
    ObjectState.APPLYING: "progress",
    ObjectState.APPLIED: "healthy",
    ObjectState.NOT_AVAILABLE: "progress",
    ObjectState.AVAILABLE: "healthy",
    ObjectState.MISSING: "attention",
    ObjectState.COMPARED: "healthy",
    ObjectState.FAILED: "failed",
    ObjectState.REMOVING: "progress",
    ObjectState.UNKNOWN: "unknown",
}
_OBJECTS_SHOWN = 200


@for_readers
@require_safe
def drift(request: HttpRequest, name: str) -> HttpResponse:
    """List the objects of a placement that differ on some cluster."""
    placement = get_object_or_404(Placement, full_name=name)
    cluster, kind, path = (
        request.GET.get(key, "").strip() for key in ("cluster", "kind", "path")
    )
    wanted = DifferenceFilter(
        cluster, kind, path, word_from(request, "type", DifferenceType)
    )
    try:
        rows, after = differences_page(
            placement, wanted, size=PAGE_SIZE, after=request.GET.get("after", "")
        )
    except BadCursorError:
        rows, after = differences_page(placement, wanted, size=PAGE_SIZE)
    return render_page(
        request,
        "placements/drift.html",
        {
            "placement": placement,
            "wanted": wanted,
            "facets": {
                DifferenceType.DRIFT: "Drift",
                DifferenceType.DIFF: "Difference",
            },
            "rows": rows,
            "after": after,
            "unknown": unknown_words(request, type=DifferenceType),
        },
        fragment="placements/_drift.html",
    )


@for_readers
@require_safe
def placement_cluster(request: HttpRequest, name: str, cluster: str) -> HttpResponse:
    """Show the objects of a placement on one cluster, with their differences."""
    rows = Binding.objects.select_related("placement", "resource_snapshot")
    binding = get_object_or_404(rows, placement__full_name=name, cluster_name=cluster)
    objects = objects_on(binding)
    cluster_row = readable_cluster(binding)
    unreachable = (
        unreachable_words(cluster_row, now=datetime.now(UTC)) if cluster_row else ""
    )
    return render_page(
        request,
        "placements/cluster.html",
        {
            "placement": binding.placement,
            "binding": binding,
            "state": badges.phase_state(binding.phase, failure=binding.failure),
            "unreachable": unreachable,
            "unavailable": ""
            if unreachable
            else unavailable_words(binding.unavailable_code),
            "may_read": cluster_row is not None,
            "may_reapply": not ACTIONS[ActionKind.ROLLING, "reapply"].why_not(
                binding.placement, None, cluster
            ),
            "objects": [
                (
                    cluster_object,
                    badges.Badge(
                        _STATES[cluster_object.state], cluster_object.state.words
                    ),
                )
                for cluster_object in objects[:_OBJECTS_SHOWN]
            ],
            "count": len(objects),
            "more": max(0, len(objects) - _OBJECTS_SHOWN),
            "differing": [
                cluster_object
                for cluster_object in objects
                if cluster_object.differences
            ],
        },
    )


@for_operators("read objects on clusters", of=of_placement)
@require_POST
def read_cluster(request: HttpRequest, name: str, cluster: str) -> HttpResponse:
    rows = Binding.objects.select_related("placement")
    binding = get_object_or_404(rows, placement__full_name=name, cluster_name=cluster)
    try:
        read_objects(binding)
    except (DriverError, NotReadableError) as error:
        messages.error(request, f"Objects not read: {error}.")
    else:
        messages.success(request, f"Objects on {cluster} read.")
    return redirect("web:placement-cluster", name, cluster)
