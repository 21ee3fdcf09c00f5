"""Stored problems and statuses: brought up to date by the sweep, and by a reader that finds them too old."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import OperationalError, connection, transaction
from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, Subquery, When
from django.db.models.functions import Coalesce
from django.urls import get_script_prefix

from clusters.hub_queries import live_hub_keys
from clusters.models import MemberCluster
from fleetui import LOCAL_HUB_NAME
from fleetui.apimachinery.grouping import grouped
from fleetui.apimachinery.words import counted, names_and_more
from fleetui.audit import AuditEvent, record_all
from fleetui.bulk import batched
from fleetui.changes import unnoticed
from fleetui.hub_scope import LOCAL_HUB, current_hub_id, in_hub
from fleetui.models import Event
from placements.engine.limits import balance_sentence
from placements.engine.problems import Noun, ProblemFacts, ProblemLevel, with_causes
from placements.engine.rollout.state import FailureKind, Phase
from placements.engine.status import (
    NEEDS_RUN,
    TROUBLED,
    WAITS_FOR_APPROVAL,
    HealthCounts,
    HealthLevel,
    PlacementHealth,
)
from placements.manifests.binding import BindingState
from placements.models import (
    Binding,
    Decision,
    Placement,
    Problem,
    ProblemBook,
    ProblemKind,
)
from placements.services.decisions.records import problems_of
from placements.services.filters import MOST_NAMESPACES, count_in_all, latest_decisions
from placements.services.health import all_healths, exceeded_of, ready_clusters
from placements.services.problems.parts import MOST, page
from placements.services.problems.root_causes import (
    AttentionSection,
    root_causes,
    section_of,
)
from placements.services.problems.sources import SOURCES
from placements.services.results import PLACEMENT
from placements.services.rollout_state import WAITING
from placements.services.teams import labels_in

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
    healths: Iterable[tuple[Any, PlacementHealth]],
    *,
    failed: Collection[str],
    now: datetime,
) -> Iterator[ProblemFacts]:
    """Yield a problem for each placement that is degraded or needs a staged run; two queries.

    That a run of a placement has `failed` says already that it needs another one.
    """
    degraded = {}
    for placement, health in healths:
        if health.detail == NEEDS_RUN and placement.full_name not in failed:
            yield _of_needed_run(placement, health)
        elif health.is_degraded:
            degraded[placement] = health
    placements = list(degraded)[:MOST]
    if not placements:
        return
    where = _where(placements, now=now)
    decisions = latest_decisions(
        [placement for placement in placements if placement.is_unfulfilled][
            :_MOST_REASONS
        ]
    )
    problems = []
    for placement in placements:
        problem = _of_placement(
            placement, degraded[placement], where[placement.pk], decisions
        )
        problems += [problem] if problem else []
    yield from problems
    yield from _of_workloads([where[placement.pk] for placement in placements])


def _of_needed_run(placement: Any, health: PlacementHealth) -> ProblemFacts:
    name = placement.full_name
    counts = health.counts
    clusters = counted(counts.wanted, "cluster")
    return ProblemFacts(
        ProblemKind.ROLLOUT_HELD,
        f"{ProblemKind.ROLLOUT_HELD}/{name}/{NEEDS_RUN}",
        Noun.PLACEMENT,
        name,
        ProblemLevel(health.level),
        f"{NEEDS_RUN.capitalize()}: the current revision is started on"
        f" {counts.started:,} of {clusters}.",
        page("placement", name),
        reason=NEEDS_RUN,
        placement=name,
        labels=labels_in(placement.document),
    )


def _of_workloads(places: Iterable[_Where]) -> Iterator[ProblemFacts]:
    """Yield the clusters that are the only ready ones on which several placements fail."""
    alone = (place for place in places if len(place.failing) == 1)
    by_cluster = grouped((where.failing[0], where) for where in alone)
    for name, several in by_cluster.items():
        if len(several) == 1:
            continue
        has_failed = any(where.failed for where in several)
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
            min((where.since for where in several if where.since), default=None),
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
        return [
            "No resources selected: the selectors match no resources on the hub. Nothing is rolled out."
        ]
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
    return [*sentences, *filter(None, [balance_sentence(exceeded_of(placement))])]


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


SWEPT_AFTER = timedelta(seconds=15)
OLDEST = timedelta(seconds=30)
"""A reader compares what was not compared for longer: without beat nothing else does."""


def problems_with(
    healths: Sequence[tuple[Any, PlacementHealth]], *, now: datetime
) -> list[ProblemFacts]:
    """Return what is wrong with the hub in scope as its rows are now; `healths` are of its placements."""
    found = [problem for source in SOURCES for problem in source(now)]
    failed = {
        facts.placement for facts in found if facts.kind == ProblemKind.ROLLOUT_FAILED
    }
    return with_causes([*found, *of_placements(healths, failed=failed, now=now)])


def open_problems(*, now: datetime) -> list[ProblemFacts]:
    """Return what is wrong with the hub in scope: the rows, which are compared with the facts if too old."""
    return stored_problems() if _is_current(now=now) else compare(now=now)


def stored_problems() -> list[ProblemFacts]:
    """Return what was wrong with the hub in scope at its last comparison."""
    rows = Problem.objects.filter(hub=current_hub_id(), ended_at=None).order_by("pk")
    return [row.facts for row in rows]


def bring_up_to_date(*, now: datetime) -> bool:
    """Compare the hub in scope for a reader of its problems or statuses if needed; return whether it was."""
    is_current = _is_current(now=now)
    if not is_current:
        compare(now=now)
    return not is_current


def _is_current(*, now: datetime) -> bool:
    """Return whether a reader sees each change of a user, every placement has a status, and all is young."""
    return (
        _current_books(oldest=now - OLDEST)
        .filter(hub=current_hub_id())
        .exclude(Exists(Placement.objects.filter(health_level="")))
        .exists()
    )


def _current_books(*, oldest: datetime) -> QuerySet[ProblemBook]:
    return ProblemBook.objects.filter(
        compared_at__gt=oldest, requested_version__lte=F("observed_version")
    )


def compare(*, now: datetime, book: ProblemBook | None = None) -> list[ProblemFacts]:
    """Compare problems and statuses of the hub in scope with its facts, save what has changed.

    Return the problems. Safe to run twice at once: an open problem has a key that exists once, and what is
    marked meanwhile is compared again. Where the database takes no writes now, the caller has the problems
    nevertheless. `book` is the row of the hub, if the caller has just read it.
    """
    hub = current_hub_id()
    book = book or ProblemBook.objects.filter(hub=hub).first()
    healths = list(all_healths(now=now))
    found = problems_with(healths, now=now)
    with suppress(OperationalError), unnoticed(), transaction.atomic():
        messages = {
            facts.placement: facts.message for facts in found if facts.kind in _STATUS
        }
        has_changed = _save_statuses(healths, messages, now=now)
        has_changed |= _save_problems(hub, found, now=now)
        namespaces = sorted({placement.namespace for placement, _ in healths} - {""})
        totals = {
            **count_in_all(),
            "namespaces": namespaces[:MOST_NAMESPACES],
            "inbox": sum(
                section_of(cause) is not AttentionSection.ADVICE
                for cause in root_causes(found)
            ),
        }
        values = {"compared_at": now, "totals": totals}
        if book is None:
            ProblemBook.objects.bulk_create(
                [ProblemBook(hub_id=hub, **values)], ignore_conflicts=True
            )
            return found
        # What has been marked since the row was read is still to be compared.
        step = int(has_changed or book.totals != totals)
        ProblemBook.objects.filter(hub=hub).update(
            version=F("version") + step, observed_version=book.version + step, **values
        )
    return found


def compare_due(*, now: datetime) -> None:
    """Compare the hubs in which something may have changed, and those not compared for 15 seconds."""
    books = ProblemBook.objects.in_bulk()
    for hub in (LOCAL_HUB, *live_hub_keys.rows()):
        book = books.get(hub)
        is_young = book is not None and book.compared_at > now - SWEPT_AFTER
        if book is None or not is_young or book.version > book.observed_version:
            with in_hub(hub):
                compare(now=now, book=book)


def outdate(hub: int, *, by_request: bool = True) -> None:
    """Have the problems and statuses of a hub compared: something has changed.

    The sweep does, and after a request of a user the next reader. A lost mark costs the time until the sweep.
    """
    next_version = F("version") + 1
    values = {
        "version": next_version,
        **({"requested_version": next_version} if by_request else {}),
    }
    ProblemBook.objects.filter(hub=hub).update(**values)


def compare_old(hubs: Iterable[int], *, now: datetime) -> None:
    """Compare those of these hubs of which a reader would miss something."""
    current = _current_books(oldest=now - OLDEST).values_list("pk", flat=True)
    for hub in set(hubs).difference(current):
        with in_hub(hub):
            compare(now=now)


def _save_statuses(
    healths: Iterable[tuple[Any, PlacementHealth]],
    messages: Mapping[str, str],
    *,
    now: datetime,
) -> bool:
    """Save the statuses that have changed, with their events; return whether there are any.

    `messages` are those of degraded placements, by name. Never wait for a row while others are locked: what a
    worker writes now is left to the next comparison.
    """
    changed = {}
    for placement, health in healths:
        values = health.values
        if placement.health != values:
            placement.health_level, placement.health = health.level.value, values
            changed[placement.pk] = placement
    for part in batched(changed):
        can_skip = connection.features.has_select_for_update_skip_locked
        free = (
            Placement.objects.select_for_update(skip_locked=can_skip, no_key=True)
            .filter(pk__in=part)
            .values_list("pk", flat=True)
        )
        rows = [changed[pk] for pk in free]
        Placement.objects.bulk_update(rows, ["health_level", "health"], batch_size=100)
        record_all(_status_events(rows, messages), by=None, now=now)
    return bool(changed)


_STATUS = (ProblemKind.PLACEMENT_NOT_FULFILLED, ProblemKind.PLACEMENT_DEGRADED)
_VERBS = ("recovered", "degraded", "failed")
"""Of the events of statuses, the worst last."""
_SEVERITIES = dict.fromkeys(TROUBLED, 1) | {
    HealthLevel.HEALTHY: 0,
    HealthLevel.FAILED: 2,
}


def _status_events(
    changed: Iterable[Placement], messages: Mapping[str, str]
) -> Iterator[AuditEvent]:
    """Yield the events of placements that are worse than their last event says, or healthy again.

    What fails is progressing while it is retried, which is neither: a retry repeats no event. The lock of the
    placement keeps two comparisons at once from doing so. A live hub has its own events.
    """
    keys = [
        placement.pk
        for placement in changed
        if placement.health_level in _SEVERITIES and not placement.is_mirrored
    ]
    if not keys:
        return
    latest = Event.objects.filter(
        kind=PLACEMENT, name=OuterRef("full_name"), verb__in=_VERBS
    ).filter(at__gte=OuterRef("created_at"))
    verbs = latest.order_by("-at", "-id").values("verb")[:1]
    rows = Placement.objects.filter(pk__in=keys).annotate(verb=Subquery(verbs))
    for row in rows.only("full_name", "revision", "health").order_by("pk"):
        health = PlacementHealth.read(row.health or {})
        severity = _SEVERITIES[health.level]
        before = _VERBS.index(row.verb) if row.verb else 0
        is_awaited = health.word == WAITS_FOR_APPROVAL
        if is_awaited or before >= severity > 0 or before == severity:
            continue
        reason = messages.get(row.full_name) or health.message
        yield AuditEvent(
            _VERBS[severity],
            PLACEMENT,
            row.full_name,
            row.revision,
            after={"status": health.word, "reason": reason},
            is_warning=severity > 0,
        )


def _save_problems(hub: int, found: Sequence[ProblemFacts], *, now: datetime) -> bool:
    """Save the problems that have changed; return whether there are any."""
    known = {row.key: row for row in Problem.objects.filter(hub=hub, ended_at=None)}
    by_key = {facts.key[:400]: Problem.of(facts, hub=hub, now=now) for facts in found}
    # Of these kinds there may be more than were read: none of them counts as ended.
    counts = Counter(facts.kind for facts in found)
    capped = {kind for kind, count in counts.items() if count >= MOST}
    new = [row for key, row in by_key.items() if key not in known]
    pairs = [(row, by_key[key]) for key, row in known.items() if key in by_key]
    changed = [row for row, fresh in pairs if row.take_over(fresh)]
    gone = [
        row.pk
        for key, row in known.items()
        if key not in by_key and row.kind not in capped
    ]
    kinds = {*counts, *(row.kind for row in known.values())}
    if ProblemKind.CLUSTER_WORKLOADS in kinds:
        _save_workloads(found)
    Problem.objects.bulk_create(new, batch_size=500, ignore_conflicts=True)
    Problem.objects.bulk_update(changed, Problem.CHANGING, batch_size=500)
    Problem.objects.filter(pk__in=gone, ended_at=None).update(ended_at=now)
    return bool(new or changed or gone)


def _save_workloads(found: Iterable[ProblemFacts]) -> None:
    failing = {
        facts.name: facts.message[:200]
        for facts in found
        if facts.kind == ProblemKind.CLUSTER_WORKLOADS
    }
    rows = MemberCluster.objects.exclude(workloads_problem="")
    shown = dict(rows.values_list("name", "workloads_problem"))
    for name, _ in failing.items() ^ shown.items():
        MemberCluster.objects.filter(name=name).update(
            workloads_problem=failing.get(name, "")
        )


def workloads_changed_at() -> Subquery:
    """Return since when workloads fail on a cluster, or work again, to annotate; null if neither."""
    return Subquery(
        Problem.objects.filter(
            hub=OuterRef("hub"),
            kind=ProblemKind.CLUSTER_WORKLOADS,
            name=OuterRef("name"),
        )
        .order_by("-pk")
        .values(changed_at=Coalesce("ended_at", "since"))[:1]
    )


def address(path: str, *, hub: str = "") -> str:
    """Return the address of a page from that below the root of its hub, by default the one in scope."""
    prefix = get_script_prefix()
    if hub or path.startswith("/hubs/"):
        prefix = prefix.partition("hubs/")[0]
    if hub and hub != LOCAL_HUB_NAME and not path.startswith("/hubs/"):
        prefix = f"{prefix}hubs/{hub}/"
    return f"{prefix}{path.removeprefix('/')}"
