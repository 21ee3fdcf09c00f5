"""C8 and C9: a run against its safety lines, and its timeline."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from placements.engine.rollout.waves import RolloutProgress
from placements.explain.charts import rollouts
from placements.explain.charts.figure import Chart, duration_text, elapsed_axis
from placements.explain.charts.rollouts import (
    RolloutMoment,
    Span,
    area_chart,
    timeline_charts,
)
from tests.explain.charts.checking import check_chart

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def _at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def _tally(
    old: int, new: int, unavailable: int = 0, *, removing: int = 0
) -> RolloutProgress:
    return RolloutProgress(
        old, new, unavailable, removing, number=5, min_available=3, max_total=7
    )


UPDATE = [
    RolloutMoment(_at(0), _tally(3, 0, 2)),
    RolloutMoment(_at(60), _tally(3, 2)),
    RolloutMoment(_at(61), _tally(1, 2, 2)),
]


def _area(
    moments: list[RolloutMoment], *, in_place: bool = True, deletion: bool = False
) -> Chart:
    chart = area_chart(
        moments, since=NOON, until=_at(90), is_in_place=in_place, is_deletion=deletion
    )
    assert chart is not None
    check_chart(chart)
    return chart


def test_the_area_shows_what_its_table_says() -> None:
    chart = _area(UPDATE)

    traces = {trace["name"]: trace for trace in json.loads(chart.json)["data"]}
    assert set(traces) == {
        "Previous revision available",
        "New revision available",
        "Not available",
    }
    for name, column in (
        ("Previous revision available", 1),
        ("New revision available", 2),
        ("Not available", 3),
    ):
        values = [row[column] for row in chart.rows]
        assert traces[name]["y"] == [*values, values[-1]]
        assert traces[name]["x"] == [0, 60, 61, 90]
    assert [row[0] for row in chart.rows] == ["0s", "1m", "1m1s"]


def test_lines_are_drawn_at_n_and_at_the_floor_and_the_ceiling_only_where_something_is_added() -> (
    None
):
    levels = [
        shape["y0"]
        for shape in json.loads(_area(UPDATE).json)["layout"]["shapes"][1::2]
    ]
    added = [
        shape["y0"]
        for shape in json.loads(_area(UPDATE, in_place=False).json)["layout"]["shapes"][
            1::2
        ]
    ]

    assert (levels, added) == ([5, 3], [7, 5, 3])
    assert "shapes" not in json.loads(_area(UPDATE, deletion=True).json)["layout"]


@pytest.mark.parametrize(
    ("moments", "words"),
    [
        (UPDATE, "Lowest: 3 available (minimum 3)."),
        ([RolloutMoment(_at(0), _tally(4, 0, 1))], "Lowest: 4 available (minimum 3)."),
        (
            [*UPDATE, RolloutMoment(_at(70), _tally(0, 2, 3))],
            "Lowest: 2 available, 1 below the minimum of 3 (clusters failed or unreachable).",
        ),
        (
            [RolloutMoment(_at(0), _tally(0, 1, 4))],
            "The minimum does not apply until 3 clusters are available.",
        ),
        (
            [
                RolloutMoment(_at(0), _tally(0, 1, 4)),
                RolloutMoment(_at(9), _tally(0, 5)),
            ],
            "Lowest: 5 available (minimum 3).",
        ),
    ],
)
def test_the_sentence_says_how_near_the_floor_it_came(
    moments: list[RolloutMoment], words: str
) -> None:
    assert words in _area(moments).caption


@pytest.mark.parametrize("later", [[], [RolloutMoment(_at(9), _tally(0, 4, 1))]])
def test_an_initial_deployment_has_no_minimum(later: list[RolloutMoment]) -> None:
    chart = _area([RolloutMoment(_at(0), _tally(0, 0, 5)), *later])

    assert "Initial deployment: no minimum applies." in chart.caption
    assert json.loads(chart.json)["layout"].get("shapes", []) == []


def test_thinning_loses_no_dip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollouts, "MOST_POINTS", 10)
    moments = [RolloutMoment(_at(second), _tally(5, 0)) for second in range(100)]
    moments[37] = RolloutMoment(_at(37), _tally(3, 0, 2))

    chart = _area(moments)

    assert len(chart.rows) <= 10
    assert "37s" in [row[0] for row in chart.rows]
    assert chart.rows[-1][0] == "1m39s"


def test_nothing_is_drawn_before_the_first_look() -> None:
    assert (
        area_chart([], since=NOON, until=NOON, is_in_place=True, is_deletion=False)
        is None
    )
    assert timeline_charts([], since=NOON, until=NOON) == []


SPANS = [
    Span("a", 1, "update", _at(0), _at(10), _at(40), "available"),
    Span("b", 1, "update", _at(0), None, _at(60), "failed"),
    Span("b", 1, "retry", _at(65), None, None, ""),
    Span("c", None, "remove", _at(5), None, _at(20), "removed"),
]


def test_a_small_timeline_has_a_row_for_each_cluster_and_a_bar_for_each_part() -> None:
    [chart] = timeline_charts(SPANS, since=NOON, until=_at(90))

    check_chart(chart)
    drawn = {trace["name"]: trace for trace in json.loads(chart.json)["data"]}
    bars = {
        name: list(zip(one["y"], one["base"], one["x"], strict=True))
        for name, one in drawn.items()
        if one["type"] == "bar"
    }
    assert bars == {
        "applying": [("a", 0, 10), ("b", 0, 60), ("b", 65, 25)],
        "waiting for availability": [("a", 10, 30)],
        "removing": [("c", 5, 15)],
    }
    assert (drawn["failed"]["y"], drawn["failed"]["x"]) == (["b"], [60])
    assert json.loads(chart.json)["layout"]["yaxis"]["categoryarray"] == ["c", "b", "a"]
    assert chart.rows[2] == ("b", 1, "retry", "1m5s", None, None, "25s", "in progress")
    assert chart.caption == "Clusters: 3; failed attempts: 1; b took longest, 1m."


def test_a_large_timeline_has_a_row_for_each_wave_and_the_slowest_clusters() -> None:
    spans = [
        Span(
            f"c{number:04}",
            number // 100 + 1,
            "update",
            _at(number),
            _at(number + 1),
            _at(number + 2),
            "available",
        )
        for number in range(500)
    ]
    spans[123] = Span("c0123", 2, "update", _at(123), _at(200), _at(300), "available")

    waves, slowest = timeline_charts(spans, since=NOON, until=_at(600))

    check_chart(waves)
    check_chart(slowest)
    assert waves.rows[0] == ("wave 1", 100, "0s", "1m41s", "2s", "2s")
    assert waves.rows[1][3] == "5m"
    assert [trace["y"] for trace in json.loads(waves.json)["data"]] == [
        [row[0] for row in waves.rows]
    ] * 2
    assert slowest.caption.startswith(
        "Clusters: 20; failed attempts: 0; c0123 took longest, 2m57s."
    )


@pytest.mark.parametrize("longest", [0, 1, 7.5, 60, 3599, 90_000, 5_000_000])
def test_an_axis_of_time_has_few_ticks(longest: float) -> None:
    axis = elapsed_axis(longest)

    assert 1 <= len(axis["tickvals"]) <= 9
    assert axis["range"][1] >= longest


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0s"),
        (0.42, "0.4s"),
        (1, "1s"),
        (9.96, "9.9s"),
        (10.5, "10s"),
        (250, "4m10s"),
        (3729, "1h2m"),
        (259200, "3d"),
    ],
)
def test_durations_are_written_as_kubectl_prints_them(
    seconds: float, words: str
) -> None:
    assert duration_text(seconds) == words


def test_a_run_of_a_second_has_ticks_within_it() -> None:
    assert elapsed_axis(1.2)["ticktext"] == [
        "0s",
        "0.2s",
        "0.4s",
        "0.6s",
        "0.8s",
        "1s",
        "1.2s",
    ]
