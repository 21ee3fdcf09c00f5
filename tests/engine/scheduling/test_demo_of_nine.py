"""The demo of nine clusters, number by number."""

import pytest

from clusters.fleet import Fleet
from placements.engine.scheduling.decision import CycleKind, Decision
from placements.engine.scheduling.outcome import Outcome, Outcomes
from placements.engine.scheduling.reason import ReasonCode
from placements.engine.scheduling.replay import Replay
from placements.manifests.binding import PlacedBinding
from placements.manifests.policy import PlacementPolicy
from tests.builders import (
    Document,
    binding,
    cluster,
    decide,
    fleet,
    labelled,
    pick_all,
    pick_fixed,
    pick_n,
    prefer,
    spread,
)

BOTH = pytest.mark.parametrize("semantics", ["fleet", "kubefleet"])

NINE = fleet(
    cluster("bravelion", region="east", env="prod", system="critical"),
    cluster("smartfish", region="east", env="canary"),
    cluster("amberotter", region="east", env="prod", tier="edge"),
    cluster("jumpingcat", region="west", env="prod", system="critical"),
    cluster("flyingpenguin", region="west", env="canary", tier="edge"),
    cluster("quietheron", region="west", env="prod", system="critical"),
    cluster("nimblefox", region="north", env="prod", system="critical"),
    cluster("oldbadger", region="north", env="canary"),
    cluster("palemoth", region="south", env="prod", tier="edge"),
)
REGION, ENV = spread("region"), spread("env", 2, hard=False)
CRITICAL, CANARY = (
    prefer(20, labelled(system="critical")),
    prefer(-10, labelled(env="canary")),
)
PICKS = ("quietheron", "smartfish", "nimblefox", "palemoth", "oldbadger")


def web(
    number: int = 5, spreads: tuple[Document, ...] = (REGION, ENV)
) -> PlacementPolicy:
    """Make the policy of `web`."""
    return pick_n(number, spread=spreads, prefer=[CRITICAL, CANARY])


LEDGER = pick_n(4, required=[labelled(system="critical")], spread=[REGION])
CACHE = pick_n(3, required=[labelled(tier="edge")], spread=[REGION])


def _placed(decision: Decision, *lost: str) -> list[PlacedBinding]:
    """Return the bindings after a decision, as bound, without those that were evicted."""
    return [binding(name) for name in decision.picked_names if name not in lost]


# The editor


@BOTH
def test_web_picks_five_with_these_scores(semantics: str) -> None:
    decision = decide(NINE, web(), semantics=semantics)

    picked = [
        (one.cluster, one.topology_spread_score, one.affinity_score)
        for one in decision.picked
    ]
    assert picked == [
        ("quietheron", -2, 20),
        ("smartfish", 1, -10),
        ("nimblefox", -1, 20),
        ("palemoth", 0, 0),
        ("oldbadger", 0, -10),
    ]


@BOTH
def test_web_says_what_decided_each_step(semantics: str) -> None:
    steps = list(Replay(decide(NINE, web(), semantics=semantics)))

    decided = [(step.winner, step.runner_up, step.decided_by) for step in steps]
    assert decided == [
        ("quietheron", "nimblefox", "name"),
        ("smartfish", "oldbadger", "name"),
        ("nimblefox", "palemoth", "affinity"),
        ("palemoth", None, None),
        ("oldbadger", "flyingpenguin", "name"),
    ]


@BOTH
def test_web_has_four_tied_on_the_first_step_two_on_the_second(semantics: str) -> None:
    replay = Replay(decide(NINE, web(), semantics=semantics))

    def tied(number: int) -> list[str]:
        candidates = replay.candidates(number)
        return [
            candidate.cluster
            for candidate in candidates
            if candidate.rank and candidate.decided_by in (None, "name")
        ]

    assert tied(1) == ["quietheron", "nimblefox", "jumpingcat", "bravelion"]
    assert tied(2) == ["smartfish", "oldbadger"]
    assert tied(4) == ["palemoth"]


@BOTH
def test_web_spread_after_the_last_pick(semantics: str) -> None:
    region, env = list(Replay(decide(NINE, web(), semantics=semantics)))[-1].spreads

    assert (region.after, region.skew_after) == (
        {"east": 1, "north": 2, "south": 1, "west": 1},
        1,
    )
    assert (env.after, env.skew_after) == ({"canary": 2, "prod": 3}, 1)


@BOTH
def test_web_outranks_the_other_four(semantics: str) -> None:
    outcomes = {
        outcome.cluster: outcome.outcome
        for outcome in Outcomes(decide(NINE, web(), semantics=semantics))
    }

    others = ("amberotter", "bravelion", "flyingpenguin", "jumpingcat")
    assert {
        name: outcome
        for name, outcome in outcomes.items()
        if outcome is not Outcome.PICKED
    } == dict.fromkeys(others, Outcome.OUTRANKED)


@BOTH
def test_web_reaches_at_most_seven(semantics: str) -> None:
    assert len(decide(NINE, web(7), semantics=semantics).picked) == 7
    assert len(decide(NINE, web(8), semantics=semantics).picked) == 7


@BOTH
def test_web_before_the_last_edit_had_only_prod(semantics: str) -> None:
    before = decide(NINE, web(spreads=(REGION,)), semantics=semantics)

    assert set(before.picked_names) == {
        "quietheron",
        "nimblefox",
        "palemoth",
        "bravelion",
        "jumpingcat",
    }


@BOTH
def test_the_last_edit_of_web_swaps_two_clusters_and_keeps_three(
    semantics: str,
) -> None:
    before = decide(NINE, web(spreads=(REGION,)), semantics=semantics)
    obsolete = [binding(name, obsolete=True) for name in before.picked_names]

    after = decide(NINE, web(), *obsolete, semantics=semantics)

    assert set(after.picked_names) == set(PICKS)
    assert after.unscheduled == ("bravelion", "jumpingcat")
    assert sum(outcome.stays for outcome in Outcomes(after)) == 3


@BOTH
def test_smartfish_without_its_env_label_is_picked_first(semantics: str) -> None:
    one = NINE.with_cluster(cluster("smartfish", region="east"))

    assert decide(one, web(), semantics=semantics).picked_names[0] == "smartfish"


# The replay


@BOTH
def test_web_step_two_ranks_six_and_forbids_two(semantics: str) -> None:
    candidates = Replay(decide(NINE, web(), semantics=semantics)).candidates(2)

    rows = [
        (
            candidate.rank,
            candidate.cluster,
            *(verdict.score for verdict in candidate.constraints),
            candidate.affinity_score,
            candidate.decided_by,
        )
        for candidate in candidates
        if candidate.rank
    ]
    assert rows == [
        (1, "smartfish", 0, 1, -10, None),
        (2, "oldbadger", 0, 1, -10, "name"),
        (3, "nimblefox", 0, -1, 20, "topology"),
        (4, "bravelion", 0, -1, 20, "topology"),
        (5, "palemoth", 0, -1, 0, "topology"),
        (6, "amberotter", 0, -1, 0, "topology"),
    ]
    assert [candidate.cluster for candidate in candidates if not candidate.rank] == [
        "flyingpenguin",
        "jumpingcat",
    ]


@BOTH
def test_web_step_two_shows_west_filtered_because_it_would_be_two_to_none(
    semantics: str,
) -> None:
    verdict = (
        Replay(decide(NINE, web(), semantics=semantics))
        .candidate(2, "jumpingcat")
        .constraints[0]
    )

    assert (verdict.group, verdict.count, verdict.smallest, verdict.skew_after) == (
        "west",
        1,
        0,
        2,
    )
    assert verdict.is_forbidden


@BOTH
def test_web_groups_after_step_two(semantics: str) -> None:
    region, env = Replay(decide(NINE, web(), semantics=semantics)).step(2).spreads

    assert region.after == {"east": 1, "north": 0, "south": 0, "west": 1}
    assert env.after == {"canary": 1, "prod": 1}


@BOTH
def test_web_skew_step_by_step(semantics: str) -> None:
    steps = list(Replay(decide(NINE, web(), semantics=semantics)))

    assert [step.spreads[0].skew_after for step in steps] == [1, 1, 1, 0, 1]
    assert [step.spreads[1].skew_after for step in steps] == [1, 0, 1, 2, 1]


@BOTH
def test_bravelion_competes_in_steps_one_two_and_five(semantics: str) -> None:
    replay = Replay(decide(NINE, web(), semantics=semantics))

    ranks = {
        number: replay.candidate(number, "bravelion").rank for number in range(1, 6)
    }

    assert [number for number, rank in ranks.items() if rank is not None] == [1, 2, 5]


@BOTH
def test_bravelion_is_outranked_because_a_fourth_prod_costs_a_thousand(
    semantics: str,
) -> None:
    decision = decide(NINE, web(), semantics=semantics)

    facts = Outcomes(decision).of("bravelion").reasons[0].facts
    env = Replay(decision).candidate(5, "bravelion").constraints[1]
    assert (facts["behind"], facts["decidedBy"]) == ("oldbadger", "topology")
    assert (facts["topologySpreadScore"], facts["behindTopologySpreadScore"]) == (
        -1001,
        0,
    )
    assert (env.count, env.smallest, env.skew_after, env.max_skew) == (3, 1, 3, 2)


def _bravelion_in_canary() -> Fleet:
    return NINE.with_cluster(
        cluster("bravelion", region="east", env="canary", system="critical")
    )


@BOTH
@pytest.mark.parametrize(
    ("one", "policy"),
    [
        (NINE, web(7)),
        (NINE, web(spreads=(REGION,))),
        (_bravelion_in_canary(), web()),
        (NINE.without("smartfish"), web()),
    ],
    ids=["seven clusters", "without env", "env=canary", "smartfish left"],
)
def test_bravelion_would_be_picked_if(
    one: Fleet, policy: PlacementPolicy, semantics: str
) -> None:
    assert "bravelion" in decide(one, policy, semantics=semantics).picked_names


@BOTH
def test_bravelion_in_canary_replaces_oldbadger(semantics: str) -> None:
    picked = set(
        decide(_bravelion_in_canary(), web(), semantics=semantics).picked_names
    )

    assert picked ^ set(PICKS) == {"bravelion", "oldbadger"}


@BOTH
@pytest.mark.parametrize(
    "policy",
    [
        web(spreads=(spread("region", 2), ENV)),
        web(spreads=(REGION, spread("env", 3, hard=False))),
        web(spreads=(spread("region", hard=False), ENV)),
        web(6),
    ],
    ids=["region 2", "env 3", "region soft", "six clusters"],
)
def test_bravelion_would_still_not_be_picked_if(
    policy: PlacementPolicy, semantics: str
) -> None:
    assert "bravelion" not in decide(NINE, policy, semantics=semantics).picked_names


@BOTH
def test_the_sixth_cluster_of_web_is_flyingpenguin(semantics: str) -> None:
    assert decide(NINE, web(6), semantics=semantics).picked_names == (
        *PICKS,
        "flyingpenguin",
    )


# The other placements


@BOTH
def test_ledger_stops_at_three_because_south_has_no_critical_cluster(
    semantics: str,
) -> None:
    decision = decide(NINE, LEDGER, semantics=semantics)

    assert (decision.picked_names, decision.is_fulfilled) == (
        ("quietheron", "nimblefox", "bravelion"),
        False,
    )


@BOTH
def test_ledger_filters_the_last_critical_cluster_by_spread_and_the_rest_by_affinity(
    semantics: str,
) -> None:
    outcomes = Outcomes(decide(NINE, LEDGER, semantics=semantics))

    jumpingcat = outcomes.of("jumpingcat").reasons
    assert [reason.code for reason in jumpingcat] == [ReasonCode.TOPOLOGY_SPREAD]
    assert (jumpingcat[0].facts["count"], jumpingcat[0].facts["smallest"]) == (1, 0)
    assert outcomes.of("palemoth").reasons[0].code is ReasonCode.REQUIRED_AFFINITY


@BOTH
def test_cache_has_one_cluster_in_each_of_three_regions(semantics: str) -> None:
    decision = decide(NINE, CACHE, semantics=semantics)

    assert (set(decision.picked_names), decision.is_fulfilled) == (
        {"amberotter", "flyingpenguin", "palemoth"},
        True,
    )
    assert list(Replay(decision))[-1].spreads[0].skew_after == 1


@BOTH
def test_cache_keeps_flyingpenguin_as_a_stale_pick(semantics: str) -> None:
    placed = _placed(decide(NINE, CACHE, semantics=semantics))
    unlabelled = NINE.with_cluster(
        cluster("flyingpenguin", region="west", env="canary")
    )

    decision = decide(unlabelled, CACHE, *placed, semantics=semantics)

    assert (decision.kind, decision.kept) == (
        CycleKind.NOTHING_TO_DO,
        ("amberotter", "flyingpenguin", "palemoth"),
    )


def test_config_and_batch_take_what_they_name_and_all() -> None:
    names = ("nimblefox", "bravelion", "quietheron")

    assert decide(NINE, pick_fixed(*names)).picked_names == names
    assert decide(NINE, pick_all()).picked_names == NINE.names
