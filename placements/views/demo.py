"""Loading a demo fleet, and removing it."""

from datetime import UTC, datetime

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from clusters.models import MemberCluster
from fleetui.access import for_operators
from placements.demo import DEMO_SIZES
from placements.models import Placement, Resource
from placements.operations.demo import NameTakenError, load_demo, remove_demo
from placements.views.people import user_of


@for_operators("load a demo")
@require_POST
def load(request: HttpRequest) -> HttpResponse:
    """Load a demo fleet of the size asked for, in the place of the one that is there."""
    size = request.POST.get("size", "")
    if size not in map(str, DEMO_SIZES):
        messages.error(request, f"There is no demo of {size[:20]} clusters.")
        return redirect("pages:overview")
    try:
        load_demo(int(size), by=user_of(request), now=datetime.now(UTC))
    except NameTakenError as taken:
        messages.error(request, f"The demo was not loaded: {taken}")
    else:
        messages.success(request, f"The demo of {int(size):,} clusters is loaded.")
    return redirect("pages:overview")


@for_operators("remove the demo")
@require_http_methods(["GET", "HEAD", "POST"])
def remove(request: HttpRequest) -> HttpResponse:
    """Say what would go with the demo, or remove it."""
    if request.method == "POST":
        remove_demo(by=user_of(request), now=datetime.now(UTC))
        messages.success(request, "The demo is removed.")
        return redirect("pages:overview")
    counts = {
        model: model.objects.filter(is_demo=True).count() for model in (MemberCluster, Placement, Resource)
    }
    context = {
        "clusters": counts[MemberCluster],
        "placements": counts[Placement],
        "resources": counts[Resource],
    }
    return render(request, "demo/remove.html", context)
