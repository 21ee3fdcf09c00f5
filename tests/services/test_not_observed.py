"""A status that nothing has looked at for more than two minutes is not healthy, wherever it is shown."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from clusters.filters import (
    ClusterFilter,
    ClusterFilterState,
    clusters_matching,
    counts_by_state,
)
from clusters.models import FleetState, MemberCluster
from clusters.observation import counts_until, silence_of
from clusters.operations.heartbeat import observe
from fleetui.broker import PERIODIC, UPDATES
from fleetui.hub_scope import LOCAL_HUB
from fleetui.models import WorkerHeartbeat
from fleetui.task_queue import record_end, record_heartbeat
from placements.models import Binding, NotificationDelivery, Placement
from placements.services.filters import (
    PlacementFilter,
    PlacementFilterState,
    placements_matching,
)
from placements.services.hub_version import stored_version
from placements.services.metrics import metrics_registry
from placements.services.notifications.evaluation import evaluate
from placements.services.problems.book import compare
from placements.services.rollouts.worker import run_cluster_calls
from placements.web.badges import status_bar
from tests.database import compare_all
from tests.rows import NOW, pick_n_spec, simulated
from tests.services.rollouts.test_health import health
from tests.services.rollouts.world import World, settled_world, world_once
from tests.services.test_notifications import rule

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.real_silence,
    pytest.mark.usefixtures("collected_static"),
]
MINUTE = timedelta(minutes=1)


def settled(clusters: int = 3) -> World:
    def make() -> World:
        made = settled_world(clusters, pick_n_spec(clusters))
        made.pass_time(60, step=5)
        return made

    world = world_once(f"settled, {clusters} clusters", make)
    assert health(world).summary == "Healthy"
    return world


def observed_at(moment: datetime, *names: str) -> None:
    """Record that these clusters, without names all, were observed last at this moment."""
    rows = (
        MemberCluster.objects.filter(name__in=names)
        if names
        else MemberCluster.objects.all()
    )
    until = counts_until(moment, period=MINUTE)
    rows.update(heartbeat_at=moment, observed_until=until, unanswered_since=None)


def test_a_placement_is_unknown_two_minutes_after_the_last_observation() -> None:
    world = settled()
    observed_at(world.now)

    world.now += 2 * MINUTE
    assert health(world).summary == "Healthy"
    world.now += timedelta(seconds=1)
    found = health(world)
    assert (found.level, found.word) == ("unknown", "Unknown")
    assert found.summary == "Not observed for 2m (3 clusters)"
    bar = status_bar(Placement.objects.get(), found, None)
    assert [part.level for part in bar] == ["unknown"]
    world.now += 5 * MINUTE
    assert health(world).summary == "Not observed for 7m (3 clusters)"


def test_one_cluster_that_is_not_observed_degrades_its_placements() -> None:
    world = settled()
    observed_at(world.now)
    observed_at(world.now - 3 * MINUTE, "c001")

    assert health(world).summary == "Degraded (2 of 3 available, 1 not observed)"


def test_what_does_not_answer_is_unreachable_and_not_unobserved() -> None:
    world = settled()
    observed_at(world.now - 3 * MINUTE)
    MemberCluster.objects.filter(name="c001").update(
        unanswered_since=world.now - MINUTE
    )

    assert health(world).summary == "Not observed for 3m (2 clusters)"
    MemberCluster.objects.update(unanswered_since=world.now - MINUTE)
    assert health(world).summary == "Unknown (0 of 3 available, 3 unreachable)"


def test_a_long_period_of_heartbeats_is_no_silence() -> None:
    cluster = simulated("rare")
    cluster.heartbeat_at = NOW
    cluster.observed_until = counts_until(NOW, period=5 * MINUTE)

    assert silence_of(cluster, now=NOW + 6 * MINUTE) is None
    assert silence_of(cluster, now=NOW + 6.5 * MINUTE) == 6.5 * MINUTE


@pytest.mark.parametrize(
    "path",
    [
        "/clusters/",
        "/clusters/?state=not-observed",
        "/clusters/c000/",
        "/placements/",
        "/placements/?state=degraded",
        "/placements/web/",
        "/",
    ],
)
def test_every_page_says_it(client: Client, path: str) -> None:
    settled()
    observed_at(datetime.now(UTC) - 7.5 * MINUTE)
    client.force_login(User.objects.create_superuser("root"))

    page = client.get(path).content.decode()

    assert "Not observed" in page
    assert "Not observed for 7m" in page or path == "/"
    assert not re.search(
        r'class="mark healthy">.{0,200}?(Ready|Healthy|Available)<', page
    )


def test_lists_filters_and_counts_have_the_same_answer() -> None:
    settled()
    observed_at(datetime.now(UTC))
    observed_at(datetime.now(UTC) - 3 * MINUTE, "c001")

    def names(state: ClusterFilterState) -> set[str]:
        return set(
            clusters_matching(ClusterFilter(state=state)).values_list("name", flat=True)
        )

    assert names(ClusterFilterState.NOT_OBSERVED) == {"c001"}
    assert names(ClusterFilterState.READY) == {"c000", "c002"}
    counts = counts_by_state()
    assert counts[ClusterFilterState.NOT_OBSERVED] == 1
    assert counts[ClusterFilterState.READY] == 2
    compare_all(now=datetime.now(UTC))
    for state, expected in (
        (PlacementFilterState.HEALTHY, 0),
        (PlacementFilterState.DEGRADED, 1),
    ):
        assert placements_matching(PlacementFilter(state=state)).count() == expected


def test_rest_says_it(client: Client) -> None:
    settled()
    observed_at(datetime.now(UTC) - 3.5 * MINUTE)
    record_heartbeat((UPDATES, PERIODIC), now=datetime.now(UTC))
    WorkerHeartbeat.objects.update(swept_at=datetime.now(UTC) - 4 * MINUTE)
    record_end("observed_at", now=datetime.now(UTC))
    rest = APIClient()
    rest.force_authenticate(User.objects.create_superuser("root"))

    def get(path: str) -> dict[str, Any]:
        found: dict[str, Any] = rest.get(f"/api/v1/{path}").json()
        return found

    seconds = [item["notObservedSeconds"] for item in get("clusters")["items"]]
    assert [second // 10 for second in seconds] == [21, 21, 21]
    [one] = get("placements")["items"]
    assert (one["health"]["word"], one["health"]["counts"]["notObserved"]) == (
        "Unknown",
        3,
    )
    assert "Not observed for 3m" in one["health"]["message"]
    overview = get("overview")
    assert overview["notObserved"] == 3
    worker = overview["worker"]
    assert worker["state"] == "paused"
    assert worker["observationAgeSeconds"] in (0, 1)
    assert worker["sweepAgeSeconds"] in (240, 241)
    assert {each["level"] for each in overview["attention"]} >= {"unknown"}
    client.force_login(User.objects.get())
    assert "has ended for 4m" in client.get("/").content.decode()


def test_metrics_and_notifications_say_it() -> None:
    settled()
    now = datetime.now(UTC)
    observed_at(now - 3 * MINUTE)
    registry = metrics_registry(now=now)
    samples = {
        sample.name: sample
        for family in registry.collect()
        for sample in family.samples
    }
    assert samples["fleetui_clusters_not_observed"].value == 3

    FleetState.objects.update(observing_since=now - MINUTE)
    rule(events=["cluster-not-ready"])
    evaluate(now=now)
    assert not NotificationDelivery.objects.exists(), "the console has just started"
    FleetState.objects.update(observing_since=now - 10 * MINUTE)
    evaluate(now=now)
    bodies = NotificationDelivery.objects.order_by("pk").values_list("body", flat=True)
    assert [body.partition(": ")[0] for body in bodies] == [
        "Cluster c000",
        "Cluster c001",
        "Cluster c002",
    ]
    assert "Not observed" in bodies[0]


def test_open_pages_notice_it_without_any_write() -> None:
    world = settled()
    observed_at(datetime.now(UTC))
    compare(now=datetime.now(UTC))
    before = stored_version(LOCAL_HUB)

    observed_at(datetime.now(UTC) - 3 * MINUTE)
    compare(now=datetime.now(UTC))

    assert stored_version(LOCAL_HUB) != before
    assert Placement.objects.get().pk
    assert world.phases()


def test_a_real_cluster_shows_the_age_of_its_last_observation(client: Client) -> None:
    settled()
    observed_at(datetime.now(UTC) - timedelta(seconds=42))
    client.force_login(User.objects.create_superuser("root"))
    assert "observed <time" not in client.get("/clusters/c000/").content.decode()

    MemberCluster.objects.filter(name="c000").update(driver="kubernetes")

    assert "observed <time" in client.get("/clusters/c000/").content.decode()


def test_a_cluster_that_answers_a_call_again_is_observed_in_the_next_round() -> None:
    world = settled(1)
    MemberCluster.objects.update(
        unanswered_since=world.now, observe_at=world.now + MINUTE
    )
    Binding.objects.update(next_call_at=world.now)

    run_cluster_calls(now=world.now, threads=0, clock=lambda: world.now)

    assert MemberCluster.objects.get().observe_at == world.now
    observe(now=world.now)
    assert MemberCluster.objects.get().unanswered_since is None


def test_a_cluster_that_does_not_answer_is_called_again_soon() -> None:
    world = settled(1)
    world.inject("c000", {"kind": "unreachable", "since": world.now.isoformat()})
    MemberCluster.objects.update(observe_at=world.now)

    observe(now=world.now)

    row = MemberCluster.objects.get()
    assert (row.unanswered_since, row.observe_at) == (
        world.now,
        world.now + timedelta(seconds=15),
    )
