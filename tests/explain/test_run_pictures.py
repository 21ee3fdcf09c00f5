"""The picture of a rollout: its columns, the breaks of its axis, the line."""

from datetime import UTC, datetime, timedelta

import pytest

from placements.engine.rollout.staged_run import ClusterStep, Stage, StagedRunPlan
from placements.engine.rollout.waves import RolloutProgress
from placements.explain import run_pictures
from placements.explain.run_pages import Part
from placements.explain.run_pictures import (
    MOST_COLUMNS,
    Dot,
    RunColumn,
    RunPicture,
    Start,
    place_of,
    run_picture,
    stage_moments,
    started_together,
    wave_columns,
)


def _progress(old: int, new: int, unavailable: int = 0) -> RolloutProgress:
    return RolloutProgress(
        old, new, unavailable, 0, number=5, min_available=3, max_total=7
    )


def _dots(levels: dict[str, str]) -> dict[str, Dot]:
    return {name: Dot(name, level, level) for name, level in levels.items()}


def _picture(
    columns: list[RunColumn],
    moments: list[tuple[float, RolloutProgress]],
    *,
    has_maximum: bool = False,
    is_running: bool = True,
    is_held: bool = False,
) -> RunPicture:
    return run_picture(
        columns,
        moments,
        until=30,
        is_running=is_running,
        has_maximum=has_maximum,
        unit="wave",
        is_held=is_held,
    )


def test_what_starts_after_an_end_begins_the_next_wave() -> None:
    starts = [
        Start("a", 0, 14),
        Start("b", 0, None),
        Start("c", 5, None),
        Start("d", 14, 20),
        Start("e", 15, None),
    ]

    waves = [[start.cluster for start in wave] for wave in started_together(starts)]

    assert waves == [["a", "b", "c"], ["d", "e"]]


def test_a_stall_breaks_the_axis_and_names_why_while_it_lasts() -> None:
    starts = [Start("a", 0, 10), Start("b", 10, 20), Start("c", 300, None)]
    dots = _dots({"a": "healthy", "b": "healthy", "c": "attention", "d": "pending"})

    columns = wave_columns(
        starts,
        [["d"]],
        [],
        dots,
        until=360,
        is_running=True,
        rest=("Stalled", "Action required"),
    )

    assert [(column.name, column.start, column.end) for column in columns] == [
        ("1", 0, 10),
        ("2", 10, 20),
        ("No start", 20, 300),
        ("3", 300, 300.1),
        ("Stalled", 300.1, 360),
        ("4", None, None),
    ]
    assert [column.details for column in columns if column.is_break] == [
        (),
        ("Action required",),
    ]


def test_a_removed_cluster_is_counted_apart_from_those_that_stay() -> None:
    dots = _dots({"a": "failed"}) | {"b": Dot("b", "healthy", "removed")}

    columns = wave_columns(
        [Start("a", 0, 1), Start("b", 0, 1)],
        [],
        [],
        dots,
        until=60,
        is_running=True,
        rest=None,
    )

    assert [column.note for column in columns] == ["0 of 1, 1 removed"]


def test_of_many_waves_the_first_done_and_the_last_planned_share_a_column() -> None:
    names = [f"c{number:02}" for number in range(40)]
    starts = [
        Start(name, number * 10, number * 10 + 10 if number < 19 else None)
        for number, name in enumerate(names[:20])
    ]
    levels = dict.fromkeys(names[:19], "healthy") | {names[19]: "progress"}
    dots = _dots(dict.fromkeys(names, "pending") | levels)

    columns = wave_columns(
        starts,
        [[name] for name in names[20:]],
        [],
        dots,
        until=195,
        is_running=True,
        rest=None,
    )

    assert len(columns) == MOST_COLUMNS
    assert (columns[0].name, columns[0].note) == ("1–17", "17 of 17")  # noqa: RUF001
    assert (columns[-1].name, columns[-1].note) == ("30–40", "11")  # noqa: RUF001
    assert sum(len(column.dots) for column in columns) == 40


def test_a_moment_has_its_place_in_the_column_of_its_time() -> None:
    placed = _picture(
        [
            RunColumn("1", start=0, end=10),
            RunColumn("Stalled", start=10, end=110, is_break=True),
            RunColumn("2", start=110, end=120, is_current=True),
        ],
        [],
    ).placed_columns

    places = [place_of(at, placed) for at in (0, 5, 60, 110, 120)]

    assert places == [0, 0.5, 1.5, 2, 2.5]


def test_no_time_is_written_twice_below_the_line() -> None:
    columns = [
        RunColumn("1", start=0, end=0.04),
        RunColumn("Approval", start=0.04, end=30, is_break=True),
    ]

    assert [words for _, words in _picture(columns, []).ticks] == ["0s", "now"]


def test_the_limits_are_named_at_the_end_and_stand_apart() -> None:
    moments = [(0.0, _progress(3, 0, 2)), (20.0, _progress(1, 1, 3))]
    columns = [RunColumn("1", start=0, end=30)]

    picture = _picture(columns, moments, has_maximum=True)

    assert [label.words for label in picture.labels] == [
        "maximum 7",
        "minimum 3",
        "2 available, 1 below the minimum",
    ]
    assert picture.labels[1].place - picture.labels[2].place == pytest.approx(12)
    assert [(point.old, point.new) for point in picture.points] == [
        (3, 0),
        (1, 1),
        (1, 1),
    ]
    initial = _picture(columns, [(0.0, _progress(0, 0, 5))])
    assert [label.words for label in initial.labels] == ["0 available"]


def test_a_stage_that_took_no_time_has_what_the_run_found_and_loses_no_new_cluster() -> (
    None
):
    columns = [
        RunColumn("1 canary", start=0, end=0, minimum=4),
        RunColumn("Approval", start=0, end=30, is_break=True),
        RunColumn("Timed wait", start=30, end=60, is_break=True),
    ]

    picture = _picture(columns, [(8.0, _progress(0, 3, 2))])

    first = picture.points[0]
    assert [first.at, first.available] == [0, 3]
    assert list(picture.minimums[-1]) == [0, 1, 2]
    assert list(picture.break_edges) == [1, 2, 3]


def test_the_plan_counts_what_is_updated_after_each_wave() -> None:
    dots = _dots(dict.fromkeys("abcde", "pending"))
    columns = wave_columns(
        [], [["a", "b"], ["c", "d"], ["e"]], [], dots, until=0, is_running=True, rest=None
    )  # fmt: skip

    picture = _picture(columns, [(0.0, _progress(5, 0))])

    assert [words for _, words in picture.ticks] == ["0", "2", "4", "5"]
    assert picture.now is None
    last = picture.points[-1]
    assert (last.at, last.old, last.new) == (2.95, 0, 5)
    assert picture.labels[0].words == "5 expected"


def test_a_run_that_is_held_expects_nothing() -> None:
    stuck = tuple(_dots({"a": "attention", "b": "healthy"}).values())
    waiting = tuple(_dots(dict.fromkeys("cde", "pending")).values())
    columns = [
        RunColumn("1", dots=stuck, start=0, end=20),
        RunColumn("2", dots=waiting),
    ]

    picture = _picture(columns, [(0.0, _progress(3, 1, 1))], is_held=True)

    assert [label.words for label in picture.labels] == ["4 available", "minimum 3"]


def test_the_plan_stays_above_the_minimum() -> None:
    stuck = tuple(_dots({"a": "attention", "b": "healthy"}).values())
    waiting = tuple(_dots(dict.fromkeys("cde", "pending")).values())
    columns = [
        RunColumn("1", dots=stuck, start=0, end=20),
        RunColumn("2", dots=waiting),
    ]

    picture = _picture(columns, [(0.0, _progress(3, 1, 1))])

    assert min(point.old + point.new for point in picture.points) == 3
    assert (picture.points[-1].old, picture.points[-1].new) == (0, 4)


def test_the_plan_counts_clusters_that_have_the_revision_already_once() -> None:
    columns = [
        RunColumn("1 canary", dots=tuple(_dots({"a": "healthy"}).values())),
        RunColumn(
            "2 rest", dots=tuple(_dots(dict.fromkeys("bcd", "pending")).values())
        ),
    ]

    picture = _picture(columns, [(0.0, _progress(0, 4, 1))])

    assert picture.labels[0].words == "5 expected"


def test_thinning_loses_no_dip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_pictures, "MOST_POINTS", 10)
    moments = [(float(second), _progress(5, 0)) for second in range(100)]
    moments[37] = (37.0, _progress(3, 0, 2))

    picture = _picture([RunColumn("1", start=0, end=100)], moments, is_running=False)

    assert len(picture.points) <= 10
    assert 3 in [point.old for point in picture.points]


def test_a_first_deployment_by_stages_has_no_minimum_and_updates_as_many_at_once() -> (
    None
):
    dots = tuple(Dot(name, "pending", "pending") for name in "abcd")
    columns = [RunColumn("1 canary", dots=dots, minimum=3)]

    picture = _picture(columns, [(0.0, _progress(0, 0))])

    assert [label.words for label in picture.labels] == ["4 expected"]
    ends = [(point.at, point.new) for point in picture.points]
    assert ends == [(0, 0), (0.475, 2), (0.95, 4)]


def test_the_minimum_is_that_of_the_stage_in_progress_and_of_what_was_available() -> (
    None
):
    dots = tuple(_dots(dict.fromkeys("abcde", "healthy")).values())
    columns = [
        RunColumn("1 canary", dots=dots[:1], minimum=4),
        RunColumn("2 prod", dots=dots[1:], minimum=3),
    ]
    started = [
        RunColumn("1 canary", start=0, end=10, minimum=4),
        RunColumn("2 prod", start=10, end=30, is_current=True, minimum=3),
    ]

    canary, prod = _picture(columns, [(0.0, _progress(5, 0))]).limits
    assert canary == "minimum 4 in stage 1 canary: 5 at the start, 1 at a time"
    assert prod == "minimum 3 in stage 2 prod: 5 at the start, 2 at a time"
    assert _picture(started, [(0.0, _progress(5, 0))]).limits == (prod,)
    assert _picture(started, [(0.0, _progress(4, 0, 1))]).limits == (
        "minimum 2 in stage 2 prod: 4 at the start, 2 at a time",
    )


def test_a_cluster_that_is_updated_before_its_turn_is_so_from_the_start() -> None:
    since = datetime(2026, 11, 1, 10, tzinfo=UTC)
    done = since + timedelta(seconds=15)
    steps = (ClusterStep("paris", "s1", started_at=since, done_at=done),)
    stages = (Stage("east", steps), Stage("west", (ClusterStep("rome", "s1"),)))
    run = StagedRunPlan(stages, Stage("", ()))
    parts = {"paris": Part.UPDATED, "rome": Part.UPDATED}

    moments = stage_moments(run, parts, since=since)

    assert [(at, progress.old, progress.new) for at, progress in moments] == [
        (0.0, 1, 1),
        (0.0, 0, 1),
        (15.0, 0, 2),
    ]
