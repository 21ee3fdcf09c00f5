"""schedule(): the placement types and the bindings they start from (`rules/scheduler.md#placement-types`)."""

import pytest

from clusters.fleet import Fleet
from placements.engine.scheduling.cycle import DuplicateBindingError
from placements.engine.scheduling.decision import CycleKind, Decision
from placements.manifests.policy import PlacementPolicy
from tests.builders import (
    binding,
    cluster,
    cycle,
    decide,
    fleet,
    grouped,
    labelled,
    pick_all,
    pick_fixed,
    pick_n,
    prefer,
    spread,
    taint,
)

BOTH = pytest.mark.parametrize("semantics", ["fleet", "kubefleet"])


def _states(decision: Decision) -> dict[str, str]:
    """Return the state of every binding after the cycle, `old` in front where it stays obsolete."""
    return {
        placed_binding.cluster: ("" if placed_binding.is_current else "old ")
        + str(placed_binding.state)
        for placed_binding in decision.bindings_after
    }


# Bindings


def test_refuses_two_bindings_of_one_cluster() -> None:
    with pytest.raises(DuplicateBindingError, match="'a'") as caught:
        cycle(fleet("a"), None, binding("a"), binding("b"), binding("a", "Unscheduled"))

    assert caught.value.cluster == "a"


def test_ignores_a_binding_that_is_being_deleted_beside_a_new_one() -> None:
    decision = decide(
        fleet("a"), pick_all(), binding("a", deleting=True), binding("a", "Scheduled")
    )

    assert decision.kept == ("a",)


def test_classifies_bindings() -> None:
    one = fleet("a", "b", "c", cluster("leaving", not_eligible="leaving"))
    bindings = [
        binding("a", "Scheduled"),
        binding("b", "Bound", obsolete=True),
        binding("c", "Unscheduled", obsolete=True),
        binding("leaving", "Bound"),
        binding("gone", "Scheduled", obsolete=True),
        binding("long-gone", "Unscheduled"),
        binding("deleted", deleting=True),
    ]

    binding_classes = cycle(one, None, *bindings).binding_classes

    classes = (
        binding_classes.current,
        binding_classes.obsolete,
        binding_classes.dangling,
        binding_classes.unscheduled,
    )
    assert [[member.cluster for member in members] for members in classes] == [
        ["a"],
        ["b"],
        ["gone", "leaving"],
        ["c", "long-gone"],
    ]


@BOTH
@pytest.mark.parametrize(
    "policy", [pick_all(), pick_fixed("a"), pick_fixed(), pick_n(1), pick_n(0)]
)
def test_unschedules_dangling_bindings_whatever_the_placement_type(
    policy: PlacementPolicy, semantics: str
) -> None:
    one = fleet("a", cluster("leaving", not_eligible="leaving"))
    bindings = [binding("a"), binding("gone", "Scheduled"), binding("leaving")]

    decision = decide(one, policy, *bindings, semantics=semantics)

    assert {"gone", "leaving"} <= set(decision.unscheduled)
    assert (_states(decision)["gone"], _states(decision)["leaving"]) == (
        "Unscheduled",
        "Unscheduled",
    )


def test_an_unscheduled_binding_remembers_the_state_that_it_had() -> None:
    after = decide(fleet("a"), pick_all(), binding("gone", "Bound")).bindings_after

    assert [
        (placed_binding.cluster, str(placed_binding.previous_state))
        for placed_binding in after
    ] == [
        ("a", "Scheduled"),
        ("gone", "Bound"),
    ]


@pytest.mark.parametrize("was", ["Scheduled", "Bound"])
@pytest.mark.parametrize("obsolete", [True, False])
def test_picking_the_cluster_of_an_unscheduled_binding_restores_its_state(
    was: str, obsolete: bool
) -> None:
    decision = decide(
        fleet("a"), pick_n(1), binding("a", "Unscheduled", was=was, obsolete=obsolete)
    )

    assert decision.picked_names == ("a",)
    assert _states(decision) == {"a": was}


def test_an_obsolete_binding_picked_again_keeps_its_state_under_the_new_policy() -> (
    None
):
    bindings = [
        binding("a", "Bound", obsolete=True, scores=(1, 7)),
        binding("b", "Scheduled", obsolete=True),
    ]

    decision = decide(fleet("a", "b"), pick_n(2), *bindings)

    assert _states(decision) == {"a": "Bound", "b": "Scheduled"}
    assert [
        placed_binding.affinity_score for placed_binding in decision.bindings_after
    ] == [0, 0]


# PickAll


def test_an_absent_policy_picks_the_whole_fleet_by_name() -> None:
    decision = decide(fleet("b", "a", cluster("c", not_eligible="noAgent")))

    assert (decision.kind, decision.picked_names) == (CycleKind.PICK_ALL, ("a", "b"))


def test_pick_all_takes_every_cluster_that_passes_the_filters() -> None:
    one = fleet(
        cluster("fit", tier="edge"),
        cluster("other"),
        cluster("sick", tier="edge", not_eligible="unhealthy"),
        cluster("tainted", tier="edge", taints=[taint("gpu")]),
    )

    assert decide(one, pick_all(required=[labelled(tier="edge")])).picked_names == (
        "fit",
    )


def test_pick_all_stores_scores_of_zero_and_is_always_fulfilled() -> None:
    decision = decide(fleet("a"), pick_all())
    empty = decide(Fleet(), pick_all())

    picked = [
        (one.cluster, one.topology_spread_score, one.affinity_score)
        for one in decision.picked
    ]
    assert picked == [("a", 0, 0)]
    assert (empty.picked, empty.is_fulfilled) == ((), True)


def test_pick_all_keeps_what_is_placed_even_if_it_no_longer_passes() -> None:
    one = fleet(
        cluster("sick", not_eligible="unhealthy"),
        cluster("unlabelled"),
        cluster("fit", tier="edge"),
    )

    decision = decide(
        one,
        pick_all(required=[labelled(tier="edge")]),
        binding("sick"),
        binding("unlabelled"),
    )

    assert (decision.kept, decision.picked_names, decision.unscheduled) == (
        ("sick", "unlabelled"),
        ("fit",),
        (),
    )


def test_pick_all_unschedules_obsolete_bindings_that_no_longer_pass() -> None:
    one = fleet(cluster("fit", tier="edge"), "unfit")
    bindings = [binding("fit", obsolete=True), binding("unfit", obsolete=True)]

    decision = decide(one, pick_all(required=[labelled(tier="edge")]), *bindings)

    assert (decision.picked_names, decision.unscheduled) == (("fit",), ("unfit",))


# PickFixed


def test_pick_fixed_picks_in_the_order_of_the_names() -> None:
    decision = decide(fleet("a", "b", "c"), pick_fixed("c", "a"))

    assert (decision.picked_names, decision.is_fulfilled) == (("c", "a"), True)
    assert [
        (picked.topology_spread_score, picked.affinity_score)
        for picked in decision.picked
    ] == [(None, None)] * 2


def test_pick_fixed_knows_no_taints() -> None:
    assert decide(
        fleet(cluster("a", taints=[taint("gpu")])), pick_fixed("a")
    ).picked_names == ("a",)


def test_pick_fixed_distinguishes_names_that_are_not_found_from_invalid_ones() -> None:
    one = fleet("a", cluster("sick", not_eligible="unhealthy"))

    missing, invalid = (
        decide(one, pick_fixed("a", "nosuch")),
        decide(one, pick_fixed("a", "sick")),
    )

    assert (missing.picked_names, missing.not_found, missing.is_fulfilled) == (
        ("a",),
        ("nosuch",),
        False,
    )
    assert (invalid.picked_names, invalid.not_found, invalid.is_fulfilled) == (
        ("a",),
        (),
        False,
    )


def test_pick_fixed_keeps_valid_targets_and_those_that_became_ineligible() -> None:
    one = fleet("a", cluster("sick", not_eligible="unhealthy"))

    decision = decide(one, pick_fixed("a", "sick"), binding("a"), binding("sick"))

    assert (decision.kept, decision.picked_names, decision.unscheduled) == (
        ("a", "sick"),
        (),
        (),
    )
    assert not decision.is_fulfilled


def test_pick_fixed_unschedules_obsolete_bindings_outside_the_valid_targets() -> None:
    one = fleet("a", "b", cluster("sick", not_eligible="unhealthy"))
    bindings = [binding(name, obsolete=True) for name in ("a", "b", "sick")]

    decision = decide(one, pick_fixed("a", "sick"), *bindings)

    assert (decision.picked_names, decision.unscheduled) == (("a",), ("b", "sick"))


def test_pick_fixed_without_names_leaves_old_bindings_as_they_are() -> None:
    decision = decide(
        fleet("a", "b"), pick_fixed(), binding("a", obsolete=True), binding("gone")
    )

    assert (decision.kind, decision.picked, decision.unscheduled) == (
        CycleKind.NO_NAMES,
        (),
        ("gone",),
    )
    assert _states(decision) == {"a": "old Bound", "gone": "Unscheduled"}


# PickN


@BOTH
def test_pick_n_takes_the_last_names_where_nothing_else_decides(semantics: str) -> None:
    decision = decide(fleet("a", "b", "c", "d"), pick_n(3), semantics=semantics)

    assert (decision.picked_names, decision.is_fulfilled) == (("d", "c", "b"), True)


def test_pick_n_ranks_spread_before_affinity_before_was_here_before_name() -> None:
    one = fleet(
        cluster("a", region="west"),
        cluster("b", region="east", tier="edge"),
        cluster("c", region="east"),
        cluster("d", region="east"),
        cluster("z", region="east"),
    )
    policy = pick_n(
        5, spread=[spread("region", 9)], prefer=[prefer(5, labelled(tier="edge"))]
    )

    decision = decide(one, policy, binding("z"), binding("c", obsolete=True))

    assert decision.picked_names == ("a", "b", "c", "d")


def test_pick_n_shows_when_there_are_not_enough() -> None:
    decision = decide(fleet("a", "b"), pick_n(3))

    assert (decision.picked_names, decision.is_fulfilled) == (("b", "a"), False)


def test_pick_n_from_an_empty_fleet_picks_no_cluster() -> None:
    decision = decide(Fleet(), pick_n(1), binding("gone"))

    assert (decision.picked, decision.unscheduled, decision.is_fulfilled) == (
        (),
        ("gone",),
        False,
    )


def test_pick_n_of_zero_is_fulfilled_at_once() -> None:
    decision = decide(fleet("a"), pick_n(0))

    assert (decision.kind, decision.picked, decision.is_fulfilled) == (
        CycleKind.NOTHING_TO_DO,
        (),
        True,
    )


def test_pick_n_of_zero_removes_all_there_is() -> None:
    decision = decide(
        fleet("a", "b"), pick_n(0), binding("a"), binding("b", obsolete=True)
    )

    assert (decision.kind, decision.unscheduled) == (CycleKind.SCALE_DOWN, ("a", "b"))


def test_pick_n_stops_looking_once_all_are_found_even_if_a_better_cluster_appears() -> (
    None
):
    one = fleet("a", cluster("better", tier="edge"))
    policy = pick_n(1, prefer=[prefer(100, labelled(tier="edge"))])

    decision = decide(one, policy, binding("a"))

    assert (decision.kind, decision.kept, decision.picked) == (
        CycleKind.NOTHING_TO_DO,
        ("a",),
        (),
    )


def test_pick_n_keeps_what_is_placed_and_picks_only_the_rest() -> None:
    one = fleet("a", "b", "c", cluster("sick", not_eligible="unhealthy"))

    decision = decide(one, pick_n(3), binding("a", "Scheduled"), binding("sick"))

    assert (decision.kept, decision.picked_names) == (("a", "sick"), ("c",))


def test_pick_n_replaces_a_cluster_that_left() -> None:
    decision = decide(fleet("a", "b"), pick_n(2), binding("b"), binding("gone"))

    assert (decision.kept, decision.picked_names, decision.unscheduled) == (
        ("b",),
        ("a",),
        ("gone",),
    )


def test_pick_n_selects_again_after_a_policy_change_and_drops_the_rest() -> None:
    one = fleet("a", "b", cluster("edge", tier="edge"))
    bindings = [binding("a", obsolete=True), binding("b", obsolete=True)]

    decision = decide(
        one, pick_n(2, prefer=[prefer(1, labelled(tier="edge"))]), *bindings
    )

    assert (decision.picked_names, decision.unscheduled) == (("edge", "b"), ("a",))


def test_without_constraints_the_record_has_one_round_with_them_one_a_pick() -> None:
    one = fleet(*grouped("region", east="a b", west="c d"))

    assert decide(one, pick_n(3)).number_of_rounds == 1
    assert decide(one, pick_n(3, spread=[spread("region")])).number_of_rounds == 3
    assert decide(one, pick_n(9, spread=[spread("region")])).number_of_rounds == 5


# Scaling down


def test_scale_down_takes_scheduled_before_bound() -> None:
    bindings = [
        binding("a", "Bound", scores=(-9, 0)),
        binding("b", "Scheduled", scores=(9, 9)),
        binding("c", "Bound"),
    ]

    decision = decide(fleet("a", "b", "c"), pick_n(2), *bindings)

    assert (decision.kind, decision.unscheduled, decision.kept) == (
        CycleKind.SCALE_DOWN,
        ("b",),
        ("a", "c"),
    )


@pytest.mark.parametrize(
    ("one", "other", "goes"),
    [
        ((0, 5), (1, -5), "one"),
        ((0, 5), (0, 4), "other"),
        ((0, 5), (0, 5), "one"),
        ((0, 5), None, "other"),
        ((-1000, 0), None, "other"),
        (None, None, "one"),
    ],
)
def test_scale_down_takes_the_lowest_stored_scores_then_the_first_name(
    one: tuple[float, float] | None, other: tuple[float, float] | None, goes: str
) -> None:
    bindings = [binding("one", scores=one), binding("other", scores=other)]

    assert decide(fleet("one", "other"), pick_n(1), *bindings).unscheduled == (goes,)


def test_scale_down_uses_stored_scores_not_what_a_fresh_run_would_give() -> None:
    one = fleet(cluster("a", tier="edge"), "b")
    policy = pick_n(1, prefer=[prefer(100, labelled(tier="edge"))])

    decision = decide(
        one, policy, binding("a", scores=(0, 0)), binding("b", scores=(0, 100))
    )

    assert decision.unscheduled == ("a",)


def test_scale_down_removes_all_obsolete_bindings_first() -> None:
    bindings = [
        binding("a", scores=(0, 0)),
        binding("b", scores=(0, 0)),
        binding("c", obsolete=True),
    ]

    decision = decide(fleet("a", "b", "c"), pick_n(1), *bindings)

    assert (decision.unscheduled, decision.kept) == (("a", "c"), ("b",))


def test_the_right_number_with_obsolete_bindings_left_is_a_scale_down_of_those() -> (
    None
):
    decision = decide(
        fleet("a", "b"), pick_n(1), binding("a"), binding("b", obsolete=True)
    )

    assert (decision.kind, decision.unscheduled, decision.kept) == (
        CycleKind.SCALE_DOWN,
        ("b",),
        ("a",),
    )
    assert decision.is_fulfilled


def test_scale_down_leaves_unscheduled_bindings_as_they_are() -> None:
    decision = decide(
        fleet("a", "b"),
        pick_n(0),
        binding("a"),
        binding("b", "Unscheduled", was="Bound"),
    )

    assert decision.unscheduled == ("a",)
    assert [
        str(placed_binding.previous_state) for placed_binding in decision.bindings_after
    ] == [
        "Bound",
        "Bound",
    ]
