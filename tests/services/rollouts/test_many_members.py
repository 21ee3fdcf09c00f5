"""Many Kubernetes clusters in one console: what watching them costs, counted, and that none delays others."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from threading import Event
from time import monotonic

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from clusters.drivers.base import DriverUnavailable
from clusters.models import MemberCluster
from clusters.operations import heartbeat
from clusters.operations.heartbeat import observe
from placements.models import Binding, ClusterUpdate
from placements.services.fleet_events import enqueue_affected_placements
from placements.services.rollouts import worker
from placements.services.rollouts.call_results import ClusterCall
from placements.services.rollouts.controller import sync_due_rollouts
from placements.services.scheduling import schedule_due
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.member_fleet import MemberFleet
from tests.clusters.kubernetes.servers import LocalServer, serve
from tests.rows import config_map
from tests.services.rollouts.many_members import ManyMembers, tokens_of

pytestmark = pytest.mark.django_db
SETTINGS = "GET /api/v1/namespaces/shop/configmaps/settings-0"
HEARTBEAT = "GET /readyz"


@pytest.fixture
def fleet() -> MemberFleet:
    return MemberFleet()


@pytest.fixture
def server(fleet: MemberFleet) -> Iterator[LocalServer]:
    with serve(fleet) as fake_server, override_settings(MEMBER_LOOPBACK=True):
        yield fake_server


def world_of(count: int, server: LocalServer, patch: pytest.MonkeyPatch) -> ManyMembers:
    world = ManyMembers(server.url, authority().pem, tokens_of(count), patch)
    observe(now=world.now)
    return world


@pytest.mark.nightly
def test_sixty_clusters_cost_two_requests_a_minute_and_few_queries(
    fleet: MemberFleet, server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(60, server, monkeypatch)
    for _ in range(12):
        world.tick()
    fleet.requests.clear()

    with CaptureQueriesContext(
        connection,
    ) as queries:
        for _ in range(12):
            world.tick()

    assert len(fleet.requests) == 60
    total = sum(fleet.requests.values(), Counter())
    assert (
        total[HEARTBEAT] - total["GET /api/v1/namespaces/fleetui-system/configmaps"]
        == 60
    )
    assert total["GET /api/v1/nodes"] == 60
    assert total["GET /api/v1/pods"] <= 12 + 5
    assert total["GET /version"] == 0
    assert len(queries) <= 12 * 25


@pytest.mark.nightly
def test_a_placement_at_rest_is_observed_every_fifteen_minutes_and_the_cluster_every_minute(
    fleet: MemberFleet, server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(6, server, monkeypatch)
    world.place_everywhere()
    world.rest(timedelta(hours=1))
    for _ in range(10):
        world.tick(seconds=120)
    fleet.requests.clear()

    for _ in range(15):
        world.tick(seconds=60)

    assert {
        token: counts[SETTINGS] for token, counts in fleet.requests.items()
    } == dict.fromkeys(fleet.requests, 1)
    assert all(counts[HEARTBEAT] >= 15 for counts in fleet.requests.values())
    writes = [
        count
        for counts in fleet.requests.values()
        for count in counts
        if not count.startswith("GET")
    ]
    assert writes == []


@pytest.mark.nightly
def test_what_was_observed_rarely_is_observed_soon_while_something_rolls_out(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(3, server, monkeypatch)
    world.place_everywhere(most=1)
    Binding.objects.update(next_call_at=world.now + timedelta(minutes=14))

    world.apply(config_map("settings-0", data={"color": "blue"}))
    enqueue_affected_placements()
    while schedule_due(now=world.now) + sync_due_rollouts(now=world.now):
        pass

    rows = Binding.objects.order_by("phase").values_list("phase", "next_call_at")
    soon = world.now + timedelta(seconds=15)
    assert list(rows) == [
        ("applying", world.now),
        ("available", soon),
        ("available", soon),
    ]


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.nightly)])
def test_a_frozen_cluster_answers_after_all_others_were_served(
    fleet: MemberFleet, server: LocalServer, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """It is thawed by the last answer of another one: were one of these to wait for it, neither would end."""
    world = world_of(count, server, monkeypatch)
    served: set[str] = set()
    thawed = Event()

    def note(token: str, path: str) -> None:
        if path == "/readyz":
            served.add(token)
        if len(served) == count - 1:
            thawed.set()

    monkeypatch.setattr(heartbeat, "CALL_SECONDS", 60.0)
    monkeypatch.setattr(heartbeat, "ROUND_SECONDS", 60.0)
    for frozen in ("token-m0000", f"token-m{count - 1:04}"):
        served.clear()
        thawed.clear()
        fleet.frozen, fleet.answered = {frozen: thawed}, note
        world.now += timedelta(seconds=60)

        result = observe(now=world.now)

        assert (result.observed, result.silent) == (count, 0)
        fleet.frozen = {}
    assert MemberCluster.objects.filter(unanswered_since=None).count() == count


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.nightly)])
def test_a_rollout_reaches_all_clusters_while_one_is_frozen(
    fleet: MemberFleet, server: LocalServer, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    world = world_of(count, server, monkeypatch)
    thawed = Event()
    has_object: set[str] = set()

    def note(token: str, path: str) -> None:
        if path.endswith("/configmaps/settings-0") and not thawed.is_set():
            has_object.add(token)
        if len(has_object) == count - 1:
            thawed.set()

    fleet.frozen, fleet.answered = {"token-m0000": thawed}, note
    monkeypatch.setattr(worker, "CALL_SECONDS", 60.0)
    monkeypatch.setattr(worker, "ROUND_SECONDS", 60.0)
    monkeypatch.setattr(worker, "LEASE", timedelta(seconds=120))

    world.place_everywhere(threads=8)

    assert len(world.available()) == count
    assert (
        len(has_object) == count - 1
    )  # the frozen one answered afterwards, within its first call
    assert set(ClusterUpdate.objects.values_list("attempt", "message")) == {(1, "")}


@pytest.mark.timing
def test_a_frozen_cluster_costs_the_others_at_most_a_fifth(
    fleet: MemberFleet, server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, frozen = 200, "token-m0000"
    world = world_of(count, server, monkeypatch)
    monkeypatch.setattr(heartbeat, "CALL_SECONDS", 2.0)
    answered: list[float] = []

    def note(token: str, path: str) -> None:
        if path == "/readyz" and token != frozen:
            answered.append(monotonic())

    def slowest() -> float:
        """Return the seconds until the last of the others has its heartbeat."""
        answered.clear()
        world.now += timedelta(seconds=60)
        started = monotonic()
        observe(now=world.now)
        assert len(answered) == count - 1
        return answered[-1] - started

    fleet.answered = note
    plain = min(slowest() for _ in range(3))
    fleet.frozen = {frozen: Event()}
    beside = min(slowest() for _ in range(3))
    fleet.frozen.pop(frozen).set()

    assert beside <= 1.2 * plain, (
        f"{plain:.2f} s, beside a frozen cluster {beside:.2f} s"
    )


@pytest.mark.nightly
def test_a_dead_api_server_is_noticed_within_a_period_and_five_seconds(
    fleet: MemberFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    with override_settings(MEMBER_LOOPBACK=True):
        with serve(fleet) as server:
            world = world_of(3, server, monkeypatch)
            for _ in range(24):
                world.tick()
        while world.silent() < 3:  # the server has gone
            world.tick()

    noticed = MemberCluster.objects.values_list(
        "unanswered_since", "heartbeat_at", "unanswered_code"
    )
    for since, heartbeat_at, code in noticed:
        assert since is not None
        assert heartbeat_at is not None
        assert since - heartbeat_at <= timedelta(seconds=60)
        assert code == "refused"
    assert heartbeat.CALL_SECONDS <= 5  # one that is frozen is noticed so much later


@pytest.mark.nightly
def test_a_call_ends_with_its_lease(
    fleet: MemberFleet, server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was stopped after its claim continues with little time: another one may claim then."""
    world = world_of(1, server, monkeypatch)
    world.place_everywhere()
    fleet.frozen = {"token-m0000": Event()}
    binding = Binding.objects.select_related("resource_snapshot").get()
    cluster = MemberCluster.objects.select_related("credential").get()
    binding.call_lease_expires_at = world.now + timedelta(seconds=0.5)

    started = monotonic()
    with pytest.raises(DriverUnavailable, match="no answer in time"):
        worker.call_cluster(
            [ClusterCall(binding, "web", cluster, ())], lambda: world.now
        )

    assert monotonic() - started < worker.CALL_SECONDS / 2
    fleet.frozen["token-m0000"].set()
