"""Deleting placements; the editor writes them."""

from datetime import UTC, datetime

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods

from fleetui.access import for_operators
from placements.models import Binding, Placement
from placements.operations.placements import delete_placement
from placements.scheduling.bindings import BindingState
from placements.views.people import user_of

_LISTED = 20


@for_operators("delete placements")
@require_http_methods(["GET", "HEAD", "POST"])
def delete(request: HttpRequest, name: str) -> HttpResponse:
    """Say what deleting would do, or do it."""
    found = get_object_or_404(Placement, name=name)
    placed = Binding.objects.filter(placement=found).exclude(state=BindingState.UNSCHEDULED)
    if request.method != "POST":
        context = {
            "placement": found,
            "placed": placed.order_by("cluster_name")[:_LISTED],
            "more": max(0, placed.count() - _LISTED),
            "carried_out": placed.exclude(state=BindingState.SCHEDULED).count(),
        }
        return render(request, "placements/delete.html", context)
    gone = delete_placement(name, by=user_of(request), now=datetime.now(UTC))
    messages.success(request, f"{name} is deleted." if gone else f"{name} is being deleted.")
    return redirect("pages:placements") if gone else redirect("pages:placement", name)
