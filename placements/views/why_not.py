"""Why one cluster is where it is in a decision, and which single changes would help or not."""

from dataclasses import dataclass

from django.urls import reverse

from placements.explain.advice_wording import (
    change_words,
    effects_words,
    failure_sentences,
    untried_sentences,
)
from placements.explain.charts.build_up import build_up_chart
from placements.explain.charts.chart import Chart
from placements.explain.step_wording import course_sentences
from placements.manifests import dump_yaml
from placements.queries.changed_documents import draft_with
from placements.queries.records import AnyDecision, advice_of, decision_of
from placements.scheduling.advice.changes import Change, ChangeKind
from placements.scheduling.advice.search import Suggestion
from placements.scheduling.outcomes import Outcome
from placements.views.cluster_changes import label_query
from placements.views.outcomes import OutcomeRow, outcome_row

_CLUSTER_CHANGES = (ChangeKind.LABEL, ChangeKind.LEAVE, ChangeKind.REPORT)
_MOST_NAMED, _MOST_FOUND = 200, 20


@dataclass(frozen=True, slots=True)
class Help:
    """One change that would get the cluster picked: a draft of the placement, or a cluster to change."""

    words: str
    effects: str
    manifest: str
    cluster_url: str


@dataclass(frozen=True, slots=True)
class Why:
    """What became of one cluster, how it fared, and what would change that."""

    outcome: OutcomeRow
    course: list[str]
    helps: list[Help]
    fails: list[str]
    untried: list[str]
    is_placed: bool
    build_up: Chart | None


@dataclass(frozen=True, slots=True)
class Chooser:
    """The clusters to ask for: all of them for the field to offer, or those that a text finds."""

    names: tuple[str, ...]
    found: tuple[str, ...]
    more: int


def why_of(row: AnyDecision, cluster: str) -> Why:
    """Tell everything about one cluster of the decision's fleet. Raises KeyError for any other."""
    advice, value = advice_of(row, cluster), decision_of(row)
    return Why(
        outcome_row(advice.outcome),
        course_sentences(value, cluster),
        [_help(row, one) for one in advice.helps],
        failure_sentences(advice.fails),
        untried_sentences(advice.not_tried),
        is_placed=advice.outcome.outcome in (Outcome.PICKED, Outcome.KEPT),
        build_up=build_up_chart(value, cluster),
    )


def chooser_of(row: AnyDecision, text: str) -> Chooser:
    """Offer the names of a small fleet; of a large one those that a text, which is no whole name, finds."""
    names = decision_of(row).cycle.fleet.names
    found = [name for name in names if text.lower() in name] if text and text not in names else []
    return Chooser(
        names if len(names) <= _MOST_NAMED else (),
        tuple(found[:_MOST_FOUND]),
        max(0, len(found) - _MOST_FOUND),
    )


def _help(row: AnyDecision, one: Suggestion) -> Help:
    change = one.change
    draft = draft_with(row, change)
    return Help(
        change_words(change),
        effects_words(one),
        dump_yaml(draft) if draft else "",
        _cluster_url(change) if change.kind in _CLUSTER_CHANGES else "",
    )


def _cluster_url(change: Change) -> str:
    """Lead to where the change can be made: for a label to the form with that label filled in."""
    facts = change.facts
    if change.kind is ChangeKind.LABEL:
        form = reverse("pages:edit-cluster", args=[facts["cluster"]])
        return f"{form}?{label_query(facts['key'], facts['value'])}"
    page = "pages:leave-cluster" if change.kind is ChangeKind.LEAVE else "pages:cluster"
    return reverse(page, args=[facts["cluster"]])
