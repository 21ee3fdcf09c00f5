"""Every page with numbers links to the same numbers as JSON."""

import html
import re
from typing import Any

import pytest
from django.test import Client

from placements.models import Placement
from placements.services.rollouts.controller import sync_due_rollouts
from tests.rows import NOW, decided, joined, pick_n_spec
from tests.web.test_every_page import READ, WRITE, address_of, begin_everything

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("web")]

WITHOUT = ("/help/", "/demo/", "/previews/")


@pytest.fixture(autouse=True)
def _carried_out(web: Placement) -> None:
    """Roll the placement out, so that there is a run."""
    assert sync_due_rollouts(now=NOW) == 1
    assert web.pk


@pytest.fixture
def decision_id(web: Placement) -> str:
    """Return the id of a decision, with something of everything beside it."""
    return begin_everything(web)


def _twin(client: Client, address: str) -> tuple[str, Any]:
    page = client.get(address).content.decode()
    link = re.search(r'<a href="([^"]*)" type="application/json" data-twin>', page)
    assert link, address
    answer = client.get(html.unescape(link[1]), headers={"accept": "application/json"})
    assert answer.status_code == 200, (address, link[1], answer.content)
    return page, answer.json()


@pytest.mark.nightly
def test_every_page_has_one_that_answers(
    operator: Client, decision_id: str, subtests: pytest.Subtests
) -> None:
    for address in (one for one in (*READ, *WRITE) if not one.startswith(WITHOUT)):
        with subtests.test(address):
            page, twin = _twin(
                operator,
                address_of(address, decision_id).replace("?cluster=missing", ""),
            )

            assert twin is not None
            assert "curl -H &quot;Authorization: Token $FLEETUI_TOKEN&quot; " in page


@pytest.mark.nightly
def test_the_overview_counts_alike(viewer: Client) -> None:
    decided("many", pick_n_spec(9))

    page, twin = _twin(viewer, "/")

    assert f"of {twin['clusters']} clusters ready" in page
    assert f"of {twin['placements']} placements healthy" in page
    assert f"{twin['notFulfilled']} with problems" in page
    assert (twin["clusters"], twin["placements"], twin["notFulfilled"]) == (3, 2, 1)
    assert [one["name"] for one in twin["attention"]] == re.findall(
        r'id="open-placement/(\w+)"', page
    )
    [row] = twin["attention"]
    first, _, rest = row["message"].partition(". ")
    assert f">{row['name']}: {first}</a>" in page
    assert f"<p>{rest}</p>" in page


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("address", "names"),
    [
        ("/clusters/", ["bravelion", "jumpingcat", "nimblefox"]),
        ("/clusters/?q=fox", ["nimblefox"]),
        ("/clusters/?label=region:west&order=-name", ["nimblefox", "jumpingcat"]),
        ("/placements/", ["web"]),
        ("/placements/?state=unfulfilled", []),
        ("/resources/?q=set", ["settings"]),
    ],
)
def test_lists_have_the_same_rows_under_the_same_filter(
    viewer: Client, address: str, names: list[str]
) -> None:
    page, twin = _twin(viewer, address)

    names_in_page = re.findall(r'<th scope="row">\s*(?:<[^>]*>)?\s*([\w-]+)', page)
    assert [item["name"] for item in twin["items"]] == names
    assert names_in_page == names


@pytest.mark.nightly
def test_the_next_page_of_a_list_has_the_next_page_as_its_twin(viewer: Client) -> None:
    for number in range(60):
        joined(f"c{number:02}")
    first = viewer.get("/clusters/").content.decode()
    [following] = re.findall(r'href="(\?[^"]*)" rel="next"', first)

    page, twin = _twin(viewer, f"/clusters/{html.unescape(following)}")

    assert [item["name"] for item in twin["items"]] == re.findall(
        r'<th scope="row"><a [^>]*>([\w-]+)', page
    )
    assert len(twin["items"]) == 13


@pytest.mark.nightly
def test_the_history_and_a_comparison_say_the_same(
    viewer: Client, decision_id: str
) -> None:
    _, twin = _twin(viewer, "/placements/web/history/")
    _, same = _twin(viewer, f"/placements/web/compare/p0..{decision_id}/")

    assert {"p0", "s0", decision_id} == {item["key"] for item in twin["items"]}
    assert twin["items"][0] == {
        "key": decision_id,
        "kind": "decision",
        "number": 1,
        "at": "2026-11-20T12:00:00Z",
        "by": "system",
        "because": "created",
    }
    assert same["before"]["decision"] == same["after"]["decision"] == decision_id
    assert same["decision"] == {
        "joins": [],
        "leaves": [],
        "stays": ["jumpingcat", "nimblefox"],
        "otherReasons": [],
        "groups": [],
    }


@pytest.mark.nightly
def test_the_search_finds_the_same(viewer: Client) -> None:
    page, twin = _twin(viewer, "/search/?q=n")

    assert (
        twin["clusters"]
        == re.findall(r'<li><a href="/clusters/(\w+)/">', page)
        == ["bravelion", "jumpingcat", "nimblefox"]
    )
    assert [resource["name"] for resource in twin["resources"]] == ["settings"]


@pytest.mark.nightly
def test_a_run_and_a_decision_are_the_objects_themselves(
    viewer: Client, decision_id: str
) -> None:
    assert _twin(viewer, "/rollouts/web/1/")[1]["number"] == 1
    assert _twin(viewer, f"/decisions/{decision_id}/")[1]["id"] == decision_id
