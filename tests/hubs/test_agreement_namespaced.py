"""ResourcePlacements of a live hub: replayed with their namespace, which clusters may lack.

See `rules/live-hub.md#objects-of-a-hub`.
"""

from datetime import timedelta
from typing import Any

import pytest

from clusters.models import HubStream
from placements.hubs.replay.observed_decisions import observe_due, replayed
from placements.models import HubDecision, Placement
from tests.hubs.hub_documents import PREFIX
from tests.hubs.projecting import ProjectedHub
from tests.hubs.scenarios import START, member_document, target

pytestmark = [pytest.mark.django_db, pytest.mark.servers_nightly]
HERE = {"namespace": "shop"}
MISSING = "ClusterUnschedulable, target namespace does not exist on cluster"
UNKNOWN = "ClusterUnschedulable, cluster has no namespace information available"


def seeing(name: str, *names: str, is_known: bool = True) -> dict[str, Any]:
    """Return a member that collects its namespaces, even if the collection is degraded."""
    document = member_document({"name": name})
    collection = {
        "type": "NamespaceCollectionSucceeded",
        "status": "False",
        "reason": "Degraded",
    }
    document["status"]["conditions"] = [collection]
    if is_known:
        document["status"]["namespaces"] = dict.fromkeys(names, "work")
    return document


def line(name: str, reason: str = "") -> dict[str, Any]:
    words = f'Successfully scheduled resources for placement in "{name}"'
    words += (
        " (affinity score: 0, topology spread score: 0): picked by scheduling policy"
    )
    score = None if reason else 0
    scores = {"affinityScore": score, "topologySpreadScore": score}
    return {
        "cluster": name,
        "selected": not reason,
        **scores,
        "reason": reason or words,
    }


@pytest.mark.nightly
@pytest.mark.parametrize(("wrong", "agreement"), [("", "agrees"), (UNKNOWN, "differs")])
def test_the_namespace_filter_is_replayed(wrong: str, agreement: str) -> None:
    now = START + timedelta(minutes=10)
    live = ProjectedHub(lease_expires_at=START + timedelta(days=1))
    live.mirror._clock = lambda: now
    members = [
        seeing("blind", is_known=False),
        seeing("empty"),
        seeing("full", "shop", "web"),
    ]
    live.put("MemberCluster", *members, member_document({"name": "silent"}))
    live.project(now=now)
    with live.scope():
        HubStream.objects.update(listed_at=START)
    now += timedelta(minutes=1)
    written = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    labels = {f"{PREFIX}parent-CRP": "web"}
    policy = {"placementType": "PickN"}
    selector = {"group": "", "version": "v1", "kind": "ConfigMap", "name": "settings"}
    spec = {
        "resourceSelectors": [selector],
        "policy": {**policy, "numberOfClusters": 3},
    }
    live.put(
        "ResourcePlacement",
        {
            "metadata": {"name": "web", **HERE, "creationTimestamp": written},
            "spec": spec,
        },
    )
    for name in ("silent", "full"):
        scores = {"affinityScore": 0, "priorityScore": 0}
        content = {
            "state": "Scheduled",
            "targetCluster": name,
            "schedulingPolicySnapshotName": "web-0",
            "clusterDecision": {
                "clusterName": name,
                "selected": True,
                "clusterScore": scores,
            },
        }
        live.put(
            "ResourceBinding",
            {
                "metadata": {"name": f"web-{name}", "labels": labels, **HERE},
                "spec": content,
            },
        )
    message = "could not find all clusters needed as specified by the scheduling policy, found 2 cluster(s) instead"
    condition = {
        "type": "Scheduled",
        "status": "False",
        "reason": "SchedulingPolicyUnfulfilled",
        "message": message,
    }
    listed = [
        line("silent"),
        line("full"),
        line("blind", UNKNOWN),
        line("empty", wrong or MISSING),
    ]
    index = {f"{PREFIX}policy-index": "0", f"{PREFIX}is-latest-snapshot": "true"}
    notes = {f"{PREFIX}number-of-clusters": "3"}
    live.put(
        "SchedulingPolicySnapshot",
        {
            "metadata": {
                "name": "web-0",
                "labels": {**labels, **index},
                "annotations": notes,
                **HERE,
            },
            "spec": {"policyHash": "aGFzaA==", "policy": policy},
            "status": {
                "observedCRPGeneration": 1,
                "conditions": [{**condition, "lastTransitionTime": written}],
                "targetClusters": list(map(target, listed)),
            },
        },
    )
    live.project(now=now)

    with live.scope():
        while observe_due(now=now + timedelta(seconds=4)):
            pass
        row = HubDecision.objects.get(
            placement=Placement.objects.get(full_name="shop/web")
        )
        side = replayed(row)
    assert (side.agreement.value, row.inputs, row.placement_name) == (
        agreement,
        "observed",
        "shop/web",
    )
    assert [difference["cluster"] for difference in side.differences] == (
        ["empty"] if wrong else []
    )
