"""`kubernetes` and `ocm`: what must always hold, and the vectors of `spec/other-schedulers.md` by name."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placements.scheduling.candidates import candidates_of
from placements.scheduling.columns import ABSENT
from placements.scheduling.cycle import Cycle
from placements.scheduling.decision import Decision
from placements.scheduling.door.ocm_options import parse_ocm_options
from placements.scheduling.fleet import Fleet
from placements.scheduling.outcomes import Outcomes
from placements.scheduling.policy import Semantics, parse_policy
from placements.scheduling.replay import Replay
from placements.scheduling.scheduler import schedule
from placements.scheduling.spread.base import Race, is_hard
from placements.scheduling.spread.kubernetes import KubernetesSpread
from placements.scheduling.storage import pack, unpack
from tests.builders import Document, binding, cluster, fleet, grouped, labelled, prefer, spread

KUBERNETES = KubernetesSpread()
SETTINGS = settings(max_examples=60)


def _cycle(
    members: Fleet,
    number: int,
    spreads: list[Document],
    *placed: str,
    semantics: str = "ocm",
    preferred: list[Document] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Cycle:
    plain: Document = {
        "placementType": "PickN",
        "numberOfClusters": number,
        "topologySpreadConstraints": spreads,
    }
    if preferred:
        wishes = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
        plain["affinity"] = {"clusterAffinity": wishes}
    chosen = Semantics(semantics)
    policy = parse_policy(plain, semantics=chosen)
    given_options = parse_ocm_options(dict(options or {})).to_plain() if chosen is Semantics.OCM else {}
    return Cycle(members, policy, tuple(map(binding, placed)), chosen, given_options)


def _picks(*arguments: Any, **options: Any) -> list[str]:
    return list(schedule(_cycle(*arguments, **options)).picked_names)


def _zones(**sizes: int) -> Fleet:
    """Make zones of so many clusters, named zone-number."""
    return fleet(
        *(
            cluster(f"{zone}-{number}", zone=zone)
            for zone, size in sizes.items()
            for number in range(1, size + 1)
        )
    )


# Use cases of the proposal (`spec/other-schedulers.md` 2.8)


def test_use_case_2_two_zones_get_two_each() -> None:
    assert _picks(_zones(a=3, b=3), 4, [spread("zone")]) == ["a-1", "b-1", "a-2", "b-2"]


def test_use_case_3_a_hard_limit_of_one_leaves_one_pending() -> None:
    decision = schedule(_cycle(_zones(a=3, b=1), 4, [spread("zone")]))

    assert decision.picked_names == ("a-1", "b-1", "a-2")
    assert not decision.is_fulfilled


def test_use_case_3_the_draft_wants_an_error_instead_of_fewer() -> None:
    options = {"unsatisfiable": "error"}

    decision = schedule(_cycle(_zones(a=3, b=1), 4, [spread("zone")], options=options))

    assert decision.is_failed
    assert decision.picked_names == ()


def test_use_case_5_u_below_one_lets_preference_win_over_spread() -> None:
    members = fleet(
        *(cluster(f"us-east-1a-{n}", region="east", zone="1a") for n in range(1, 5)),
        *(cluster(f"us-east-1b-{n}", region="east", zone="1b") for n in range(1, 5)),
        *(cluster(f"us-west-1a-{n}", region="west", zone="w1") for n in range(1, 5)),
    )
    rows = [
        {"weight": 20, "operator": "In", "values": ["1a"]},
        {"weight": 10, "operator": "In", "values": ["1b"]},
    ]
    affinity = {"affinityTerms": [{"topologyKey": "zone", "topologyWeights": rows}]}
    soft = [spread("region", hard=False)]

    assert _picks(members, 4, soft, options={**affinity, "mode": "weighted"}) == [
        "us-east-1a-1",
        "us-west-1a-1",
        "us-east-1a-2",
        "us-west-1a-2",
    ]
    assert _picks(members, 4, soft, options={**affinity, "mode": "weighted", "u": 0.5}) == [
        f"us-east-1a-{number}" for number in range(1, 5)
    ]


@pytest.mark.parametrize(
    ("number", "expected"), [(6, "ewewee"), (5, "ewewe"), (4, "ewee"), (3, "ewe"), (2, "ew"), (1, "e")]
)
def test_use_case_6_two_to_one(number: int, expected: str) -> None:
    weights = {"domainWeights": {"zone": {"e": 2, "w": 1}}}

    picks = _picks(_zones(e=9, w=9), number, [spread("zone", hard=False)], options=weights)

    assert sorted(name[0] for name in picks) == sorted(expected if number != 6 else "eeeeww")


def test_nested_levels_compare_siblings_only() -> None:
    members = fleet(
        *(cluster(f"e{zone}{n}", region="east", zone=zone) for zone in "abc" for n in (1, 2)),
        *(cluster(f"w{n}", region="west", zone="w") for n in (1, 2, 3)),
    )
    limits = [spread("region"), spread("zone")]

    assert len(_picks(members, 6, limits)) == 6
    assert len(_picks(members, 6, limits, options={"nested": False})) == 3


@pytest.mark.parametrize(
    ("unset", "expected"),
    [
        ("bucket", ["east-1", "west-1", "yak"]),
        ("exclude", ["east-1", "west-1"]),
        ("free", ["yak", "zeta", "east-1"]),
    ],
)
def test_clusters_without_the_key(unset: str, expected: list[str]) -> None:
    members = fleet(*grouped("region", east="east-1", west="west-1"), "yak", "zeta")

    picks = _picks(members, 3, [spread("region")], options={"unsetPolicy": unset})

    assert sorted(picks) == sorted(expected) or unset == "free"


@pytest.mark.parametrize(("u", "moved"), [(2, True), (0.25, False)])
def test_steady_keeps_a_chosen_cluster_while_it_outweighs_the_spread(u: float, moved: bool) -> None:
    placed = ("a-1", "a-2", "b-1")
    options = {"mode": "weighted", "u": u, "steadyWeight": 100}

    picks = _picks(_zones(a=2, b=1, c=1, d=1), 4, [spread("zone", hard=False)], *placed, options=options)

    assert (len(set(placed) - set(picks)) == 1) is moved


# PodTopologySpread on given counts (`spec/other-schedulers.md` 3.4, 3.5)


def _hard_groups(counts: list[int], *, max_skew: int = 1, min_domains: int | None = None) -> list[bool]:
    """Say for groups with these counts whether one more may go there."""
    raw = {**spread("zone", max_skew), **({"minDomains": min_domains} if min_domains else {})}
    members = fleet(*(cluster(f"z{index}", zone=f"z{index}") for index in range(len(counts))))
    cycle = _cycle(members, 1, [raw], semantics="kubernetes")
    candidates = candidates_of(cycle)
    race = Race(candidates.constraints, candidates.groups, (_array(counts),), candidates.passes)
    (verdict,) = KUBERNETES.verdicts(race)
    return [not forbidden for forbidden in verdict.forbids.tolist()]


def _array(counts: list[int]) -> Any:
    return (
        candidates_of(_cycle(_zones(a=1), 0, [], semantics="kubernetes")).was_here.repeat(len(counts))
        + counts
    )


@pytest.mark.parametrize(
    ("name", "counts", "limit", "allowed"),
    [
        ("K1", [1, 1, 0], 1, [False, False, True]),
        ("K2", [1, 1, 0], 2, [True, True, True]),
        ("K6a", [3, 2, 1], 1, [False, False, True]),
        ("K6b", [1, 2, 0, 2, 0, 0, 1], 1, [False, False, True, False, True, True, False]),
        ("K13", [1, 1], 1, [True, True]),
        ("T1", [2, 1], 1, [False, True]),
        ("T6", [3, 1, 1], 1, [False, True, True]),
    ],
)
def test_hard_vectors(name: str, counts: list[int], limit: int, allowed: list[bool]) -> None:
    assert _hard_groups(counts, max_skew=limit) == allowed, name


def test_t7_fewer_groups_than_min_domains_count_as_an_empty_one() -> None:
    assert _hard_groups([2, 2, 2], max_skew=2, min_domains=5) == [False, False, False]


def _soft_scores(counts: list[int], max_skew: int) -> list[int]:
    members = fleet(*(cluster(f"n{index}", node=f"n{index}") for index in range(len(counts))))
    candidates = candidates_of(
        _cycle(members, 1, [spread("node", max_skew, hard=False)], semantics="kubernetes")
    )
    race = Race(candidates.constraints, candidates.groups, (_array(counts),), candidates.passes)
    scores = KUBERNETES.scores(race, candidates.passes)
    (spread_score,) = KUBERNETES.combine(race, scores, candidates.passes)
    return [int(score) for score in spread_score.tolist()]


@pytest.mark.parametrize(
    ("name", "counts", "max_skew", "scores"),
    [
        ("T10", [2, 1, 0, 3], 1, [20, 60, 100, 0]),
        ("T11", [2, 1, 0, 3], 2, [33, 66, 100, 16]),
        ("T12", [4, 3, 2, 1], 3, [44, 66, 77, 100]),
    ],
)
def test_soft_vectors(name: str, counts: list[int], max_skew: int, scores: list[int]) -> None:
    assert _soft_scores(counts, max_skew) == scores, name


# What must always hold


@st.composite
def cycles(draw: st.DrawFn) -> Cycle:
    """Draw PickN cycles of both semantics."""
    semantics = draw(st.sampled_from(["kubernetes", "ocm"]))
    names = "abcdefghij"[: draw(st.integers(0, 10))]
    values = st.sampled_from(["x", "y", "z", None])
    members = []
    for name in names:
        drawn = {key: draw(values) for key in ("zone", "rack")}
        labels = {key: value for key, value in drawn.items() if value is not None}
        kind = "noAgent" if draw(st.integers(0, 7)) == 0 else None
        members.append(cluster(name, labels, not_eligible=kind))
    keys = draw(st.lists(st.sampled_from(["zone", "rack"]), unique=True))
    spreads = [spread(key, draw(st.integers(1, 2)), hard=draw(st.booleans())) for key in keys]
    preferred = [prefer(draw(st.integers(-90, 90)), labelled(zone="x"))] if draw(st.booleans()) else []
    placed = draw(st.lists(st.sampled_from(names), unique=True, max_size=3)) if names else []
    options = {
        "mode": draw(st.sampled_from(["strict", "weighted"])),
        "nested": draw(st.booleans()),
        "unsetPolicy": draw(st.sampled_from(["bucket", "exclude", "free"])),
    }
    return _cycle(
        fleet(*members),
        draw(st.integers(0, 10)),
        spreads,
        *placed,
        semantics=semantics,
        preferred=preferred,
        options=options,
    )


@SETTINGS
@given(cycles())
def test_the_record_tells_the_same_after_storing_and_for_any_order_of_the_input(cycle: Cycle) -> None:
    decision = schedule(cycle)

    again = unpack(pack(decision), cycle.fleet)
    reversed_input = replace(
        cycle, fleet=Fleet(reversed(cycle.fleet.clusters)), bindings=cycle.bindings[::-1]
    )
    other = schedule(reversed_input)

    assert (again.picked, again.id) == (decision.picked, decision.id) == (other.picked, other.id)
    assert list(Replay(again)) == list(Replay(decision))


@SETTINGS
@given(cycles())
def test_every_round_replays_to_its_pick_and_every_cluster_has_one_outcome(cycle: Cycle) -> None:
    decision = schedule(cycle)

    if cycle.policy.topology_spread_constraints:
        winners = [step.winner for step in Replay(decision)]
        assert tuple(name for name in winners if name is not None) == decision.picked_names
        for number, picked in enumerate(decision.picked, start=1):
            candidate = Replay(decision).candidate(number, picked.cluster)
            assert (candidate.rank, candidate.topology_spread_score) == (1, picked.topology_spread_score)
    outcomes = list(Outcomes(decision))
    assert [one.cluster for one in outcomes] == list(cycle.fleet.names)
    assert all(sum(reason.is_deciding for reason in one.reasons) == 1 for one in outcomes)


@SETTINGS
@given(cycles())
def test_picks_for_n_begin_the_picks_for_one_more(cycle: Cycle) -> None:
    number = cycle.policy.number_of_clusters or 0
    fewer = schedule(cycle)
    assume(fewer.number_of_rounds)

    more = schedule(replace(cycle, policy=cycle.policy.model_copy(update={"number_of_clusters": number + 1})))

    assert more.picked_names[: len(fewer.picked_names)] == fewer.picked_names


@SETTINGS
@given(cycles())
def test_no_pick_breaks_a_hard_limit(cycle: Cycle) -> None:
    decision = schedule(cycle)

    for number, name in enumerate(decision.picked_names, start=1):
        if cycle.policy.topology_spread_constraints:
            candidate = Replay(decision).candidate(number, name)
            assert not any(verdict.is_forbidden for verdict in candidate.constraints)
            assert _is_within_limits(decision, number, name)


def _is_within_limits(decision: Decision, number: int, name: str) -> bool:
    one = decision.round(number)
    position = decision.cycle.fleet.positions[name]
    for bid in one.bids:
        code = int(bid.groups.codes[position])
        if is_hard(bid.constraint) and code != ABSENT and bid.outlook.after[code] > bid.constraint.max_skew:
            return False
    return True
