"""Sets, scores and times of taints that are stored count as they do in a simulation of the same files."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django.utils.dateparse import parse_datetime

from clusters.hub_objects import is_hub_object
from clusters.models import ClusterSetObject, MemberCluster
from clusters.operations.importing import import_members
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.yaml import dump_yaml
from placements.engine.scheduling.reason import ReasonCode
from placements.manifests.placement import parse_placement
from placements.models import Decision, Placement
from placements.services.cluster_imports import read_import
from placements.services.decisions.records import (
    decision_of,
    fault_of,
    outcomes_of,
)
from placements.services.editor.preview import preview
from placements.services.filters import kinds_for
from placements.services.fleet_events import enqueue_affected_placements
from placements.services.placements import save_placement
from placements.services.scheduling import schedule_due
from placements.services.simulate.request import Request, RequestSource, simulate
from tests.caches import forget_cached_records
from tests.database import forget_caches
from tests.rows import NOW, placed, run_due

pytestmark = pytest.mark.django_db
RECORDED = Path("/work/shared/conformance/ocm-scheduler.jsonl")
GROUP = "cluster.open-cluster-management.io"
Plain = dict[str, Any]


def of_hub(kind: str, name: str, namespace: str = "", **fields: Any) -> Plain:
    version = "v1beta2"
    if kind == "AddOnPlacementScore":
        version = "v1alpha1"
    if kind == "ManagedCluster":
        version = "v1"
    metadata = {"name": name, "namespace": namespace, **fields.pop("metadata", {})}
    metadata = {key: value for key, value in metadata.items() if value}
    return {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": metadata} | (
        fields
    )


def cluster(name: str, *, of: str = "", taints: Any = (), **labels: str) -> Plain:
    if of:
        labels[f"{GROUP}/clusterset"] = of
    metadata = {"labels": labels}
    spec = {"hubAcceptsClient": True, "taints": [*taints]}
    return of_hub("ManagedCluster", name, metadata=metadata, spec=spec)


def score(cluster: str, value: int, until: str = "") -> Plain:
    status: Plain = {"scores": [{"name": "free", "value": value}]}
    if until:
        status["validUntil"] = until
    return of_hub("AddOnPlacementScore", "usage", cluster, status=status)


BOUND = [
    of_hub("ManagedClusterSet", "prod", spec={}),
    of_hub("ManagedClusterSetBinding", "prod", "apps", spec={"clusterSet": "prod"}),
]


def placement(name: str = "web", **spec: Any) -> Plain:
    metadata = {"name": name, "namespace": "apps"}
    version = f"{GROUP}/v1beta1"
    return {
        "apiVersion": version,
        "kind": "Placement",
        "metadata": metadata,
        "spec": spec,
    }


def by_score(**fields: Any) -> Plain:
    coordinate = {
        "type": "AddOn",
        "addOn": {"resourceName": "usage", "scoreName": "free"},
    }
    weights = [{"scoreCoordinate": coordinate, "weight": 1}]
    policy = {"mode": "Exact", "configurations": weights}
    return placement(prioritizerPolicy=policy, **fields)


def text_of(*objects: Mapping[str, Any]) -> bytes:
    return "---\n".join(map(dump_yaml, objects)).encode()


def put(*objects: Mapping[str, Any], now: datetime = NOW) -> list[tuple[str, str]]:
    """Import these objects; return what was done with each."""
    found = read_import(text_of(*objects), name="hub.yaml")
    outcome = import_members(found, kinds_of=kinds_for, by=None, now=now)
    enqueue_affected_placements()
    return [
        (result.name, str(result.result))
        for result in (*outcome.clusters, *outcome.objects)
    ]


def save(document: Plain, *, after: timedelta = timedelta()) -> Placement:
    save_placement(document, by=None, now=NOW)
    run_due(after=after)
    return Placement.objects.get(name=document["metadata"]["name"])


def ids_of(row: Placement) -> list[str]:
    rows = Decision.objects.filter(placement=row).order_by("number")
    return list(rows.values_list("record__decision_id", flat=True))


def later(**time: int) -> str:
    return (NOW + timedelta(**time)).isoformat()


def recorded_cases() -> Iterator[Plain]:
    """Yield the cases that are decided from stored objects alone: without decisions of before."""
    for line in RECORDED.read_bytes().splitlines():
        case = json.loads(line)
        kinds = {one["kind"] for one in case["objects"]}
        is_decided = case["expect"].get("scheduled") is not False
        if "PlacementDecision" in kinds or not is_decided:
            continue
        spec = case["placement"]["spec"]
        reads = json.dumps([spec, case["objects"]])
        words = ("AddOn", "tolerationSeconds", "celSelector", "clusterSelector")
        if "ManagedCluster" in kinds and any(word in reads for word in words):
            yield case


@pytest.mark.skipif(not RECORDED.exists(), reason="the recording is not here")
def test_the_stored_fleet_is_decided_as_its_files_are() -> None:
    differing = {}
    compared = 0
    for case in recorded_cases():
        now = parse_datetime(case["now"])
        assert now is not None
        document = {
            "apiVersion": f"{GROUP}/v1beta1",
            "kind": "Placement",
            **case["placement"],
        }
        files: dict[str, Any] = {
            "clusters": RequestSource("c", text_of(*case["objects"])),
            "placement": RequestSource("p", text_of(document)),
        }
        with transaction.atomic():
            try:
                expected = simulate(Request(**files, now=now)).decision
                save_placement(document, by=None, now=now)
                put(*case["objects"], now=now)
            except (InvalidManifest, ValueError):
                transaction.set_rollback(True)
                continue
            schedule_due(now=now)
            row = Decision.objects.select_related("record").get()
            stored = decision_of(row)
            if stored.picked_names != expected.picked_names or fault_of(row.record):
                differing[case["id"]] = stored.picked_names, expected.picked_names
            compared += 1
            transaction.set_rollback(True)
        forget_caches()

    assert differing == {}
    assert compared > 50


def test_a_set_decides_and_a_change_of_it_decides_again() -> None:
    put(*BOUND, cluster("a", of="prod"), cluster("b", of="test"))

    row = save(placement())
    first = placed(row)
    test = of_hub("ManagedClusterSet", "test", spec={})
    bound = of_hub("ManagedClusterSetBinding", "test", "apps", spec={})
    did = put(test, bound)
    run_due()

    assert (first, placed(row)) == (["a"], ["a", "b"])
    assert did == [
        ("ManagedClusterSet test", "joined"),
        ("ManagedClusterSetBinding apps/test", "joined"),
    ]
    assert put(test, bound) == [(name, "unchanged") for name, _ in did]
    assert len(set(ids_of(row))) == len(ids_of(row)) == 2


def test_a_cluster_outside_of_its_sets_is_explained() -> None:
    put(*BOUND, cluster("a", of="prod"), cluster("b"))

    row = save(placement())
    decision = Decision.objects.get(placement=row)
    (outside,) = [
        outcome for outcome in outcomes_of(decision) if outcome.cluster == "b"
    ]

    assert outside.reasons[0].code is ReasonCode.NOT_IN_CLUSTER_SET
    assert outside.reasons[0].facts == {"sets": ["prod"], "leaving": False}


def test_a_label_of_a_set_decides_again() -> None:
    put(*BOUND, cluster("a", of="prod"), cluster("b"))
    row = save(placement())

    put(cluster("b", of="prod"))
    run_due()

    assert placed(row) == ["a", "b"]


def test_a_changed_score_gives_a_new_id_and_an_equal_one_does_not() -> None:
    put(cluster("a"), cluster("b"), score("a", 50, later(hours=1)), score("b", 10))
    row = save(by_score(numberOfClusters=1))
    first = placed(row)

    for hours in (2, 3):
        put(score("a", 50, later(hours=hours)))
        run_due()
    put(score("b", 90))
    run_due()

    assert (first, placed(row)) == (["a"], ["b"])
    new, settled, renewed, changed = ids_of(row)
    assert new != settled  # it has a cluster by then
    assert settled == renewed != changed


def test_the_end_of_a_score_is_due_and_decides_again() -> None:
    put(cluster("a"), cluster("b"), score("a", 50, later(minutes=30)), score("b", 10))
    row = save(by_score(numberOfClusters=1))

    before = run_due(after=timedelta(minutes=30))
    at_its_end = placed(row)
    after = run_due(after=timedelta(minutes=30, seconds=1))
    forget_cached_records()
    decisions = list(Decision.objects.filter(placement=row).select_related("record"))

    assert (before, at_its_end) == (0, ["a"])
    assert (after, placed(row)) == (1, ["b"])
    assert [fault_of(decision.record) for decision in decisions] == ["", ""]
    row.refresh_from_db()
    assert row.trigger == "a score or a toleration ended"
    assert row.decide_again_at is None


def test_the_end_of_a_toleration_is_due_and_deselects() -> None:
    taint = {"key": "gpu", "effect": "NoSelect", "timeAdded": later()}
    tolerated = [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 60}]
    put(cluster("a", taints=[taint]), cluster("b"))
    row = save(placement(tolerations=tolerated))

    first = placed(row)
    early = run_due(after=timedelta(seconds=59))
    late = run_due(after=timedelta(seconds=60))

    assert (first, early, late) == (["a", "b"], 0, 1)
    assert placed(row) == ["b"]


def test_an_expression_reads_the_object_of_the_hub_and_the_labels_of_today() -> None:
    reads = [
        "managedCluster.spec.leaseDurationSeconds == 60",
        'managedCluster.metadata.labels["env"] == "prod"',
        'managedCluster.scores("usage").exists(s, s.value > 5)',
    ]
    selector = {"celSelector": {"celExpressions": reads}}
    spec: Plain = {"predicates": [{"requiredClusterSelector": selector}]}
    a = cluster("a", env="prod")
    a["spec"]["leaseDurationSeconds"] = 60
    put(a, cluster("b", env="prod"), score("a", 6), score("b", 6))
    row = save(placement(**spec))
    first = placed(row)

    document = MemberCluster.objects.get(name="a").document
    document["metadata"]["labels"]["env"] = "test"
    put(document)
    run_due()

    assert (first, placed(row)) == (["a"], [])
    assert len(set(ids_of(row))) == 2


def test_what_is_missing_is_a_warning_before_saving_and_names_it() -> None:
    seconds = [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 60}]
    taint = {"key": "gpu", "effect": "NoSelect"}
    put(*BOUND, cluster("a", of="prod", taints=[taint]), score("a", 5))
    draft = by_score(clusterSets=["prod", "gone"], tolerations=seconds)
    put(cluster("b", of="prod"))

    shown = preview(parse_placement(draft))
    warned = {
        (warning.code, warning.path): warning.message
        for warning in shown.warnings
        if warning.code in ("missing-object", "missing-score")
    }
    put(score("b", 7), of_hub("ManagedClusterSet", "gone", spec={}))
    put(of_hub("ManagedClusterSetBinding", "gone", "apps", spec={}))
    again = preview(parse_placement(by_score(clusterSets=["gone"])))

    assert warned == {
        ("missing-object", "spec.clusterSets"): (
            "no ManagedClusterSet gone is bound to the namespace"
        ),
        ("missing-score", "spec.prioritizerPolicy"): (
            "no AddOnPlacementScore usage with free that is valid on 1 cluster (b): it counts as 0"
        ),
        ("missing-object", "spec.tolerations[0].tolerationSeconds"): (
            "no timeAdded of the taint on 1 cluster (a): it is not tolerated"
        ),
    }
    assert not [
        warning for warning in again.warnings if warning.code == "missing-object"
    ]


def test_the_import_keeps_what_it_does_not_name() -> None:
    put(*BOUND, cluster("a", of="prod"), score("a", 5))
    other = score("a", 6)
    other["metadata"]["name"] = "other"

    put(other)
    put(cluster("a", of="prod"))

    managed: Any = MemberCluster.objects.get(name="a").managed
    assert {name: one["values"] for name, one in managed["scores"].items()} == {
        "usage": {"free": 5},
        "other": {"free": 6},
    }
    assert ClusterSetObject.objects.count() == 2


def test_scores_of_another_fleet_are_not_stored() -> None:
    found = read_import(text_of(cluster("a"), score("z", 1)), name="x.yaml")

    outcome = import_members(found, kinds_of=kinds_for, by=None, now=NOW)

    assert [
        (join_result.name, join_result.detail) for join_result in outcome.objects
    ] == [("scores of z", "not stored: the cluster is not in the fleet")]


def test_a_set_that_no_placement_could_be_decided_by_is_refused() -> None:
    bad = {"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]}
    chosen = {"selectorType": "LabelSelector", "labelSelector": bad}
    document = of_hub("ManagedClusterSet", "prod", spec={"clusterSelector": chosen})

    with pytest.raises(InvalidManifest) as raised:
        read_import(text_of(document), name="x.yaml")

    (error,) = raised.value.errors
    path = "spec.clusterSelector.labelSelector.matchExpressions[0].operator"
    assert error.path == path


def test_other_rules_see_no_effect_of_the_hub() -> None:
    taint = {"key": "gpu", "effect": "NoSelectIfNew", "timeAdded": later()}
    put(*BOUND, cluster("a", taints=[taint]), cluster("b", of="prod"))
    assert is_hub_object(BOUND[0])
    document = {
        "apiVersion": "placement.kubernetes-fleet.io/v1",
        "kind": "ClusterResourcePlacement",
        "metadata": {"name": "web"},
        "spec": {
            "resourceSelectors": [
                {"group": "", "version": "v1", "kind": "Namespace", "name": "shop"}
            ],
            "policy": {
                "placementType": "PickAll",
                "tolerations": [
                    {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
                ],
            },
        },
    }

    assert placed(save(document)) == ["a", "b"]
