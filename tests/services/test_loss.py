"""What the loss or a change of clusters does to placements, before it happens."""

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from clusters.fleet import Cluster, Taint
from clusters.operations.edit import change_labels, cordon, leave
from clusters.operations.join import ClusterSpec, dry_run, upsert_clusters
from clusters.queries import cluster_of, current_fleet
from placements.engine.limits import ExceededLimit
from placements.engine.loss import LossVariant
from placements.models import Placement
from placements.services.fleet_events import enqueue_affected_placements
from placements.services.loss import evaluation
from placements.services.loss.evaluation import Impact, impact_of
from placements.services.placements import delete_placement
from placements.services.snapshots import cycles_of
from tests.builders import labelled, spread
from tests.rows import (
    NOW,
    decided,
    joined,
    member_document,
    pick_n_spec,
    placed,
    run_due,
    saved,
    spec,
)

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def web() -> Placement:
    """Place `web` on two of three clusters, one in each region at most."""
    joined("bravelion", region="east")
    joined("jumpingcat", region="west")
    joined("nimblefox", region="west")
    return decided("web", pick_n_spec(2, topologySpreadConstraints=[spread("region")]))


def _leaving(*names: str) -> Impact:
    return impact_of(lost=names)


def test_names_who_comes_in_the_place_of_who_leaves(web: Placement) -> None:
    assert placed(web) == ["bravelion", "nimblefox"]

    impact = _leaving("nimblefox")
    [row] = impact.rows

    assert (row.joins, row.leaves, row.placed_before, row.placed_after) == (
        ("jumpingcat",),
        ("nimblefox",),
        2,
        2,
    )
    assert (row.was_fulfilled, row.is_fulfilled, row.message) == (
        True,
        True,
        "Replacement: jumpingcat.",
    )
    assert (impact.evaluated, impact.not_evaluated) == (1, 0)


@pytest.mark.nightly
def test_shows_what_gets_worse_first() -> None:
    decided("all", spec())
    joined("palemoth")
    run_due()

    impact = _leaving("nimblefox", "jumpingcat", "palemoth")

    assert [(row.placement, row.gets_worse) for row in impact.rows] == [
        ("web", True),
        ("all", False),
    ]
    assert impact.rows[0].placed_after == 1


def test_a_cordon_moves_no_existing_placement(web: Placement) -> None:
    fleet = current_fleet().fleet
    here = fleet.clusters[fleet.positions["nimblefox"]]

    impact = impact_of([here.with_changes(taints=(Taint("cordon-key"),))])

    assert (impact.rows, impact.evaluated, placed(web)) == (
        (),
        0,
        ["bravelion", "nimblefox"],
    )


@pytest.mark.nightly
def test_looks_only_at_those_that_read_what_changed() -> None:
    wants = {
        "clusterAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "clusterSelectorTerms": [labelled(tier="edge")]
            }
        }
    }
    decided("edge", pick_n_spec(1, affinity=wants))
    fleet = current_fleet().fleet
    here = fleet.clusters[fleet.positions["jumpingcat"]]

    other = impact_of([here.with_changes(labels={**here.labels, "team": "b"})])
    tier = impact_of([here.with_changes(labels={**here.labels, "tier": "edge"})])

    assert (other.rows, other.evaluated) == ((), 0)
    assert [(row.placement, row.joins, row.is_fulfilled) for row in tier.rows] == [
        ("edge", ("jumpingcat",), True)
    ]


@pytest.mark.nightly
def test_new_clusters_serve_those_that_lack_some(web: Placement) -> None:
    decided("many", pick_n_spec(5))
    documents = [
        member_document(name, {"region": "south"}) for name in ("oldbadger", "palemoth")
    ]
    foreseen = dry_run([ClusterSpec(document) for document in documents], now=NOW)

    impact = impact_of([cluster_of(row) for _, row, _ in foreseen])

    assert [(row.placement, row.joins) for row in impact.rows] == [
        ("many", ("oldbadger", "palemoth"))
    ]
    assert web.is_fulfilled


@pytest.mark.nightly
@pytest.mark.parametrize(
    "change",
    [
        lambda: leave(["nimblefox"], by=None, now=NOW),
        lambda: cordon(["nimblefox"], by=None, now=NOW),
        lambda: change_labels(
            ["jumpingcat"], put={"region": "south"}, by=None, now=NOW
        ),
        lambda: upsert_clusters(
            [ClusterSpec(member_document("palemoth", {"region": "south"}))],
            by=None,
            now=NOW,
        ),
    ],
    ids=["leave", "cordon", "labels", "join"],
)
def test_foretells_what_the_scheduler_then_does(change: Callable[[], Any]) -> None:
    decided("all", spec())
    decided("many", pick_n_spec(4))
    before = current_fleet().fleet
    names = {
        one: placed(Placement.objects.get(name=one)) for one in ("web", "all", "many")
    }
    change()
    after = current_fleet().fleet
    gone = tuple(cluster.name for cluster in after if cluster.is_leaving)
    run_later = {one: list(held) for one, held in names.items()}

    impact = _impact_of_change(before, after, gone)
    for row in impact.rows:
        run_later[row.placement] = sorted(
            {*names[row.placement], *row.joins} - {*row.leaves}
        )
    enqueue_affected_placements()
    run_due()

    assert run_later == {
        name: placed(Placement.objects.get(name=name)) for name in names
    }


def _changed(name: str, **changes: Any) -> Impact:
    fleet = current_fleet().fleet
    return impact_of([fleet.clusters[fleet.positions[name]].with_changes(**changes)])


@pytest.mark.parametrize(
    "impact",
    [
        lambda: _leaving("nimblefox"),
        lambda: _leaving("jumpingcat", "nimblefox"),
        lambda: impact_of(lost=["nimblefox"], variant=LossVariant.CORDON),
        lambda: impact_of(lost=["nimblefox"], variant=LossVariant.DOWN),
        lambda: _changed("nimblefox", taints=(Taint("cordon-key"),)),
        lambda: _changed("nimblefox", labels={"region": "east"}),
        lambda: _changed("bravelion", labels={"region": "west"}),
        lambda: impact_of([Cluster("palemoth", {"region": "west"})]),
    ],
    ids=["leave", "both leave", "drain", "down", "cordon", "loses", "gets", "joins"],
)
def test_a_placement_on_all_clusters_of_a_kind_is_evaluated_on_the_changed_ones(
    impact: Callable[[], Impact],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    west = {"clusterSelectorTerms": [labelled(region="west")]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": west}
    decided("all", spec())
    policy = {"placementType": "PickAll", "affinity": {"clusterAffinity": required}}
    decided("west", spec(policy))
    enqueue_affected_placements()
    run_due()

    read: list[int] = []

    def noted(*arguments: Any, **options: Any) -> Iterator[Any]:
        for placement, cycle in cycles_of(*arguments, **options):
            read.append(len(cycle.bindings))
            yield placement, cycle

    monkeypatch.setattr(evaluation, "cycles_of", noted)
    on_changed, read_of_changed = list(map(_FACTS, impact().rows)), sum(read)
    monkeypatch.setattr(evaluation, "keeps_others", lambda _: False)
    read.clear()

    assert on_changed == list(map(_FACTS, impact().rows))
    assert read_of_changed < sum(read)


_FACTS = attrgetter(
    *("placement", "impact", "joins", "leaves", "placed_before", "placed_after"),
    *("was_fulfilled", "is_fulfilled", "is_empty", "gets_worse", "message"),
)


def _impact_of_change(before: Any, after: Any, gone: tuple[str, ...]) -> Impact:
    """Return the impact as if the change were still to come."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            evaluation, "current_fleet", lambda: type("View", (), {"fleet": before})
        )
        return impact_of(after, lost=gone)


def test_leaves_out_what_is_deleted_or_at_fault() -> None:
    delete_placement("web", by=None, now=NOW)
    saved("lost", pick_n_spec(2))
    Placement.objects.filter(name="lost").update(
        selection_faults=[{"path": "", "code": "", "message": ""}]
    )

    assert _leaving("bravelion") == Impact((), evaluated=0)


@pytest.mark.nightly
def test_looks_at_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        saved(f"more-{number}", pick_n_spec(1))
    monkeypatch.setattr(evaluation, "MOST_EVALUATED", 3)

    limited = _leaving("bravelion")

    assert (limited.evaluated, limited.not_evaluated) == (3, 2)


@pytest.mark.nightly
def test_takes_as_many_queries_for_one_placement_as_for_many(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    for number in range(20):
        decided(f"more-{number}", pick_n_spec(2))

    with django_assert_max_num_queries(9):
        impact = _leaving("bravelion", "nimblefox")

    assert impact.evaluated == 21


def test_writes_nothing() -> None:
    before = list(Placement.objects.values())

    _leaving("bravelion")

    assert list(Placement.objects.values()) == before


def _relabeled(name: str, labels: dict[str, str]) -> Impact:
    fleet = current_fleet().fleet
    return impact_of(
        [fleet.clusters[fleet.positions[name]].with_changes(labels=labels)]
    )


def test_a_label_alone_exceeds_a_hard_limit_without_any_move() -> None:
    joined("palemoth", region="east")
    assert impact_of().rows == ()

    [row] = _relabeled("bravelion", {"region": "west"}).rows

    assert (row.placement, row.joins, row.leaves, row.gets_worse) == (
        "web",
        (),
        (),
        False,
    )
    assert row.exceeded_limits == (ExceededLimit("region", 1, "west", 2, "east", 0, 2),)


def test_a_limit_that_is_exceeded_already_is_no_impact_of_another_change() -> None:
    joined("palemoth", region="east")
    change_labels(["bravelion"], put={"region": "west"}, by=None, now=NOW)

    assert _relabeled("palemoth", {"region": "east", "tier": "edge"}).rows == ()
