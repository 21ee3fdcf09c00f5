"""The page of one decision: its replay, an explanation for one cluster, and all clusters or one chart."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from fleetui.apimachinery.grouping import grouped
from fleetui.apimachinery.model import DEFAULT_SEMANTICS
from fleetui.apimachinery.words import counted, names_and_more
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.htmx import render_page, wants_fragment
from fleetui.middleware import costly
from fleetui.permissions import for_readers
from placements.engine.advice.changes import ChangeKind
from placements.engine.advice.search import Suggestion, evaluated_decision
from placements.engine.checks import examination
from placements.engine.exact.record import ExactRecord
from placements.engine.scheduling.decision import CycleKind
from placements.engine.scheduling.decision import Decision as DecisionValue
from placements.engine.scheduling.outcome import Outcome, Outcomes
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.reason import ReasonCode
from placements.engine.scheduling.replay import Replay
from placements.explain.advice import (
    FixLine,
    change_words,
    effects_words,
    failure_sentences,
    fix_lines,
    plausible,
    untried_sentences,
)
from placements.explain.charts.figure import Chart
from placements.explain.charts.lanes import lanes_figure
from placements.explain.charts.outcomes import RULES, FunnelStage, funnel_chart, stages
from placements.explain.charts.scores import affinity_chart, build_up_chart
from placements.explain.decision_document import outcome_document
from placements.explain.decision_tables import (
    Ranking,
    outcome_csv,
    ranking_of,
    rows_csv,
    rows_of,
)
from placements.explain.decisions import (
    course_sentences,
    removal_words,
    step_sentences,
    step_title,
)
from placements.explain.exact import exact_sentences, shopping_sentence
from placements.explain.lanes import (
    FEW_CLUSTERS,
    FinalSkew,
    LanePanel,
    final_skews,
    lane_panels,
    legend_of,
    placed_panels,
)
from placements.explain.steps import (
    FEW_STEPS,
    MOST_COLUMNS,
    ClusterSteps,
    SkewCourse,
    StepChip,
    Strip,
    cluster_steps,
    domain_words,
    skew_courses,
    strip_of,
)
from placements.explain.vocabulary import (
    OUTCOME_ORDER,
    OUTCOME_WORDS,
    bindings_sentence,
    candidate_words,
    change_of_clusters,
    headline,
    measure_word,
    policy_sentence,
    reason_sentence,
    signed_text,
)
from placements.models import Decision, RunKind
from placements.services.checks import fleet_examination
from placements.services.decisions.exact import searched
from placements.services.decisions.records import (
    DecisionView,
    decision_of,
    decisions_named,
    problems_of,
    ranking_decision,
    readable_decisions,
)
from placements.services.decisions.why_not import (
    NOT_IN_FLEET,
    Document,
    ExplainedCluster,
    decided_document,
    draft_with,
    joined_after,
    state_today,
)
from placements.templatetags.fleet import run_address
from placements.web.outcomes import OutcomeRow, OutcomeTable, outcome_row, outcome_table
from placements.web.request import (
    UnknownWord,
    as_file,
    number_of,
    requested_table,
    unknown_words,
    word_from,
)


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
        placement=view.row.placement,
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
        [_help(document, suggestion) for suggestion in helps],
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
    elif change.kind is ChangeKind.REPORT:
        address = reverse("web:cluster", args=[facts["cluster"]])
    draft = draft_with(document, change) if document else None
    return Help(
        change_words(change),
        effects_words(one),
        dump_yaml(draft) if draft else "",
        address,
    )


FORMATS = ("csv", "json")
# Parts of the page that htmx fetches separately: `?panel=issues`.
PANELS = {
    "issues": "decisions/_issues.html",
    "view": "decisions/_view.html",
    "exact": "decisions/_exact.html",
}
_MOST_DOMAINS, _MOST_FILTERED, _MOST_NAMES = 60, 5, 12
_MOST_SELECTIONS = 20  # earlier decisions that are searched for the kept clusters
_USUAL_WIDTH = 580


class View(StrEnum):
    CLUSTERS = "clusters"
    AFFINITY = "affinity"
    FUNNEL = "funnel"
    INPUTS = "inputs"
    COMPARE = "compare"


_TITLES = {
    View.CLUSTERS: "Clusters",
    View.AFFINITY: "Affinity",
    View.FUNNEL: "Filters",
    View.INPUTS: "Inputs",
    View.COMPARE: "Compare",
}
_LIST_FILTERS = ("q", "group", "reason", "outcome", "from")


@dataclass(frozen=True, slots=True)
class ReplayedRound:
    number: int
    title: str
    sentences: list[str]
    ranking: Ranking | None = None


@dataclass(frozen=True, slots=True)
class StepPicture:
    chip: StepChip
    panels: tuple[LanePanel, ...]
    ranking: Ranking
    sentences: list[str]

    @property
    def name(self) -> str:
        return f"step-{self.chip.number}"


@dataclass(frozen=True, slots=True)
class ClusterList:
    table: OutcomeTable
    text: str
    group: str
    reason: str
    reason_words: str
    groups: list[str]
    is_filtered: bool
    # How many filtered clusters are counted by reason instead of listed.
    folded: int


class DecisionPage(DecisionView):
    """A decision and what the address selects of it; each panel computes only what it shows."""

    def __init__(self, request: HttpRequest, row: Decision) -> None:
        super().__init__(row)
        self._request = request
        self.cluster = request.GET.get("cluster", "").strip()
        self.headline = headline(self.value)
        self.verdict = self.headline.partition(" (")[0]
        self.change_words = change_of_clusters(self.value)
        self.measure = measure_word(self.value.cycle.semantics)
        self.clusters_count = len(self.value.cycle.fleet)
        # Finding issues takes scheduler runs: they are in the page at once only where some are certain.
        self.has_issues_panel = (
            not self.value.is_fulfilled or request.GET.get("panel") == "issues"
        )
        self.is_swap = request.GET.get("panel") == "issues" and wants_fragment(request)

    @cached_property
    def final_skews(self) -> list[FinalSkew]:
        return list(final_skews(self.value))

    @property
    def candidate_words(self) -> str:
        """How many clusters were candidates; without filters their outcomes, which add up, too."""
        if self.value.verdicts is not None:
            return candidate_words(self.value)
        counts = [f"{count:,} {words.lower()}" for words, count, _ in self.rejected]
        return f"{counted(self.clusters_count, 'cluster')}: {', '.join(counts)}"

    @cached_property
    def problems(self) -> tuple[str, ...]:
        """What went wrong: of a fulfilled decision only a hard limit that the selection exceeds."""
        over = tuple(
            f"{skew.key}: {skew.measure} {skew.skew} exceeds the hard limit {skew.max_skew}"
            for skew in self.final_skews
            if skew.is_exceeded
        )
        return over if self.value.is_fulfilled else (*over, *super().problems)

    @property
    def more_problems(self) -> list[str]:
        """What went wrong after the first two sentences, without the new clusters that the help names."""
        return [
            problem for problem in self.problems[2:] if problem != self.new_clusters
        ]

    @property
    def problem_count(self) -> int:
        """How many things are wrong: that clusters are missing, and each hard limit that is exceeded."""
        return (not self.value.is_fulfilled) + sum(
            skew.is_exceeded for skew in self.final_skews
        )

    @cached_property
    def notes(self) -> list[str]:
        found = problems_of(self.row) if self.value.is_fulfilled else ()
        return [f"{one[:1].upper()}{one[1:]}." for one in found] + self._label_notes

    @property
    def _label_notes(self) -> list[str]:
        keys = {
            f"labels.{constraint.topology_key}"
            for constraint in self.value.cycle.policy.topology_spread_constraints
        }
        findings = fleet_examination(self.value.cycle.fleet).findings if keys else ()
        return [
            f"{examination.RULES[finding.rule].title}: {finding.message}"
            for finding in findings
            if finding.path in keys
        ]

    @property
    def rules(self) -> str:
        semantics = self.value.cycle.semantics
        return (
            "" if semantics is DEFAULT_SEMANTICS else f"scheduling rules: {semantics}"
        )

    @property
    def snapshot_url(self) -> str:
        row = self.row
        if row.placement is None:
            return "?view=inputs#view"
        number = f"p{row.policy_number}"
        return f"{reverse('web:placement-history', args=[row.placement_name])}?at={number}#{number}"

    @cached_property
    def policy(self) -> str:
        cycle = self.value.cycle
        return policy_sentence(cycle.policy, cycle.semantics, cycle.options)

    @cached_property
    def run(self) -> tuple[str, str] | None:
        run = self.rollout
        if run is None:
            return None
        name = str(run) if run.kind == RunKind.ROLLING else f"staged update run {run}"
        return name, run_address(run)

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
    def new_clusters(self) -> str:
        """Which clusters would have to join so that the placement is fulfilled, where that is known."""
        items = self.exact.shopping if self.exact else ()
        return shopping_sentence(items) if items else ""

    @property
    def can_move(self) -> bool:
        placement = self.row.placement
        is_latest = (
            placement is not None and placement.decisions_made == self.row.number
        )
        return is_latest and self.exact is not None and self.exact.has_better_set

    @cached_property
    def exact_sentences(self) -> list[str]:
        found = (
            exact_sentences(self.exact, self.value.cycle.policy) if self.exact else ()
        )
        return [
            one
            for one in found
            if not self.has_issues_panel or one not in self.problems
        ]

    @cached_property
    def _source(self) -> Decision | None:
        """The decision that selected the clusters, of one that changed nothing."""
        row = self.row
        if row.placement is None:
            return None
        source = ranking_decision(row.placement, row)
        return source if source is not None and source.pk != row.pk else None

    @property
    def source(self) -> Decision | None:
        """The earlier decision whose steps and domains are shown, if not this one."""
        return self._source

    @cached_property
    def played(self) -> DecisionValue:
        return decision_of(self._source) if self._source else self.value

    @cached_property
    def played_replay(self) -> Replay:
        return Replay(self.played)

    @property
    def steps_count(self) -> int:
        return self.played.number_of_rounds

    @cached_property
    def step(self) -> int | None:
        """The step that the address selects, by default the last; None without steps. Raise Http404."""
        total, text = self.steps_count, self._request.GET.get("step", "")
        if not text:
            return total or None
        number = number_of(text) or 0
        if not 1 <= number <= total:
            raise Http404(f"Step {text[:10]} not found: this decision has {total}.")
        return number

    @property
    def earlier(self) -> int | None:
        return self.step - 1 if self.step and self.step > 1 else None

    @property
    def later(self) -> int | None:
        return self.step + 1 if self.step and self.step < self.steps_count else None

    @cached_property
    def strip(self) -> Strip | None:
        if not self.step or not self.played.cycle.policy.topology_spread_constraints:
            return None
        return strip_of(self.played, self.step)

    @cached_property
    def kept_steps(self) -> list[tuple[Decision, StepChip]]:
        """The kept clusters as steps of earlier decisions; empty unless all of them fit."""
        missing = set(self.played.kept)
        if self.strip is None or len(missing) + self.steps_count > MOST_COLUMNS:
            return []
        constraints = self.played.cycle.policy.topology_spread_constraints
        found: list[tuple[Decision, StepChip]] = []
        for row in self.selecting_decisions:
            decision = decision_of(row)
            is_alike = decision.cycle.policy.topology_spread_constraints == constraints
            if is_alike and decision.number_of_rounds:
                chips = strip_of(decision, 1).chips
                found[:0] = [(row, chip) for chip in chips if chip.cluster in missing]
                missing.difference_update(chip.cluster for chip in chips)
        return [] if missing else found

    @property
    def courses(self) -> list[SkewCourse]:
        return list(skew_courses(self.played))

    @cached_property
    def panels(self) -> tuple[LanePanel, ...]:
        candidates = self.played.candidates
        step = self.step if candidates is not None and candidates.constraints else None
        return lane_panels(
            self.played,
            step,
            every=self._request.GET.get("domains") == "all",
            lost=[*self.played.unscheduled, *(self._source or self.row).leaves],
        )

    @cached_property
    def pictures(self) -> list[StepPicture]:
        decision, strip = self.played, self.strip
        is_small = self.clusters_count <= FEW_CLUSTERS and self.steps_count <= FEW_STEPS
        if (
            strip is None
            or not (is_small and strip.start and decision.is_fulfilled)
            or decision.kept
        ):
            return []
        return [
            StepPicture(
                chip,
                lane_panels(decision, chip.number, is_multiple=True),
                ranking_of(self.played_replay, chip.number, self.cluster),
                step_sentences(
                    self.played_replay, self.played_replay.step(chip.number)
                ),
            )
            for chip in strip.chips
        ]

    @property
    def start_panels(self) -> tuple[LanePanel, ...]:
        return lane_panels(self.played, 1, is_start=True, is_multiple=True)

    @property
    def legend(self) -> list[tuple[str, str]]:
        panels = [panel for picture in self.pictures for panel in picture.panels]
        ranking = self.replayed and self.replayed.ranking
        marks = ranking.marks if ranking else ()
        legend = legend_of(panels or self.panels, marks)
        if self.strip and not self.strip.chips[-1].cluster:
            legend.append(("none", "step without a cluster"))
        if any(picture.ranking.has_deciding for picture in self.pictures):
            legend.append(("ring", "lost on this score"))
        return legend

    @cached_property
    def replayed(self) -> ReplayedRound | None:
        if not self.step:
            return None
        step = self.played_replay.step(self.step)
        return ReplayedRound(
            self.step,
            step_title(step),
            step_sentences(self.played_replay, step),
            ranking_of(self.played_replay, self.step, self.cluster),
        )

    @cached_property
    def first_round(self) -> ReplayedRound | None:
        """The step that selected the first cluster, maybe one of an earlier decision."""
        if not self.kept_steps and self.step in (None, 1):
            return None
        decision = self.played
        number = 1
        for row, chip in self.kept_steps[:1]:
            decision = decision_of(row)
            number = chip.number
        replay = Replay(decision)
        step = replay.step(number)
        sentences = step_sentences(replay, step)
        newer = [
            f"{name} ({domain_words(self.played, name)})"
            for name in self.played.cycle.fleet.names
            if name not in decision.cycle.fleet.positions
        ]
        if newer:
            sentences.append(f"Joined since: {names_and_more(newer, 3)}.")
        return ReplayedRound(number, step_title(step), sentences)

    @property
    def others(self) -> list[tuple[str, list[tuple[str, str]], int]]:
        # Where the stored scores decide who stays, these are shown.
        stored = {
            binding.cluster: ", ".join(
                map(
                    signed_text, (binding.topology_spread_score, binding.affinity_score)
                )
            )
            for binding in self.value.cycle.live_bindings
            if self.value.kind is CycleKind.SCALE_DOWN
        }
        # The newest decision comes first; of each the first names are stored, in the order of its steps. The
        # last selection of a cluster counts.
        newest = dict.fromkeys(
            name for row in self.selecting_decisions for name in reversed(row.joins)
        )
        kept = [name for name in reversed(newest) if name in self.played.kept]
        groups = [("Kept, in order of selection", tuple(kept))]
        if len(kept) < len(self.played.kept):
            groups = [("Kept", self.played.kept)]
        if self.kept_steps:
            groups = []
        if self.strip is None:
            groups.insert(0, ("Selected", self.played.picked_names))
        return [
            (
                words,
                [(name, stored.get(name, "")) for name in names[:_MOST_NAMES]],
                max(0, len(names) - _MOST_NAMES),
            )
            for words, names in groups
            if names
        ]

    @property
    def deselected(self) -> list[tuple[str, str]]:
        """The first deselected clusters, each with the rule that removed it."""
        return [
            (name, removal_words(self.value, name))
            for name in self.value.unscheduled[:_MOST_NAMES]
        ]

    @cached_property
    def selecting_decisions(self) -> list[Decision]:
        row = self._source or self.row
        kept = set(self.played.kept)
        if not kept or row.placement is None:
            return []
        rows = readable_decisions(row.placement).filter(
            joins_count__gt=0, number__lt=row.number
        )
        return [
            one for one in rows[:_MOST_SELECTIONS] if not kept.isdisjoint(one.joins)
        ]

    @cached_property
    def rejected(self) -> list[tuple[str, int, list[str]]]:
        names = grouped(
            (OUTCOME_WORDS[outcome.state], outcome.cluster) for outcome in self.outcomes
        )
        return [
            (words, len(names[words]), names[words][:_MOST_NAMES])
            for words in OUTCOME_WORDS.values()
            if words in names
        ]

    @cached_property
    def ruled_out(self) -> list[tuple[str, list[str]]]:
        candidates = self.played.candidates
        if (
            candidates is None
            or self.clusters_count > FEW_CLUSTERS
            or candidates.passes.all()
        ):
            return []
        reasons = grouped(
            (reason_sentence(outcome.reasons[0]), outcome.cluster)
            for outcome in Outcomes(self.played)
            if outcome.state in (Outcome.FILTERED, Outcome.NOT_ELIGIBLE)
        )
        return list(reasons.items())

    @property
    def cluster_steps(self) -> ClusterSteps | None:
        if not self.step or self.cluster not in self.played.cycle.fleet.positions:
            return None
        return cluster_steps(self.played, self.cluster, self.step)

    @property
    def step_table(self) -> list[ClusterSteps]:
        if not self.step or self.clusters_count > FEW_CLUSTERS:
            return []
        return [
            cluster_steps(self.played, name, self.step)
            for name in self.played.cycle.fleet.names
        ]

    @cached_property
    def fix_lines(self) -> list[tuple[FixLine, Help | None]]:
        """What would fulfil the placement, each with where that is done."""
        lines = fix_lines(self.fixes, self.new_clusters.removeprefix("possible with "))
        document = decided_document(self) if lines else None
        return [
            (line, _help(document, line.suggestion) if line.suggestion else None)
            for line in lines
        ]

    def figure(self, name: str) -> str:
        """Return the figure of the domains as JSON; empty where nothing is drawn.

        The address has its width in pixels.
        """
        number = name.removeprefix("step-")
        width = number_of(self._request.GET.get("width", ""), digits=4) or _USUAL_WIDTH
        if name == "groups":
            panels = self.panels
        elif name.startswith("placed-"):
            # One constraint, for a picture of the page of the placement.
            place = number_of(name.removeprefix("placed-"), digits=2)
            placed = placed_panels(self.value)
            panels = placed[place : place + 1] if place is not None else ()
        elif name == "start":
            panels = self.start_panels
        elif number.isdecimal() and 1 <= int(number) <= self.steps_count:
            panels = lane_panels(self.played, int(number), is_multiple=True)
        else:
            return ""
        figure = lanes_figure(panels, width=max(200, width)) if panels else None
        return figure.to_json(validate=True, engine="json") if figure else ""

    def download(self, form: str) -> HttpResponse:
        table = self.cluster_list.table
        name = f"{self.row.record.decision_id[:10]}.{form}"
        if form == "json":
            return as_file(
                JsonResponse({"items": list(map(outcome_document, table.matches))}),
                name,
            )
        text = outcome_csv(self.value)
        if self.cluster_list.is_filtered or table.chosen:
            text = rows_csv(rows_of(self.value, table.matches))
        return as_file(HttpResponse(text, content_type="text/csv; charset=utf-8"), name)

    def chart(self, name: str) -> Chart | None:
        """Draw the chart with this name; None for an unknown one, or where there is nothing to draw."""
        if name == "build-up" and self.cluster in self.value.cycle.fleet.positions:
            return build_up_chart(self.value, self.cluster)
        if name == "funnel":
            return funnel_chart(self.outcomes)
        return affinity_chart(self.value, self.outcomes) if name == "affinity" else None

    @cached_property
    def why(self) -> Explanation | None:
        is_known = self.cluster in self.value.cycle.fleet.positions
        return explanation_of(self, self.cluster) if is_known else None

    @cached_property
    def joined_since(self) -> str:
        """Return the state today of a cluster that the decision did not read; empty for any other name."""
        words = (
            today_words(self, self.cluster) if self.cluster and self.why is None else ""
        )
        return "" if words == NOT_IN_FLEET else words

    @property
    def newcomer(self) -> ExplainedCluster | None:
        found = joined_after(self.row, [self.cluster], now=datetime.now(UTC))
        return found.get(self.cluster)

    @property
    def matches(self) -> list[str]:
        text = self.cluster.lower()
        return (
            [name for name in self.value.cycle.fleet.names if text in name]
            if text
            else []
        )

    @cached_property
    def view(self) -> View | None:
        """The view that the address selects; None: the clusters, fetched when they scroll into sight."""
        query = self._request.GET
        is_list = query.get("panel") == "view" or any(
            query.get(name) for name in _LIST_FILTERS
        )
        chosen = (
            View.COMPARE
            if self.is_search_requested
            else word_from(self._request, "view", View)
        )
        return chosen or (View.CLUSTERS if is_list else None)

    @property
    def views(self) -> list[tuple[str, str, bool]]:
        return [
            (str(view), title, view is (self.view or View.CLUSTERS))
            for view, title in _TITLES.items()
        ]

    @cached_property
    def view_chart(self) -> Chart | None:
        return self.chart(str(self.view))

    @property
    def unknown(self) -> list[UnknownWord]:
        return unknown_words(
            self._request,
            view=View,
            outcome=OUTCOME_ORDER,
            reason=ReasonCode,
            download=FORMATS,
            hub=FORMATS,
        )

    @property
    def funnel_stages(self) -> list[FunnelStage]:
        return stages(self.outcomes)

    @property
    def filter_stages(self) -> list[FunnelStage]:
        return stages(
            [outcome for outcome in self.outcomes if outcome.state == Outcome.FILTERED]
        )

    @property
    def bindings(self) -> str:
        cycle = self.value.cycle
        return bindings_sentence(cycle) if cycle.bindings else "None"

    @cached_property
    def cluster_list(self) -> ClusterList:
        """The clusters that the address selects: `?q=fox&group=region=east&reason=outranked`.

        Older addresses have `region:east`.
        """
        text = self._request.GET.get("q", "").strip().lower()
        # A value may have both signs, a key has none.
        group = re.sub("[:=]", "=", self._request.GET.get("group", "").strip(), count=1)
        reason = word_from(self._request, "reason", ReasonCode)
        key, _, value = group.partition("=")
        cycle = self.value.cycle

        # As in the funnel, reasons that people call the same are the same. A claim is a property.
        alike = {
            code
            for code, words in RULES.items()
            if reason and words == RULES.get(reason)
        } | {reason}
        matching = [
            outcome
            for outcome, cluster in zip(self.outcomes, cycle.fleet, strict=True)
            if text in outcome.cluster
            and (
                not group
                or (cluster.labels.get(key) or cluster.properties.get(key, "")) == value
            )
            and (not reason or outcome.against.code in alike)
        ]
        domains = [
            f"{constraint.topology_key}={name}"
            for constraint in cycle.policy.topology_spread_constraints
            for name in cycle.fleet.topology(
                constraint.topology_key, constraint.topology_key_type
            ).values
        ]
        query = self._request.GET
        is_whole = not (
            text or group or reason or query.get("outcome") or query.get("download")
        )
        folded = (
            sum(outcome.state == Outcome.FILTERED for outcome in matching)
            if is_whole
            else 0
        )
        is_folded = folded > _MOST_FILTERED
        return ClusterList(
            outcome_table(
                self._request, matching, hidden=Outcome.FILTERED if is_folded else None
            ),
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
        return render(
            request, "decisions/several.html", {"prefix": prefix, "decisions": rows}
        )
    [row] = rows
    if row.record.decision_id != prefix:
        return redirect(
            reverse("web:decision", args=[row.record.decision_id], query=request.GET)
        )

    page = DecisionPage(request, row)
    if request.GET.get("download") in FORMATS:
        return page.download(request.GET["download"])
    if "figure" in request.GET:
        figure = page.figure(request.GET["figure"])
        return HttpResponse(
            figure, content_type="application/json", status=200 if figure else 404
        )
    chart = page.chart(request.GET.get("table", ""))
    return requested_table(request, [chart] if chart else []) or render_page(
        request,
        "decisions/decision.html",
        _context(page),
        fragment=PANELS.get(request.GET.get("panel", ""), "decisions/_record.html"),
    )


@for_readers
@costly
@require_safe
def decided_cluster(request: HttpRequest, prefix: str, cluster: str) -> HttpResponse:
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
    return {
        "page": page,
        "decision": page.row,
        "value": page.value,
    }
