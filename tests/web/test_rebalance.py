"""Rebalance plans on their page, over REST and as a command."""

import json
import re
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from rest_framework.test import APIClient

from placements.engine.exact.rebalance import CurvePoint, MovePlan
from placements.explain.charts.rebalance import curve_chart
from placements.models import RebalancePlan
from placements.services.rebalance import start_plan
from placements.services.verification import refresh_staleness
from tests.rows import api_token, person
from tests.services.test_rebalance import drifted

pytestmark = pytest.mark.django_db
PAGE, PLANS = "/placements/web/rebalance/", "/api/v1/placements/web/rebalance-plans"


def test_a_plan_is_shown_started_paused_and_stopped_on_its_page(operator: Client, viewer: Client) -> None:
    world = drifted()
    page_of_operator, read_only = operator.get(PAGE).content.decode(), viewer.get(PAGE).content.decode()
    two = operator.get(f"{PAGE}?moves=2").content.decode()

    assert "Hard spread limits exceeded by 5." in page_of_operator
    assert "4 moves repair all hard limits." in page_of_operator
    assert ("Start 4 batches" in page_of_operator, "Start 2 batches" in two, "Start " in read_only) == (
        True,
        True,
        False,
    )
    assert operator.get(f"{PAGE}?moves=many").status_code == 422
    assert operator.post(PAGE, {"do": "fly"}).status_code == 422
    assert viewer.post(PAGE, {"do": "start"}).status_code == 403

    assert operator.post(PAGE, {"do": "start", "moves": "4"}).status_code == 302
    RebalancePlan.objects.update(requeue_at=world.now)
    world.pass_time(1)
    running = operator.get(PAGE).content.decode()
    assert "0 of 4 batches · Waiting for the rollout on " in re.sub(r"<[^>]*>", "", running)
    assert operator.post(PAGE, {"do": "start"}).status_code == 409
    assert operator.post(PAGE, {"do": "pause", "plan": "1"}).status_code == 302
    assert 'value="resume"' in operator.get(PAGE).content.decode()
    assert operator.post(PAGE, {"do": "stop", "plan": "1"}).status_code == 302
    assert operator.post(PAGE, {"do": "resume", "plan": "1"}).status_code == 409
    assert operator.post(PAGE, {"do": "stop", "plan": "7"}).status_code == 409
    assert "Stopped by ana." in operator.get(PAGE).content.decode()


def test_an_outdated_plan_is_planned_again_with_the_moves_that_are_left(operator: Client) -> None:
    world = drifted()
    assert operator.post(PAGE, {"do": "start", "moves": "4"}).status_code == 302
    RebalancePlan.objects.update(state="stale", done=1, ended_at=world.now)

    page = operator.get(PAGE).content.decode()
    again = re.search(r'name="moves" value="(\d+)"><button[^>]*>(Start \d batches)', page)
    assert "Plan again from here" in page
    assert "With the 3 moves that are left of plan 1." in page
    assert "fleetui rebalance web --moves 3 --start" in page
    assert again is not None
    assert again.groups() == ("3", "Start 3 batches")
    assert operator.post(PAGE, {"do": "start", "moves": again[1]}).status_code == 302
    assert RebalancePlan.objects.latest("number").state == "running"


def test_over_rest_and_as_a_command_it_is_the_same() -> None:
    drifted()
    client = APIClient(headers={"Authorization": f"Token {api_token(person('ana', 'operator'))}"})
    curve = client.get("/api/v1/placements/web/rebalance?moves=2").json()
    out = StringIO()
    call_command("rebalance", "web", "--moves", "2", "--output", "json", stdout=out)

    assert json.loads(out.getvalue()) == curve
    assert (curve["chosen"]["limit"], len(curve["batches"]), curve["refusal"]) == (2, 2, "")
    refused = client.post(PLANS, {"moves": -1}, format="json")
    assert (refused.status_code, refused.json()["faults"][0]["path"]) == (422, "moves")
    started = client.post(PLANS, {"moves": 2}, format="json")
    assert (started.status_code, started.json()["state"]) == (201, "running")
    assert client.get(started["Location"]).json()["batches"] == curve["batches"]
    assert client.post(PLANS).status_code == 409
    assert client.post(f"{PLANS}/1/pause").json()["state"] == "paused"
    assert client.post(f"{PLANS}/1/stop").json()["endedReason"] == "Stopped by ana."
    assert client.get(f"{PLANS}/9").status_code == 404
    assert [one["number"] for one in client.get(PLANS).json()["items"]] == [1]

    call_command("rebalance", "web", "--start", stdout=out, stderr=StringIO())
    assert RebalancePlan.objects.latest("number").state == "running"
    with pytest.raises(CommandError, match="no placement is named"):
        call_command("rebalance", "missing", stdout=out)


def test_the_page_of_a_placement_leads_to_its_plan(viewer: Client) -> None:
    world = drifted()
    refresh_staleness(now=world.now)

    message = "Hard spread limits are exceeded: region 6 / 1."
    page = re.sub(r"<[^>]*>", "", viewer.get("/placements/web/").content.decode())
    assert f"{message} Plan the moves" in page

    start_plan("web", moves=None, by=None, now=world.now)
    page = re.sub(r"<[^>]*>", "", viewer.get("/placements/web/").content.decode())
    assert f"{message} Rebalance plan 1 In progress" in page


@pytest.mark.parametrize(
    ("excess", "skew", "affinity", "drawn"),
    [
        ((2, 0), (3, 1), (40, 40), [("excess of hard limits", "y")]),
        ((2, 0), (3, 1), (40, 90), [("excess of hard limits", "y"), ("affinity score", "y2")]),
        ((0, 0), (3, 1), (40, 40), [("skew", "y")]),
        ((0, 0), (1, 1), (40, 90), [("affinity score", "y")]),
    ],
)
def test_the_curve_draws_what_improves(
    excess: tuple[int, ...], skew: tuple[int, ...], affinity: tuple[int, ...], drawn: list[tuple[str, str]]
) -> None:
    curve = tuple(
        CurvePoint(at, 4, excess[at], 0, 0, skew[at], affinity[at], moves=at) for at in range(len(skew))
    )
    chart = curve_chart(MovePlan(4, curve[0], curve, curve[-1], (), is_cut=False))
    assert chart
    assert [(one.name, one.yaxis) for one in chart.figure.data] == drawn
