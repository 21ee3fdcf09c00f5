"""`ocm` and `kubernetes` do what a plain evaluation of their rules does, which answers the recorded cases."""

import json
import lzma
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given

from placements.engine.scheduling.decision import CycleKind, Decision
from placements.engine.scheduling.replay import Replay
from placements.engine.scheduling.scheduler import schedule
from tests.builders import cycle_of
from tests.effort import examples
from tests.engine.scheduling.plain_others import PlainRound, plain_rounds
from tests.engine.scheduling.random_other_cases import kubernetes_cases, ocm_cases

Case = dict[str, Any]
THOROUGH = examples(300)
CASES = ocm_cases() | kubernetes_cases()
CONFORMANCE = Path(__file__).parents[2] / "data" / "conformance"


def _picking(case: Case) -> Decision:
    """Schedule a case; drop those in which PickN does not pick."""
    decision = schedule(cycle_of(case))
    assume(decision.kind is CycleKind.PICK)
    return decision


def _rounds(case: Case, decision: Decision) -> list[PlainRound]:
    return list(
        islice(plain_rounds(case), max(len(decision.picked), decision.number_of_rounds))
    )


def _check_picks(case: Case) -> None:
    decision = _picking(case)
    winners = [
        plain_round.ranked[0]
        for plain_round in _rounds(case, decision)
        if plain_round.ranked
    ]

    assert list(decision.picked_names) == [name for name, *_ in winners]
    for picked, (_, spread, affinity) in zip(decision.picked, winners, strict=True):
        assert picked.topology_spread_score == pytest.approx(
            _spread_score(spread), abs=1e-6
        )
        assert picked.affinity_score == pytest.approx(float(affinity), abs=1e-6)
    missing = case["policy"]["numberOfClusters"] - len(decision.kept)
    assert decision.is_fulfilled is (len(winners) == missing)


def _spread_score(spread: Any) -> Any:
    return spread if isinstance(spread, tuple) else float(spread)


@THOROUGH
@given(ocm_cases())
def test_ocm_picks_and_scores_are_those_of_the_plain_evaluation(case: Case) -> None:
    _check_picks(case)


@THOROUGH
@given(kubernetes_cases())
def test_kubernetes_picks_and_scores_are_those_of_the_plain_evaluation(
    case: Case,
) -> None:
    _check_picks(case)


@given(CASES)
def test_every_round_ranks_counts_and_forbids_what_the_plain_evaluation_does(
    case: Case,
) -> None:
    decision = _picking(case)
    replay = Replay(decision)

    for number, plain in enumerate(
        _rounds(case, decision)[: decision.number_of_rounds], start=1
    ):
        candidates = replay.candidates(number)
        ranked = [candidate for candidate in candidates if candidate.rank]
        assert [candidate.cluster for candidate in ranked] == [
            name for name, *_ in plain.ranked
        ]
        assert [candidate.topology_spread_score for candidate in ranked] == [
            pytest.approx(_spread_score(spread), abs=1e-6)
            for _, spread, _ in plain.ranked
        ]
        assert (
            sorted(candidate.cluster for candidate in candidates if not candidate.rank)
            == plain.forbidden
        )
        assert [spread.before for spread in replay.step(number).spreads] == plain.counts


EMPTY_CLUSTER: Case = {"labels": {}, "properties": {}, "taints": []}
EMPTY_POLICY: Case = {
    "topologySpreadConstraints": [],
    "affinity": {},
    "tolerations": [],
}
HARD_BY_ONE = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
DEFAULTS = {
    "mode": "strict",
    "u": 2,
    "nested": True,
    "unsetPolicy": "bucket",
    "unsatisfiable": "fewer",
    "steadyWeight": 100,
    "balance": {},
    "domainWeights": {},
    "affinityTerms": [],
    "balanceWeight": 1,
    "cpuWeight": 0,
    "memoryWeight": 0,
}


@pytest.mark.parametrize(
    ("name", "size"),
    [("kubernetes-topology-spread", 166), ("ocm-spread", 128)],
    ids=["kubernetes", "ocm"],
)
def test_the_plain_evaluation_itself_answers_the_recorded_cases(
    name: str, size: int
) -> None:
    """Only those in which a policy picks; a document would have to be read first."""
    recorded = lzma.decompress(
        (CONFORMANCE / f"{name}.jsonl.xz").read_bytes()
    ).splitlines()
    cases = [_completed(case) for case in map(json.loads, recorded) if _is_a_pick(case)]

    for case in cases:
        missing = case["policy"]["numberOfClusters"] - len(case["expect"]["kept"])
        winners = [
            plain_round.ranked[0]
            for plain_round in islice(plain_rounds(case), missing)
            if plain_round.ranked
        ]
        assert [name for name, *_ in winners] == case["expect"]["picked"], case["id"]
        for winner, spread, affinity in winners:
            scores = case["expect"]["scores"][winner]
            expected = [
                *_levels(scores["topologySpreadScore"]),
                scores["affinityScore"],
            ]
            scores = [*map(float, _levels(spread)), float(affinity)]
            assert scores == pytest.approx(expected, abs=1e-6), case["id"]
    assert len(cases) == size


def _levels(score: Any) -> list[Any]:
    return list(score) if isinstance(score, list | tuple) else [score]


def _is_a_pick(case: Case) -> bool:
    fails = "ocm" in case and case["ocm"].get("unsatisfiable") == "error"
    return "policy" in case and case["policy"]["placementType"] == "PickN" and not fails


def _completed(case: Case) -> Case:
    policy = EMPTY_POLICY | case["policy"]
    policy["topologySpreadConstraints"] = [
        HARD_BY_ONE | constraint for constraint in policy["topologySpreadConstraints"]
    ]
    clusters = [EMPTY_CLUSTER | cluster for cluster in case["clusters"]]
    options = DEFAULTS | case.get("ocm", {})
    return {
        "bindings": [],
        **case,
        "clusters": clusters,
        "policy": policy,
        "ocm": options,
    }
