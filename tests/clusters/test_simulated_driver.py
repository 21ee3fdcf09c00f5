"""The simulated cluster keeps the drivers' contract, with either store, and fails as its faults say."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from threading import Lock
from typing import Any

import pytest

from clusters import driver_factory
from clusters.driver_factory import DatabaseStore
from clusters.drivers.base import DriverRejected, DriverUnavailable, Version
from clusters.drivers.readiness import Readiness
from clusters.drivers.simulated.driver import SimulatedDriver
from clusters.drivers.simulated.state import (
    LONGEST_LOG,
    MOST_OBJECTS,
    OWNERS,
    StateStore,
    Stored,
)
from clusters.models import MemberCluster, SimulatedPlacement
from tests.clusters.driver_contract import (
    V1,
    V2,
    WEB,
    Clock,
    DriverContract,
    deployment,
)
from tests.rows import config_map, namespace, simulated

Connect = Callable[..., SimulatedDriver]


class MemoryStore:
    """Keeps states in this process."""

    def __init__(self) -> None:
        self._stored: dict[str, Stored] = {}
        self._lock = Lock()

    def load(self, *placements: str) -> Mapping[str, Stored]:
        wanted = placements or [name for name in self._stored if name != OWNERS]
        return {name: self._stored[name] for name in wanted if name in self._stored}

    def save(self, states: Mapping[str, Stored]) -> bool:
        """Save the next states if all their revisions are still the last ones."""
        with self._lock:
            if any(
                self._stored.get(name, Stored(0, {})).revision != stored.revision
                for name, stored in states.items()
            ):
                return False
            for name, stored in states.items():
                self._stored[name] = Stored(stored.revision + 1, stored.content)
            return True


@pytest.fixture
def clock() -> Clock:
    """Return a clock that moves by sleeping."""
    return Clock()


@pytest.fixture
def store() -> StateStore:
    """Return a store in memory; a class of tests may have another."""
    return MemoryStore()


@pytest.fixture
def connect(store: StateStore, clock: Clock) -> Connect:
    """Return a maker of drivers of one cluster; applying takes no time unless a test says so."""

    def make(**connection: Any) -> SimulatedDriver:
        return SimulatedDriver(
            {"applyMilliseconds": 0, **connection}, store, clock, clock.sleep
        )

    return make


@pytest.fixture
def holds(connect: Connect) -> Callable[[str], set[str]]:
    """Return a look past the driver at what a placement has."""

    def look(placement: str) -> set[str]:
        state = connect().states().get(placement)
        return (
            {str(held_object.ref) for held_object in state.placement.objects}
            if state and state.placement
            else set()
        )

    return look


class TestInMemory(DriverContract):
    """The contract, with the store of tests."""


@pytest.mark.django_db
@pytest.mark.servers
class TestInTheDatabase(DriverContract):
    """The contract, with the store of the console."""

    @pytest.fixture
    def store(self) -> StateStore:
        """Return the row of a cluster."""
        return DatabaseStore(simulated("a").pk)


@pytest.mark.django_db
@pytest.mark.servers
def test_of_two_writers_of_a_state_one_wins() -> None:
    store = DatabaseStore(simulated("a").pk)

    assert [store.save({"web": Stored(0, {"n": n})}) for n in (1, 2)] == [True, False]
    assert [store.save({"web": Stored(1, {"n": n})}) for n in (3, 4)] == [True, False]
    assert store.load("web") == store.load() == {"web": (2, {"n": 3})}
    assert store.load("other") == {}


@pytest.mark.django_db
@pytest.mark.servers
def test_the_fences_of_the_oldest_removed_placements_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver_factory, "MOST_FENCES", 2)
    store = DatabaseStore(simulated("a").pk)
    store.save({"held": Stored(0, {"held": {"version": "v1"}, "fence": 1})})

    for name in "abc":
        store.save({name: Stored(0, {"held": None, "fence": 7})})
        store.save({name: Stored(1, {"held": None, "fence": 8})})

    assert set(store.load()) == {"held", "b", "c"}


@pytest.mark.django_db
@pytest.mark.servers
def test_a_state_goes_with_its_cluster() -> None:
    cluster = simulated("a")
    DatabaseStore(cluster.pk).save({"web": Stored(0, {})})

    MemberCluster.objects.all().delete()

    assert not SimulatedPlacement.objects.exists()


def test_an_apply_that_lost_against_another_is_repeated(
    store: StateStore, clock: Clock
) -> None:
    other = SimulatedDriver({}, store, clock, clock.sleep)
    rival = _Rival(store, lambda: other.apply(V2))

    SimulatedDriver({}, rival, clock, clock.sleep).apply(V1)

    assert other.states()["web"].changes == {"v2": 1, "v1": 1}


class _Rival:
    """A store in which another process writes between the first load and save."""

    def __init__(self, store: StateStore, interfere: Callable[[], object]) -> None:
        self._store, self._interfere = store, interfere
        self._has_interfered = False

    def load(self, *placements: str) -> Any:
        loaded = self._store.load(*placements)
        if not self._has_interfered:
            self._has_interfered = True
            self._interfere()
        return loaded

    def save(self, states: Mapping[str, Stored]) -> bool:
        return self._store.save(states)


def test_the_book_counts_changes_and_not_repetitions(connect: Connect) -> None:
    driver = connect()
    for version in (V1, V1, V2, V1):
        driver.apply(version)
    driver.remove("web")
    driver.remove("web")

    state = driver.states()["web"]

    assert [entry.what for entry in state.log] == [
        "applied",
        "applied again",
        "applied",
        "applied",
        "removed",
        "removed again",
    ]
    assert state.changes == {"v1": 2, "v2": 1, "": 1}


def test_a_wholly_refused_version_is_no_change(connect: Connect) -> None:
    driver = connect(faults=[{"kind": "refuse"}])

    for _ in range(2):
        with pytest.raises(DriverRejected):
            driver.apply(Version("v1", "web", (deployment("web"),)))

    state = driver.states()["web"]
    assert [entry.what for entry in state.log] == ["refused", "refused"]
    assert state.changes == {}
    assert connect().apply(V2).changed


def test_the_book_is_bounded(connect: Connect) -> None:
    driver = connect()

    for number in range(LONGEST_LOG + 20):
        driver.apply(Version(f"v{number}", "web"))

    assert len(driver.states()["web"].log) == LONGEST_LOG


@pytest.mark.nightly
def test_a_placement_has_a_largest_number_of_objects(connect: Connect) -> None:
    manifests = tuple(config_map(f"c{number}") for number in range(MOST_OBJECTS + 1))

    with pytest.raises(DriverRejected, match="1 of 5001 objects refused") as caught:
        connect().apply(Version("v1", "web", manifests))

    assert "takes 5000 objects of a placement" in caught.value.refusals[0].message


def test_calls_take_their_time(connect: Connect, clock: Clock) -> None:
    connect(applyMilliseconds=250).apply(V1)

    assert clock.slept == [0.25]


def test_an_object_that_does_not_change_stays_ready(
    connect: Connect, clock: Clock
) -> None:
    driver = connect(readySeconds=10)
    driver.apply(V1)
    clock.sleep(10)

    driver.apply(
        Version(
            "v3", "web", (deployment("web"), config_map("settings", data={"a": "b"}))
        )
    )

    seen = driver.observe("web").of("web")
    assert seen
    assert seen.readiness is Readiness.AVAILABLE


def test_flapping_changes_with_its_period_and_only_what_it_is_about(
    connect: Connect, clock: Clock
) -> None:
    since = clock().isoformat()
    fault = {"kind": "flap", "periodSeconds": 60, "since": since, "objectName": "web"}
    driver = connect(readySeconds=0, faults=[fault])
    driver.apply(Version("v1", "web", (deployment("web"), deployment("steady"))))

    unready = []
    for _ in range(4):
        seen = driver.observe("web").of("web")
        unready.append(
            [object_seen.object for object_seen in seen.unready] if seen else None
        )
        clock.sleep(60)

    assert unready == [[WEB], [], [WEB], []]


def test_an_object_that_is_never_ready_says_what_is_missing(connect: Connect) -> None:
    driver = connect(readySeconds=0, faults=[{"kind": "notReady", "image": "shop:1.0"}])
    driver.apply(V1)

    seen = driver.observe("web").of("web")

    assert seen
    assert [str(object_seen.reason) for object_seen in seen.unready] == [
        "0 of 2 replicas available, 2 updated, 2 unavailable"
    ]


def test_a_job_and_a_custom_resource_that_are_never_ready_are_not_available(
    connect: Connect, clock: Clock
) -> None:
    objects = [
        {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": "one", "namespace": "shop"},
            "spec": {},
        }
        for version, kind in (("batch/v1", "Job"), ("example.com/v1", "Database"))
    ]
    connect(readySeconds=5).apply(Version("j1", "jobs", (namespace("shop"), *objects)))

    def seen(**connection: Any) -> list[tuple[str, str, str]]:
        found = connect(**connection).observe("jobs").of("jobs")
        assert found
        return [
            (seen.object.kind, str(seen.readiness), seen.reason)
            for seen in found.unready
        ]

    unknown = (
        "Database",
        "notTrackable",
        "the availability of a Database is not known",
    )
    job = ("Job", "notYet", "no pod is ready or has succeeded")
    assert seen() == [job, unknown]
    clock.sleep(5)
    assert seen() == [unknown]
    failed = ("Database", "notYet", "Ready is False: SimulatedFault")
    assert seen(faults=[{"kind": "notReady"}]) == [job, failed]


def test_an_ill_cluster_answers_and_says_so(connect: Connect) -> None:
    assert not connect(faults=[{"kind": "unhealthy"}]).observe().is_healthy
    assert not connect(fault="unhealthy").observe().is_healthy


@pytest.mark.parametrize("call", ["observe", "leave"])
def test_a_time_out_is_of_the_calls_that_it_names(
    connect: Connect, clock: Clock, call: str
) -> None:
    driver = connect(faults=[{"kind": "timeOut", "calls": [call]}])

    driver.apply(V1)
    with pytest.raises(DriverUnavailable):
        getattr(driver, call)(timeout=4)

    assert clock.slept == [4]


def test_a_heartbeat_needs_no_state(clock: Clock) -> None:
    class Unreadable(MemoryStore):
        def load(self, *placements: str) -> Any:
            raise AssertionError(f"the state was read: {placements}")

    assert SimulatedDriver({}, Unreadable(), clock, clock.sleep).observe().is_healthy


def test_a_lost_state_leaves_what_came_after_it(connect: Connect, clock: Clock) -> None:
    connect().apply(V1)
    clock.sleep(60)
    lost = {"kind": "lostState", "since": clock().isoformat()}
    clock.sleep(60)
    connect().apply(Version("x1", "other", (config_map("x"),)))

    assert set(connect(faults=[lost]).observe(inventory=True).fences or ()) == {"other"}
    clock.now -= timedelta(minutes=2)
    assert set(connect(faults=[lost]).observe(inventory=True).fences or ()) == {
        "web",
        "other",
    }
