"""The demo of nine clusters when clusters are drained or leave."""

import pytest

from clusters.fleet import Fleet
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.outcome import Outcomes
from placements.manifests.binding import PlacedBinding
from tests.builders import binding, decide, pick_all, pick_fixed, taint
from tests.engine.scheduling.test_demo_of_nine import LEDGER, NINE, web

BOTH = pytest.mark.parametrize("semantics", ["fleet", "kubefleet"])


def _placed(decision: Decision, *lost: str) -> list[PlacedBinding]:
    """Return the bindings after a decision, as bound, without those that were evicted."""
    return [binding(name) for name in decision.picked_names if name not in lost]


def _in_region(name: str) -> list[str]:
    return [cluster.name for cluster in NINE if cluster.labels["region"] == name]


def _without_east() -> Fleet:
    return Fleet(cluster for cluster in NINE if cluster.labels["region"] != "east")


def _with_east_cordoned() -> Fleet:
    return Fleet(
        cluster.with_changes(taints=(taint("cordoned"),))
        if cluster.labels["region"] == "east"
        else cluster
        for cluster in NINE
    )


# Draining nimblefox


def _drained() -> Fleet:
    return NINE.with_cluster(
        NINE.clusters[NINE.positions["nimblefox"]].with_changes(
            taints=(taint("drain"),)
        )
    )


@BOTH
def test_draining_nimblefox_brings_jumpingcat_into_web(semantics: str) -> None:
    placed = _placed(decide(NINE, web(), semantics=semantics), "nimblefox")

    decision = decide(_drained(), web(), *placed, semantics=semantics)

    picked = [
        (one.cluster, one.topology_spread_score, one.affinity_score)
        for one in decision.picked
    ]
    assert (picked, decision.is_fulfilled) == ([("jumpingcat", -2, 20)], True)


@BOTH
def test_draining_nimblefox_leaves_ledger_without_a_replacement(semantics: str) -> None:
    placed = _placed(decide(NINE, LEDGER, semantics=semantics), "nimblefox")

    decision = decide(_drained(), LEDGER, *placed, semantics=semantics)

    assert (decision.kept, decision.picked, decision.is_fulfilled) == (
        ("bravelion", "quietheron"),
        (),
        False,
    )
    facts = Outcomes(decision).of("jumpingcat").reasons[0].facts
    assert (facts["group"], facts["count"], facts["smallest"]) == ("west", 1, 0)


def test_draining_nimblefox_takes_it_out_of_batch_only() -> None:
    batch = decide(
        _drained(), pick_all(), *_placed(decide(NINE, pick_all()), "nimblefox")
    )
    config = pick_fixed("nimblefox", "bravelion", "quietheron")

    assert (len(batch.kept), batch.picked, batch.is_fulfilled) == (8, (), True)
    assert (
        "nimblefox" in decide(_drained(), config, *_placed(decide(NINE, config))).kept
    )


# Region east goes down


@BOTH
def test_when_east_leaves_flyingpenguin_takes_smartfishs_place(semantics: str) -> None:
    placed = _placed(decide(NINE, web(), semantics=semantics))

    decision = decide(_without_east(), web(), *placed, semantics=semantics)

    picked = [
        (one.cluster, one.topology_spread_score, one.affinity_score)
        for one in decision.picked
    ]
    assert (picked, decision.unscheduled, decision.is_fulfilled) == (
        [("flyingpenguin", 1, -10)],
        ("smartfish",),
        True,
    )


@pytest.mark.parametrize(
    ("semantics", "picked"), [("fleet", ("flyingpenguin",)), ("kubefleet", ())]
)
def test_when_east_is_cordoned_web_is_stuck_under_kubefleet_only(
    semantics: str, picked: tuple[str, ...]
) -> None:
    placed = _placed(decide(NINE, web(), semantics=semantics), *_in_region("east"))

    decision = decide(_with_east_cordoned(), web(), *placed, semantics=semantics)

    assert (decision.picked_names, decision.is_fulfilled) == (picked, bool(picked))


@BOTH
@pytest.mark.parametrize("cordoned", [True, False])
def test_when_east_goes_down_ledger_is_stuck_at_two_either_way(
    cordoned: bool, semantics: str
) -> None:
    placed = _placed(decide(NINE, LEDGER, semantics=semantics), *_in_region("east"))
    one = _with_east_cordoned() if cordoned else _without_east()

    decision = decide(one, LEDGER, *placed, semantics=semantics)

    assert (decision.kept, decision.picked, decision.is_fulfilled) == (
        ("nimblefox", "quietheron"),
        (),
        False,
    )
