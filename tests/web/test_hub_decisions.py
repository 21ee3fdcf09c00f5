"""Decisions of a live hub on pages and over REST: the agreement, and what differs."""

import csv
import io
import json
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from rest_framework.test import APIClient

from clusters.models import Hub
from placements.hubs.explain.agreements import DIFFERS_SENTENCE
from tests.database import forget_caches
from tests.hubs.scenarios import RecordedHub
from tests.hubs.test_agreement import planted
from tests.rows import person

pytestmark = pytest.mark.django_db


class DecidedHub:
    """A hub with one decision that was recorded; `differs`: with a wrong score in it."""

    def __init__(self, *, differs: bool) -> None:
        scenario = deepcopy(planted()[0])
        self.listed = scenario["expect"][0]["decisions"]
        self.wrong = next(
            one for one in self.listed if one["affinityScore"] is not None
        )
        if differs:
            self.wrong["affinityScore"] += 1
        self.recorded = RecordedHub(scenario)
        list(self.recorded.steps())
        self.row = self.recorded.observe().row
        hub, now = self.recorded.live.hub, datetime.now(UTC)
        Hub.objects.filter(pk=hub.pk).update(
            lease_expires_at=now + timedelta(minutes=5), state_since=now
        )
        self.mount = f"/hubs/{hub.name}"
        assert self.row.decision
        self.id = self.row.decision.record.decision_id
        self.page = f"{self.mount}/decisions/{self.id}/"


@pytest.fixture
def differing() -> Iterator[DecidedHub]:
    yield DecidedHub(differs=True)
    forget_caches()


@pytest.fixture
def agreeing() -> Iterator[DecidedHub]:
    yield DecidedHub(differs=False)
    forget_caches()


def text(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, (address, answer.status_code)
    return answer.content.decode()


def test_the_block_shows_both_sides_and_what_differs(
    viewer: Client, differing: DecidedHub
) -> None:
    page = text(viewer, differing.page)

    block = page[
        page.index('id="hub-title"') : page.index(
            "</section>", page.index('id="hub-title"')
        )
    ]
    assert "Differs" in block
    assert "Observed: the fleet and the bindings are those that the hub had" in block
    assert "fleet version 1, seen" in block
    assert f"affinity {differing.wrong['affinityScore']}," in block
    assert f"affinity {differing.wrong['affinityScore'] - 1}," in block
    assert f"The hub listed {len(differing.listed)} of" in block
    assert DIFFERS_SENTENCE in page
    assert DIFFERS_SENTENCE in text(
        viewer, f"{differing.page}clusters/{differing.wrong['cluster']}/"
    )


def test_the_differences_can_be_downloaded(
    viewer: Client, differing: DecidedHub
) -> None:
    [row] = csv.DictReader(io.StringIO(text(viewer, f"{differing.page}hub/csv/")))
    document = json.loads(text(viewer, f"{differing.page}hub/json/"))

    assert row["cluster"] == differing.wrong["cluster"]
    assert int(row["hub affinityScore"]) == int(row["replay affinityScore"]) + 1
    assert document["differences"][0]["cluster"] == row["cluster"]
    assert len(document["decisions"]) == len(differing.listed)
    assert (document["agreement"], document["inputs"]) == ("differs", "observed")


def test_the_placement_has_the_agreement_of_its_latest_decision(
    viewer: Client, differing: DecidedHub
) -> None:
    assert DIFFERS_SENTENCE in text(
        viewer, f"{differing.mount}/placements/web/decision/"
    )


def test_a_decision_that_agrees_has_no_differences(
    viewer: Client, agreeing: DecidedHub
) -> None:
    page = text(viewer, agreeing.page)

    assert "Same selection, same scores." in page
    assert DIFFERS_SENTENCE not in page


def test_decisions_of_this_console_have_no_block(
    viewer: Client, decision_id: str
) -> None:
    assert 'id="hub-title"' not in text(viewer, f"/decisions/{decision_id}/")
    assert (
        viewer.get(f"/decisions/{decision_id}/?hub=json")
        .headers["Content-Type"]
        .startswith("text/html")
    )


def test_rest_has_the_agreement(differing: DecidedHub) -> None:
    caller = APIClient()
    caller.force_authenticate(person("vera", "viewer"))

    document = caller.get(
        f"{differing.mount}/api/v1/decisions/{differing.id}/hub"
    ).json()
    assert (document["agreement"], document["differencesCount"]) == ("differs", 1)


def test_a_policy_of_a_newer_api_is_not_comparable(viewer: Client) -> None:
    scenario = {**planted()[0], "steps": [{"policy": {"placementType": "PickMost"}}]}
    recorded = RecordedHub(scenario)
    list(recorded.steps())

    side = recorded.observe()

    assert (side.agreement.value, side.row.decision) == ("not-replayable", None)
    assert side.row.note == "not understood: spec.policy.placementType"
    mount = f"/hubs/{recorded.live.hub.name}"
    page = text(viewer, f"{mount}/placements/web/decision/")
    assert "Not comparable" in page
    assert "not understood: spec.policy.placementType" in page
    text(viewer, f"{mount}/placements/web/history/")
    forget_caches()
