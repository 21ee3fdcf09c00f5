"""A worker that no longer answers is told of where people wait for it."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models import F
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from fleetui.models import WorkerHeartbeat
from fleetui.task_queue import record_heartbeat, seconds_since
from placements.models import Placement
from placements.services.waiting_work import waiting_since
from placements.tasks import sweep
from tests.rows import NOW, joined, pick_n_spec, run_due, saved

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]


def test_is_silent_after_forty_seconds() -> None:
    record_heartbeat(now=NOW)

    assert quiet(40, waiting=NOW) is None
    assert quiet(41, waiting=NOW) == timedelta(seconds=41)


def test_nobody_is_missed_while_nothing_waits() -> None:
    record_heartbeat(now=NOW)

    assert quiet(3600, waiting=None) is None


def test_where_none_ever_answered_silence_counts_from_the_work_that_waits() -> None:
    assert quiet(3600, waiting=None) is None
    assert quiet(40, waiting=NOW) is None
    assert quiet(41, waiting=NOW) == timedelta(seconds=41)


def test_work_waits_from_a_change_to_its_decision() -> None:
    joined("a")
    saved("web", pick_n_spec(1))
    waited = waiting_since()
    run_due()
    Placement.objects.update(rollout_observed=F("rollout_generation"), rollout_requeue_at=None)

    assert waited == NOW
    assert waiting_since() is None


def quiet(seconds: int, *, waiting: datetime | None) -> timedelta | None:
    """Give the silence so many seconds later."""
    return seconds_since(now=NOW + timedelta(seconds=seconds), waiting=lambda: waiting)


def test_writes_at_most_every_five_seconds(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    record_heartbeat(now=NOW)

    with django_assert_num_queries(1):
        record_heartbeat(now=NOW + timedelta(seconds=4))
    record_heartbeat(now=NOW + timedelta(seconds=6))

    assert WorkerHeartbeat.objects.get().at == NOW + timedelta(seconds=6)


def test_the_sweep_is_the_pulse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placements.tasks.run_cluster_calls.apply_async", lambda **_: None)

    sweep()

    assert datetime.now(UTC) - WorkerHeartbeat.objects.get().at < timedelta(seconds=30)


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("address", ["/", "/rollouts/"])
def test_pages_that_wait_for_it_say_so(viewer: Client, text_of: Fetch, address: str) -> None:
    record_heartbeat(now=datetime.now(UTC) - timedelta(minutes=3))
    silent = text_of(viewer, address)

    record_heartbeat(now=datetime.now(UTC))

    assert re.search(r"No worker has responded for 1[89]\ds", silent)
    assert "No worker has responded" not in text_of(viewer, address)
