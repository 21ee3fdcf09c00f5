"""Skews and bands of groups that are not compared with the emptiest (`rules/other-schedulers.md#ocm`)."""

import json
from typing import Any

import pytest

from placements.engine.advice.diagnosis import over_limits
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.replay import Replay
from placements.engine.scheduling.scheduler import schedule
from placements.explain.charts.lanes import lanes_figure
from placements.explain.lanes import final_skews, lane_panels, placed_panels
from placements.services.fleet.queries import Skew, headroom_of
from tests.builders import cluster, fleet, grouped, spread
from tests.engine.scheduling.other_cycles import kubernetes, ocm

J2 = fleet(
    *(
        cluster(f"e{zone}{number}", region="east", zone=zone)
        for zone in "abc"
        for number in (1, 2)
    ),
    *(cluster(f"w{number}", region="west", zone="w") for number in (1, 2, 3)),
)
"""Three zones in the east, one in the west: six of them are 3/3 by region and 1/1/1/3 by zone."""
NESTED = ocm(J2, 6, [spread("region"), spread("zone")])
FLAT = ocm(
    J2,
    6,
    [spread("region", 1, hard=False), spread("zone", 1, hard=False)],
    nested=False,
)
T7 = kubernetes(
    fleet(*grouped("zone", a="a1 a2 a3", b="b1 b2 b3", c="c1 c2 c3")),
    7,
    [spread("zone", 2) | {"minDomains": 5}],
    *(["a1", "a2", "b1", "b2", "c1", "c2"]),
)
"""Three zones with two each where five are wanted: each counts as two above the smallest."""
RATIO = ocm(
    fleet(*grouped("region", e="e1 e2 e3", w="w1 w2 w3")),
    3,
    [spread("region", hard=False)],
    domainWeights={"region": {"e": 2}},
)


def _bands(cycle: Cycle) -> list[tuple[float, ...]]:
    shapes = json.loads(
        lanes_figure(lane_panels(schedule(cycle)), width=600).to_json()
    )["layout"]["shapes"]
    bands = [shape for shape in shapes if shape["type"] == "rect"]
    return [(band["x0"], band["x1"], band["y0"], band["y1"]) for band in bands]


def _skews(cycle: Cycle) -> list[str]:
    return [f"{skew.words} ({skew.limit})" for skew in final_skews(schedule(cycle))]


@pytest.mark.nightly
def test_nested_groups_are_as_far_apart_as_their_siblings() -> None:
    last = Replay(schedule(NESTED)).step(6)

    assert [(one.skew_before, one.skew_after) for one in last.spreads] == [
        (1, 0),
        (0, 0),
    ]
    assert _skews(NESTED) == ["region gap 0 (max 1, hard)", "zone gap 0 (max 1, hard)"]


def test_groups_that_are_independent_are_compared_with_all() -> None:
    assert Replay(schedule(FLAT)).step(6).spreads[1].skew_after == 2


def test_each_family_has_its_band() -> None:
    """The west's only zone holds three, those of the east one each: drawn by name."""
    regions, zones = _bands(NESTED)[:1], _bands(NESTED)[1:]

    assert regions == [(2, 4, -0.5, 1.5)]
    assert zones == [(1, 2, -0.5, 2.5), (3, 4, 2.5, 3.5)]


def test_too_few_groups_are_compared_with_zero() -> None:
    decision = schedule(T7)

    [spread_of_step] = Replay(decision).step(1).spreads
    assert (
        spread_of_step.skew_before,
        spread_of_step.skew_after,
        spread_of_step.forbids,
    ) == (2, 2, 3)
    assert _bands(T7) == [(0, 2, -0.5, 2.5)]
    assert _skews(T7) == ["zone gap 2 (max 2, hard)"]
    assert lane_panels(decision)[0].note.startswith("0, with fewer than 5 domains,")
    [panel] = placed_panels(decision)
    assert (panel.skew, panel.lanes[0].low, panel.lanes[0].high) == (2, 0, 2)
    assert over_limits(decision) == ()


@pytest.mark.parametrize(
    ("cycle", "skews"),
    [
        pytest.param(T7, [Skew("zone", 2, 2, True)], id="minDomains"),
        pytest.param(
            NESTED, [Skew("region", 0, 1, True), Skew("zone", 0, 1, True)], id="nested"
        ),
    ],
)
def test_headroom_is_what_the_limit_leaves(cycle: Cycle, skews: list[Any]) -> None:
    decision = schedule(cycle)
    placed = tuple(binding for binding in decision.bindings_after if binding.is_active)

    assert headroom_of(
        Cycle(cycle.fleet, cycle.policy, placed, cycle.semantics, cycle.options)
    ).skews == tuple(skews)


def test_a_preview_shows_the_skew_of_siblings() -> None:
    regions, zones = placed_panels(schedule(NESTED))

    assert (regions.skew, regions.lanes[0].high) == (0, 4)
    assert (zones.skew, zones.band) == (0, "limit")


def test_unequal_shares_have_neither_band_nor_limit() -> None:
    [panel] = placed_panels(schedule(RATIO))

    assert (panel.lanes[0].high, panel.is_limited) == (None, False)
    assert _bands(RATIO) == []
    assert " of " not in _skews(RATIO)[0]
