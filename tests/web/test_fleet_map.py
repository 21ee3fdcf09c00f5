"""The fleet map: clusters of a small fleet, domains of a large one, a measure, and the panel."""

import re
from collections.abc import Callable

import pytest
from django.core.cache import caches
from django.test import Client

from clusters.models import MemberCluster
from clusters.operations.edit import cordon
from placements.web import fleet_map
from tests.rows import NOW

Fetch = Callable[[Client, str], str]
HTMX = {"HX-Request": "true"}

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("nine")]


def _domains(page: str) -> list[tuple[str, str]]:
    """Return the domains in their order, each with its words."""
    table = page.partition('class="cards map-bars"')[2].partition("</tbody>")[0].partition("<tbody>")[2]
    rows = [re.sub(r"<[^>]+>", " ", row) for row in table.split("</tr>")]
    words = [" ".join(row.split()) for row in rows if row.strip()]
    return [(one.split()[0], one.partition(" ")[2]) for one in words]


def _cells(page: str) -> dict[str, str]:
    """Return the words beside the name of each cluster."""
    cells = re.findall(r'<a\s+id="map-[^>]*>.*?</a>', page, re.DOTALL)
    words = [re.sub(r"<[^>]+>", " ", cell).split() for cell in cells]
    return {name: " ".join(more) for name, *more in words}


def test_a_small_fleet_has_each_cluster_and_a_large_one_counts_the_worst_first(
    viewer: Client, text_of: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    cordon(["bravelion"], by=None, now=NOW)
    region = MemberCluster.objects.get(name="bravelion").document["metadata"]["labels"]["region"]

    small = text_of(viewer, "/?by=region")
    monkeypatch.setattr(fleet_map, "NAMED_UP_TO", 5)
    caches["process"].clear()
    large = text_of(viewer, "/?by=region")

    assert len(_cells(small)) == 9
    assert (_cells(small)["bravelion"], _cells(small)["nimblefox"]) == ("Cordoned", "")
    assert "/topology/panel/?cluster=bravelion" in small
    assert [_domains(page)[0][0] for page in (small, large)] == [region, region]
    assert _cells(large) == {}
    assert "Cordoned 1" in _domains(large)[0][1]


def test_a_measure_is_shown_of_clusters_and_of_domains(viewer: Client, text_of: Fetch) -> None:
    MemberCluster.objects.filter(name="bravelion").update(properties={"cpu": "500m", "zone": "x"})

    page = text_of(viewer, "/?by=region&measure=cpu")
    placed = text_of(viewer, "/?by=region&measure=placements")

    assert {name: words for name, words in _cells(page).items() if words} == {"bravelion": "0.5"}
    measures = page.partition('id="measure"')[2].partition("</select>")[0]
    assert re.findall(r"<option[^>]*>([^<]*)", measures)[:3] == ["health", "placements", "cpu"]
    assert "zone" not in measures
    assert re.search(r"\d to \d", _domains(placed)[0][1])


@pytest.mark.nightly
def test_a_measure_that_does_not_exist_is_named(viewer: Client, text_of: Fetch) -> None:
    assert "weight" in text_of(viewer, "/?measure=weight").partition('role="alert"')[2][:300]


def test_the_panel_shows_a_cluster_or_a_domain_and_leads_to_its_page_without_a_script(
    viewer: Client, operator: Client
) -> None:
    cordon(["bravelion"], by=None, now=NOW)

    panel = operator.get("/topology/panel/?cluster=bravelion", headers=HTMX).content.decode()
    panel_of_viewer = viewer.get("/topology/panel/?cluster=bravelion", headers=HTMX).content.decode()
    domain = viewer.get("/topology/panel/?label=region:east", headers=HTMX).content.decode()

    assert "cordoned" in panel
    assert 'href="/clusters/bravelion/uncordon/"' in panel
    assert 'href="/clusters/bravelion/uncordon/"' not in panel_of_viewer
    assert 'href="/clusters/bravelion/inject-fault/">Simulate a failure<' in panel
    assert 'href="/clusters/bravelion/inject-fault/"' not in panel_of_viewer
    assert "3 clusters" in domain
    assert "/what-if/?label=region%3Aeast" in domain
    assert viewer.get("/topology/panel/?cluster=bravelion").headers["Location"] == "/clusters/bravelion/"
    plain = viewer.get("/topology/panel/?label=region:east")
    assert plain.headers["Location"] == "/clusters/?label=region%3Aeast"
    assert viewer.get("/topology/panel/?cluster=none", headers=HTMX).status_code == 404
    assert viewer.get("/topology/panel/").status_code == 400
