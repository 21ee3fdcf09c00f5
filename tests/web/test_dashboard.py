"""The overview, the demo, the activity and the search box."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl

import pytest
from django.db import connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext

from clusters.drivers.base import SIMULATED
from clusters.models import MemberCluster
from clusters.operations.edit import change_labels, cordon, leave
from fleetui.changes import noticed_changes
from fleetui.hub_scope import LOCAL_HUB
from fleetui.task_queue import record_heartbeat
from placements.engine.problems import Noun, ProblemLevel
from placements.engine.rollout.state import Phase
from placements.manifests.binding import BindingState
from placements.models import (
    Binding,
    Decision,
    Placement,
    Resource,
    Rollout,
    StagedRun,
    StalenessCheck,
    StalePick,
)
from placements.services.dashboard.causes import AttentionItem
from placements.services.dashboard.queries import last_rollout_end
from placements.services.fleet.queries import Skew
from placements.services.hub_version import stored_version
from placements.services.problems import root_causes
from placements.services.problems.root_causes import AttentionSection
from placements.services.rollouts import operations
from placements.services.rollouts.controller import sync_due_rollouts
from placements.services.verification import refresh_staleness
from placements.web.badges import Badge
from placements.web.dashboard import rows_of, skew_badges
from tests.database import compare_all, forget_caches
from tests.rows import (
    NOW,
    decided,
    joined,
    load_nine,
    person,
    pick_n_spec,
    saved,
    simulated,
    spec,
)
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec
from tests.services.rollouts.test_out_of_reach import cut_off
from tests.services.rollouts.world import settled_world
from tests.web.reading import Outline

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]


def _needs(page: str) -> list[tuple[str, str]]:
    """Return the title of each item of the attention list, and the words below it."""
    section = (
        page.partition('id="attention"')[2]
        .partition("</section>")[0]
        .partition('id="snoozed"')[0]
    )
    rows = re.findall(
        r'<a id="open-[^>]*>(.*?)</a>(.*?)<div class="when">', section, re.DOTALL
    )
    return [
        (title, " ".join(re.sub(r"<[^>]*>", " ", below).split()))
        for title, below in rows
    ]


def _names(page: str) -> list[str]:
    return [title.partition(":")[0] for title, _ in _needs(page)]


def test_an_empty_hub_says_how_to_begin(operator: Client, text_of: Fetch) -> None:
    page = text_of(operator, "/")

    assert re.findall(r'name="size" value="(\d+)"', page) == ["4", "9", "100", "5000"]
    assert 'href="/clusters/import/"' in page
    assert 'href="/resources/apply/"' in page
    assert Outline(page).problems == []
    assert Outline(page).is_ordered


def test_an_empty_hub_shows_a_viewer_which_role_is_needed(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, "/")

    assert 'name="size"' not in page
    assert "permission to load demo data" in page


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_nothing_needs_anybody_while_all_is_well(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, "/")

    assert ">Overview</h1>" in page
    assert "Nothing needs attention" in page


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_placements_in_a_rollout_are_not_called_healthy(
    viewer: Client, text_of: Fetch
) -> None:
    MemberCluster.objects.update(driver=SIMULATED)
    sync_due_rollouts(now=NOW)
    page = text_of(viewer, "/")

    assert "Nothing needs attention." in page
    assert _figure(page, "of 1 placement healthy") == ("0", "1 in progress")


@pytest.mark.usefixtures("web")
def test_names_what_needs_attention_with_the_reason(
    viewer: Client, text_of: Fetch
) -> None:
    decided("many", pick_n_spec(7))
    decided(
        "named",
        spec(policy={"placementType": "PickFixed", "clusterNames": ["nowhere"]}),
    )
    saved("odd", spec())
    error = {"path": "spec", "code": "duplicate", "message": "selects it again"}
    Placement.objects.filter(name="odd").update(selection_faults=[error])
    simulated("silent", fault="silent")
    leave(["bravelion"], by=None, now=NOW)

    needs = _needs(text_of(viewer, "/"))

    assert [title for title, _ in needs] == [
        "silent: not ready",
        "named: 0 of 1 clusters selected",
        "odd: invalid resource selector",
        "many: 3 of 7 clusters selected",
        "bravelion: being removed from the fleet",
    ]
    assert needs[1][1].startswith("Named but not in the fleet: nowhere.")
    assert "selects it again" in needs[2][1]
    leaving = text_of(viewer, "/clusters/bravelion/")
    assert "Being removed from the fleet." in leaving
    assert "has left the fleet" not in leaving


@pytest.mark.nightly
@pytest.mark.parametrize("many", [3, 1])
def test_a_lost_cluster_absorbs_the_rollout_and_the_placement(
    viewer: Client, text_of: Fetch, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(root_causes, "GROUPED_FROM", many)
    world = settled_world(3, pick_n_spec(3))
    cut_off(world, "c001")
    world.change()
    world.work()

    page = text_of(viewer, "/")
    section = page.partition('id="attention"')[2].partition("</section>")[0]

    assert _names(page) == ["c001" if many > 1 else "1 cluster not ready"]
    assert (
        "1 rollout waiting (web/2) · 1 placement affected by this alone (web)"
        in section
    )


def test_the_menu_of_a_cluster_leads_to_what_a_person_may_do(
    viewer: Client, operator: Client, text_of: Fetch
) -> None:
    world = settled_world(3, pick_n_spec(3))
    cut_off(world, "c001")
    compare_all(now=datetime.now(UTC))

    read, operated = (
        text_of(client, "/").partition('id="attention"')[2].partition("</section>")[0]
        for client in (viewer, operator)
    )

    assert "Placed there: web." in read
    assert 'href="/what-if/?cluster=c001"' in read
    assert "Drain" not in read
    assert "Clear fault" not in read
    assert 'href="/clusters/c001/drain/"' in operated
    assert 'formaction="/clusters/c001/inject-fault/">Clear fault' in operated


def _snoozed(client: Client, name: str, length: str) -> tuple[int, list[str]]:
    """Hide a cause, and return the status of the answer and the names of what is still shown."""
    page = client.get("/").content.decode()
    fields = rf'name="key" value="([^"]*/{name})">(?:<input type="hidden" name="mark" value="(\w*)")?'
    [key_and_mark] = re.findall(fields, page)
    answer = client.post(
        "/snooze/", {"key": key_and_mark[0], "mark": key_and_mark[1], "for": length}
    )
    return answer.status_code, _names(client.get("/").content.decode())


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_what_is_snoozed_is_hidden_from_one_person_until_it_changes(
    viewer: Client, operator: Client, text_of: Fetch
) -> None:
    decided("many", pick_n_spec(7))
    decided("more", pick_n_spec(8))

    assert _snoozed(viewer, "many", "change") == (302, ["more"])
    assert "1 snoozed" in text_of(viewer, "/")
    assert "snoozed" not in text_of(operator, "/").partition('id="attention"')[2]
    Placement.objects.filter(name="many").update(placed_count=2)
    compare_all(now=datetime.now(UTC))
    assert _names(text_of(viewer, "/")) == ["many", "more"]
    assert _snoozed(viewer, "more", "8h") == (302, ["many"])
    assert _snoozed(viewer, "more", "") == (302, ["many", "more"])
    assert _snoozed(viewer, "more", "ever")[0] == 400


@pytest.mark.nightly
def test_clusters_in_the_same_state_are_one_cause_and_of_many_causes_six_are_shown(
    viewer: Client, text_of: Fetch
) -> None:
    for number in range(12):
        simulated(f"silent-{number:02}", fault="silent")
    for number in range(8):
        decided(f"p{number}", pick_n_spec(7))

    page = text_of(viewer, "/")

    assert _names(page) == ["12 clusters never reported", "p0", "p1", "p2", "p3", "p4"]
    assert _needs(page)[0][1] == (
        "Agent offline: silent-00, silent-01, silent-02 and 9 more."
    )
    assert '<a id="more-items" href="/inbox/">3 more</a>' in page
    assert "Recent decisions" in page
    assert _names(text_of(viewer, "/?show=approve")) == []
    assert viewer.get("/inbox/").content.decode().count('<a id="open-') == 9


def test_recent_decisions_are_in_the_order_of_their_times(
    viewer: Client, text_of: Fetch
) -> None:
    joined("ant")
    names = ("first", "second", "third")
    for number, name in enumerate(names):
        decided(name, pick_n_spec(1))
        Decision.objects.filter(placement_name=name).update(
            created_at=NOW - timedelta(hours=number)
        )

    latest = text_of(viewer, "/").partition('id="latest-decisions"')[2]

    shown = re.findall(r">(\w+)<span class=\"hidden\">:\s+decision", latest)
    assert shown == list(names)


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_lists_the_worst_placements_first_and_what_was_decided(
    viewer: Client, text_of: Fetch, decision_id: str
) -> None:
    decided("a-fine-one", pick_n_spec(1))
    decided("many", pick_n_spec(7))

    page = text_of(viewer, "/")
    shown = page.partition('id="placements-now"')[2].partition("</table>")[0]
    latest = page.partition('id="latest"')[2]

    assert re.findall(r'href="/placements/([\w-]+)/"', shown)[0] == "many"
    assert f'href="/decisions/{decision_id}/"' in latest
    assert 'class="label joins">nimblefox' in latest


@pytest.mark.nightly
@pytest.mark.parametrize("size", ["4", "9"])
def test_loads_a_demo_and_removes_it(
    operator: Client, text_of: Fetch, size: str
) -> None:
    loaded = operator.post("/demo/load/", {"size": size})
    clusters = MemberCluster.objects.count()
    confirmation = text_of(operator, "/demo/remove/")
    operator.post("/demo/remove/")

    assert loaded["Location"] == "/"
    assert clusters == int(size)
    assert f"{size} clusters" in confirmation
    assert not MemberCluster.objects.exists()
    assert not Placement.objects.exists()


@pytest.mark.nightly
@pytest.mark.parametrize("size", ["", "7", "many"])
def test_there_is_no_demo_of_another_size(operator: Client, size: str) -> None:
    operator.post("/demo/load/", {"size": size})

    assert "Unsupported value" in operator.get("/").content.decode()


# --- Activity -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("web")
def test_shows_who_did_what_with_a_short_diff(viewer: Client, text_of: Fetch) -> None:
    change_labels(
        ["nimblefox"], put={"region": "north"}, by=person("li", "operator"), now=NOW
    )

    page = text_of(viewer, "/activity/?by=li")

    assert 'href="/activity/?kind=cluster&amp;reason=changed"' in page
    assert ">ClusterChanged</a></td>" in page
    assert "metadata.labels.region: <del>west</del> → <ins>north</ins>" in page
    assert page.count("<time ") == 1


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("", 7),
        ("?kind=cluster", 3),
        ("?kind=placement&name=web", 2),
        ("?by=missing", 0),
        ("?q=ELI", 1),
        ("?q=o&kind=cluster", 2),
        ("?kind=cluster&reason=joined", 3),
    ],
)
def test_filters_what_happened(
    viewer: Client, text_of: Fetch, query: str, count: int
) -> None:
    assert text_of(viewer, f"/activity/{query}").count("<time ") == count


@pytest.mark.nightly
def test_goes_back_in_time_page_by_page(viewer: Client, text_of: Fetch) -> None:
    for number in range(60):
        joined(f"c{number}")

    first = text_of(viewer, "/activity/")
    [following] = re.findall(r'href="(\?[^"]*)" rel="next"', first)

    assert first.count("<time ") == 50
    assert text_of(viewer, f"/activity/{following}").count("<time ") == 10


# --- Search ---------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("nimblefox", "/clusters/nimblefox/"),
        ("NimbleFox", "/clusters/nimblefox/"),
        ("jumping", "/clusters/jumpingcat/"),
        ("web", "/placements/web/"),
    ],
)
def test_opens_what_is_found_alone(viewer: Client, text: str, address: str) -> None:
    assert viewer.get("/search/", {"q": text})["Location"] == address


def test_explains_a_cluster_and_a_placement_named_together(
    viewer: Client, decision_id: str
) -> None:
    for text in ("bravelion web", "web bravelion"):
        answer = viewer.get("/search/", {"q": text})

        assert answer["Location"] == f"/decisions/{decision_id}/?cluster=bravelion#why"


def test_finds_a_decision_by_the_beginning_of_its_id(
    viewer: Client, decision_id: str
) -> None:
    assert (
        viewer.get("/search/", {"q": decision_id[:12]})["Location"]
        == f"/decisions/{decision_id}/"
    )


@pytest.mark.usefixtures("web")
def test_lists_several(viewer: Client, text_of: Fetch) -> None:
    page = text_of(viewer, "/search/?q=b")

    assert re.findall(r'<li><a href="(/[cp][^"]*)">', page.partition("<main")[2]) == [
        "/clusters/bravelion/",
        "/clusters/nimblefox/",
        "/placements/web/",
    ]
    clusters = page.partition('id="clusters"')[2].partition("</section>")[0]
    assert clusters.count("Not monitored<") == 2


@pytest.mark.usefixtures("web")
def test_says_that_nothing_was_found(viewer: Client, text_of: Fetch) -> None:
    assert "No results." in text_of(viewer, "/search/?q=zebra crossing")


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_finds_runs_by_number_and_resources_by_name(viewer: Client) -> None:
    sync_due_rollouts(now=NOW)

    for text in ("web 1", "web/1", "run 1", "1"):
        assert viewer.get("/search/", {"q": text})["Location"] == "/rollouts/web/1/"
    for text in ("settings", "ConfigMap settings", "configmap/settings"):
        assert (
            viewer.get("/search/", {"q": text})["Location"]
            == "/resources/_/ConfigMap/shop/settings/"
        )
    other_kind = viewer.get("/search/", {"q": "secret settings"}).content.decode()
    assert "/resources/_/" not in other_kind


# --- At a glance ----------------------------------------------------------------------------------


def test_the_demo_of_nine_shows_the_stale_pick_the_headroom_and_the_fleet(
    viewer: Client, text_of: Fetch
) -> None:
    load_nine()
    refresh_staleness(now=NOW)

    page = text_of(viewer, "/")

    assert _names(page) == ["ledger", "cache"]
    assert "flyingpenguin would not be selected" in _needs(page)[1][0]
    shown = page.partition('id="placements-now"')[2].partition("</table>")[0]
    assert re.findall(r'<a [^>]*href="/placements/(\w+)/', shown)[0] == "ledger"
    assert "env skew 1 (max 2, soft)" in shown or "region skew 1 (max 1, hard)" in shown
    assert 'aria-label="Clusters by region: east 1, west 1, north 1, south 0"' in shown
    assert re.findall(r'class="count"[^>]*>(\d)<', shown)[:4] == ["1", "1", "1", "0"]
    assert "region skew 1 (max 1, hard), 0 to 1 each" in shown
    assert "No change, not fulfilled" in page
    assert 'hx-get="/topology/panel/?label=region%3Aeast"' in page
    assert 'hx-get="/topology/panel/?cluster=bravelion"' in page
    assert 'href="?by=region" aria-current="true">region</a>' in page


@pytest.mark.usefixtures("web")
def test_what_cordoned_clusters_make_outdated_is_one_cause(
    viewer: Client, text_of: Fetch
) -> None:
    decided("api", pick_n_spec(3))
    for one, names in {
        "api": ["nimblefox"],
        "web": ["bravelion", "jumpingcat"],
    }.items():
        placement = Placement.objects.get(name=one)
        check = StalenessCheck.objects.create(
            placement=placement,
            fleet_version=1,
            readings=1,
            decisions_made=1,
            checked_at=NOW,
        )
        for name in names:
            StalePick.objects.create(
                staleness_check=check, cluster_name=name, reason="No label tier"
            )
    cordon(["nimblefox", "bravelion"], by=None, now=NOW)

    page = text_of(viewer, "/")

    words = "Not selected again by 2 placements if rescheduled. 2 placements outdated (api and web)"
    assert ("Cordoned clusters", words) in _needs(page)
    others = [need for need in _needs(page) if need[0].startswith(("api", "web"))]
    title = "web: jumpingcat would not be selected if rescheduled"
    assert others == [(title, "No label tier.")]
    assert 'class="mark attention"' not in page, "advice is neutral"


# --- While it is open -----------------------------------------------------------------------------

HTMX = {"HX-Request": "true"}


def _polled(page: str) -> dict[str, str]:
    """Return the parameters of what the page polls."""
    [query] = re.findall(r'id="live" [^>]*hx-get="\?([^"]*)"', page)
    return dict(parse_qsl(query.replace("&amp;", "&")))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "change",
    [
        lambda: saved("late", pick_n_spec(1)),
        lambda: leave(["bravelion"], by=None, now=NOW),
        lambda: change_labels(["nimblefox"], put={"region": "north"}, by=None, now=NOW),
        lambda: simulated("silent", fault="silent"),
        lambda: sync_due_rollouts(now=NOW),
        lambda: operations.pause("web", by=None, now=NOW),
        lambda: refresh_staleness(now=NOW),
        lambda: Placement.objects.update(generation=F("generation") + 1),
        lambda: MemberCluster.objects.filter(name="bravelion").update(
            unanswered_since=NOW
        ),
    ],
)
@pytest.mark.usefixtures("web")
def test_whatever_happens_moves_its_version(change: Callable[[], object]) -> None:
    before = stored_version(LOCAL_HUB)

    with noticed_changes():
        change()

    assert stored_version(LOCAL_HUB) != before


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_the_chart_of_the_fleet_is_sent_again_only_when_the_fleet_has_changed(
    viewer: Client,
) -> None:
    def changed(change: Callable[[], object]) -> None:
        with noticed_changes():
            change()
        forget_caches()

    first = _polled(viewer.get("/").content.decode())
    changed(lambda: saved("late", pick_n_spec(1)))
    news = viewer.get("/", first, headers=HTMX).content.decode()
    changed(
        lambda: change_labels(["nimblefox"], put={"region": "north"}, by=None, now=NOW)
    )
    more = viewer.get("/", _polled(news), headers=HTMX).content.decode()

    assert "of 2 placements healthy" in news
    assert 'id="fleet"' not in news
    assert _map_in(more)
    bravelion = MemberCluster.objects.filter(name="bravelion")
    changed(lambda: bravelion.update(unanswered_since=NOW))
    late = viewer.get("/", _polled(more), headers=HTMX).content.decode()
    assert _map_in(late)


def _map_in(fragment: str) -> bool:
    return (
        re.search(r'<section\s+id="fleet"[^>]*hx-swap-oob="true">', fragment)
        is not None
    )


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_a_page_that_shows_a_fleet_that_is_gone_is_loaded_again(
    operator: Client,
) -> None:
    first = _polled(operator.get("/").content.decode())
    Placement.objects.all().delete()
    MemberCluster.objects.all().delete()
    Resource.objects.all().delete()

    assert (
        operator.get("/", first | {"v": "0"}, headers=HTMX).headers["HX-Refresh"]
        == "true"
    )


@pytest.mark.nightly
def test_heading_and_rail_count_the_same_runs(viewer: Client, text_of: Fetch) -> None:
    world = StagedWorld({"prod": ["c000", "c001"]}, stage("prod", before=True))
    world.place("web", staged_spec())
    world.begin("one")
    world.go_on()
    decided("rolling", pick_n_spec(2))
    sync_due_rollouts(now=world.now)

    page = text_of(viewer, "/")

    assert _figure(page, "rollouts in progress") == (
        "2",
        "1 progressing 1 waiting for approval",
    )
    assert '<span class="count" id="count-rollouts">2<span' in page


def test_rollouts_that_ended_since_the_comparison_are_not_counted(
    viewer: Client, text_of: Fetch
) -> None:
    world = settled_world(2, spec())
    decided("rolling", pick_n_spec(2))
    sync_due_rollouts(now=world.now)
    assert _figure(text_of(viewer, "/"), "rollout in progress")[0] == "1"
    Rollout.objects.update(ended_at=NOW, state=Rollout.State.FINISHED)

    page = text_of(viewer, "/")

    assert _figure(page, "rollouts in progress")[0] == "0"
    assert "rollouts in progress</a>" not in page


def test_a_picture_has_a_bar_for_clusters_without_the_label(
    viewer: Client, text_of: Fetch
) -> None:
    joined("a", system="critical")
    joined("b")
    joined("c")
    decided(
        "even",
        pick_n_spec(3, topologySpreadConstraints=[{"topologyKey": "system"}]),
    )
    refresh_staleness(now=NOW)

    [drawn] = re.findall(
        r'<tr>\s*<th scope="row">(?:(?!</tr>).)*?>even</a>.*?</tr>',
        text_of(viewer, "/"),
        re.DOTALL,
    )

    assert "Clusters by system: critical 1, no system 2" in drawn
    assert re.findall(r"<text x[^>]*>([a-z ]+)</text>", drawn) == [
        "critical",
        "no system",
    ]
    assert "1 each, 2 without label" in drawn


def test_a_staged_run_that_ended_is_the_last_rollout_that_did() -> None:
    world = StagedWorld({"prod": ["c000"]}, stage("prod"))
    world.place("web", staged_spec())
    world.begin("one")
    world.run(until=StagedRun.objects.exclude(ended_at=None).exists)

    ended_at = StagedRun.objects.get().ended_at

    assert ended_at is not None
    assert last_rollout_end() == ended_at


@pytest.mark.nightly
def test_runs_as_few_queries_whatever_needs_attention(viewer: Client) -> None:
    record_heartbeat(now=NOW)
    one, two, four, seven = (_queries_with(viewer, number) for number in (1, 2, 4, 7))

    assert one == two <= 15
    assert four == seven < one  # causes of several clusters read no faults of one


def _queries_with(viewer: Client, number: int) -> int:
    """Add one more of everything that needs attention, so often, and count the queries of the page."""
    for one in range(Placement.objects.count(), number):
        simulated(f"silent-{one}", fault="silent")
        joined(f"goes-{one}")
        joined(f"stays-{one}")
        placement = decided(f"p{one}", pick_n_spec(90))
        leave([f"goes-{one}"], by=None, now=NOW)
        sync_due_rollouts(now=NOW)
        Binding.objects.filter(placement=placement).update(
            phase=Phase.FAILED, state=BindingState.BOUND
        )
        error = {"path": "spec", "code": "duplicate", "message": "selects it again"}
        invalid = saved(f"invalid{one}", spec())
        Placement.objects.filter(pk=invalid.pk).update(
            selection_faults=[error], paused_since=NOW
        )
        fresh = StalenessCheck.objects.create(
            placement=placement,
            fleet_version=1,
            readings=1,
            decisions_made=1,
            checked_at=NOW,
        )
        StalePick.objects.create(staleness_check=fresh, cluster_name=f"stays-{one}")
    compare_all(now=NOW)
    viewer.get("/")
    with CaptureQueriesContext(connection) as queries:
        viewer.get("/")
    return len(queries)


def _figure(page: str, words: str) -> tuple[str, str]:
    """Return the number of the figure with these words, and its parts."""
    figures = (
        page.partition('id="live"')[2]
        .partition("</section>")[0]
        .split('<div class="figure')[1:]
    )
    [figure] = [one for one in figures if f"<p>{words}</p>" in one]
    number = re.findall(r"<strong>([^<]*)</strong>", figure)[0]
    return number, " ".join(
        re.sub(r"<[^>]*>", " ", figure.partition('class="parts">')[2]).split()
    )


def test_the_parts_of_a_figure_do_not_overlap(viewer: Client, text_of: Fetch) -> None:
    simulated("one")  # neither has reported yet
    simulated("two")
    cordon(["two"], by=None, now=NOW)

    page = text_of(viewer, "/")

    assert _figure(page, "of 2 clusters ready") == ("0", "2 joining")
    assert _figure(page, "rollouts in progress") == ("0", "none ended yet")
    assert _figure(page, "approvals pending") == ("0", "no staged run waits")


@pytest.mark.usefixtures("web")
def test_the_search_offers_names_for_the_last_word(viewer: Client) -> None:
    answer = viewer.get(
        "/search/", {"q": "bravelion w"}, headers={"HX-Request": "true"}
    )

    assert '<option value="bravelion web">Placement' in answer.content.decode()


@pytest.mark.usefixtures("web")
def test_the_search_offers_only_what_has_a_result(viewer: Client) -> None:
    for text in ("edit w", "edit brave", "bravelion brave", "web w", "a b w"):
        answer = viewer.get("/search/", {"q": text}, headers={"HX-Request": "true"})
        assert "<option" not in answer.content.decode(), text


def test_much_advice_is_one_row_with_a_line_for_each_point() -> None:
    items = [
        AttentionItem(
            f"key-{name}",
            ProblemLevel.OUTDATED,
            "",
            Noun.PLACEMENT,
            name,
            "",
            "/",
            title=f"{name}: outdated",
            section=AttentionSection.ADVICE,
        )
        for name in "abcde"
    ]

    [row], left_out = rows_of(items, most=6, url="?show=advice")

    lines = [effect.words for effect in row.effects]
    assert lines == ["a: outdated", "b: outdated", "c: outdated", "2 more"]
    assert (row.title, row.details, left_out) == ("Advice on 5 points", "", 0)


def test_the_overview_says_that_a_staged_run_is_needed(
    viewer: Client, text_of: Fetch
) -> None:
    world = StagedWorld({"prod": ["c000", "c001"]}, stage("prod"))
    world.place("web", staged_spec())

    page = text_of(viewer, "/")

    words = "1 placement needs a staged run"
    assert _figure(page, "approvals pending") == ("0", words)
    assert "web: needs a staged run" in page


@pytest.mark.parametrize(
    ("skew", "level"),
    [
        (Skew("zone", 2, 2, is_hard=True), "healthy"),
        (Skew("zone", 9, 2, is_hard=True), "attention"),
        (Skew("zone", 9, 2, is_hard=False), "advice"),
    ],
)
def test_only_an_exceeded_hard_limit_is_amber(skew: Skew, level: str) -> None:
    assert skew_badges([skew]) == [(skew, Badge(level, f"zone {skew.skew} / 2"))]
