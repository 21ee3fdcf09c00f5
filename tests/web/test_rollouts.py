"""The pages of rollouts: the list, a run while it lives, hands on it, and what needs somebody."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from fleetui.pulse import beat
from placements.models import Placement
from placements.operations.placements import save_placement
from placements.operations.rollouts import hands
from tests.rollouts.test_rolling import one_at_a_time
from tests.rollouts.world import World
from tests.rows import pick_n_spec, placement_document

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]
RUN = "/rollouts/web/2/"


@pytest.fixture
def world() -> World:
    """Make three clusters in the middle of an update, one cluster at a time."""
    made = World(3)
    made.place("web", one_at_a_time())
    made.run(until=made.is_settled)
    made.change()
    made.work()
    return made


def polled(page: str) -> list[str]:
    """Give the address that the living part asks for, if it does."""
    return re.findall(r'<div id="live" [^>]*hx-get="([^"]*)" hx-trigger="tick from:body"', page)


def ask(client: Client, address: str) -> tuple[int, str]:
    """Ask for the living part as htmx does."""
    answer = client.get(address, headers={"HX-Request": "true"})
    return answer.status_code, answer.content.decode()


def fail_on(world: World, name: str) -> None:
    """Let a newer version fail on a cluster."""
    world.tell(name, {"kind": "refuse", "objectName": "web"})
    world.change()
    world.work()
    world.pass_time(2)


@pytest.mark.usefixtures("world")
def test_lists_what_is_under_way_first_and_filters(viewer: Client, text_of: Fetch) -> None:
    def runs(query: str) -> list[str]:
        return re.findall(r'href="/rollouts/web/(\d+)/"', text_of(viewer, f"/rollouts/{query}"))

    assert runs("") == ["2", "1"]
    assert runs("?state=finished") == ["1"]
    assert runs("?placement=nobody") == []
    rail = text_of(viewer, "/clusters/")
    assert '<span class="count" id="count-rollouts">1<span class="hidden"> under way</span>' in rail


@pytest.mark.usefixtures("world")
def test_a_run_says_how_far_it_is_and_why_it_waits(viewer: Client, text_of: Fetch) -> None:
    page = text_of(viewer, RUN)

    assert "0 of 3 on the new version · 2 available (floor 2) · 3 placed (ceiling 4)" in page
    assert "ready 2 − at risk 0 − floor 2 = 0 more may be taken down" in page
    assert "freed by c000 becoming available" in page
    assert "runs r0 and waits for r1" in page
    assert "r0 → r1" in page


@pytest.mark.usefixtures("world")
def test_a_start_under_way_has_a_clock_and_one_that_ended_tells_its_time(
    viewer: Client, text_of: Fetch
) -> None:
    under_way, ended = text_of(viewer, RUN), text_of(viewer, "/rollouts/web/1/")

    clocks = re.findall(r'took </span><span data-since="2026-11-20T12:\d\d:\d\d\+00:00">', under_way)
    assert len(clocks) == 1
    assert re.findall(r"took </span>([\d:]+)", ended) == ["0:02"] * 3


def test_what_comes_by_itself_is_counted_down_and_a_halted_run_is_asked_less_often(
    viewer: Client, text_of: Fetch, world: World
) -> None:
    fail_on(world, "c000")
    retried = text_of(viewer, "/rollouts/web/3/")
    hands.pause("web", by=None, now=world.now)
    world.work()
    paused = text_of(viewer, "/rollouts/web/3/")

    assert re.search(r'<span data-until="2026-11-20T12:[^"]*">[\d:]+</span> left', retried)
    assert 'data-active="false"' not in retried
    assert 'hx-swap="outerHTML" data-active="false"' in paused


def test_a_run_is_followed_until_it_ends(viewer: Client, text_of: Fetch, world: World) -> None:
    [query] = polled(text_of(viewer, RUN))

    unchanged = ask(viewer, f"{RUN}{query}")
    world.pass_time(3)
    moved = ask(viewer, f"{RUN}{query}")
    world.run(until=world.is_settled)
    ended = ask(viewer, f"{RUN}{query}")

    assert unchanged == (204, "")
    assert "1 of 3 on the new version" in moved[1]
    assert (ended[0], polled(ended[1])) == (200, [])
    assert "finished" in ended[1]


@pytest.mark.usefixtures("world")
def test_an_older_run_points_to_the_newer_and_offers_no_hand(operator: Client, text_of: Fetch) -> None:
    page = text_of(operator, "/rollouts/web/1/")

    assert 'href="/rollouts/web/2/"' in page
    assert "/pause/" not in page


@pytest.mark.usefixtures("world")
def test_a_viewer_is_offered_no_hand(viewer: Client, operator: Client, text_of: Fetch) -> None:
    assert "/placements/web/pause/" in text_of(operator, RUN)
    assert "/placements/web/pause/" not in text_of(viewer, RUN)
    assert "/placements/web/stop/" not in text_of(viewer, "/placements/web/")


def test_hands_are_laid_and_lead_to_the_run(operator: Client, text_of: Fetch, world: World) -> None:
    paused = operator.post("/placements/web/pause/")
    world.work()
    page = text_of(operator, RUN)
    resumed = operator.post("/placements/web/resume/")
    stopped = operator.post("/placements/web/stop/")

    assert [one["Location"] for one in (paused, resumed, stopped)] == [RUN, RUN, RUN]
    assert "the placement is paused" in page
    assert "Begin a new run" in text_of(operator, RUN)
    assert operator.post("/placements/web/start/").status_code == 302


def test_rolls_back_to_a_snapshot_that_is_chosen(operator: Client, text_of: Fetch, world: World) -> None:
    asked = text_of(operator, "/placements/web/roll-back/")
    done = operator.post("/placements/web/roll-back/", {"number": "0"})
    world.work()

    assert re.findall(r'name="number" id="r(\d)"', asked) == ["0"]
    assert "becomes a new one, r2, which goes to the clusters" in asked
    assert "web is then held at r2: what changes on the hub is not carried out until somebody" in asked
    assert done["Location"] == "/placements/web/"
    assert Placement.objects.get().held_number == 2
    told = text_of(operator, "/placements/web/")
    assert "web is rolled back to the content of r0: it goes out as r2, and is held until" in told
    assert "At r2, which a rollback made" in told
    assert "At r2, which a rollback made" in text_of(operator, "/rollouts/web/3/")
    assert operator.post("/placements/web/release/").status_code == 302


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("start", "is not stopped"),
        ("release", "nothing holds web"),
        ("roll-back", "cannot roll back"),
        ("retry/c002", "only what failed can be retried"),
    ],
)
def test_what_makes_no_sense_is_refused_with_words(operator: Client, address: str, words: str) -> None:
    answer = operator.post(f"/placements/web/{address}/")

    assert answer.status_code == 409
    assert words in answer.content.decode()


def test_what_was_just_resumed_is_not_called_halted(operator: Client, text_of: Fetch, world: World) -> None:
    world.pass_time(3)
    operator.post("/placements/web/pause/")
    world.pass_time(5)
    operator.post("/placements/web/resume/")

    page = text_of(operator, RUN).partition('id="live"')[2].partition("</p>")[0]

    assert "halted" not in page


def test_offers_a_retry_where_something_failed(operator: Client, text_of: Fetch, world: World) -> None:
    fail_on(world, "c000")

    assert 'action="/placements/web/retry/c000/"' in text_of(operator, "/rollouts/web/3/")
    assert operator.post("/placements/web/retry/c000/")["Location"] == "/rollouts/web/3/"


@pytest.mark.usefixtures("world")
def test_the_plan_shows_the_waves_to_go(viewer: Client, text_of: Fetch) -> None:
    page = text_of(viewer, "/placements/web/plan/")

    assert "<h1>2 waves to go</h1>" in page
    assert re.findall(r'class="label" href="/clusters/(\w+)/"', page) == ["c001", "c002"]


@pytest.mark.usefixtures("world")
def test_the_page_of_the_placement_shows_the_run_and_is_followed(viewer: Client, text_of: Fetch) -> None:
    page = text_of(viewer, "/placements/web/")

    assert 'href="/rollouts/web/2/">Run 2</a>' in page
    assert "0 of 3 on the new version" in page
    assert "1, 1, 1 clusters, as planned" in page
    assert "settling" in page
    assert len(polled(page)) == 1


def test_the_overview_tells_what_needs_somebody(viewer: Client, text_of: Fetch, world: World) -> None:
    assert "1 rollout under way" in text_of(viewer, "/")
    fail_on(world, "c000")
    hands.pause("web", by=None, now=world.now)

    page = text_of(viewer, "/")

    assert "1 rollout under way, 1 waiting for somebody" in page
    assert "Failed on c000; it is tried again." in page
    assert "Paused by system; nothing starts." in page


def test_the_overview_tells_of_removals_that_are_held_back(viewer: Client, text_of: Fetch) -> None:
    world = World(3)
    world.place("web", pick_n_spec(3))
    world.run(until=world.is_settled)
    wants = {"matchLabels": {"region": "nowhere"}}
    term = {"clusterSelectorTerms": [{"labelSelector": wants}]}
    affinity = {"clusterAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}

    moved = placement_document("web", pick_n_spec(3, affinity=affinity))
    save_placement(moved, by=None, now=world.now, confirmed=True)
    world.work()

    assert "Run 2 has halted: nothing goes on by itself" in text_of(viewer, "/")


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("address", ["/rollouts/", RUN, "/placements/web/"])
def test_asks_few_queries(
    viewer: Client, address: str, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    beat(now=datetime.now(UTC))

    with django_assert_max_num_queries({"/rollouts/": 12, RUN: 19}.get(address, 24)):
        viewer.get(address)


def test_a_run_that_is_not_there_is_not_found(viewer: Client) -> None:
    assert viewer.get("/rollouts/web/7/").status_code == 404


@pytest.mark.usefixtures("world")
def test_the_name_of_a_placement_leads_to_its_newest_run(viewer: Client) -> None:
    answer = viewer.get("/rollouts/web/")

    assert (answer.status_code, answer["Location"]) == (302, RUN)


@pytest.mark.parametrize(
    ("name", "words"),
    [("web", "The placement web has had no run yet."), ("nobody", "There is no placement nobody")],
)
@pytest.mark.usefixtures("web")
def test_says_why_there_is_no_newest_run(viewer: Client, name: str, words: str) -> None:
    answer = viewer.get(f"/rollouts/{name}/")

    assert answer.status_code == 404
    assert words in answer.content.decode()


@pytest.mark.usefixtures("world")
def test_the_newest_run_is_for_people_with_a_role(client: Client, stranger: Client) -> None:
    assert client.get("/rollouts/web/")["Location"].startswith("/login/")
    assert stranger.get("/rollouts/web/").status_code == 403
