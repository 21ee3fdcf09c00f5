"""Import of clusters from a file or a text: preview, then import."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from clusters.importing import (
    ImportChoices,
    ImportRead,
    NameChoice,
)
from clusters.operations.importing import (
    ImportCheckFailed,
    ImportOutcome,
    import_members,
    preview_import,
)
from clusters.operations.join import JoinOutcome
from clusters.queries import cluster_of
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.words import counted
from fleetui.htmx import redirect_page, render_page
from fleetui.middleware import costly
from fleetui.permissions import (
    Role,
    for_roles,
)
from placements.services.cluster_imports import read_import
from placements.services.filters import kinds_for
from placements.services.loss.evaluation import impact_of
from placements.web.request import actor, file_or_text

_ROWS_SHOWN = 100
_SECRETS = re.compile(r"\b(users|token|password|client-key-data)\b[\"']?\s*:")
IMPORT_WORDS = {
    JoinOutcome.JOINED: "added",
    JoinOutcome.CHANGED: "changed",
    JoinOutcome.UNCHANGED: "unchanged",
}


@for_roles(Role.OPERATOR, Role.CLUSTER_ADMINISTRATOR, action="import clusters")
@costly
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def import_clusters(request: HttpRequest) -> HttpResponse:
    if request.method != "POST":
        return _page(request, {"text": "", "name": ""})
    context: dict[str, Any] = {"text": request.POST.get("text", ""), "name": ""}
    if _SECRETS.search(context["text"]):  # not sent back to the browser
        context["text"] = ""
    offered: Sequence[NameChoice] = ()
    try:
        text, context["name"] = _uploaded_text(request)
        if not _SECRETS.search(text):
            context["text"] = text
        found = read_import(
            text.encode(), name=context["name"], choices=_choices(request.POST)
        )
        offered = found.choices
        return _submitted(request, found, context)
    except InvalidManifest as error:
        offered = getattr(error, "choices", offered)
        context["errors"] = error.errors
    except ImportCheckFailed as error:
        context["failed"] = error
    # Another name may be the correction.
    foreign = [choice for choice in offered if choice.is_foreign]
    context["choices"] = [(choice, "", None) for choice in foreign[:_ROWS_SHOWN]]
    return _page(request, context, status=422)


def _submitted(
    request: HttpRequest, found: ImportRead, context: dict[str, Any]
) -> HttpResponse:
    how = {**actor(request), "kinds_of": kinds_for}
    if request.POST.get("do") != "import":
        outcome = preview_import(found, **how)
        context |= {"plan": _plan(found, outcome), "notes": found.notes}
        return _page(request, context)
    put = import_members(found, confirmed="confirm" in request.POST, **how)
    done = Counter(str(cluster.result) for cluster in put.clusters)
    summary = ", ".join(
        f"{done[did]} {IMPORT_WORDS[did]}" for did in JoinOutcome if done[did]
    )
    what = counted(len(put.clusters), "cluster")
    if put.objects:
        what += f" and {counted(len(put.objects), 'object')} of Open Cluster Management"
    messages.success(request, f"{what} imported: {summary or 'no cluster'}.")
    return redirect_page(request, reverse("web:clusters"))


def _plan(found: ImportRead, outcome: ImportOutcome) -> dict[str, Any]:
    """Return the preview: the first clusters, each with what would be done; None for one left out."""
    rows = outcome.rows
    changed = [
        cluster_of(row.row) for row in rows if row.did is not JoinOutcome.UNCHANGED
    ]
    by_key = {row.read.key: row for row in rows}
    counts = Counter(str(row.did) for row in rows)
    shown = [(choice, by_key.get(choice.key)) for choice in found.choices[:_ROWS_SHOWN]]
    return {
        "rows": [
            (choice, IMPORT_WORDS[row.did] if row else "left out", row)
            for choice, row in shown
        ],
        "more": max(0, len(found.choices) - _ROWS_SHOWN),
        "count": len(rows),
        "objects": outcome.objects,
        "counts": {str(did): counts[str(did)] for did in JoinOutcome},
        "impact": impact_of(changed),
        "has_failed": any(row.check and not row.check.is_passed for row in rows),
    }


def _choices(entered: QueryDict) -> ImportChoices:
    """Return what was chosen in the table of the preview before."""
    names = dict(zip(entered.getlist("key"), entered.getlist("as"), strict=False))
    left_out = names.keys() - set(entered.getlist("take"))
    written = {key: name.strip() for key, name in names.items() if name.strip()}
    return ImportChoices((), written, frozenset(left_out), is_preview=True)


def _page(
    request: HttpRequest, context: dict[str, Any], *, status: int = 200
) -> HttpResponse:
    return render_page(
        request,
        "clusters/import.html",
        context,
        fragment="clusters/_import_result.html",
        status=status,
    )


def _uploaded_text(request: HttpRequest) -> tuple[str, str]:
    """Return the uploaded or pasted text and its name. Raise InvalidManifest."""
    content = file_or_text(request, request.POST.get("text", ""))
    if "file" not in request.FILES:
        return content, request.POST.get("name") or "pasted text"
    return content, str(getattr(request.FILES["file"], "name", "") or "file")
