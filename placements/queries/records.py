"""The stored records of decisions, read back; and the stored fleets that they cite."""

import hashlib
import re
import threading
import zlib
from datetime import datetime
from functools import lru_cache, partial
from string import hexdigits
from typing import TypeAlias

from django.db.models import F, Max, QuerySet

from clusters.queries import FleetView
from placements.explain.advice_wording import change_words, trap_sentences
from placements.models import Decision, DecisionRecord, FleetRecord, HypotheticalDecision
from placements.scheduling.advice.search import Advice, how_to_fulfil, why_not
from placements.scheduling.decision import Decision as DecisionValue
from placements.scheduling.fleet import Fleet
from placements.scheduling.outcomes import ClusterOutcome, Outcomes
from placements.scheduling.scheduler import schedule
from placements.scheduling.storage import UnreadableRecordError, pack, pack_fleet, unpack, unpack_fleet
from placements.scheduling.verification import difference
from placements.scheduling.version import ENGINE_VERSION

AnyDecision: TypeAlias = Decision | HypotheticalDecision
"""One that was made, or one that would be: both cite a record."""

_PREFIX = re.compile("d-[0-9a-f]{4,32}")
_MOST_ALIKE = 20
_SHORTEST_PREFIX = 4
_lock = threading.Lock()
_latest: tuple[FleetView, FleetRecord] | None = None


class UnknownDecisionError(LookupError):
    """No record has this id, or an id that begins like this."""

    def __init__(self, given: str) -> None:
        allowed = "an id, or its beginning with 4 hex digits or more, such as d-26de"
        super().__init__(f"no decision has the id {given[:40]!r} (allowed: {allowed})")


class UnknownInDecisionError(LookupError):
    """The fleet of a decision has no such cluster."""

    def __init__(self, decision_id: str, cluster: str) -> None:
        super().__init__(f"the fleet of {decision_id} had no cluster named {cluster[:63]!r}")


class AmbiguousDecisionError(LookupError):
    """Several records have ids that begin like this; `ids` has the first of them."""

    def __init__(self, given: str, ids: tuple[str, ...]) -> None:
        super().__init__(f"several decisions begin with {given}: write more of the id")
        self.ids = ids


def fleet_record_of(view: FleetView) -> FleetRecord:
    """Give the stored form of a fleet, storing it first where it is new; once per fleet version."""
    global _latest  # noqa: PLW0603 -- one fleet per process is the point
    with _lock:
        if _latest is None or _latest[0] is not view:
            _latest = (view, stored_fleet(view.fleet))
        return _latest[1]


def stored_fleet(fleet: Fleet) -> FleetRecord:
    """Give the stored form of any fleet, storing it first where it is new."""
    content = pack_fleet(fleet)
    stored, _ = FleetRecord.objects.get_or_create(
        digest=hashlib.sha256(content).hexdigest(),
        defaults={"content": content, "clusters_count": len(fleet)},
    )
    return stored


def stored_decision(decision: DecisionValue, fleet: FleetRecord, *, now: datetime) -> DecisionRecord:
    """Give the stored form of a decision on a stored fleet, storing it first where it is new."""
    stored, _ = DecisionRecord.objects.defer("content").get_or_create(
        decision_id=decision.id,
        defaults={
            "content": partial(pack, decision),
            "engine": ENGINE_VERSION,
            "fleet": fleet,
            "verified_at": now,
        },
    )
    return stored


@lru_cache(maxsize=4)
def _fleet(record_id: int) -> Fleet:
    return unpack_fleet(bytes(FleetRecord.objects.get(pk=record_id).content))


def fleet_of(record_id: int) -> Fleet:
    """Give a stored fleet; kept for a while."""
    return _fleet(record_id)


@lru_cache(maxsize=64)
def _decision(record_id: int) -> DecisionValue:
    record = DecisionRecord.objects.get(pk=record_id)
    return unpack(bytes(record.content), _fleet(record.fleet_id))


def decision_of(row: AnyDecision) -> DecisionValue:
    """Give what a cycle decided, with everything needed to replay it.

    Raises UnreadableRecordError when another engine wrote the record.
    """
    return _decision(row.record_id)


def is_readable(row: AnyDecision) -> bool:
    """Tell whether this engine wrote the record; what another one wrote cannot be replayed."""
    return row.record.engine == ENGINE_VERSION


def recorded(given: str) -> tuple[int, DecisionValue]:
    """Give the record with this id, or the only one whose id begins so: its key, and what it holds.

    Raises UnknownDecisionError, AmbiguousDecisionError, UnreadableRecordError.
    """
    if not _PREFIX.fullmatch(given):
        raise UnknownDecisionError(given)
    found = DecisionRecord.objects.filter(decision_id__startswith=given).order_by("decision_id")
    alike = list(found.values_list("pk", "decision_id")[:_MOST_ALIKE])
    if not alike:
        raise UnknownDecisionError(given)
    if len(alike) > 1:
        raise AmbiguousDecisionError(given, tuple(decision_id for _, decision_id in alike))
    key = alike[0][0]
    return key, _decision(key)


def fault_of(row: DecisionRecord) -> str:
    """Decide again from what a record stores, and say how the result differs; empty: not at all.

    Nothing is kept in memory, since what is stored is the question.
    """
    try:
        stored = unpack(bytes(row.content), unpack_fleet(bytes(row.fleet.content)))
    except (UnreadableRecordError, ValueError, KeyError, IndexError, zlib.error) as error:
        return f"it cannot be read: {error}"
    return difference(stored, schedule(stored.cycle))


def of_another_engine() -> list[int]:
    """Give the keys of the placements whose latest decision was written by another engine."""
    latest = Decision.objects.filter(number=F("placement__decisions_made"), placement__deleting_since=None)
    written = latest.exclude(record__engine=ENGINE_VERSION)
    return sorted(written.values_list("placement_id", flat=True))


def cycles_of(record: int) -> QuerySet[Decision]:
    """Give the cycles that decided so, newest first."""
    rows = Decision.objects.filter(record_id=record).select_related("record").defer("record__content")
    return rows.order_by("-pk")


@lru_cache(maxsize=8)
def _outcomes(record_id: int) -> tuple[ClusterOutcome, ...]:
    return tuple(Outcomes(_decision(record_id)))


def outcomes_of(row: AnyDecision) -> tuple[ClusterOutcome, ...]:
    """Give what became of every cluster in a cycle, by name; kept, as pages ask for it in pieces."""
    return _outcomes(row.record_id)


@lru_cache(maxsize=256)
def _traps(record_id: int) -> tuple[str, ...]:
    return tuple(trap_sentences(_decision(record_id)))


def traps_of(row: AnyDecision) -> tuple[str, ...]:
    """Say what an unfulfilled or surprising cycle ran into; kept, since finding out takes runs.

    Nothing can be said of a record that another engine wrote.
    """
    return _traps(row.record_id) if is_readable(row) else ()


@lru_cache(maxsize=256)
def _ways(record_id: int) -> tuple[str, ...]:
    return tuple(change_words(one.change) for one in how_to_fulfil(_decision(record_id)))


def ways_of(row: AnyDecision) -> tuple[str, ...]:
    """Name the single changes with which the placement would be fulfilled; kept likewise."""
    return _ways(row.record_id) if is_readable(row) else ()


@lru_cache(maxsize=64)
def _advice(record_id: int, cluster: str) -> Advice:
    return why_not(_decision(record_id), cluster)


def advice_of(row: AnyDecision, cluster: str) -> Advice:
    """Say why a cluster is where it is, and what would change that. Raises KeyError for an unknown one."""
    return _advice(row.record_id, cluster)


def records_named(prefix: str, *, most: int = 20) -> list[int]:
    """Give the keys of the records whose ids begin so, as `decisions_named` reads a prefix."""
    digits = prefix.lower().removeprefix("d-")
    if len(digits) < _SHORTEST_PREFIX or not set(digits) <= set(hexdigits):
        return []
    records = DecisionRecord.objects.filter(decision_id__startswith=f"d-{digits}").order_by("decision_id")
    return list(records.values_list("pk", flat=True)[:most])


def decisions_named(prefix: str, *, most: int = 20) -> list[Decision]:
    """Give the latest cycle of each decision whose id begins so; the prefix `d-` may be left out.

    A prefix has 4 hex digits or more; a shorter one, or another text, finds nothing.
    """
    found = Decision.objects.filter(record__in=records_named(prefix, most=most))
    latest = found.values("record").annotate(latest=Max("pk")).values("latest")
    rows = Decision.objects.filter(pk__in=latest).select_related("record", "placement")
    return list(rows.defer("record__content").order_by("record__decision_id"))


def forget_cached_records() -> None:
    """Drop what this process keeps of records: for tests, where rows vanish."""
    global _latest  # noqa: PLW0603 -- see above
    _latest = None
    for cached in (_fleet, _decision, _outcomes, _traps, _ways, _advice):
        cached.cache_clear()
