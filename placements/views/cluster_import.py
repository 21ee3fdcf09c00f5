"""Importing clusters from a file or from pasted text: first what it would do, then doing it."""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from clusters.models import MemberCluster
from clusters.operations.joining import Did, Wanted, foresee_clusters, put_clusters
from clusters.queries import cluster_of, fleet_now
from fleetui.access import for_operators
from placements.explain.wording import counted
from placements.imports import read_members
from placements.queries.impact import Impact, impact_of, with_clusters
from placements.scheduling.faults import Fault, Faults
from placements.views.people import user_of

_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """What an import would do."""

    rows: list[tuple[Did, MemberCluster]]
    more: int
    counts: dict[str, int]
    impact: Impact


@for_operators("import clusters")
@require_http_methods(["GET", "HEAD", "POST"])
def import_clusters(request: HttpRequest) -> HttpResponse:
    """Read clusters, show what would join or change, and import them."""
    if request.method != "POST":
        return render(request, "clusters/import.html", {"text": "", "name": ""})
    try:
        text, name = _given(request)
        wanted = [Wanted(one.document) for one in read_members(text.encode(), name=name)]
        if request.POST.get("do") != "import":
            plan = _plan(wanted, now=datetime.now(UTC))
            return render(request, "clusters/import.html", {"text": text, "name": name, "plan": plan})
        put = put_clusters(wanted, by=user_of(request), now=datetime.now(UTC))
    except Faults as found:
        context = {"text": request.POST.get("text", ""), "name": "", "faults": found.faults}
        return render(request, "clusters/import.html", context, status=422)
    done = Counter(str(one.did) for one in put)
    told = ", ".join(f"{done[did]} {did}" for did in Did if done[did])
    messages.success(request, f"{counted(len(put), 'cluster')} read: {told}.")
    return redirect("pages:clusters")


def _given(request: HttpRequest) -> tuple[str, str]:
    """Give the text of the file, or the one that was pasted, and what to call it. Raises Faults."""
    upload = request.FILES.get("file")
    if upload is None:
        text = request.POST.get("text", "")
        if not text.strip():
            raise Faults([Fault("", "required", "nothing was given", "a file, or text")])
        return text, request.POST.get("name") or "pasted text"
    try:
        return upload.read().decode("utf-8-sig"), upload.name or "file"
    except UnicodeDecodeError as error:
        raise Faults([Fault("", "not-text", f"{upload.name} is not UTF-8 text", "UTF-8")]) from error


def _plan(wanted: list[Wanted], *, now: datetime) -> Plan:
    rows = foresee_clusters(wanted, now=now)
    changed = [cluster_of(row) for did, row in rows if did is not Did.UNCHANGED]
    counts = Counter(str(did) for did, _ in rows)
    return Plan(
        rows[:_SHOWN],
        max(0, len(rows) - _SHOWN),
        {str(did): counts[str(did)] for did in Did},
        impact_of(with_clusters(fleet_now().fleet, changed)),
    )
