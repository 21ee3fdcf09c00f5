"""manage.py rollout: actions on a rollout from the command line."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from clusters.operations.edit import cordon, uncordon
from placements.management.commands.rollout import Command
from placements.models import Placement, PolicySnapshot
from tests.rows import NOW, all_joined, decided, pick_n_spec, saved
from tests.services.rollouts.test_restore import drained
from tests.services.rollouts.test_status import placed

pytestmark = pytest.mark.django_db


def rollout(*words: str) -> str:
    """Run the command; return what it prints."""
    out = StringIO()
    call_command("rollout", *words, stdout=out)
    return out.getvalue()


def reschedule(*words: str) -> str:
    out = StringIO()
    call_command("reschedule", *words, stdout=out)
    return out.getvalue()


def test_pauses_and_resumes() -> None:
    saved("web", pick_n_spec(1))

    assert rollout("pause", "web") == "Rollout of web paused.\n"
    assert Placement.objects.get().paused_by == "system"
    assert rollout("resume", "web") == "Rollout of web resumed.\n"
    assert Placement.objects.get().paused_since is None


@pytest.mark.nightly
def test_stops_starts_rolls_back_and_releases() -> None:
    world, _ = placed()
    world.change()
    world.work()

    messages = [rollout("stop", "web"), rollout("start", "web")]
    messages += [rollout("roll-back", "web", "r0"), rollout("unpin", "web")]

    assert messages == [
        "Rollout of web stopped.\n",
        "Rollout of web started.\n",
        "Rolling back web to resource snapshot 0, as revision 3. web is pinned to it:"
        " hub changes are not rolled out until you unpin it.\n",
        "web unpinned. Rolling forward to the current hub resources.\n",
    ]


@pytest.mark.nightly
def test_reschedules_and_says_what_that_changes() -> None:
    world = drained()
    uncordon(["c000"], by=None, now=world.now)

    output = reschedule("spread")

    assert output == "Placement spread rescheduled. selected: c000; deselected: c001.\n"
    assert PolicySnapshot.objects.filter(placement__name="spread").count() == 2
    with pytest.raises(CommandError, match="names its clusters"):
        reschedule("fixed")
    with pytest.raises(CommandError, match="no placement"):
        reschedule("none")


def test_rescheduling_to_nothing_is_confirmed() -> None:
    all_joined("a", "b")
    decided("db", pick_n_spec(1))
    cordon(["a", "b"], by=None, now=NOW)

    with pytest.raises(CommandError) as refused:
        reschedule("db")

    assert refused.value.returncode == 3
    assert PolicySnapshot.objects.count() == 1
    assert reschedule("db", "--confirm", "unschedule-everything").endswith(
        "deselected: b.\n"
    )


def test_says_how_a_run_stands() -> None:
    world, _ = placed()
    world.change()
    world.work()

    facts = json.loads(rollout("status", "web"))

    assert (facts["run"], facts["state"]) == (2, "running")
    assert facts["progress"] == "0 of 3 clusters updated"
    assert facts["waiting"][0]["block"] == "update-floor"
    assert rollout("status", "web").count("take down") >= 1


def test_a_placement_without_a_run_says_so() -> None:
    saved("web", pick_n_spec(1))

    assert rollout("status", "web") == "web has no rollout yet\n"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["pause", "missing"], 1, "no placement is named"),
        (["status", "missing"], 1, "no placement is named"),
        (["stop", "web"], 1, "nothing to stop"),
        (["retry", "web", "a"], 1, "only what failed"),
        (["roll-back", "web", "four"], 2, "is not the number"),
    ],
)
def test_refuses_what_makes_no_sense(words: list[str], code: int, message: str) -> None:
    saved("web", pick_n_spec(1))

    with pytest.raises(CommandError, match=message) as refused:
        rollout(*words)

    assert refused.value.returncode == code


@pytest.mark.parametrize(
    "words", ["retry web", "roll-back web", "pause web a", "burn web"]
)
def test_wrong_arguments_end_with_2(words: str) -> None:
    with pytest.raises(SystemExit) as refused:
        Command().run_from_argv(["manage.py", "rollout", *words.split()])

    assert refused.value.code == 2
