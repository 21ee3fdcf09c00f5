"""The answers of the clusters to a dry run."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_safe

from fleetui.htmx import render_page
from fleetui.permissions import for_readers
from fleetui.polling import polled
from placements.explain.dry_runs import DryRunOutcome, dry_run_sentences
from placements.models import DryRun
from placements.services.dry_runs import answers_of
from placements.web.badges import Badge

_MARKS = {
    DryRunOutcome.REFUSED: Badge("failed", "Refused"),
    DryRunOutcome.NOT_REACHED: Badge("unknown", "No answer"),
    DryRunOutcome.CHANGED: Badge("healthy", "Accepted"),
    DryRunOutcome.UNCHANGED: Badge("pending", "No change"),
}


@for_readers
@require_safe
@polled
def dry_run(request: HttpRequest, number: int) -> HttpResponse:
    """Show what the clusters answered; the page polls until they have."""
    row = get_object_or_404(DryRun, pk=number)
    answers = answers_of(row)
    context = {
        "dry_run": row,
        "sentences": dry_run_sentences(answers, not_checked=row.not_checked, left_out=row.left_out),
        "answers": [(one, _MARKS[one.outcome]) for one in answers],
        "differing": [one for one in answers if one.changes],
        "several": len({one.placement for one in answers}) > 1,
    }
    return render_page(request, "dry_runs/dry_run.html", context, fragment="dry_runs/_result.html")
