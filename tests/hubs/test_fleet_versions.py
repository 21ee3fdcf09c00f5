"""Versions of the fleet of a live hub: which changes make one, and how long they are kept (4.1)."""

from datetime import timedelta
from typing import Any

import pytest

from clusters.models import BindingChange
from placements.hubs.fleet_versions import fleet_at, version_at
from placements.models import FleetVersion, HubDecision
from placements.services import pruning
from tests.hubs.hub_documents import member, placement
from tests.hubs.projecting import NOW, ProjectedHub

pytestmark = [pytest.mark.django_db, pytest.mark.servers]
CPU = "resources.kubernetes-fleet.io/available-cpu"


@pytest.fixture
def live() -> ProjectedHub:
    hub = ProjectedHub()
    hub.put("MemberCluster", member("paris"), member("rome"))
    hub.project(now=NOW)
    return hub


def versions(live: ProjectedHub) -> list[tuple[int, str]]:
    with live.scope():
        rows = FleetVersion.objects.order_by("number")
        return list(rows.values_list("number", "from_resource_version"))


def using(name: str, cpu: str) -> dict[str, Any]:
    document = member(name)
    document["status"]["resourceUsage"]["available"]["cpu"] = cpu
    return document


def test_changes_within_a_second_are_one_version_unless_a_decision_cites_it(
    live: ProjectedHub,
) -> None:
    live.put("MemberCluster", member("paris", zone="a"))
    live.project(now=NOW + timedelta(seconds=0.9))
    assert versions(live) == [(1, "3")]

    live.put("MemberCluster", member("rome", zone="b"))
    live.project(now=NOW + timedelta(seconds=2))
    with live.scope():
        latest = FleetVersion.objects.latest("number")
        row = HubDecision(placement_name="web", fleet_version=latest, seen_at=NOW)
        row.is_latest = False
        row.pack(decisions=[], bindings=[])
        row.save()
    live.remove("MemberCluster", "paris")
    live.project(now=NOW + timedelta(seconds=2.5))

    assert versions(live)[1:] == [(2, "4"), (3, "5")]
    with live.scope():
        found = version_at("5", NOW + timedelta(days=1))
        assert found is not None
        assert (found.number, fleet_at(found).names) == (2, ("paris", "rome"))
        assert version_at("3", NOW) is None


def test_readings_make_a_version_only_if_a_policy_reads_them(
    live: ProjectedHub,
) -> None:
    later = NOW + timedelta(minutes=1)
    live.put("MemberCluster", using("paris", "1"))
    live.project(now=later)
    assert len(versions(live)) == 1

    sorter = {"propertySorter": {"name": CPU, "sortOrder": "Descending"}}
    preferred = [{"weight": 10, "preference": sorter}]
    document = placement("web")
    document["spec"]["policy"]["affinity"] = {
        "clusterAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": preferred
        }
    }
    live.put("ClusterResourcePlacement", document)
    live.project(now=later + timedelta(seconds=2))
    live.put("MemberCluster", using("paris", "2"))
    live.project(now=later + timedelta(seconds=4))

    assert len(versions(live)) == 3
    with live.scope():
        read = FleetVersion.objects.order_by("number").values_list(
            "changes__properties", flat=True
        )
        assert list(read) == [[], [CPU], [CPU]]


@pytest.mark.servers_only
def test_old_versions_and_changes_of_bindings_are_pruned_unless_cited(
    live: ProjectedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 6):
        live.put("MemberCluster", member("paris", zone=str(number)))
        live.project(now=NOW + timedelta(minutes=number))
    with live.scope():
        cited = FleetVersion.objects.get(number=2)
        row = HubDecision(placement_name="web", fleet_version=cited, seen_at=NOW)
        row.is_latest = True
        row.pack(decisions=[], bindings=[])
        row.save()
        BindingChange.objects.create(
            owner="web", cluster="paris", uid="u", resource_version="1", seen_at=NOW
        )

    monkeypatch.setattr(pruning, "FLEET_VERSIONS", 3)
    pruning.prune(now=NOW + timedelta(days=1))
    assert [version[0] for version in versions(live)] == [2, 4, 5, 6]

    counts = pruning.prune(now=NOW + timedelta(days=31))
    assert [version[0] for version in versions(live)] == [2, 6]
    assert (counts["fleet versions"], counts["binding changes"]) == (2, 1)
