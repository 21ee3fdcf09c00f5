"""C10: a cell for each cluster, in blocks by a label."""

import json

from placements.explain.charts import fleet
from placements.explain.charts.fleet import waffle_chart
from tests.explain.charts.checking import check_chart

Groups = dict[str | None, list[tuple[str, str]]]
EAST = [("a", "ready"), ("b", "cordoned")]
NINE = {"east": EAST, "west": [("c", "ready")], None: [("d", "not eligible")]}


def _cells(chart):
    return json.loads(chart.json)["data"][0]


def test_each_cluster_is_a_cell_in_the_block_of_its_group() -> None:
    chart = waffle_chart("region", NINE)

    assert chart is not None
    check_chart(chart)
    cells = _cells(chart)
    assert cells["z"] == [[0, 3], [0, None], [8, None]]
    assert cells["text"] == [["a", "▲ b"], ["c", ""], ["✗ d", ""]]
    assert cells["hovertext"][0] == ["a: ready", "b: cordoned"]
    ticks = json.loads(chart.json)["layout"]["yaxis"]
    assert dict(zip(ticks["tickvals"], ticks["ticktext"], strict=True)) == {
        0: "east  2",
        1: "west  1",
        2: "no label  1",
    }


def test_each_cell_says_what_finds_it_in_a_list() -> None:
    few, many = waffle_chart("region", NINE), waffle_chart("region", {"east": EAST * 101, None: EAST})

    assert few is not None
    assert many is not None
    cells = _cells(few)
    assert cells["customdata"] == [["a", "b"], ["c", ""], ["d", ""]]
    assert cells["meta"]["y"] == ["region:east", "region:west", "!region"]
    assert cells["meta"]["z"][8] == "not-eligible"
    assert "customdata" not in _cells(many)
    assert set(_cells(many)["meta"]["y"]) == {"region:east", "!region"}


def test_the_table_counts_the_states_of_each_group() -> None:
    chart = waffle_chart("region", NINE)

    assert chart is not None
    assert chart.columns == ("region", "Clusters", "Ready", "Cordoned", "Not ready")
    assert chart.rows == (("east", 2, 1, 1, 0), ("west", 1, 1, 0, 0), ("no label", 1, 0, 0, 1))
    assert chart.caption == "4 clusters in 3 domains by region: 2 ready, 1 cordoned ▲, 1 not ready ✗."


def test_a_large_fleet_shows_signs_instead_of_names_and_a_gap_between_blocks() -> None:
    members = [(f"c{number}", "ready") for number in range(30)]

    chart = waffle_chart("region", {"east": members, "west": EAST})

    assert chart is not None
    cells = _cells(chart)
    assert [len(row) for row in cells["z"]] == [24] * 4
    assert cells["z"][2] == [None] * 24
    assert (cells["text"][0][0], cells["text"][3][1]) == ("", "▲")


def test_five_thousand_cells_are_one_heatmap_of_a_bounded_size() -> None:
    groups: Groups = {
        f"r{group}": [(f"c{group}-{one}", "ready") for one in range(500)] for group in range(10)
    }

    chart = waffle_chart("region", groups)

    assert chart is not None
    check_chart(chart)
    assert sum(cell is not None for row in _cells(chart)["z"] for cell in row) == 5000
    assert len(chart.json) < 250_000
    assert chart.height < 1000


def test_beyond_the_largest_blocks_the_small_ones_share_one_and_the_table_has_them_all() -> None:
    groups: Groups = {f"r{group:02}": [(f"c{group}", "ready")] * (1 + (group < 3)) for group in range(40)}

    chart = waffle_chart("rack", groups)

    assert chart is not None
    names = json.loads(chart.json)["layout"]["yaxis"]["ticktext"]
    assert len(names) == fleet.MOST_BLOCKS
    assert names[-1] == "17 smaller domains  17"
    assert _cells(chart)["meta"]["y"][-1] is None
    assert len(chart.rows) == 40


def test_nothing_is_drawn_without_clusters() -> None:
    assert waffle_chart("region", {}) is None


def test_names_have_the_colour_that_can_be_read_where_every_cluster_is_ready() -> None:
    ready = waffle_chart("region", {"east": [("a", "ready"), ("b", "ready")]})
    mixed = waffle_chart("region", {"east": [("a", "ready"), ("b", "not eligible")]})

    assert ready
    assert mixed
    assert ready.figure.data[0].textfont.color == "var(--on-healthy)"
    assert mixed.figure.data[0].textfont.color is None
