"""What a change of the fleet would do to placements, before anybody does it."""

import pytest

from clusters.queries import fleet_now
from placements.models import Placement
from placements.queries import impact
from placements.queries.impact import impact_of
from placements.scheduling.agent import leaving
from placements.scheduling.fleet import Fleet
from tests.rows import all_joined, decided, pick_n_spec, saved, spec

pytestmark = pytest.mark.django_db


def test_nothing_changes_on_the_same_fleet() -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(1))

    assert impact_of(fleet_now().fleet).rows == ()


def test_a_fulfilled_placement_is_looked_at_when_its_cluster_goes() -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(1))
    fleet = Fleet(
        one._replace(eligibility=leaving()) if one.name == "b" else one for one in fleet_now().fleet
    )

    (row,) = impact_of(fleet, gone=["b"]).rows

    assert (row.joins, row.leaves, row.placed_before, row.placed_after) == (("a",), ("b",), 1, 1)


def test_says_how_many_were_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impact, "MOST_LOOKED_AT", 2)
    all_joined("a")
    for name in ("p", "q", "r"):
        decided(name, spec())

    assert impact_of(fleet_now().fleet).unlooked == 1


def test_writes_nothing() -> None:
    all_joined("a")
    saved("web", spec())

    (row,) = impact_of(fleet_now().fleet).rows

    assert (row.placed_after, row.fulfilled_before) == (1, None)
    assert Placement.objects.get().is_due
