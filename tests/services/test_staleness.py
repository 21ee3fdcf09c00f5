"""Stale picks and headroom: worked out where something has changed, and read with one query."""

from datetime import timedelta

import pytest

from clusters.operations.edit import change_labels
from placements.models import Placement, StalenessCheck, StalePick
from placements.services.disruption.restore import fresh_schedule
from placements.services.fleet.queries import Skew, skews_of, stale_on, stale_picks_of
from placements.services.placements import delete_placement
from placements.services.verification import (
    STALENESS_EVERY,
    freshness_due,
    refresh_staleness,
)
from tests.builders import labelled, spread
from tests.rows import NOW, decided, joined, load_nine, pick_n_spec, spec

pytestmark = pytest.mark.django_db

EDGE = {
    "clusterAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "clusterSelectorTerms": [labelled(tier="edge")]
        }
    }
}


def skews(name: str) -> list[Skew]:
    """Return the skews of a placement."""
    return skews_of(Placement.objects.select_related("staleness_check").get(name=name))


def stale() -> dict[str, dict[str, str]]:
    """Return the placements with stale picks, and these with why."""
    found = {
        placement.name: stale_picks_of(placement)
        for placement in Placement.objects.all()
    }
    return {name: picks for name, picks in found.items() if picks}


@pytest.mark.nightly
def test_the_demo_of_nine_has_one_stale_pick() -> None:
    load_nine()

    refresh_staleness(now=NOW)

    reason = "Does not match required affinity: no label tier, required edge"
    assert stale() == {"cache": {"flyingpenguin": reason}}
    assert stale_on(["flyingpenguin", "palemoth"]) == {"flyingpenguin": 1}
    assert skews("web") == [
        Skew("region", 1, 1, is_hard=True),
        Skew("env", 1, 2, is_hard=False),
    ]
    assert StalenessCheck.objects.get(placement__name="web").headroom == 0
    assert skews("batch") == []


@pytest.mark.nightly
def test_a_pick_that_lost_its_label_is_stale_until_the_label_is_back() -> None:
    joined("a", tier="edge")
    decided("web", pick_n_spec(1, affinity=EDGE))
    refresh_staleness(now=NOW)
    assert stale() == {}

    change_labels(["a"], put={"tier": "core"}, by=None, now=NOW)
    refresh_staleness(now=NOW + STALENESS_EVERY)
    assert stale_on(["a"]) == {"a": 1}

    change_labels(["a"], put={"tier": "edge"}, by=None, now=NOW)
    refresh_staleness(now=NOW + 2 * STALENESS_EVERY)
    assert not StalePick.objects.exists()


@pytest.mark.nightly
def test_a_fleet_that_changes_is_looked_at_now_and_then_a_new_decision_at_once() -> (
    None
):
    joined("a", region="east")
    decided("web", spec())
    assert refresh_staleness(now=NOW) == 1
    assert not freshness_due(now=NOW)

    change_labels(["a"], put={"region": "west"}, by=None, now=NOW)
    assert not freshness_due(now=NOW + STALENESS_EVERY - timedelta(seconds=1))
    assert refresh_staleness(now=NOW + STALENESS_EVERY) == 1

    decided("other", spec())
    assert refresh_staleness(now=NOW + STALENESS_EVERY) == 1
    assert not freshness_due(now=NOW + STALENESS_EVERY)


def test_a_cluster_that_rescheduling_would_keep_is_not_outdated() -> None:
    joined("a")
    decided("web", pick_n_spec(1))
    joined("b")
    refresh_staleness(now=NOW)

    assert not fresh_schedule(Placement.objects.get()).leaves
    assert stale() == {}


@pytest.mark.nightly
def test_outdated_are_the_clusters_that_the_preview_of_rescheduling_would_leave() -> (
    None
):
    load_nine()
    refresh_staleness(now=NOW)

    left = {
        placement.name: fresh_schedule(placement).leaves
        for placement in Placement.objects.order_by("name")
    }
    found = {name: list(picks) for name, picks in stale().items()}
    assert found == {name: list(names) for name, names in left.items() if names}


def test_measures_the_skew_of_what_is_placed() -> None:
    joined("a", region="east")
    joined("b", region="west")
    joined("c", region="west")
    decided("web", pick_n_spec(2, topologySpreadConstraints=[spread("region", 3)]))
    refresh_staleness(now=NOW)

    assert (skews("web"), StalenessCheck.objects.get().headroom) == (
        [Skew("region", 0, 3, is_hard=True)],
        3,
    )
    decided("web", pick_n_spec(3, topologySpreadConstraints=[spread("region", 3)]))
    assert (
        skews("web") == []
    )  # until the next check; the skew of another decision would contradict its chart


def test_what_is_gone_or_not_decided_is_not_looked_at() -> None:
    joined("a")
    decided("web", spec())
    Placement.objects.update(selection_faults=[{"path": "", "code": "", "message": ""}])
    assert not freshness_due(now=NOW)

    Placement.objects.update(selection_faults=[])
    refresh_staleness(now=NOW)
    delete_placement("web", by=None, now=NOW)

    assert not StalenessCheck.objects.filter(placement__deleting_since=None).exists()
