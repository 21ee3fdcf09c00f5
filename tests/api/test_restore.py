"""What comes back to a cluster that was drained, and rescheduling, over REST."""

import pytest
from rest_framework.test import APIClient

from clusters.operations.edit import uncordon
from placements.models import PolicySnapshot
from tests.rows import all_joined, decided, pick_n_spec
from tests.services.rollouts.test_restore import drained

pytestmark = pytest.mark.django_db


@pytest.mark.nightly
def test_bring_back_lists_and_reschedule_does(api: APIClient) -> None:
    world = drained()

    rows = api.get("/api/v1/clusters/c000/restore").json()

    assert rows["cordoned"] is True
    first = rows["placements"][0]
    fresh = first.pop("fresh")
    assert first == {
        "placement": "spread",
        "how": "rescheduled",
        "message": "Would be selected if rescheduled, replacing c001.",
    }
    assert (fresh["fate"], fresh["isFulfilled"]) == ("moves", True)
    assert (fresh["joins"], fresh["leaves"]) == (["c000"], ["c001"])
    uncordon(["c000"], by=None, now=world.now)
    fresh = api.get("/api/v1/placements/spread/reschedule").json()
    assert (fresh["joins"], fresh["leaves"]) == (["c000"], ["c001"])
    done = api.post("/api/v1/placements/spread/reschedule")
    assert (done.status_code, done.json()["revision"]) == (202, 2)
    assert PolicySnapshot.objects.filter(placement__name="spread").count() == 2
    assert api.post("/api/v1/placements/fixed/reschedule").status_code == 409
    assert api.get("/api/v1/clusters/none/restore").status_code == 404


def test_rescheduling_honours_if_match_and_requires_confirmation_before_it_empties(
    api: APIClient,
) -> None:
    all_joined("a", "b")
    decided("db", pick_n_spec(1))
    address = "/api/v1/placements/db/reschedule"
    assert api.post(address, headers={"If-Match": '"7"'}).status_code == 412
    for cluster in "ab":
        api.post(f"/api/v1/clusters/{cluster}/cordon")

    refused = api.post(address)

    assert refused.json()["placements"] == [{"placement": "db", "clusters": ["b"]}]
    assert api.post(f"{address}?confirm=unschedule-everything").status_code == 202
