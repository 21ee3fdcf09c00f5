"""The page of one decision: its replay, an explanation for one cluster, and all clusters or one chart."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, partial
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from fleetui.htmx import render_page
from fleetui.middleware import costly
from fleetui.permissions import for_readers
from placements.engine.exact.record import ExactRecord
from placements.engine.scheduling.decision import CycleKind
from placements.engine.scheduling.outcome import Outcome
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.reason import ReasonCode
from placements.engine.scheduling.replay import RoundSummary
from placements.explain.charts.figure import Chart, Leads
from placements.explain.charts.outcomes import (
    RULES,
    FunnelStage,
    funnel_chart,
    stages,
)
from placements.explain.charts.scores import build_up_chart, heatmap_chart
from placements.explain.charts.spread import group_chart, skew_chart
from placements.explain.decision_document import outcome_document
from placements.explain.decision_tables import Ranking, outcome_csv, ranking_of, rows_csv, rows_of
from placements.explain.decisions import step_sentences
from placements.explain.exact import exact_sentences
from placements.explain.vocabulary import bindings_sentence, headline, policy_sentence
from placements.models import Decision, Rollout
from placements.services.decisions.exact import searched
from placements.services.decisions.records import DecisionView, decisions_named, ranking_decision
from placements.web.outcomes import OutcomeTable, outcome_table
from placements.web.request import (
    UnknownWord,
    address_with,
    as_file,
    number_of,
    requested_table,
    unknown_words,
    word_from,
)
from placements.web.why_not import Explanation, explanation_of, today_words

FORMATS = ("csv", "json")
PANELS = {
    "issues": "decisions/_issues.html",
    "view": "decisions/_view.html",
    "replay": "decisions/_replay.html",
    "exact": "decisions/_exact.html",
}
"""Parts of the page that htmx fetches separately: `?panel=issues`."""
_MOST_DOMAINS, _MOST_OFFERED, _MOST_FOUND = 60, 200, 20
_MOST_FILTERED = 5


class View(StrEnum):
    """What the last panel of the page shows, one at a time."""

    CLUSTERS = "clusters"
    FUNNEL = "funnel"
    SCORES = "scores"
    INPUTS = "inputs"


_TITLES = {
    View.CLUSTERS: "All clusters",
    View.FUNNEL: "Filtering summary",
    View.SCORES: "Score heatmap",
    View.INPUTS: "Inputs",
}
_LIST_FILTERS = ("q", "group", "reason", "outcome", "from")


@dataclass(frozen=True, slots=True)
class ReplayedRound:
    """One step as the page shows it; `is_single`: one ranking instead of steps."""

    step: RoundSummary
    number: int
    total: int
    earlier: int | None
    later: int | None
    is_single: bool
    sentences: list[str]
    ranking: Ranking


@dataclass(frozen=True, slots=True)
class Chooser:
    """The clusters to choose from: all names of a small fleet, and those that contain a part of a name."""

    names: tuple[str, ...]
    matches: tuple[str, ...]
    more: int


@dataclass(frozen=True, slots=True)
class ClusterList:
    """The clusters of a decision with the filters that the address sets."""

    table: OutcomeTable
    text: str
    group: str
    reason: str
    reason_words: str
    groups: list[str]
    is_filtered: bool
    folded: int
    """How many filtered clusters are counted by reason instead of listed."""


class DecisionPage(DecisionView):
    """A decision and what the address selects of it; each panel computes only what it shows."""

    def __init__(self, request: HttpRequest, row: Decision) -> None:
        super().__init__(row)
        self._request = request
        self.cluster = request.GET.get("cluster", "").strip()
        self.headline = headline(self.value)
        self.clusters_count = len(self.value.cycle.fleet)
        self.placed_count = len(self.value.picked_names) + len(self.value.kept)
        # Finding issues takes scheduler runs: they are in the page at once only where some are certain.
        self.has_issues_panel = not self.value.is_fulfilled or request.GET.get("panel") == "issues"

    @cached_property
    def policy(self) -> str:
        cycle = self.value.cycle
        return policy_sentence(cycle.policy, cycle.semantics, cycle.options)

    @cached_property
    def run(self) -> tuple[str, str] | None:
        """The words and the address of the run that rolled the decision out."""
        run = self.rollout
        if run is None:
            return None
        if isinstance(run, Rollout):
            return f"rollout {run.placement_name}/{run.number}", reverse(
                "web:rollout", args=[run.placement_name, run.number]
            )
        return f"staged update run {run.full_name}", reverse("web:staged-run", args=[run.full_name])

    @cached_property
    def exact(self) -> ExactRecord | None:
        """The exact search: where the address requests it, and of an unfulfilled decision if it is fast."""
        record = super().exact
        if record is None and self.is_search_requested:
            return searched(self.value, user=self._request.user.pk)
        return record

    @property
    def is_search_requested(self) -> bool:
        return self._request.GET.get("panel") == "exact"

    @property
    def can_search(self) -> bool:
        """Whether an exact search runs when it is opened: it takes long, or all clusters are selected."""
        is_supported = profile_of(self.value.cycle).has_exact_search
        return self.exact is None and is_supported and self.value.kind is CycleKind.PICK

    @property
    def can_move(self) -> bool:
        """Whether there is a better set and a placement that few moves can get to it."""
        if self.row.placement is None:
            return False
        return self.exact is not None and self.exact.has_better_set

    @cached_property
    def exact_sentences(self) -> list[str]:
        found = exact_sentences(self.exact, self.value.cycle.policy) if self.exact else ()
        return [one for one in found if not self.has_issues_panel or one not in self.problems]

    @cached_property
    def step(self) -> int | None:
        """The step that the address selects, by default the last; None without steps. Raise Http404."""
        total, text = self.value.number_of_rounds, self._request.GET.get("step", "")
        if not text:
            return total or None
        number = number_of(text) or 0
        if not 1 <= number <= total:
            raise Http404(f"Step {text[:10]} not found: this decision has {total}.")
        return number

    @property
    def has_replay(self) -> bool:
        return "step" in self._request.GET or self._request.GET.get("panel") == "replay"

    @property
    def shown_round(self) -> ReplayedRound | None:
        return self.replayed if self.has_replay else None

    @cached_property
    def ranking_url(self) -> str:
        """The address of the decision that selected the clusters, of one that changed nothing."""
        row = self.row
        if row.placement is None:
            return ""
        source = ranking_decision(row.placement, row)
        is_other = source is not None and source.pk != row.pk
        return reverse("web:decision", args=[source.record.decision_id]) if source and is_other else ""

    @cached_property
    def replayed(self) -> ReplayedRound | None:
        if not self.step:
            return None
        number, total = self.step, self.value.number_of_rounds
        step = self.replay.step(number)
        return ReplayedRound(
            step,
            number,
            total,
            number - 1 if number > 1 else None,
            number + 1 if number < total else None,
            is_single=step.cut is not None or not step.spreads,
            sentences=step_sentences(self.replay, step),
            ranking=ranking_of(self.replay, number, self.cluster),
        )

    @cached_property
    def step_charts(self) -> list[Chart]:
        charts = (group_chart(self.value, self.step), self._skews())
        return [one for one in charts if one and len(one.rows) > 1] if self.has_replay else []

    def _skews(self) -> Chart | None:
        """Draw the skews; each step leads to its replay."""
        chart = skew_chart(self.value, self.step)
        if chart is None:
            return None
        here = address_with(self._request, step=None)
        before = here if here == "?" else f"{here}&"
        cells = tuple((f"{before}step={row[0]}#replay",) for row in chart.rows)
        return replace(chart, leads=Leads(f"{before}step={{x}}#replay", cells))

    def chart(self, name: str) -> Chart | None:
        """Draw the chart with this name; None for an unknown one, or where there is nothing to draw."""
        value, step = self.value, self.step
        charts: dict[str, Callable[[], Chart | None]] = {
            "groups": partial(group_chart, value, step),
            "skews": self._skews,
            "funnel": lambda: funnel_chart(self.outcomes),
            "scores": lambda: heatmap_chart(value, self.outcomes, step),
        }
        if name == "build-up" and self.cluster in value.cycle.fleet.positions:
            return build_up_chart(value, self.cluster)
        return charts[name]() if name in charts else None

    @cached_property
    def why(self) -> Explanation | None:
        is_known = self.cluster in self.value.cycle.fleet.positions
        return explanation_of(self, self.cluster) if is_known else None

    @cached_property
    def joined_since(self) -> str:
        """The state today of the chosen cluster where it joined after the decision."""
        words = today_words(self, self.cluster) if self.cluster and self.why is None else ""
        return words if "after this decision" in words else ""

    @cached_property
    def chooser(self) -> Chooser:
        names, text = self.value.cycle.fleet.names, self.cluster
        matches = [name for name in names if text.lower() in name] if text and text not in names else []
        return Chooser(
            names if len(names) <= _MOST_OFFERED else (),
            tuple(matches[:_MOST_FOUND]),
            max(0, len(matches) - _MOST_FOUND),
        )

    @cached_property
    def view(self) -> View | None:
        """The view that the address selects; None: the clusters, fetched when they scroll into sight."""
        query = self._request.GET
        is_list = query.get("panel") == "view" or any(query.get(name) for name in _LIST_FILTERS)
        return word_from(self._request, "view", View) or (View.CLUSTERS if is_list else None)

    @property
    def views(self) -> list[tuple[str, str, bool]]:
        has_steps = bool(self.value.number_of_rounds)
        return [
            (str(view), title, view is self.view)
            for view, title in _TITLES.items()
            if has_steps or view is not View.SCORES
        ]

    @cached_property
    def view_chart(self) -> Chart | None:
        return self.chart(str(self.view))

    @property
    def unknown(self) -> list[UnknownWord]:
        closed = {"view": View, "outcome": Outcome, "reason": ReasonCode, "download": FORMATS, "hub": FORMATS}
        return unknown_words(self._request, **closed)

    @property
    def funnel_stages(self) -> list[FunnelStage]:
        return stages(self.outcomes)

    @property
    def filter_stages(self) -> list[FunnelStage]:
        return stages([one for one in self.outcomes if one.outcome is Outcome.FILTERED])

    @property
    def bindings(self) -> str:
        cycle = self.value.cycle
        return bindings_sentence(cycle) if cycle.bindings else "None"

    @cached_property
    def cluster_list(self) -> ClusterList:
        """The clusters that the address selects: `?q=fox&group=region:east&reason=outranked`."""
        text = self._request.GET.get("q", "").strip().lower()
        group = self._request.GET.get("group", "").strip()
        reason = word_from(self._request, "reason", ReasonCode)
        key, _, value = group.partition(":")
        cycle = self.value.cycle

        # As in the funnel, reasons that people call the same are the same. A claim is a property.
        alike = {code for code, words in RULES.items() if reason and words == RULES.get(reason)} | {reason}
        matching = [
            one
            for one, cluster in zip(self.outcomes, cycle.fleet, strict=True)
            if text in one.cluster
            and (not group or (cluster.labels.get(key) or cluster.properties.get(key, "")) == value)
            and (not reason or one.ruled_by in alike)
        ]
        domains = [
            f"{one.topology_key}:{name}"
            for one in cycle.policy.topology_spread_constraints
            for name in cycle.fleet.topology(one.topology_key, one.topology_key_type).values
        ]
        query = self._request.GET
        is_whole = not (text or group or reason or query.get("outcome") or query.get("download"))
        folded = sum(one.outcome is Outcome.FILTERED for one in matching) if is_whole else 0
        is_folded = folded > _MOST_FILTERED
        return ClusterList(
            outcome_table(self._request, matching, hidden=Outcome.FILTERED if is_folded else None),
            text,
            group,
            str(reason or ""),
            RULES.get(reason, "") if reason else "",
            domains if len(domains) <= _MOST_DOMAINS else [],
            bool(text or group or reason),
            folded if is_folded else 0,
        )


@for_readers
@costly
@require_safe
def decision(request: HttpRequest, prefix: str) -> HttpResponse:
    """Show the decision with this id, or the one whose id starts so."""
    rows: list[Any] = list(decisions_named(prefix))
    if not rows:
        raise Http404(f"No decision has an id that starts with {prefix[:40]}.")
    if len(rows) > 1:
        return render(request, "decisions/several.html", {"prefix": prefix, "decisions": rows})
    [row] = rows
    if row.record.decision_id != prefix:
        query = request.GET.urlencode()
        address = reverse("web:decision", args=[row.record.decision_id])
        return redirect(f"{address}?{query}" if query else address)

    page = DecisionPage(request, row)
    if request.GET.get("download") in FORMATS:
        form = request.GET["download"]
        table, name = page.cluster_list.table, f"{page.row.record.decision_id[:10]}.{form}"
        if form == "json":
            return as_file(JsonResponse({"items": list(map(outcome_document, table.matches))}), name)
        is_filtered = page.cluster_list.is_filtered or table.chosen
        text = rows_csv(rows_of(page.value, table.matches)) if is_filtered else outcome_csv(page.value)
        return as_file(HttpResponse(text, content_type="text/csv; charset=utf-8"), name)
    if "table" in request.GET:
        chart = page.chart(request.GET["table"])
        return requested_table(request, [chart] if chart else []) or HttpResponse(status=404)
    fragment = PANELS.get(request.GET.get("panel", ""), "decisions/_record.html")
    return render_page(request, "decisions/decision.html", _context(page), fragment=fragment)


@for_readers
@costly
@require_safe
def decided_cluster(request: HttpRequest, prefix: str, cluster: str) -> HttpResponse:
    """Explain the outcome of one cluster on a page of its own."""
    rows: list[Any] = list(decisions_named(prefix))
    page = DecisionPage(request, rows[0]) if len(rows) == 1 else None
    if page is None or cluster not in page.value.cycle.fleet.positions:
        raise Http404(f"No such decision on a cluster named {cluster[:63]}.")
    if page.row.record.decision_id != prefix:
        return redirect("web:decision-cluster", page.row.record.decision_id, cluster)

    page.cluster = cluster
    build_up = page.why.build_up if page.why else None
    table = requested_table(request, [build_up] if build_up else [])
    return table or render_page(request, "decisions/cluster.html", _context(page))


def _context(page: DecisionPage) -> dict[str, Any]:
    row = page.row
    return {
        "page": page,
        "decision": row,
        "value": page.value,
    }
