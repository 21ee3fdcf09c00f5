"""Stored problems and statuses: brought up to date by the sweep, and by a reader that finds them too old."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from django.db import OperationalError, connection, transaction
from django.db.models import Exists, F, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.urls import get_script_prefix

from clusters.hub_queries import live_hub_keys
from clusters.models import MemberCluster
from fleetui import LOCAL_HUB_NAME
from fleetui.audit import AuditEvent, record_all
from fleetui.bulk import batched
from fleetui.changes import unnoticed
from fleetui.hub_scope import LOCAL_HUB, current_hub_id, in_hub
from fleetui.models import Event
from placements.engine.problems import ProblemFacts, with_causes
from placements.engine.status import (
    TROUBLED,
    WAITS_FOR_APPROVAL,
    HealthLevel,
    PlacementHealth,
)
from placements.models import Placement, Problem, ProblemBook, ProblemKind
from placements.services.filters import MOST_NAMESPACES, count_in_all
from placements.services.health import all_healths
from placements.services.problems.of_placements import of_placements
from placements.services.problems.parts import MOST
from placements.services.problems.root_causes import (
    AttentionSection,
    root_causes,
    section_of,
)
from placements.services.problems.sources import SOURCES
from placements.services.results import PLACEMENT

SWEPT_AFTER = timedelta(seconds=15)
OLDEST = timedelta(seconds=30)
"""A reader compares what was not compared for longer: without beat nothing else does."""


def problems_with(
    healths: Sequence[tuple[Any, PlacementHealth]], *, now: datetime
) -> list[ProblemFacts]:
    """Return what is wrong with the hub in scope as its rows are now; `healths` are of its placements."""
    found = [problem for source in SOURCES for problem in source(now)]
    return with_causes([*found, *of_placements(healths, now=now)])


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
        messages = {one.placement: one.message for one in found if one.kind in _STATUS}
        has_changed = _save_statuses(healths, messages, now=now)
        has_changed |= _save_problems(hub, found, now=now)
        namespaces = sorted({placement.namespace for placement, _ in healths} - {""})
        totals = {
            **count_in_all(),
            "namespaces": namespaces[:MOST_NAMESPACES],
            "inbox": sum(
                section_of(one) is not AttentionSection.ADVICE
                for one in root_causes(found)
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
        one.pk
        for one in changed
        if one.health_level in _SEVERITIES and not one.is_mirrored
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
    by_key = {one.key[:400]: Problem.of(one, hub=hub, now=now) for one in found}
    # Of these kinds there may be more than were read: none of them counts as ended.
    counts = Counter(one.kind for one in found)
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
        one.name: one.message[:200]
        for one in found
        if one.kind == ProblemKind.CLUSTER_WORKLOADS
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
