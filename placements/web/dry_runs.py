"""The answers of the clusters to a dry run: a part of the page that asks for it, or a page of their own."""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.htmx import render_page
from placements.explain.dry_runs import DryRunOutcome
from placements.services.dry_runs import dry_run_on_clusters
from placements.services.fleet.forms import read_documents
from placements.web.badges import Badge
from placements.web.request import actor

_MARKS = {
    DryRunOutcome.REFUSED: Badge("failed", "Refused"),
    DryRunOutcome.NOT_REACHED: Badge("unknown", "No answer"),
    DryRunOutcome.CHANGED: Badge("healthy", "Accepted"),
    DryRunOutcome.UNCHANGED: Badge("pending", "No change"),
}


def dry_run_response(
    request: HttpRequest, read_text: Callable[[], str]
) -> HttpResponse:
    """Try manifests on the clusters, and show the answers or what is wrong with the manifests."""
    context: dict[str, Any]
    try:
        documents = read_documents(read_text())
        result = dry_run_on_clusters(documents=documents, **actor(request))
    except InvalidManifest as error:
        context, status = {"errors": error.errors}, 422
    else:
        answers = result.answers
        context = {
            "sentences": result.sentences(),
            "answers": [(answer, _MARKS[answer.outcome]) for answer in answers],
            "differing": [answer for answer in answers if answer.changes],
            "several": len({answer.placement for answer in answers}) > 1,
        }
        status = 200
    page = "dry_runs/dry_run.html"
    return render_page(
        request, page, context, fragment="dry_runs/_result.html", status=status
    )
