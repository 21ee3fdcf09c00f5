"""What putting clusters would do, read off without writing."""

import pytest
from pytest_django import DjangoAssertNumQueries

from clusters.filters import ClusterFilterState, counts_by_state
from clusters.models import MemberCluster
from clusters.operations.edit import cordon, leave
from clusters.operations.join import ClusterSpec, JoinOutcome, dry_run, upsert_clusters
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.models import Event
from tests.rows import NOW, all_joined, joined, member_document

pytestmark = pytest.mark.django_db


def test_says_of_each_cluster_what_would_become_of_it() -> None:
    joined("old", region="east")
    joined("same")
    wanted = [
        ClusterSpec(member_document(name)) for name in ("newcomer", "old", "same")
    ]

    foreseen = [(row.name, did) for did, row, _ in dry_run(wanted, now=NOW)]

    assert foreseen == [
        ("newcomer", JoinOutcome.JOINED),
        ("old", JoinOutcome.CHANGED),
        ("same", JoinOutcome.UNCHANGED),
    ]
    assert foreseen == [
        (cluster.name, cluster.result)
        for cluster in upsert_clusters(wanted, by=None, now=NOW)
    ]


def test_writes_nothing() -> None:
    joined("old", region="east")
    events = Event.objects.count()

    dry_run(
        [ClusterSpec(member_document("old")), ClusterSpec(member_document("newcomer"))],
        now=NOW,
    )

    assert MemberCluster.objects.get().document["metadata"]["labels"] == {
        "region": "east"
    }
    assert Event.objects.count() == events


def test_refuses_what_putting_would_refuse() -> None:
    with pytest.raises(InvalidManifest):
        dry_run([ClusterSpec(member_document("No Name"))], now=NOW)


def test_counts_states_in_one_query(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    all_joined("a", "b", "c")
    cordon(["b"], by=None, now=NOW)
    leave(["c"], by=None, now=NOW)

    with django_assert_num_queries(1):
        counts = counts_by_state()

    assert counts == {
        ClusterFilterState.READY: 0,
        ClusterFilterState.ELIGIBLE: 2,
        ClusterFilterState.NOT_ELIGIBLE: 0,
        ClusterFilterState.CORDONED: 1,
        ClusterFilterState.JOINING: 0,
        ClusterFilterState.LEAVING: 1,
        ClusterFilterState.SIMULATED: 0,
        ClusterFilterState.HEARTBEAT_LATE: 0,
        ClusterFilterState.NOT_OBSERVED: 0,
        ClusterFilterState.UNHEALTHY: 0,
        ClusterFilterState.WORKLOADS_FAILING: 0,
        ClusterFilterState.NOT_MONITORED: 1,
    }
