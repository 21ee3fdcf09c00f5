"""The pictures of a decision, each against the rows of its table."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from fleetui.apimachinery.model import Semantics
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.outcome import ClusterOutcome, Outcome, Outcomes
from placements.engine.scheduling.scheduler import schedule
from placements.explain.charts.figure import Chart
from placements.explain.charts.outcomes import funnel_chart, stages
from placements.explain.charts.scores import MOST_ROWS, build_up_chart, heatmap_chart
from placements.explain.charts.spread import group_chart, skew_chart
from placements.explain.preview import spread_bars
from placements.manifests.policy import PlacementPolicy
from tests.builders import (
    binding,
    cluster,
    decide,
    fleet,
    grouped,
    labelled,
    pick_all,
    pick_fixed,
    pick_n,
    prefer,
    spread,
)
from tests.explain.charts.checking import check_chart

SIZES = (4, 9, 100, 5000)
REGIONS = [f"r{number}" for number in range(30)]


@cache
def decision(size: int) -> Decision:
    """Decide on a fleet of this size, with two constraints, a filter and two preferred terms."""
    clusters = [
        cluster(
            f"c{number:04}",
            region=REGIONS[number % min(size // 2, 30)],
            env="prod" if number % 3 else "canary",
            tier="edge" if number % 4 else "core",
        )
        for number in range(size)
    ]
    policy = pick_n(
        max(2, min(size // 4, 40)),
        required=[labelled(tier="edge")],
        spread=[spread("region"), spread("env", 2, hard=False)],
        prefer=[prefer(20, labelled(env="prod")), prefer(-10, labelled(region="r1"))],
    )
    return decide(fleet(*clusters), policy)


@cache
def outcomes(size: int) -> tuple[ClusterOutcome, ...]:
    return tuple(Outcomes(decision(size)))


CHARTS: dict[str, Callable[[int], Chart | None]] = {
    "groups": lambda size: group_chart(decision(size)),
    "groups in a step": lambda size: group_chart(decision(size), 2),
    "funnel": lambda size: funnel_chart(outcomes(size)),
    "scores": lambda size: heatmap_chart(decision(size), outcomes(size)),
    "build-up": lambda size: build_up_chart(decision(size), "c0001"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_whole_at_every_size(name: str, size: int) -> None:
    chart = CHARTS[name](size)

    assert chart is not None
    check_chart(chart)
    assert len(chart.json) < 60_000
    assert chart.height < 1700


@pytest.mark.nightly
@pytest.mark.parametrize("size", SIZES)
def test_groups_hold_those_placed(size: int) -> None:
    chart = group_chart(decision(size))

    assert chart is not None
    region = [row for row in chart.rows if row[0] == "region"]
    assert sum(int(row[2] or 0) for row in region) == len(decision(size).picked_names)
    assert sum(sum(int(row[n] or 0) for n in (2, 4, 5)) for row in region) == size


def test_bars_stand_beside_the_band() -> None:
    chart = group_chart(decide(EAST_WEST, pick_n(3, spread=[spread("region")])), 3)

    assert chart is not None
    drawn = json.loads(chart.json)
    before, added, left, _ = drawn["data"]
    assert chart.rows == (("region", "east", 1, 0, 1, 0), ("region", "west", 2, 1, 0, 0))
    assert (before["x"], added["x"], left["x"]) == ([1, 1], [1, 0], [0, 1])
    assert before["text"] == ["w2", "e2"]
    [band] = drawn["layout"]["shapes"]
    assert (band["x0"], band["x1"]) == (1, 2)
    assert "most in west (2), fewest in east (1), skew 1 of 1." in chart.caption


EAST_WEST = fleet(*grouped("region", east="e1 e2", west="w1 w2"))


def test_words_in_the_bars_have_the_colour_that_can_be_read_there() -> None:
    chart = group_chart(decide(EAST_WEST, pick_n(3, spread=[spread("region")])), 3)

    assert chart is not None
    before, added, *_ = json.loads(chart.json)["data"]
    assert before["insidetextfont"]["color"] == "var(--on-series)"
    assert added["insidetextfont"]["color"] == "var(--on-accent)"


def test_where_names_have_no_room_the_label_says_who_is_added() -> None:
    chart = group_chart(decision(100), 20)

    assert chart is not None
    drawn = json.loads(chart.json)
    labels = [one for axis in ("yaxis", "yaxis2") for one in drawn["layout"][axis]["ticktext"]]
    assert sum("  (+1)" in one for one in labels) == 2
    assert not any(drawn["data"][1].get("text") or ())


def test_a_pinned_group_is_hatched_and_labelled() -> None:
    clusters = [*grouped("region", east="e1 e2"), cluster("s1", region="south", env="canary")]
    chosen = [cluster(one.name, region="east", env="prod") for one in clusters[:2]] + clusters[2:]
    chart = group_chart(
        decide(fleet(*chosen), pick_n(2, required=[labelled(env="prod")], spread=[spread("region")]))
    )

    assert chart is not None
    hatched = json.loads(chart.json)["data"][3]
    assert hatched["marker"]["pattern"]["shape"] == "/"
    assert hatched["x"] == [0, 1]
    assert "south stays at 0 (no candidates)." in chart.caption


def test_many_groups_are_cut_with_words_and_whole_in_the_table() -> None:
    chart = group_chart(decision(100), 2)

    assert chart is not None
    assert "Shown: the 12 of 30 domains furthest from the mean." in chart.caption
    labels = json.loads(chart.json)["layout"]["yaxis"]["ticktext"]
    assert len(labels) == 13
    assert labels[-1].startswith("18 domains nearer the mean")
    assert sum(row[0] == "region" for row in chart.rows) == 30


@pytest.mark.parametrize("policy", [pick_all(), pick_fixed("e1"), pick_n(2)])
def test_nothing_is_spread_without_constraints(policy: PlacementPolicy) -> None:
    assert group_chart(decide(EAST_WEST, policy)) is None


@pytest.mark.nightly
@pytest.mark.parametrize("size", SIZES)
def test_the_funnel_counts_what_the_outcomes_say(size: int) -> None:
    found = stages(outcomes(size))
    counted = Counter(one.outcome for one in outcomes(size))

    assert found[0].remaining == size
    assert found[-1].remaining == counted[Outcome.PICKED]
    assert sum(stage.removed for stage in found) == size - counted[Outcome.PICKED]
    assert next(s.name for s in found if s.removed) == "required affinity"


def test_the_funnel_of_named_clusters_has_its_rule() -> None:
    found = stages(tuple(Outcomes(decide(EAST_WEST, pick_fixed("e1", "w1")))))

    assert [(stage.name, stage.remaining, stage.removed) for stage in found] == [
        ("the fleet", 4, 0),
        ("not named", 2, 2),
        ("placed", 2, 0),
    ]


@pytest.mark.parametrize("size", SIZES)
def test_the_heatmap_has_a_row_for_each_cluster_or_class(size: int) -> None:
    chart = heatmap_chart(decision(size), outcomes(size))

    assert chart is not None
    assert sum(int(row[1] or 0) for row in chart.rows) == size
    assert (chart.columns[0] == "Cluster") == (size <= MOST_ROWS)
    assert len(json.loads(chart.json)["data"][0]["z"]) == min(len(chart.rows), MOST_ROWS)


def test_what_is_off_the_ramp_is_dark_or_hatched_with_words() -> None:
    clusters = [
        cluster("a", region="east", tier="x"),
        cluster("b", region="east", tier="x"),
        cluster("c", region="west"),
    ]
    result = decide(
        fleet(*clusters), pick_n(2, required=[labelled(tier="x")], spread=[spread("region", hard=False)])
    )
    chart = heatmap_chart(result, tuple(Outcomes(result)))

    assert chart is not None
    ramp, soft, hatched, words = json.loads(chart.json)["data"]
    assert soft["text"] == [["", ""], ["soft −1000", ""], ["", ""]]
    assert ramp["z"][1][0] is None
    assert hatched["text"] == ["required affinity"]
    assert words["text"] == ["Selected, step 1", "Selected, step 2", "Filtered out"]


def test_the_terms_build_up_the_affinity() -> None:
    chart = build_up_chart(decision(9), "c0001")

    assert chart is not None
    [bars] = json.loads(chart.json)["data"]
    assert chart.rows == (
        ("prefer env=prod (+20)", 20),
        ("avoid region=r1 (−10)", -10),
        ("affinity score", 10),
    )
    assert (bars["x"], bars["base"]) == ([20, -10, 10], [0, 20, 0])


def test_many_terms_are_drawn_together_and_listed_whole() -> None:
    terms = [prefer(weight, labelled(region="east")) for weight in range(1, 13)]
    chart = build_up_chart(decide(EAST_WEST, pick_n(1, prefer=terms)), "e1")

    assert chart is not None
    assert len(chart.rows) == 13
    [bars] = json.loads(chart.json)["data"]
    assert bars["x"] == [6, 7, 8, 9, 10, 11, 12, 15, 78]


@pytest.mark.parametrize("semantics", list(Semantics))
def test_scores_are_drawn_under_every_semantics(semantics: Semantics) -> None:
    cycle: Cycle = replace(decision(9).cycle, semantics=semantics)
    found = schedule(cycle)

    for chart in (
        heatmap_chart(found, tuple(Outcomes(found))),
        group_chart(found),
        funnel_chart(tuple(Outcomes(found))),
    ):
        if chart is not None:
            check_chart(chart)


def test_a_preview_does_not_call_a_skew_far_beyond_its_limit_within() -> None:
    clusters = [cluster(f"c{number}", region="r1", tier="edge") for number in range(8)]
    policy = pick_n(8, required=[labelled(tier="edge")], spread=[spread("region", 1, hard=False)])

    [bars] = spread_bars(decide(fleet(*clusters, cluster("far", region="r2")), policy))

    assert (bars.skew, bars.high, bars.is_within) == (8, None, False)


def test_the_groups_say_what_their_bars_mean_and_where_these_are_cut() -> None:
    chart = group_chart(decision(5000))

    assert chart is not None
    assert "outlined: candidates (more of them where open)" in chart.caption


def test_what_is_placed_does_not_count_where_every_cycle_selects_again() -> None:
    one = fleet(*grouped("region", east="e1 e2", west="w1 w2"))
    placed = (binding("e1"), binding("e2"))

    chart = group_chart(decide(one, pick_n(2, spread=[spread("region")]), *placed, semantics="ocm"), 1)

    assert chart is not None
    assert [row[1:4] for row in chart.rows] == [("east", 1, 1), ("west", 0, 0)]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("semantics", "hard", "shaded"),
    [("ocm", True, True), ("ocm", False, False), ("kubernetes", False, False), ("fleet", False, True)],
)
def test_a_band_is_drawn_only_where_there_is_a_limit(semantics: str, hard: bool, shaded: bool) -> None:
    one = fleet(*grouped("region", east="e1 e2", west="w1 w2"))

    chart = group_chart(decide(one, pick_n(2, spread=[spread("region", hard=hard)]), semantics=semantics))

    assert chart is not None
    assert ("shaded: within the limit" in chart.caption) == shaded
    assert ("skew" in chart.caption.replace("max skew", "")) == (semantics == "fleet")


def test_a_preview_measures_a_hard_limit_of_ocm_from_the_emptiest() -> None:
    one = fleet(*grouped("region", east="e1 e2 e3", west="w1"))

    [bars] = spread_bars(decide(one, pick_n(4, spread=[spread("region", 2)]), semantics="ocm"))

    assert (bars.skew_words, bars.low, bars.high, bars.is_within) == ("gap 2", 1, 3, True)
    assert [bar.is_in_band for bar in bars.bars] == [True, True]


@pytest.mark.nightly
def test_as_many_constraints_as_a_policy_may_have_are_drawn() -> None:
    keys = [f"k{number}" for number in range(60)]
    members = fleet(*(cluster(f"c{index}", dict.fromkeys(keys, f"v{index % 2}")) for index in range(4)))
    decided = decide(members, pick_n(2, spread=[spread(key, hard=False) for key in keys]))

    skews, groups = skew_chart(decided), group_chart(decided)

    assert skews is not None
    assert groups is not None
    assert len(skews.columns) == 62
    assert len(json.loads(skews.json)["data"]) == 60
    assert len({row[0] for row in groups.rows}) == 60
