"""The fleet by one label as bars, by two as a matrix."""

import json

from clusters.filters import ClusterListState, Domain
from placements.explain.charts import fleet
from placements.explain.charts.fleet import topology_chart
from tests.explain.charts.checking import check_chart

ONE = [
    Domain(("east",), {ClusterListState.READY: 2, ClusterListState.CORDONED: 1}),
    Domain(("",), {ClusterListState.READY: 1}),
    Domain((None,), {ClusterListState.NOT_ELIGIBLE: 4}),
]
TWO = [
    Domain(("east", "prod"), {ClusterListState.READY: 2}),
    Domain(("west", "canary"), {ClusterListState.READY: 1}),
    Domain(("west", None), {ClusterListState.READY: 3}),
]


def test_bars_are_stacked_by_how_clusters_stand() -> None:
    chart = topology_chart(("region",), ONE)

    assert chart is not None
    check_chart(chart)
    drawn = json.loads(chart.json)
    traces = {one["name"]: one for one in drawn["data"]}
    assert drawn["layout"]["yaxis"]["ticktext"] == ["east", "(empty)", "no label"]
    assert (traces["ready"]["x"], traces["cordoned"]["x"]) == ([2, 1, 0], [1, 0, 0])
    assert traces["not ready"]["x"] == [0, 0, 4]
    assert chart.rows == (
        ("east", 3, 2, 1, 0),
        ("(empty)", 1, 1, 0, 0),
        ("no label", 4, 0, 0, 4),
    )
    assert (
        chart.caption
        == "8 clusters in 2 domains by region, 1 to 3 each; 4 without the label."
    )


def test_every_state_but_the_first_is_hatched() -> None:
    chart = topology_chart(("region",), ONE)

    assert chart is not None
    shapes = [
        one["marker"]["pattern"]["shape"] for one in json.loads(chart.json)["data"]
    ]
    assert shapes == ["", "/", "x"]


def test_a_combination_without_clusters_is_an_empty_cell() -> None:
    chart = topology_chart(("region", "env"), TWO)

    assert chart is not None
    check_chart(chart)
    [cells] = json.loads(chart.json)["data"]
    layout = json.loads(chart.json)["layout"]
    assert layout["yaxis"]["ticktext"] == ["east", "west"]
    assert layout["xaxis"]["ticktext"] == ["canary", "prod", "no label"]
    columns = [round(start + 0.48) for start in cells["base"]]
    squares = list(zip(cells["y"], columns, cells["customdata"], strict=True))
    assert squares == [(0, 1, 2), (1, 0, 1), (1, 2, 3)]
    assert cells["hovertext"][0] == "region east, env prod: 2 clusters"
    assert chart.rows[2] == ("west", "no label", 3, 3)
    assert (
        chart.caption
        == "6 clusters in 2 domains by region and env, 1 to 2 each; 3 without a label."
    )


def test_the_largest_values_are_drawn_with_a_note(monkeypatch) -> None:
    monkeypatch.setattr(fleet, "MOST_BARS", 1)

    chart = topology_chart(("region",), ONE)

    assert chart is not None
    layout = json.loads(chart.json)["layout"]
    assert layout["yaxis"]["ticktext"] == ["no label"]
    assert chart.caption.endswith("Shown: the largest 1 of 3 values of region.")
    assert len(chart.rows) == 3


def test_nothing_is_drawn_without_groups() -> None:
    assert topology_chart(("region",), []) is None
