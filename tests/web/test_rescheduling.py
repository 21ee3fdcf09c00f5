"""Rescheduling a placement on a page: what it would change, doing just that, and conflicts."""

import re
from io import StringIO
from typing import Any

import pytest
from django.core.management.base import CommandError
from django.test import Client
from rest_framework.test import APIClient

from clusters.models import MemberCluster
from clusters.operations.edit import change_labels, cordon
from fleetui.apimachinery.yaml import load_documents
from fleetui.models import Event
from placements.models import Placement, PolicySnapshot
from placements.services.placements import save_placement
from placements.services.rescheduling import reschedule_with_few_moves
from placements.services.scheduling import schedule_due
from placements.services.verification import refresh_staleness
from tests.commands import call_command
from tests.rows import (
    NOW,
    api_token,
    decided,
    joined,
    person,
    pick_n_spec,
    placed,
    placement_document,
    spec,
)
from tests.services.test_few_moves import drifted, skew
from tests.web.reading import page_text

pytestmark = pytest.mark.django_db
ADDRESS = "/placements/web/reschedule/"
BY_REGION = {"topologySpreadConstraints": [{"topologyKey": "region", "maxSkew": 1}]}


@pytest.fixture
def spread(web: Placement) -> Placement:
    """Place `web` where rescheduling would not: both in the west."""
    save_placement(
        placement_document("web", pick_n_spec(2, **BY_REGION)), by=None, now=NOW
    )
    schedule_due(now=NOW)
    change_labels(["bravelion"], put={"region": "west"}, by=None, now=NOW)
    joined("zebra", region="east")
    schedule_due(now=NOW)
    return web


def _confirm(browser: Client, page: str, *, address: str = ADDRESS, **more: str) -> Any:
    form = page.partition('class="bar"')[2]
    given = dict(re.findall(r'name="(revision|decision|after)" value="([^"]*)"', form))
    return browser.post(address, {**given, **more})


def _page(browser: Client) -> str:
    return browser.get(ADDRESS).content.decode()


@pytest.mark.nightly
def test_the_placement_leads_there_and_it_shows_who_would_move_and_why(
    operator: Client, spread: Placement
) -> None:
    page = _page(operator)

    assert (
        'href="/placements/web/reschedule/"'
        in operator.get("/placements/web/").content.decode()
    )
    assert placed(spread) == ["bravelion", "nimblefox"]
    assert re.findall(r"<dt>(\d \w+)</dt>", page) == [
        "1 selected",
        "1 deselected",
        "1 kept",
    ]
    assert 'class="label joins" href="/clusters/zebra/"' in page
    assert "Deciding score" in page
    assert "Rolls out in" in page
    assert not PolicySnapshot.objects.filter(number=2).exists()


@pytest.mark.nightly
def test_confirming_decides_just_that_at_once(
    operator: Client, spread: Placement
) -> None:
    decision_ids = re.findall(
        r'name="decision" value="([^"]*)"', page := _page(operator)
    )

    answer = _confirm(operator, page)

    assert (answer.status_code, answer["Location"]) == (302, "/placements/web/")
    assert [spread.decisions.latest("number").record.decision_id] == decision_ids
    assert "zebra" in placed(spread)
    assert Event.objects.filter(
        verb="rescheduled", name="web", actor_name="ana"
    ).exists()


def test_says_so_where_no_cluster_would_change(
    operator: Client, web: Placement
) -> None:
    page, before = _page(operator), placed(web)

    assert "No changes:" in page
    assert _confirm(operator, page).status_code == 302
    assert placed(web) == before


@pytest.mark.usefixtures("spread")
def test_says_who_changed_the_placement_meanwhile(operator: Client) -> None:
    page = _page(operator)
    save_placement(
        placement_document("web", pick_n_spec(1)), by=person("li", "operator"), now=NOW
    )

    answer = _confirm(operator, page)
    again = page_text(answer)

    assert answer.status_code == 409
    assert "web changed since your preview" in again
    assert ">li<" in again
    assert "spec.policy.numberOfClusters: <del>2</del> → <ins>1</ins>" in again
    assert not Event.objects.filter(verb="rescheduled").exists()
    assert _confirm(operator, again).status_code == 302


@pytest.mark.usefixtures("spread")
def test_says_what_the_fleet_changed_meanwhile(operator: Client) -> None:
    page = _page(operator)
    cordon(["zebra"], by=None, now=NOW)

    answer = _confirm(operator, page)

    assert answer.status_code == 409
    assert "The fleet changed since your preview" in answer.content.decode()
    assert '<span class="label leaves">zebra</span>' in answer.content.decode()
    assert not Event.objects.filter(verb="rescheduled").exists()


@pytest.mark.usefixtures("web")
def test_requires_confirmation_before_it_unschedules_everything(
    operator: Client,
) -> None:
    cordon(["bravelion", "jumpingcat", "nimblefox"], by=None, now=NOW)

    refused = _confirm(operator, _page(operator))
    page = refused.content.decode()
    confirmed = _confirm(operator, page, confirm="unschedule-everything")

    assert refused.status_code == 409
    assert "This removes the placement from all clusters." in page
    assert "Nothing was rescheduled." in page
    assert confirmed.status_code == 302


@pytest.mark.usefixtures("web")
def test_shows_the_page_again_to_who_confirms_nothing_that_was_seen(
    operator: Client,
) -> None:
    assert operator.post(ADDRESS).status_code == 409
    assert operator.post(ADDRESS, {"revision": "²"}).status_code == 409
    assert not Event.objects.filter(verb="rescheduled").exists()


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_there_is_nothing_to_reschedule_where_the_clusters_are_named(
    operator: Client,
) -> None:
    decided(
        "fixed", spec({"placementType": "PickFixed", "clusterNames": ["bravelion"]})
    )

    refused = operator.post("/placements/fixed/reschedule/", {"revision": "1"})

    assert refused.status_code == 409
    assert "nothing to reschedule" in refused.content.decode()
    assert 'name="revision"' not in refused.content.decode()
    assert "/reschedule/" not in operator.get("/placements/fixed/").content.decode()


@pytest.mark.usefixtures("web")
def test_a_viewer_sees_which_role_is_needed(viewer: Client) -> None:
    refused = viewer.post(ADDRESS, {"revision": "1"})
    page = viewer.get("/placements/web/").content.decode()

    assert refused.status_code == 403
    assert "reschedule placements" in refused.content.decode()
    assert f'href="{ADDRESS}"' not in page
    assert "Reschedule" in page


def test_with_few_moves_it_shows_what_each_number_reaches_and_makes_those_that_were_shown(
    operator: Client, viewer: Client
) -> None:
    drifted()
    fewest = f"{ADDRESS}?moves=fewest"
    page, read_only = (
        operator.get(fewest).content.decode(),
        viewer.get(fewest).content.decode(),
    )

    assert "Hard spread limits exceeded by 5." in page
    assert "4 moves repair all hard limits." in page
    assert 'href="?moves=2"' in page
    assert re.findall(r"<dt>(\d \w+)</dt>", page) == [
        "4 selected",
        "4 deselected",
        "2 kept",
    ]
    assert (
        'method="post" class="bar"' in page,
        'method="post" class="bar"' in read_only,
    ) == (True, False)
    assert viewer.post(fewest, {"revision": "1"}).status_code == 403
    assert "Invalid value" in operator.get(f"{ADDRESS}?moves=many").content.decode()

    two = operator.get(f"{ADDRESS}?moves=2").content.decode()
    assert _confirm(operator, page, address=f"{ADDRESS}?moves=2").status_code == 409
    assert _confirm(operator, two, address=f"{ADDRESS}?moves=2").status_code == 302
    assert Event.objects.filter(
        verb="rescheduled", name="web", actor_name="ana"
    ).exists()
    again = operator.get(fewest).content.decode()
    assert _confirm(operator, again, address=fewest).status_code == 302
    done = operator.get(fewest).content.decode()
    assert "No moves are needed." in done
    assert 'method="post" class="bar"' not in done


def test_a_cluster_that_joined_after_few_moves_is_in_the_list(viewer: Client) -> None:
    world = drifted()
    reschedule_with_few_moves("web", moves=2, by=None, now=world.now)
    joined("latecomer", region="east")

    page = page_text(viewer.get("/placements/web/?outcome=not-selected"))

    table = page.partition('id="clusters"')[2].partition("</section>")[0]
    assert re.search(r"latecomer.*after decision 2", table, re.DOTALL)


def test_over_rest_and_as_a_command_it_is_the_same() -> None:
    drifted()
    client = APIClient(
        headers={"Authorization": f"Token {api_token(person('ana', 'operator'))}"}
    )
    address = "/api/v1/placements/web/reschedule"
    shown = client.get(f"{address}?moves=2").json()
    out = StringIO()
    call_command("reschedule", "web", "--moves", "2", "--dry-run", stdout=out)

    assert load_documents(out.getvalue())[0].data == shown
    assert (shown["plan"]["chosen"]["limit"], shown["plan"]["refusal"]) == (2, "")
    assert (len(shown["joins"]), len(shown["leaves"]), skew()) == (2, 2, 6)
    assert "plan" not in client.get(address).json()
    for wrong in ("-1", "many", "100001"):
        refused = client.post(f"{address}?moves={wrong}")
        assert (refused.status_code, refused.json()["faults"][0]["path"]) == (
            422,
            "moves",
        )
    assert (client.post(f"{address}?moves=2").status_code, skew()) == (202, 3)
    call_command("reschedule", "web", "--moves", "fewest", stdout=out)
    assert skew() == 0
    with pytest.raises(CommandError, match="No moves are needed") as error:
        call_command("reschedule", "web", "--moves", "fewest", stdout=out)
    assert error.value.returncode == 1


def test_the_page_of_a_placement_leads_to_few_moves(viewer: Client) -> None:
    world = drifted()
    refresh_staleness(now=world.now)

    page = re.sub(r"<[^>]*>", "", page_text(viewer.get("/placements/web/")))
    exceeded = "Region skew 6 with east 6 and north 0, max skew 1. Plan the moves"
    assert exceeded in re.sub(r"\s+", " ", page)


def test_a_limit_that_no_moves_repair_says_so_before_the_link(
    viewer: Client, operator: Client
) -> None:
    world = drifted()
    members = MemberCluster.objects.exclude(name__in=world.available())
    cordon([member.name for member in members], by=None, now=world.now)
    world.work()
    refresh_staleness(now=world.now)

    page = page_text(viewer.get("/placements/web/"))
    plan = page_text(viewer.get(f"{ADDRESS}?moves=fewest"))

    assert "Plan the moves" not in page
    for text in (page, plan):
        assert "No better set of clusters exists under the rules today." in text
        assert "one more ready cluster in the emptiest domain" in text
    assert 'href="/clusters/?label=region:north"' in page
    assert "Edit the limit" not in page, "a reader may not open the editor"
    assert "Edit the limit" in page_text(operator.get("/placements/web/"))
