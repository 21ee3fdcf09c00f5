"""The list of clusters in the admin: what it shows, what it finds, what it costs."""

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from clusters.models import MemberCluster
from clusters.operations.edit import cordon, leave
from clusters.operations.join import ClusterSpec, upsert_clusters
from placements.services.bulk_changes import BULK_ACTIONS
from tests.admin.pages import CLUSTERS, text_of
from tests.rows import (
    NOW,
    all_joined,
    decided,
    joined,
    member_document,
    pick_n_spec,
    simulated,
)

pytestmark = pytest.mark.django_db


def listed(client: Client, query: str = "") -> list[str]:
    """Return the names in the list."""
    return [
        row.name for row in client.get(f"{CLUSTERS}?{query}").context["cl"].result_list
    ]


def test_is_there_without_clusters(viewer: Client) -> None:
    assert "0 member clusters" in text_of(viewer.get(CLUSTERS))


def test_shows_state_labels_taints_heartbeat_and_placements(viewer: Client) -> None:
    joined("a", region="east")
    decided("web", pick_n_spec(1))
    cordon(["a"], by=None, now=NOW)

    page = text_of(viewer.get(CLUSTERS))

    assert ">Cordoned</span>" in page
    assert (
        '<a class="chip" href="/admin/clusters/membercluster/?label=region%3Aeast">region=east</a>'
        in page
    )
    assert '<span class="state-off">Cordoned</span>' in page
    assert "Not monitored" in page
    assert '<span class="visually-hidden">Search</span></label>' in page
    assert '<a class="chip" href="/clusters/a/">1</a>' in page


def test_has_the_status_of_the_console(viewer: Client) -> None:
    simulated("silent", fault="silent")
    all_joined("going")
    leave(["going"], by=None, now=NOW)

    page = text_of(viewer.get(CLUSTERS))

    assert '<span class="state-off">Waiting for the first heartbeat</span>' in page
    assert '<span class="state-off">Leaving</span>' in page


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("label=region:east", ["a", "b"]),
        ("label=region=east", ["a", "b"]),
        ("label=region:east&label=env:prod", ["a"]),
        ("label=env", ["a", "c"]),
        ("label=region:north", []),
        ("label=odd:", ["c"]),
        ("label=", ["a", "b", "c"]),
        ("q=east", ["a", "b"]),
        ("q=region:ea", ["a", "b"]),
        ("q=region%3Deast+prod", ["a"]),
        ("q=C", ["c"]),
        ("q=east&label=env:prod", ["a"]),
        ("state=cordoned", ["b"]),
        ("state=eligible", ["a", "b", "c"]),
        ("state=nonsense", ["a", "b", "c"]),
        ("verdict=leaving", []),
        ("demo=yes", []),
        ("demo=no", ["a", "b", "c"]),
    ],
)
def test_filters_and_search(viewer: Client, query: str, found: list[str]) -> None:
    joined("a", region="east", env="prod")
    joined("b", region="east")
    joined("c", region="west", env="test", odd="")
    cordon(["b"], by=None, now=NOW)

    assert listed(viewer, query) == found


def test_offers_label_keys_first_and_then_the_values_of_one(viewer: Client) -> None:
    joined("a", region="east")
    joined("b", region="west")

    keys, values = (
        text_of(viewer.get(CLUSTERS)),
        text_of(viewer.get(f"{CLUSTERS}?label=region")),
    )

    assert '<a href="?label=region">region <span class="quiet">2</span></a>' in keys
    assert (
        '<a href="?label=region%3Aeast">region=east <span class="quiet">1</span></a>'
        in values
    )


def test_searching_keeps_every_label(viewer: Client) -> None:
    page = text_of(viewer.get(f"{CLUSTERS}?label=a:b&label=c:d"))
    search = page[
        page.index('id="changelist-search"') : page.index(
            "</form>", page.index("changelist-search")
        )
    ]

    assert 'name="label" value="a:b"' in search
    assert 'name="label" value="c:d"' in search


@pytest.mark.nightly
def test_costs_the_same_for_5000_clusters(
    viewer: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    documents = [
        member_document(f"c-{n}", {"region": f"r{n % 50}", "host": f"h{n}"})
        for n in range(5000)
    ]
    upsert_clusters([ClusterSpec(document) for document in documents], by=None, now=NOW)

    with django_assert_max_num_queries(12) as queries:
        answer = viewer.get(f"{CLUSTERS}?q=c&label=region:r1")

    assert answer.context["cl"].result_count == 100
    assert not any('"document"' in query["sql"] for query in queries.captured_queries)


def test_what_others_wrote_is_escaped(viewer: Client) -> None:
    cluster = joined("a")
    MemberCluster.objects.filter(pk=cluster.pk).update(
        agent_healthy="False", health_message="<script>alert(1)"
    )
    cluster.labels.create(key="<script>alert(2)</script>", value='"><img src=x>')

    page = text_of(
        viewer.get(f"{CLUSTERS}?label=<script>alert(3)</script>&q=<script>alert(4)")
    )
    whole = text_of(viewer.get(CLUSTERS))

    assert "<script>alert" not in page + whole
    assert "<img src=x>" not in whole
    assert "&lt;script&gt;alert(1)" in whole
    assert "&lt;script&gt;alert(2)" in whole


@pytest.mark.nightly
@pytest.mark.parametrize(
    "query", ["p=0", "p=99", "o=5.-6", "o=99", "label=%00", "q=%00", "q=" + "x" * 3000]
)
def test_invalid_queries_are_harmless(viewer: Client, query: str) -> None:
    joined("a")

    assert viewer.get(f"{CLUSTERS}?{query}").status_code in (200, 302, 400)


@pytest.mark.parametrize("action", sorted(BULK_ACTIONS))
def test_an_action_of_the_list_opens_its_page_with_the_selected_clusters(
    operator: Client, action: str
) -> None:
    all_joined("a", "b", "c")
    chosen = MemberCluster.objects.filter(name__in=["a", "c"])
    sent = {
        "action": action.replace("-", "_"),
        "_selected_action": list(chosen.values_list("pk", flat=True)),
    }

    answer = operator.post(CLUSTERS, sent, follow=True)

    [(address, _)] = answer.redirect_chain
    assert address.startswith(f"/clusters/bulk/{action}/?name=a+c&next=")
    assert answer.context["names"] == ["a", "c"]


def test_a_viewer_has_no_actions(viewer: Client) -> None:
    all_joined("a")

    assert 'name="action"' not in text_of(viewer.get(CLUSTERS))


def test_more_clusters_than_an_address_holds_are_refused(operator: Client) -> None:
    names = [f"c{number:03}" for number in range(201)]
    all_joined(*names)
    everything = list(MemberCluster.objects.values_list("pk", flat=True))

    answer = operator.post(
        CLUSTERS,
        {"action": "cordon", "select_across": "1", "_selected_action": everything[:1]},
        follow=True,
    )

    assert "201 clusters selected (most: 200)." in text_of(answer)
