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
from placements.explain.charts.scores import affinity_chart, build_up_chart
from placements.explain.lanes import placed_panels
from tests.builders import (
    cluster,
    decide,
    fleet,
    grouped,
    labelled,
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
    "funnel": lambda size: funnel_chart(outcomes(size)),
    "affinity": lambda size: affinity_chart(decision(size), outcomes(size)),
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


EAST_WEST = fleet(*grouped("region", east="e1 e2", west="w1 w2"))


@pytest.mark.nightly
@pytest.mark.parametrize("size", SIZES)
def test_the_funnel_counts_what_the_outcomes_say(size: int) -> None:
    found = stages(outcomes(size))
    counted = Counter(outcome.outcome for outcome in outcomes(size))

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
        affinity_chart(found, tuple(Outcomes(found))),
        funnel_chart(tuple(Outcomes(found))),
    ):
        if chart is not None:
            check_chart(chart)


def test_a_preview_does_not_call_a_skew_far_beyond_its_limit_within() -> None:
    clusters = [cluster(f"c{number}", region="r1", tier="edge") for number in range(8)]
    policy = pick_n(
        8, required=[labelled(tier="edge")], spread=[spread("region", 1, hard=False)]
    )

    [panel] = placed_panels(
        decide(fleet(*clusters, cluster("far", region="r2")), policy)
    )

    assert (panel.skew, panel.max_skew, panel.band) == (8, 1, "allowed 1")


def test_a_preview_measures_a_hard_limit_of_ocm_from_the_emptiest() -> None:
    one = fleet(*grouped("region", east="e1 e2 e3", west="w1"))

    [panel] = placed_panels(
        decide(one, pick_n(4, spread=[spread("region", 2)]), semantics="ocm")
    )

    assert (panel.measure, panel.skew, panel.band) == ("gap", 2, "allowed 1 to 3")


def test_bars_of_candidates_add_up_to_what_ranks() -> None:
    chart = affinity_chart(decision(9), outcomes(9))

    assert chart is not None
    check_chart(chart)
    assert chart.columns == (
        "Cluster",
        "prefer env=prod (+20)",
        "avoid region=r1 (−10)",
        "Affinity score",
    )
    assert all(
        sum(int(cell or 0) for cell in row[1:-1]) == row[-1] for row in chart.rows
    )
    assert {str(row[0]) for row in chart.rows} > set(decision(9).picked_names)
    ruled_out = 3  # every fourth has another tier
    labels = json.loads(chart.json)["layout"]["yaxis"]["ticktext"]
    assert labels[-1] == f"{ruled_out} ruled out before any score"


def test_nothing_is_drawn_without_preferences() -> None:
    plain = decide(EAST_WEST, pick_n(1))

    assert affinity_chart(plain, tuple(Outcomes(plain))) is None
