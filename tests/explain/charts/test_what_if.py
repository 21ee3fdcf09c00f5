"""C11: what stays, moves and is lost, for each placement and in all."""

import json

from placements.explain.charts.what_if import MOST_BARS, Bar, what_if_chart
from tests.explain.charts.checking import check_chart

BARS = [Bar("ledger", "stuck", 2, 0, 1), Bar("web", "moves", 4, 1, 0)]
TOTAL = Bar("all placements", "", 6, 1, 1)


def test_bars_and_table_show_the_same() -> None:
    chart = what_if_chart(BARS, total=TOTAL, in_all=2)

    assert chart is not None
    check_chart(chart)
    stays, moves, lost = json.loads(chart.json)["data"]
    assert stays["y"] == ["ledger", "web", "all placements"]
    assert (stays["x"], moves["x"], lost["x"]) == ([2, 4, 6], [0, 1, 1], [1, 0, 1])
    assert chart.rows == (
        ("ledger", "stuck", 2, 0, 1),
        ("web", "moves", 4, 1, 0),
        ("all placements", "", 6, 1, 1),
    )
    assert chart.caption == "Of 8 placed clusters, 6 stay, 1 moves, 1 is lost."


def test_what_moves_and_what_is_lost_are_distinguished_without_colour() -> None:
    chart = what_if_chart(BARS, total=TOTAL, in_all=2)

    assert chart is not None
    shapes = [one["marker"]["pattern"]["shape"] for one in json.loads(chart.json)["data"]]
    assert shapes == ["", "/", "x"]


def test_what_moves_and_is_lost_stands_in_words_beside_bars_too_long_to_show_it() -> None:
    chart = what_if_chart([*BARS, Bar("idle", "stays", 4_000, 0, 0)], total=TOTAL, in_all=3)

    assert chart is not None
    axis = json.loads(chart.json)["layout"]["yaxis"]
    assert axis["tickvals"] == ["ledger", "web", "idle", "all placements"]
    assert axis["ticktext"] == [
        "ledger  1 is lost",
        "web  1 moves",
        "idle",
        "all placements  1 moves, 1 is lost",
    ]


def test_numbers_of_the_table_are_distinguished_from_words() -> None:
    chart = what_if_chart(BARS, total=TOTAL, in_all=2)

    assert chart is not None
    assert [is_number for _, is_number in chart.heads] == [False, False, True, True, True]
    assert chart.lines(0, 1)[0][1:3] == [("stuck", "", False), (2, "", True)]


def test_the_worst_thirty_are_shown_with_the_total_of_all() -> None:
    bars = [Bar(f"p{number}", "moves", 1, 1, 0) for number in range(40)]

    chart = what_if_chart(bars, total=Bar("all placements", "", 40, 40, 0), in_all=40)

    assert chart is not None
    assert len(chart.rows) == MOST_BARS + 1
    assert chart.caption.endswith("Shown: 30 of 40 placements, the worst first.")


def test_nothing_is_drawn_where_nothing_is_placed() -> None:
    assert what_if_chart([], total=Bar("all placements", "", 0, 0, 0), in_all=0) is None
