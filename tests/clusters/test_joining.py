"""Clusters join by their manifests, one at a time or many."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from clusters.models import (
    ClusterLabel,
    ClusterTaint,
    FleetChange,
    FleetState,
    MemberCluster,
    Membership,
)
from clusters.operations.edit import change_labels, change_taints, cordon
from clusters.operations.join import (
    ClusterSpec,
    JoinOutcome,
    put_cluster,
    upsert_clusters,
)
from clusters.queries import counters, current_fleet, manifest_of
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.concurrency import RevisionConflict
from fleetui.models import Event
from tests.caches import forget_cached_fleet
from tests.effort import examples
from tests.rows import NOW, all_joined, joined, member_document, person

pytestmark = pytest.mark.django_db


def test_a_cluster_joins_with_its_labels_and_taints_as_rows() -> None:
    taints = [{"key": "gpu", "value": "a100", "effect": "NoSchedule"}]

    put = put_cluster(
        ClusterSpec(member_document("a", {"region": "east"}, taints=taints)),
        by=None,
        now=NOW,
    )

    assert (put.result, put.revision) == (JoinOutcome.JOINED, 1)
    assert [str(label) for label in ClusterLabel.objects.all()] == ["region=east"]
    assert [str(taint) for taint in ClusterTaint.objects.all()] == [
        "gpu=a100:NoSchedule"
    ]
    assert MemberCluster.objects.get().membership == Membership.JOINED


def test_the_same_manifest_again_changes_nothing() -> None:
    joined("a", region="east")
    before = counters()

    put = put_cluster(
        ClusterSpec(member_document("a", {"region": "east"})), by=None, now=NOW
    )

    assert (put.result, put.revision) == (JoinOutcome.UNCHANGED, 1)
    assert counters() == before
    assert Event.objects.count() == 1


def test_another_manifest_moves_revision_and_fleet_version() -> None:
    joined("a", region="east")
    version, readings = counters()

    put = put_cluster(
        ClusterSpec(member_document("a", {"region": "west"})), by=None, now=NOW
    )

    assert (put.result, put.revision) == (JoinOutcome.CHANGED, 2)
    assert counters() == (version + 1, readings)
    assert FleetChange.objects.latest("pk").label_keys == ["region"]


@pytest.mark.servers
def test_properties_move_the_second_counter_only() -> None:
    status = {"properties": {"k8s.io/nodes": {"value": "3"}}}
    put_cluster(
        ClusterSpec({**member_document("a"), "status": status}), by=None, now=NOW
    )
    version, readings = counters()

    status = {"properties": {"k8s.io/nodes": {"value": "4"}}}
    put_cluster(
        ClusterSpec({**member_document("a"), "status": status}), by=None, now=NOW
    )

    assert counters() == (version, readings + 1)
    assert FleetChange.objects.latest("pk").property_names == ["k8s.io/nodes"]


@pytest.mark.servers
def test_used_resources_are_noted_by_the_names_that_policies_use() -> None:
    usage = {"resourceUsage": {"allocatable": {"cpu": "8"}}}
    put_cluster(
        ClusterSpec({**member_document("a"), "status": usage}), by=None, now=NOW
    )

    usage = {"resourceUsage": {"allocatable": {"cpu": "16"}}}
    put_cluster(
        ClusterSpec({**member_document("a"), "status": usage}), by=None, now=NOW
    )

    assert FleetChange.objects.latest("pk").property_names == [
        "resources.kubernetes-fleet.io/allocatable-cpu"
    ]


def test_one_faulty_manifest_keeps_all_of_them_out() -> None:
    wanted = [
        ClusterSpec(member_document("good")),
        ClusterSpec(member_document("bad", {"region": "no spaces"})),
    ]

    with pytest.raises(InvalidManifest) as caught:
        upsert_clusters(wanted, by=None, now=NOW)

    assert [error.path for error in caught.value.errors] == ["metadata.labels.region"]
    assert MemberCluster.objects.count() == 0


def test_a_stale_edit_is_refused_with_who_saved_in_between() -> None:
    joined("a")
    ana = person("ana", "operator")
    change_labels(["a"], put={"tier": "edge"}, by=ana, now=NOW)

    with pytest.raises(RevisionConflict) as caught:
        put_cluster(ClusterSpec(member_document("a")), by=None, now=NOW, expected=1)

    assert [change["by"] for change in caught.value.changes] == ["ana"]
    assert MemberCluster.objects.get().revision == 2


def test_a_cluster_that_must_be_new_is_refused_when_it_is_not() -> None:
    joined("a")

    with pytest.raises(RevisionConflict):
        put_cluster(ClusterSpec(member_document("a")), by=None, now=NOW, expected=0)


def test_every_change_leaves_an_event_with_before_and_after() -> None:
    joined("a", region="east")
    ana = person("ana", "operator")

    change_labels(["a"], put={"region": "west"}, by=ana, now=NOW)

    event = Event.objects.latest("pk")
    assert (event.actor_name, event.verb, event.kind, event.name) == (
        "ana",
        "changed",
        "cluster",
        "a",
    )
    assert event.before == member_document("a", {"region": "east"})
    assert event.after == member_document("a", {"region": "west"})


def test_an_imported_cluster_is_judged_by_its_own_time() -> None:
    yesterday = NOW - timedelta(days=1)

    upsert_clusters(
        [
            ClusterSpec(reported("beats", yesterday)),
            ClusterSpec(reported("silent", yesterday - timedelta(minutes=6))),
        ],
        by=None,
        now=NOW,
    )

    verdicts = dict(MemberCluster.objects.values_list("name", "verdict"))
    assert verdicts == {"beats": "", "silent": "staleHeartbeat"}


def test_properties_without_an_agent_do_not_make_a_cluster_ineligible() -> None:
    document = {
        **member_document("a"),
        "status": {"properties": {"k8s.io/nodes": {"value": "3"}}},
    }

    put_cluster(ClusterSpec(document), by=None, now=NOW)

    assert MemberCluster.objects.get().is_eligible


def test_an_export_of_a_hub_without_an_agent_does() -> None:
    document = {**member_document("a"), "status": {"conditions": []}}

    put_cluster(ClusterSpec(document), by=None, now=NOW)

    assert MemberCluster.objects.get().verdict == "noAgent"


def test_what_was_exported_can_be_imported_without_a_change() -> None:
    upsert_clusters(
        [ClusterSpec(reported("a", NOW)), ClusterSpec(member_document("b"))],
        by=None,
        now=NOW,
    )
    exported = [manifest_of(row) for row in MemberCluster.objects.order_by("name")]

    again = upsert_clusters(
        [ClusterSpec(document) for document in exported], by=None, now=NOW
    )

    assert [result.result for result in again] == [
        JoinOutcome.UNCHANGED,
        JoinOutcome.UNCHANGED,
    ]


def test_a_cluster_twice_in_one_request_is_a_fault() -> None:
    with pytest.raises(InvalidManifest, match="Duplicate value: 'a' \\(2 times\\)"):
        upsert_clusters([ClusterSpec(member_document("a"))] * 2, by=None, now=NOW)


@pytest.mark.servers
def test_an_unknown_driver_is_a_fault() -> None:
    with pytest.raises(InvalidManifest, match="telepathy"):
        put_cluster(
            ClusterSpec(member_document("a"), driver="telepathy"), by=None, now=NOW
        )


def test_the_fleet_is_loaded_once_per_version() -> None:
    all_joined("a", "b")

    first, second = current_fleet(), current_fleet()
    joined("c")
    third = current_fleet()

    assert first is second
    assert third.fleet.names == ("a", "b", "c")


def test_the_database_holds_what_must_hold() -> None:
    cluster = joined("a", region="east")

    for broken in (
        lambda: ClusterLabel.objects.create(
            cluster=cluster, key="region", value="west"
        ),
        lambda: MemberCluster.objects.update(membership="leaving"),
        lambda: MemberCluster.objects.update(membership="lost"),
        lambda: ClusterTaint.objects.create(
            cluster=cluster, key="k", value="", effect="NoExecute"
        ),
        lambda: FleetState.objects.create(id=2),
    ):
        with pytest.raises(IntegrityError), transaction.atomic():
            broken()


def reported(name: str, heartbeat: Any) -> dict[str, Any]:
    """Make a manifest with the status that a hub would write."""
    moment = heartbeat.isoformat().replace("+00:00", "Z")
    conditions = [
        {"type": "Joined", "status": "True"},
        {"type": "Healthy", "status": "True", "lastTransitionTime": moment},
    ]
    agent = {
        "type": "MemberAgent",
        "conditions": conditions,
        "lastReceivedHeartbeat": moment,
    }
    return {**member_document(name), "status": {"agentStatus": [agent]}}


labels = st.dictionaries(
    st.sampled_from("abc"), st.sampled_from(["x", "y", ""]), max_size=3
)
edits = st.lists(
    st.one_of(
        st.tuples(st.just("labels"), labels, st.sets(st.sampled_from("abc"))),
        st.tuples(
            st.just("taints"), st.lists(st.sampled_from("pq"), unique=True), st.none()
        ),
        st.tuples(st.just("cordon"), st.none(), st.none()),
    ),
    max_size=6,
)


@pytest.mark.nightly
@given(edits)
@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_index_always_says_what_the_manifest_says(steps: list[Any]) -> None:
    with transaction.atomic():
        joined("a")
        for kind, one, other in steps:
            if kind == "labels":
                change_labels(["a"], put=one, remove=other, by=None, now=NOW)
            elif kind == "taints":
                taints = [{"key": key, "effect": "NoSchedule"} for key in one]
                change_taints(["a"], add=taints, replaces=True, by=None, now=NOW)
            else:
                cordon(["a"], by=None, now=NOW)
        forget_cached_fleet()
        cluster = current_fleet().fleet.clusters[0]
        rows = dict(ClusterLabel.objects.values_list("key", "value"))
        repelled = ClusterTaint.objects.order_by("pk").values_list(
            "key", "value", "effect"
        )
        assert dict(cluster.labels) == rows
        assert [
            (taint.key, taint.value, taint.effect) for taint in cluster.taints
        ] == list(repelled)
        transaction.set_rollback(True)
