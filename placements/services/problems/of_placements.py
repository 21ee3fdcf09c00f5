"""The placements whose status is failed, degraded or unknown: the status in full sentences."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Case, Q, When

from fleetui.apimachinery.words import counted, names_and_more
from fleetui.grouping import grouped
from placements.engine.problems import Noun, ProblemFacts, ProblemLevel
from placements.engine.rollout.state import FailureKind, Phase
from placements.engine.status import (
    HealthCounts,
    PlacementHealth,
)
from placements.manifests.binding import BindingState
from placements.models import Binding, Decision, Placement, ProblemKind
from placements.services.decisions.records import problems_of
from placements.services.filters import latest_decisions
from placements.services.health import ready_clusters
from placements.services.problems.parts import MOST, page
from placements.services.rollout_state import WAITING
from placements.services.teams import labels_in

NO_RESOURCES = "No resources selected: the selectors match no resources on the hub. Nothing is rolled out."
_MOST_BINDINGS = 10_000
_MOST_NAMES = 3
_MOST_REASONS = 50
"""Why a placement is not fulfilled takes scheduler runs; of more than this, a general sentence is given."""


@dataclass(slots=True)
class _Where:
    """The clusters on which a placement has a problem, by what it is, and since when."""

    failed: list[str] = field(default_factory=list)
    not_removed: list[str] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)
    not_available: list[str] = field(default_factory=list)
    away: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    since: datetime | None = None
    # Why the first of `failed` failed, as a sentence.
    reason: str = ""

    @property
    def failing(self) -> list[str]:
        return [*self.failed, *self.not_available]


def of_placements(
    healths: Iterable[tuple[Any, PlacementHealth]], *, now: datetime
) -> Iterator[ProblemFacts]:
    """Yield a problem for each placement that is degraded by its status; two queries."""
    degraded = {
        placement: health for placement, health in healths if health.is_degraded
    }
    placements = list(degraded)[:MOST]
    if not placements:
        return
    where = _where(placements, now=now)
    decisions = latest_decisions(
        [one for one in placements if one.is_unfulfilled][:_MOST_REASONS]
    )
    problems = []
    for placement in placements:
        problem = _of_placement(
            placement, degraded[placement], where[placement.pk], decisions
        )
        problems += [problem] if problem else []
    yield from problems
    yield from _of_workloads([where[placement.pk] for placement in placements])


def _of_workloads(places: Iterable[_Where]) -> Iterator[ProblemFacts]:
    """Yield the clusters that are the only ready ones on which several placements fail."""
    alone = (one for one in places if len(one.failing) == 1)
    by_cluster = grouped((one.failing[0], one) for one in alone)
    for name, several in by_cluster.items():
        if len(several) == 1:
            continue
        has_failed = any(one.failed for one in several)
        level = ProblemLevel.FAILED if has_failed else ProblemLevel.ATTENTION
        words = "failed" if has_failed else "not available"
        yield ProblemFacts(
            ProblemKind.CLUSTER_WORKLOADS,
            f"{ProblemKind.CLUSTER_WORKLOADS}/{name}",
            Noun.CLUSTER,
            name,
            level,
            f"Workloads {words} in {counted(len(several), 'placement')}. These placements work on their"
            " other ready clusters.",
            page("cluster", name),
            min((one.since for one in several if one.since), default=None),
            "workloads",
        )


def _where(placements: Collection[Placement], *, now: datetime) -> dict[int, _Where]:
    """Return where the placements have problems, by key; one query, which reads no healthy cluster."""
    has_failed = Q(phase__in=(Phase.FAILED, Phase.REMOVE_FAILED)) | Q(
        failure=FailureKind.DIFFERS
    )
    is_waiting = Q(phase=Phase.APPLIED) & ~Q(available_status="True")
    is_selected = ~Q(state=BindingState.UNSCHEDULED)
    is_away = is_selected & ~Q(cluster_name__in=ready_clusters(now=now).values("name"))
    rows = Binding.objects.filter(
        has_failed | is_waiting | is_away, placement__in=placements
    )
    columns = (
        "placement_id",
        "cluster_name",
        "state",
        "phase",
        "failure",
        "phase_changed_at",
        "message",
        "removal_check",
    )
    rows = rows.order_by("placement_id", "cluster_name")
    rows = rows.annotate(is_there=Case(When(~is_away, then=True), default=False))
    found: dict[int, _Where] = defaultdict(_Where)
    values = rows.values_list(*columns, "is_there")[:_MOST_BINDINGS]
    for (
        placement,
        name,
        state,
        phase,
        failure,
        since,
        message,
        check,
        is_there,
    ) in values:
        one = found[placement]
        if check == WAITING:
            one.waits.append(name)
            continue
        if phase == Phase.REMOVE_FAILED:
            one.not_removed.append(name)
        elif state == BindingState.UNSCHEDULED:
            continue
        elif not is_there:
            one.away.append(name)
            continue
        elif phase == Phase.FAILED:
            one.failed.append(name)
            reason = message.rstrip(".")
            one.reason = one.reason or (reason and f" On {name}: {reason}.")
        elif failure == FailureKind.DIFFERS:
            one.differs.append(name)
        else:
            one.not_available.append(name)
        one.since = min(filter(None, (one.since, since)), default=None)
    return found


def _of_placement(
    placement: Any,
    health: PlacementHealth,
    where: _Where,
    decisions: Mapping[int, Decision],
) -> ProblemFacts | None:
    """Return what is wrong in sentences; None where a stalled rollout or a removal that waits says it."""
    kind, path, since = (
        ProblemKind.PLACEMENT_DEGRADED,
        page("placement", placement.full_name),
        where.since,
    )
    sentences = _why_nothing_is_placed(placement)
    is_nowhere = bool(sentences)
    if placement.is_unfulfilled:
        kind, since = ProblemKind.PLACEMENT_NOT_FULFILLED, placement.scheduled_since
        if decision := decisions.get(placement.pk):
            path = page("decision", decision.record.decision_id)
        if not placement.selection_faults:
            sentences.insert(0, _why_unfulfilled(placement, decision))
    sentences += _of_clusters(placement, health, where)
    # What is only about a single cluster that fails, and clusters that are away, may have its causes there.
    clusters = list(where.failing) if len(sentences) == len(where.failing) == 1 else []
    if where.away and not is_nowhere:
        clusters = [*clusters, *where.away] if len(sentences) == len(clusters) else []
        sentences += _away_sentences(health.counts)
    if not sentences and not placement.is_stalled and not where.waits:
        sentences.append(": ".join(filter(None, (health.word, health.message))) + ".")
    if not sentences:
        return None
    return ProblemFacts(
        kind,
        f"{kind}/{placement.full_name}",
        Noun.PLACEMENT,
        placement.full_name,
        ProblemLevel(health.level),
        " ".join(sentences),
        path,
        since,
        placement=placement.full_name,
        clusters=tuple(clusters),
        labels=labels_in(placement.document),
    )


def _why_nothing_is_placed(placement: Any) -> list[str]:
    if placement.selection_faults:
        fault = placement.selection_faults[0]["message"]
        return [f"Invalid resource selector; not scheduled: {fault}."]
    selects_nothing = placement.selected_count == 0 and not placement.deleting_since
    if selects_nothing and placement.pinned_snapshot is None:
        return [NO_RESOURCES]
    return []


def _away_sentences(counts: HealthCounts) -> list[str]:
    parts = [
        f"{number:,} {word}"
        for number, word in (
            (counts.unreachable, "unreachable"),
            (counts.not_observed, "not observed"),
            (counts.not_monitored, "not monitored"),
            (counts.not_ready, "not ready"),
        )
        if number
    ]
    if not parts:
        return []
    available = f"{counts.available:,} of {counts.wanted:,} available"
    return [f"{available}, {', '.join(parts)}."]


def _of_clusters(placement: Any, health: PlacementHealth, where: _Where) -> list[str]:
    sentences = []
    if where.failed:
        # What failed in a staged placement is retried only by a run.
        is_retried = not placement.is_staged or placement.is_rolling
        retry = "Retrying." if is_retried else "Not retried before the next staged run."
        sentences.append(f"Failed on {_names(where.failed)}.{where.reason} {retry}")
    if where.not_removed:
        sentences.append(f"Removal failed on {_names(where.not_removed)}. Retrying.")
    if where.differs:
        sentences.append(f"Differs on {_names(where.differs)}.")
    if health.counts.not_available:
        sentences.append(f"Not available on {_names(where.not_available)}.")
    return sentences


def _names(clusters: list[str]) -> str:
    return names_and_more(clusters, _MOST_NAMES)


def _why_unfulfilled(placement: Placement, decision: Decision | None) -> str:
    wanted = (
        decision.wanted if decision else placement.number_of_clusters
    ) or placement.named_count
    of_all = "" if wanted is None else f" of {wanted:,}"
    reasons = problems_of(decision) if decision else ()
    reason = reasons[0] if reasons else "Too few clusters pass the filters"
    sentence = reason[:1].upper() + reason[1:].rstrip(".")
    return f"{placement.placed_count:,}{of_all} clusters selected. {sentence}."
