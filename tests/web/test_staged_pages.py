"""Staged runs in the browser: strategies, starting one, its page, actions on it, the inbox of approvals."""

import html
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from fleetui.changes import noticed_changes
from fleetui.models import Event
from placements.models import (
    ApprovalRequest,
    Binding,
    Placement,
    StagedRun,
    StagedStrategy,
)
from placements.services.history.queries import revision_number_of
from placements.services.overrides.operations import save_override
from placements.services.placements import save_placement
from placements.services.rollouts import operations
from placements.services.rollouts.controller import sync_due_rollouts
from placements.services.rollouts.operations import abandon, pause, set_state
from placements.services.rollouts.staged_runs import save_run, save_strategy
from placements.services.rollouts.stages import starting_strategy
from placements.services.rollouts.worker import run_cluster_calls
from placements.templatetags.fleet import remaining
from tests.database import compare_all, compare_for_long, forget_caches, load_once
from tests.rows import (
    NOW,
    decided,
    joined,
    person,
    pick_n_spec,
    placement_document,
)
from tests.services.rollouts.overrides import for_clusters, rule
from tests.services.rollouts.staged import StagedWorld, run_document, stage, staged_spec
from tests.services.rollouts.world import SECOND, world_once
from tests.web.reading import page_text, words_of
from tests.web.test_rollouts import poll, polled

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]
BY_STAGE = {"canary": ["c001"], "prod": ["c000", "c002", "c003"]}
RUN = "/rollouts/staged/runs/one/"
START = "/placements/web/staged-run/"
CHOOSE = "/rollouts/staged/new-run/"
APPROVALS = "?waiting=approval"


@pytest.fixture
def world() -> StagedWorld:
    """Return a canary with a wait and an approval, then the rest, half at a time."""

    def make() -> StagedWorld:
        made = StagedWorld(
            BY_STAGE, stage("canary", after=True, wait="30s"), stage("prod", most="67%")
        )
        made.place("web", staged_spec())
        return made

    made = world_once("staged", make)
    if not User.objects.filter(
        username="ann"
    ).exists():  # rows of users are not loaded with the world
        made.approver = person("ann", "approver")
    return made


@pytest.fixture
def waiting(world: StagedWorld) -> StagedWorld:
    """Advance a run to the gate after its canary."""
    before = world.now

    def wait() -> None:
        world.begin("one")
        world.go_on(10)

    load_once("waiting", wait)
    world.now = before + 10 * SECOND
    return world


@pytest.fixture
def approver(world: StagedWorld) -> Client:
    """Return the browser of an approver."""
    browser = Client()
    browser.force_login(world.approver)
    return browser


def actions_on(page: str) -> list[str]:
    """Return the actions that a page of a run offers."""
    return re.findall(rf'(?:href|action)="{RUN}([^"]+)"', page)


@pytest.mark.usefixtures("world")
def test_resources_of_a_staged_placement_wait_for_its_run(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, "/resources/")

    assert "(waits for a run)" in page
    assert "no placement" not in page


@pytest.mark.usefixtures("collected_static")
def test_a_pending_cluster_says_what_its_run_waits_for(
    operator: Client, world: StagedWorld
) -> None:
    def row(address: str) -> str:
        return words_of(page_text(operator.get(address))).rpartition("c003")[2]

    assert row("/placements/web/").startswith(" Pending")
    assert "Waiting for a staged update run." in row("/placements/web/")
    world.begin("one")
    world.go_on(40)

    page = page_text(operator.get("/placements/web/"))
    head = page.partition('badges" role="status">')[2].partition("</svg>")[0]
    assert 'class="mark approval' in head
    assert "Waiting for approval of stage canary." in row("/placements/web/")
    assert "Waiting for approval of stage canary." in words_of(
        page_text(operator.get("/clusters/c003/"))
    )
    assert "Waiting for approval of stage canary." in words_of(
        page_text(operator.get("/placements/web/rollouts/")).partition(
            "rollouts-title"
        )[2]
    )
    run = words_of(page_text(operator.get(RUN)))
    assert "Waiting for approval of stage canary · " in run
    assert run.count("Waiting for approval of stage canary.") == 0


@pytest.mark.nightly
@pytest.mark.usefixtures("world")
def test_the_stages_stand_there_with_their_clusters_before_a_run_is_started(
    operator: Client, text_of: Fetch
) -> None:
    page = text_of(operator, f"{START}?strategy=careful")

    assert re.findall(r'class="label">\s*(\d \w+)', page) == [
        "1 c001",
        "1 c000",
        "2 c002",
        "3 c003",
    ]
    assert "3 clusters · max 67% of 3 → 2 at a time" in words_of(page)
    assert "wait 30s and approval" in page
    assert 'name="name" value="web-1"' in page
    assert not StagedRun.objects.exists()


@pytest.mark.nightly
def test_a_run_is_started_or_prepared_by_every_operator(
    operator: Client, world: StagedWorld
) -> None:
    began = operator.post(
        START, {"name": "one", "strategy": "careful", "snapshot": "", "do": "start"}
    )
    world.work()
    prepared = operator.post(
        START, {"name": "two", "strategy": "careful", "do": "prepare"}
    )

    assert [answer["Location"] for answer in (began, prepared)] == [
        RUN,
        "/rollouts/staged/runs/two/",
    ]
    assert [run.started_by for run in StagedRun.objects.order_by("pk")] == ["ana", ""]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("given", "path", "words"),
    [
        ({"name": "one"}, "metadata.name", "a run is named one already"),
        ({"name": "No Name"}, "metadata.name", "No Name"),
        (
            {"strategy": "bold"},
            "spec.stagedRolloutStrategyName",
            "no strategy is named",
        ),
        (
            {"snapshot": "7"},
            "spec.resourceSnapshotIndex",
            "web has no resource snapshot 7",
        ),
    ],
)
@pytest.mark.usefixtures("waiting")
def test_what_cannot_be_started_is_refused_with_its_path(
    operator: Client, given: dict[str, str], path: str, words: str
) -> None:
    answer = operator.post(START, {"name": "two", "strategy": "careful", **given})

    assert answer.status_code == 422
    assert f"<code>{path}</code>" in page_text(answer)
    assert words in page_text(answer)
    assert StagedRun.objects.count() == 1


@pytest.mark.nightly
def test_a_stage_of_a_prepared_run_is_not_under_way(
    operator: Client, text_of: Fetch, world: StagedWorld
) -> None:
    world.begin("one", state="Initialize")

    prepared = text_of(operator, RUN)
    world.set("one", "Run")

    assert "not started" in prepared
    assert "Progressing" not in prepared
    assert "Progressing" in text_of(operator, RUN)


def test_an_older_snapshot_is_called_a_rollback(
    operator: Client, text_of: Fetch, waiting: StagedWorld
) -> None:
    abandon("one", by=None, now=waiting.now)
    waiting.change()
    waiting.begin("two")

    newer = text_of(operator, "/rollouts/staged/runs/two/")
    assert f'id="roll-back" href="{START}?strategy=careful&amp;snapshot=0"' in newer
    assert f'href="{START}?snapshot=0"' in text_of(operator, "/placements/web/history/")
    page = text_of(operator, f"{START}?strategy=careful&snapshot=0")
    operator.post(START, {"name": "back", "strategy": "careful", "snapshot": "0"})
    words = "Initializing A worker initializes the run in a moment"
    assert words in words_of(text_of(operator, "/rollouts/staged/runs/back/"))
    waiting.work()

    assert "These resources are older than the latest" in page
    assert "two</a> is active" in page
    assert "Rolls back to revision 1 stage by stage" in text_of(
        operator, "/rollouts/staged/runs/back/"
    )
    assert "Rollback" not in text_of(operator, "/rollouts/staged/runs/two/")


@pytest.mark.nightly
@pytest.mark.usefixtures("waiting")
def test_clusters_that_have_the_snapshot_already_are_marked(
    operator: Client, text_of: Fetch
) -> None:
    page = text_of(operator, f"{START}?strategy=careful&snapshot=0")

    assert re.findall(r"(c\d+) ✓", page) == ["c001"]


def test_says_why_a_run_could_not_begin(
    operator: Client, text_of: Fetch, world: StagedWorld
) -> None:
    world.place("many", staged_spec({"placementType": "PickN", "numberOfClusters": 9}))

    page = text_of(operator, "/placements/many/staged-run/?strategy=careful")

    assert "Cannot start" in page
    assert "wants 9 clusters and has 4" in page
    assert "Start run" not in page


def test_says_that_a_run_without_resources_would_fail(
    operator: Client, text_of: Fetch, world: StagedWorld
) -> None:
    empty = {"group": "", "version": "v1", "kind": "Namespace", "name": "missing"}
    world.place("empty", staged_spec() | {"resourceSelectors": [empty]})

    page = text_of(operator, "/placements/empty/staged-run/?strategy=careful")

    assert "Cannot start yet" in page
    assert "No resources are selected." in page
    assert "Create without starting" in page


@pytest.mark.nightly
def test_a_run_that_waits_for_a_person_alone_polls_less_often(
    viewer: Client, text_of: Fetch, waiting: StagedWorld
) -> None:
    timed = text_of(viewer, RUN)
    waiting.go_on(40)

    assert "data-active" not in timed
    assert 'hx-swap="outerHTML" data-active="false"' in text_of(viewer, RUN)


@pytest.mark.nightly
@pytest.mark.usefixtures("waiting")
def test_a_run_shows_each_stage_with_what_it_waits_for(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, RUN)

    assert re.findall(r"<h3>(\d\. \w+)</h3>", page) == ["1. canary", "2. prod"]
    assert re.search(
        r'Wait \(30s\)</span> · <time [^>]*data-left data-until="[^"]+">over, continues in a moment</time>',
        page,
    )
    assert ">over, continues in a moment<" in remaining(timezone.now(), "left")
    assert ">9s left<" in remaining(timezone.now() + timedelta(seconds=9.9), "left")
    assert "Waiting for approval" in page
    assert "max 67% of 3 → 2 at a time" in page
    assert words_of(page).count("After stage canary.") == 1


@pytest.mark.nightly
def test_a_run_shows_who_approved_and_how_far_the_clusters_are(
    viewer: Client, text_of: Fetch, waiting: StagedWorld
) -> None:
    assert 'class="mark approval"' in text_of(viewer, "/rollouts/")
    waiting.approve("one", "canary")
    assert 'class="mark approval"' not in text_of(
        viewer, "/rollouts/"
    )  # only for the time
    waiting.inject("c002", {"kind": "refuse", "objectName": "web"})
    waiting.go_on(25)
    waiting.run(
        until=lambda: (
            "c002" in waiting.phases() and waiting.phases()["c002"] == "failed"
        )
    )

    page = words_of(text_of(viewer, RUN))

    assert "Approved by ann" in page
    assert "Wait (30s) completed" in page
    assert (
        "Failed 1 time. Next retry in" in page
        or "Failed 2 times. Next retry in" in page
    )


@pytest.mark.usefixtures("waiting", "collected_static")
def test_a_gate_has_the_evidence_for_its_approval(approver: Client) -> None:
    page = words_of(page_text(approver.get(RUN)))

    gate = page.partition("Approve stage canary")[2].partition("Comment")[0]
    assert "Then prod: 3 clusters, 2 at a time." in gate
    assert re.search(r"1 of 1 updated are available for \S+ 0 failed", gate)
    assert re.search(r"0 failed, 0 retries, [\d.]+s Approvers", gate)
    assert "Approvers Users with the role approver." in gate
    for sentence in ("There is no time limit.", "Then prod: 3 clusters"):
        assert page.count(sentence) == 1


@pytest.mark.usefixtures("waiting")
def test_a_gate_of_available_clusters_is_healthy_where_nothing_says_since_when(
    approver: Client,
) -> None:
    Binding.objects.update(phase_changed_at=None)

    page = page_text(approver.get(RUN))

    [badge] = re.findall(
        r'class="mark (\w+)"><svg(?:(?!</svg>).)*</svg>1 of 1 up', page
    )
    assert badge == "healthy"


@pytest.mark.nightly
@pytest.mark.usefixtures("waiting")
def test_operators_and_approvers_are_offered_what_is_theirs(
    viewer: Client, operator: Client, approver: Client, text_of: Fetch
) -> None:
    assert actions_on(text_of(viewer, RUN)) == []
    assert actions_on(text_of(operator, RUN)) == [
        "pause/",
        "abandon/",
        "skip-wait/canary/",
    ]
    assert actions_on(text_of(approver, RUN)) == ["approve/canary/"]
    assert "only an approver may approve a stage" in text_of(operator, RUN)
    assert "required role: operator" in text_of(viewer, RUN)


@pytest.mark.nightly
@pytest.mark.usefixtures("waiting")
def test_the_comment_of_an_approval_is_kept_wherever_it_is_shown(
    approver: Client, viewer: Client, text_of: Fetch
) -> None:
    long = approver.post(f"{RUN}approve/canary/", {"comment": "x" * 501})
    assert (long.status_code, "at most 500 are allowed" in page_text(long)) == (
        409,
        True,
    )
    assert not ApprovalRequest.objects.filter(approved_at__isnull=False).exists()

    approver.post(f"{RUN}approve/canary/", {"comment": "Error rate is 0 <b>"})

    [request] = ApprovalRequest.objects.all()
    page = text_of(viewer, RUN)
    progress = viewer.get("/api/v1/staged-runs/one/progress").json()
    [condition] = request.to_manifest()["status"]["conditions"]
    [event] = Event.objects.filter(verb="approved", kind="staged-run")
    assert "<q>Error rate is 0 &lt;b&gt;</q>" in page
    assert progress["approvals"][0]["comment"] == "Error rate is 0 <b>"
    assert condition["message"] == "by ann: Error rate is 0 <b>"
    assert event.after["comment"] == "Error rate is 0 <b>"


@pytest.mark.usefixtures("waiting")
def test_the_picture_shows_each_stage_and_the_approval_between_them(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, RUN)
    columns = page.partition('<ol class="run-columns">')[2].partition("</ol>")[0]

    heads = [
        words_of(part).split(" at a time")[0].strip()
        for part in columns.split('<li class="run-column')[1:]
    ]
    assert [re.sub("^[^>]*>", "", head).split()[:3] for head in heads] == [
        ["Stage", "1", "canary1"],
        ["Timed", "wait", "30s"],
        ["Approve", "stage", "canary"],
        ["Stage", "2", "prod0"],
    ]
    assert "Then prod: 3 clusters, 2 at a time." in words_of(page)
    assert "1 of 4 available" in words_of(text_of(viewer, "/rollouts/"))
    counts = "1 updated, of 4 0 updating 0 not available 3 pending"
    assert counts in words_of(page)


def test_a_stage_to_come_says_what_has_the_revision_already(
    viewer: Client, text_of: Fetch, waiting: StagedWorld
) -> None:
    waiting.approve("one", "canary")
    waiting.run(until=lambda: waiting.status("one") == "succeeded")

    waiting.begin("two", state="Initialize")

    stages = words_of(text_of(viewer, RUN.replace("one", "two")))
    assert "2. prod Not started · 3 of 3 already at revision" in stages


def _title(page: str) -> str:
    return words_of(page.partition("<h1>")[2].partition("</h1>")[0]).strip()


def test_the_title_says_first_what_a_run_waits_for_and_does_not_count_as_finished(
    viewer: Client, text_of: Fetch, waiting: StagedWorld
) -> None:
    timed = _title(text_of(viewer, RUN))
    waiting.approve("one", "canary")
    waiting.run(until=lambda: waiting.status("one") == "succeeded")
    waiting.begin("two")
    waiting.go_on(10)

    again = _title(text_of(viewer, RUN.replace("one", "two")))
    pause("web", by=None, now=waiting.now)
    paused = _title(text_of(viewer, RUN.replace("one", "two")))

    assert timed.startswith(
        "Waiting for approval of stage canary. Stage canary updated;"
    )
    assert timed.endswith(" · 1 of 4 clusters updated, 0 of 2 stages completed")
    left = " · 4 of 4 clusters updated, 0 by this run, 0 of 2 stages completed"
    assert again.startswith("Waiting for approval of stage canary. ")
    assert again.endswith(left)
    assert paused.startswith("Paused web is paused by system: no new updates start")
    assert paused.endswith(left)


@pytest.mark.nightly
def test_is_followed_until_it_ends(
    viewer: Client, text_of: Fetch, waiting: StagedWorld
) -> None:
    [query] = polled(text_of(viewer, RUN))

    unchanged = poll(viewer, f"{RUN}{query}")
    waiting.approve("one", "canary")
    moved = poll(viewer, f"{RUN}{query}")
    waiting.run(until=lambda: waiting.status("one") == "succeeded")
    ended = poll(viewer, f"{RUN}{query}")

    assert unchanged == (204, "")
    assert "approved" in moved[1]
    assert (ended[0], polled(ended[1])) == (200, [])
    assert "Completed 4 of 4 clusters updated" in words_of(ended[1])


@pytest.mark.nightly
def test_what_a_cluster_says_moves_the_page_too(
    viewer: Client, text_of: Fetch, world: StagedWorld
) -> None:
    save_run(run_document("one"), by=None, now=world.now)
    sync_due_rollouts(now=world.now)
    compare_for_long()
    [query] = polled(text_of(viewer, RUN))
    changes = StagedRun.objects.get().progress_version
    with noticed_changes():
        run_cluster_calls(now=world.now, threads=0, clock=lambda: world.now + SECOND)
    forget_caches()

    assert StagedRun.objects.get().progress_version == changes
    assert poll(viewer, f"{RUN}{query}")[0] == 200


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("action", "state"),
    [("pause", "Stop"), ("abandon", "Run")],
)
@pytest.mark.usefixtures("waiting")
def test_actions_require_confirmation(
    operator: Client, text_of: Fetch, action: str, state: str
) -> None:
    page = text_of(operator, f"{RUN}{action}/")
    assert StagedRun.objects.get().document["spec"]["state"] == "Run"

    done = operator.post(f"{RUN}{action}/")

    assert '<form method="post"' in page
    assert done["Location"] == RUN
    run = StagedRun.objects.get()
    assert run.document["spec"]["state"] == state
    assert (run.status == "abandoned") == (action == "abandon")


@pytest.mark.nightly
def test_a_stopped_run_is_let_go_again(
    operator: Client, text_of: Fetch, waiting: StagedWorld
) -> None:
    set_state("one", "Stop", by=None, now=waiting.now)
    waiting.work()

    assert actions_on(text_of(operator, RUN))[:2] == ["resume/", "abandon/"]
    assert operator.post(f"{RUN}resume/").status_code == 302
    assert StagedRun.objects.get().document["spec"]["state"] == "Run"


@pytest.mark.nightly
@pytest.mark.usefixtures("waiting")
def test_a_wait_is_skipped_and_a_cluster_retried(operator: Client) -> None:
    skipped = operator.post(f"{RUN}skip-wait/canary/")
    again = operator.post(f"{RUN}skip-wait/prod/")
    nothing = operator.post(f"{RUN}retry/c001/")

    assert (skipped.status_code, list(StagedRun.objects.get().skipped_waits)) == (
        302,
        ["canary"],
    )
    assert (again.status_code, nothing.status_code) == (409, 409)
    assert "has no timed wait in progress" in page_text(again)


def test_a_failed_cluster_is_retried_by_its_button(
    operator: Client, text_of: Fetch, world: StagedWorld
) -> None:
    world.inject("c001", {"kind": "refuse", "objectName": "web"})
    world.begin("one")
    world.go_on(2)

    assert f'action="{RUN}retry/c001/"' in text_of(operator, RUN)
    assert "Progressing – 1 failed · 0 of " in words_of(text_of(operator, RUN))  # noqa: RUF001
    for page in (
        RUN,
        "/rollouts/",
        "/placements/web/",
        "/rollouts/staged/strategies/careful/",
    ):
        assert "Progressing – 1 failed" in words_of(text_of(operator, page)), page  # noqa: RUF001
    assert operator.post(f"{RUN}retry/c001/")["Location"] == RUN
    assert list(StagedRun.objects.get().retries) == ["c001"]
    assert f'action="{RUN}retry-failed/"' in text_of(operator, RUN)
    assert operator.post(f"{RUN}retry-failed/")["Location"] == RUN


@pytest.mark.usefixtures("collected_static")
def test_a_run_paused_at_an_approval_is_paused_wherever_it_is_shown(
    approver: Client, waiting: StagedWorld
) -> None:
    def page(address: str) -> str:
        return words_of(page_text(approver.get(address)))

    waiting.go_on(40)
    waiting.set("one", "Stop")

    run, placement, overview, inbox = map(
        page, (RUN, "/placements/web/", "/", "/inbox/")
    )
    assert run.count("Waiting for approval") == 0
    assert "Paused Waiting for a user to resume the run" in run
    assert "1. canary Paused · 1 of 1 updated" in run
    assert "Approval takes effect when the run continues" in run
    assert "Paused (1 of 4 started)" in placement
    assert placement.count("Waiting for a user to resume the run. Open one") == 1
    assert "c003 Paused" in placement
    assert "aiting for approval" not in placement
    assert "Pending approval" not in placement
    assert "Paused (1 of 4 started)" in page("/placements/")
    assert "1 paused" in overview
    assert "stalled" not in overview
    assert "web: staged run one is paused No new updates start." in overview
    assert "approve stage" not in overview + inbox
    assert "0 approvals pending" in overview
    assert "web: staged run one is paused" in inbox
    assert "All Not ended Completed Superseded Stopped or aborted Failed" in page(
        "/rollouts/"
    )
    assert "web · one Paused" in page("/rollouts/?state=running")
    assert "web · one" not in page("/rollouts/?state=stopped")
    [item] = approver.get("/api/v1/inbox").json()["items"]
    assert (item["level"], item["message"]) == (
        "suspended",
        "Staged run one is paused; no new updates start.",
    )
    health = approver.get("/api/v1/placements/web").json()["status"]["health"]
    assert (health["level"], health["word"], health["message"]) == (
        "suspended",
        "Paused",
        "1 of 4 started",
    )

    waiting.approve("one", "canary")
    assert "Approved by ann" in page(RUN)
    assert "Paused Waiting for a user to resume the run" in page(RUN)
    waiting.set("one", "Run")
    assert "Waiting for timer" in page(RUN)


def test_a_run_of_a_paused_placement_is_counted_once(
    approver: Client, waiting: StagedWorld
) -> None:
    waiting.go_on(40)
    Placement.objects.update(paused_since=waiting.now, paused_by="ann")
    waiting.work()

    page = words_of(page_text(approver.get("/")))

    assert "1 rollout in progress 1 paused 1 approval pending" in page


@pytest.mark.usefixtures("collected_static")
def test_an_action_shows_before_a_worker_processes_it(
    client: Client, approver: Client, waiting: StagedWorld
) -> None:
    client.force_login(person("ana", "operator"))
    waiting.go_on(40)

    approver.post(f"{RUN}approve/canary/")

    pages = {
        address: words_of(page_text(approver.get(address)))
        for address in (
            RUN,
            "/placements/web/",
            "/placements/",
            "/rollouts/",
            "/",
            "/clusters/c001/",
        )
    }
    for address, page in pages.items():
        assert "Waiting for approval" not in page, address
    assert "Stage canary of one approved. " in pages[RUN]
    assert "Progressing The run continues in a moment" in pages[RUN]
    assert "1. canary Completed · 1 of 1 updated" in pages[RUN]
    progress = approver.get("/api/v1/staged-runs/one/progress").json()
    assert (progress["status"], progress["sentences"]) == (
        "progressing",
        ["The run continues in a moment."],
    )
    assert "Progressing (1 of 4 started)" in pages["/placements/web/"]
    for address in (RUN, "/placements/web/"):
        fragment = poll(client, f"{address}?v=old")[1]
        assert 'id="count-inbox" hx-swap-oob="true"></span>' in fragment, address
        assert 'id="count-rollouts" hx-swap-oob="true">1<' in fragment, address
    client.post(f"{RUN}pause/")
    assert "Pausing" in words_of(page_text(client.get(RUN)))
    waiting.work()
    client.post(f"{RUN}resume/")
    assert "Progressing The run continues in a moment" in words_of(
        page_text(client.get(RUN))
    )
    waiting.work()
    assert "1. canary Waiting for timer" in words_of(page_text(client.get(RUN))), (
        "it restarts"
    )


def test_a_skipped_wait_is_no_longer_waited_for(
    operator: Client, waiting: StagedWorld
) -> None:
    waiting.approve("one", "canary")
    assert "Waiting for timer" in page_text(operator.get(RUN))

    operator.post(f"{RUN}skip-wait/canary/")

    page = words_of(page_text(operator.get(RUN)))
    assert "Progressing The run continues in a moment" in page


@pytest.mark.usefixtures("collected_static")
@pytest.mark.parametrize("action", ["resume/", "pause/", "abandon/"])
def test_what_is_not_allowed_after_an_abort_is_refused(
    operator: Client, waiting: StagedWorld, action: str
) -> None:
    abandon("one", by=None, now=waiting.now)
    page = words_of(page_text(operator.get(RUN)))
    assert "Aborted 1 of 4 clusters updated" in page
    assert "1. canary Aborted · 1 of 1 updated" in page
    assert "Wait (30s) aborted" in page
    assert "Approval not given" in page
    assert "2. prod Not reached · 0 of 3 updated" in page
    stages = operator.get("/api/v1/staged-runs/one/progress").json()["stages"]
    assert [one["state"] for one in stages] == ["aborted", "not reached", "not reached"]

    answer = operator.post(f"{RUN}{action}")

    if action == "resume/":
        assert answer.status_code == 302
        return
    assert answer.status_code == 409
    assert "has ended" in page_text(answer)


@pytest.mark.nightly
@pytest.mark.usefixtures("waiting")
def test_the_inbox_lists_what_waits_and_an_approver_approves(
    approver: Client, viewer: Client, text_of: Fetch
) -> None:
    inbox = text_of(approver, "/rollouts/?waiting=approval")
    page_of_viewer = text_of(viewer, "/rollouts/?waiting=approval")
    done = approver.post(f"{RUN}approve/canary/")

    assert f'href="{RUN}approve/canary/"' in inbox
    assert "after the stage" in inbox
    assert f'href="{RUN}approve/canary/"' not in page_of_viewer
    assert "only an approver may approve a stage" in page_of_viewer
    assert done["Location"] == RUN
    assert "No pending approvals" in text_of(approver, "/rollouts/?waiting=approval")
    assert approver.post(f"{RUN}approve/prod/").status_code == 409


def test_who_started_may_not_approve_where_the_placement_demands_another(
    client: Client, text_of: Fetch, world: StagedWorld
) -> None:
    document = placement_document("web", staged_spec(), approver_differs="true")
    save_placement(document, by=None, now=world.now)
    client.force_login(person("both", "operator", "approver"))
    client.post(START, {"name": "one", "strategy": "careful"})
    world.work()
    world.go_on()

    refused = client.post(f"{RUN}approve/canary/")

    assert refused.status_code == 403
    assert "requires another approver than both" in page_text(refused)
    assert "approve/canary/" not in actions_on(text_of(client, RUN))
    assert "an approver other than both, who started it" in text_of(
        client, "/rollouts/?waiting=approval"
    )


@pytest.mark.nightly
@pytest.mark.usefixtures("waiting")
def test_the_overview_shows_approvals_with_a_link(
    viewer: Client, approver: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, "/")

    assert "one: approve stage canary" in page
    assert "Stage canary of web waits for approval, after the stage." in page
    assert "1 waiting for approval" in page
    assert "#approval" in page
    button = ">Approve</a>"
    assert (button in page, button in text_of(approver, "/")) == (False, True)
    assert (
        '<span class="count" id="count-rollouts">1<span class="hidden"> in progress</span>'
        in page
    )


@pytest.mark.nightly
def test_one_list_has_both_sorts_of_runs(
    viewer: Client, text_of: Fetch, waiting: StagedWorld
) -> None:
    waiting.place("other", {"resourceSelectors": staged_spec()["resourceSelectors"]})
    waiting.run(until=waiting.is_settled)
    abandon("one", by=None, now=waiting.now)
    waiting.begin("two")

    def runs(query: str) -> list[str]:
        return re.findall(
            r'<th scope="row" class="nowrap"><a href="([^"]+)"', text_of(viewer, query)
        )

    one, two, other = RUN, "/rollouts/staged/runs/two/", "/rollouts/other/1/"
    assert runs("/rollouts/") == [two, other, one]
    assert runs("/rollouts/?state=running") == [two]
    assert runs("/rollouts/?state=stopped") == [one]
    assert runs("/rollouts/?state=finished") == [other]
    assert runs("/rollouts/?kind=staged") == [two, one]
    assert runs("/rollouts/?kind=rolling") == [other]
    assert runs("/rollouts/?kind=rolling&state=stopped") == []
    assert runs("/rollouts/?placement=web") == [two, one]
    assert runs("/rollouts/?after=nonsense") == [other, one]


def test_both_sorts_are_paged_without_loss(
    viewer: Client,
    text_of: Fetch,
    waiting: StagedWorld,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("placements.web.request.PAGE_SIZE", 1)
    waiting.place("other", {"resourceSelectors": staged_spec()["resourceSelectors"]})
    waiting.run(until=waiting.is_settled)
    for name in ("one", "two", "three"):
        if name != "one":
            waiting.begin(name)
        abandon(name, by=None, now=waiting.now)
        waiting.go_on(1)

    def walk(page: str, direction: str) -> Iterator[str]:
        while link := re.search(rf'href="(\?[^"]*)" rel="{direction}"', page):
            page = text_of(viewer, f"/rollouts/{html.unescape(link[1])}")
            yield page

    pages = [first := text_of(viewer, "/rollouts/"), *walk(first, "next")]
    back = [*walk(pages[-1], "prev")]
    runs_by_page = [
        re.findall(r'<th scope="row" class="nowrap"><a href="/rollouts/([^"]+)/"', one)
        for one in pages
    ]

    assert runs_by_page == [
        ["staged/runs/three"],
        ["staged/runs/two"],
        ["other/1"],
        ["staged/runs/one"],
    ]
    assert [one.partition("<tbody>")[2].partition("</nav>")[0] for one in back] == [
        one.partition("<tbody>")[2].partition("</nav>")[0] for one in pages[-2::-1]
    ]
    assert "4–4 of 4" in pages[-1]  # noqa: RUF001  # as on the page


@pytest.mark.nightly
@pytest.mark.usefixtures("waiting")
def test_the_page_of_the_placement_says_how_its_run_stands(
    viewer: Client, operator: Client, text_of: Fetch
) -> None:
    page = text_of(operator, "/placements/web/")

    assert f'href="{RUN}">one</a>' in page
    assert f'href="{START}"' in page
    assert "/roll-back/" not in page
    assert f'href="{START}"' not in text_of(viewer, "/placements/web/")
    assert len(polled(page)) == 1


def test_what_failed_outside_a_run_says_that_it_is_not_retried(
    operator: Client, text_of: Fetch, world: StagedWorld
) -> None:
    world.inject("c001", {"kind": "refuse", "objectName": "web"})
    world.begin("one")
    world.go_on(2)
    during = text_of(operator, "/")
    abandon("one", by=None, now=world.now)
    world.work()
    compare_all(now=datetime.now(UTC))

    refused = r"failed on c001</a>\s*<p>On c001: Deployment shop/web: injected fault: rejected\. "
    assert re.search(refused + r"Retrying\.</p>", during)
    assert re.search(
        refused + r"Not retried before the next staged run\.</p>",
        text_of(operator, "/"),
    )
    assert "Retries only happen in a run." in text_of(operator, "/placements/web/")
    run = text_of(operator, RUN)
    assert "Failed and not retried, as the run has ended: c001." in run
    assert f'href="{START}?strategy=careful&amp;snapshot=0"' in run


@pytest.mark.nightly
def test_another_run_with_the_same_snapshot_tries_what_failed_again(
    world: StagedWorld,
) -> None:
    world.inject("c001", {"kind": "refuse", "objectName": "web"})
    world.begin("one")
    world.go_on(2)
    abandon("one", by=None, now=world.now)
    world.inject("c001")
    world.go_on(60)
    before = world.phases()["c001"]

    world.begin("two", index="0")
    world.go_on(5)

    assert (before, world.phases()["c001"]) == ("failed", "available")


@pytest.mark.nightly
def test_a_failed_run_is_reported_until_there_is_a_newer_one(
    viewer: Client, text_of: Fetch, waiting: StagedWorld
) -> None:
    save_placement(
        placement_document(
            "web",
            staged_spec(
                {
                    "placementType": "PickAll",
                    "tolerations": [{"key": "a", "operator": "Exists"}],
                }
            ),
        ),
        by=None,
        now=waiting.now,
    )
    waiting.work()
    waiting.go_on(1)
    page = text_of(viewer, "/")
    waiting.begin("two")
    compare_all(now=datetime.now(UTC))

    assert waiting.why("one") == ["new-policy"]
    assert "web: staged run one failed" in page
    assert "The policy was changed after the run started." in text_of(viewer, RUN)
    assert "staged run one failed" not in text_of(viewer, "/")


@pytest.mark.nightly
def test_a_paused_placement_is_reported_on_the_page_of_its_run(
    viewer: Client, text_of: Fetch, waiting: StagedWorld
) -> None:
    operations.pause("web", by=None, now=waiting.now)

    assert "is paused by system: no new updates start" in text_of(viewer, RUN)


@pytest.mark.nightly
def test_a_large_stage_is_shown_from_where_the_work_is(
    viewer: Client, text_of: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("placements.services.rollouts.stages.ROWS", 2)
    monkeypatch.setattr("placements.services.rollouts.stages.MORE_ROWS", 3)
    world = StagedWorld(
        {"prod": [f"c00{number}" for number in range(6)]}, stage("prod")
    )
    world.place("web", staged_spec())
    world.begin("one")
    world.run(until=lambda: world.phases()["c002"] == "available")

    def names(query: str) -> list[str]:
        return re.findall(
            r'<th scope="row"><a href="/clusters/(\w+)/"',
            text_of(viewer, f"{RUN}{query}"),
        )

    assert names("") == ["c003", "c004"]
    assert names("?stage=prod&from=0") == ["c000", "c001", "c002"]
    assert names("?stage=prod&from=3") == ["c003", "c004", "c005"]
    assert "4\N{EN DASH}5 of 6" in text_of(viewer, RUN)

    world.run(until=lambda: world.status("one") == "succeeded")

    assert "Show 6 clusters" in text_of(viewer, RUN)
    assert names("") == []
    assert names("?stage=prod&from=0") == ["c000", "c001", "c002"]


@pytest.mark.nightly
def test_removals_are_a_stage_of_their_own(viewer: Client, text_of: Fetch) -> None:
    world = StagedWorld({"prod": ["c000", "c001"]}, stage("prod", most=2))
    fixed: dict[str, Any] = {
        "placementType": "PickFixed",
        "clusterNames": ["c000", "c001"],
    }
    world.place("web", staged_spec(fixed))
    world.begin("one")
    world.run(until=lambda: world.status("one") == "succeeded")
    world.place("web", staged_spec({**fixed, "clusterNames": ["c000"]}))
    world.begin("two")

    page = words_of(text_of(viewer, "/rollouts/staged/runs/two/"))

    assert "2. Removals" in page
    assert (
        "removes the resources from deselected clusters, all at the same time" in page
    )


@pytest.mark.nightly
def test_a_strategy_is_shown_in_words(
    viewer: Client, text_of: Fetch, world: StagedWorld
) -> None:
    world.begin("one")
    page = text_of(viewer, "/rollouts/staged/strategies/careful/")

    assert "Clusters where stage=canary, by name." in page
    assert "max 67%, rounded down, at least 1 at a time" in page
    assert f'href="{RUN}">one</a>' in page
    assert "canary → prod" in text_of(viewer, "/rollouts/staged/strategies/")


def test_a_strategy_is_written_checked_and_saved(
    operator: Client, text_of: Fetch
) -> None:
    address = "/rollouts/staged/new-strategy/"
    page = text_of(operator, f"{address}?as=yaml")
    given = re.search(r"<textarea[^>]*>(.*?)</textarea>", page, re.DOTALL)
    assert given
    checked = operator.post(
        address, {"manifest": given[1], "revision": "0", "do": "check"}
    )
    saved = operator.post(
        address, {"manifest": given[1], "revision": "0", "do": "save"}
    )

    assert "approval" in words_of(page_text(checked)).partition("canary")[2]
    assert "wait" not in words_of(page_text(checked)).partition("canary")[2]
    assert saved["Location"] == "/rollouts/staged/strategies/canary-first/"
    assert StagedStrategy.objects.get().revision == 1


@pytest.mark.usefixtures("world")
def test_a_run_starts_with_a_new_strategy_from_the_same_form(
    operator: Client, text_of: Fetch
) -> None:
    StagedStrategy.objects.all().delete()
    form = text_of(operator, START)
    stages = {"stage_name": ["canary", "prod"], "stage_labels": ["stage=canary", ""]}
    others = ("stage_most", "stage_sort", "stage_before", "stage_wait")
    typed: dict[str, Any] = {name: ["", ""] for name in others}
    typed |= stages | {"stage_after": ["Approval", ""], "strategy_name": "two-steps"}
    sent = {"strategy": "+", "snapshot": "", "name": "one", **typed}

    checked = operator.post(START, {**sent, "do": "check"})
    bad = operator.post(START, {**sent, "stage_labels": ["stage", ""], "do": "start"})
    assert not StagedStrategy.objects.exists()
    typed["stage_labels"] = ["stage=canary", "stage=prod"]
    started = operator.post(START, {**sent, **typed, "do": "start"})
    again = operator.post(START, {**sent, **typed, "name": "two", "do": "start"})

    assert 'name="strategy_name" value="web-stages"' in form
    first = form.partition('id="new-strategy"')[2].partition("<button ")[2]
    assert 'name="do" value="check"' in first.partition(">")[0], "Enter starts nothing"
    assert 'name="stage_before"' in form
    assert "More than one stage selects c001." in page_text(checked)
    assert (bad.status_code, started["Location"], again.status_code) == (422, RUN, 422)
    assert "a strategy has this name already" in page_text(again)
    listed = text_of(operator, "/rollouts/staged/strategies/two-steps/")
    assert f'href="{START}?strategy=two-steps">Start run of web</a>' in listed


def test_a_strategy_starts_runs_also_of_placements_with_rolling_updates(
    operator: Client, text_of: Fetch, world: StagedWorld
) -> None:
    decided("shop", pick_n_spec(1))

    listed = text_of(operator, "/rollouts/staged/strategies/careful/")
    address = "/placements/shop/staged-run/"
    start = text_of(operator, f"{address}?strategy=careful")
    sent = {"strategy": "careful", "snapshot": "", "name": "shop-1", "do": "start"}
    unticked = operator.post(address, sent)
    stale = operator.post(address, {**sent, "external": "9"})
    taken = operator.post(address, {**sent, "external": "1", "name": "not a name"})
    before = Placement.objects.get(name="shop")
    started = operator.post(address, {**sent, "external": "1"})

    assert 'href="/placements/shop/staged-run/?strategy=careful"' in listed
    assert "Rolling updates, to change to External when the run starts" in listed
    [tick] = re.findall(r'<input type="checkbox" id="external"[^>]*>', start)
    assert 'value="1" required' in tick
    assert "its strategy is not External" in page_text(unticked)
    assert "placement shop is at revision 1, this edit started from 9" in page_text(
        stale
    )
    assert (stale.status_code, taken.status_code) == (409, 422)
    assert (before.revision, before.is_staged) == (1, False), "nothing has changed"
    assert started["Location"] == "/rollouts/staged/runs/shop-1/"
    assert Placement.objects.get(name="shop").is_staged
    # The change to External is a revision, too.
    [number] = re.findall(r"Revision (\d+) \(latest\)", words_of(start))
    world.go_on()
    assert StagedRun.objects.get(name="shop-1").revision_number == int(number)
    assert f"· revision {number} ·" in words_of(text_of(operator, started["Location"]))


def test_a_run_of_the_latest_resources_has_the_revision_of_its_form(
    operator: Client, text_of: Fetch, waiting: StagedWorld
) -> None:
    waiting.approve("one", "canary")
    waiting.run(until=lambda: waiting.status("one") == "succeeded")
    document = Placement.objects.get(name="web").document
    save_placement(
        {**document, "spec": {**document["spec"], "revisionHistoryLimit": 7}},
        by=None,
        now=waiting.now,
    )

    form = words_of(text_of(operator, START))
    save_run(run_document("two", index="0"), by=None, now=waiting.now)
    run = words_of(text_of(operator, RUN.replace("one", "two")))

    [number] = re.findall(r"Revision (\d+) \(latest\)", form)
    assert f"· revision {number} ·" in run


def test_clusters_that_are_up_to_date_early_are_counted_alike_wherever_a_run_is_shown(
    operator: Client, text_of: Fetch, waiting: StagedWorld
) -> None:
    waiting.go_on(40)
    waiting.approve("one", "canary")
    waiting.go_on(60)
    waiting.begin("two")

    run = words_of(text_of(operator, "/rollouts/staged/runs/two/"))
    overview = words_of(text_of(operator, "/"))

    assert "4 updated, of 4" in run
    assert "prod Not started · 3 of 3 already at revision" in run
    assert "Then prod: 3 clusters, 3 already up to date, 2 at a time." in run
    assert "4 of 4 updated" in overview


@pytest.mark.usefixtures("world")
def test_a_run_starts_from_the_rollouts_by_choosing_a_placement(
    operator: Client, viewer: Client, text_of: Fetch
) -> None:
    decided("shop", pick_n_spec(1))

    lists = [text_of(operator, f"/rollouts/{query}") for query in ("", APPROVALS)]
    page = text_of(operator, CHOOSE)

    link = f'href="{CHOOSE}"'
    assert all(link in one and "Start staged run" in one for one in lists)
    assert link not in text_of(viewer, "/rollouts/")
    assert re.findall(r'href="(/placements/\w+/staged-run/)"', page) == [
        "/placements/shop/staged-run/",
        START,
    ]
    assert "shop Rolling update 1" in words_of(page)
    assert "No placements match." in text_of(operator, f"{CHOOSE}?q=nothing")


def test_the_form_of_a_run_calls_the_latest_revision_as_the_placement_does(
    operator: Client, text_of: Fetch, waiting: StagedWorld
) -> None:
    def latest() -> list[str]:
        page = words_of(text_of(operator, f"{START}?strategy=careful"))
        return re.findall(r"Revision (\d+) \(latest\)", page)

    number = revision_number_of(Placement.objects.get(name="web"))

    assert latest() == [str(number)]
    assert "the run changes nothing" not in text_of(operator, START)
    waiting.go_on(40)
    waiting.approve("one", "canary")
    waiting.go_on(60)
    done = words_of(text_of(operator, f"{START}?strategy=careful"))
    older = words_of(text_of(operator, f"{START}?strategy=careful&snapshot=0"))
    for one in (done, older):
        assert (
            f"All 4 clusters have revision {number} already: the run changes nothing."
            in one
        )
    patch = rule({"op": "add", "path": "/metadata/labels", "value": {"tone": "light"}})
    save_override(for_clusters("bright", patch), by=None, now=waiting.now)
    changed = words_of(text_of(operator, f"{START}?strategy=careful"))
    assert "the run changes nothing" not in changed
    Placement.objects.update(has_newer_resources=True)
    assert latest() == []
    assert "The next revision, with the changed resources" in text_of(operator, START)


@pytest.mark.usefixtures("waiting")
def test_a_run_without_older_resources_says_where_an_older_policy_is_restored(
    operator: Client, text_of: Fetch
) -> None:
    page = text_of(operator, RUN)
    placement = text_of(operator, "/placements/web/")

    assert "Nothing to go back to" not in page
    assert "Revision history restores an older policy" in words_of(page)
    for one in (page, placement):
        [link] = re.findall(r'<a[^>]*id="roll-back"[^>]*>', one)
        assert 'href="/placements/web/history/"' in link
    assert "Restore policy opens an older policy for review" in words_of(
        text_of(operator, "/placements/web/history/")
    )


@pytest.mark.usefixtures("nine")
def test_a_new_strategy_starts_with_environments_canaries_first_or_with_regions() -> (
    None
):
    def stages(name: str) -> list[str]:
        document = starting_strategy(Placement.objects.get(name=name))
        return [one["name"] for one in document["spec"]["stages"]]

    assert stages("web") == ["canary", "prod"]
    assert stages("ledger") == ["east", "north", "west"]


def test_a_new_strategy_is_valid_whatever_the_labels_and_the_name() -> None:
    joined("a", env="eu-1")
    joined("b", env="eu1")
    placement = decided(f"{'a' * 49}.b", staged_spec())

    document = starting_strategy(placement)

    assert [one["name"] for one in document["spec"]["stages"]] == ["all"]
    assert save_strategy(document, by=None, now=NOW).object.name == f"{'a' * 49}-stages"


def test_a_strategy_is_made_of_rows(operator: Client) -> None:
    address = "/rollouts/staged/new-strategy/"
    fields: dict[str, Any] = {
        "rows": "1",
        "name": "two-steps",
        "manifest": operator.get(address).context["editor"]["text"],
        "stage_name": ["canary", "prod", ""],
        "stage_labels": ["stage=canary, tier=gold", "", ""],
        "stage_most": ["25%", "", ""],
        "stage_sort": ["order", "", ""],
        "stage_before": ["Approval", "", ""],
        "stage_wait": ["", "10m", ""],
        "stage_after": ["", "Approval", ""],
    }

    checked = page_text(operator.post(address, {**fields, "do": "check"}))
    bad = operator.post(
        address,
        {**fields, "do": "save", "stage_labels": ["stage=canary, gold", "", ""]},
    )
    odd = operator.post(address, {**fields, "do": "save", "manifest": "metadata: 5"})
    saved = operator.post(address, {**fields, "do": "save"})
    rows = operator.get(f"{saved['Location']}edit/").context["editor"]["rows"]
    spec = StagedStrategy.objects.get().document["spec"]

    assert (
        "Clusters where stage=canary and tier=gold: 0 now, by the number in order"
        in checked
    )
    assert (bad.status_code, odd.status_code) == (422, 422)
    assert (
        "<code>spec.stages[0].labelSelector.matchLabels</code> Invalid value: gold"
        in page_text(bad)
    )
    assert [row.labels for row in rows] == ["stage=canary, tier=gold", "", "", ""]
    assert spec["stages"] == [
        {
            "name": "canary",
            "labelSelector": {"matchLabels": {"stage": "canary", "tier": "gold"}},
            "sortingLabelKey": "order",
            "maxConcurrency": "25%",
            "beforeStageTasks": [{"type": "Approval"}],
        },
        {
            "name": "prod",
            "labelSelector": {},
            "afterStageTasks": [
                {"type": "TimedWait", "waitTime": "10m"},
                {"type": "Approval"},
            ],
        },
    ]


@pytest.mark.usefixtures("world")
def test_a_bad_or_stale_strategy_is_refused(operator: Client) -> None:
    address = "/rollouts/staged/strategies/careful/edit/"
    text = operator.get(address).context["editor"]["text"]
    spoilt = text.replace("67%", "0%")

    bad = operator.post(address, {"manifest": spoilt, "revision": "1", "do": "save"})
    named = operator.post(
        address, {"manifest": text.replace("careful", "bold"), "revision": "1"}
    )
    stale = operator.post(
        address, {"manifest": text.replace("67%", "50%"), "revision": "0", "do": "save"}
    )

    assert (bad.status_code, named.status_code, stale.status_code) == (422, 422, 409)
    assert "<code>spec.stages[1].maxConcurrency</code>" in page_text(bad)
    assert "a name cannot be changed" in page_text(named)
    assert StagedStrategy.objects.get().revision == 1


@pytest.mark.nightly
@pytest.mark.usefixtures("waiting")
def test_a_strategy_is_deleted_and_its_run_goes_on(
    operator: Client, text_of: Fetch
) -> None:
    done = operator.post("/rollouts/staged/strategies/careful/delete/")

    assert done["Location"] == "/rollouts/staged/strategies/"
    assert not StagedStrategy.objects.exists()
    assert "67% of 3 → 2" in text_of(operator, RUN)


@pytest.mark.nightly
@pytest.mark.usefixtures("waiting")
@pytest.mark.parametrize(
    "address", [RUN, f"{START}?strategy=careful", "/rollouts/?waiting=approval"]
)
def test_runs_few_queries(
    operator: Client,
    address: str,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    compare_for_long()

    with django_assert_max_num_queries(20 if address.startswith(START) else 16):
        operator.get(address)


def test_what_is_not_there_is_not_found(viewer: Client, operator: Client) -> None:
    gone = ["/rollouts/staged/runs/missing/", "/rollouts/staged/strategies/missing/"]
    assert [viewer.get(one).status_code for one in gone] == [404, 404]
    assert operator.post("/rollouts/staged/runs/missing/pause/").status_code == 404


@pytest.mark.usefixtures("waiting")
def test_the_name_of_a_placement_leads_to_its_newest_staged_run(viewer: Client) -> None:
    assert viewer.get("/rollouts/web/")["Location"] == RUN
