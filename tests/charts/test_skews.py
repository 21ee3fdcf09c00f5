"""C2: the skew of each constraint after each step."""

import json

import pytest

from placements.explain.charts import skews
from placements.explain.charts.skews import skew_chart
from placements.scheduling.policy import PlacementPolicy
from tests.builders import decide, fleet, grouped, pick_all, pick_n, spread
from tests.charts.checking import check_chart

EAST_WEST = fleet(*grouped("region", east="e1 e2", west="w1"))


def test_line_and_table_tell_the_skew_after_each_step() -> None:
    chart = skew_chart(decide(EAST_WEST, pick_n(3, spread=[spread("region", 2)])))

    assert chart is not None
    check_chart(chart)
    assert chart.columns == ("Step", "Picked", "region: skew")
    assert chart.rows == ((1, "w1", 1), (2, "e2", 0), (3, "e1", 1))
    assert chart.caption == "region (max skew 2, hard): at most 1 on the way, 1 at the end."
    [line] = json.loads(chart.json)["data"]
    assert (line["x"], line["y"], line["customdata"]) == ([1, 2, 3], [1, 0, 1], ["w1", "e2", "e1"])
    [limit] = json.loads(chart.json)["layout"]["shapes"]
    assert (limit["y0"], limit["y1"]) == (2, 2)


def test_each_constraint_has_a_panel() -> None:
    chart = skew_chart(decide(EAST_WEST, pick_n(2, spread=[spread("region"), spread("env", hard=False)])))

    assert chart is not None
    check_chart(chart)
    assert {trace["yaxis"] for trace in json.loads(chart.json)["data"]} == {"y", "y2"}


def test_a_step_that_found_nobody_is_told() -> None:
    small = fleet(*grouped("region", east="e1 e2", west="w1"))

    chart = skew_chart(decide(small, pick_n(9, spread=[spread("region")])))

    assert chart is not None
    assert chart.rows[-1][:2] == (4, "nobody")


@pytest.mark.parametrize("policy", [pick_all(), pick_n(2)])
def test_nothing_is_drawn_without_constraints(policy: PlacementPolicy) -> None:
    assert skew_chart(decide(EAST_WEST, policy)) is None


def test_a_long_decision_shows_its_last_steps_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skews, "MOST_STEPS", 2)

    chart = skew_chart(decide(EAST_WEST, pick_n(3, spread=[spread("region", 2)])))

    assert chart is not None
    assert [row[0] for row in chart.rows] == [2, 3]
    assert chart.caption.endswith("Shown are the last 2 of 3 steps.")
