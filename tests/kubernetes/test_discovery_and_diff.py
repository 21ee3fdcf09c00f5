"""Discovery, comparison without writing, and readings on a real API server.

See `rules/kubernetes-driver.md#discovery`.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from clusters.drivers.base import DriverPending, DriverRejected, FieldDiff
from clusters.drivers.kubernetes.access import Discovery, KindNotServedError
from clusters.drivers.kubernetes.client import Response
from tests.kubernetes.members import Administrator, Hub, Recorder, kube_version
from tests.kubernetes.test_apply import custom


class Time:
    """A monotonic clock that only tests move; deadlines lie far ahead."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def discovery(hub: Hub) -> tuple[Discovery, Recorder, Time]:
    recorder, clock = Recorder(hub.member.client()), Time()
    return Discovery(recorder, clock), recorder, clock


def far() -> float:
    return time.monotonic() + 30


def test_parallel_lookups_share_one_request(hub: Hub) -> None:
    found, recorder, _ = discovery(hub)

    def look(kind: str) -> str:
        return found.resource("apps/v1", kind, deadline=far()).path("shop", "web")

    with ThreadPoolExecutor(8) as threads:
        paths = set(threads.map(look, ["Deployment", "StatefulSet"] * 8))

    assert paths == {
        "/apis/apps/v1/namespaces/shop/deployments/web",
        "/apis/apps/v1/namespaces/shop/statefulsets/web",
    }
    assert [path for _, path, _ in recorder.log] == ["/apis/apps/v1"]


def test_tables_are_kept_for_ten_minutes_and_shared_between_clusters(hub: Hub) -> None:
    found, recorder, clock = discovery(hub)
    other, _, _ = discovery(hub)
    first = found.load("apps/v1", deadline=far())
    clock.now += 599
    found.load("apps/v1", deadline=far())
    assert len(recorder.log) == 1
    clock.now += 2
    assert found.load("apps/v1", deadline=far()) is first
    assert len(recorder.log) == 2
    assert other.load("apps/v1", deadline=far()) is first


def test_a_new_kind_is_found_within_thirty_seconds(hub: Hub) -> None:
    found, _, clock = discovery(hub)
    group = f"f{hub.hub_id[:8]}.example"
    definition = custom(hub, group)[2]
    with pytest.raises(
        KindNotServedError, match=f"the cluster serves no Tab in {group}/v1$"
    ):
        found.resource(f"{group}/v1", "Tab", deadline=far())
    hub.admin.create(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition
    )
    until = time.monotonic() + 20
    while not hub.admin.has(f"/apis/{group}/v1"):
        assert time.monotonic() < until

    clock.now += 30

    assert found.resource(f"{group}/v1", "Tab", deadline=far()).plural == "tabs"


def test_a_diff_finds_differences_and_missing_objects_and_writes_nothing(
    hub: Hub,
) -> None:
    driver = hub.driver()
    settings, web = hub.config_map("a", x="1"), hub.deployment("web", replicas=1)
    driver.apply(hub.version("v1", hub.namespace_manifest(), settings, web))
    hub.requests.clear()
    secret = hub.manifest("v1", "Secret", "keys", stringData={"a": "b"})
    unknown = hub.manifest("no.example/v1", "Tab", "one")
    changed = (
        hub.config_map("a", x="2"),
        hub.deployment("web", replicas=1),
        secret,
        unknown,
    )

    result = driver.diff(hub.version("d1", *changed, type="ReportDiff"))

    assert result.version == "d1"
    found = {
        diff.object.kind: (diff.version, diff.member_generation, diff.fields)
        for diff in result.diffs
    }
    assert found == {
        "ConfigMap": ("v1", 0, (FieldDiff("/data/x", '"1"', '"2"'),)),
        "Secret": ("v1", None, (FieldDiff("/", "", "(the whole object)"),)),
    }
    assert [(failure.object.kind, failure.code) for failure in result.failures] == [
        ("Tab", "KindNotServed")
    ]
    assert not [
        request
        for request in hub.requests
        if request[0] in ("PATCH", "DELETE", "POST", "PUT")
    ]
    assert hub.admin.get(hub.path("configmaps", "a"))["data"] == {"x": "1"}


def test_a_dry_run_that_validation_refuses_leads_to_a_full_comparison(hub: Hub) -> None:
    driver = hub.driver()
    driver.apply(hub.version("v1", hub.namespace_manifest(), hub.deployment("web")))
    other = hub.deployment("web")
    other["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    other["spec"]["template"]["metadata"]["labels"] = {"app": "other"}

    (diff,) = driver.diff(hub.version("d1", other)).diffs

    assert diff.is_degraded
    assert (
        FieldDiff("/spec/selector/matchLabels/app", '"web"', '"other"') in diff.fields
    )


def test_nothing_is_applied_under_report_diff(hub: Hub) -> None:
    driver = hub.driver()

    with pytest.raises(DriverRejected):
        driver.apply(hub.version("v1", hub.namespace_manifest(), type="ReportDiff"))

    assert hub.requests == []


def test_a_diff_that_does_not_fit_into_its_time_goes_on_with_the_next_call(
    hub: Hub,
) -> None:
    driver = hub.driver()
    version = hub.version(
        "v1", hub.namespace_manifest(), *(hub.config_map(f"c{i}") for i in range(40))
    )
    driver.apply(version)

    def slowly(_method: str, _path: str, send: Callable[[], Response]) -> Response:
        time.sleep(0.03)
        return send()

    hub.recorders[-1].hook = slowly
    done = []
    while True:
        try:
            result = driver.diff(version, timeout=0.6)
            break
        except DriverPending as pending:
            done.append(pending.done)
    assert done
    assert done == sorted(done)
    assert result.diffs == ()


@pytest.fixture
def nodes(admin: Administrator) -> None:
    """Create two nodes and three pods, one of which is finished."""
    for number in (1, 2):
        path = "/api/v1/nodes"
        if admin.has(f"{path}/node-{number}"):
            continue
        amounts = {"cpu": "4", "memory": "16Gi"}
        status = {
            "capacity": amounts,
            "allocatable": {"cpu": "3900m", "memory": "15Gi"},
        }
        admin.create(path, {"metadata": {"name": f"node-{number}"}, "status": status})


def pod(hub: Hub, name: str, node: str, *requests: dict[str, str]) -> None:
    containers: list[dict[str, Any]] = [
        {"name": f"c{place}", "image": "a:1", "resources": {"requests": request}}
        for place, request in enumerate(requests)
    ]
    spec: dict[str, Any] = {"containers": containers} | (
        {"nodeName": node} if node else {}
    )
    hub.admin.create(hub.path("pods"), hub.manifest("v1", "Pod", name, spec=spec))


@pytest.mark.usefixtures("nodes")
def test_readings_are_sums_of_nodes_and_requests(hub: Hub) -> None:
    hub.admin.create("/api/v1/namespaces", hub.namespace_manifest())
    try:
        pod(hub, "running", "node-1", {"cpu": "250m", "memory": "1Gi"}, {"cpu": "0.5"})
        pod(hub, "waiting", "", {"cpu": "2"})
        pod(hub, "finished", "node-2", {"cpu": "1"})
        hub.admin.merge(
            f"{hub.path('pods', 'finished')}/status", {"status": {"phase": "Succeeded"}}
        )

        facts = hub.driver().observe()
    finally:
        hub.admin.purge_namespace(hub.namespace)

    assert facts.properties == {
        "k8s.io/cluster-entrypoint": hub.member.server,
        "k8s.io/k8s-version": "v" + ".".join(map(str, kube_version())),
        "kubernetes-fleet.io/node-count": "2",
    }
    assert facts.usage == {
        "capacity": {"cpu": "8", "memory": "32Gi"},
        "allocatable": {"cpu": "7800m", "memory": "30Gi"},
        "available": {"cpu": "7050m", "memory": "29Gi"},
    }


@pytest.mark.usefixtures("nodes")
def test_without_permission_to_list_pods_the_cluster_is_healthy_with_a_notice(
    hub: Hub,
) -> None:
    driver = hub.driver()
    forbidden = Response(403, {"kind": "Status", "message": "pods is forbidden"})
    hub.recorders[-1].hook = lambda _, path, send: (
        forbidden if path == "/api/v1/pods" else send()
    )

    seen = driver.observe()

    assert seen.is_healthy
    assert seen.usage is not None
    assert set(seen.usage) == {"capacity", "allocatable"}
    assert (
        seen.health_message
        == "no permission to list pods: available capacity is not known"
    )
