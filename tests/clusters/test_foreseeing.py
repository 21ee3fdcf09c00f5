"""Foreseeing what putting clusters does: the same answer, and nothing written."""

import pytest

from clusters.models import FleetState, MemberCluster
from clusters.operations.joining import Wanted, foresee_clusters, put_clusters
from fleetui.models import Event
from placements.scheduling.faults import Faults
from tests.rows import NOW, joined, member_document

pytestmark = pytest.mark.django_db


def test_answers_as_the_deed_does_and_writes_nothing() -> None:
    joined("a", region="east")
    joined("b", region="east")
    wanted = [Wanted(member_document(name, {"region": "west"})) for name in ("a", "c")]
    wanted.append(Wanted(member_document("b", {"region": "east"})))
    version = FleetState.objects.get().version

    foreseen = foresee_clusters(wanted, now=NOW)

    assert (MemberCluster.objects.count(), Event.objects.count()) == (2, 2)
    assert FleetState.objects.get().version == version
    assert foreseen == put_clusters(wanted, by=None, now=NOW)


def test_needs_no_fleet_yet() -> None:
    assert [one.did for one in foresee_clusters([Wanted(member_document("a"))], now=NOW)] == ["joined"]
    assert not FleetState.objects.exists()


def test_refuses_what_the_deed_refuses() -> None:
    with pytest.raises(Faults):
        foresee_clusters([Wanted(member_document("No Name"))], now=NOW)
