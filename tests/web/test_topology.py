"""The fleet by one or two labels, as a tab of the clusters."""

import re
from collections.abc import Callable

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from clusters.filters import near_duplicates
from clusters.models import MemberCluster
from clusters.operations.edit import cordon
from clusters.operations.join import ClusterSpec, upsert_clusters
from tests.builders import spread
from tests.database import compare_for_long
from tests.rows import NOW, decided, joined, member_document, pick_n_spec

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]


def _rows(page: str) -> list[list[str]]:
    body = (
        page.partition('id="groups"')[2]
        .partition("<tbody>")[2]
        .partition("</tbody>")[0]
    )
    rows = re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [
        [re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", cell)).strip() for cell in row]
        for row in cells
    ]


@pytest.fixture
def fleet() -> None:
    """Make four clusters in two regions, one without a region."""
    joined("a", region="east", env="prod")
    joined("b", region="east", env="canary")
    joined("c", region="west", env="prod")
    joined("d", env="prod")
    cordon(["b"], by=None, now=NOW)
    MemberCluster.objects.filter(name="a").update(
        driver="simulated", has_reported=True
    )  # the others are not monitored


@pytest.mark.usefixtures("fleet")
def test_counts_the_clusters_of_each_value_and_those_without_one(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, "/topology/?key=region")

    assert [row[:2] for row in _rows(page)] == [
        ["east", "2 clusters"],
        ["west", "1 cluster"],
        ["no label", "1 cluster"],
    ]
    assert "Ready 1" in _rows(page)[0][2]
    assert "Not monitored 1" in _rows(page)[1][2]
    assert "Cordoned 1" in _rows(page)[0][2]
    assert "1 cluster without region" in page


@pytest.mark.usefixtures("fleet")
def test_counts_the_combinations_of_two_labels(viewer: Client, text_of: Fetch) -> None:
    page = text_of(viewer, "/topology/?key=region&key2=env")

    assert [row[:3] for row in _rows(page)] == [
        ["east", "canary", "1 cluster"],
        ["east", "prod", "1 cluster"],
        ["west", "prod", "1 cluster"],
        ["no label", "prod", "1 cluster"],
    ]


@pytest.mark.nightly
@pytest.mark.usefixtures("fleet")
def test_each_group_leads_to_its_clusters_and_to_what_if(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, "/topology/?key=region&key2=env")
    links = re.findall(r'href="(/clusters/\?[^"]*)"', page.partition('id="groups"')[2])
    listed = [
        re.findall(
            r'<th scope="row"><a href="/clusters/(\w)/">',
            text_of(viewer, link.replace("&amp;", "&")),
        )
        for link in links
    ]
    [analysis] = re.findall(r'href="(/what-if/\?label=%21region[^"]*)"', page)
    page = text_of(viewer, analysis.replace("&amp;", "&"))

    assert listed == [["b"], ["a"], ["c"], ["d"]]
    assert 'value="!region env=prod"' in page
    assert "Loss of 1 cluster, no region, env=prod" in page


@pytest.mark.nightly
@pytest.mark.usefixtures("fleet")
def test_begins_with_the_label_that_placements_spread_over(
    viewer: Client, text_of: Fetch
) -> None:
    assert 'id="key" name="key" value="env"' in text_of(viewer, "/topology/")

    decided("web", pick_n_spec(1, topologySpreadConstraints=[spread("region")]))

    assert 'id="key" name="key" value="region"' in text_of(viewer, "/topology/")


def test_warns_of_values_and_keys_that_look_alike(
    viewer: Client, text_of: Fetch
) -> None:
    joined("a", region="east")
    joined("b", region="East")
    joined("c", Region="west")

    page = (
        text_of(viewer, "/topology/?key=region")
        .partition('id="alike"')[2]
        .partition("</section>")[0]
    )

    assert re.findall(r'class="label">([^<]*)<', page) == [
        "East",
        "east",
        "Region",
        "region",
    ]


@pytest.mark.parametrize(
    ("words", "alike"),
    [
        (["us-east", "us_east", "west"], [("us-east", "us_east")]),
        (["east", "east-1"], []),
        (["a", "b"], []),
    ],
)
def test_near_duplicates_differ_in_capitals_and_punctuation(
    words: list[str], alike: list[tuple[str, ...]]
) -> None:
    assert near_duplicates(words) == alike


def test_without_a_label_it_says_what_labels_are_for(
    viewer: Client, text_of: Fetch
) -> None:
    joined("a")

    assert "No labels yet." in text_of(viewer, "/topology/")


@pytest.mark.nightly
def test_takes_few_queries_however_large_the_fleet(
    viewer: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    labels = [
        {"region": f"r{number % 50}", "env": f"e{number % 3}"} for number in range(1000)
    ]
    documents = [
        member_document(f"c{number}", label) for number, label in enumerate(labels)
    ]
    upsert_clusters([ClusterSpec(document) for document in documents], by=None, now=NOW)
    compare_for_long()

    with django_assert_max_num_queries(7):
        page = viewer.get("/topology/?key=region&key2=env")

    assert len(page.content) < 150_000
