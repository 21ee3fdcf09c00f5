"""The clusters of the last 24 hours, reconstructed from events."""

from datetime import timedelta
from typing import Any

from placements.services.dashboard.trend import SAMPLES, trend_of
from tests.rows import NOW


def _ago(hours: float, verb: str, name: str = "a", *, away: bool = False) -> tuple[Any, ...]:
    return NOW - timedelta(hours=hours), verb, name, away


def test_goes_back_from_the_present_counts() -> None:
    events = [
        _ago(1, "left", "c"),
        _ago(2, "became ineligible", "c"),
        _ago(6, "became eligible"),
        _ago(12, "became ineligible"),
        _ago(18, "joined", "new", away=True),
        _ago(20, "joined"),
    ]
    trend = trend_of(events, clusters=9, not_ready=1, now=NOW)

    assert trend is not None
    assert [trend.clusters[at] for at in (0, 6, 10, 14, 44, SAMPLES - 1)] == [8, 8, 9, 10, 10, 9]
    assert trend.ready[0] == 8
    assert trend.ready[30] == 8
    assert trend.most_not_ready == 2
    assert trend.sentence == "Last 24h: 8 to 10 clusters, at most 2 not ready"
    assert len(trend.lines[0].split()) == SAMPLES


def test_clusters_of_a_removed_demo_were_there_before() -> None:
    trend = trend_of([_ago(1, "removed"), _ago(2, "joined")], clusters=0, not_ready=0, now=NOW)

    assert trend is not None
    assert trend.sentence == "Last 24h: 0 to 1 cluster", "no event says whether it was ready"


def test_a_fleet_that_is_gone_within_half_an_hour_was_as_large_and_as_ready_as_its_events_say() -> None:
    names = [f"c{number}" for number in range(100)]
    events = [_ago(0.1, "removed", one) for one in names]
    events += [_ago(0.2, "became ineligible", one) for one in names[:4]]
    events += [_ago(0.3, "became eligible", one) for one in names]
    trend = trend_of([*events, *(_ago(24, "joined", one) for one in names)], clusters=0, not_ready=0, now=NOW)

    assert trend is not None
    assert trend.sentence == "Last 24h: 0 to 100 clusters, at most 100 not ready", "until the first heartbeat"
    assert (trend.clusters[-1], trend.ready[-1]) == (100, 0), "not those of its end"


def test_is_nothing_without_events() -> None:
    assert trend_of([], clusters=9, not_ready=0, now=NOW) is None
