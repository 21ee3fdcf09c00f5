"""Stored decisions, decided again: only differences are reported; records of another engine."""

import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from threading import Timer
from unittest import mock

import pytest
from django.core.management import CommandError
from django.db import connection, connections

from fleetui.models import Event
from placements.engine.scheduling.decision import ENGINE_VERSION
from placements.models import Decision, DecisionRecord
from placements.services.verification import EVERY, verification_due, verify_due
from placements.tasks import worker_is_ready
from tests.commands import call_command
from tests.records import outdate, tamper
from tests.rows import NOW, all_joined, decided, joined, load_nine, pick_n_spec, run_due

pytestmark = pytest.mark.django_db
LATER = NOW + EVERY + timedelta(seconds=1)
SPREAD = {"topologyKey": "region", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}


@pytest.mark.servers
def test_every_decision_of_the_demo_replays_and_waits_for_the_next_day() -> None:
    load_nine()
    DecisionRecord.objects.update(verified_at=NOW)
    assert not verification_due(now=NOW + EVERY)

    verified = verify_due(now=LATER)

    assert verified == DecisionRecord.objects.count() > 5
    assert set(DecisionRecord.objects.values_list("fault", "verified_at")) == {
        ("", LATER)
    }
    assert not verification_due(now=LATER)
    assert not Event.objects.filter(kind="Decision").exists()


@pytest.mark.nightly
@pytest.mark.parametrize("semantics", ["fleet", "kubefleet", "ocm", "kubernetes"])
def test_a_decision_replays_under_each_semantics(semantics: str) -> None:
    for name, region in zip(
        "abcdef", ("east", "east", "west", "west", "west", "north"), strict=True
    ):
        joined(name, region=region)
    decided(
        "web", pick_n_spec(4, topologySpreadConstraints=[SPREAD]), semantics=semantics
    )

    assert verify_due(now=LATER) == 1
    assert DecisionRecord.objects.get().fault == ""


@pytest.fixture
def file_of_many(tmp_path: Path) -> Iterator[Path]:
    """Put more records than are read at once into a file, where another process may write too."""
    if connection.vendor != "sqlite":
        pytest.skip("only SQLite has one writer at a time")
    load_nine()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM INTO %s", [str(tmp_path / "hub.sqlite3")])
    in_memory = connections["default"]
    del connections["default"]
    with mock.patch.dict(in_memory.settings_dict, NAME=str(tmp_path / "hub.sqlite3")):
        yield tmp_path / "hub.sqlite3"
        connections["default"].close()
    connections["default"] = in_memory


@pytest.mark.nightly
@pytest.mark.django_db(transaction=True)
def test_the_command_waits_for_another_process_that_writes(file_of_many: Path) -> None:
    other = sqlite3.connect(file_of_many, check_same_thread=False, isolation_level=None)
    letting_go = Timer(0.3, other.commit)

    def another_writes(_record: DecisionRecord) -> str:
        if letting_go.ident is None:
            other.execute("BEGIN IMMEDIATE")
            letting_go.start()
        return ""

    with (
        mock.patch("placements.services.verification.fault_of", another_writes),
        mock.patch("placements.services.verification._BATCH", 5),
    ):
        call_command("verify_decisions", stdout=(output := StringIO()))

    letting_go.join()
    other.close()
    count = DecisionRecord.objects.count()
    assert count > 5
    assert output.getvalue() == f"{count} of {count} decisions verified\n"


@pytest.fixture
def tampered() -> DecisionRecord:
    """Return a record whose picks are in another order than they come out."""
    all_joined("a", "b", "c")
    decided("web", pick_n_spec(2))
    return tamper()


def test_one_that_comes_out_otherwise_is_reported_once_with_its_step(
    tampered: DecisionRecord,
) -> None:
    verify_due(now=NOW)
    verify_due(now=LATER)

    tampered.refresh_from_db()
    event = Event.objects.get(kind="Decision")
    assert tampered.fault == "step 1 selected b, and would select c"
    assert (event.verb, event.name, event.after) == (
        "does not replay",
        tampered.decision_id,
        {"reason": tampered.fault},
    )


@pytest.mark.usefixtures("tampered")
def test_what_is_no_record_at_all_is_a_fault() -> None:
    DecisionRecord.objects.update(content=b"gone")

    verify_due(now=NOW)

    assert DecisionRecord.objects.get().fault.startswith("it cannot be read: ")


@pytest.mark.usefixtures("tampered")
def test_one_that_replays_again_says_so() -> None:
    verify_due(now=NOW)
    tamper()
    verify_due(now=LATER)

    assert DecisionRecord.objects.get().fault == ""
    assert list(
        Event.objects.filter(kind="Decision")
        .order_by("pk")
        .values_list("verb", flat=True)
    ) == [
        "does not replay",
        "replays again",
    ]


@pytest.mark.servers
def test_the_command_names_it_and_fails(tampered: DecisionRecord) -> None:
    with pytest.raises(
        CommandError,
        match=f"1 decisions of engine {ENGINE_VERSION} give a different result",
    ):
        call_command("verify_decisions", stdout=(output := StringIO()))

    assert output.getvalue().splitlines() == [
        f"{tampered.decision_id}: step 1 selected b, and would select c",
        "0 of 1 decisions verified",
    ]


@pytest.mark.servers
def test_a_new_engine_decides_again_and_moves_no_placement() -> None:
    all_joined("a", "b")
    outdated = decided("web", pick_n_spec(3))
    outdate()

    worker_is_ready()
    run_due()

    outdated.refresh_from_db()
    latest = Decision.objects.latest("pk")
    assert (latest.trigger, latest.record.engine, latest.joins, latest.leaves) == (
        f"engine {ENGINE_VERSION} took over",
        ENGINE_VERSION,
        [],
        [],
    )
    assert not outdated.is_due
    worker_is_ready()
    outdated.refresh_from_db()
    assert not outdated.is_due
