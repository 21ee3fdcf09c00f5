"""Clusters are watched, judged, cordoned and sent away."""

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import product

import pytest

from clusters.drivers.base import Observation
from clusters.models import FleetChange, FleetState, MemberCluster, Membership
from clusters.operations.edit import (
    UnknownClusterError,
    cordon,
    finish_leaving,
    leave,
    uncordon,
)
from clusters.operations.heartbeat import observe, report
from clusters.operations.join import ClusterSpec, upsert_clusters
from clusters.queries import counters, eligibility, status_of, stays_eligible
from fleetui.models import Event
from tests.rows import NOW, joined, member_document, simulated

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)


def watched(minutes: int, *, since: int = 0) -> None:
    """Observe the fleet every ten seconds for some minutes."""
    for tick in range(since * 6, minutes * 6 + 1):
        observe(now=NOW + tick * timedelta(seconds=10))


def test_a_simulated_cluster_has_joined_once_it_answers() -> None:
    assert simulated("a").membership == Membership.JOINING

    observe(now=NOW)

    cluster = MemberCluster.objects.get()
    assert (cluster.membership, cluster.heartbeat_at, cluster.is_eligible) == (
        Membership.JOINED,
        NOW,
        True,
    )


def test_it_is_observed_again_after_its_heartbeat_period() -> None:
    simulated("a")

    looks = [
        observe(now=NOW + seconds * timedelta(seconds=1)).observed
        for seconds in (0, 10, 57, 60, 61)
    ]

    assert looks == [1, 0, 0, 1, 0]


@pytest.mark.nightly
def test_ticks_that_come_a_moment_early_lose_no_period() -> None:
    """The clock ticks every five seconds, at times a little sooner or later after a period."""
    simulated("a")
    late = (0.1, 0.0)
    times = [
        NOW + timedelta(seconds=5 * tick + late[tick // 12 % 2]) for tick in range(120)
    ]

    looks = [at for at in times if observe(now=at).observed]

    assert len(looks) == 10  # in ten minutes


@pytest.mark.nightly
def test_one_that_falls_silent_is_stale_after_five_minutes_and_eligible_when_it_returns() -> (
    None
):
    simulated("a")
    watched(1)
    MemberCluster.objects.update(connection={"fault": "silent"})
    FleetChange.objects.all().delete()

    watched(6, since=1)
    stale_from = MemberCluster.objects.get()

    assert stale_from.verdict == ""
    watched(7, since=6)
    assert MemberCluster.objects.get().verdict == "staleHeartbeat"
    assert FleetChange.objects.get().opens
    MemberCluster.objects.update(connection={})
    watched(9, since=7)
    assert MemberCluster.objects.get().verdict == ""
    assert list(Event.objects.order_by("pk").values_list("verb", flat=True))[1:] == [
        "became eligible",
        "heartbeat late",
        "became ineligible",
        "became eligible",
    ]


def test_a_late_heartbeat_is_a_warning_once_and_normal_once_it_recovers() -> None:
    simulated("a")
    watched(1)
    Event.objects.all().delete()

    MemberCluster.objects.update(connection={"fault": "silent"})
    watched(4, since=1)
    MemberCluster.objects.update(connection={})
    watched(6, since=4)

    events = Event.objects.order_by("pk").values_list("name", "verb", "is_warning")
    assert list(events) == [
        ("a", "heartbeat late", True),
        ("a", "heartbeat recovered", False),
    ]
    late = Event.objects.get(is_warning=True).after
    assert late == {"verdict": "", "reason": "the simulated cluster is silent"}


@pytest.mark.servers
def test_a_cluster_that_is_not_judged_again_would_be_judged_as_before() -> None:
    """Rows of every kind, of which the query leaves out those whose judgement is certain."""
    ages = (0, 299, 300, 301)
    words = ("", "True", "False")
    kinds = product(
        ("", "simulated"),
        ("", "staleHeartbeat", "unhealthy"),
        (True, False),
        words,
        words,
        (None, *(NOW - timedelta(seconds=age) for age in ages)),
    )
    MemberCluster.objects.bulk_create(
        MemberCluster(
            name=f"c{number}",
            document=member_document("c"),
            joined_at=NOW,
            verdict_since=NOW,
            expects_report=True,
            driver=driver,
            verdict=verdict,
            has_reported=has_reported,
            agent_joined=joined,
            agent_healthy=healthy,
            heartbeat_at=heartbeat,
            healthy_since=heartbeat,
            as_of=NOW + MINUTE,
        )
        for number, (
            driver,
            verdict,
            has_reported,
            joined,
            healthy,
            heartbeat,
        ) in enumerate(kinds)
    )
    state = FleetState(observing_since=NOW - MINUTE, observed_at=NOW)

    left_out = MemberCluster.objects.filter(stays_eligible(now=NOW))

    verdicts = [eligibility(row, now=NOW, state=state).kind for row in left_out]
    assert verdicts == [None] * 3  # one for each heartbeat of at most five minutes


@pytest.mark.nightly
def test_time_without_a_watcher_makes_no_cluster_stale() -> None:
    simulated("a")
    watched(1)

    back = NOW + timedelta(hours=3)
    MemberCluster.objects.update(connection={"fault": "silent"})
    observe(now=back)

    assert MemberCluster.objects.get().verdict == ""
    for tick in range(1, 32):
        observe(now=back + tick * timedelta(seconds=10))
    assert MemberCluster.objects.get().verdict == "staleHeartbeat"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "edit",
    [lambda at: cordon(["a"], by=None, now=at), lambda at: set_label("a", at)],
    ids=["cordon", "label"],
)
def test_an_edit_while_nothing_observes_makes_no_cluster_stale(
    edit: Callable[[datetime], object],
) -> None:
    simulated("a")
    watched(1)

    edit(NOW + timedelta(minutes=11))

    assert MemberCluster.objects.get().verdict == ""


def set_label(name: str, at: datetime) -> None:
    row = MemberCluster.objects.get(name=name)
    document = member_document(name, {"env": "prod"})
    upsert_clusters(
        [ClusterSpec(document, driver=row.driver, connection=row.connection)],
        by=None,
        now=at,
    )


@pytest.mark.nightly
def test_an_ill_cluster_is_ineligible_after_five_minutes() -> None:
    simulated("a", fault="unhealthy")

    watched(5)
    assert MemberCluster.objects.get().verdict == ""
    watched(6, since=5)

    assert MemberCluster.objects.get().verdict == "unhealthy"


@pytest.mark.nightly
def test_a_beating_heart_moves_no_counter() -> None:
    simulated("a")
    watched(1)
    before = counters()

    watched(4, since=1)

    assert counters() == before


@pytest.mark.nightly
def test_a_report_over_rest_makes_an_unwatched_cluster_one_that_must_report() -> None:
    joined("a")

    report(
        "a", Observation(is_healthy=True, properties={"nodes": "3"}), by=None, now=NOW
    )
    watched(6)

    cluster = MemberCluster.objects.get()
    assert (cluster.driver, cluster.properties) == ("reported", {"nodes": "3"})
    assert cluster.verdict == "staleHeartbeat"


def test_the_reason_of_bad_health_stays_until_the_cluster_is_healthy_or_measured_again() -> (
    None
):
    joined("a")
    notice = "no permission to list pods: available capacity is not known"
    observations = [
        (
            Observation(is_healthy=False, health_message="failing checks: etcd"),
            "failing checks: etcd",
        ),
        (Observation(is_healthy=True), ""),
        (
            Observation(
                is_healthy=True, properties={"nodes": "3"}, health_message=notice
            ),
            notice,
        ),
        (Observation(is_healthy=True), notice),
        (Observation(is_healthy=True, properties={"nodes": "4"}), ""),
    ]

    for observation, message in observations:
        report("a", observation, by=None, now=NOW)

        cluster = MemberCluster.objects.get()
        healthy = status_of(cluster)["agentStatus"][0]["conditions"][1]
        assert (cluster.health_message, healthy.get("message", "")) == (
            message,
            message,
        )


@pytest.mark.servers
def test_a_report_about_no_cluster_is_refused() -> None:
    with pytest.raises(UnknownClusterError):
        report("ghost", Observation(is_healthy=True), by=None, now=NOW)


def test_cordon_is_the_taint_of_the_drain_tool_and_uncordon_takes_it_away() -> None:
    joined("a")

    cordon(["a"], by=None, now=NOW)
    cordon(["a"], by=None, now=NOW)

    cluster = MemberCluster.objects.get()
    assert [str(taint) for taint in cluster.taints.all()] == [
        "cordon-key=cordon-value:NoSchedule"
    ]
    assert cluster.revision == 2
    uncordon(["a"], by=None, now=NOW)
    assert not MemberCluster.objects.get().taints.exists()


def test_a_leaving_cluster_is_gone_after_its_farewell() -> None:
    simulated("a")

    leave(["a"], by=None, now=NOW)

    assert MemberCluster.objects.get().verdict == "leaving"
    assert FleetChange.objects.latest("pk").gone == ["a"]
    assert finish_leaving(now=NOW) == ["a"]
    assert not MemberCluster.objects.exists()


def test_one_that_cannot_say_farewell_is_gone_after_fifteen_minutes() -> None:
    simulated("a", fault="silent")
    leave(["a"], by=None, now=NOW)

    assert finish_leaving(now=NOW + 14 * MINUTE) == []
    assert finish_leaving(now=NOW + 15 * MINUTE) == ["a"]


def test_leaving_twice_is_leaving_once() -> None:
    joined("a")

    first, second = (leave(["a"], by=None, now=NOW) for _ in range(2))

    assert [len(first), len(second)] == [1, 0]
    assert Event.objects.filter(verb="leaving").count() == 1


def test_an_unknown_name_changes_nothing() -> None:
    joined("a")

    with pytest.raises(UnknownClusterError):
        cordon(["a", "ghost"], by=None, now=NOW)

    assert not MemberCluster.objects.get().taints.exists()


@pytest.mark.nightly
def test_a_reason_holds_no_age_that_would_be_wrong_a_minute_later() -> None:
    simulated("a")
    watched(1)
    MemberCluster.objects.update(connection={"fault": "silent"})

    watched(8, since=1)

    row = MemberCluster.objects.get()
    assert (
        row.verdict_reason
        == "cluster is not connected to the fleet: no recent heartbeat signals"
    )
    happened = Event.objects.get(verb="became ineligible").after
    assert happened is not None
    assert happened["reason"] == row.verdict_reason
