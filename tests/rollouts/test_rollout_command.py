"""manage.py rollout: hands on a rollout from the command line."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from clusters.operations.editing import cordon, uncordon
from placements.models import Placement, PolicySnapshot
from tests.rollouts.test_bring_back import drained
from tests.rollouts.test_status import placed
from tests.rows import NOW, all_joined, decided, pick_n_spec, saved

pytestmark = pytest.mark.django_db


def rollout(*words: str) -> str:
    """Run the command; give what it prints."""
    out = StringIO()
    call_command("rollout", *words, stdout=out)
    return out.getvalue()


def test_pauses_and_resumes() -> None:
    saved("web", pick_n_spec(1))

    assert rollout("pause", "web") == "web is paused\n"
    assert Placement.objects.get().paused_by == "system"
    assert rollout("resume", "web") == "web goes on\n"
    assert Placement.objects.get().paused_since is None


def test_stops_starts_rolls_back_and_releases() -> None:
    world, _ = placed()
    world.change()
    world.work()

    said = [rollout("stop", "web"), rollout("start", "web")]
    said += [rollout("rollback", "web", "r0"), rollout("release", "web")]

    assert [one.split(";")[0].strip() for one in said] == [
        "web is stopped",
        "web begins a new run",
        "web is rolled back to the content of r0, as r2, and held there",
        "web follows the hub again",
    ]


def test_reschedules_and_says_what_that_changes() -> None:
    world = drained()
    uncordon(["c000"], by=None, now=world.now)

    said = rollout("reschedule", "spread")

    assert said == "spread is rescheduled from scratch: joins c000; leaves c001\n"
    assert PolicySnapshot.objects.filter(placement__name="spread").count() == 2
    with pytest.raises(CommandError, match="names its clusters"):
        rollout("reschedule", "fixed")
    with pytest.raises(CommandError, match="no placement"):
        rollout("reschedule", "none")


def test_rescheduling_to_nothing_is_confirmed() -> None:
    all_joined("a", "b")
    decided("db", pick_n_spec(1))
    cordon(["a", "b"], by=None, now=NOW)

    with pytest.raises(CommandError) as refused:
        rollout("reschedule", "db")

    assert refused.value.returncode == 3
    assert PolicySnapshot.objects.count() == 1
    assert rollout("reschedule", "db", "--confirm", "unschedule-everything").endswith("leaves b\n")


def test_says_how_a_run_stands() -> None:
    world, _ = placed()
    world.change()
    world.work()

    facts = json.loads(rollout("status", "web"))

    assert (facts["run"], facts["state"]) == (2, "running")
    assert facts["progress"].startswith("0 of 3 on the new version · ")
    assert facts["waiting"][0]["block"] == "update-floor"
    assert rollout("status", "web").count("may be taken down") >= 1


def test_a_placement_without_a_run_says_so() -> None:
    saved("web", pick_n_spec(1))

    assert rollout("status", "web") == "web has no run yet\n"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["pause", "nobody"], 2, "no placement is named"),
        (["status", "nobody"], 2, "no placement is named"),
        (["stop", "web"], 1, "nothing to stop"),
        (["retry", "web", "a"], 1, "only what failed"),
        (["retry", "web"], 2, "takes the name of a cluster"),
        (["rollback", "web", "four"], 2, "is no number"),
        (["pause", "web", "a"], 2, "takes a placement alone"),
    ],
)
def test_refuses_what_makes_no_sense(words: list[str], code: int, message: str) -> None:
    saved("web", pick_n_spec(1))

    with pytest.raises(CommandError, match=message) as refused:
        rollout(*words)

    assert refused.value.returncode == code
