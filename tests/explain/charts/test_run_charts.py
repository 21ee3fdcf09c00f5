"""The timeline of a run, and its picture as a figure."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from placements.engine.rollout.waves import RolloutProgress
from placements.explain.charts.figure import duration_text, elapsed_axis
from placements.explain.charts.rollouts import (
    Span,
    picture_figure,
    timeline_charts,
)
from placements.explain.run_pictures import Dot, run_picture, wave_columns
from tests.explain.charts.checking import check_chart

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def _at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_nothing_is_drawn_before_the_first_start() -> None:
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


def test_the_figure_has_every_cluster_of_the_picture_and_its_limit() -> None:
    dots = {name: Dot(name, "pending", "pending") for name in "abc"}
    columns = wave_columns(
        [], [["a", "b"], ["c"]], [], dots, until=0, is_running=True, rest=None
    )
    moment = (0.0, RolloutProgress(3, 0, 0, 0, 3, 1, 4))
    picture = run_picture(
        columns, [moment], until=0, is_running=True, has_maximum=False, unit="wave"
    )

    figure = json.loads(picture_figure(picture).to_json())

    clusters = [one["customdata"] for one in figure["data"] if "customdata" in one]
    assert [sorted(names) for names in clusters] == [["a", "b", "c"]]
    assert [shape["y0"] for shape in figure["layout"]["shapes"]] == [1]
