"""Removals that nobody asked for wait for a person; what others deleted is not called available."""

from collections.abc import Iterator
from datetime import UTC, datetime
from io import StringIO

import pytest
from django.test import Client, override_settings
from rest_framework.test import APIClient

from clusters.driver_factory import driver_for
from clusters.drivers.base import HeldObjects, ObjectRef, Version
from clusters.models import MemberCluster
from fleetui.models import Event
from placements.engine.rollout.state import Phase
from placements.models import Binding, Leftover, Placement, Problem, WaitingRemoval
from placements.services.notifications.evaluation import evaluate
from placements.services.placements import delete_placement
from placements.services.rollout_state import WAITING
from placements.services.rollouts.removals import reason_to_wait, waiting_removals
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.member_fleet import MemberFleet
from tests.clusters.kubernetes.servers import LocalServer, serve
from tests.commands import call_command
from tests.rows import config_map, namespace, person
from tests.services.rollouts.many_members import ManyMembers
from tests.web.reading import page_text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("collected_static")]
SPACE = ObjectRef("", "Namespace", "", "shop")
TOKEN = "token"
GHOST = "/api/v1/namespaces/ghost/configmaps/x"
SETTINGS = "/api/v1/namespaces/shop/configmaps/settings-0"


@pytest.mark.parametrize(
    ("mine", "going", "total", "is_known", "words"),
    [
        (HeldObjects(1), 1, 1, True, ""),
        (HeldObjects(5), 5, 5, True, ""),
        (HeldObjects(6), 6, 59, True, "6 of 59 objects"),
        (HeldObjects(6), 6, 60, True, ""),
        (HeldObjects(3), 7, 60, True, "7 of 60 objects"),
        (HeldObjects(1, (SPACE,)), 1, 1_000, True, "Namespace shop"),
        (HeldObjects(1), 1, 1_000, False, "never had a placement"),
    ],
)
def test_what_waits(
    mine: HeldObjects, going: int, total: int, is_known: bool, words: str
) -> None:
    reason = reason_to_wait(mine, going, total, is_known=is_known)

    assert bool(reason) == bool(words)
    assert words in reason


@pytest.fixture
def fleet() -> MemberFleet:
    return MemberFleet()


@pytest.fixture
def world(fleet: MemberFleet, monkeypatch: pytest.MonkeyPatch) -> Iterator[ManyMembers]:
    with serve(fleet) as server, override_settings(MEMBER_LOOPBACK=True):
        yield world_on(server, monkeypatch)


def world_on(server: LocalServer, patch: pytest.MonkeyPatch) -> ManyMembers:
    world = ManyMembers(server.url, authority().pem, {"pier": TOKEN}, patch)
    world.tick()
    return world


def haunt(world: ManyMembers, name: str = "ghost") -> None:
    """Leave something on the cluster that no placement of this database wants."""
    row = MemberCluster.objects.select_related("credential").get()
    driver_for(row).apply(
        Version("v1", name, (namespace("ghost"), config_map("x", in_="ghost")), fence=7)
    )
    world.tick(seconds=130)


def test_an_orphan_that_this_database_never_knew_waits_and_is_removed_when_confirmed(
    world: ManyMembers, fleet: MemberFleet
) -> None:
    haunt(world)
    world.tick(seconds=130)
    assert GHOST in fleet.objects[TOKEN]
    assert Event.objects.filter(verb="removal waits", is_warning=True).count() == 1
    rest = APIClient()
    rest.force_authenticate(person("ann", "operator"))
    (item,) = rest.get("/api/v1/clusters/pier/removals").json()
    assert (item["placement"], item["isOrphan"]) == ("ghost", True)

    body = {"placement": "ghost", "decision": "confirm"}
    assert rest.post("/api/v1/clusters/pier/removals", body, format="json").json() == []
    assert (
        rest.post("/api/v1/clusters/pier/removals", body, format="json").status_code
        == 409
    )
    world.tick(seconds=130)
    world.tick(seconds=130)

    assert GHOST not in fleet.objects[TOKEN]
    assert not WaitingRemoval.objects.exists()


def test_an_orphan_can_be_kept(
    world: ManyMembers, fleet: MemberFleet, client: Client
) -> None:
    haunt(world)
    client.force_login(person("vera", "viewer"))
    page = client.get("/clusters/pier/removals/")
    assert "ghost" in page.content.decode()
    assert "Confirm removal" not in page.content.decode()
    assert (
        client.post(
            "/clusters/pier/removals/", {"placement": "ghost", "do": "keep"}
        ).status_code
        == 403
    )
    client.force_login(person("ann", "operator"))
    assert "removals/" in client.get("/").content.decode()
    assert "Confirm removal" in client.get("/clusters/pier/removals/").content.decode()

    client.post("/clusters/pier/removals/", {"placement": "ghost", "do": "keep"})
    world.tick(seconds=130)

    assert GHOST in fleet.objects[TOKEN]
    assert (waiting_removals(), Leftover.objects.count()) == ([], 1)


def test_what_waits_is_in_the_inbox_and_notified_until_it_is_decided(
    world: ManyMembers, client: Client
) -> None:
    """An orphan and a prune: both lists, and both places that read them, have the same."""
    world.place_everywhere()
    haunt(world)
    Binding.objects.update(
        removal_check=WAITING, phase=Phase.FAILED, message="It has a newer version."
    )
    expected = {
        (
            "pier",
            "ghost",
            "This console has never had a placement of this name, as after a restored backup.",
        ),
        ("pier", "web", "It has a newer version."),
    }
    assert {
        (removal.cluster_name, removal.placement_name, removal.reason)
        for removal in waiting_removals()
    } == expected
    client.force_login(person("vera", "viewer"))
    evaluate(now=world.now)

    items = client.get("/api/v1/inbox?kind=removal-waits").json()["items"]
    reasons = {name: why for _, name, why in expected}
    ghost = f"The removal of ghost waits for a confirmation: {reasons['ghost']}"
    sentences = {ghost, f"Removal of web waits: {reasons['web']}"}
    assert {(item["noun"], item["name"]) for item in items} == {
        ("cluster-removals", "pier")
    }
    assert {item["message"] for item in items} == sentences
    page = page_text(client.get("/inbox/"))
    assert page.count('href="/clusters/pier/removals/"') == 2
    assert 'id="count-inbox">2<' in page
    problems = Problem.objects.filter(kind="removal-waits")
    assert {problem.message for problem in problems} == sentences
    assert {problem.path for problem in problems} == {"/clusters/pier/removals/"}

    client.force_login(person("ann", "operator"))
    for name in ("ghost", "web"):
        client.post("/clusters/pier/removals/", {"placement": name, "do": "confirm"})
    evaluate(now=world.now)

    assert client.get("/api/v1/inbox?kind=removal-waits").json()["items"] == []
    assert not Problem.objects.filter(kind="removal-waits", ended_at=None).exists()


def test_the_command_lists_and_confirms(world: ManyMembers, fleet: MemberFleet) -> None:
    haunt(world)
    out = StringIO()
    call_command("get", "removals", stdout=out)
    heading, row = out.getvalue().splitlines()
    assert heading.split()[:3] == ["NAME", "CLUSTER", "REASON"]
    assert row.startswith("ghost  pier     This console has never had")

    call_command("removals", "confirm", "pier", "ghost", stdout=StringIO())
    world.tick(seconds=130)
    world.tick(seconds=130)

    assert GHOST not in fleet.objects[TOKEN]


def test_a_deletion_that_was_requested_does_not_wait(
    world: ManyMembers, fleet: MemberFleet
) -> None:
    world.place_everywhere(config_maps=20)
    delete_placement("web", by=None, now=world.now)
    for _ in range(5):
        world.tick(seconds=60)

    assert not Placement.objects.exists()
    assert not any("/shop" in path for path in fleet.objects[TOKEN])


def test_what_a_newer_database_placed_is_not_pruned_before_a_confirmation(
    world: ManyMembers, fleet: MemberFleet
) -> None:
    world.place_everywhere(config_maps=2)
    binding = Binding.objects.get()
    newer = tuple(config_map(f"settings-{at}") for at in range(4))
    row = MemberCluster.objects.select_related("credential").get()
    # As before a restore of the database: a version of the same console that it has forgotten.
    driver_for(row).apply(
        Version("newer", "web", (namespace("shop"), *newer), fence=binding.fence + 1)
    )
    for _ in range(6):
        world.tick(seconds=130)

    assert SETTINGS.replace("-0", "-3") in fleet.objects[TOKEN]
    (item,) = waiting_removals("pier")
    assert (item.placement_name, item.is_orphan) == ("web", False)
    assert "waits for a confirmation" in item.reason

    call_command("removals", "confirm", "pier", "web", stdout=StringIO())
    for _ in range(4):
        world.tick(seconds=130)

    assert SETTINGS.replace("-0", "-3") not in fleet.objects[TOKEN]
    assert SETTINGS in fleet.objects[TOKEN]
    assert (waiting_removals(), Binding.objects.get().phase) == ([], Phase.AVAILABLE)


def test_an_inventory_that_was_deleted_is_noticed_by_the_next_sweep(
    world: ManyMembers, fleet: MemberFleet
) -> None:
    world.place_everywhere()
    world.tick(seconds=130)
    Binding.objects.update(next_call_at=world.now.replace(year=world.now.year + 1))
    fleet.objects[TOKEN].clear()

    world.tick(seconds=130)

    assert SETTINGS in fleet.objects[TOKEN]


def test_what_is_deleted_again_and_again_is_not_called_available(
    world: ManyMembers, fleet: MemberFleet
) -> None:
    world.place_everywhere()
    for _ in range(6):
        fleet.objects[TOKEN].pop(SETTINGS, None)
        Binding.objects.update(next_call_at=world.now)
        world.tick()
    fleet.objects[TOKEN].pop(SETTINGS, None)
    Binding.objects.update(next_call_at=world.now)
    world.tick()

    binding = Binding.objects.get()
    assert binding.contested_since is not None
    assert binding.phase != Phase.AVAILABLE
    assert [failed_object["name"] for failed_object in binding.failed_objects] == [
        "settings-0"
    ]


def test_times_are_those_of_the_clock(world: ManyMembers) -> None:
    haunt(world)

    assert WaitingRemoval.objects.get().noted_at <= max(world.now, datetime.now(UTC))
