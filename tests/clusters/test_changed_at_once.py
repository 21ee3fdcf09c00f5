"""Changes of one cluster by several processes: each one writes what it changes, and none is lost."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections

from clusters.models import MemberCluster
from clusters.operations import join
from clusters.operations.edit import change_labels, faults_of, new_fault, set_faults
from clusters.operations.heartbeat import observe
from fleetui.hub_scope import LOCAL_HUB, in_hub
from tests.rows import NOW, simulated

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.servers]
TIMES = 16


def _at_once(*changes: Callable[[int], object]) -> None:
    """Make each change TIMES times, all kinds at the same time."""
    start = threading.Barrier(len(changes))

    @in_hub(LOCAL_HUB)
    def repeat(change: Callable[[int], object]) -> None:
        try:
            for number in range(TIMES):
                start.wait(timeout=60)
                change(number)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(changes)) as people:
        for done in [people.submit(repeat, change) for change in changes]:
            done.result()


def test_labels_and_faults_changed_at_once_are_all_kept() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time; run again on PostgreSQL")
    names = [f"c{number}" for number in range(4)]
    for name in names:
        simulated(name)

    def label(number: int) -> None:
        change_labels(names, put={f"label-{number}": "x"}, by=None, now=NOW)

    def fault(number: int) -> None:
        for name in names:
            fault = new_fault("notReady", now=NOW, lasts=timedelta(days=number + 1))
            set_faults(name, [fault], by=None, now=NOW)

    def watch(number: int) -> None:
        observe(now=NOW + timedelta(minutes=number + 1))

    _at_once(label, fault, watch)

    for row in MemberCluster.objects.filter(name__in=names):
        assert faults_of(row) == [
            new_fault("notReady", now=NOW, lasts=timedelta(days=TIMES))
        ]
        assert set(row.document["metadata"]["labels"]) == {
            f"label-{number}" for number in range(TIMES)
        }
        assert row.revision == 1 + 2 * TIMES


def test_a_change_writes_only_its_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated("a")
    simulated("c")
    real = join._write

    def write(targets: Any, **options: Any) -> None:
        later = NOW + timedelta(minutes=1)
        written = {
            "heartbeat_at": later,
            "observe_at": later,
            "connection": {"readySeconds": 3},
        }
        MemberCluster.objects.update(**written)
        real(targets, **options)

    monkeypatch.setattr(join, "_write", write)
    change_labels(["a", "c"], put={"region": "west"}, by=None, now=NOW)

    for row in MemberCluster.objects.all():
        assert row.document["metadata"]["labels"] == {"region": "west"}
        assert row.heartbeat_at == row.observe_at == NOW + timedelta(minutes=1)
        assert row.connection == {"readySeconds": 3}
