"""Pages that wait for a worker show when none responds, and when the workers are busy."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models import F
from django.test import Client

from fleetui.models import WorkerHeartbeat
from fleetui.task_queue import record_heartbeat, worker_state
from placements.models import Placement
from placements.services.workqueue import waiting_since
from placements.tasks import heartbeat
from tests.rows import NOW, joined, pick_n_spec, run_due, saved

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]


def test_is_silent_after_forty_seconds() -> None:
    record_heartbeat(now=NOW)

    assert quiet(40, waiting=NOW) is None
    assert quiet(41, waiting=NOW) == timedelta(seconds=41)


def test_silence_does_not_matter_while_nothing_is_due() -> None:
    record_heartbeat(now=NOW)

    assert quiet(3600, waiting=None) is None


def test_without_any_heartbeat_silence_counts_from_the_due_work() -> None:
    assert quiet(3600, waiting=None) is None
    assert quiet(40, waiting=NOW) is None
    assert quiet(41, waiting=NOW) == timedelta(seconds=41)


def test_work_waits_from_a_change_to_its_decision() -> None:
    joined("a")
    saved("web", pick_n_spec(1))
    waited = waiting_since()
    run_due()
    Placement.objects.update(
        rollout_observed=F("rollout_generation"), rollout_requeue_at=None
    )

    assert waited == NOW
    assert waiting_since() is None


def quiet(seconds: int, *, waiting: datetime | None) -> timedelta | None:
    state = worker_state(
        now=NOW + timedelta(seconds=seconds), due_since=lambda: waiting
    )
    return state.silent_for


def test_a_busy_worker_is_not_silent() -> None:
    for seconds in range(0, 101, 5):
        record_heartbeat(waiting=7, now=NOW + timedelta(seconds=seconds))

    state = worker_state(now=NOW + timedelta(seconds=101), due_since=lambda: NOW)

    assert (state.silent_for, state.waiting) == (None, 7)


def test_a_short_queue_is_not_called_busy() -> None:
    record_heartbeat(waiting=7, now=NOW)

    assert (
        worker_state(now=NOW + timedelta(seconds=10), due_since=lambda: NOW).waiting
        == 0
    )


def test_the_timer_of_the_worker_counts_what_waits() -> None:
    joined("a")
    saved("web", pick_n_spec(1))

    heartbeat(["celery", "analyses"])

    rows = {row.queue: row for row in WorkerHeartbeat.objects.all()}
    assert rows.keys() == {"celery", "analyses"}
    assert rows["celery"].waiting == 1
    assert datetime.now(UTC) - rows["celery"].at < timedelta(seconds=30)


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("address", ["/", "/rollouts/"])
def test_pages_that_wait_for_it_say_so(
    viewer: Client, text_of: Fetch, address: str
) -> None:
    record_heartbeat(now=datetime.now(UTC) - timedelta(minutes=3))
    silent = text_of(viewer, address)

    record_heartbeat(now=datetime.now(UTC))

    assert re.search(r"No worker has responded for 3m( \d+s)?", silent)
    assert "No worker has responded" not in text_of(viewer, address)


@pytest.mark.usefixtures("web")
def test_pages_say_how_many_updates_wait(viewer: Client, text_of: Fetch) -> None:
    record_heartbeat(waiting=41, now=datetime.now(UTC) - timedelta(seconds=30))
    record_heartbeat(waiting=40, now=datetime.now(UTC))

    assert "Worker busy: 40 updates queued" in text_of(viewer, "/rollouts/")
