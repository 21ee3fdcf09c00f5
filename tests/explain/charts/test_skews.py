"""C2: the skew of each constraint after each step."""

import json

import pytest

from placements.explain.charts.spread import skew_chart
from placements.manifests.policy import PlacementPolicy
from tests.builders import cluster, decide, fleet, grouped, pick_all, pick_n, spread
from tests.explain.charts.checking import check_chart

EAST_WEST = fleet(*grouped("region", east="e1 e2", west="w1"))


def test_line_and_table_show_the_skew_after_each_step() -> None:
    chart = skew_chart(decide(EAST_WEST, pick_n(3, spread=[spread("region", 2)])))

    assert chart is not None
    check_chart(chart)
    assert chart.columns == ("Step", "Selected", "region: skew")
    assert chart.rows == ((1, "w1", 1), (2, "e2", 0), (3, "e1", 1))
    assert chart.caption == "region (max skew 2, hard): at most 1 during the steps, 1 at the end."
    [line] = json.loads(chart.json)["data"]
    assert (line["x"], line["y"], line["customdata"]) == ([1, 2, 3], [1, 0, 1], ["w1", "e2", "e1"])
    [limit] = json.loads(chart.json)["layout"]["shapes"]
    assert (limit["y0"], limit["y1"]) == (2, 2)


def test_each_constraint_has_a_panel() -> None:
    chart = skew_chart(decide(EAST_WEST, pick_n(2, spread=[spread("region"), spread("env", hard=False)])))

    assert chart is not None
    check_chart(chart)
    assert {trace["yaxis"] for trace in json.loads(chart.json)["data"]} == {"y", "y2"}


def test_a_step_that_picked_no_cluster_is_listed() -> None:
    small = fleet(*grouped("region", east="e1 e2", west="w1"))

    chart = skew_chart(decide(small, pick_n(9, spread=[spread("region")])))

    assert chart is not None
    assert chart.rows[-1][:2] == (4, "none")


@pytest.mark.parametrize("policy", [pick_all(), pick_n(2)])
def test_nothing_is_drawn_without_constraints(policy: PlacementPolicy) -> None:
    assert skew_chart(decide(EAST_WEST, policy)) is None


def test_a_long_decision_shows_its_last_steps_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placements.explain.charts.spread.MOST_STEPS", 2)

    chart = skew_chart(decide(EAST_WEST, pick_n(3, spread=[spread("region", 2)])))

    assert chart is not None
    assert [row[0] for row in chart.rows] == [2, 3]
    assert chart.caption.endswith("Shown: the last 2 of 3 steps.")


NESTED = fleet(
    *(cluster(f"{zone}{number}", region="east", zone=zone) for zone in "ab" for number in (1, 2)),
    cluster("w1", region="west", zone="w"),
    cluster("w2", region="west", zone="w"),
)


def test_nested_levels_are_drawn_by_the_gap_to_the_emptiest_sibling() -> None:
    chart = skew_chart(decide(NESTED, pick_n(4, spread=[spread("region"), spread("zone")]), semantics="ocm"))

    assert chart is not None
    check_chart(chart)
    assert chart.title == "Gap by step"
    assert chart.columns == ("Step", "Selected", "region: gap", "zone: gap")
    assert chart.rows == ((1, "a1", 1, 1), (2, "w1", 0, 1), (3, "b1", 1, 0), (4, "w2", 0, 0))
    assert chart.caption.endswith("the fullest domain above its emptiest sibling.")


@pytest.mark.parametrize("semantics", ["ocm", "kubernetes"])
def test_a_soft_constraint_that_is_no_limit_has_no_line(semantics: str) -> None:
    decision = decide(EAST_WEST, pick_n(3, spread=[spread("region", hard=False)]), semantics=semantics)

    chart = skew_chart(decision)

    assert chart is not None
    assert json.loads(chart.json)["layout"].get("shapes", []) == []
    assert chart.caption.startswith("region (soft): ")
