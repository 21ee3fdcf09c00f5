"""What the page of a decision leads to: its clusters as a file, those of a group, the snapshot, the run."""

import csv
import html
import io
import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client

from clusters.models import MemberCluster
from placements.models import Decision, Placement
from placements.services.placements import save_placement
from placements.services.resources.operations import apply_resources
from placements.services.rollouts.controller import sync_due_rollouts
from placements.services.rollouts.staged_runs import save_strategy, start_run
from placements.services.scheduling import schedule_due
from tests.rows import (
    NOW,
    all_joined,
    decided,
    joined,
    namespace,
    pick_n_spec,
    placement_document,
    spec,
)
from tests.services.rollouts.staged import staged_spec, strategy_document

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]
BY_REGION = {"topologySpreadConstraints": [{"topologyKey": "region", "maxSkew": 1}]}


def _names(answer: str) -> list[str]:
    return [row["cluster"] for row in csv.DictReader(io.StringIO(answer))]


def _listed(page: str) -> list[str]:
    table = page.partition('id="view"')[2]
    return re.findall(r'<th scope="row"><a href="\?[^"]*cluster=(\w+)#why"', table)


def _links(page: str, words: str) -> list[str]:
    return [
        html.unescape(one)
        for one in re.findall(rf'<a href="([^"]*)">{words}</a>', page)
    ]


def _number(count: int) -> dict[str, object]:
    return {"placementType": "PickN", "numberOfClusters": count}


@pytest.mark.nightly
@pytest.mark.parametrize(
    "query",
    [
        "view=clusters",
        "outcome=picked",
        "q=fox",
        "group=region:west&outcome=outranked",
        "q=none",
    ],
)
def test_downloads_exactly_the_rows_that_are_shown(
    viewer: Client, text_of: Fetch, decision_id: str, query: str
) -> None:
    address = f"/decisions/{decision_id}/"
    page = text_of(viewer, f"{address}?{query}")
    [as_csv], [as_json] = _links(page, "CSV"), _links(page, "JSON")

    answer = viewer.get(address + as_csv)
    items = viewer.get(address + as_json).json()["items"]

    assert sorted(_names(answer.content.decode())) == sorted(_listed(page))
    assert sorted(item["cluster"] for item in items) == sorted(_listed(page))
    assert (
        answer["Content-Disposition"]
        == f'attachment; filename="{decision_id[:10]}.csv"'
    )


@pytest.mark.nightly
def test_downloads_more_rows_than_a_page_shows(viewer: Client) -> None:
    for number in range(60):
        joined(f"c{number:02}", half=str(number % 2))
    placement = decided("web", pick_n_spec(2))
    address = f"/decisions/{placement.decisions.get().record.decision_id}/"

    text = viewer.get(f"{address}?group=half:1&from=50&download=csv").content.decode()

    assert sorted(_names(text)) == [f"c{number:02}" for number in range(1, 60, 2)]


def test_counts_the_selected_first_whatever_the_names(
    viewer: Client, text_of: Fetch
) -> None:
    all_joined("a", "b")
    policy = {"placementType": "PickFixed", "clusterNames": ["b"]}
    decision = decided("web", spec(policy)).decisions.get()

    page = text_of(viewer, f"/decisions/{decision.record.decision_id}/")

    assert "2 clusters: 1 selected, 1 not named" in page


def test_a_domain_leads_to_its_clusters(
    viewer: Client, text_of: Fetch, web: Placement
) -> None:
    save_placement(
        placement_document("web", pick_n_spec(2, **BY_REGION)), by=None, now=NOW
    )
    schedule_due(now=NOW)
    address = f"/decisions/{web.decisions.latest('number').record.decision_id}/"

    page = text_of(viewer, f"{address}?step=1&q=x")
    addresses = set(_links(page, "west"))

    assert addresses == {"?step=1&q=x&view=clusters&group=region%3Awest#view"}
    listed = text_of(viewer, f"{address}?step=1&view=clusters&group=region%3Awest")
    assert sorted(_listed(listed)) == ["jumpingcat", "nimblefox"]
    assert "<option selected>env=prod</option>" in text_of(
        viewer, f"{address}?group=env:prod"
    )


def test_a_domain_with_a_colon_in_its_value_is_filtered_as_it_is_offered(
    viewer: Client, text_of: Fetch
) -> None:
    all_joined("a", "b")
    for name, rack in (("a", "r:1"), ("b", "r:2")):
        MemberCluster.objects.filter(name=name).update(properties={"rack": rack})
    claim = {"topologyKey": "rack", "topologyKeyType": "Claim", "maxSkew": 1}
    policy = pick_n_spec(2, topologySpreadConstraints=[claim])
    decision = decided("web", policy, semantics="ocm").decisions.get()
    address = f"/decisions/{decision.record.decision_id}/?view=clusters&group="

    for group in ("rack=r:1", "rack:r:1"):
        page = text_of(viewer, f"{address}{group}")
        assert "<option selected>rack=r:1</option>" in page
        assert _listed(page) == ["a"]


@pytest.mark.nightly
def test_its_snapshot_leads_to_its_line_in_the_history(
    viewer: Client, text_of: Fetch, decision_id: str
) -> None:
    page = text_of(viewer, f"/decisions/{decision_id}/")
    [address] = _links(page, "policy")

    history = text_of(viewer, address.partition("#")[0])

    assert address == "/placements/web/history/?at=p0#p0"
    assert '<tr class="highlighted" id="p0">' in history
    assert "was pruned" not in history
    pruned = text_of(viewer, "/placements/web/history/?at=p7")
    assert "The policy of this revision was pruned" in pruned


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_an_old_snapshot_is_found_on_a_later_page(
    viewer: Client, text_of: Fetch
) -> None:
    for number in range(60):
        later = NOW + timedelta(minutes=number)
        save_placement(
            placement_document("web", pick_n_spec(1 + number % 2)), by=None, now=later
        )
        schedule_due(now=later)

    page = text_of(viewer, "/placements/web/history/?at=p0")

    assert '<tr class="highlighted" id="p0">' in page
    assert '<tr class="highlighted"' not in text_of(viewer, "/placements/web/history/")


def test_names_the_staged_run_that_carried_it_out(
    viewer: Client, text_of: Fetch
) -> None:
    joined("bravelion", region="east")
    save_strategy(
        strategy_document({"name": "all", "labelSelector": {}}), by=None, now=NOW
    )
    shelf = decided("shelf", staged_spec())
    address = f"/decisions/{shelf.decisions.get().record.decision_id}/"

    before = text_of(viewer, address)
    start_run(
        "one",
        placement="shelf",
        strategy="careful",
        by=None,
        now=NOW + timedelta(minutes=1),
    )
    start_run(
        "two",
        placement="shelf",
        strategy="careful",
        by=None,
        now=NOW + timedelta(minutes=2),
    )

    assert "staged update run" not in before
    assert _links(text_of(viewer, address), "staged update run one") == [
        "/rollouts/staged/runs/one/"
    ]


@pytest.mark.nightly
def test_a_staged_run_that_waited_for_the_decision_carried_it_out(
    viewer: Client, text_of: Fetch
) -> None:
    joined("bravelion", region="east")
    save_strategy(
        strategy_document({"name": "all", "labelSelector": {}}), by=None, now=NOW
    )
    joined("zebra", region="east")
    apply_resources([namespace("shop")], by=None, now=NOW)
    save_placement(
        placement_document("shelf", staged_spec(_number(1))), by=None, now=NOW
    )
    start_run("early", placement="shelf", strategy="careful", by=None, now=NOW)
    schedule_due(now=NOW + timedelta(minutes=1))
    sync_due_rollouts(now=NOW + timedelta(minutes=2))
    save_placement(
        placement_document("shelf", staged_spec(_number(2))), by=None, now=NOW
    )
    schedule_due(now=NOW + timedelta(minutes=3))

    first, second = (
        text_of(viewer, f"/decisions/{decision.record.decision_id}/")
        for decision in Decision.objects.order_by("pk")
    )

    assert _links(first, "staged update run early")
    assert not _links(second, "staged update run early")
