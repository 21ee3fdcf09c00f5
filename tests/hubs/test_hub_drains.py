"""Drains of clusters of a live hub: who is evicted when, what is repeated, when it ends (13.7)."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from fleetui.hub_scope import in_hub
from placements.hubs.actions import (
    advance_hub_drains,
    cancel_hub_drain,
    start_hub_drain,
)
from placements.hubs.writing.sending import NotWritableError
from placements.models import Drain
from tests.hubs.hub_documents import binding, placement
from tests.hubs.writable import WritableHub, operator, writable_hub

pytestmark = pytest.mark.django_db
EVICTIONS = ("placement.kubernetes-fleet.io", "clusterresourceplacementevictions")


@pytest.fixture
def hub() -> Iterator[WritableHub]:
    with writable_hub() as found:
        fixed = placement("fixed")
        fixed["spec"]["policy"] = {
            "placementType": "PickFixed",
            "clusterNames": ["east"],
        }
        found.put("ClusterResourcePlacement", fixed)
        found.put("ClusterResourcePlacement", placement("api"))
        for name in ("fixed", "api"):
            found.put("ClusterResourceBinding", binding(name, "east", state="Bound"))
        found.projected.project()
        found.change(
            lease_expires_at=datetime.now(UTC) + timedelta(hours=1), state="live"
        )
        yield found


def evictions(hub: WritableHub) -> list[str]:
    found = hub.fake.objects.get(EVICTIONS, {}).values()
    return [document["spec"]["placementName"] for document in found]


def settle(hub: WritableHub, executed: str) -> None:
    """Decide the pending evictions on the hub, and update the mirror."""
    for one in list(hub.fake.objects.get(EVICTIONS, {}).values()):
        if "status" not in one:
            conditions = [
                {"type": "Valid", "status": "True"},
                {"type": "Executed", "status": executed},
            ]
            hub.put(
                "ClusterResourcePlacementEviction",
                {**one, "status": {"conditions": conditions}},
            )


def steps(hub: WritableHub) -> dict[str, str]:
    with in_hub(hub.hub.pk):
        [drain] = Drain.objects.all()
        return {step.placement_name: step.state for step in drain.steps.all()}


def mirror_cordon(hub: WritableHub) -> None:
    hub.put("MemberCluster", hub.fake.get("memberclusters", "east"))
    hub.projected.project()


def test_a_drain_cordons_and_evicts_one_after_another(hub: WritableHub) -> None:
    now = datetime.now(UTC)
    start_hub_drain(hub.hub, "east", by=operator(), now=now)
    assert [
        taint["key"]
        for taint in hub.fake.get("memberclusters", "east")["spec"]["taints"]
    ] == ["cordon-key"]
    mirror_cordon(hub)

    for _ in range(3):  # nothing more while the first one is in progress
        now += timedelta(seconds=6)
        advance_hub_drains(now=now)
        assert evictions(hub) == ["api"]
    assert steps(hub) == {"api": "waiting", "web": "waiting", "fixed": "stays"}

    settle(hub, "True")
    hub.projected.remove(
        "ClusterResourceBinding", binding("api", "east")["metadata"]["name"]
    )
    hub.projected.project()
    advance_hub_drains(now=now + timedelta(seconds=6))
    assert sorted(evictions(hub)) == ["api", "web"]
    settle(hub, "True")
    hub.projected.remove(
        "ClusterResourceBinding", binding("web", "east")["metadata"]["name"]
    )
    hub.projected.project()
    advance_hub_drains(now=now + timedelta(seconds=12))

    assert steps(hub) == {"api": "gone", "web": "gone", "fixed": "stays"}
    with in_hub(hub.hub.pk):
        assert Drain.objects.get().state == "done"
    assert {write.requested_by for write in hub.writes()} == {"ana"}
    assert [write.verb for write in hub.writes()] == ["patch", "create", "create"]


def test_a_blocked_eviction_is_repeated_after_a_minute_with_a_new_object(
    hub: WritableHub,
) -> None:
    budget = {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": "ClusterResourcePlacementDisruptionBudget",
        "metadata": {"name": "api"},
        "spec": {"minAvailable": 1},
    }
    hub.put("ClusterResourcePlacementDisruptionBudget", budget)
    now = datetime.now(UTC)
    start_hub_drain(
        hub.hub, "east", by=operator(), now=now, deadline=now + timedelta(minutes=5)
    )
    mirror_cordon(hub)
    advance_hub_drains(now=now + timedelta(seconds=6))
    settle(hub, "False")

    advance_hub_drains(now=now + timedelta(seconds=12))
    with in_hub(hub.hub.pk):
        step = Drain.objects.get().steps.get(placement_name="api")
    assert (step.state, step.why) == ("blocked", "over-budget")
    assert step.numbers == {"available": 1, "total": 1, "wanted": 2, "allowed": 0}
    assert evictions(hub).count("api") == 1
    assert evictions(hub).count("web") == 1  # it has room meanwhile

    settle(hub, "False")
    later = now + timedelta(seconds=75)
    advance_hub_drains(now=later)
    assert evictions(hub).count("api") + evictions(hub).count("web") == 3
    names = [one["metadata"]["name"] for one in hub.fake.objects[EVICTIONS].values()]
    assert len(set(names)) == 3

    advance_hub_drains(now=now + timedelta(minutes=6))
    with in_hub(hub.hub.pk):
        drain = Drain.objects.get()
    assert (drain.state, drain.ended_reason) == (
        "expired",
        "the deadline passed with 2 left",
    )
    count = len(hub.sent())
    advance_hub_drains(now=now + timedelta(minutes=8))
    assert len(hub.sent()) == count


@pytest.mark.nightly
@pytest.mark.parametrize(
    "columns", [{"state": "stale"}, {"is_paused": True}, {"mode": "read"}]
)
def test_no_step_starts_while_the_hub_is_not_live_or_not_writable(
    hub: WritableHub, columns: dict[str, Any]
) -> None:
    now = datetime.now(UTC)
    start_hub_drain(hub.hub, "east", by=operator(), now=now)
    hub.change(**columns)
    count = len(hub.sent())

    assert advance_hub_drains(now=now + timedelta(seconds=6)) == 0
    assert len(hub.sent()) == count
    if columns != {"state": "stale"}:
        with pytest.raises(NotWritableError):
            start_hub_drain(hub.hub, "west", by=operator(), now=now)


def test_a_drain_stops_with_its_person_its_cordon_or_by_cancel(
    hub: WritableHub,
) -> None:
    now = datetime.now(UTC)
    start_hub_drain(hub.hub, "east", by=operator(), now=now)
    mirror_cordon(hub)
    User.objects.filter(username="ana").update(is_active=False)
    advance_hub_drains(now=now + timedelta(seconds=6))
    with in_hub(hub.hub.pk):
        assert Drain.objects.get().ended_reason == "ana has no account"
    assert evictions(hub) == []

    ben = operator("ben")
    start_hub_drain(hub.hub, "west", by=ben, now=now)
    hub.put("MemberCluster", hub.fake.get("memberclusters", "west"))
    cancel_hub_drain(hub.hub, "west", by=ben, now=now)
    advance_hub_drains(now=now + timedelta(seconds=60))
    assert evictions(hub) == []
    assert hub.fake.get("memberclusters", "west")["spec"]["taints"]

    start_hub_drain(hub.hub, "east", by=ben, now=now)
    ben.groups.clear()
    advance_hub_drains(now=now + timedelta(seconds=6))
    with in_hub(hub.hub.pk):
        drain = Drain.objects.filter(started_by="ben", cluster_name="east").get()
    assert drain.state == "cancelled"
    assert "Required role: operator" in drain.ended_reason
    assert evictions(hub) == []
