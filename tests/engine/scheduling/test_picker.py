"""The greedy loop over cells: the same picks as ranking every cluster again each round."""

import numpy as np
import pytest

from clusters.fleet import Fleet
from placements.engine.scheduling.candidates import Picks, candidates_of
from placements.engine.scheduling.picker import pick
from placements.engine.scheduling.round import Round
from placements.manifests.policy import PlacementPolicy
from tests.builders import (
    binding,
    cluster,
    cycle,
    fleet,
    grouped,
    labelled,
    pick_n,
    prefer,
    spread,
)


def _pick(
    one: Fleet,
    policy: PlacementPolicy,
    wanted: int,
    *placed: str,
    semantics: str = "fleet",
) -> Picks:
    bindings = map(binding, placed)
    return pick(
        candidates_of(cycle(one, policy, *bindings, semantics=semantics)), wanted
    )


def _names(one: Fleet, picks: Picks) -> list[str]:
    return [one.names[position] for position in picks.positions]


def test_without_constraints_takes_the_best_ranked_in_one_go() -> None:
    one = fleet("a", cluster("b", tier="edge"), "c")

    picks = _pick(one, pick_n(2, prefer=[prefer(10, labelled(tier="edge"))]), 2)

    assert _names(one, picks) == ["b", "c"]
    assert picks.spread[0].tolist() == [0, 0]
    assert not picks.ran_dry


def test_runs_dry_when_there_are_too_few() -> None:
    assert _pick(fleet("a"), pick_n(2), 2).ran_dry
    assert _pick(fleet("a"), pick_n(2, spread=[spread("region")]), 2).ran_dry


def test_does_not_run_dry_when_there_are_just_enough() -> None:
    assert not _pick(fleet("a"), pick_n(1), 1).ran_dry
    assert not _pick(fleet("a"), pick_n(1, spread=[spread("region")]), 1).ran_dry


@pytest.mark.parametrize("constraints", [[], [spread("region")]])
def test_picks_no_cluster_from_an_empty_fleet(
    constraints: list[dict[str, object]],
) -> None:
    picks = _pick(Fleet(), pick_n(3, spread=constraints), 3)

    assert (picks.positions.tolist(), picks.spread[0].tolist(), picks.ran_dry) == (
        [],
        [],
        True,
    )


def test_alternates_between_groups_and_takes_the_last_name_first() -> None:
    one = fleet(*grouped("region", east="a c e", west="b d"))

    picks = _pick(one, pick_n(5, spread=[spread("region")]), 5)

    assert _names(one, picks) == ["e", "d", "c", "b", "a"]
    assert picks.spread[0].tolist() == [-1, 1, -1, 1, -1]


def test_affinity_orders_clusters_inside_a_group_but_never_beats_the_spread() -> None:
    one = fleet(
        *(cluster(name, region="east", tier="edge") for name in ("a", "b")),
        *grouped("region", west="w"),
    )

    picks = _pick(
        one,
        pick_n(
            3, spread=[spread("region")], prefer=[prefer(100, labelled(tier="edge"))]
        ),
        3,
    )

    assert _names(one, picks) == ["b", "w", "a"]


def test_counts_what_is_placed_already() -> None:
    one = fleet(*grouped("region", east="a b", west="c d"))

    assert _names(one, _pick(one, pick_n(2, spread=[spread("region")]), 1, "d")) == [
        "b"
    ]


def test_a_group_that_only_clusters_out_of_reach_have_holds_the_minimum_down() -> None:
    one = fleet(
        *grouped("region", east="a b"),
        cluster("c", region="west", not_eligible="noAgent"),
    )

    picks = _pick(one, pick_n(2, spread=[spread("region")]), 2)

    assert (_names(one, picks), picks.ran_dry) == (["b"], True)


@pytest.mark.parametrize("semantics", ["fleet", "kubefleet"])
@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize(
    "sizes",
    [
        {"region": 3, "zone": 9, "host": 400},
        {"region": 3, "zone": 24},
        {"zone": 24},
        {"one": 1, "region": 2, "zone": 9},
    ],
    ids="-".join,
)
@pytest.mark.parametrize("has_key", [0.9, 1])
@pytest.mark.parametrize("seed", range(6))
def test_agrees_with_ranking_every_cluster_again_each_round(
    semantics: str, hard: bool, sizes: dict[str, int], has_key: float, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    rows = [
        {
            # Few values on most clusters in every other run.
            key: f"v{int(size * draw.random() ** (1 + seed % 2 * 2))}"
            for key, size in sizes.items()
            if draw.random() < has_key
        }
        for _ in range(400)
    ]
    one = Fleet(cluster(f"c{index:03}", labels) for index, labels in enumerate(rows))
    first, *others = sizes
    constraints = [
        spread(first, 2, hard=hard),
        *(spread(key, 1, hard=False) for key in others),
    ]
    placed = [binding(f"c{index:03}") for index in range(40 * (seed % 3))]
    candidates = candidates_of(
        cycle(one, pick_n(150, spread=constraints), *placed, semantics=semantics)
    )

    picks = pick(candidates, 150)

    for number in range(1, len(picks.positions) + 1, 7):
        fresh = Round(candidates, number, picks.positions[: number - 1])
        winner = picks.positions[number - 1]
        assert fresh.ranked[0] == winner
        assert fresh.spread[0][winner] == picks.spread[0][number - 1]
    if picks.ran_dry:
        last = Round(candidates, len(picks.positions) + 1, picks.positions)
        assert not len(last.ranked)


@pytest.mark.parametrize("hard", [True, False])
def test_bears_as_many_levels_as_a_fleet_has_clusters(hard: bool) -> None:
    """Under a hard limit every level forbids each domain once, and permits it once."""
    one = Fleet(cluster(f"c{index:04}", region=f"v{index % 3}") for index in range(900))

    picks = _pick(one, pick_n(900, spread=[spread("region", 1, hard=hard)]), 900)

    assert picks.positions.tolist() == [*range(899, -1, -1)]
    assert picks.spread[0].tolist() == [-1, 0, 1] * 300


@pytest.mark.parametrize("hard", [True, False])
def test_bears_as_many_constraints_as_a_policy_may_have(hard: bool) -> None:
    keys = [f"k{index}" for index in range(60)]
    one = fleet(
        *(
            cluster(f"c{index}", dict.fromkeys(keys, f"v{index % 2}"))
            for index in range(6)
        )
    )
    constraints = [spread(key, hard=hard) for key in keys]

    picks = _pick(one, pick_n(6, spread=constraints), 4, "c0", "c2")

    assert _names(one, picks) == ["c5", "c3", "c4", "c1"]
    assert picks.spread[0].tolist() == [60, 60, -60, 60]


@pytest.mark.nightly
def test_more_cells_than_sixteen_bits_can_number() -> None:
    one = Fleet(cluster(f"c{index:05}", host=f"h{index}") for index in range(70_000))

    picks = _pick(one, pick_n(3, spread=[spread("host")]), 3)

    assert _names(one, picks) == ["c69999", "c69998", "c69997"]
