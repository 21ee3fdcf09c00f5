"""Fault injection: faults of simulated clusters."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.text import capfirst
from django.views.decorators.http import require_http_methods

from clusters.models import MemberCluster
from clusters.observation import unhealthy_since
from clusters.operations.edit import (
    NotSimulatedError,
    faults_of,
    new_fault,
    not_ready_at,
)
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.concurrency import RevisionConflict
from fleetui.permissions import for_operators
from placements.explain.fault_injection import FAULT_KINDS, SHOWN, fault_words, until_of
from placements.services.rollouts.operations import inject_faults
from placements.templatetags.fleet import plain
from placements.web.request import actor, number_of, redirect_after

MINUTES = {"": "Until cleared", "5": "5 minutes", "15": "15 minutes", "60": "1 hour"}


@dataclass(frozen=True, slots=True)
class FaultRow:
    """An active fault of a simulated cluster; `place` is its index among all."""

    place: int
    kind: str
    words: str
    until: datetime | None


def fault_rows(cluster: MemberCluster, *, now: datetime) -> list[FaultRow]:
    """Return the active faults of a cluster; a real cluster has none."""
    faults = faults_of(cluster) if cluster.is_simulated else []
    rows = [
        FaultRow(place, fault["kind"], fault_words(fault), until_of(fault))
        for place, fault in enumerate(faults)
    ]
    return [row for row in rows if row.until is None or now < row.until]


@for_operators("inject faults")
@require_http_methods(["GET", "HEAD", "POST"])
def inject_fault(request: HttpRequest, name: str) -> HttpResponse:
    """Show the faults of a simulated cluster; inject a fault or clear some."""
    cluster = get_object_or_404(MemberCluster, name=name)
    if request.method != "POST":
        return _page(request, cluster)
    how = actor(request)
    try:
        inject_faults(
            name,
            _wanted(request, cluster, how["now"]),
            **how,
            expected=number_of(request.POST.get("revision", ""), digits=17),
        )
    except InvalidManifest as error:
        return _page(request, cluster, errors=error.errors, status=422)
    except (NotSimulatedError, RevisionConflict) as error:
        return _page(
            request,
            MemberCluster.objects.get(pk=cluster.pk),
            refused=str(error),
            status=409,
        )
    page = "cluster" if request.POST.get("at") == "cluster" else "cluster-inject-fault"
    return redirect_after(
        request, _message(request, cluster, now=how["now"]), f"web:{page}", name
    )


def _message(request: HttpRequest, before: MemberCluster, *, now: datetime) -> str:
    if "end" not in request.POST:
        kind = request.POST["kind"]
        return f"Fault “{_title(kind)}” injected on {before.name}. {SHOWN[kind]}"
    cleared = [
        _title(row.kind)
        for row in fault_rows(before, now=now)
        if request.POST["end"] in ("all", str(row.place))
    ]
    return f"Fault cleared on {before.name}: {', '.join(cleared)}."


def _title(kind: str) -> str:
    return capfirst(plain(kind))


def _wanted(
    request: HttpRequest, cluster: MemberCluster, now: datetime
) -> list[dict[str, Any]]:
    """Return the faults to set, without those that have ended. Raises InvalidManifest, NotSimulatedError."""
    there = faults_of(cluster)
    lasting = {row.place: there[row.place] for row in fault_rows(cluster, now=now)}
    if "end" in request.POST:
        return [
            fault
            for place, fault in lasting.items()
            if request.POST["end"] not in ("all", str(place))
        ]
    kind, minutes = request.POST.get("kind", ""), request.POST.get("minutes", "")
    if kind not in FAULT_KINDS:
        raise InvalidManifest.of(
            "kind", "required", "Required value", ", ".join(FAULT_KINDS)
        )
    if minutes not in MINUTES:
        allowed = ", ".join(one for one in MINUTES if one)
        raise InvalidManifest.of(
            "minutes", "not-one-of", f"Unsupported value: {minutes!r}", allowed
        )
    lasts = timedelta(minutes=int(minutes)) if minutes else None
    return [*lasting.values(), new_fault(kind, now=now, lasts=lasts)]


def _page(
    request: HttpRequest,
    cluster: MemberCluster,
    *,
    errors: tuple[FieldError, ...] = (),
    refused: str = "",
    status: int = 200,
) -> HttpResponse:
    now = datetime.now(UTC)
    return render(
        request,
        "clusters/inject_fault.html",
        {
            "cluster": cluster,
            "rows": fault_rows(cluster, now=now),
            "not_ready_at": not_ready_at(cluster, now=now),
            "unhealthy_since": unhealthy_since(cluster, now=now),
            "now": now,
            "kinds": [
                (kind, words, SHOWN[kind]) for kind, words in FAULT_KINDS.items()
            ],
            "minutes": MINUTES.items(),
            "errors": errors,
            "refused": refused
            or ("" if cluster.is_simulated else str(NotSimulatedError(cluster.name))),
        },
        status=status,
    )
