"""The page of the removals from a cluster that wait for a person."""

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_http_methods

from clusters.models import MemberCluster
from fleetui.permissions import by_operation, for_operators, for_readers
from placements.services.rollouts.removals import (
    confirm_removal,
    keep_objects,
    waiting_removals,
)
from placements.web.request import actor, redirect_after


@for_readers
@require_http_methods(["GET", "HEAD", "POST"])
def cluster_removals(request: HttpRequest, name: str) -> HttpResponseBase:
    """Show the removals that wait; confirm one, or keep the objects."""
    cluster = get_object_or_404(MemberCluster, name=name)
    if request.method == "POST":
        return _decide(request, cluster)
    return render(
        request,
        "clusters/removals.html",
        {"cluster": cluster, "removals": waiting_removals(cluster.name)},
    )


@for_operators("decide removals", of=by_operation)
def _decide(request: HttpRequest, cluster: MemberCluster) -> HttpResponse:
    placement = request.POST.get("placement", "")
    if request.POST.get("do") == "keep":
        keep_objects(cluster.name, placement, **actor(request))
        done = f"The objects of {placement} stay on {cluster.name}."
    else:
        confirm_removal(cluster.name, placement, **actor(request))
        done = f"Removal of {placement} from {cluster.name} confirmed."
    return redirect_after(request, done, "web:cluster-removals", cluster.name)
