"""The overview, the demo, the activity and the search box."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import parse_qsl

import pytest
from django.db import connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext

from clusters.drivers.registry import SIMULATED
from clusters.models import MemberCluster
from clusters.operations.edit import change_labels, cordon
from clusters.operations.leave import leave
from fleetui.changes import noticed_changes
from fleetui.hub_scope import LOCAL_HUB
from fleetui.task_queue import record_heartbeat
from placements.engine.rollout.state import Phase
from placements.manifests.binding import BindingState
from placements.models import Binding, Placement, Resource, StalenessCheck, StalePick
from placements.services.dashboard import causes
from placements.services.hub_version import stored_version
from placements.services.problems.book import compare_all
from placements.services.rollouts import operations
from placements.services.rollouts.controller import sync_due_rollouts
from placements.services.verification import refresh_staleness
from tests.rows import NOW, decided, joined, load_nine, person, pick_n_spec, saved, simulated, spec
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec
from tests.services.rollouts.test_out_of_reach import cut_off
from tests.services.rollouts.world import World
from tests.web.reading import Outline

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]


def _needs(page: str) -> list[tuple[str, str]]:
    section = page.partition('id="attention"')[2].partition("</section>")[0]
    section = re.sub(r"<time [^>]*data-age[^>]*>(.*?)</time>", r"\1", section)
    rows = re.findall(r"<li[^>]*>(.*?)</li>", section, re.DOTALL)
    texts = [re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "|", row)).strip("| ") for row in rows]
    parts = [[part for part in text.split("|") if part.strip()] for text in texts]
    return [(part[0], part[1]) for part in parts]


def test_an_empty_hub_says_how_to_begin(operator: Client, text_of: Fetch) -> None:
    page = text_of(operator, "/")

    assert re.findall(r'name="size" value="(\d+)"', page) == ["4", "9", "100", "5000"]
    assert 'href="/clusters/import/"' in page
    assert 'href="/resources/apply/"' in page
    assert Outline(page).problems == []
    assert Outline(page).is_ordered


def test_an_empty_hub_shows_a_viewer_which_role_is_needed(viewer: Client, text_of: Fetch) -> None:
    page = text_of(viewer, "/")

    assert 'name="size"' not in page
    assert "permission to load demo data" in page


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_nothing_needs_anybody_while_all_is_well(viewer: Client, text_of: Fetch) -> None:
    page = text_of(viewer, "/")

    assert "<h1>Overview</h1>" in page
    assert "Nothing needs attention" in page


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_placements_in_a_rollout_are_not_called_healthy(viewer: Client, text_of: Fetch) -> None:
    MemberCluster.objects.update(driver=SIMULATED)
    before = text_of(viewer, "/")
    sync_due_rollouts(now=NOW)
    page = text_of(viewer, "/")

    assert "All placements are healthy" in before
    assert "Nothing needs attention." in page
    assert "All placements are healthy" not in page


@pytest.mark.usefixtures("web")
def test_names_what_needs_attention_with_the_reason(viewer: Client, text_of: Fetch) -> None:
    decided("many", pick_n_spec(7))
    decided("named", spec(policy={"placementType": "PickFixed", "clusterNames": ["nowhere"]}))
    saved("odd", spec())
    error = {"path": "spec", "code": "duplicate", "message": "selects it again"}
    Placement.objects.filter(name="odd").update(selection_faults=[error])
    simulated("silent", fault="silent")
    leave(["bravelion"], by=None, now=NOW)

    needs = _needs(text_of(viewer, "/"))

    assert [name for name, _ in needs] == ["silent", "named", "odd", "many", "bravelion"]
    assert needs[0][1].startswith("Not ready: ")
    assert needs[1][1].startswith("0 of 1 clusters selected. Named but not in the fleet: nowhere.")
    assert "selects it again" in needs[2][1]
    assert needs[3][1].startswith("3 of 7 clusters selected. ")
    leaving = text_of(viewer, "/clusters/bravelion/")
    assert "Being removed from the fleet." in leaving
    assert "has left the fleet" not in leaving


@pytest.mark.nightly
@pytest.mark.parametrize("many", [200, 1])
def test_a_lost_cluster_absorbs_the_rollout_and_the_placement(
    viewer: Client, text_of: Fetch, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(causes, "MANY_CLUSTERS", many)
    world = World(3)
    world.place("web", pick_n_spec(3))
    world.run(until=world.is_settled)
    cut_off(world, "c001")
    world.change()
    world.work()

    page = text_of(viewer, "/")
    section = page.partition('id="attention"')[2].partition("</section>")[0]

    assert [name for name, _ in _needs(page)] == ["c001" if many > 3 else "Not ready"]
    assert "1 rollout waiting (web/2) · 1 placement affected (web)" in section
    assert 'href="/rollouts/web/2/">Rollout web/2</a>' in section


def _snoozed(client: Client, name: str, length: str) -> tuple[int, list[str]]:
    """Hide a cause, and return the status of the answer and the names of what is still shown."""
    page = client.get("/").content.decode()
    fields = rf'name="key" value="([^"]*/{name})">(?:<input type="hidden" name="mark" value="(\w*)")?'
    [key_and_mark] = re.findall(fields, page)
    answer = client.post("/snooze/", {"key": key_and_mark[0], "mark": key_and_mark[1], "for": length})
    overview = client.get("/").content.decode().partition('<details id="snoozed"')[0]
    return answer.status_code, [one for one, _ in _needs(f"{overview}</section>")]


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
    assert [one for one, _ in _needs(text_of(viewer, "/"))] == ["many", "more"]
    assert _snoozed(viewer, "more", "8h") == (302, ["many"])
    assert _snoozed(viewer, "more", "") == (302, ["many", "more"])
    assert _snoozed(viewer, "more", "ever")[0] == 400


@pytest.mark.nightly
def test_of_many_causes_the_worst_ten_are_shown_and_the_rest_counted(viewer: Client, text_of: Fetch) -> None:
    for number in range(12):
        simulated(f"silent-{number:02}", fault="silent")
    decided("many", pick_n_spec(7))

    page = text_of(viewer, "/")

    assert [one for one, _ in _needs(page)] == [f"silent-{number:02}" for number in range(10)]
    assert '<a href="/clusters/?state=not-eligible">12 not ready clusters</a>' in page
    assert page.count('<li class="wide-only">') == 6, "on a phone they are shown on request"
    assert '<a href="?all=1#attention">Show all 10</a>' in page
    assert '<li class="wide-only">' not in text_of(viewer, "/?all=1")


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_lists_the_least_fulfilled_first_and_what_was_decided(
    viewer: Client, text_of: Fetch, decision_id: str
) -> None:
    decided("a-fine-one", pick_n_spec(1))
    decided("many", pick_n_spec(7))

    page = text_of(viewer, "/")
    least = page.partition('id="least"')[2].partition("</table>")[0]
    latest = page.partition('id="latest"')[2]

    assert re.findall(r'href="/placements/([\w-]+)/"', least)[0] == "many"
    assert f'href="/decisions/{decision_id}/"' in latest
    assert 'class="label joins">nimblefox' in latest
    assert "system: created" in latest


@pytest.mark.nightly
@pytest.mark.parametrize("size", ["4", "9"])
def test_loads_a_demo_and_removes_it(operator: Client, text_of: Fetch, size: str) -> None:
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
    change_labels(["nimblefox"], put={"region": "north"}, by=person("li", "operator"), now=NOW)

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
def test_filters_what_happened(viewer: Client, text_of: Fetch, query: str, count: int) -> None:
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


def test_explains_a_cluster_and_a_placement_named_together(viewer: Client, decision_id: str) -> None:
    for text in ("bravelion web", "web bravelion"):
        answer = viewer.get("/search/", {"q": text})

        assert answer["Location"] == f"/decisions/{decision_id}/?cluster=bravelion#why"


def test_finds_a_decision_by_the_beginning_of_its_id(viewer: Client, decision_id: str) -> None:
    assert viewer.get("/search/", {"q": decision_id[:12]})["Location"] == f"/decisions/{decision_id}/"


@pytest.mark.usefixtures("web")
def test_lists_several(viewer: Client, text_of: Fetch) -> None:
    page = text_of(viewer, "/search/?q=b")

    assert re.findall(r'<li><a href="(/[cp][^"]*)">', page.partition("<main")[2]) == [
        "/clusters/bravelion/",
        "/clusters/nimblefox/",
        "/placements/web/",
    ]


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
        assert viewer.get("/search/", {"q": text})["Location"] == "/resources/_/ConfigMap/shop/settings/"
    assert "No results." in viewer.get("/search/", {"q": "secret settings"}).content.decode()


# --- At a glance ----------------------------------------------------------------------------------


def test_the_demo_of_nine_shows_the_stale_pick_the_headroom_and_the_fleet(
    viewer: Client, text_of: Fetch
) -> None:
    load_nine()
    refresh_staleness(now=NOW)

    page = text_of(viewer, "/")

    assert [name for name, _ in _needs(page)] == ["ledger", "cache"]
    assert "flyingpenguin would not be selected" in _needs(page)[1][1]
    least = page.partition('id="least"')[2].partition("</table>")[0]
    assert re.findall(r'<th scope="row"><a [^>]*href="/placements/(\w+)/', least)[0] == "ledger"
    assert "env 1 / 2" in least
    assert '<a href="/clusters/?label=region%3Aeast"' in page
    assert 'hx-get="/topology/panel/?cluster=bravelion"' in page
    assert "<option selected>region</option>" in page


@pytest.mark.usefixtures("web")
def test_what_cordoned_clusters_make_outdated_is_one_cause(viewer: Client, text_of: Fetch) -> None:
    decided("api", pick_n_spec(3))
    for one, names in {"api": ["nimblefox"], "web": ["bravelion", "jumpingcat"]}.items():
        placement = Placement.objects.get(name=one)
        check = StalenessCheck.objects.create(
            placement=placement, fleet_version=1, readings=1, decisions_made=1, checked_at=NOW
        )
        for name in names:
            StalePick.objects.create(staleness_check=check, cluster_name=name)
    cordon(["nimblefox", "bravelion"], by=None, now=NOW)

    page = text_of(viewer, "/")

    words = "Cordoned clusters would not be selected again by 2 placements."
    assert ("Cordoned", words) in _needs(page)
    others = [words for name, words in _needs(page) if name in ("api", "web")]
    assert others == ["jumpingcat would not be selected if rescheduled (as of 12:00:00 UTC)."]
    assert "2 placements outdated (api and web)" in page


def test_of_a_large_fleet_clusters_are_counted_and_not_named(
    viewer: Client, text_of: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(causes, "MANY_CLUSTERS", 1)
    for name in ("silent-a", "silent-b"):
        simulated(name, fault="silent")

    needs = _needs(text_of(viewer, "/"))

    assert needs == [("Not ready", "2 clusters: Never reported (agent offline).")]


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
        lambda: MemberCluster.objects.filter(name="bravelion").update(unanswered_since=NOW),
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
def test_the_chart_of_the_fleet_is_sent_again_only_when_the_fleet_has_changed(viewer: Client) -> None:
    first = _polled(viewer.get("/").content.decode())
    with noticed_changes():
        saved("late", pick_n_spec(1))
    news = viewer.get("/", first, headers=HTMX).content.decode()
    with noticed_changes():
        change_labels(["nimblefox"], put={"region": "north"}, by=None, now=NOW)
    more = viewer.get("/", _polled(news), headers=HTMX).content.decode()

    assert "Placements</a> <strong>2</strong>" in news
    assert 'id="fleet"' not in news
    assert '<div id="fleet" hx-swap-oob="true"><figure' in more
    assert "v=" not in more.partition('id="fleet"')[2]
    with noticed_changes():
        MemberCluster.objects.filter(name="bravelion").update(unanswered_since=NOW)
    late = viewer.get("/", _polled(more), headers=HTMX).content.decode()
    assert '<div id="fleet" hx-swap-oob="true"><figure' in late


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_a_page_that_shows_a_fleet_that_is_gone_is_loaded_again(operator: Client) -> None:
    first = _polled(operator.get("/").content.decode())
    Placement.objects.all().delete()
    MemberCluster.objects.all().delete()
    Resource.objects.all().delete()

    assert operator.get("/", first | {"v": "0"}, headers=HTMX).headers["HX-Refresh"] == "true"


@pytest.mark.nightly
def test_heading_and_rail_count_the_same_runs(viewer: Client, text_of: Fetch) -> None:
    world = StagedWorld({"prod": ["c000", "c001"]}, stage("prod", before=True))
    world.place("web", staged_spec())
    world.begin("one")
    world.go_on()
    decided("rolling", pick_n_spec(2))
    sync_due_rollouts(now=world.now)

    page = text_of(viewer, "/")

    assert "Rollouts in progress</a> <strong>2</strong>" in page
    assert "1 stalled or waiting for a user" in page
    assert '<span class="count" id="count-rollouts">2<span' in page


@pytest.mark.nightly
def test_runs_as_few_queries_whatever_needs_attention(viewer: Client) -> None:
    record_heartbeat(now=NOW)
    counts = [_queries_with(viewer, number) for number in (1, 4)]

    assert counts[0] == counts[1]
    assert counts[1] <= 30


def _queries_with(viewer: Client, number: int) -> int:
    """Add one more of everything that needs attention, so often, and count the queries of the page."""
    for one in range(Placement.objects.count(), number):
        simulated(f"silent-{one}", fault="silent")
        joined(f"goes-{one}")
        joined(f"stays-{one}")
        placement = decided(f"p{one}", pick_n_spec(90))
        leave([f"goes-{one}"], by=None, now=NOW)
        sync_due_rollouts(now=NOW)
        Binding.objects.filter(placement=placement).update(phase=Phase.FAILED, state=BindingState.BOUND)
        error = {"path": "spec", "code": "duplicate", "message": "selects it again"}
        invalid = saved(f"invalid{one}", spec())
        Placement.objects.filter(pk=invalid.pk).update(selection_faults=[error], paused_since=NOW)
        fresh = StalenessCheck.objects.create(
            placement=placement, fleet_version=1, readings=1, decisions_made=1, checked_at=NOW
        )
        StalePick.objects.create(staleness_check=fresh, cluster_name=f"stays-{one}")
    viewer.get("/")
    with CaptureQueriesContext(connection) as queries:
        viewer.get("/")
    return len(queries)


def test_a_tile_has_the_worst_level_of_its_parts_and_leads_to_each(viewer: Client, text_of: Fetch) -> None:
    simulated("one")  # neither has reported yet
    simulated("two")

    page = text_of(viewer, "/")

    tile = page.partition('class="panel tile tile-failed"')[2].partition('class="panel tile')[0]
    assert "Clusters</a> <strong>2</strong>" in tile
    assert re.search(r'href="/clusters/\?state=not-eligible">.*2 not ready', tile)
    assert 'class="panel tile tile-suspended"' in page  # no placements, no rollouts
