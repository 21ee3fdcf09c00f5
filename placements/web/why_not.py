"""Why one cluster has its outcome in a decision, and which single changes would help or not."""

from dataclasses import dataclass
from datetime import UTC, datetime

from django.urls import reverse

from fleetui.apimachinery.yaml import dump_yaml
from placements.engine.advice.changes import ChangeKind
from placements.engine.advice.search import Suggestion, evaluated_decision
from placements.engine.scheduling.outcome import Outcome
from placements.explain.advice import (
    change_words,
    effects_words,
    failure_sentences,
    plausible,
    untried_sentences,
)
from placements.explain.charts.figure import Chart
from placements.explain.charts.scores import build_up_chart
from placements.explain.decisions import course_sentences
from placements.services.decisions.records import DecisionView
from placements.services.decisions.why_not import (
    Document,
    decided_document,
    draft_with,
    state_today,
)
from placements.web.outcomes import OutcomeRow, outcome_row


@dataclass(frozen=True, slots=True)
class Help:
    """One change that would select the cluster: a draft of the placement, or a cluster to change."""

    words: str
    effects: str
    manifest: str
    cluster_url: str


@dataclass(frozen=True, slots=True)
class Explanation:
    today: str
    outcome: OutcomeRow
    course: list[str]
    helps: list[Help]
    fails: list[str]
    untried: list[str]
    is_placed: bool
    is_rescheduled: bool
    build_up: Chart | None


def today_words(view: DecisionView, cluster: str) -> str:
    return state_today(
        cluster,
        was_in_fleet=cluster in view.value.cycle.fleet.positions,
        decided_at=view.row.created_at,
        now=datetime.now(UTC),
    )


def explanation_of(view: DecisionView, cluster: str) -> Explanation:
    """Return everything about one cluster of the decision's fleet. Raise KeyError for any other."""
    advice = view.advice(cluster)
    evaluated = (
        evaluated_decision(view.value, cluster) if advice.is_rescheduled else view.value
    )
    chart = build_up_chart(evaluated, cluster)
    helps = plausible(advice.helps)
    document = decided_document(view) if helps else None
    return Explanation(
        today_words(view, cluster),
        outcome_row(advice.outcome),
        course_sentences(evaluated, cluster),
        [_help(document, one) for one in helps],
        failure_sentences(advice.fails),
        untried_sentences(advice.not_tried),
        is_placed=not advice.is_rescheduled
        and advice.outcome.outcome in (Outcome.PICKED, Outcome.KEPT),
        is_rescheduled=advice.is_rescheduled,
        build_up=chart
        if chart and len(chart.rows) > 2 and any(points for _, points in chart.rows)
        else None,
    )


def _help(document: Document | None, one: Suggestion) -> Help:
    change, facts, address = one.change, one.change.facts, ""
    if change.kind is ChangeKind.LABEL:
        address = reverse(
            "web:cluster-edit",
            args=[facts["cluster"]],
            query={"label": f"{facts['key']}={facts['value']}"},
        )
    elif change.kind is ChangeKind.LEAVE:
        address = reverse("web:cluster-leave", args=[facts["cluster"]])
    elif change.kind is ChangeKind.REPORT:
        address = reverse("web:cluster", args=[facts["cluster"]])
    draft = draft_with(document, change) if document else None
    return Help(
        change_words(change),
        effects_words(one),
        dump_yaml(draft) if draft else "",
        address,
    )
