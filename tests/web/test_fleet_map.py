"""The fleet map: clusters of a small fleet, domains of a large one, a measure, and the panel."""

import re
from collections.abc import Callable

import pytest
from django.core.cache import caches
from django.test import Client

from clusters.models import MemberCluster
from clusters.operations.edit import cordon
from placements.web import fleet_map
from tests.rows import NOW, simulated
from tests.web.reading import page_text

Fetch = Callable[[Client, str], str]
HTMX = {"HX-Request": "true"}

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("nine")]


def _columns(page: str) -> list[str]:
    """Return the words of each domain in their order: what is wrong there, its clusters, its name."""
    section = (
        page.partition('id="fleet"')[2]
        .partition("</section>")[0]
        .partition('<a class="map-more')[0]
    )
    _, *columns = re.split(r'<div class="map-column(?: hot)?"[^>]*>', section)
    words = (
        re.sub(r"<ul.*?</ul>|<[^>]+>", " ", column, flags=re.DOTALL)
        for column in columns
    )
    return [" ".join(word.split()) for word in words]


def _cells(page: str) -> dict[str, str]:
    """Return the state of each cluster, with its placements or its measure."""
    return dict(re.findall(r'<a\s+id="map-[^>]*title="([^:"]+): ([^"]*)"', page))


def test_a_small_fleet_has_each_cluster_and_a_large_one_counts_them(
    viewer: Client, text_of: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    cordon(["bravelion"], by=None, now=NOW)
    simulated("silent", fault="silent", region="south")
    MemberCluster.objects.filter(name="silent").update(unanswered_since=NOW)

    small = text_of(viewer, "/?by=region")
    monkeypatch.setattr(fleet_map, "_FORMS", {"boxes": 0, "squares": 0, "pillars": 200})
    caches["process"].clear()
    large = text_of(viewer, "/?by=region")

    assert len(_cells(small)) == 10
    assert _cells(small)["bravelion"].startswith("Cordoned")
    assert _cells(small)["silent"] == "Not ready"
    assert _cells(small)["nimblefox"].startswith("Ready (")
    assert "/topology/panel/?cluster=bravelion" in small
    assert _columns(small) == ["3 east", "3 west", "2 north", "1 not ready 2 south"]
    assert _columns(large) == [
        "3 east",
        "3 west",
        "2 north",
        "1 \u00d7 not ready 2 south",
    ]
    assert _cells(large) == {}


def test_domains_have_one_order_on_the_overview_and_one_elsewhere(
    viewer: Client, text_of: Fetch
) -> None:
    """The largest come first in the map and in the small pictures, which are read with it."""
    cordon(["palemoth"], by=None, now=NOW)  # south, the smallest, has a problem

    overview = text_of(viewer, "/?by=region")
    topology = text_of(viewer, "/topology/?key=region")
    lanes = text_of(viewer, "/placements/web/").partition('<table class="lanes')[2]

    bars = re.findall(r'aria-label="Clusters by region: ([^"]*)"', overview)
    table = topology.partition('id="groups"')[2]
    chart = topology.partition('<ol class="picture-rows">')[2]
    of_overview = {
        "map": [column.split()[-1] for column in _columns(overview)],
        "bars": re.findall(r"(\w+) \d+", bars[0]),
    }
    orders = {
        "lanes": _row_heads(lanes.partition("</table>")[0]),
        "table": _row_heads(table),
        "chart": re.findall("<li>(.*?)</li>", chart.partition("</ol>")[0]),
    }
    largest_first = ["east", "west", "north", "south"]
    assert of_overview == dict.fromkeys(of_overview, largest_first)
    assert orders == dict.fromkeys(orders, sorted(largest_first))


def _row_heads(table: str) -> list[str]:
    heads = re.findall(r'<th scope="row"[^>]*>(.*?)</th>', table, re.DOTALL)
    return [re.sub(r"<[^>]+>", "", head).strip() for head in heads]


def test_of_many_domains_those_with_a_problem_are_drawn(
    viewer: Client, text_of: Fetch
) -> None:
    for number in range(20):
        simulated(f"more-{number}", region=f"r{number:02}")
    MemberCluster.objects.update(verdict="", has_reported=True)
    MemberCluster.objects.filter(name="more-19").update(
        verdict="stale-heartbeat", verdict_since=NOW
    )

    columns = _columns(text_of(viewer, "/?by=region"))

    assert len(columns) == 15
    assert "1 not ready 1 r19" in columns
    assert columns[0] == "3 east"
    assert "9 more domains, 9 clusters" in text_of(viewer, "/?by=region")


def test_a_measure_is_shown_of_clusters_and_of_domains(
    viewer: Client, text_of: Fetch
) -> None:
    MemberCluster.objects.filter(name="bravelion").update(
        properties={"cpu": "500m", "zone": "x"}
    )

    page = text_of(viewer, "/?by=region&measure=cpu")
    placed = text_of(viewer, "/?by=region&measure=placements")

    assert [name for name, words in _cells(page).items() if "(0.5)" in words] == [
        "bravelion"
    ]
    measures = page.partition('id="map-measure"')[2].partition("</details>")[0]
    assert re.findall(r"<a [^>]*>([^<]*)", measures)[:3] == [
        "health",
        "placements",
        "cpu",
    ]
    assert "zone" not in measures
    assert re.search(r"\d to \d", _columns(placed)[0])


@pytest.mark.nightly
def test_a_measure_that_does_not_exist_is_named(viewer: Client, text_of: Fetch) -> None:
    assert (
        "weight"
        in text_of(viewer, "/?measure=weight").partition('role="alert"')[2][:300]
    )


def test_the_panel_shows_a_cluster_or_a_domain_and_leads_to_its_page_without_a_script(
    viewer: Client, operator: Client
) -> None:
    cordon(["bravelion"], by=None, now=NOW)

    panel = page_text(operator.get("/topology/panel/?cluster=bravelion", headers=HTMX))
    panel_of_viewer = page_text(
        viewer.get("/topology/panel/?cluster=bravelion", headers=HTMX)
    )
    domain = page_text(viewer.get("/topology/panel/?label=region:east", headers=HTMX))

    assert "Cordoned" in panel
    assert 'href="/clusters/bravelion/uncordon/"' in panel
    assert 'href="/clusters/bravelion/uncordon/"' not in panel_of_viewer
    assert 'href="/clusters/bravelion/inject-fault/">Simulate a failure<' in panel
    assert 'href="/clusters/bravelion/inject-fault/"' not in panel_of_viewer
    assert "3 clusters" in domain
    assert "/what-if/?label=region%3Aeast" in domain
    assert (
        viewer.get("/topology/panel/?cluster=bravelion").headers["Location"]
        == "/clusters/bravelion/"
    )
    plain = viewer.get("/topology/panel/?label=region:east")
    assert plain.headers["Location"] == "/clusters/?label=region%3Aeast"
    assert viewer.get("/topology/panel/?cluster=none", headers=HTMX).status_code == 404
    assert viewer.get("/topology/panel/").status_code == 400
