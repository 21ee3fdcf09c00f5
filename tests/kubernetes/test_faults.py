"""The fault campaign: what fails on one real cluster is shown, delays no other one, and recovers."""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import unescape
from typing import Any

import pytest
from django.test import Client

from clusters.drivers.base import DriverUnavailable
from clusters.drivers.kubernetes.client import Client as KubernetesClient
from clusters.drivers.kubernetes.client import Response
from fleetui.models import Event
from placements.engine.rollout.state import Phase
from placements.models import Binding, Placement
from placements.services.fleet_events import enqueue_affected_placements
from placements.services.placements import delete_placement, save_placement
from placements.services.resources.operations import delete_resource
from placements.services.rollouts.controller import sync_due_rollouts
from placements.services.rollouts.worker import CALL_SECONDS, run_cluster_calls
from placements.services.scheduling import schedule_due
from placements.services.status import status_of
from tests.kubernetes import faults
from tests.kubernetes.faults import BLUE, CRON_TAB, KEYS, VALUE, Cure, FaultWorld
from tests.kubernetes.members import Administrator, await_true
from tests.kubernetes.test_rollouts import conditions
from tests.rows import config_map, placement_document, spec

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("collected_static")]
HEALED_WITHIN = 20 * 60
"""Seconds: the longest pause between two attempts is 15 minutes."""


@pytest.fixture
def world(two_clusters: FaultWorld) -> FaultWorld:
    return two_clusters


@dataclass(frozen=True)
class Fault:
    cause: Callable[[FaultWorld], Cure]
    change: Mapping[str, Any]
    words: str
    code: str = "ManifestApplyFailed"


REFUSALS = {
    "permission revoked": Fault(
        faults.permission_revoked, BLUE, 'cannot patch resource "configmaps"'
    ),
    "quota filled": Fault(faults.quota_filled, KEYS, "exceeded quota: few"),
    "webhook down": Fault(faults.webhook_down, KEYS, "failed calling webhook"),
    "webhook refuses": Fault(
        faults.webhook_refuses, KEYS, "the policy of the shop does not allow"
    ),
    "immutable field": Fault(
        faults.immutable_field, BLUE, "an immutable ConfigMap cannot be changed"
    ),
    "definition missing": Fault(
        faults.definition_missing,
        CRON_TAB,
        "the cluster serves no CronTab",
        "KindNotServed",
    ),
    "object never ends": Fault(faults.object_ends_never, BLUE, "is being deleted"),
}


def has(world: FaultWorld, cluster: str, change: Mapping[str, Any]) -> bool:
    """Return whether a cluster has what the change wants."""
    plural, root = {
        "ConfigMap": ("configmaps", "/api/v1"),
        "Secret": ("secrets", "/api/v1"),
        "CronTab": ("crontabs", "/apis/stable.example.com/v1"),
    }[change["kind"]]
    path = f"{root}/namespaces/shop/{plural}/{change['metadata']['name']}"
    try:
        found = world.admins[cluster].call("GET", path)
    except (
        DriverUnavailable
    ):  # the answer to the path of an unknown group is not a Status
        return False
    return found.status == 200 and all(
        found.body.get(key) == change[key] for key in ("data", "spec") if key in change
    )


def texts(client: Client) -> dict[str, str]:
    """Return what REST and the pages answer."""
    addresses = (
        *(
            "/api/v1/placements/web",
            "/api/v1/placements/web/bindings",
            "/api/v1/events",
        ),
        *("/api/v1/clusters/two", "/placements/web/", "/activity/", "/clusters/two/"),
    )
    answers = {address: client.get(address, follow=True) for address in addresses}
    answers["rollout"] = client.get("/rollouts/web/", follow=True)
    assert {answer.status_code for answer in answers.values()} == {200}
    return {address: answer.content.decode() for address, answer in answers.items()}


def unescaped(text: str) -> str:
    return unescape(text).replace('\\"', '"')


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_object_is_shown_and_heals(
    world: FaultWorld, admin_client: Client, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    fault = REFUSALS[name]
    world.place_on_all()
    cure = fault.cause(world)

    world.change(fault.change)
    world.run(until=lambda: world.binding().phase == Phase.FAILED, seconds=120)
    world.pass_time(90, step=15)

    assert has(world, "one", fault.change)
    assert not has(world, "two", fault.change)
    assert world.phases()["two"] == "failed"
    first, second = world.status()
    reason = "AllWorkAreAvailable"
    if name == "definition missing":  # a CronTab is available by time
        reason = "NotAllWorkAreAvailabilityTrackable"
    assert conditions(first)["Available"] == ("True", reason)
    assert conditions(second)["Applied"] == ("False", "NotAllWorkHaveBeenApplied")
    assert "failedPlacements" not in first
    (failed,) = second["failedPlacements"]
    assert (failed["kind"], failed["name"]) == (
        fault.change["kind"],
        fault.change["metadata"]["name"],
    )
    assert failed["condition"]["reason"] == fault.code
    assert fault.words in failed["condition"]["message"]
    shown = texts(admin_client)
    for address in (
        "/api/v1/placements/web",
        "/api/v1/placements/web/bindings",
        "rollout",
    ):
        assert fault.words in unescaped(shown[address]), address
    everything = json.dumps(
        [
            world.status(),
            shown,
            list(Binding.objects.values()),
            list(Event.objects.values()),
        ],
        default=str,
    )
    assert VALUE not in everything + caplog.text

    world.pass_time(
        900, step=60
    )  # long enough for the longest pause between two attempts
    assert world.phases()["two"] == "failed"
    cure()
    world.run(
        until=lambda: has(world, "two", fault.change), seconds=HEALED_WITHIN, step=60
    )
    world.settle()
    assert "failedPlacements" not in world.status()[1]


def test_revoked_credentials_are_named_and_hold_no_other_cluster(
    world: FaultWorld, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.place_on_all()
    token = world.use_account("deleted")
    world.pass_time(60, step=15)
    requests: list[str] = []
    send = KubernetesClient.request

    def recorded(
        client: KubernetesClient, method: str, path: str, **options: Any
    ) -> Response:
        requests.extend(
            [path] if client.connection.server == world.members["two"].server else []
        )
        return send(client, method, path, **options)

    monkeypatch.setattr(KubernetesClient, "request", recorded)
    world.two.delete(f"{faults.ACCOUNTS}/deleted")
    revoked = Administrator(world.members["two"].client(token=token))

    def is_rejected() -> bool:
        try:
            revoked.call("GET", "/version")
        except DriverUnavailable as error:
            return error.code == "credentials"
        return False

    await_true(is_rejected)  # the server remembers an account for up to 10 seconds

    world.change(BLUE)
    world.pass_time(60, step=5)

    assert has(world, "one", BLUE)
    assert not has(world, "two", BLUE)
    binding = world.binding()
    assert (binding.failure, binding.unavailable_code) == ("unreachable", "credentials")
    assert "credentials rejected" in binding.message
    status = world.status()[1]
    assert conditions(status)["Applied"] == ("False", "ApplyInProgress")
    shown = texts(admin_client)
    for address in ("/api/v1/placements/web/bindings", "rollout"):
        assert "credentials rejected" in unescaped(shown[address]).lower(), address
    before = len(requests)
    world.pass_time(600, step=15)
    assert len(requests) - before <= 4  # 2 in 5 minutes

    world.reconnect(world.members["two"].token)
    world.run(until=lambda: has(world, "two", BLUE), seconds=HEALED_WITHIN, step=15)
    world.settle()
    assert world.binding().unavailable_code == ""


def test_a_frozen_api_server_holds_no_other_cluster_and_heals(
    world: FaultWorld, admin_client: Client
) -> None:
    world.place_on_all()
    world.members["two"].do("freeze")
    world.cleanup.callback(world.members["two"].do, "thaw")

    frozen = time.monotonic()
    served: list[float] = []

    def watch() -> None:
        await_true(lambda: has(world, "one", BLUE), seconds=30)
        served.append(time.monotonic() - frozen)

    watching = threading.Thread(target=watch)
    watching.start()
    world.apply(BLUE)
    enqueue_affected_placements()
    while schedule_due(now=world.now) + sync_due_rollouts(now=world.now):
        pass
    run_cluster_calls(now=world.now, threads=4, clock=lambda: world.now)
    watching.join()
    assert served[0] < CALL_SECONDS / 2
    world.pass_time(60, step=30)

    assert world.phases()["one"] == "available"
    binding = world.binding()
    assert (binding.failure, binding.unavailable_code) == ("unreachable", "timeout")
    shown = texts(admin_client)
    assert '"failure":"unreachable"' in shown[
        "/api/v1/placements/web/bindings"
    ].replace(" ", "")
    assert "two" in shown["rollout"]

    world.members["two"].do("thaw")
    world.run(until=lambda: has(world, "two", BLUE), seconds=HEALED_WITHIN, step=15)
    world.settle()
    assert world.available() == ["one", "two"]


def test_the_budget_holds_while_a_cluster_refuses(world: FaultWorld) -> None:
    """With one cluster that may be unavailable, the next one waits for the first, and then follows."""
    world.place_on_all(most=1)
    path = f"{faults.CONFIG_MAPS}/settings"
    world.admins["one"].merge(path, {"immutable": True})

    world.change(BLUE)
    world.pass_time(900, step=30)

    assert world.phases() == {"one": "failed", "two": "available"}
    assert not has(world, "two", BLUE)

    world.admins["one"].delete(path)
    world.run(until=lambda: has(world, "two", BLUE), seconds=HEALED_WITHIN, step=30)
    world.settle()
    assert has(world, "one", BLUE)


def test_an_object_deleted_by_hand_comes_back_without_a_rollout(
    world: FaultWorld,
) -> None:
    world.place_on_all()
    before = world.binding("one").calls
    path = f"{faults.CONFIG_MAPS}/settings"
    world.two.delete(path)

    world.run(until=lambda: world.two.has(path), seconds=300, step=15)

    world.pass_time(30, step=15)
    assert world.available() == ["one", "two"]
    assert world.is_settled()
    assert world.binding("one").calls - before <= 4
    assert len(world.binding().repairs) == 1


def test_a_definition_deleted_by_hand_is_refused_until_it_is_back(
    world: FaultWorld,
) -> None:
    for name in world.admins:
        faults.serve_cron_tabs(world, name)
    world.change(CRON_TAB)
    world.place_on_all()
    world.two.delete(f"{faults.DEFINITIONS}/crontabs.stable.example.com")

    world.run(until=lambda: world.phases()["two"] == "failed", seconds=300, step=15)

    (failed,) = world.status()[1]["failedPlacements"]
    assert failed["condition"]["reason"] == "KindNotServed"
    assert has(world, "one", CRON_TAB)
    assert world.phases()["one"] != "failed"
    faults.serve_cron_tabs(world, "two")
    world.run(until=lambda: has(world, "two", CRON_TAB), seconds=HEALED_WITHIN, step=60)
    world.run(
        until=lambda: "failedPlacements" not in world.status()[1], seconds=300, step=15
    )


def test_a_kind_that_arrives_later_wakes_what_waits_for_it(world: FaultWorld) -> None:
    world.place_on_all()
    serve = faults.definition_missing(world)
    world.change(CRON_TAB)
    world.run(until=lambda: world.binding().attempts >= 7, seconds=900, step=15)
    world.run(until=lambda: world.binding().phase == Phase.FAILED, seconds=60, step=5)
    waiting = world.binding()
    assert waiting.retry_at is not None
    assert (waiting.retry_at - world.now).total_seconds() > 240

    serve()

    world.run(until=lambda: has(world, "two", CRON_TAB), seconds=75, step=15)
    world.settle()
    assert world.binding().attempts == waiting.attempts + 1


def test_a_kind_that_arrives_later_is_compared_at_once_where_nothing_is_applied(
    world: FaultWorld,
) -> None:
    serve = faults.definition_missing(world)
    world.apply(CRON_TAB)
    world.place(
        "web",
        spec(
            strategy={"type": "RollingUpdate", "applyStrategy": {"type": "ReportDiff"}}
        ),
    )
    world.pass_time(3600, step=60)
    reported = [conditions(document)["DiffReported"][0] for document in world.status()]
    assert reported == ["True", "False"]
    (failed,) = world.status()[1]["failedPlacements"]
    assert failed["condition"]["reason"] == "FailedToReportDiff"
    assert "serves no CronTab" in failed["condition"]["message"]

    serve()

    def is_reported() -> bool:
        return conditions(world.status()[1])["DiffReported"][0] == "True"

    world.run(until=is_reported, seconds=75, step=15)
    assert "CronTab" in {
        placement["kind"] for placement in world.status()[1]["diffedPlacements"]
    }
    assert not has(world, "two", CRON_TAB)


def test_a_pruned_object_that_ends_never_is_named_and_waited_for(
    world: FaultWorld, admin_client: Client
) -> None:
    world.apply(config_map("extra"))
    world.place_on_all()
    path = f"{faults.CONFIG_MAPS}/extra"
    world.two.merge(path, {"metadata": {"finalizers": ["example.com/never"]}})

    delete_resource(("", "ConfigMap", "shop", "extra"), by=None, now=world.now)
    world.work()
    world.pass_time(120, step=5)

    assert not world.admins["one"].has(path)
    assert world.phases()["one"] == "available"
    binding = world.binding()
    assert (binding.phase, binding.failure) == ("applying", "")
    assert "ConfigMap shop/extra" in binding.message
    assert "extra" in texts(admin_client)["rollout"]
    assert conditions(world.status()[1])["Applied"] == ("False", "ApplyInProgress")

    world.two.merge(path, {"metadata": {"finalizers": None}})
    world.run(until=lambda: len(world.available()) == 2, seconds=HEALED_WITHIN, step=15)
    assert not world.two.has(path)


def test_a_removal_waits_for_a_finalizer_and_names_the_object(
    world: FaultWorld, admin_client: Client
) -> None:
    world.place_on_all()
    path = f"{faults.CONFIG_MAPS}/settings"
    world.two.merge(path, {"metadata": {"finalizers": ["example.com/never"]}})

    delete_placement("web", by=None, now=world.now)
    await_true(
        lambda: (
            turn(world, 15) and not Binding.objects.filter(cluster_name="one").exists()
        ),
        seconds=60,
    )
    world.pass_time(60, step=15)

    binding = world.binding()
    assert binding.phase == "removing"
    assert "ConfigMap shop/settings" in binding.message
    assert "shop/settings" in texts(admin_client)["/api/v1/placements/web/bindings"]
    world.two.merge(path, {"metadata": {"finalizers": None}})
    await_true(lambda: turn(world, 30) and not Placement.objects.exists(), seconds=60)


def test_a_terminating_namespace_is_named_and_made_again(
    world: FaultWorld, admin_client: Client
) -> None:
    world.place_on_all()
    kept = f"{faults.CONFIG_MAPS}/kept"
    world.two.create(
        faults.CONFIG_MAPS,
        {"metadata": {"name": "kept", "finalizers": ["example.com/never"]}},
    )
    world.two.delete("/api/v1/namespaces/shop")
    await_true(lambda: not world.two.has(f"{faults.CONFIG_MAPS}/settings"))

    world.change(BLUE)
    world.pass_time(120, step=15)

    assert has(world, "one", BLUE)
    assert world.phases()["one"] == "available"
    status = world.status()[1]
    assert conditions(status)["Applied"][0] != "True"
    message = world.binding().message
    assert (
        "Namespace shop is being deleted; applied again once it is deleted" in message
    )
    assert "Namespace shop" in texts(admin_client)["rollout"]

    world.two.merge(kept, {"metadata": {"finalizers": None}})
    await_true(lambda: turn(world, 60) and has(world, "two", BLUE), seconds=60)
    world.run(until=lambda: len(world.available()) == 2, seconds=HEALED_WITHIN, step=60)


def test_what_two_placements_want_stays_with_the_first_until_that_is_gone(
    world: FaultWorld,
) -> None:
    world.place_on_all()
    save_placement(placement_document("late", spec()), by=None, now=world.now)
    world.work()
    world.pass_time(60, step=15)

    late = status_of(Placement.objects.get(name="late"), now=world.now)[
        "placementStatuses"
    ]
    first = late[0]
    assert {
        placement["condition"]["reason"] for placement in first["failedPlacements"]
    } == {"FailedToTakeOver"}
    assert (
        "belongs to placement web"
        in first["failedPlacements"][0]["condition"]["message"]
    )
    assert world.available("web") == ["one", "two"]

    delete_placement("web", by=None, now=world.now)

    def is_taken_over() -> bool:
        return turn(world, 60) and world.available("late") == ["one", "two"]

    await_true(is_taken_over, seconds=120)
    assert world.data() == [{"color": "red"}] * 2


def turn(world: FaultWorld, seconds: int) -> bool:
    """Advance the clock, also by the real time that the cluster needs."""
    world.pass_time(seconds, step=seconds)
    return True
