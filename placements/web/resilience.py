"""The resilience report: what the loss of every cluster and every domain does to the placements."""

from datetime import UTC, datetime
from typing import Any

from django.core.cache import caches
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_http_methods

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.htmx import render_page
from fleetui.middleware import costly
from fleetui.permissions import current_user, for_readers
from fleetui.polling import polled
from placements.engine.resilience import CLUSTER, LossVariant
from placements.explain.charts.figure import Chart
from placements.explain.charts.resilience import MOST_LOSSES, LossLine, survival_chart
from placements.explain.resilience import VARIANT_NAMES, loss_name, what_if_query, worst_by_level
from placements.models import Placement, ResilienceLoss, ResilienceReport
from placements.services.resilience.operations import latest_report, start_report
from placements.services.resilience.queries import (
    ReportAge,
    age_of,
    has_cluster_of,
    report_in_progress,
    survival_by_group,
    trend,
    weakest_placements,
    worst_losses,
)
from placements.services.teams import labels_in
from placements.web.request import requested_table, unknown_words, word_from

_LOSSES_SHOWN, _MOST = 10, 200
_KEPT_SECONDS = 60


@for_readers
@costly
@require_http_methods(["GET", "HEAD", "POST"])
@polled
def resilience(request: HttpRequest) -> HttpResponse:
    """Show the latest report, or start one."""
    if request.method == "POST":
        keys = request.POST.get("keys", "").replace(",", " ").split()
        try:
            start_report(keys=keys, by=current_user(request), now=datetime.now(UTC))
        except InvalidManifest as error:
            return _page(request, keys=" ".join(keys), errors=error.errors, status=422)
        return redirect("web:resilience")
    if "table" in request.GET and (table := requested_table(request, _charts(*_chosen(request)))):
        return table
    return _page(request)


def _chosen(request: HttpRequest) -> tuple[ResilienceReport | None, str, str]:
    """Return the latest report, and the variant and the level of it to show."""
    report = latest_report()
    variants = report.variants if report else list(LossVariant)
    variant = word_from(request, "variant", LossVariant)
    level = request.GET.get("level", "")
    return (
        report,
        str(variant) if variant in variants else variants[-1],
        level if report and level in report.totals else "",
    )


def _charts(report: ResilienceReport | None, variant: str, level: str) -> list[Chart]:
    """Return the map of losses and placements; single clusters are in it where their level is chosen."""
    if report is None:
        return []
    rows = worst_losses(report, variant, level).defer(None)
    losses = list((rows if level else rows.exclude(level=CLUSTER))[: MOST_LOSSES + 1])
    documents = Placement.objects.values_list("pk", "full_name", "namespace", "document")
    placements = [(key, name, namespace, labels_in(document)) for key, name, namespace, document in documents]
    by, groups = survival_by_group(losses, placements)
    lines = [
        LossLine(loss_name(loss.level, loss.value), one) for loss, one in zip(losses, groups, strict=True)
    ]
    chart = survival_chart(lines, by=by, is_down=variant == LossVariant.DOWN)
    return [chart] if chart else []


def _page(request: HttpRequest, *, status: int = 200, **more: Any) -> HttpResponse:
    running = report_in_progress()
    report, variant, level = _chosen(request)
    variants = report.variants if report else list(LossVariant)
    context = {
        "report": report,
        "running": running,
        "variant": variant,
        "variants": {one: VARIANT_NAMES[one] for one in variants},
        "keys": "",
        "errors": (),
        "unknown": unknown_words(request, variant=LossVariant),
        **more,
    }
    if report is not None:

        def what_if(one: ResilienceLoss) -> str:
            return f"{reverse('web:what-if')}?{urlencode(what_if_query(one.level, one.value, variant))}"

        most = _MOST if "all" in request.GET else _LOSSES_SHOWN
        rows = list(worst_losses(report, variant, level)[: most + 1])
        weakest = weakest_placements(report)
        context |= {
            "age": age_of(report),
            "worst": worst_by_level(report.totals, variant),
            "level": level,
            "losses": [(one, loss_name(one.level, one.value), what_if(one)) for one in rows[:most]],
            "has_more": len(rows) > most,
            "weakest": [(one, loss_name(one.weakest_level, one.weakest_value)) for one in weakest[:_MOST]],
            "weakest_count": len(weakest),
            "charts": _charts(report, variant, level),
            "trend": [(one, worst_by_level(one.totals, variant)) for one in trend()],
        }
    return render_page(
        request, "resilience/resilience.html", context, fragment="resilience/_report.html", status=status
    )


def overview_card(report: int | None, moment: str) -> dict[str, Any]:
    """Return the worst losses of the last reports for the overview, unless none of their clusters is left.

    This process keeps them for a minute; `moment` changes with the fleet and with each decision.
    """

    def read() -> tuple[list[ResilienceReport], ReportAge | None]:
        reports = trend(most=5)
        if not reports or not has_cluster_of(reports[0]):
            return [], None
        return reports, age_of(reports[0])

    key = f"resilience-{report}-{moment}"
    kept = caches["process"].get_or_set(key, read, _KEPT_SECONDS) if report else None
    reports, age = kept or ([], None)
    if not reports:
        return {"resilience": None}
    variant = reports[0].variants[-1]
    histories: dict[str, list[int]] = {}
    for each in reversed(reports):
        for one in worst_by_level(each.totals, variant):
            histories.setdefault(one.level, []).append(one.unfulfilled)
    rows = [(one, histories[one.level]) for one in worst_by_level(reports[0].totals, variant)]
    return {"resilience": reports[0], "resilience_age": age, "resilience_levels": rows[:4]}
