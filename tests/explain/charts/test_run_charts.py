"""The picture of a run as a figure, and durations in words."""

import json

import pytest

from placements.engine.rollout.waves import RolloutProgress
from placements.explain.charts.rollouts import picture_figure
from placements.explain.run_pictures import Dot, Start, run_picture, wave_columns
from placements.explain.vocabulary import duration_text


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


def test_the_figure_has_the_numbers_of_its_axis_and_the_mark_of_an_update() -> None:
    dots = {
        "a": Dot("a", "progress", "updating"),
        "b": Dot("b", "pending", "pending"),
        "c": Dot("c", "pending", "pending"),
    }
    columns = wave_columns(
        [Start("a", 0, None)],
        [["b", "c"]],
        [],
        dots,
        until=5,
        is_running=True,
        rest=None,
    )
    moment = (0.0, RolloutProgress(2, 0, 1, 0, 3, 2, 4))
    picture = run_picture(
        columns, [moment], until=5, is_running=True, has_maximum=True, unit="wave"
    )

    figure = json.loads(picture_figure(picture).to_json())

    assert figure["layout"]["yaxis"]["tickvals"] == [0, 2, 3, 4]
    [wedge] = [shape for shape in figure["layout"]["shapes"] if shape["type"] == "path"]
    [updating] = [one for one in figure["data"] if one.get("customdata") == ["a"]]
    assert (wedge["xanchor"], wedge["yanchor"]) == (updating["x"][0], updating["y"][0])
    assert updating["marker"]["symbol"] == "circle-open"
    words = [annotation["text"] for annotation in figure["layout"]["annotations"]]
    assert any("not updated" in word for word in words)


def test_waves_of_many_clusters_are_bars_by_state() -> None:
    dots = {f"c{one:02}": Dot(f"c{one:02}", "pending", "pending") for one in range(45)}
    dots["c01"] = Dot("c01", "failed", "failed")
    names = [*dots]
    columns = wave_columns(
        [], [names[:30], names[30:]], [], dots, until=0, is_running=True, rest=None
    )
    picture = run_picture(
        columns, [], until=0, is_running=True, has_maximum=False, unit="wave"
    )

    figure = json.loads(picture_figure(picture).to_json())

    [bars] = [one for one in figure["data"] if one["type"] == "bar"]
    assert bars["hovertext"] == ["29 pending", "1 failed", "15 pending"]
    most, least, fewer = bars["y"]
    assert most > fewer > least
    assert not any("customdata" in one for one in figure["data"])
