"""The table of problems: brought up to date by the sweep, and by a reader that finds it too old."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from django.db import OperationalError, transaction
from django.db.models import F
from django.urls import get_script_prefix

from clusters.hubs.queries import live_hubs
from clusters.models import MemberCluster
from fleetui.hub_scope import LOCAL_HUB, LOCAL_HUB_NAME, current_hub_id, in_hub
from placements.engine.problems import ProblemFacts, with_causes
from placements.models import Problem, ProblemBook, ProblemKind
from placements.services.problems.parts import MOST
from placements.services.problems.sources import SOURCES

SWEPT_AFTER = timedelta(seconds=15)
OLDEST = timedelta(seconds=30)
"""A reader compares what was not compared for longer: without beat nothing else does."""
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
_COLUMNS = ("level", "message", "path", "reason", "placement", "causes", "labels")


def find_problems(*, now: datetime) -> list[ProblemFacts]:
    """Return what is wrong with the hub in scope as its rows are now."""
    found = [problem for source in SOURCES for problem in source(now)]
    return with_causes(found)


def open_problems(*, now: datetime) -> list[ProblemFacts]:
    """Return what is wrong with the hub in scope: the rows, which are compared with the facts if too old."""
    if not ProblemBook.objects.filter(hub=current_hub_id(), compared_at__gt=now - OLDEST).exists():
        return compare(now=now)
    rows = Problem.objects.filter(hub=current_hub_id(), ended_at=None).order_by("pk")
    return [row.facts for row in rows]


def compare(*, now: datetime) -> list[ProblemFacts]:
    """Compare the problems of the hub in scope with its facts, save what has changed, and return them.

    Safe to run twice at once: an open problem has a key that exists once. Where the database takes no writes
    now, the caller has them nevertheless.
    """
    found = find_problems(now=now)
    with suppress(OperationalError):
        _save(current_hub_id(), found, now=now)
    return found


def compare_all(*, now: datetime) -> None:
    for hub in (LOCAL_HUB, *live_hubs().values_list("pk", flat=True)):
        with in_hub(hub):
            compare(now=now)


def compare_due(*, now: datetime) -> None:
    """Compare the hubs in which something may have changed, and those not compared for 15 seconds."""
    compare_old((LOCAL_HUB, *live_hubs().values_list("pk", flat=True)), now=now, oldest=SWEPT_AFTER)


def outdate(hub: int) -> None:
    """Have the next reader, or the sweep, compare the problems of a hub: something has changed.

    A lost hint costs the time until the sweep.
    """
    ProblemBook.objects.filter(hub=hub).update(compared_at=_LONG_AGO, version=F("version") + 1)


def compare_old(hubs: Iterable[int], *, now: datetime, oldest: timedelta = OLDEST) -> bool:
    """Compare those of these hubs that were not compared for too long; return whether there are any."""
    current = ProblemBook.objects.filter(compared_at__gt=now - oldest).values_list("pk", flat=True)
    old = set(hubs).difference(current)
    for hub in old:
        with in_hub(hub):
            compare(now=now)
    return bool(old)


def _save(hub: int, found: Sequence[ProblemFacts], *, now: datetime) -> None:
    known = {row.key: row for row in Problem.objects.filter(hub=hub, ended_at=None)}
    by_key = {one.key[:400]: Problem.of(one, hub=hub, now=now) for one in found}
    capped = _capped(found)
    new = [row for key, row in by_key.items() if key not in known]
    changed = []
    for key, row in known.items():
        fresh = by_key.get(key)
        if fresh and any(getattr(row, name) != getattr(fresh, name) for name in _COLUMNS):
            for name in _COLUMNS:
                setattr(row, name, getattr(fresh, name))
            changed.append(row)
    gone = [row.pk for key, row in known.items() if key not in by_key and row.kind not in capped]
    failing = {one.name: one.message[:200] for one in found if one.kind == ProblemKind.CLUSTER_WORKLOADS}
    members = MemberCluster.objects.exclude(workloads_problem="")
    shown = dict(members.values_list("name", "workloads_problem"))
    with transaction.atomic():
        for name, _ in failing.items() ^ shown.items():
            MemberCluster.objects.filter(name=name).update(workloads_problem=failing.get(name, ""))
        Problem.objects.bulk_create(new, batch_size=500, ignore_conflicts=True)
        Problem.objects.bulk_update(changed, _COLUMNS, batch_size=500)
        Problem.objects.filter(pk__in=gone, ended_at=None).update(ended_at=now)
        step = int(bool(new or changed or gone))
        values = {"version": F("version") + step, "compared_at": now}
        if not ProblemBook.objects.filter(hub=hub).update(**values):
            ProblemBook.objects.bulk_create([ProblemBook(hub_id=hub, compared_at=now)], ignore_conflicts=True)


def _capped(found: Iterable[ProblemFacts]) -> set[str]:
    """Return the kinds of which there may be more than were read: none of them counts as ended."""
    counts: dict[str, int] = {}
    for one in found:
        counts[one.kind] = counts.get(one.kind, 0) + 1
    return {kind for kind, count in counts.items() if count >= MOST}


def address(path: str, *, hub: str = "") -> str:
    """Return the address of a page from that below the root of its hub, by default the one in scope."""
    prefix = get_script_prefix()
    if hub or path.startswith("/hubs/"):
        prefix = prefix.partition("hubs/")[0]
    if hub and hub != LOCAL_HUB_NAME and not path.startswith("/hubs/"):
        prefix = f"{prefix}hubs/{hub}/"
    return f"{prefix}{path.removeprefix('/')}"
