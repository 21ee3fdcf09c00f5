"""What putting clusters would do, read off without writing."""

import pytest
from pytest_django import DjangoAssertNumQueries

from clusters.listing import State, counts_by_state
from clusters.models import MemberCluster
from clusters.operations.editing import cordon
from clusters.operations.joining import Did, Wanted, foresee_clusters, put_clusters
from clusters.operations.leaving import leave
from fleetui.models import Event
from placements.scheduling.faults import Faults
from tests.rows import NOW, all_joined, joined, member_document

pytestmark = pytest.mark.django_db


def test_says_of_each_cluster_what_would_become_of_it() -> None:
    joined("old", region="east")
    joined("same")
    wanted = [Wanted(member_document(name)) for name in ("new", "old", "same")]

    foreseen = [(row.name, did) for did, row in foresee_clusters(wanted, now=NOW)]

    assert foreseen == [("new", Did.JOINED), ("old", Did.CHANGED), ("same", Did.UNCHANGED)]
    assert foreseen == [(one.name, one.did) for one in put_clusters(wanted, by=None, now=NOW)]


def test_writes_nothing() -> None:
    joined("old", region="east")
    events = Event.objects.count()

    foresee_clusters([Wanted(member_document("old")), Wanted(member_document("new"))], now=NOW)

    assert MemberCluster.objects.get().document["metadata"]["labels"] == {"region": "east"}
    assert Event.objects.count() == events


def test_refuses_what_putting_would_refuse() -> None:
    with pytest.raises(Faults):
        foresee_clusters([Wanted(member_document("No Name"))], now=NOW)


def test_counts_states_in_one_query(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    all_joined("a", "b", "c")
    cordon(["b"], by=None, now=NOW)
    leave(["c"], by=None, now=NOW)

    with django_assert_num_queries(1):
        counts = counts_by_state()

    assert counts == {
        State.ELIGIBLE: 2,
        State.NOT_ELIGIBLE: 1,
        State.CORDONED: 1,
        State.JOINING: 0,
        State.LEAVING: 1,
        State.SIMULATED: 0,
    }
