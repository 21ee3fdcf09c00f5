"""Stored decisions that are not as they should be: changed directly, or written by another engine."""

import zlib
from dataclasses import replace

from placements.engine.scheduling.decision import ENGINE_VERSION
from placements.engine.scheduling.record import pack
from placements.models import Decision, DecisionRecord
from placements.services.decisions.records import decision_of
from tests.caches import forget_cached_records

OLD_ID = f"d-{'0' * 32}"


def tamper() -> DecisionRecord:
    """Turn the order of the picks of the only decision round."""
    value = decision_of(Decision.objects.get())
    DecisionRecord.objects.update(
        content=pack(replace(value, chosen=value.chosen[::-1])), verified_at=None
    )
    forget_cached_records()
    return DecisionRecord.objects.get()


def outdate() -> None:
    """Replace the only record by one of engine 0, under `OLD_ID`."""
    content = zlib.decompress(bytes(DecisionRecord.objects.get().content))
    older = zlib.compress(
        content.replace(f'"engine":"{ENGINE_VERSION}"'.encode(), b'"engine":"0"')
    )
    DecisionRecord.objects.update(engine="0", decision_id=OLD_ID, content=older)
    forget_cached_records()
