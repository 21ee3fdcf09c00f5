"""The page What-if: the loss of chosen clusters, open to every role; nothing is written."""

import re
from collections.abc import Callable

import pytest
from django.test import Client

from placements.models import Decision, Placement
from placements.services.loss.report import start_report
from tests.builders import spread
from tests.rows import NOW, decided, joined, pick_n_spec

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]
TABS = ("/what-if/", "/what-if/resilience/", "/checks/")


def _row(page: str, placement: str) -> str:
    [row] = [
        one
        for one in re.findall(r"<tr.*?</tr>", page, re.DOTALL)
        if f'/placements/{placement}/"' in one
    ]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", row)).strip()


@pytest.mark.usefixtures("nine")
def test_a_viewer_reads_all_variants_of_a_loss(viewer: Client, text_of: Fetch) -> None:
    cordoned = text_of(viewer, "/what-if/?label=region%3Deast&variant=cordon")
    left = text_of(viewer, "/what-if/?label=region:east&variant=leave")
    down = text_of(viewer, "/what-if/?label=region:east&variant=down")

    assert "2 not fulfilled, 1 scaled down, 1 rescheduled, 1 not evictable." in cordoned
    assert "3 not fulfilled, 1 scaled down, 1 rescheduled." in left
    assert "Not fulfilled" in _row(cordoned, "ledger")
    assert "clusters 3 → 2" in _row(cordoned, "ledger")
    assert "smartfish → flyingpenguin spread score +1, affinity −10" in _row(
        left, "web"
    )
    assert "Differences between drained and removed." in left
    assert "5 with clusters down." in down
    assert "nothing moves yet" in _row(down, "web")
    assert "/what-if/" in re.findall(
        r'<a[^>]*href="([^"]*)"[^>]*aria-current="page"', left
    )


@pytest.mark.usefixtures("nine")
def test_the_worst_come_first_and_one_impact_can_be_chosen(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, "/what-if/?label=region:east").partition('id="impact"')[2]
    moved = text_of(viewer, "/what-if/?label=region:east&impact=moves").partition(
        'id="impact"'
    )[2]

    links = r'<th scope="row">\s*<a href="/placements/(\w+)/">'
    assert re.findall(links, page) == ["cache", "config", "ledger", "batch", "web"]
    assert re.findall(links, moved) == ["web"]


@pytest.mark.usefixtures("nine")
def test_a_placement_opens_its_hypothetical_decision(
    viewer: Client, text_of: Fetch
) -> None:
    decisions = Decision.objects.count()

    page = text_of(viewer, "/what-if/?label=region:east&placement=web")

    assert "Hypothetical decision on web" in page
    assert (
        '<th scope="row">flyingpenguin</th>'
        in page.partition("Hypothetical decision")[2]
    )
    assert Decision.objects.count() == decisions


@pytest.mark.usefixtures("nine")
def test_opens_with_the_worst_single_domain(viewer: Client, text_of: Fetch) -> None:
    start_report(by=None, now=NOW)

    page = text_of(viewer, "/what-if/")

    assert 'value="env=prod"' in page
    assert "The worst loss of a single domain." in page
    assert "not fulfilled" in page


def test_without_clusters_there_is_only_the_form(
    viewer: Client, text_of: Fetch
) -> None:
    assert "No clusters yet." in text_of(viewer, "/what-if/")


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("clusters=missing", "Invalid value: &#x27;missing&#x27;"),
        ("label=region=moon", "No cluster has region=moon"),
    ],
)
def test_a_choice_without_clusters_is_returned_with_its_error(
    viewer: Client, given: str, message: str
) -> None:
    answer = viewer.get(f"/what-if/?{given}")

    assert answer.status_code == 422
    assert message in answer.content.decode()
    assert given.rpartition("=")[2] in answer.content.decode()


@pytest.mark.usefixtures("web")
def test_the_tabs_lead_to_each_other_under_one_entry(
    viewer: Client, text_of: Fetch
) -> None:
    for address in TABS:
        page = text_of(viewer, address)
        current = re.findall(
            r'<a[^>]*href="([^"]*)"[^>]*aria-current="(?:page|true)"', page
        )
        tabs = page.partition('aria-label="What-if views"')[2].partition("</nav>")[0]

        assert tuple(re.findall(r'href="([^"]*)"', tabs)) == TABS
        assert {address, "/what-if/"} <= set(current)


def test_a_drain_that_exceeds_a_hard_limit_says_so_before_its_button(
    operator: Client, text_of: Fetch
) -> None:
    for name, region in {"a": "east", "b": "east", "c": "west"}.items():
        joined(name, region=region)
    decided("web", pick_n_spec(3, topologySpreadConstraints=[spread("region")]))
    limit = "Out of balance: region skew 2 with east 2 and west 0, max skew 1."

    for address in (
        "/clusters/c/drain/",
        "/clusters/bulk/drain/?all=1&q=c",
        "/what-if/?cluster=c&variant=cordon",
    ):
        page = text_of(operator, address)
        assert limit in page, address
        button = page.find('class="button danger"')
        assert button == -1 or page.index(limit) < button, address
    assert Placement.objects.get().placed_count == 3
