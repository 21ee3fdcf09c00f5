"""The record of a cycle: id, rounds, bindings left behind (`rules/scheduler.md#record-of-a-decision`)."""

import re
from dataclasses import replace

import pytest

from clusters.fleet import Cluster, Eligibility, EligibilityKind, Fleet
from fleetui.apimachinery.model import Semantics
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Picked
from placements.engine.scheduling.scheduler import schedule
from placements.manifests.binding import PlacedBinding
from placements.manifests.policy import PlacementPolicy
from tests.builders import (
    binding,
    cluster,
    cycle,
    decide,
    fleet,
    grouped,
    labelled,
    measured,
    pick_all,
    pick_fixed,
    pick_n,
    policy,
    prefer,
    spread,
    taint,
    tolerate,
)

FLEET = fleet(
    cluster("a", region="east", properties={"cpu": "2"}),
    cluster("b", region="west", properties={"cpu": "4"}),
)
POLICY = pick_n(2, spread=[spread("region")], required=[measured("cpu", "Ge", "1")])
BINDING = binding("a", "Bound", scores=(-1, 0))
CYCLE = cycle(FLEET, POLICY, BINDING)


def _id(one: Cycle) -> str:
    return schedule(one).id


def _id_of_policy(changed: PlacementPolicy) -> str:
    return _id(replace(CYCLE, policy=changed))


# The id


def test_id_is_d_and_32_hex_digits() -> None:
    assert re.fullmatch("d-[0-9a-f]{32}", _id(CYCLE))


def test_id_is_the_same_for_the_same_inputs() -> None:
    again = cycle(
        fleet(*FLEET),
        pick_n(2, spread=[spread("region")], required=[measured("cpu", "Ge", "1")]),
        BINDING,
    )

    assert _id(again) == _id(CYCLE)


def test_id_does_not_depend_on_the_order_of_clusters_and_bindings() -> None:
    bindings = (binding("a"), binding("b", "Scheduled"))

    forward = cycle(Fleet(FLEET.clusters), POLICY, *bindings)
    backward = cycle(Fleet(FLEET.clusters[::-1]), POLICY, *bindings[::-1])

    assert _id(forward) == _id(backward)


def test_id_does_not_depend_on_bindings_that_are_being_deleted() -> None:
    assert _id(replace(CYCLE, bindings=(BINDING, binding("b", deleting=True)))) == _id(
        CYCLE
    )


def test_id_depends_on_the_kind_of_ineligibility_never_on_its_words() -> None:
    def with_words(words: str) -> Cycle:
        stale = Cluster(
            "a", eligibility=Eligibility(EligibilityKind.STALE_HEARTBEAT, words)
        )
        return cycle(fleet(stale))

    assert _id(with_words("silent for 6 minutes")) == _id(
        with_words("silent for 7 minutes")
    )
    assert _id(with_words("")) != _id(
        cycle(fleet(cluster("a", not_eligible="unhealthy")))
    )


def test_id_does_not_depend_on_labels_and_properties_that_the_policy_does_not_read() -> (
    None
):
    more = cluster("a", region="east", owner="li", properties={"cpu": "2", "cost": "9"})

    assert _id(replace(CYCLE, fleet=FLEET.with_cluster(more))) == _id(CYCLE)


def test_id_takes_an_absent_policy_for_pick_all() -> None:
    assert _id(cycle(FLEET)) == _id(cycle(FLEET, policy(placementType="PickAll")))


def test_id_fills_defaults_in() -> None:
    spelled = {
        "topologyKey": "region",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
    }

    assert _id_of_policy(
        pick_n(2, spread=[{"topologyKey": "region"}])
    ) == _id_of_policy(pick_n(2, spread=[spelled]))


def test_id_does_not_care_how_a_stored_score_is_held() -> None:
    assert _id(replace(CYCLE, bindings=(binding("a", scores=(-1.0, 0.0)),))) == _id(
        CYCLE
    )


@pytest.mark.parametrize(
    "changed",
    [
        pick_n(1, spread=[spread("region")], required=[measured("cpu", "Ge", "1")]),
        pick_n(2, spread=[spread("region", 2)], required=[measured("cpu", "Ge", "1")]),
        pick_n(
            2,
            spread=[spread("region", hard=False)],
            required=[measured("cpu", "Ge", "1")],
        ),
        pick_n(2, spread=[spread("region")], required=[measured("cpu", "Gt", "1")]),
        pick_n(2, spread=[spread("region")], required=[measured("cpu", "Ge", "1"), {}]),
        pick_n(2, spread=[spread("region")]),
        pick_n(
            2,
            spread=[spread("region")],
            required=[measured("cpu", "Ge", "1")],
            prefer=[prefer(1)],
        ),
        pick_n(
            2,
            spread=[spread("region")],
            required=[measured("cpu", "Ge", "1")],
            tolerations=[tolerate(operator="Exists")],
        ),
    ],
    ids=[
        "number",
        "max skew",
        "effect",
        "operator",
        "term",
        "no terms",
        "preferred",
        "toleration",
    ],
)
def test_id_changes_with_the_policy(changed: PlacementPolicy) -> None:
    assert _id_of_policy(changed) != _id(CYCLE)


def test_id_keeps_the_order_of_lists() -> None:
    east, west = labelled(region="east"), labelled(region="west")

    assert _id_of_policy(pick_all(required=[east, west])) != _id_of_policy(
        pick_all(required=[west, east])
    )


@pytest.mark.parametrize(
    "changed",
    [
        binding("b", "Bound", scores=(-1, 0)),
        binding("a", "Scheduled", scores=(-1, 0)),
        binding("a", "Unscheduled", scores=(-1, 0)),
        binding("a", "Bound", scores=(-1, 0), obsolete=True),
        binding("a", "Bound", scores=(-1, 0), was="Bound"),
        binding("a", "Bound", scores=(0, 0)),
        binding("a", "Bound", scores=(-1, 1)),
        binding("a", "Bound"),
        binding("a", "Bound", scores=(-1, 0), deleting=True),
    ],
    ids=[
        "cluster",
        "state",
        "unscheduled",
        "obsolete",
        "previous",
        "spread",
        "affinity",
        "no scores",
        "deleting",
    ],
)
def test_id_changes_with_a_binding(changed: PlacedBinding) -> None:
    assert _id(replace(CYCLE, bindings=(changed,))) != _id(CYCLE)


@pytest.mark.parametrize(
    "changed",
    [
        cluster("c"),
        cluster("a", region="north", properties={"cpu": "2"}),
        cluster("a", properties={"cpu": "2"}),
        cluster("a", region="east", properties={"cpu": "3"}),
        cluster("a", region="east", properties={"cpu": "2"}, taints=[taint("gpu")]),
        cluster("a", region="east", properties={"cpu": "2"}, not_eligible="unhealthy"),
    ],
    ids=["member", "label", "label gone", "property", "taint", "eligibility"],
)
def test_id_changes_with_what_the_policy_sees_of_the_fleet(changed: Cluster) -> None:
    assert _id(replace(CYCLE, fleet=FLEET.with_cluster(changed))) != _id(CYCLE)


def test_id_changes_with_the_semantics_and_their_options() -> None:
    assert _id(replace(CYCLE, semantics=Semantics.KUBEFLEET)) != _id(CYCLE)
    assert _id(replace(CYCLE, options={"mode": "weighted"})) != _id(CYCLE)


def test_id_changes_with_the_version_of_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = _id(CYCLE)

    monkeypatch.setattr(
        "placements.engine.scheduling.decision.ENGINE_VERSION", "another"
    )

    assert _id(CYCLE) != before


# Picks and rounds


def test_picked_carries_the_scores_of_its_own_round() -> None:
    one = fleet(*grouped("region", east="e1 e2", west="w1"))
    preference = prefer(7, labelled(region="east"))

    decision = decide(one, pick_n(3, spread=[spread("region")], prefer=[preference]))

    assert decision.picked == (
        Picked("e2", -1, 7),
        Picked("w1", 1, 0),
        Picked("e1", -1, 7),
    )


@pytest.mark.parametrize("number", [0, -1, 3])
def test_there_are_no_rounds_but_those_of_the_cycle(number: int) -> None:
    decision = decide(FLEET, pick_n(2, spread=[spread("region")]))

    with pytest.raises(IndexError, match="this decision has 2"):
        decision.round(number)


@pytest.mark.parametrize("changed", [pick_all(), pick_fixed("a"), pick_n(1), pick_n(0)])
def test_a_cycle_without_picking_by_rank_has_no_rounds(
    changed: PlacementPolicy,
) -> None:
    assert decide(FLEET, changed, BINDING).number_of_rounds == 0


def test_a_round_that_picks_no_cluster_counts() -> None:
    decision = decide(FLEET, pick_n(5, spread=[spread("region")]))

    assert decision.number_of_rounds == 3
    assert decision.round(3).ranked.tolist() == []


def test_a_round_knows_the_counts_before_its_pick() -> None:
    decision = decide(
        fleet(*grouped("region", east="a b", west="c d")),
        pick_n(4, spread=[spread("region")]),
    )

    assert [decision.round(number).counts[0].tolist() for number in (1, 2, 3, 4)] == [
        [0, 0],
        [0, 1],
        [1, 1],
        [1, 2],
    ]


# The bindings after


def test_new_bindings_are_scheduled_current_and_hold_their_scores() -> None:
    assert decide(FLEET, pick_n(1, spread=[spread("region")])).bindings_after == (
        binding("b", "Scheduled", scores=(-1, 0)),
    )


def test_kept_bindings_are_untouched() -> None:
    kept = binding("a", "Bound", scores=(5, 5), was="Bound")

    assert decide(FLEET, pick_all(), kept).bindings_after[0] is kept


def test_bindings_that_end_remember_their_state_and_scores() -> None:
    decision = decide(FLEET, pick_n(0), binding("a", "Bound", scores=(1, 2)))

    assert decision.bindings_after == (
        binding("a", "Unscheduled", scores=(1, 2), was="Bound"),
    )


def test_bindings_picked_again_take_the_new_scores() -> None:
    obsolete = binding("b", "Bound", obsolete=True, scores=(9, 9))

    decision = decide(FLEET, pick_n(1, spread=[spread("region")]), obsolete)

    assert decision.bindings_after == (binding("b", "Bound", scores=(-1, 0)),)


def test_bindings_after_are_sorted_by_cluster_without_those_being_deleted() -> None:
    bindings = (binding("z", "Unscheduled"), binding("c", deleting=True), binding("a"))

    assert [
        placed_binding.cluster
        for placed_binding in decide(FLEET, pick_n(2), *bindings).bindings_after
    ] == ["a", "b", "z"]
