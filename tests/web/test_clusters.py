"""The list of clusters and the page of one."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models import F
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from clusters.models import MemberCluster
from clusters.operations.edit import cordon, leave
from clusters.operations.heartbeat import observe
from clusters.operations.join import ClusterSpec, upsert_clusters
from fleetui.changes import noticed_changes
from fleetui.hub_scope import LOCAL_HUB
from placements.models import Placement, Problem
from tests.database import compare_all
from tests.rows import NOW, joined, member_document, run_due, simulated

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]


def _names(page: str) -> list[str]:
    return re.findall(r'<th scope="row"><a href="/clusters/([^/]+)/">', page)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["bravelion", "jumpingcat", "nimblefox"]),
        ("?q=FOX", ["nimblefox"]),
        ("?label=region:west", ["jumpingcat", "nimblefox"]),
        ("?q=region%3Dwest+FOX", ["nimblefox"]),
        ("?q=status%3Dcordoned", ["jumpingcat"]),
        ("?label=region", ["bravelion", "jumpingcat", "nimblefox"]),
        ("?label=region:west&label=env:prod", []),
        ("?state=cordoned", ["jumpingcat"]),
        ("?state=leaving", ["nimblefox"]),
        ("?state=eligible&label=region:west", ["jumpingcat"]),
        ("?state=ready", []),
        ("?state=not-monitored&label=region:east", ["bravelion"]),
        ("?state=nonsense", ["bravelion", "jumpingcat", "nimblefox"]),
        ("?order=-name", ["nimblefox", "jumpingcat", "bravelion"]),
        ("?after=nonsense", ["bravelion", "jumpingcat", "nimblefox"]),
    ],
)
@pytest.mark.usefixtures("web")
def test_lists_what_matches(
    viewer: Client, text_of: Fetch, query: str, names: list[str]
) -> None:
    cordon(["jumpingcat"], by=None, now=NOW)
    leave(["nimblefox"], by=None, now=NOW)

    assert _names(text_of(viewer, f"/clusters/{query}")) == names


@pytest.mark.nightly
def test_late_and_unmonitored_clusters_are_not_ready(
    viewer: Client, text_of: Fetch
) -> None:
    now = datetime.now(UTC)
    for name in ("answers", "late"):
        simulated(name, now=now, region="west")
    joined("imported", region="west")
    observe(now=now)
    MemberCluster.objects.filter(name="late").update(unanswered_since=now)

    page = text_of(viewer, "/clusters/")
    facets = dict(re.findall(r'>([A-Z][^<]*) <span class="count">(\d+)</span>', page))
    assert _names(text_of(viewer, "/clusters/?state=ready")) == ["answers"]
    assert (facets["Ready"], facets["Heartbeat late"], facets["Not monitored"]) == (
        "1",
        "1",
        "1",
    )
    assert "3 clusters" in page
    overview = text_of(viewer, "/")
    assert "late: heartbeat late" in overview
    assert "Does not answer." in overview
    assert "1 not monitored</span>" in overview


@pytest.mark.usefixtures("web")
def test_a_status_is_as_old_as_the_last_change_of_what_it_says(viewer: Client) -> None:
    row = MemberCluster.objects.get(name="nimblefox")
    failed_at, ended_at = NOW + timedelta(hours=1), NOW + timedelta(hours=2)
    assert viewer.get("/clusters/nimblefox/").context["since"] == row.verdict_since

    problem = Problem.objects.create(
        hub_id=LOCAL_HUB,
        key="cluster-workloads/nimblefox",
        kind="cluster-workloads",
        name="nimblefox",
        since=failed_at,
        seen_at=failed_at,
    )
    assert viewer.get("/clusters/nimblefox/").context["since"] == failed_at

    Problem.objects.filter(pk=problem.pk).update(ended_at=ended_at)
    assert viewer.get("/clusters/nimblefox/").context["since"] == ended_at


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_says_state_labels_taints_and_placements_of_each(
    viewer: Client, text_of: Fetch
) -> None:
    cordon(["nimblefox"], by=None, now=NOW)

    row = text_of(viewer, "/clusters/?q=nimblefox").partition("<tbody>")[2]

    assert 'class="mark suspended"' in row, "a cordon is wanted"
    assert "Cordoned" in row
    assert ">west</td>" in row
    assert "cordon-key=cordon-value:NoSchedule" in row
    assert 'href="/placements/?cluster=nimblefox">1</a>' in row


@pytest.mark.usefixtures("web")
def test_counts_of_the_filters_are_of_the_clusters_that_match_the_others(
    viewer: Client, operator: Client, text_of: Fetch
) -> None:
    cordon(["jumpingcat"], by=None, now=NOW)

    def counts(address: str) -> dict[str, str]:
        return dict(
            re.findall(
                r'>([A-Za-z ]+) <span class="count">(\d+)</span>',
                text_of(viewer, address),
            )
        )

    assert counts("/clusters/?by=region") == {
        "Cordoned": "1",
        "Not monitored": "2",
        "east": "1",
        "west": "2",
    }
    of_west = counts("/clusters/?label=region:west")
    assert of_west == {"Cordoned": "1", "Not monitored": "1", "east": "1", "west": "2"}
    both = counts("/clusters/?label=region:west&state=cordoned")
    assert both == {"Cordoned": "1", "Not monitored": "1", "west": "1"}
    page = text_of(operator, "/clusters/?label=region:west&state=cordoned")
    assert "1 cluster match" in page
    assert 'data-count="1" data-whole>' in page, "no offer to select what is selected"


@pytest.mark.usefixtures("web")
def test_offers_the_known_keys_and_the_groups_of_one(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, "/clusters/?by=region")

    assert '<option value="region=">3 clusters</option>' in page
    assert re.findall(r"label=region%3A(\w+)", page) == ["west", "east"]


@pytest.mark.nightly
def test_goes_on_where_a_page_ended(viewer: Client, text_of: Fetch) -> None:
    upsert_clusters(
        [ClusterSpec(member_document(f"c{number:03}")) for number in range(60)],
        by=None,
        now=NOW,
    )

    first = text_of(viewer, "/clusters/?q=c")
    [following] = re.findall(r'href="\?([^"]*)" rel="next"', first)
    second = text_of(viewer, f"/clusters/?{following.replace('&amp;', '&')}")

    assert [_names(first)[0], _names(first)[-1], len(_names(first))] == [
        "c000",
        "c049",
        50,
    ]
    assert _names(second) == [f"c{number:03}" for number in range(50, 60)]
    assert "q=c" in following
    assert 'rel="next"' not in second
    assert "51–60 of 60" in second  # noqa: RUF001  # as on the page
    assert 'href="?q=c" rel="prev"' in second


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_gives_htmx_the_list_alone(viewer: Client) -> None:
    answer = viewer.get("/clusters/?q=fox", headers={"HX-Request": "true"})
    back = viewer.get(
        "/clusters/?q=fox",
        headers={"HX-Request": "true", "HX-History-Restore-Request": "true"},
    )

    assert answer.content.decode().startswith('<div id="list">')
    assert "HX-Request" in answer["Vary"]
    assert b"<!doctype html>" in back.content


@pytest.mark.nightly
def test_runs_twelve_queries_at_most_however_large_the_fleet(
    viewer: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    documents = [
        member_document(f"c{number:04}", {"region": f"r{number % 7}", "env": "prod"})
        for number in range(5000)
    ]
    upsert_clusters([ClusterSpec(document) for document in documents], by=None, now=NOW)
    viewer.get(
        "/help/keyboard/"
    )  # the first request of a minute writes its time into the session

    with django_assert_max_num_queries(12):
        page = viewer.get(
            "/clusters/?label=region:r3&by=region&state=eligible&order=-joined_at&q=c"
        )

    assert page.status_code == 200
    assert len(page.content) < 60_000


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_says_what_is_placed_there_and_which_decision_put_it_there(
    viewer: Client, text_of: Fetch, decision_id: str
) -> None:
    page = text_of(viewer, "/clusters/nimblefox/")

    assert '<span class="quiet">1</span>' in page
    assert f'href="/decisions/{decision_id}/?cluster=nimblefox#why"' in page
    assert "Enabled" in page
    assert "kind: MemberCluster" in text_of(viewer, "/clusters/nimblefox/yaml/")
    assert "region" in text_of(viewer, "/clusters/nimblefox/labels/")


@pytest.mark.usefixtures("web")
def test_a_page_that_follows_a_change_is_sent_again_only_when_something_changed(
    viewer: Client,
) -> None:
    Placement.objects.update(generation=F("generation") + 1)
    page = viewer.get("/clusters/bravelion/").content.decode()
    polled = re.findall(r'id="live" hx-get="([^"]+)"', page)[0]

    meanwhile = viewer.get(
        f"/clusters/bravelion/{polled}", headers={"HX-Request": "true"}
    )
    with noticed_changes():
        run_due()
    later = viewer.get(f"/clusters/bravelion/{polled}", headers={"HX-Request": "true"})

    assert (meanwhile.status_code, later.status_code) == (204, 200)


@pytest.mark.nightly
def test_says_why_a_cluster_may_not_be_picked(viewer: Client, text_of: Fetch) -> None:
    simulated("silent", fault="silent")
    joined("quiet")

    page, other = (
        text_of(viewer, "/clusters/silent/"),
        text_of(viewer, "/clusters/quiet/"),
    )

    assert "Waiting for the first heartbeat" in page
    assert re.search(r'hx-get="\?v=[^"]+" hx-trigger="tick from:body"', page)
    assert "tick from:body" not in other
    message = "failing checks: etcd"
    MemberCluster.objects.filter(name="silent").update(
        has_reported=True, health_message=message
    )
    calm = text_of(viewer, "/clusters/silent/")
    assert "Health: failing checks: etcd" in calm
    assert 'hx-swap="outerHTML" data-active="false"' in calm, (
        "a failure shows on an open page"
    )
    assert "Never reported" not in page
    assert "Not expected" in other
    assert "No placements on" in other


@pytest.mark.usefixtures("web")
def test_shows_a_viewer_the_actions_with_the_reason_why_not(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, "/clusters/nimblefox/")

    assert page.count('aria-disabled="true"') == 3
    assert "required role: operator" in page


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
@pytest.mark.parametrize(
    ("order", "first"),
    [
        ("-state", "nimblefox"),
        ("-placements", "nimblefox"),
        ("placements", "bravelion"),
        ("heartbeat", "bravelion"),
        ("-stale", "nimblefox"),
        ("label:region", "bravelion"),
        ("-label:region", "nimblefox"),
    ],
)
def test_every_column_orders_the_list_and_says_so(
    viewer: Client, text_of: Fetch, order: str, first: str
) -> None:
    cordon(["nimblefox"], by=None, now=NOW)

    page = text_of(viewer, f"/clusters/?columns=region&order={order}")

    assert _names(page)[0] == first
    way = "descending" if order.startswith("-") else "ascending"
    assert page.count(f'aria-sort="{way}"') == 1


@pytest.mark.nightly
@pytest.mark.parametrize(
    "order", ["placements", "-state", "heartbeat", "-label:region"]
)
def test_pages_go_on_in_every_order(viewer: Client, text_of: Fetch, order: str) -> None:
    documents = [
        member_document(f"c{number:03}", {"region": f"r{number % 3}"})
        for number in range(60)
    ]
    upsert_clusters([ClusterSpec(document) for document in documents], by=None, now=NOW)

    first = text_of(viewer, f"/clusters/?columns=region&order={order}")
    [following] = re.findall(r'href="\?([^"]*)" rel="next"', first)
    second = text_of(viewer, f"/clusters/?{following.replace('&amp;', '&')}")

    assert sorted({*_names(first), *_names(second)}) == [
        f"c{number:03}" for number in range(60)
    ]
    assert len(_names(second)) == 10


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_a_label_has_a_column_of_its_own(viewer: Client, text_of: Fetch) -> None:
    row = text_of(viewer, "/clusters/?columns=region,tier&q=nimblefox").partition(
        "<tbody>"
    )[2]

    assert '<td class="inline value">west</td><td class="inline value"></td>' in row
    assert "region=west" not in row


@pytest.mark.usefixtures("web")
def test_the_filtered_list_is_handed_out_as_a_file(viewer: Client) -> None:
    cordon(["nimblefox"], by=None, now=NOW)

    table = viewer.get("/clusters/?label=region:west&download=csv")
    items = viewer.get("/clusters/?label=region:west&download=json").json()["items"]

    lines = table.content.decode().splitlines()
    assert table["Content-Disposition"] == 'attachment; filename="clusters.csv"'
    assert (
        lines[0]
        == "name,state,verdictReason,labels,taints,heartbeatAt,placements,outdatedPlacements"
    )
    assert (
        lines[2]
        == "nimblefox,cordoned,,region=west,cordon-key=cordon-value:NoSchedule,,1,0"
    )
    assert [(item["name"], item["state"], item["placements"]) for item in items] == [
        ("jumpingcat", "not monitored", 1),
        ("nimblefox", "cordoned", 1),
    ]


def test_simulated_clusters_are_marked_among_others_and_named_once_where_all_are(
    viewer: Client,
) -> None:
    simulated("toy")

    assert (
        "All clusters of this fleet are simulated."
        in viewer.get("/clusters/").content.decode()
    )

    joined("far")
    compare_all(now=datetime.now(UTC))
    page = viewer.get("/clusters/").content.decode()
    assert "All clusters" not in page
    assert page.count(">Simulated</span>") == 1
