"""A simulated cluster keeps objects by identity: each has its owners, and the content of one of them."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from clusters.driver_factory import DatabaseStore
from clusters.drivers.base import ApplyOptions, DriverRejected, ObjectRef, Version
from clusters.drivers.simulated.driver import SimulatedDriver
from clusters.drivers.simulated.state import OWNERS, StateStore, Stored, stored_object
from tests.clusters.driver_contract import Clock, deployment
from tests.clusters.test_simulated_driver import MemoryStore
from tests.rows import NOW, config_map, namespace, simulated

SHOP = ObjectRef("", "Namespace", "", "shop")
SHARED = ApplyOptions(allow_co_ownership=True)


def version(
    placement: str, *manifests: dict[str, object], options: ApplyOptions | None = None
) -> Version:
    """Make the version of a placement that these manifests are."""
    text = "".join(
        stored_object(manifest, ready_at=NOW).digest for manifest in manifests
    )
    return Version(text, placement, manifests, options=options or ApplyOptions())


def cluster(
    store: StateStore, clock: Clock | None = None, **connection: object
) -> SimulatedDriver:
    """Connect to a cluster on which applying takes no time."""
    clock = clock or Clock()
    return SimulatedDriver(
        {"applyMilliseconds": 0, **connection}, store, clock, clock.sleep
    )


def owners_of(driver: SimulatedDriver, ref: ObjectRef) -> set[str]:
    """Return the owners of an object; none where it is not there."""
    found = driver.objects().get(ref)
    return set(found[0].owners) if found else set()


def test_what_another_placement_owns_is_refused_and_the_rest_is_applied() -> None:
    driver = cluster(MemoryStore())
    driver.apply(version("web", namespace("shop"), deployment("web", image="shop:1")))

    with pytest.raises(DriverRejected) as caught:
        driver.apply(version("api", namespace("shop"), config_map("api")))

    [refusal] = caught.value.refusals
    assert (refusal.object, refusal.code) == (SHOP, "FailedToTakeOver")
    assert refusal.message == "belongs to placement web of this hub"
    assert owners_of(driver, SHOP) == {"web"}
    assert owners_of(driver, ObjectRef("", "ConfigMap", "shop", "api")) == {"api"}
    seen = driver.observe("api", "web")
    assert [bool(placement.refusals) for placement in seen.placements] == [True, False]


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (ApplyOptions(), SHARED, "FailedToTakeOver"),
        (SHARED, ApplyOptions(), "FailedToTakeOver"),
        (SHARED, SHARED, ""),
        (SHARED, replace(SHARED, when_to_take_over="Never"), "NotTakenOver"),
        (SHARED, replace(SHARED, when_to_take_over="IfNoDiff"), "FailedToTakeOver"),
    ],
)
def test_an_object_is_shared_only_where_both_allow_it(
    first: ApplyOptions, second: ApplyOptions, code: str
) -> None:
    driver = cluster(MemoryStore())
    driver.apply(version("web", deployment("web", image="shop:1"), options=first))
    wanted = version("api", deployment("web", image="shop:2"), options=second)
    if not code:
        driver.apply(wanted)
        assert owners_of(driver, ObjectRef("apps", "Deployment", "shop", "web")) == {
            "api",
            "web",
        }
        return

    with pytest.raises(DriverRejected) as caught:
        driver.apply(wanted)

    assert [refusal.code for refusal in caught.value.refusals] == [code]


def test_an_equal_object_is_shared_if_there_is_no_difference() -> None:
    driver = cluster(MemoryStore())
    driver.apply(version("web", namespace("shop"), options=SHARED))

    driver.apply(
        version(
            "api",
            namespace("shop"),
            options=replace(SHARED, when_to_take_over="IfNoDiff"),
        )
    )

    assert owners_of(driver, SHOP) == {"api", "web"}


def test_only_the_first_that_sends_a_new_content_writes_the_owners() -> None:
    store = MemoryStore()
    driver = cluster(store)
    names = ("api", "db", "web")
    for name in names:
        driver.apply(version(name, deployment("web", image="shop:1"), options=SHARED))
    before = store.load(OWNERS)[OWNERS].revision

    for name in names:
        driver.apply(version(name, deployment("web", image="shop:2"), options=SHARED))

    assert store.load(OWNERS)[OWNERS].revision == before + 1
    [(ownership, record)] = driver.objects().values()
    assert (set(ownership.owners), ownership.writer) == ({*names}, "api")
    assert record.images == ("shop:2",)


def test_an_object_has_the_content_that_an_owner_sent_last() -> None:
    driver = cluster(MemoryStore())
    for name, tag in (
        ("web", 1),
        ("api", 1),
        ("web", 2),
        ("api", 3),
        ("web", 3),
        ("api", 1),
    ):
        driver.apply(
            version(name, deployment("web", image=f"shop:{tag}"), options=SHARED)
        )

        [(_, record)] = driver.objects().values()
        assert record.images == (f"shop:{tag}",)


@pytest.mark.parametrize("leaving", ["web", "api"])
def test_a_shared_object_stays_until_its_last_owner_goes(leaving: str) -> None:
    driver = cluster(MemoryStore())
    for name in ("web", "api"):
        driver.apply(version(name, namespace("shop"), options=SHARED))

    driver.remove(leaving)
    assert owners_of(driver, SHOP) == {"web", "api"} - {leaving}

    [left] = {"web", "api"} - {leaving}
    driver.apply(version(left))  # a version without any object
    assert not driver.objects()


def test_what_its_owner_gives_up_is_taken_at_the_next_try() -> None:
    driver = cluster(MemoryStore())
    driver.apply(version("web", namespace("shop"), config_map("a")))
    wanted = version("api", namespace("shop"))
    with pytest.raises(DriverRejected):
        driver.apply(wanted)

    driver.apply(version("web", config_map("a")))
    driver.apply(wanted)

    assert owners_of(driver, SHOP) == {"api"}
    with pytest.raises(DriverRejected, match="1 of 2"):
        driver.apply(version("web", namespace("shop"), config_map("a")))


def test_what_a_cluster_lost_belongs_to_whoever_applies_it_next() -> None:
    store, clock = MemoryStore(), Clock()
    cluster(store, clock).apply(version("web", namespace("shop")))
    clock.sleep(10)
    fault = {
        "kind": "lostState",
        "since": (clock() - timedelta(seconds=5)).isoformat().replace("+00:00", "Z"),
    }
    driver = cluster(store, clock, faults=[fault])

    driver.apply(version("api", namespace("shop")))

    assert owners_of(driver, SHOP) == {"api"}
    with pytest.raises(DriverRejected):
        driver.apply(version("web", namespace("shop")))


def older(*placements: str) -> MemoryStore:
    """Return a store from before there were owners: each placement has the namespace and an object."""
    made, clock = MemoryStore(), Clock()
    for name in placements:
        one = MemoryStore()
        cluster(one, clock).apply(version(name, namespace("shop"), config_map(name)))
        made.save({name: Stored(0, one.load(name)[name].content)})
        clock.sleep(1)
    return made


def test_a_state_without_owners_gives_an_object_to_the_first_placement() -> None:
    driver = cluster(older("web", "api"))

    driver.apply(version("new", config_map("new")))

    assert owners_of(driver, SHOP) == {"web"}
    assert owners_of(driver, ObjectRef("", "ConfigMap", "shop", "api")) == {"api"}
    [seen] = driver.observe("api").placements
    assert [refusal.message for refusal in seen.refusals] == [
        "belongs to placement web of this hub"
    ]


def test_a_placement_of_a_state_without_owners_says_at_its_next_apply_what_it_cannot_have() -> (
    None
):
    driver = cluster(older("web", "api"))

    with pytest.raises(DriverRejected) as caught:
        driver.apply(version("api", namespace("shop"), config_map("api")))

    assert [refusal.code for refusal in caught.value.refusals] == ["FailedToTakeOver"]
    driver.remove("web")
    driver.apply(version("api", namespace("shop"), config_map("api")))
    assert owners_of(driver, SHOP) == {"api"}


class Raced(MemoryStore):
    """A store in which a call of another placement comes between reading and saving, once."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: list[Version] = []

    def save(self, states: Mapping[str, Stored]) -> bool:
        """Save after the other call."""
        while self.meanwhile:
            cluster(self).apply(self.meanwhile.pop())
        return super().save(states)


def test_of_two_placements_that_apply_an_object_at_once_one_is_refused() -> None:
    store = Raced()
    store.meanwhile = [version("web", namespace("shop"))]

    with pytest.raises(DriverRejected):
        cluster(store).apply(version("api", namespace("shop")))

    assert owners_of(cluster(store), SHOP) == {"web"}


@pytest.mark.django_db
@pytest.mark.servers
def test_owners_and_state_are_saved_together_or_not_at_all() -> None:
    store = DatabaseStore(simulated("a").pk)
    assert store.save({"web": Stored(0, {"n": 1}), OWNERS: Stored(0, {"owners": []})})

    assert not store.save(
        {OWNERS: Stored(1, {"owners": [1]}), "web": Stored(0, {"n": 2})}
    )

    assert store.load("web", OWNERS) == {
        "web": (1, {"n": 1}),
        OWNERS: (1, {"owners": []}),
    }
    assert set(store.load()) == {"web"}


@pytest.mark.parametrize("seed", range(60))
def test_no_object_is_lost_or_has_the_content_of_a_stranger(seed: int) -> None:
    """Placements apply, prune, release and leave at random; a model keeps who was told that it succeeded."""
    random = Random(seed)
    drivers = [cluster(MemoryStore()) for _ in range(2)]
    sent: list[dict[str, dict[ObjectRef, str]]] = [{} for _ in drivers]
    for _ in range(60):
        number = random.randrange(len(drivers))
        driver, owned = drivers[number], sent[number]
        name = random.choice("abcd")
        if random.random() < 0.2:
            random.choice([driver.remove, driver.release])(name)
            owned.pop(name, None)
        else:
            objects = [
                deployment(
                    f"o{each}",
                    image=f"{random.choice([name, 'same'])}:{random.randrange(3)}",
                )
                for each in random.sample(range(5), random.randrange(5))
            ]
            wanted = version(
                name, *objects, options=random.choice([SHARED, ApplyOptions()])
            )
            refused = set()
            try:
                driver.apply(wanted)
            except DriverRejected as error:
                refused = {refusal.object for refusal in error.refusals}
            owned[name] = {
                ObjectRef.of(one): stored_object(one, ready_at=NOW).digest
                for one in objects
                if ObjectRef.of(one) not in refused
            }

        found = driver.objects()
        assert set(found) == {ref for refs in owned.values() for ref in refs}
        for ref, (ownership, record) in found.items():
            owners = {each for each, refs in owned.items() if ref in refs}
            assert set(ownership.owners) == owners
            assert record.digest in {owned[owner][ref] for owner in owners}
