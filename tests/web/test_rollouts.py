"""The pages of rollouts: the list, a live run, its actions, and attention items."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User
from django.db.models import F
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from clusters.models import MemberCluster
from fleetui.changes import noticed_changes
from fleetui.models import Event
from fleetui.task_queue import record_heartbeat
from placements.models import Binding, Placement, Rollout
from placements.services.placements import delete_placement, save_placement
from placements.services.rollouts import operations
from placements.services.rollouts.controller import sync_due_rollouts
from placements.services.searching import rollouts_named
from tests.database import compare_for_long, forget_caches
from tests.rows import pick_n_spec, placement_document
from tests.services.rollouts.world import (
    World,
    one_at_a_time,
    settled_world,
    updating_world,
    world_once,
)
from tests.web.reading import page_text, words_of

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]
RUN = "/rollouts/web/2/"


@pytest.fixture
def world() -> World:
    """Make three clusters in the middle of an update, one cluster at a time."""
    return world_once("one at a time", updating_world)


def polled(page: str) -> list[str]:
    """Return the address that the live part polls, if it does."""
    return re.findall(
        r'<div id="live" [^>]*hx-get="([^"]*)" hx-trigger="tick from:body"', page
    )


def poll(client: Client, address: str) -> tuple[int, str]:
    """Poll the live part as htmx does."""
    answer = client.get(address, headers={"HX-Request": "true"})
    return answer.status_code, page_text(answer)


def fail_on(world: World, name: str) -> None:
    """Make a newer version fail on a cluster."""
    world.inject(name, {"kind": "refuse", "objectName": "web"})
    world.change()
    world.work()
    world.pass_time(2)


@pytest.mark.nightly
@pytest.mark.usefixtures("world")
def test_lists_what_is_under_way_first_and_filters(
    viewer: Client, text_of: Fetch
) -> None:
    def runs(query: str) -> list[str]:
        return re.findall(
            r'href="/rollouts/web/(\d+)/"', text_of(viewer, f"/rollouts/{query}")
        )

    assert runs("") == ["2", "1"]
    assert runs("?state=finished") == ["1"]
    assert runs("?placement=missing") == []
    rail = text_of(viewer, "/clusters/")
    assert (
        '<span class="count" id="count-rollouts">1<span class="hidden"> in progress</span>'
        in rail
    )


@pytest.mark.nightly
@pytest.mark.usefixtures("world")
def test_a_run_says_how_far_it_is_and_why_it_waits(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, RUN)

    words = " ".join(re.sub("<[^>]*>", " ", page).split())
    assert "Progressing 0 of 3 clusters updated, waits for 1 cluster" in words
    assert "0 updated, of 3 1 updating 0 not available 2 pending" in words
    assert (
        "2 available, minimum 2 of 3 selected 1 of 1 of max unavailable used" in words
    )
    assert "Cannot take down any cluster (2 available, minimum 2)" in page
    assert "Unblocks when c000 is available." in page
    assert "On revision 1, waiting for revision 2." in page
    assert "1 → 2" in text_of(viewer, f"{RUN}clusters/")
    assert "Blocked" not in text_of(viewer, f"{RUN}clusters/")


def test_a_blocked_cluster_that_does_not_answer_has_the_reason_of_the_last_call(
    viewer: Client, text_of: Fetch, world: World
) -> None:
    Binding.objects.filter(cluster_name="c000").update(
        phase="applying", unavailable_code="credentials"
    )
    MemberCluster.objects.filter(name="c000").update(unanswered_since=world.now)
    Placement.objects.update(rollout_generation=F("rollout_generation") + 1)

    sync_due_rollouts(now=world.now)

    page = text_of(viewer, RUN)
    panel = page.partition('id="why"')[2].partition("</section>")[0]
    assert re.search(r"nreachable since .*[Cc]redentials rejected", panel)
    assert "0 updating 1 not available 2 pending" in words_of(page)


def test_the_waves_tell_removed_clusters_apart_and_end_with_those_that_came_later(
    viewer: Client, text_of: Fetch, world: World
) -> None:
    world.join(4)
    world.work()
    Binding.objects.filter(cluster_name="c001").update(
        state="Unscheduled", previous_state="Bound", phase="removed"
    )
    Binding.objects.filter(cluster_name="c002").delete()  # it left the fleet

    page = text_of(viewer, RUN)
    columns = page.partition('<ol class="run-columns">')[2].partition("</ol>")[0]

    rows = [
        " ".join(re.sub("<[^>]*>", " ", row).split())
        for row in columns.split('<li class="run-column')[1:]
    ]
    assert [re.sub(r" \d+\w*[dhms]\b", "", row.partition("> ")[2]) for row in rows] == [
        "– 2 removed removed c001 removed c002",  # noqa: RUF001 -- without a number
        "Wave 1 0 of 2 updating c000 updating c003",
    ]


@pytest.mark.nightly
@pytest.mark.usefixtures("world")
def test_a_start_under_way_has_a_clock_and_one_that_ended_shows_its_time(
    viewer: Client, text_of: Fetch
) -> None:
    under_way, ended = (
        text_of(viewer, f"{RUN}clusters/"),
        text_of(viewer, "/rollouts/web/1/clusters/"),
    )

    clocks = re.findall(
        r'duration </span><time datetime="2026-11-20T12:\d\d:\d\d\+00:00"', under_way
    )
    assert len(clocks) == 1
    assert re.findall(r"duration </span>(\w+)", ended) == ["2s"] * 3


@pytest.mark.usefixtures("world")
def test_a_cluster_is_pending_since_the_run_began_at_the_earliest(
    viewer: Client, text_of: Fetch
) -> None:
    run = Rollout.objects.get(state="running")

    page = text_of(viewer, f"{RUN}clusters/")

    since = r'Pending</span></td>\s*<td class="nowrap inline">.*?datetime="([^"]*)"'
    assert set(re.findall(since, page)) == {run.started_at.isoformat()}


@pytest.mark.usefixtures("world")
def test_the_time_left_is_on_page_list_and_rest_or_why_it_is_not_known(
    viewer: Client, text_of: Fetch
) -> None:
    run, now = Rollout.objects.filter(state="running"), datetime.now(UTC).isoformat()
    run.update(eta={"at": now, "left": None, "reason": "no-rate"}, progress_version=76)
    assert "No forecast before the first update is done." in text_of(viewer, RUN)

    run.update(
        eta={"at": now, "left": {"seconds": 290.0, "runs": 3}}, progress_version=77
    )
    words = "About 5m left (median of 3 past runs)"

    assert words in text_of(viewer, RUN)
    assert words in text_of(viewer, "/rollouts/")
    assert (
        viewer.get("/api/v1" + RUN.rstrip("/")).json()["eta"]["remaining"]["runs"] == 3
    )


@pytest.mark.nightly
def test_a_retry_is_counted_down_and_a_stalled_rollout_is_polled_less_often(
    viewer: Client, text_of: Fetch, world: World
) -> None:
    fail_on(world, "c000")
    retried = text_of(viewer, "/rollouts/web/3/")
    operations.pause("web", by=None, now=world.now)
    world.work()
    paused = text_of(viewer, "/rollouts/web/3/")

    assert re.search(
        r'data-until="2026-11-20T12:[^"]*">over, continues in a moment</time>', retried
    )
    assert 'data-active="false"' not in retried
    assert 'hx-swap="outerHTML" data-active="false"' in paused


@pytest.mark.nightly
def test_a_run_is_followed_until_it_ends(
    viewer: Client, text_of: Fetch, world: World
) -> None:
    compare_for_long()
    [query] = polled(text_of(viewer, RUN))

    unchanged = poll(viewer, f"{RUN}{query}")
    with noticed_changes():
        world.pass_time(3)
    forget_caches()
    moved = poll(viewer, f"{RUN}{query}")
    tabs = [
        poll(viewer, f"{RUN}{tab}/{query}") for tab in ("clusters", "events", "plan")
    ]
    with noticed_changes():
        world.run(until=world.is_settled)
    forget_caches()
    ended = poll(viewer, f"{RUN}{query}")

    assert unchanged == (204, "")
    assert [
        len(polled(one))
        for _, one in (moved, *tabs)
        if "1 of 3 clusters updated" in one
    ] == [1] * 4
    assert (ended[0], polled(ended[1])) == (200, [])
    assert "Completed" in ended[1]


@pytest.mark.nightly
@pytest.mark.usefixtures("world")
def test_an_older_rollout_links_to_the_newer_and_offers_no_action(
    operator: Client, text_of: Fetch
) -> None:
    page = text_of(operator, "/rollouts/web/1/")

    assert 'href="/rollouts/web/2/"' in page
    assert "/pause/" not in page


@pytest.mark.nightly
@pytest.mark.usefixtures("world")
def test_a_viewer_is_shown_the_actions_with_the_reason_why_not(
    viewer: Client, operator: Client, text_of: Fetch
) -> None:
    assert "/placements/web/pause/" in text_of(operator, RUN)
    page = text_of(viewer, RUN)
    assert not re.search(r'(href|action)="/placements/web/(pause|stop)/', page)
    assert re.search(
        r'id="stop"[^>]* aria-disabled="true"[^>]* title="[^"]*Required role: operator',
        page,
    )


def test_actions_stay_or_lead_to_the_rollout(
    operator: Client, text_of: Fetch, world: World
) -> None:
    paused = operator.post("/placements/web/pause/")
    world.work()
    page = text_of(operator, RUN)
    resumed = operator.post("/placements/web/resume/", {"at": "rollout"})
    stopped = operator.post("/placements/web/stop/")

    assert [answer["Location"] for answer in (paused, resumed, stopped)] == [
        "/placements/web/",
        RUN,
        RUN,
    ]
    assert "The placement is paused." in page
    assert "Start rollout" in text_of(operator, RUN)
    assert operator.post("/placements/web/start/").status_code == 302


def test_rolls_back_to_a_snapshot_that_is_chosen(
    operator: Client, text_of: Fetch, world: World
) -> None:
    page = text_of(operator, "/placements/web/roll-back/")
    done = operator.post("/placements/web/roll-back/", {"number": "1"})
    world.work()

    assert "<h1>Roll back web to revision 1?</h1>" in page
    assert "will have the resources of revision 1; the policy stays." in page
    assert "is pinned to these resources: hub changes are not rolled out" in page
    assert done["Location"] == "/placements/web/"
    assert Placement.objects.get().pinned_snapshot == 2
    page = text_of(operator, "/placements/web/")
    assert "Rolling back web to revision 1, as revision 3. web is pinned" in page
    assert (
        "to the resources of revision 3 (rolled back). Hub changes are not rolled out"
        in page
    )
    assert (
        "to the resources of revision 3 (rolled back). Hub changes are not rolled out"
        in text_of(operator, "/rollouts/web/3/")
    )
    unpin = text_of(operator, "/placements/web/unpin/")
    assert "<summary>Changes by unpinning: 1 resource</summary>" in unpin
    assert 'class="came"' in unpin
    assert "<strong>3 clusters</strong> in 3 waves" in unpin
    assert operator.post("/placements/web/unpin/").status_code == 302


@pytest.mark.nightly
@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("start", "is not stopped"),
        ("unpin", "web is not pinned"),
        ("roll-back", "cannot roll back"),
        ("retry/c002", "only what failed can be retried"),
    ],
)
def test_what_is_not_allowed_is_refused_with_a_reason(
    operator: Client, address: str, words: str
) -> None:
    answer = operator.post(f"/placements/web/{address}/")

    assert answer.status_code == 409
    assert words in answer.content.decode()


@pytest.mark.nightly
def test_what_was_just_resumed_is_not_called_halted(
    operator: Client, text_of: Fetch, world: World
) -> None:
    world.pass_time(3)
    operator.post("/placements/web/pause/")
    world.pass_time(5)
    operator.post("/placements/web/resume/")

    page = text_of(operator, RUN).partition('id="live"')[2].partition("</p>")[0]

    assert "Stalled" not in page


def test_offers_a_retry_where_something_failed(
    operator: Client, text_of: Fetch, world: World
) -> None:
    fail_on(world, "c000")

    assert 'action="/placements/web/retry/c000/"' in text_of(
        operator, "/rollouts/web/3/clusters/"
    )
    assert (
        operator.post("/placements/web/retry/c000/")["Location"] == "/rollouts/web/3/"
    )
    assert 'action="/placements/web/retry-failed/"' in text_of(
        operator, "/rollouts/web/3/"
    )
    assert (
        operator.post("/placements/web/retry-failed/")["Location"] == "/rollouts/web/3/"
    )
    assert Event.objects.latest("pk").after == {"clusters": ["c000"]}


@pytest.mark.nightly
def test_a_run_says_why_a_cluster_failed(
    viewer: Client, text_of: Fetch, world: World
) -> None:
    fail_on(world, "c000")
    message = Binding.objects.get(cluster_name="c000").message

    page = text_of(viewer, "/rollouts/web/3/")

    assert message
    assert re.search(rf"1 failed.*>c000</a>.*{re.escape(message)}", page, re.DOTALL)


@pytest.mark.nightly
def test_clusters_that_are_not_done_come_first(
    viewer: Client, text_of: Fetch, world: World
) -> None:
    fail_on(world, "c002")

    clusters = text_of(viewer, "/rollouts/web/3/clusters/").partition(
        '<section id="clusters"'
    )[2]

    assert re.findall(r'<th scope="row"><a href="/clusters/(\w+)/"', clusters) == [
        "c002",
        "c001",
        "c000",
    ]


@pytest.mark.nightly
@pytest.mark.usefixtures("world")
def test_the_plan_shows_the_waves_to_go(viewer: Client, text_of: Fetch) -> None:
    assert viewer.get("/placements/web/plan/")["Location"] == f"{RUN}plan/"
    assert viewer.get("/rollouts/web/1/plan/").status_code == 404
    page = text_of(viewer, f"{RUN}plan/")

    assert '<h2 id="plan">Rollout plan: 2 waves</h2>' in page
    assert page.index('id="picture"') < page.index('id="plan"')
    assert re.findall(r'class="label" href="/clusters/(\w+)/"', page) == [
        "c001",
        "c002",
    ]
    assert (
        page.count('<td class="nowrap inline">Update revision 1 → revision 2</td>') == 2
    )
    assert not re.search(r"\b[0-9a-f]{16,}\b", page.partition("<main")[2])
    waves = viewer.get("/api/v1/placements/web/plan").json()["waves"]
    assert [wave["actions"][0]["words"] for wave in waves] == [
        "Update revision 1 → revision 2"
    ] * 2
    limits = page.partition("Other limits")[2].partition("</table>")[0]
    rows = re.findall(r'row">([^<]+)</th>\s*<td class="number">(\d+)</td>', limits)
    assert rows == [("1 (now)", "1")]


@pytest.mark.nightly
@pytest.mark.usefixtures("world")
def test_the_page_of_the_placement_shows_the_run_and_is_followed(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, "/placements/web/")

    assert 'href="/rollouts/web/2/">web/2</a>' in page
    rollouts = text_of(viewer, "/placements/web/rollouts/")
    assert "0 of 3 clusters updated" in rollouts
    assert "1, 1, 1 clusters" in rollouts
    assert (
        "Not available" in page
    )  # for longer than allowed: the rollout is in the past
    assert len(polled(page)) == 1


@pytest.mark.nightly
def test_the_overview_shows_what_needs_attention(
    viewer: Client, text_of: Fetch, world: World
) -> None:
    assert 'aria-label="0 of 3 clusters updated"' in text_of(viewer, "/")
    fail_on(world, "c000")
    operations.pause("web", by=None, now=world.now)

    page = text_of(viewer, "/")

    assert "1 paused" in page
    assert "1 stalled" not in page
    assert "web: failed on c000" in page
    assert "Paused by system; no new updates start." in page
    operations.resume("web", by=None, now=world.now)
    assert '<i class="failed"' in text_of(viewer, "/")
    assert "web/3" in text_of(viewer, "/rollouts/?state=failed")
    for address in (
        "/rollouts/web/3/",
        "/rollouts/",
        "/placements/web/",
        "/placements/web/rollouts/",
    ):
        assert "Progressing – 1 failed" in text_of(viewer, address), address  # noqa: RUF001 -- its dash


@pytest.mark.nightly
def test_the_overview_shows_blocked_removals(viewer: Client, text_of: Fetch) -> None:
    world = settled_world(3, pick_n_spec(3))
    wants = {"matchLabels": {"region": "nowhere"}}
    term = {"clusterSelectorTerms": [{"labelSelector": wants}]}
    affinity = {
        "clusterAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}
    }

    moved = placement_document("web", pick_n_spec(3, affinity=affinity))
    save_placement(moved, by=None, now=world.now, confirmed=True)
    world.work()

    page = text_of(viewer, "/")
    assert ">web: 0 of 3 clusters selected</a>" in page
    assert "Rollout 2 stalled: 2 clusters blocked." in page


@pytest.mark.nightly
@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("address", ["/rollouts/", RUN, "/placements/web/"])
def test_runs_few_queries(
    viewer: Client, address: str, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    record_heartbeat(now=datetime.now(UTC))
    compare_for_long()

    with django_assert_max_num_queries({"/rollouts/": 12, RUN: 19}.get(address, 24)):
        viewer.get(address)


def test_a_run_that_is_not_there_is_not_found(viewer: Client) -> None:
    assert viewer.get("/rollouts/web/7/").status_code == 404


@pytest.mark.nightly
@pytest.mark.usefixtures("world")
def test_the_name_of_a_placement_leads_to_its_newest_run(viewer: Client) -> None:
    answer = viewer.get("/rollouts/web/")

    assert (answer.status_code, answer["Location"]) == (302, RUN)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("web", "The placement web has no rollout yet."),
        ("missing", "No placement is named missing"),
    ],
)
@pytest.mark.usefixtures("web")
def test_says_why_there_is_no_newest_run(viewer: Client, name: str, words: str) -> None:
    answer = viewer.get(f"/rollouts/{name}/")

    assert answer.status_code == 404
    assert words in answer.content.decode()


@pytest.mark.nightly
@pytest.mark.usefixtures("world")
def test_the_newest_run_is_for_people_with_a_role(
    client: Client, stranger: Client
) -> None:
    assert client.get("/rollouts/web/")["Location"].startswith("/login/")
    assert stranger.get("/rollouts/web/").status_code == 403


@pytest.mark.nightly
@pytest.mark.usefixtures("world")
def test_the_plan_names_revisions_and_what_is_in_progress(
    viewer: Client, text_of: Fetch, world: World
) -> None:
    MemberCluster.objects.filter(name="c002").update(
        verdict="staleHeartbeat", verdict_reason="x", verdict_since=world.now
    )

    page = text_of(viewer, f"{RUN}plan/")
    answer = viewer.get("/api/v1/placements/web/plan").json()

    assert "Updating</span> 1 cluster." in page
    assert '<h3 id="rest">Blocked' in page
    assert "On revision 1, waiting for revision 2." in page
    assert (
        "On revision 1, waiting for revision 2."
        in answer["rest"]["sentences"]["waiting"][0]["why"]
    )


@pytest.mark.nightly
def test_the_plan_does_not_call_up_to_date_what_is_being_updated(
    viewer: Client, text_of: Fetch, world: World
) -> None:
    world.run(until=lambda: world.phases()["c002"] == "settling")

    page = text_of(viewer, f"{RUN}plan/")

    assert "up to date" not in page.lower()
    assert "Rollout plan: no further waves</h2>" in page
    world.run(until=world.is_settled)
    assert "Rollout plan: no updates pending</h2>" in text_of(viewer, f"{RUN}plan/")


@pytest.mark.nightly
def test_a_paused_run_says_so_first_on_the_page_the_plan_and_over_rest(
    viewer: Client, text_of: Fetch, world: World
) -> None:
    operations.pause("web", by=None, now=world.now)
    world.pass_time(5)

    page = text_of(viewer, RUN)
    [verdict] = re.findall(r"<h1.*?</h1>", page, re.DOTALL)
    plan = text_of(viewer, f"{RUN}plan/")
    sentences = viewer.get("/api/v1/rollouts/web/2").json()["sentences"]

    assert re.search(
        "Paused.*of 3 clusters updated.*no new updates start", verdict, re.DOTALL
    )
    assert "ago. No new updates start" not in words_of(page)
    assert sentences["verdict"].startswith("Paused: no new updates start")
    assert "Paused by system" in words_of(plan)
    assert "no new updates start" in words_of(plan)


def test_a_pause_says_what_it_holds(
    viewer: Client, text_of: Fetch, world: World
) -> None:
    operations.pause("web", by=None, now=world.now)
    early = words_of(text_of(viewer, "/placements/web/"))
    operations.resume("web", by=None, now=world.now)
    world.run(until=lambda: world.phases()["c002"] == "settling")
    operations.pause("web", by=None, now=world.now)
    world.work()

    assert "No new updates start: started on 1 of 3 clusters." in early
    for address in ("/placements/web/", RUN):
        late = words_of(text_of(viewer, address))
        assert "Every update has started, and finishes; the next revision waits" in late


@pytest.mark.usefixtures("world")
def test_no_list_of_messages_is_empty_while_a_newer_revision_waits_for_its_rollout(
    viewer: Client, text_of: Fetch
) -> None:
    Placement.objects.update(rollout_generation=F("rollout_generation") + 1)

    page = text_of(viewer, "/placements/web/")

    assert 'href="/rollouts/web/2/">web/2</a>' in page, "the rollout before is running"
    assert not re.findall(r"<ul[^>]*>\s*</ul>", page)


def test_runs_of_a_deleted_placement_are_no_runs_of_a_later_one_with_its_name(
    viewer: Client, text_of: Fetch
) -> None:
    world = settled_world(2, one_at_a_time())
    old = Rollout.objects.get()
    delete_placement("web", by=None, now=world.now)
    world.run(until=lambda: not Placement.objects.exists())
    deletion = Rollout.objects.latest("pk")
    place = placement_document("web", pick_n_spec(1))
    save_placement(place, by=None, now=world.now)

    assert viewer.get("/rollouts/web/").status_code == 404  # it has no rollout yet

    world.work()
    rows = text_of(viewer, "/rollouts/").partition("<tbody>")[2].split("</tr>")
    new, removal, first = (words_of(row).strip() for row in rows[:3])
    assert new.startswith("web/1 Progressing")
    assert removal.startswith(f"{deletion.label} of a deleted placement Completed")
    assert first.startswith("web/1 of a deleted placement Completed")
    assert ["href=" in row.partition("</th>")[0] for row in rows[:3]] == [
        True,
        True,
        False,
    ]
    running = text_of(viewer, "/rollouts/?state=running")
    assert "of a deleted placement" not in running
    assert [rollout.placement_is_deleted for rollout in rollouts_named("web/1")] == [
        False
    ]
    assert old.number == 1


def test_the_trigger_of_a_deletion_is_the_deletion_and_who_requested_it(
    viewer: Client, text_of: Fetch
) -> None:
    world = settled_world(2, one_at_a_time())
    ana = User.objects.create_superuser("ana")

    delete_placement("web", by=ana, now=world.now)
    world.work()

    deletion = Rollout.objects.latest("pk")
    assert (deletion.is_deletion, deletion.trigger, deletion.started_by) == (
        True,
        "deleted",
        "ana",
    )
    assert "ana: deleted" in words_of(text_of(viewer, "/rollouts/"))
