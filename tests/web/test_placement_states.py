"""The list of placements: how near each is to its limits, the progress of its run, and filters by that."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.test import Client

from clusters.operations.edit import change_labels
from placements.engine.rollout.actions import BlockReason
from placements.engine.rollout.state import Phase
from placements.engine.status import ClusterFacts, MemberCondition, cluster_status
from placements.explain.run_pages import Part
from placements.models import Binding, Rollout
from placements.services.dashboard import queries
from placements.services.dashboard.progress import RunProgress, runs_in_progress
from placements.services.resources.operations import apply_resources
from placements.services.rollouts.controller import sync_due_rollouts
from placements.services.rollouts.operations import pause
from placements.services.verification import STALENESS_EVERY, refresh_staleness
from placements.web.badges import phase_state
from tests.database import compare_all
from tests.rows import (
    NOW,
    config_map,
    decided,
    joined,
    load_nine,
    namespace,
    pick_n_spec,
    spec,
)
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec
from tests.services.rollouts.world import World
from tests.web.reading import page_text

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]
NOTHING = "\N{EN DASH}"
TEXT = re.compile(r"<[^>]*>|\s+")


def rows(page: str) -> dict[str, list[str]]:
    """Return the cells of each line in words, by the name of its placement."""
    lines = (
        page.partition('id="list"')[2]
        .partition("<tbody>")[2]
        .partition("</tbody>")[0]
        .split("</tr>")
    )
    cells_by_line = [
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line, re.DOTALL) for line in lines
    ]
    words = [
        [TEXT.sub(" ", cell).split() for cell in cells]
        for cells in cells_by_line
        if cells
    ]
    return {
        " ".join(cells[0]): [" ".join(cell) for cell in cells[1:]] for cells in words
    }


def counts(page: str) -> dict[str, int]:
    """Return what the facets count."""
    facet_texts = re.findall(r">([\w ]+) <span class=\"count\">(\d+)</span></a>", page)
    return {words: int(count) for words, count in facet_texts}


@pytest.mark.nightly
def test_shows_skews_of_their_limits_and_stale_picks(
    viewer: Client, text_of: Fetch
) -> None:
    load_nine()
    refresh_staleness(now=NOW)

    page = text_of(viewer, "/placements/")

    assert rows(page)["web"][4:6] == ["skew region 1 / 1 env 1 / 2 soft", NOTHING]
    assert counts(page)["Outdated"] == 1
    assert list(rows(text_of(viewer, "/placements/?state=outdated"))) == ["cache"]


def test_says_that_the_domains_of_the_decision_are_not_those_of_today(
    viewer: Client, text_of: Fetch
) -> None:
    load_nine()
    refresh_staleness(now=NOW)
    words = "Labels of clusters have changed since."
    assert words not in text_of(viewer, "/placements/web/")

    for name in Binding.objects.filter(placement__full_name="web").values_list(
        "cluster_name", flat=True
    ):
        change_labels(
            [name],
            put={"region": "north", "env": "prod"},
            replaces=True,
            by=None,
            now=NOW,
        )
    refresh_staleness(now=NOW + STALENESS_EVERY)

    page = text_of(viewer, "/placements/web/")
    assert words in page
    assert re.search(r"Selected today by region: [\w ,]*north 5", page)


@pytest.mark.nightly
def test_shows_how_a_run_stands_and_finds_those_that_wait(
    viewer: Client, text_of: Fetch
) -> None:
    world = World(3)
    world.place("api", spec())
    world.run(until=world.is_settled)
    world.place("web", spec())
    pause("web", by=None, now=world.now)
    world.work()

    rows_by_name = rows(text_of(viewer, "/placements/"))

    assert (rows_by_name["api"][5], rows_by_name["web"][5]) == (
        "rollout 1 Completed",
        "rollout 1 Paused",
    )
    assert (
        Rollout.objects.filter(state="running").count()
        == queries.counts().of_placements.waiting
        == 1
    )
    for state in ("rolling", "waiting"):
        assert list(rows(text_of(viewer, f"/placements/?state={state}"))) == ["web"]


@pytest.mark.nightly
def test_names_the_staged_run_of_a_staged_placement(
    viewer: Client, text_of: Fetch
) -> None:
    world = StagedWorld({"all": ["c000", "c001"]}, stage("all", before=True))
    world.place("web", staged_spec())
    assert rows(text_of(viewer, "/placements/"))["web"][5] == NOTHING
    world.begin("one")

    page = text_of(viewer, "/placements/?state=waiting")

    assert rows(page)["web"][5].startswith("one ")
    assert (
        counts(page)["Stalled or waiting for a user"]
        == counts(page)["Rolling out"]
        == 1
    )


def test_says_what_waits_for_a_staged_run(
    viewer: Client, operator: Client, text_of: Fetch
) -> None:
    world = StagedWorld({"all": ["c000", "c001"]}, stage("all", most=2))
    world.place("web", staged_spec())
    new = text_of(operator, "/placements/web/").partition('class="problems"')[2]
    world.begin("one")
    during = text_of(operator, "/placements/web/")
    whole, menu = page_text(operator.get("/placements/web/")).split(
        'class="menu-panel menu-list"'
    )
    assert "/placements/web/staged-run/" not in whole
    assert "Start another run</a>" in menu, "several runs are allowed"
    world.run(until=lambda: world.status("one") == "succeeded")
    done = text_of(operator, "/placements/web/")
    world.apply(config_map("settings"))
    world.work()
    page, read = (
        text_of(operator, "/placements/web/"),
        text_of(viewer, "/placements/web/"),
    )
    listed, overview = text_of(viewer, "/placements/"), text_of(viewer, "/")
    assert "web" not in rows(text_of(viewer, "/placements/?state=healthy"))
    status = viewer.get("/api/v1/placements/web").json()["status"]["health"]
    world.begin("two")
    world.run(until=lambda: world.status("two") == "succeeded")
    compare_all(now=datetime.now(UTC))

    assert "Pending (needs a staged run)" in listed
    assert "needs a staged run" in overview
    assert (status["word"], status["message"]) == ("Pending", "needs a staged run")
    assert "Healthy" in rows(text_of(viewer, "/placements/"))["web"]
    assert "2 clusters wait for a staged update run." in new
    link = '<a href="/placements/web/staged-run/">Start staged update run</a>'
    assert link in new
    assert link in page.partition('class="problems"')[2]
    for one in (page, read):
        assert (
            "The resources changed after revision 1. The change waits for a staged update run."
            in one
        )
        assert "Pending (needs a staged run)" in one
    for one in (during, done, read):
        assert link not in one


@pytest.mark.nightly
def test_what_no_driver_applies_is_scheduled_not_applied(
    viewer: Client, text_of: Callable[[Client, str], str]
) -> None:
    joined("a")
    apply_resources([namespace("shop")], by=None, now=NOW)
    placement = decided("web", pick_n_spec(1))
    sync_due_rollouts(now=NOW)

    page = text_of(viewer, "/placements/web/")
    run = text_of(viewer, "/rollouts/web/1/")

    assert placement.placed_count == 1
    assert "Scheduled, not applied" in page
    assert "Not monitored" in text_of(viewer, "/clusters/a/")
    assert (
        "Scheduled, not applied. The cluster is not monitored: it has no driver." in run
    )
    assert "Unreachable" not in run


def segments(page: str) -> list[str]:
    """Return the levels of the first bar of a page."""
    bar = page.partition('svg class="segments"')[2].partition("</svg>")[0]
    return re.findall(r"segment-([\w-]+)", bar)


def refused() -> None:
    """Make a rollout that fails on three clusters; two others were not wanted after its start."""
    world = World(5)
    for number in range(5):
        world.inject(f"c00{number}", {"kind": "refuse", "objectName": "web"})
    world.place("web", pick_n_spec(5))
    world.pass_time(2)
    world.place("web", pick_n_spec(3))
    world.pass_time(3)


def test_list_and_page_show_one_bar_and_what_failed_is_not_green(
    viewer: Client,
) -> None:
    refused()

    paths = ("/placements/", "/placements/web/")
    bars = [segments(viewer.get(path).text) for path in paths]

    assert bars == [["failed"], ["failed"]]


def test_an_unreachable_cluster_has_the_level_of_its_placement_in_a_rollout() -> None:
    state = phase_state(Phase.NOT_STARTED, BlockReason.UNREACHABLE)
    facts = ClusterFacts(Phase.NOT_STARTED, MemberCondition.UNREACHABLE)

    assert (state.kind, state.words) == (cluster_status(facts).level, "Unreachable")


def test_a_removed_cluster_does_not_count_as_updated() -> None:
    refused()

    [progress] = runs_in_progress(1, now=datetime.now(UTC))

    assert (progress.updated, progress.total) == (0, 3)


@pytest.mark.parametrize(
    ("last", "current"), [(Part.PENDING, 2), (Part.UPDATING, 2), (Part.UPDATED, None)]
)
def test_a_rolling_update_is_at_the_wave_after_one_that_is_stuck(
    last: Part, current: int | None
) -> None:
    run = Rollout(waves=[["lion", "otter"], ["tiger"]], sync_result={})
    parts = [
        ("lion", Part.NOT_AVAILABLE),
        ("otter", Part.UPDATED),
        ("tiger", last),
    ]

    assert RunProgress.of_rollout(run, parts).current == current
