"""What-if on pages: open to every role, for every placement, its decisions marked as hypothetical."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.changes import noticed_changes
from placements.models import Decision, Placement, Scenario, ScenarioDecision
from placements.services.what_if import operations
from placements.services.what_if.operations import create_scenario, evaluate_due
from tests.rows import NOW, all_joined, decided, pick_n_spec

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]


def _row(page: str, placement: str) -> str:
    [row] = [
        one for one in re.findall(r"<tr>.*?</tr>", page, re.DOTALL) if f"/placements/{placement}/" in one
    ]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", row)).strip()


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_a_viewer_selects_by_label_and_reads_both_results(viewer: Client, text_of: Fetch) -> None:
    response = viewer.post("/what-if/", {"label": "region=east", "clusters": "", "variant": "cordon"})
    cordoned = text_of(viewer, response["Location"])
    left = text_of(viewer, response["Location"].replace("cordon", "leave"))

    assert response["Location"] == f"/what-if/{Scenario.objects.get().pk}/?variant=cordon"
    assert "2 unschedulable, 1 scaled down, 1 rescheduled, 1 not evictable." in cordoned
    assert "3 unschedulable, 1 scaled down, 1 rescheduled." in left
    assert "Unschedulable 2 of 4, was 3" in _row(cordoned, "ledger").replace(" , ", ", ")
    assert "smartfish → flyingpenguin topology 1, affinity −10" in _row(left, "web")
    assert "Differences between the scenarios." in left


@pytest.mark.usefixtures("nine")
def test_the_worst_come_first_and_one_fate_can_be_chosen(viewer: Client, text_of: Fetch) -> None:
    row = create_scenario(names=[], labels=["region:east"], by=None, now=NOW)

    page = text_of(viewer, f"/what-if/{row.pk}/").partition('id="placements"')[2]
    moved = text_of(viewer, f"/what-if/{row.pk}/?impact=moves").partition('id="placements"')[2]

    links = r'<th scope="row"><a href="/placements/(\w+)/">'
    assert re.findall(links, page) == ["cache", "config", "ledger", "batch", "web"]
    assert re.findall(links, moved) == ["web"]


@pytest.mark.usefixtures("nine")
def test_each_answer_leads_to_a_decision_that_says_it_is_hypothetical(viewer: Client, text_of: Fetch) -> None:
    row = create_scenario(names=[], labels=["region:east"], by=None, now=NOW)
    decisions = Decision.objects.count()
    hypothetical = ScenarioDecision.objects.select_related("record").get(
        variant="leave", placement_name="web"
    )

    page = text_of(viewer, f"/decisions/{hypothetical.record.decision_id}/?cluster=flyingpenguin")
    other = text_of(viewer, f"/decisions/{hypothetical.record.decision_id}/semantics/")

    assert "<strong>Hypothetical.</strong>" in page
    assert f'href="/what-if/{row.pk}/?variant=leave"' in page
    assert "Hypothetical decision of web" in page
    assert "Hypothetical decision on web" in other
    assert Decision.objects.count() == decisions


@pytest.mark.usefixtures("web")
def test_a_real_decision_is_not_called_hypothetical(viewer: Client, text_of: Fetch, decision_id: str) -> None:
    assert "Hypothetical" not in text_of(viewer, f"/decisions/{decision_id}/")


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"clusters": "missing"}, "Invalid value: &#x27;missing&#x27;"),
        ({"label": "region=moon"}, "No cluster has region:moon"),
        ({}, "Required value"),
    ],
)
def test_an_analysis_without_clusters_is_returned_with_its_error(
    viewer: Client, given: dict[str, str], message: str
) -> None:
    answer = viewer.post("/what-if/", given)

    assert answer.status_code == 422
    assert message in answer.content.decode()
    assert all(value in answer.content.decode() for value in given.values())
    assert not Scenario.objects.exists()


@pytest.mark.usefixtures("web")
def test_a_link_from_another_page_fills_the_form(viewer: Client, text_of: Fetch) -> None:
    page = text_of(viewer, "/what-if/?label=region:west&cluster=bravelion&variant=cordon")

    assert 'value="region=west"' in page
    assert ">bravelion</textarea>" in page
    assert 'value="cordon" checked' in page
    assert not Scenario.objects.exists()


def test_while_it_is_answered_the_page_polls_again_and_gets_only_news(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(1))
    monkeypatch.setattr(operations, "SMALL_FLEET", 0)
    row, later = (create_scenario(names=[name], labels=[], by=None, now=NOW) for name in "ab")
    htmx = {"HX-Request": "true"}

    assert "after 1 other analysis" in viewer.get(f"/what-if/{later.pk}/").content.decode()
    page = viewer.get(f"/what-if/{row.pk}/").content.decode()
    [version] = re.findall(r'hx-get="\?v=([\d.]+)"', page)
    same = viewer.get(f"/what-if/{row.pk}/?v={version}", headers=htmx)
    with noticed_changes():
        while evaluate_due(now=NOW):
            pass
    news = viewer.get(f"/what-if/{row.pk}/?v={version}", headers=htmx)

    assert "0 of 1 placements" in page
    assert same.status_code == 204
    assert news.content.decode().startswith('<div id="answer"')
    assert 'hx-trigger="tick' not in news.content.decode()


def test_an_analysis_is_canceled_saved_and_run_again(
    viewer: Client, operator: Client, text_of: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(1))
    monkeypatch.setattr(operations, "SMALL_FLEET", 0)
    address = viewer.post("/what-if/", {"clusters": "b"})["Location"].partition("?")[0]

    assert "Cancel analysis</button>" in text_of(viewer, address)
    viewer.post(f"{address}cancel/")
    assert evaluate_due(now=datetime.now(UTC)) == 0
    assert "Canceled</span> · 0 of 1 placements evaluated" in text_of(viewer, address)
    assert viewer.get(f"/api/v1{address.rstrip('/')}").json()["state"] == "canceled"

    again = viewer.post(f"{address}run-again/")["Location"]
    assert evaluate_due(now=datetime.now(UTC)) == 1
    viewer.post(f"{again}save/", {"name": "Loss of b"})
    monkeypatch.setattr(operations, "KEPT", 0)
    create_scenario(names=["a"], labels=[], by=None, now=NOW)

    assert [one.title for one in Scenario.objects.all()] == ["Loss of b"]
    assert "Loss of b</a><br>" in text_of(viewer, "/what-if/")
    for name in ("x" * 64, "Loss\x00of b"):
        refused = viewer.post(f"{again}save/", {"name": name}, follow=True).content.decode()
        assert "allowed: up to 63 printable characters" in refused
        assert Scenario.objects.get().name == "Loss of b"
    monkeypatch.setattr(operations, "MOST_SAVED", 0)
    with pytest.raises(InvalidManifest, match="0 analyses are saved; remove a name first"):
        operations.save_scenario(Scenario(), "More")
    Scenario.objects.update(created_by="ann")
    assert viewer.post(f"{again}save/", {"name": ""}).status_code == 403
    assert operator.post(f"{again}save/", {"name": ""}).status_code == 302


@pytest.mark.nightly
def test_lists_scenarios_with_a_bounded_number_of_queries(
    viewer: Client, text_of: Fetch, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(1))
    for _ in range(15):
        create_scenario(names=["b"], labels=[], by=None, now=NOW)

    with django_assert_max_num_queries(10):
        page = text_of(viewer, "/what-if/")

    assert page.count('href="/what-if/') >= 15
    assert page.count("1 unschedulable") + page.count("1 rescheduled") >= 15
    assert Placement.objects.count() == 1
