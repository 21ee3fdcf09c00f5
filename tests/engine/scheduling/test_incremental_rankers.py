"""Incremental rankers: the same picks and scores as the eight methods evaluated in every round."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from clusters.fleet import Fleet
from placements.engine.scheduling import contended_picker
from placements.engine.scheduling.candidates import Candidates, Picks, candidates_of
from placements.engine.scheduling.picker import pick
from placements.engine.scheduling.spread.base import IncrementalRanker
from placements.engine.scheduling.spread.kubernetes import KubernetesRanker
from placements.engine.scheduling.spread.ocm_incremental import GapRanker, WeightedRanker
from tests.builders import cluster, cycle, labelled, pick_n, prefer, spread

KEYS = {"region": 3, "zone": 8, "host": 250}


@dataclass(frozen=True)
class Rules:
    """Semantics with their options, and what ranker they have to use."""

    semantics: str
    kind: type[IncrementalRanker] | None
    options: dict[str, Any] = field(default_factory=dict)


def _weighted(**options: Any) -> Rules:
    return Rules("ocm", WeightedRanker, {"mode": "weighted", **options})


RULES = [
    Rules("kubernetes", KubernetesRanker),
    Rules("ocm", GapRanker),
    Rules("ocm", GapRanker, {"nested": False}),
    Rules("ocm", GapRanker, {"unsetPolicy": "free"}),
    Rules("ocm", GapRanker, {"unsetPolicy": "exclude", "nested": False}),
    _weighted(),
    _weighted(u=0.3, nested=False),
    _weighted(unsetPolicy="free"),
    _weighted(unsetPolicy="free", nested=False, u=7),
    Rules("ocm", None, {"domainWeights": {"region": {"v0": 3}}}),
]
ALL_RULES = pytest.mark.parametrize(
    "rules", RULES, ids=lambda rules: f"{rules.semantics} {rules.options or ''}".strip()
)


def _fleet(draw: np.random.Generator, size: int, keys: dict[str, int], share: float = 0.9) -> Fleet:
    return Fleet(
        cluster(
            f"c{index:03}",
            {key: f"v{draw.integers(values)}" for key, values in keys.items() if draw.random() < share},
        )
        for index in range(size)
    )


def _candidates(one: Fleet, rules: Rules, constraints: list[dict[str, Any]], wanted: int) -> Candidates:
    preferred = [
        prefer(weight, labelled(zone=f"v{value}")) for value, weight in enumerate([40, -25, 40, 3], start=2)
    ]
    chosen = pick_n(wanted, spread=constraints, prefer=preferred)
    return candidates_of(replace(cycle(one, chosen, semantics=rules.semantics), options=rules.options))


def _picked_plainly(candidates: Candidates, wanted: int, monkeypatch: pytest.MonkeyPatch) -> Picks:
    """Pick with the generic ranker alone."""
    with monkeypatch.context() as patch:
        patch.setattr(contended_picker, "_ranker", contended_picker.GenericRanker)
        return pick(candidates, wanted)


def _same(kept: Picks, plain: Picks) -> bool:
    assert kept.positions.tolist() == plain.positions.tolist()
    assert [column.tolist() for column in kept.spread] == [column.tolist() for column in plain.spread]
    return kept.ran_dry == plain.ran_dry


def _ranker(candidates: Candidates) -> IncrementalRanker:
    return contended_picker._ranker(contended_picker.Cells(candidates))


@ALL_RULES
@pytest.mark.parametrize("hard", ["", "region", "zone host", "region zone host"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(one, marks=pytest.mark.nightly) for one in (1, 2))])
def test_picks_as_the_generic_ranker_does(
    rules: Rules, hard: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if hard and "domainWeights" in rules.options:
        hard = "zone"
    draw = np.random.default_rng(seed)
    constraints = [spread(key, 1 + seed, hard=key in hard) for key in KEYS]
    candidates = _candidates(_fleet(draw, 300, KEYS), rules, constraints, 300)

    assert isinstance(_ranker(candidates), rules.kind or contended_picker.GenericRanker)
    assert _same(pick(candidates, 300), _picked_plainly(candidates, 300, monkeypatch))


@ALL_RULES
@pytest.mark.parametrize("fleets", [20, pytest.param(60, marks=pytest.mark.nightly)])
def test_picks_every_cluster_of_a_small_fleet_as_the_generic_ranker_does(
    rules: Rules, fleets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(fleets):
        draw = np.random.default_rng(seed)
        keys = {"region": 2, "zone": 3}
        one = _fleet(draw, int(draw.integers(0, 12)), keys, share=0.8)
        free = "domainWeights" in rules.options
        constraints = [
            spread(key, int(draw.integers(1, 3)), hard=not free and draw.random() < 0.5) for key in keys
        ]
        candidates = _candidates(one, rules, constraints, 12)

        assert _same(pick(candidates, 12), _picked_plainly(candidates, 12, monkeypatch)), seed


@pytest.mark.nightly
@ALL_RULES
def test_ranks_those_behind_their_leaders_as_the_generic_ranker_does(
    rules: Rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaders that rank first and second, with successors of one group behind all those of the other."""
    regions = ["v0", "v1", *["v0"] * 199, *["v1"] * 199]
    one = Fleet(cluster(f"c{index:03}", region=region) for index, region in enumerate(regions))
    candidates = _candidates(one, rules, [spread("region", 5, hard=False)], 400)

    assert _same(pick(candidates, 400), _picked_plainly(candidates, 400, monkeypatch))


def test_continues_with_the_generic_ranker_where_the_gaps_outgrow_their_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = {f"k{index}": 2 for index in range(16)}
    draw = np.random.default_rng(1)
    one = Fleet(
        cluster(f"c{index:03}", {key: "rare" if draw.random() < 0.04 else "common" for key in keys})
        for index in range(200)
    )
    rules = Rules("ocm", GapRanker, {"nested": False})
    candidates = _candidates(one, rules, [spread(key, hard=False) for key in keys], 150)
    room = 1 << (54 - 8) // len(keys)  # 8 bits for the ranks of 200 clusters

    picks = pick(candidates, 150)

    assert max(-column.min() for column in picks.spread) >= room
    assert _same(picks, _picked_plainly(candidates, 150, monkeypatch))


@pytest.mark.parametrize(
    ("semantics", "options", "levels", "weight"),
    [("ocm", {"mode": "weighted"}, 9, 1), ("kubernetes", {}, 1, 1 << 51)],
    ids=["too many levels", "too large a preference"],
)
def test_caches_no_rows_whose_numbers_would_not_be_exact(
    semantics: str, options: dict[str, Any], levels: int, weight: int
) -> None:
    one = Fleet(cluster(f"c{index}", {f"k{key}": f"v{index % 2}" for key in range(9)}) for index in range(4))
    constraints = [spread(f"k{key}", hard=False) for key in range(levels)]
    candidates = _candidates(one, Rules(semantics, None, options), constraints, 3)
    start = contended_picker.Cells(candidates).field()
    heavy = replace(start, widest=start.widest + weight)

    assert candidates.strategy.ranker(heavy) is None  # type: ignore[attr-defined]
