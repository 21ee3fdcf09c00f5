"""What-if: the loss of chosen clusters, and the resilience report over every cluster and every domain."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import urlencode
from django.views.decorators.http import require_http_methods, require_safe

from clusters.filters import label_keys
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.grouping import grouped
from fleetui.htmx import render_page
from fleetui.middleware import costly
from fleetui.permissions import for_readers
from placements.engine.loss import CLUSTER, LossVariant, PlacementImpact, PlacementLoss
from placements.explain.charts.figure import Chart
from placements.explain.charts.loss import (
    MOST_LOSSES,
    LossLine,
    survival_chart,
)
from placements.explain.lanes import placed_panels
from placements.explain.loss import (
    IMPACT_BADGES,
    VARIANT_NAMES,
    choice_words,
    difference_note,
    impacts_sentence,
    loss_name,
    what_if_query,
    worst_by_level,
)
from placements.explain.preview import MOST_PICKS, passed_over, pick_lines
from placements.explain.vocabulary import OUTCOME_WORDS
from placements.models import Placement, ResilienceReport
from placements.services.loss.evaluation import Impact, chosen_clusters, losses_at
from placements.services.loss.queries import (
    age_of,
    report_in_progress,
    survival_by_group,
    trend,
    weakest_placements,
    worst_domain,
    worst_losses,
)
from placements.services.loss.report import latest_report, start_report
from placements.services.teams import labels_in
from placements.web.layout import live_page
from placements.web.request import actor, requested_table, unknown_words, word_from

_ROWS_SHOWN = 50
_LOSSES_SHOWN = 10
_MOST = 200


@for_readers
@costly
@require_safe
@live_page
def what_if(request: HttpRequest) -> HttpResponse:
    """Show what the loss of the chosen clusters does; without a choice, of the worst single domain."""
    names, labels = _choice(request)
    worst = None if names or labels else worst_domain()
    if worst is not None:
        labels = [f"{worst.level}:{worst.value}"]
    variant = word_from(request, "variant", LossVariant) or LossVariant.LEAVE
    context = {
        "variant": variant,
        "worst": loss_name(*worst) if worst else "",
        "names": "\n".join(names),
        "labels": " ".join(label.replace(":", "=", 1) for label in labels),
        "keys": label_keys(),
        "errors": (),
        "unknown": unknown_words(request, variant=LossVariant, impact=PlacementImpact),
    }
    status = 200
    if names or labels:
        try:
            clusters = chosen_clusters(names, labels)
        except InvalidManifest as error:
            context["errors"] = error.errors
            status = 422
        else:
            version: str = request.version  # type: ignore[attr-defined]  # of `live_page`
            impacts = losses_at(version, clusters)
            chosen = choice_words(names, labels, len(clusters))
            context |= {"chosen": chosen, "clusters": clusters}
            context |= _loss_context(request, impacts, variant)
    return render_page(request, "what_if/loss.html", context, status=status)


def _choice(request: HttpRequest) -> tuple[list[str], list[str]]:
    query = request.GET
    names = (
        " ".join([query.get("clusters", ""), *query.getlist("cluster")])
        .replace(",", " ")
        .split()
    )
    labels = " ".join(query.getlist("label")).replace(",", " ").split()
    return list(dict.fromkeys(names)), [
        label.replace("=", ":", 1) for label in dict.fromkeys(labels)
    ]


def _loss_context(
    request: HttpRequest, impacts: dict[LossVariant, Impact], variant: LossVariant
) -> dict[str, Any]:
    impact = impacts[variant]
    wanted = word_from(request, "impact", PlacementImpact)
    rows = [row for row in impact.rows if wanted in (None, row.impact)]
    drained = {row.placement: row for row in impacts[LossVariant.CORDON].rows}
    notes: dict[str, list[str]] = {}
    if variant is not LossVariant.DOWN:
        notes = grouped(
            (difference_note(row, drained[row.placement]), row.placement)
            for row in impacts[LossVariant.LEAVE].rows
            if row.placement in drained
        )
        notes.pop("", None)
    opened = request.GET.get("placement", "")
    return {
        "impact": impact,
        "sentence": impacts_sentence(impact.counts),
        "sentences": [
            (loss_variant, VARIANT_NAMES[loss_variant], impacts_sentence(one.counts))
            for loss_variant, one in impacts.items()
        ],
        "wanted": wanted,
        "impacts": [
            (placement_impact, IMPACT_BADGES[placement_impact][1], count)
            for placement_impact, count in impact.counts.items()
        ],
        "objects": sum(row.objects_out_of_service for row in impact.rows),
        "rows": rows if "all" in request.GET else rows[:_ROWS_SHOWN],
        "rows_count": len(rows),
        "notes": notes,
        "opened": next(
            (_opened(row) for row in impact.rows if row.placement == opened), None
        ),
    }


def _opened(row: PlacementLoss) -> dict[str, Any] | None:
    """Return how the scheduler would decide on a placement."""
    decision = row.decision
    if decision is None:
        return None
    return {
        "placement": row.placement,
        "decision": decision,
        "panels": placed_panels(decision),
        "picks": list(pick_lines(decision)),
        "more_picks": max(0, len(decision.picked) - MOST_PICKS),
        "passed_over": [
            (OUTCOME_WORDS[outcome], count) for outcome, count in passed_over(decision)
        ],
    }


@for_readers
@costly
@require_http_methods(["GET", "HEAD", "POST"])
@live_page
def resilience(request: HttpRequest) -> HttpResponse:
    if request.method == "POST":
        keys = request.POST.get("keys", "").replace(",", " ").split()
        try:
            start_report(keys=keys, **actor(request))
        except InvalidManifest as error:
            return _page(request, keys=" ".join(keys), errors=error.errors, status=422)
        return redirect("web:resilience")
    if "table" in request.GET and (
        table := requested_table(request, _charts(*_chosen(request)))
    ):
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
    documents = Placement.objects.values_list(
        "pk", "full_name", "namespace", "document"
    )
    placements = [
        (key, name, namespace, labels_in(document))
        for key, name, namespace, document in documents
    ]
    by, groups = survival_by_group(losses, placements)
    lines = [
        LossLine(loss_name(loss.level, loss.value), document)
        for loss, document in zip(losses, groups, strict=True)
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
        most = _MOST if "all" in request.GET else _LOSSES_SHOWN
        rows = list(worst_losses(report, variant, level)[: most + 1])
        weakest = weakest_placements(report)
        context |= {
            "age": age_of(report),
            "worst": worst_by_level(report.totals, variant),
            "level": level,
            "losses": [
                (
                    loss,
                    loss_name(loss.level, loss.value),
                    urlencode(what_if_query(loss.level, loss.value, variant)),
                )
                for loss in rows[:most]
            ],
            "has_more": len(rows) > most,
            "weakest": [
                (
                    placement_resilience,
                    loss_name(
                        placement_resilience.weakest_level,
                        placement_resilience.weakest_value,
                    ),
                )
                for placement_resilience in weakest[:_MOST]
            ],
            "weakest_count": len(weakest),
            "charts": _charts(report, variant, level),
            "trend": [
                (resilience_report, worst_by_level(resilience_report.totals, variant))
                for resilience_report in trend()
            ],
        }
    return render_page(
        request,
        "what_if/resilience.html",
        context,
        fragment="what_if/_report.html",
        status=status,
    )
