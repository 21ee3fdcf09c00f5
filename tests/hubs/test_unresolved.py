"""What of a live hub is not shown, or not completely: on its page, in the list of hubs, over REST."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from clusters.models import HubStream, MirroredObject
from placements.hubs.projection.operations import unresolved_counts
from tests.hubs.hub_documents import binding, member, placement, snapshot
from tests.hubs.projecting import NOW, ProjectedHub
from tests.hubs.test_projection_placements import changed

pytestmark = pytest.mark.django_db
ABOUT = "/hubs/prod-eu/about/"


@pytest.fixture
def live() -> ProjectedHub:
    """Return a hub with two unresolved objects: one field of a newer version, and a policy of one."""
    found = ProjectedHub()
    found.put("MemberCluster", member("paris"))
    found.put(
        "ClusterResourcePlacement", changed(placement("web"), spec={"newField": 1})
    )
    odd = snapshot("web")
    odd["spec"]["policy"]["placementType"] = "PickBest"
    found.put("ClusterSchedulingPolicySnapshot", odd)
    found.project()
    return found


@pytest.mark.nightly
@pytest.mark.usefixtures("live")
@pytest.mark.servers
def test_the_page_lists_kind_name_path_and_reason(admin_client: Client) -> None:
    page = admin_client.get(ABOUT).content.decode()

    assert "Unresolved" in page
    for words in (
        "spec.newField",
        "the policy is not understood",
        "web-0",
        "Shown without these fields",
    ):
        assert words in page
    assert (
        f'href="{ABOUT}#unresolved">2<' in admin_client.get("/hubs/").content.decode()
    )


def test_a_hub_that_is_understood_has_no_such_part(admin_client: Client) -> None:
    ProjectedHub().put("MemberCluster", member("paris"))

    assert "Unresolved</h2>" not in admin_client.get(ABOUT).content.decode()
    assert admin_client.get("/api/v1/hubs/prod-eu").json()["unresolved"] == 0


@pytest.mark.usefixtures("live")
def test_rest_lists_them_by_page(admin_client: Client) -> None:
    assert admin_client.get("/api/v1/hubs/prod-eu").json()["unresolved"] == 2
    first = admin_client.get("/api/v1/hubs/prod-eu/unresolved?limit=1").json()
    (one,) = first["items"]
    assert one == {
        "group": "placement.kubernetes-fleet.io",
        "kind": "ClusterResourcePlacement",
        "namespace": "",
        "name": "web",
        "paths": ["spec.newField"],
        "reason": "",
    }
    second = admin_client.get(first["next"]).json()
    assert [item["reason"] for item in second["items"]] == [
        "the policy is not understood"
    ]
    assert second["next"] is None
    assert (
        admin_client.get("/api/v1/hubs/prod-eu/unresolved?color=red").status_code == 400
    )


def test_an_object_without_its_placement_is_unresolved_after_an_hour() -> None:
    live = ProjectedHub()
    live.put("ClusterResourceBinding", binding("later", "paris"))
    live.project()

    def count(now: datetime) -> int:
        return unresolved_counts([live.hub.pk], now=now).get(live.hub.pk, 0)

    assert (count(NOW + timedelta(minutes=59)), count(NOW + timedelta(minutes=61))) == (
        0,
        1,
    )
    live.put("ClusterResourcePlacement", placement("later"))
    live.project()
    assert count(NOW + timedelta(minutes=61)) == 0


@pytest.mark.servers
def test_two_hubs_do_not_mix(live: ProjectedHub, admin_client: Client) -> None:
    other = ProjectedHub("prod-us")
    other.put(
        "ClusterResourcePlacement", changed(placement("shop"), spec={"otherField": 1})
    )
    other.project()

    page = admin_client.get("/hubs/prod-us/about/").content.decode()

    assert "spec.otherField" in page
    assert "spec.newField" not in page
    with live.scope():
        assert MirroredObject.objects.filter(is_unresolved=True).count() == 2


def test_a_kind_that_fails_shows_when_it_is_tried_again(
    live: ProjectedHub, admin_client: Client
) -> None:
    at = datetime.now(UTC) + timedelta(minutes=3)
    with live.scope():
        HubStream.objects.filter(kind="MemberCluster").update(
            state="failing", error="refused", retry_at=at, is_required=True
        )

    page = admin_client.get(ABOUT).content.decode()
    assert re.search(r"Next attempt in <[^>]+>(3m|2m59s|2m5\ds)<", page)
    assert (
        admin_client.get("/api/v1/hubs/prod-eu").json()["retryAt"]
        == f"{at:%Y-%m-%dT%H:%M:%S.%f}Z"
    )


def test_the_list_of_hubs_has_pages(admin_client: Client) -> None:
    for name in ("a", "b", "c"):
        ProjectedHub(name)

    first = admin_client.get("/api/v1/hubs?limit=2").json()
    second = admin_client.get(first["next"]).json()

    assert [item["name"] for item in first["items"] + second["items"]] == [
        "a",
        "b",
        "c",
    ]
    assert second["next"] is None
    assert admin_client.get("/api/v1/hubs?limit=0").status_code == 400
