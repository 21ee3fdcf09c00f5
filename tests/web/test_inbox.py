"""The inbox and the search across hubs: what each person sees, and by how many queries."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from clusters.models import HubCredential, HubGrant, MemberCluster
from placements.models import (
    ApprovalRequest,
    Binding,
    Eviction,
    Placement,
    WaitingRemoval,
)
from placements.services.rollouts.operations import pause
from tests.database import compare_all
from tests.hubs import hub_documents as documents
from tests.hubs.projecting import ProjectedHub
from tests.hubs.test_projection_placements import put_web
from tests.hubs.test_projection_staged import RUN, WAITS, canary, progressing
from tests.rows import joined, person, pick_n_spec, saved
from tests.services.rollouts.world import one_at_a_time, settled_world
from tests.web.reading import page_text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("collected_static")]
MOST_QUERIES = 16
KINDS = {
    "approval-pending",
    "placement-not-fulfilled",
    "rollout-stalled",
    "removal-waits",
    "eviction-not-executed",
    "drift",
    "hub-not-live",
    "credential-expires",
}


def live_with_items(name: str) -> ProjectedHub:
    """Make a live hub whose watcher does not run, with one item of each kind."""
    live, now = ProjectedHub(name), datetime.now(UTC)
    put_web(live)
    status = documents.run_status(
        progressing("UpdateRunStuck"), stages=[canary(afterStageTaskStatus=WAITS)]
    )
    live.put(RUN, {**documents.staged_run("web-1"), "status": status})
    live.put("ClusterApprovalRequest", documents.approval("web-1", "canary"))
    live.put(
        "ClusterResourcePlacementEviction", documents.eviction("gone", "web", "paris")
    )
    live.project()
    with live.scope():
        row = Placement.objects.get(name="web")
        Placement.objects.update(is_fulfilled=False)
        Eviction.objects.update(outcome="not-executed", at=now)
        Binding.objects.filter(placement=row).update(
            drifted_objects=[{"name": "settings"}]
        )
        cluster = MemberCluster.objects.get(name="paris").name
        waits = {
            "objects_count": 1,
            "of_objects": 2,
            "reason": "It is unknown.",
            "noted_at": now,
        }
        WaitingRemoval.objects.create(
            cluster_name=cluster, placement_name="ghost", **waits
        )
        assert ApprovalRequest.objects.filter(approved_at=None).exists()
    HubCredential.objects.create(
        hub=live.hub,
        ciphertext="x",
        kind="token",
        expires_at=now + timedelta(days=3),
        set_by="x",
        set_at=now,
    )
    return live


def queries_of(client: Client, address: str) -> tuple[str, int]:
    with CaptureQueriesContext(connection) as captured:
        text = page_text(client.get(address))
    return text, len(captured)


def test_the_inbox_lists_every_kind_of_all_hubs_by_a_constant_number_of_queries(
    client: Client,
) -> None:
    live_with_items("prod-eu")
    ana = person("ana", "viewer", "cluster-administrator")
    client.force_login(ana)
    compare_all(now=datetime.now(UTC))
    text, few = queries_of(client, "/inbox/")
    live_with_items("prod-us")
    compare_all(now=datetime.now(UTC))

    both, many = queries_of(client, "/inbox/")
    rest = APIClient()
    rest.force_login(ana)
    inbox = rest.get("/api/v1/inbox").json()

    assert "prod-eu" in text
    assert "prod-us" not in text
    assert many == few <= MOST_QUERIES
    listed = {(item["kind"], item["hub"]) for item in inbox["items"]}
    assert listed >= {(kind, hub) for kind in KINDS for hub in ("prod-eu", "prod-us")}
    counts = {count["kind"]: count["count"] for count in inbox["counts"]}
    assert [counts[kind] for kind in sorted(KINDS)] == [2] * len(KINDS)
    for address in (
        "/hubs/prod-us/placements/web/",
        "/hubs/prod-eu/rollouts/staged/runs/web-1/",
    ):
        assert f'href="{address}"' in both
        assert client.get(address).status_code == 200
    assert rest.get("/api/v1/inbox?kind=eviction-not-executed&hub=prod-eu").json()[
        "counts"
    ] == [{"kind": "eviction-not-executed", "count": 1}]
    assert rest.get("/api/v1/inbox?kind=news").status_code == 400


def test_the_inbox_lists_what_fails_until_somebody_pauses_it(client: Client) -> None:
    world = settled_world(3, one_at_a_time())
    client.force_login(person("ana", "viewer"))
    empty = page_text(client.get("/inbox/"))
    assert "Nothing needs attention." in empty
    assert '<a href="/#attention">Overview</a>' in empty

    world.inject("c000", {"kind": "refuse", "objectName": "web"})
    world.change()
    world.pass_time(3)
    compare_all(now=datetime.now(UTC))

    page = page_text(client.get("/inbox/"))
    assert "web: failed on c000" in page
    assert 'id="count-inbox">1<' in page
    pause("web", by=None, now=world.now)
    compare_all(now=datetime.now(UTC))
    items = client.get("/api/v1/inbox").json()["items"]
    assert [(item["noun"], item["name"], item["kind"]) for item in items] == [
        ("placement", "web", "placement-degraded"),
        ("placement", "web", "rollout-held"),
    ]
    assert [item["level"] for item in items] == ["failed", "suspended"]


@pytest.mark.nightly
def test_a_person_sees_items_and_results_of_the_hubs_of_their_grants_only(
    client: Client,
) -> None:
    closed, open_to_some = live_with_items("closed"), live_with_items("granted")
    teams = {name: Group.objects.create(name=name) for name in ("team", "others")}
    HubGrant.objects.create(hub=closed.hub, group=teams["others"], role="viewer")
    HubGrant.objects.create(hub=open_to_some.hub, group=teams["team"], role="viewer")
    bea = person("bea", "viewer")
    bea.groups.add(teams["team"])
    client.force_login(bea)

    inbox, search = (
        page_text(client.get(address)) for address in ("/inbox/", "/search/?q=r")
    )

    assert "granted" in inbox
    assert "closed" not in inbox
    assert "Expiring credentials" not in inbox  # only who may replace them sees those
    assert "on granted" in search
    assert "on closed" not in search
    assert page_text(client.get("/inbox/?hub=closed")).count("/hubs/closed/") == 0


@pytest.mark.nightly
def test_the_navigation_counts_what_the_inbox_of_a_person_has(client: Client) -> None:
    client.force_login(person("ana", "viewer"))
    before = page_text(client.get("/clusters/"))
    live_with_items("prod-eu")
    saved("web", pick_n_spec(2))
    Placement.objects.update(is_fulfilled=False, scheduled="False")
    compare_all(now=datetime.now(UTC))

    after, inbox = (
        page_text(client.get(address)) for address in ("/clusters/", "/inbox/")
    )

    assert 'id="count-inbox"></span>' in before
    sections = re.findall(r'id="show-(\w+)"[^>]*>[^<]*<b>(\d+)</b>', inbox)
    counts = {name: int(number) for name, number in sections}
    assert counts["approve"] == 2  # a stage and a removal
    assert f'id="count-inbox">{counts["approve"] + counts["broken"]}<' in after
    assert inbox.count('<a id="open-') == sum(counts.values())


@pytest.mark.nightly
def test_a_search_names_the_hub_of_each_result_and_opens_the_only_one(
    client: Client,
) -> None:
    put_web(live := ProjectedHub())
    live.project()
    joined("bravelion")
    client.force_login(person("ana", "viewer"))

    listed = page_text(client.get("/search/?q=r"))
    only = client.get("/search/?q=web")
    below = client.get("/hubs/prod-eu/search/?q=bravelion")

    assert "bravelion" in listed
    assert "Cluster on prod-eu" in listed
    assert only.headers["Location"] == "/hubs/prod-eu/placements/web/"
    assert "/clusters/bravelion/" not in page_text(below)
