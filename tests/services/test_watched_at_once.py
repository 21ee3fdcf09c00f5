"""Clients that list and then watch, while others write, know in the end what is there."""

from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, connections

from clusters.models import MemberCluster
from clusters.operations.edit import set_labels
from fleetui.hub_scope import LOCAL_HUB, in_hub
from placements.models import ChangeType, CollectionChange, WatchedKind
from placements.services.watches import journal
from tests.rows import NOW, joined

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.servers]
EACH = 6
KIND = WatchedKind.CLUSTERS


@pytest.fixture(autouse=True)
def _needs_a_shared_database(monkeypatch: pytest.MonkeyPatch) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time; run again on PostgreSQL")
    monkeypatch.setattr(journal, "PERIOD", timedelta(0))
    monkeypatch.setattr(journal, "ALWAYS_AFTER", timedelta(0))


def _revisions() -> dict[str, int]:
    return dict(MemberCluster.objects.values_list("name", "revision"))


def test_no_event_is_lost() -> None:
    joined("seed")
    known: list[dict[str, int]] = [{}, {}]

    with ThreadPoolExecutor(5) as threads:
        writing = [threads.submit(_write, part) for part in "abc"]
        watching = [threads.submit(_watch, mine, writing) for mine in known]
        for one in (*writing, *watching):
            one.result(timeout=120)

    there = _revisions()
    assert len(there) == 1 + 3 * EACH // 2
    assert known == [there, there]
    rows = CollectionChange.objects.filter(kind=KIND).order_by("sequence")
    numbers = list(rows.values_list("sequence", flat=True))
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@in_hub(LOCAL_HUB)
def _write(part: str) -> None:
    try:
        for number in range(EACH):
            joined(f"{part}{number}")
            set_labels(f"{part}{number}", {"n": str(number)}, by=None, now=NOW)
            if number % 2:
                MemberCluster.objects.filter(name=f"{part}{number}").delete()
    finally:
        connections.close_all()


@in_hub(LOCAL_HUB)
def _watch(mine: dict[str, int], writing: list[Future[None]]) -> None:
    """List, and watch up to the version after the last write."""
    try:
        version = journal.current_sequence(KIND, now=datetime.now(UTC))
        mine.update(_revisions())
        last = None
        while last is None or version < last:
            if last is None and all(one.done() for one in writing):
                last = journal.current_sequence(KIND, now=datetime.now(UTC))
            journal_page = journal.changes_since(KIND, version, now=datetime.now(UTC))
            for change in journal_page.changes:
                _apply(mine, change)
            version = journal_page.sequence
    finally:
        connections.close_all()


def _apply(mine: dict[str, int], change: Any) -> None:
    """Do what a client does: read the object of the event, which may be newer or deleted by now."""
    revision = MemberCluster.objects.filter(pk=change.object_id).values_list("revision", flat=True).first()
    if change.type is ChangeType.DELETED or revision is None:
        mine.pop(change.name, None)
    else:
        mine[change.name] = revision
