"""The states of objects on clusters: kept when they change, with their times, and read on request."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from clusters import kubernetes_drivers
from clusters.drivers.base import (
    LiveObject,
    ObjectRef,
    ObjectSeen,
    Observation,
    PlacementSeen,
)
from clusters.drivers.readiness import Readiness
from clusters.kubernetes_drivers import DriverCache
from clusters.models import MemberCluster
from clusters.operations.connection import ConnectionInput, set_connection
from placements.engine.rollout.state import Phase, objects_of
from placements.explain.cluster_objects import ObjectState
from placements.models import Binding, ObservedObjects
from placements.services.resources.operations import apply_resources
from placements.services.rollouts.call_results import ClusterCall, live_rows, to_result
from placements.services.rollouts.cluster_objects import objects_on, store_objects
from placements.services.rollouts.read_objects import NotReadableError, read_objects
from tests.clusters.kubernetes.api_server import ApiServer
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.servers import serve
from tests.rows import NOW, deployment, namespace, spec
from tests.services.rollouts.test_health import health
from tests.services.rollouts.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.servers]
WEB = ObjectRef("apps", "Deployment", "shop", "web")
STALLED = LiveObject(
    WEB, "u1", Readiness.NOT_YET, "0 of 1 replicas available", "Progressing is False"
)
PATH = "/apis/apps/v1/namespaces/shop/deployments/web"


class ServedWorld(World):
    """One cluster with an API server; the Deployment on it never becomes available."""

    def __init__(self, server: ApiServer, url: str) -> None:
        self.now, self.call_takes, self.tag, self.server = NOW, timedelta(), 0, server
        fields = {"server": url, "ca": authority().pem, "token": "marker-token"}
        set_connection(
            "one", ConnectionInput(fields=fields), by=None, now=NOW, joins=True
        )
        MemberCluster.objects.update(verdict="", verdict_reason="", membership="joined")
        apply_resources(
            [namespace("shop"), deployment("web", "shop:1")], by=None, now=NOW
        )
        self.place("web", spec())


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedWorld]:
    monkeypatch.setattr(kubernetes_drivers, "drivers", DriverCache())
    server = ApiServer()
    failed = {
        "type": "Progressing",
        "status": "False",
        "reason": "ProgressDeadlineExceeded",
    }
    server.statuses["web"] = {"unavailableReplicas": 1, "conditions": [failed]}
    with override_settings(MEMBER_LOOPBACK=True), serve(server) as link:
        yield ServedWorld(server, link.url)
    kubernetes_drivers.drivers.clear()


def states(binding: Binding) -> dict[str, Any]:
    return {
        cluster_object.name: cluster_object for cluster_object in objects_on(binding)
    }


@pytest.mark.servers_only
def test_a_rollout_keeps_the_state_and_the_hint_of_each_object(
    world: ServedWorld,
) -> None:
    world.pass_time(10)

    binding = Binding.objects.select_related("resource_snapshot").get()
    objects = states(binding)
    assert (objects["shop"].state, objects["web"].state) == (
        ObjectState.AVAILABLE,
        ObjectState.NOT_AVAILABLE,
    )
    assert objects["web"].live.uid == "uid-web"
    (error,) = objects_of(binding.failed_objects)
    assert "Progressing is False: ProgressDeadlineExceeded" in error.message
    assert "Deployment shop/web: 0 of 1 replicas available" in binding.message
    assert "ProgressDeadlineExceeded" in binding.message


JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "once", "namespace": "shop"},
    "spec": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "a", "image": "a"}],
            }
        }
    },
}


def test_a_failed_job_is_not_available_after_the_pause_with_its_own_reason(
    world: ServedWorld,
) -> None:
    failed = {
        "type": "Failed",
        "status": "True",
        "reason": "BackoffLimitExceeded",
        "message": "gave up",
    }
    world.server.statuses["web"] = {"availableReplicas": 1, "updatedReplicas": 1}
    world.server.statuses["once"] = {"failed": 7, "conditions": [failed]}
    world.apply(JOB)
    world.place("web", spec())

    world.pass_time(200, step=5)

    binding = Binding.objects.select_related("resource_snapshot").get()
    once = states(binding)["once"]
    assert (binding.phase, once.state) == (Phase.APPLIED, ObjectState.NOT_AVAILABLE)
    assert "Job shop/once: Failed: BackoffLimitExceeded: gave up" in binding.message
    assert once.live.hint == ""
    assert health(world).summary == "Degraded (0 of 1 available)"
    path = "/apis/batch/v1/namespaces/shop/jobs/once"
    world.server.objects[path] |= {"status": {"succeeded": 1}}
    world.server.objects[PATH] |= {"status": world.server.statuses["web"]}

    world.pass_time(60, step=5)

    binding.refresh_from_db()
    assert (binding.phase, states(binding)["once"].state) == (
        Phase.AVAILABLE,
        ObjectState.AVAILABLE,
    )


def test_a_missing_object_is_shown_as_missing_when_it_is_read(
    world: ServedWorld,
) -> None:
    world.pass_time(10)
    del world.server.objects[PATH]
    binding = Binding.objects.select_related("placement", "resource_snapshot").get()
    binding.failed_objects = []

    read_objects(binding, clock=lambda: world.now + timedelta(seconds=5))

    binding.refresh_from_db(fields=["observed_at"])
    assert binding.observed_at == world.now + timedelta(seconds=5)
    assert states(binding)["web"].state is ObjectState.MISSING


@pytest.mark.servers_only
def test_a_state_keeps_its_time_while_only_its_numbers_change() -> None:
    world = World(clusters=1)
    world.place(
        "web",
        {
            "resourceSelectors": [
                {"group": "", "version": "v1", "kind": "Namespace", "name": "shop"}
            ]
        },
    )
    pk = Binding.objects.get().pk
    later = LiveObject(WEB, "u1", Readiness.NOT_YET, "1 of 3 replicas available")
    ready = LiveObject(WEB, "u1", Readiness.AVAILABLE)

    times = []
    for minute, live_object in enumerate((STALLED, later, ready)):
        store_objects(
            {pk: live_rows([live_object])[0]}, now=NOW + timedelta(minutes=minute)
        )
        times.append(ObservedObjects.objects.get().rows[0][-1])

    assert times == [
        NOW.isoformat(),
        NOW.isoformat(),
        (NOW + timedelta(minutes=2)).isoformat(),
    ]


def test_equal_states_are_not_written_again() -> None:
    call = ClusterCall(
        Binding(pk=1, phase=Phase.APPLIED, phase_changed_at=NOW, applied_version="v1"),
        "web",
        MemberCluster(pk=1, name="one"),
        (),
    )
    unready = (ObjectSeen(WEB, STALLED.readiness or Readiness.NOT_YET, STALLED.reason),)
    observed = PlacementSeen("web", "v1", "v1", unready=unready, objects=(STALLED,))
    answer = Observation(is_healthy=True, placements=(observed,))

    first = to_result(call, answer, now=NOW, is_busy=False)
    assert first is not None
    call.binding.objects_digest = first.updates()["objects_digest"]
    again = to_result(call, answer, now=NOW, is_busy=False)

    assert first.objects is not None
    assert again is not None
    assert (again.objects, again.updates()["observed_at"]) == (None, NOW)
    assert (
        again.updates()["message"]
        == "Deployment shop/web: 0 of 1 replicas available (Progressing is False)"
    )


@pytest.mark.servers_only
def test_a_simulated_cluster_has_nothing_to_read() -> None:
    world = World(clusters=1)
    world.place(
        "web",
        {
            "resourceSelectors": [
                {"group": "", "version": "v1", "kind": "Namespace", "name": "shop"}
            ]
        },
    )
    world.run(until=world.is_settled)

    with pytest.raises(NotReadableError):
        read_objects(Binding.objects.select_related("placement").get())
