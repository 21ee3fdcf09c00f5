"""The list of placements and the page of one."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models import F
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from clusters.models import MemberCluster
from clusters.operations.edit import change_labels, cordon
from fleetui.apimachinery.yaml import load_documents
from fleetui.changes import noticed_changes
from placements.models import Placement
from placements.services.placements import delete_placement
from placements.services.verification import STALENESS_EVERY, refresh_staleness
from tests.builders import labelled, spread
from tests.database import compare_for_long, forget_caches
from tests.rows import NOW, decided, joined, pick_n_spec, run_due, saved, spec
from tests.services.rollouts.test_out_of_reach import cut_off
from tests.services.rollouts.world import World
from tests.web.reading import page_text, words_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("web")]

Fetch = Callable[[Client, str], str]
PAGE = "/placements/web/"


def _names(page: str) -> list[str]:
    return re.findall(r'<th scope="row"><a href="/placements/([^/]+)/">', page)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["all", "many", "waiting", "web"]),
        ("?q=w", ["waiting", "web"]),
        ("?state=unfulfilled", ["many"]),
        ("?state=pending", ["waiting"]),
        ("?type=PickAll", ["all"]),
        ("?semantics=kubefleet", ["waiting"]),
        ("?cluster=bravelion", ["all", "many"]),
        ("?order=-placed_count", ["many", "all", "web", "waiting"]),
    ],
)
def test_lists_what_matches(
    viewer: Client, text_of: Fetch, query: str, names: list[str]
) -> None:
    decided("all", spec())
    decided("many", pick_n_spec(7))
    saved("waiting", pick_n_spec(1), semantics="kubefleet")

    assert _names(text_of(viewer, f"/placements/{query}")) == names


@pytest.mark.nightly
def test_says_how_many_are_picked_of_how_many(viewer: Client, text_of: Fetch) -> None:
    decided("all", spec())
    decided("many", pick_n_spec(7))
    decided(
        "named",
        spec({"placementType": "PickFixed", "clusterNames": ["bravelion", "missing"]}),
    )

    cells = re.findall(
        r"selected </span>([\w ]+)</td>", text_of(viewer, "/placements/")
    )

    assert cells == ["all 3", "3 of 7", "1 of 2 named", "2 of 2"]

    saved(
        "many", pick_n_spec(2)
    )  # until its decision, the numbers are those of the one before
    for page in ("/placements/", "/placements/many/"):
        text = text_of(viewer, page)
        assert "3 of 7" in text
        assert "3 of 2" not in text


@pytest.mark.nightly
def test_the_list_runs_as_many_queries_for_many(
    viewer: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(20):
        decided(f"more-{number}", pick_n_spec(1))
    compare_for_long()

    with django_assert_max_num_queries(9):
        viewer.get("/placements/")


@pytest.mark.nightly
def test_says_the_policy_in_a_sentence_and_what_came_of_it(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, PAGE)

    assert "Select 2 clusters." in page
    assert "2 of 2 selected" in page
    clusters = re.findall(r'<th scope="row"><a [^>]*>(\w+)</a>', page)
    # Each once, the selected ones first, in the order of their steps.
    assert clusters == ["nimblefox", "jumpingcat", "bravelion"]
    assert "Rank 3 in step 1; lost to jumpingcat on name (affinity equal)" in page
    assert "SchedulingPolicyFulfilled" in text_of(viewer, f"{PAGE}decision/")
    assert "shop/settings" in text_of(viewer, f"{PAGE}resources/")
    assert "kind: ClusterResourcePlacement" in text_of(viewer, f"{PAGE}manifest/")


def test_says_what_decided_each_step_and_why_a_cluster_is_outdated(
    viewer: Client, text_of: Fetch
) -> None:
    spreads = [spread("region")]
    decided("even", pick_n_spec(2, topologySpreadConstraints=spreads))
    page = text_of(viewer, "/placements/even/")
    assert "Selected over jumpingcat by name" in page
    assert "Selected: region limit blocks all others" in page

    terms = {"clusterSelectorTerms": [labelled(region="west")]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    decided("west", pick_n_spec(1, affinity={"clusterAffinity": required}))
    change_labels(["nimblefox"], put={}, remove=["region"], by=None, now=NOW)
    refresh_staleness(now=NOW + STALENESS_EVERY)

    page = text_of(viewer, "/placements/west/")
    why = "Does not match required affinity: no label region, required west"
    assert f"Not selected if rescheduled: {why}" in page


def test_three_decisions_without_change_keep_the_reasons(
    viewer: Client, text_of: Fetch
) -> None:
    for keys in ("a", "ab", "abc"):  # the clusters are kept, and none is ranked
        tolerations = [{"key": key, "operator": "Exists"} for key in keys]
        decisions = decided("web", pick_n_spec(2, tolerations=tolerations)).decisions
    first, *_, latest = decisions.order_by("number")

    page = text_of(viewer, PAGE)

    assert "Rank 3 in step 1; lost to jumpingcat on name (affinity equal)" in page
    assert "under an older policy" in page
    decision = text_of(viewer, f"/decisions/{latest.record.decision_id}/")
    assert f'href="/decisions/{first.record.decision_id}/"' in decision
    assert "3 later checks without change" in text_of(viewer, f"{PAGE}decision/")


@pytest.mark.nightly
def test_shows_the_domains_against_their_limit_and_the_way_to_the_clusters(
    viewer: Client, text_of: Fetch
) -> None:
    decided("even", pick_n_spec(2, topologySpreadConstraints=[spread("region")]))

    topology = (
        text_of(viewer, "/placements/even/")
        .partition('class="topology"')[2]
        .partition("</section>")[0]
    )

    drawn = re.findall(
        r'<th scope="row" title="(\w+)">\1</th>.*?'
        r'<td class="lane-count"><strong>(\d+)</strong><span class="lane-of"> of (\d+)<',
        topology,
        re.DOTALL,
    )
    placed = re.findall(r'class="segment placed"[^>]*title="(\w+), placed"', topology)
    assert drawn == [("east", "1", "1"), ("west", "1", "2")]
    assert "skew <strong>0</strong>" in topology
    assert "at most 2" in topology
    assert set(placed) == {
        binding.cluster_name
        for binding in Placement.objects.get(name="even").bindings.all()
    }


def test_filters_the_outcomes(viewer: Client, text_of: Fetch) -> None:
    page = text_of(viewer, f"{PAGE}?outcome=not-selected")
    table = page.partition('id="clusters"')[2].partition("</section>")[0]

    assert re.findall(r'<th scope="row"><a [^>]*>(\w+)</a>', table) == ["bravelion"]


def test_a_cluster_that_joined_after_the_decision_is_in_the_list(
    viewer: Client, text_of: Fetch
) -> None:
    joined("latecomer", region="east")
    MemberCluster.objects.filter(name="latecomer").update(joined_at=datetime.now(UTC))

    page = text_of(viewer, f"{PAGE}?outcome=not-selected")

    table = page.partition('id="clusters"')[2].partition("</section>")[0]
    assert re.findall(r'<th scope="row"><a [^>]*>(\w+)</a>', table) == [
        "bravelion",
        "latecomer",
    ]
    assert re.search(r"Joined \w+ ago, after decision 1", table)
    assert "Filtered out today" not in table

    cordon(["latecomer"], by=None, now=NOW)

    page = text_of(viewer, f"{PAGE}?outcome=not-selected")
    table = page.partition('id="clusters"')[2].partition("</section>")[0]
    assert re.search(r"Filtered out today: Cordoned\. Joined \w+ ago", table)
    assert "Not evaluated" not in table

    found = viewer.get("/search/", {"q": "latecomer web"}, follow=True)

    answer = page_text(found)
    assert "it was not evaluated. Filtered out today: Cordoned." in answer
    assert 'href="/clusters/latecomer/">Open cluster</a>' in answer


def test_fewer_clusters_leave_the_reasons_of_the_selection(
    viewer: Client, text_of: Fetch
) -> None:
    decided("even", pick_n_spec(2, topologySpreadConstraints=[spread("region")]))
    decided("even", pick_n_spec(1, topologySpreadConstraints=[spread("region")]))

    page = text_of(viewer, "/placements/even/?outcome=not-selected")

    assert re.search(
        r"this cycle only removes clusters\. When clusters were last selected: Rank \d",
        page,
    )


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("web", id="PickN"),
        pytest.param("named", id="PickFixed"),
        pytest.param("every", id="PickAll"),
    ],
)
def test_a_cluster_dated_back_by_a_demo_joined_after_the_decision(
    viewer: Client, text_of: Fetch, name: str
) -> None:
    decided(
        "named", spec({"placementType": "PickFixed", "clusterNames": ["smartfish"]})
    )
    decided("every", spec())
    joined("latecomer", region="east")
    MemberCluster.objects.filter(name="latecomer").update(
        joined_at=NOW - timedelta(hours=2)
    )

    page = text_of(viewer, f"/placements/{name}/?outcome=not-selected")
    found = viewer.get("/search/", {"q": f"latecomer {name}"}, follow=True)

    table = page.partition('id="clusters"')[2].partition("</section>")[0]
    assert "latecomer" in table
    assert "Joined after decision 1" in table
    today = "Today: ready; joined after this decision"
    assert f"{today}: it was not evaluated." in found.content.decode()
    decision = Placement.objects.get(name=name).decisions.get().record.decision_id
    path = f"/api/v1/decisions/{decision}/clusters/latecomer/advice"
    assert viewer.get(path).json()["detail"].endswith(f"'latecomer'. {today}")


@pytest.mark.nightly
def test_says_why_it_is_not_fulfilled_and_what_would_help(
    viewer: Client, text_of: Fetch
) -> None:
    joined("palemoth", region="south")
    wants = {
        "clusterAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "clusterSelectorTerms": [
                    labelled(region="east"),
                    labelled(region="west"),
                ]
            }
        }
    }
    decided(
        "stuck",
        pick_n_spec(3, affinity=wants, topologySpreadConstraints=[spread("region")]),
    )

    page = text_of(viewer, "/placements/stuck/")

    assert "region=south has 0 selected clusters and no candidates" in page
    decision = text_of(viewer, "/placements/stuck/decision/")
    ways = decision.partition("Fulfilled by any of these changes:")[2]
    assert re.findall(r"<li[^>]*>([^<]+)</li>", ways.partition("</ul>")[0]) == [
        "prefer region=east or region=west instead of requiring it",
        "region whenUnsatisfiable ScheduleAnyway (now DoNotSchedule)",
        "region maxSkew 2 (now 1)",
        "no spread constraint on region",
        "numberOfClusters 2 (now 3)",
    ]


@pytest.mark.nightly
def test_downloads_the_manifest(viewer: Client) -> None:
    bare, whole = viewer.get(f"{PAGE}yaml/?status=0"), viewer.get(f"{PAGE}yaml/")

    assert bare["Content-Disposition"] == 'attachment; filename="web.yaml"'
    assert (
        load_documents(bare.content)[0].data
        == Placement.objects.get(name="web").document
    )
    assert "status" in load_documents(whole.content)[0].data


# --- Following the scheduler ----------------------------------------------------------------------


def _polled(page: str) -> list[str]:
    return re.findall(
        r'<div id="live" [^>]*hx-get="([^"]*)" hx-trigger="tick from:body"', page
    )


def _poll(client: Client, address: str) -> tuple[int, str]:
    answer = client.get(address, headers={"HX-Request": "true"})
    return answer.status_code, page_text(answer)


def _nothing_to_carry_out() -> None:
    """Sync the rollouts, with nothing to do."""
    Placement.objects.update(rollout_observed=F("rollout_generation"))


def test_a_placement_that_is_decided_is_polled_slowly(
    viewer: Client, text_of: Fetch
) -> None:
    _nothing_to_carry_out()

    assert 'hx-swap="outerHTML" data-active="false"' in text_of(viewer, PAGE)


@pytest.mark.nightly
def test_a_finished_placement_shows_a_cluster_that_is_lost(
    viewer: Client, operator: Client, text_of: Fetch
) -> None:
    world = World(2)
    world.place(
        "fresh", spec({"placementType": "PickFixed", "clusterNames": ["c000", "c001"]})
    )
    world.run(until=lambda: len(world.available("fresh")) == 2)
    world.pass_time(2)
    compare_for_long()
    page = text_of(viewer, "/placements/fresh/")
    assert "Healthy" in page
    [query] = _polled(page)
    assert _poll(viewer, f"/placements/fresh/{query}")[0] == 204
    with noticed_changes():
        MemberCluster.objects.filter(name="c001").update(unanswered_since=NOW)
    forget_caches()
    assert _poll(viewer, f"/placements/fresh/{query}")[0] == 200, (
        "before a rollout has noticed"
    )

    cut_off(world, "c001")
    status, fragment = _poll(viewer, f"/placements/fresh/{query}")

    assert status == 200
    assert "Degraded (1 of 2 available, 1 unreachable)" in fragment
    seen_by = {"viewer": fragment, "operator": text_of(operator, "/placements/fresh/")}
    for role, page in seen_by.items():
        problem = page.partition('aria-label="Problems"')[2].partition("</ul>")[0]
        assert 'href="/what-if/?cluster=c001"' in problem
        assert ('href="/clusters/c001/drain/"' in problem) == (role == "operator")
    name = r'<th scope="row"><a [^>]*>(\w+)</a>'
    every = fragment.partition('id="clusters"')[2]
    assert re.findall(name, every)[:2] == ["c001", "c000"], "with problems first"
    lost = text_of(viewer, "/placements/fresh/?outcome=with-problems").partition(
        'id="clusters"'
    )[2]
    assert re.findall(name, lost) == ["c001"]


@pytest.mark.nightly
def test_polls_quickly_only_while_the_scheduler_is_behind(
    viewer: Client, text_of: Fetch
) -> None:
    saved("fresh", pick_n_spec(1))
    compare_for_long()
    [query] = _polled(text_of(viewer, "/placements/fresh/"))

    unchanged = _poll(viewer, f"/placements/fresh/{query}")
    with noticed_changes():
        run_due()
        _nothing_to_carry_out()
    forget_caches()
    status, fragment = _poll(viewer, f"/placements/fresh/{query}")

    assert unchanged == (204, "")
    assert status == 200
    assert 'hx-swap="outerHTML" data-active="false"' in fragment
    assert "1 of 1 selected" in fragment


@pytest.mark.nightly
def test_a_change_while_polling_brings_a_new_version(
    viewer: Client, text_of: Fetch
) -> None:
    saved("fresh", pick_n_spec(1))
    compare_for_long()
    [query] = _polled(text_of(viewer, "/placements/fresh/"))
    with noticed_changes():
        saved("fresh", pick_n_spec(2))
    forget_caches()

    _, fragment = _poll(viewer, f"/placements/fresh/{query}")
    [other] = _polled(fragment)

    assert other != query
    assert _poll(viewer, f"/placements/fresh/{other}")[0] == 204


def test_polling_keeps_the_filter_of_the_page(viewer: Client, text_of: Fetch) -> None:
    saved("web", pick_n_spec(3))

    [query] = _polled(text_of(viewer, f"{PAGE}?outcome=not-selected"))

    assert "outcome=not-selected" in query


def test_a_page_whose_placement_is_gone_is_led_to_the_list(viewer: Client) -> None:
    delete_placement("web", by=None, now=NOW)

    answer = viewer.get(f"{PAGE}?v=1.1.0.0", headers={"HX-Request": "true"})

    assert answer["HX-Redirect"] == "/placements/"


def test_shows_selectors_at_fault(viewer: Client, text_of: Fetch) -> None:
    error = {
        "path": "spec.resourceSelectors[1]",
        "code": "duplicate",
        "message": "selects it again",
    }
    Placement.objects.filter(name="web").update(selection_faults=[error])

    page = text_of(viewer, PAGE)

    assert "Invalid resource selector" in page
    assert "<code>spec.resourceSelectors[1]</code> selects it again" in page


@pytest.mark.nightly
def test_the_filter_calls_a_state_as_each_placement_says_it(
    viewer: Client, text_of: Fetch
) -> None:
    words_by_state = {
        "unfulfilled": "Partially or not fulfilled",
        "pending": "Scheduling",
        "invalid": "Invalid resource selector",
        "deleting": "Deleting",
    }
    for state, words in words_by_state.items():
        page = text_of(viewer, f"/placements/?state={state}").partition(
            'aria-label="Filter by status"'
        )[2]
        assert f">{words} <" in page.partition("</ul>")[0]


def test_the_list_counts_the_rows_that_are_there(
    viewer: Client, text_of: Fetch
) -> None:
    for name in ("first", "second"):
        decided(name, pick_n_spec(1))
    compare_for_long()
    Placement.objects.filter(name="first").delete()
    left = Placement.objects.count()

    page = words_of(text_of(viewer, "/placements/"))

    assert f"1–{left} of {left}" in page  # noqa: RUF001 - as on the page
    assert f"{left} placement" in page


def test_the_chips_count_no_placement_that_a_worker_has_deleted_since(
    viewer: Client, text_of: Fetch
) -> None:
    decided("first", pick_n_spec(1))
    compare_for_long()
    Placement.objects.filter(name="first").delete()
    left = Placement.objects.filter(is_fulfilled=True).count()

    for address in ("/placements/", "/placements/?state=fulfilled"):
        chips = text_of(viewer, address).partition('aria-label="Filter by status"')[2]
        assert f"Scheduled {left} " in words_of(chips.partition("</ul>")[0])
