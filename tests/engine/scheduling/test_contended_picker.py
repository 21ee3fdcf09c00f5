"""Cells of clusters: the same picks and scores as every round evaluated for every cluster."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from clusters.fleet import Fleet
from placements.engine.scheduling.candidates import Candidates, candidates_of
from placements.engine.scheduling.picker import pick
from placements.engine.scheduling.round import Round
from tests.builders import cluster, cycle, labelled, pick_n, prefer, spread

KEYS = {"region": 3, "zone": 8, "host": 250}


@dataclass(frozen=True)
class Rules:
    semantics: str
    options: dict[str, Any] = field(default_factory=dict)


def _weighted(**options: Any) -> Rules:
    return Rules("ocm", {"mode": "weighted", **options})


RULES = [
    Rules("kubernetes"),
    Rules("ocm"),
    Rules("ocm", {"nested": False}),
    Rules("ocm", {"unsetPolicy": "free"}),
    Rules("ocm", {"unsetPolicy": "exclude", "nested": False}),
    _weighted(),
    _weighted(u=0.3, nested=False),
    _weighted(unsetPolicy="free"),
    _weighted(unsetPolicy="free", nested=False, u=7),
    Rules("ocm", {"domainWeights": {"region": {"v0": 3}}}),
    _weighted(domainWeights={"region": {"v0": 3}}),
]
ALL_RULES = pytest.mark.parametrize(
    "rules", RULES, ids=lambda rules: f"{rules.semantics} {rules.options or ''}".strip()
)


def _fleet(
    draw: np.random.Generator, size: int, keys: dict[str, int], share: float = 0.9
) -> Fleet:
    return Fleet(
        cluster(
            f"c{index:03}",
            {
                key: f"v{draw.integers(values)}"
                for key, values in keys.items()
                if draw.random() < share
            },
        )
        for index in range(size)
    )


def _candidates(
    one: Fleet, rules: Rules, constraints: list[dict[str, Any]], wanted: int
) -> Candidates:
    preferred = [
        prefer(weight, labelled(zone=f"v{value}"))
        for value, weight in enumerate([40, -25, 40, 3], start=2)
    ]
    chosen = pick_n(wanted, spread=constraints, prefer=preferred)
    return candidates_of(
        replace(cycle(one, chosen, semantics=rules.semantics), options=rules.options)
    )


def _check_picks(candidates: Candidates, wanted: int) -> None:
    """Compare the picks with rounds that are evaluated for every cluster."""
    picks = pick(candidates, wanted)

    for number, position in enumerate(picks.positions.tolist(), start=1):
        plain = Round(candidates, number, picks.positions[: number - 1])
        assert position == plain.best()
        scores = [column[number - 1].item() for column in picks.spread]
        assert scores == [column[position].item() for column in plain.spread]
    after = Round(candidates, len(picks.positions) + 1, picks.positions)
    assert picks.ran_dry == (len(picks.positions) < wanted)
    if picks.ran_dry:
        assert after.best() is None


@ALL_RULES
@pytest.mark.parametrize("hard", ["", "region", "zone host", "region zone host"])
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(one, marks=pytest.mark.nightly) for one in (1, 2))]
)
def test_picks_what_every_cluster_evaluated_in_every_round_gives(
    rules: Rules, hard: str, seed: int
) -> None:
    if hard and "domainWeights" in rules.options:
        hard = "zone"
    draw = np.random.default_rng(seed)
    constraints = [spread(key, 1 + seed, hard=key in hard) for key in KEYS]

    _check_picks(_candidates(_fleet(draw, 200, KEYS), rules, constraints, 200), 200)


@ALL_RULES
@pytest.mark.parametrize("fleets", [20, pytest.param(60, marks=pytest.mark.nightly)])
def test_picks_every_cluster_of_a_small_fleet_as_its_rounds_do(
    rules: Rules, fleets: int
) -> None:
    for seed in range(fleets):
        draw = np.random.default_rng(seed)
        keys = {"region": 2, "zone": 3}
        one = _fleet(draw, int(draw.integers(0, 12)), keys, share=0.8)
        free = "domainWeights" in rules.options
        constraints = [
            spread(key, int(draw.integers(1, 3)), hard=not free and draw.random() < 0.5)
            for key in keys
        ]

        _check_picks(_candidates(one, rules, constraints, 12), 12)


@ALL_RULES
def test_picks_those_behind_their_leaders_as_its_rounds_do(rules: Rules) -> None:
    """Leaders that rank first and second, with successors of one group behind all those of the other."""
    regions = ["v0", "v1", *["v0"] * 59, *["v1"] * 59]
    one = Fleet(
        cluster(f"c{index:03}", region=region) for index, region in enumerate(regions)
    )

    _check_picks(_candidates(one, rules, [spread("region", 5, hard=False)], 120), 120)


@ALL_RULES
def test_picks_as_its_rounds_do_where_most_domains_are_in_one_family(
    rules: Rules,
) -> None:
    """What the siblings of one domain change by is not what that of the other region changes by."""
    zones = [f"v{index % 6}" for index in range(60)]
    one = Fleet(
        cluster(f"c{index:03}", region="other" if zone == "v0" else "most", zone=zone)
        for index, zone in enumerate(zones)
    )
    constraints = [spread(key, 1, hard=False) for key in ("region", "zone")]

    _check_picks(_candidates(one, rules, constraints, 30), 30)


@pytest.mark.parametrize(
    "options", [{"nested": False}, {"nested": False, "mode": "weighted"}]
)
@pytest.mark.parametrize("levels", [8, 9, 16])
def test_picks_as_its_rounds_do_where_levels_outgrow_a_float(
    levels: int, options: dict[str, Any]
) -> None:
    keys = {f"k{index}": 2 for index in range(levels)}
    draw = np.random.default_rng(1)
    one = Fleet(
        cluster(
            f"c{index:03}",
            {key: "rare" if draw.random() < 0.04 else "common" for key in keys},
        )
        for index in range(80)
    )
    constraints = [spread(key, hard=False) for key in keys]

    _check_picks(_candidates(one, Rules("ocm", options), constraints, 60), 60)
