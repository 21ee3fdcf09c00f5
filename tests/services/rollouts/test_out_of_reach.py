"""Runs that wait for unreachable clusters: people see which, and since when."""

import re

import pytest
from django.test import Client

from clusters.models import MemberCluster
from placements.models import Binding, Placement, Rollout
from placements.services.health import health_of
from placements.services.rollouts.operations import pause
from placements.services.rollouts.queries import latest_run
from placements.web.badges import status_bar
from tests.problems import found, sentences
from tests.rows import person
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec
from tests.services.rollouts.world import World, one_at_a_time, settled_world

pytestmark = pytest.mark.django_db


def cut_off(world: World, *names: str) -> str:
    """Make clusters unreachable until the rule for heartbeats says so; return since when they are silent."""
    for name in names:
        world.inject(name, {"kind": "unreachable"})
    rows = MemberCluster.objects.filter(name__in=names)
    world.run(
        until=lambda: "" not in rows.values_list("verdict", flat=True),
        seconds=600,
        step=10,
    )
    return f"{rows.earliest('unanswered_since').unanswered_since:%Y-%m-%d %H:%M:%S} UTC"


@pytest.fixture
def world() -> World:
    """Make three clusters with a placement, two of which may be taken down at once."""
    return settled_world(3, one_at_a_time(maxUnavailable=2))


def needs(world: World) -> dict[str, str]:
    """Return the problems of rollouts by the name of the rollout."""
    return sentences("rollout-stalled", now=world.now)


def test_a_pause_keeps_the_problems_of_before_and_makes_none(world: World) -> None:
    since = cut_off(world, "c001")
    world.change()
    world.work()

    pause("web", by=None, now=world.now)
    world.pass_time(30)

    assert needs(world) == {
        "web/2": f"Rollout 2 stalled: 1 cluster blocked. Unreachable since {since}: c001."
    }


def test_a_rollout_that_is_only_paused_is_no_problem_and_has_no_green_bar(
    world: World,
) -> None:
    world.change()
    pause("web", by=None, now=world.now)
    world.work()

    placement = Placement.objects.get()
    health = health_of(placement, now=world.now)
    bar = status_bar(placement, health, latest_run(placement))

    assert needs(world) == {}
    assert [(segment.level, segment.width) for segment in bar] == [
        ("suspended", "100.00")
    ]


def test_a_run_that_goes_on_elsewhere_names_the_cluster_that_it_waits_for(
    world: World,
) -> None:
    since = cut_off(world, "c001")

    world.change()
    world.work()

    assert needs(world) == {"web/2": f"Rollout 2: Unreachable since {since}: c001."}


@pytest.mark.nightly
def test_a_run_is_named_as_soon_as_the_rule_says_that_its_cluster_is_out_of_reach(
    world: World,
) -> None:
    world.change()
    world.work()

    since = cut_off(world, "c000")

    assert needs(world) == {
        "web/2": f"Rollout 2 stalled: 1 cluster blocked. Unreachable since {since}: c000."
    }


def test_a_run_is_stalled_while_the_clusters_that_it_updates_do_not_answer(
    world: World,
) -> None:
    world.change()
    world.work()
    for name in ("c000", "c001"):
        world.inject(name, {"kind": "unreachable"})
    MemberCluster.objects.update(observe_at=world.now)
    world.pass_time(40, step=5)

    lost = MemberCluster.objects.get(name="c000")
    since = f"{lost.unanswered_since:%Y-%m-%d %H:%M:%S} UTC"
    words = f"Rollout 2 stalled: 3 clusters blocked. Unreachable since {since}: c000 and c001."
    assert (needs(world)["web/2"], lost.verdict) == (words, "")

    for name in ("c000", "c001"):
        world.inject(name)
    MemberCluster.objects.update(observe_at=world.now)
    world.run(until=world.is_settled)


@pytest.mark.nightly
@pytest.mark.usefixtures("collected_static")
def test_the_page_of_the_run_says_why_it_waits_and_since_when(
    world: World, client: Client
) -> None:
    world.change()
    world.work()
    since = cut_off(world, "c000")
    client.force_login(person("ana", "viewer"))

    page = client.get("/rollouts/web/2/").content.decode()
    text = re.sub(r"<[^>]+>", "", page)

    assert (
        f"Applied revision 2, not available. Unreachable since {since}. "
        "The simulated cluster is unreachable." in text
    )
    assert "c000</a>: waiting for availability" not in page


@pytest.mark.nightly
def test_an_answer_from_before_does_not_know_since_when(world: World) -> None:
    world.change()
    world.work()
    cut_off(world, "c000")
    run = Rollout.objects.get(state="running")
    for one in run.sync_result["waiting"]:
        del one["since"]
    run.save()

    assert needs(world)["web/2"].endswith(" Unreachable: c000.")


@pytest.mark.nightly
def test_a_staged_run_that_waits_for_a_cluster_out_of_reach_is_named() -> None:
    world = StagedWorld({"prod": ["c000", "c001"]}, stage("prod", most=2))
    world.place("web", staged_spec())
    cut_off(world, "c001")

    world.begin("one")
    world.go_on(30)

    assert needs(world) == {
        "one": "Staged run one waits for unreachable clusters: c001."
    }


@pytest.mark.nightly
def test_a_cluster_that_gives_no_answer_is_named_before_the_rule_strikes(
    world: World,
) -> None:
    world.inject("c001", {"kind": "unreachable"})
    world.change()
    world.run(until=lambda: Binding.objects.filter(failure="unreachable").exists())

    [need] = found("cluster-not-ready", now=world.now)

    assert MemberCluster.objects.get(name="c001").verdict == ""
    assert (need.name, need.level, need.message) == (
        "c001",
        "attention",
        "Not responding to the calls of 1 placement. Retrying.",
    )


@pytest.mark.usefixtures("collected_static")
def test_a_cluster_that_answers_again_needs_no_attention_before_the_next_calls(
    world: World, client: Client
) -> None:
    world.place("db", one_at_a_time())
    world.run(until=world.is_settled)
    cut_off(world, "c001")
    world.inject("c001")
    MemberCluster.objects.update(observe_at=world.now)
    lost = MemberCluster.objects.exclude(verdict="", unanswered_since=None)
    world.run(until=lambda: not lost.exists())
    not_called = Binding.objects.filter(failure="unreachable")

    assert (not_called.count(), found(now=world.now)) == (2, [])

    not_called.update(phase="applying")
    client.force_login(person("ana", "viewer"))
    attention = (
        client.get("/")
        .content.decode()
        .partition('id="attention"')[2]
        .partition("</section>")[0]
    )
    assert (
        attention.count(">c001: not responding to the calls of 2 placements</a>") == 1
    ), "once"
