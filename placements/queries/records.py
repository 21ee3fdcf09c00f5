"""The stored records of decisions, read back; and the stored fleets that they cite."""

import hashlib
import threading
from functools import lru_cache

from clusters.queries import FleetView
from placements.models import Decision, DecisionRecord, FleetRecord
from placements.scheduling.decision import Decision as DecisionValue
from placements.scheduling.fleet import Fleet
from placements.scheduling.storage import pack_fleet, unpack, unpack_fleet

_lock = threading.Lock()
_latest: tuple[FleetView, FleetRecord] | None = None


def fleet_record_of(view: FleetView) -> FleetRecord:
    """Give the stored form of a fleet, storing it first where it is new; once per fleet version."""
    global _latest  # noqa: PLW0603 -- one fleet per process is the point
    with _lock:
        if _latest is None or _latest[0] is not view:
            content = pack_fleet(view.fleet)
            stored, _ = FleetRecord.objects.get_or_create(
                digest=hashlib.sha256(content).hexdigest(),
                defaults={"content": content, "clusters_count": len(view.fleet)},
            )
            _latest = (view, stored)
        return _latest[1]


@lru_cache(maxsize=4)
def _fleet(record_id: int) -> Fleet:
    return unpack_fleet(bytes(FleetRecord.objects.get(pk=record_id).content))


@lru_cache(maxsize=64)
def _decision(record_id: int) -> DecisionValue:
    record = DecisionRecord.objects.get(pk=record_id)
    return unpack(bytes(record.content), _fleet(record.fleet_id))


def decision_of(row: Decision) -> DecisionValue:
    """Give what a cycle decided, with everything needed to replay it."""
    return _decision(row.record_id)


def forget_cached_records() -> None:
    """Drop what this process keeps of records: for tests, where rows vanish."""
    global _latest  # noqa: PLW0603 -- see above
    _latest = None
    _fleet.cache_clear()
    _decision.cache_clear()
