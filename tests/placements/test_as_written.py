"""Documents come back as they were written, key by key, on every database (`docs/adr/0006`)."""

import json
from typing import Any

import pytest

from clusters.models import MemberCluster
from clusters.operations.joining import Wanted, put_clusters
from placements.models import Placement, Resource
from placements.operations.placements import save_placement
from placements.operations.resources import apply_resources
from placements.queries.headroom import stale_placements
from tests.rows import NOW, namespace, spec

pytestmark = [pytest.mark.django_db, pytest.mark.servers]


def backwards(document: dict[str, Any]) -> dict[str, Any]:
    """Write the keys of a document in the order of the alphabet turned round."""
    return {key: _turned(document[key]) for key in sorted(document, reverse=True)}


def _turned(value: Any) -> Any:
    return backwards(value) if isinstance(value, dict) else value


def test_a_placement_keeps_the_order_of_its_keys() -> None:
    document = backwards(
        {
            "apiVersion": "placement.kubernetes-fleet.io/v1",
            "kind": "ClusterResourcePlacement",
            "metadata": {"name": "web", "labels": {"b": "1", "aaaa": "2"}},
            "spec": spec({"placementType": "PickN", "numberOfClusters": 1}),
        }
    )

    save_placement(document, by=None, now=NOW)

    assert json.dumps(Placement.objects.get().document) == json.dumps(document)
    assert stale_placements(most=5) == ([], 0)


def test_a_resource_keeps_the_order_of_its_keys_through_a_change_of_many() -> None:
    shops = [backwards(namespace(name, tier="one", b="2")) for name in ("shop", "bank")]
    changed = [backwards(namespace(name, tier="two", b="2")) for name in ("shop", "bank")]

    apply_resources(shops, by=None, now=NOW)
    apply_resources(changed, by=None, now=NOW)

    written = {one["metadata"]["name"]: json.dumps(one) for one in changed}
    assert {row.name: json.dumps(row.content) for row in Resource.objects.all()} == written


def test_a_cluster_keeps_the_order_of_its_keys() -> None:
    document = backwards(
        {
            "apiVersion": "cluster.kubernetes-fleet.io/v1",
            "kind": "MemberCluster",
            "metadata": {"name": "a", "labels": {"z": "1", "bb": "2"}},
            "spec": {"identity": {"name": "agent", "kind": "User"}},
        }
    )

    put_clusters([Wanted(document)], by=None, now=NOW)

    assert json.dumps(MemberCluster.objects.get().document) == json.dumps(document)
