"""Telling a simulated cluster to fail, for a rehearsal, and to work again."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods

from clusters.models import MemberCluster
from clusters.operations.faults import NotSimulatedError, faults_of, new_fault, set_faults
from fleetui.access import for_operators
from fleetui.revisions import StaleEditError
from placements.explain.rehearsals import FAULT_KINDS, fault_words, until_of
from placements.scheduling.faults import Fault, Faults
from placements.views.people import user_of

MINUTES = {"": "until it is taken away", "5": "5 minutes", "15": "15 minutes", "60": "an hour"}
_LONGEST = 18


@dataclass(frozen=True, slots=True)
class FaultRow:
    """A fault that a simulated cluster has; `place` is where it stands among all."""

    place: int
    kind: str
    words: str
    until: datetime | None


def fault_rows(cluster: MemberCluster, *, now: datetime) -> list[FaultRow]:
    """Give the faults of a cluster that have not ended; a real one has none."""
    return list(_rows(cluster, now)) if cluster.is_simulated else []


def _rows(cluster: MemberCluster, now: datetime) -> Iterator[FaultRow]:
    for place, fault in enumerate(faults_of(cluster)):
        until = until_of(fault)
        if until is None or now < until:
            yield FaultRow(place, fault["kind"], fault_words(fault), until)


@for_operators("rehearse failures")
@require_http_methods(["GET", "HEAD", "POST"])
def rehearse(request: HttpRequest, name: str) -> HttpResponse:
    """Show what a simulated cluster fails with; add a fault, or take some away."""
    cluster = get_object_or_404(MemberCluster, name=name)
    if request.method != "POST":
        return _page(request, cluster)
    now, given = datetime.now(UTC), request.POST.get("revision", "")
    expected = int(given) if given.isdecimal() and len(given) < _LONGEST else None
    try:
        wanted = _wanted(request, cluster, now)
        row = set_faults(name, wanted, by=user_of(request), now=now, expected=expected)
    except Faults as found:
        return _page(request, cluster, faults=found.faults, status=422)
    except (NotSimulatedError, StaleEditError) as error:
        return _page(request, MemberCluster.objects.get(pk=cluster.pk), refused=str(error), status=409)
    left = len(fault_rows(row, now=now))
    messages.success(request, f"{name} fails as it was told." if left else f"{name} works again.")
    return redirect("pages:rehearse-cluster", name)


def _wanted(request: HttpRequest, cluster: MemberCluster, now: datetime) -> list[dict[str, Any]]:
    """Give the faults that there are to be; those that have ended go. Raises Faults, NotSimulatedError."""
    there = faults_of(cluster)
    lasting = {one.place: there[one.place] for one in fault_rows(cluster, now=now)}
    if "end" in request.POST:
        return [fault for place, fault in lasting.items() if request.POST["end"] not in ("all", str(place))]
    kind, minutes = request.POST.get("kind", ""), request.POST.get("minutes", "")
    if kind not in FAULT_KINDS:
        raise Faults([Fault("kind", "required", "nothing is chosen", f"one of {', '.join(FAULT_KINDS)}")])
    if minutes not in MINUTES:
        allowed = ", ".join(one for one in MINUTES if one)
        raise Faults([Fault("minutes", "not-one-of", f"{minutes!r} is not offered", allowed)])
    lasts = timedelta(minutes=int(minutes)) if minutes else None
    return [*lasting.values(), new_fault(kind, now=now, lasts=lasts)]


def _page(
    request: HttpRequest,
    cluster: MemberCluster,
    *,
    faults: tuple[Fault, ...] = (),
    refused: str = "",
    status: int = 200,
) -> HttpResponse:
    context = {
        "cluster": cluster,
        "rows": fault_rows(cluster, now=datetime.now(UTC)),
        "kinds": FAULT_KINDS.items(),
        "minutes": MINUTES.items(),
        "faults": faults,
        "refused": refused or ("" if cluster.is_simulated else str(NotSimulatedError(cluster.name))),
    }
    return render(request, "clusters/rehearse.html", context, status=status)
