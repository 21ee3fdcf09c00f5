"""Readings of nodes and pods are added exactly (`rules/kubernetes-driver.md#properties`)."""

from collections.abc import Mapping
from typing import Any

import pytest

from clusters.drivers.base import DriverUnavailable
from clusters.drivers.kubernetes.client import Response
from clusters.drivers.kubernetes.inventory import SYSTEM_NAMESPACE_PATH
from clusters.drivers.kubernetes.properties import (
    Readings,
    add_quantities,
    written_quantity,
)


@pytest.mark.parametrize(
    ("amounts", "cpu", "memory"),
    [
        ([], "0", "0"),
        ([("100m", "128Mi"), ("1", "1Gi")], "1100m", "1152Mi"),
        ([("0.1", "1")] * 10, "1", "10"),
        ([("1n", "1k"), ("2u", "1Ki")], "2001n", "2024"),
        ([("1e3", "1E")], "1000", "976562500000000Ki"),
        ([("0.3333333333", "0.5")], "333333334n", "500m"),
        ([("1", "16393212Ki"), ("1", "16393220Ki")], "2", "32018Mi"),
        ([(None, None), ("nonsense", "1Gi")], "0", "1Gi"),
        ([("4", "9007199254740993")], "4", "9007199254740993"),
    ],
)
def test_quantities_are_added_exactly(
    amounts: list[tuple[Any, Any]], cpu: str, memory: str
) -> None:
    totals = {"cpu": 0, "memory": 0}
    for amount in amounts:
        add_quantities(totals, dict(zip(("cpu", "memory"), amount, strict=True)))

    assert written_quantity(totals["cpu"], is_binary=False) == cpu
    assert written_quantity(totals["memory"], is_binary=True) == memory


class Server:
    """Answers requests for version, nodes and pods."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.queries: list[Mapping[str, str]] = []
        self.status: dict[str, int] = {}
        self.is_away = False
        self.pages: dict[str, list[list[dict[str, Any]]]] = {
            "/api/v1/nodes": [[]],
            "/api/v1/pods": [[]],
        }

    def request(self, method: str, path: str, **options: Any) -> Response:
        assert method == "GET"
        self.paths.append(path)
        query = options.get("query") or {}
        self.queries.append(query)
        if self.is_away:
            raise DriverUnavailable("away", code="refused")
        if status := self.status.get(path):
            return Response(status, {"kind": "Status", "message": "forbidden"})
        if path == SYSTEM_NAMESPACE_PATH:
            return Response(200, {"metadata": {"uid": "the-uid"}})
        if path == "/version":
            return Response(200, {"gitVersion": "v1.30.1"})
        pages = self.pages[path]
        place = int(query.get("continue", "0"))
        following = str(place + 1) if place + 1 < len(pages) else ""
        return Response(
            200, {"items": pages[place], "metadata": {"continue": following}}
        )


class Clock:
    """A monotonic clock."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def node(cpu: str, memory: str) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": memory}
    return {"status": {"capacity": amounts, "allocatable": amounts}}


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def readings(server: Server, clock: Clock) -> Readings:
    return Readings(server, "https://10.0.0.1", clock)


def test_lists_are_read_in_pages(readings: Readings, server: Server) -> None:
    server.pages["/api/v1/nodes"] = [[node("1", "1Gi")] * 2, [node("500m", "1Gi")]]

    facts = readings.take(deadline=9)

    assert facts is not None
    assert facts.usage["capacity"] == {"cpu": "2500m", "memory": "3Gi"}
    assert facts.properties["kubernetes-fleet.io/node-count"] == "3"
    assert [query.get("limit") for query in server.queries] == [
        None,
        None,
        "500",
        "500",
        "500",
    ]
    assert (
        server.queries[-1]["fieldSelector"]
        == "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
    )


def test_each_reading_has_its_own_period(
    readings: Readings, server: Server, clock: Clock
) -> None:
    due = {}
    for second in range(0, 1_000, 20):
        clock.now = float(second)
        server.paths.clear()
        readings.take(deadline=9)
        due[second] = list(server.paths)

    assert [second for second, paths in due.items() if "/api/v1/nodes" in paths][
        :3
    ] == [0, 60, 120]
    assert [second for second, paths in due.items() if "/api/v1/pods" in paths][:3] == [
        0,
        300,
        600,
    ]
    assert [second for second, paths in due.items() if "/version" in paths] == [0, 900]
    assert due[20] == []


def test_more_is_requested_than_there_is(readings: Readings, server: Server) -> None:
    server.pages["/api/v1/nodes"] = [[node("1", "1Gi")]]
    requests = {"resources": {"requests": {"cpu": "3", "memory": "512Mi"}}}
    server.pages["/api/v1/pods"] = [[{"spec": {"containers": [requests]}}]]

    facts = readings.take(deadline=9)

    assert facts is not None
    assert facts.usage["available"] == {"cpu": "0", "memory": "512Mi"}


def test_a_reading_older_than_fifteen_minutes_is_dropped(
    readings: Readings, server: Server, clock: Clock
) -> None:
    server.pages["/api/v1/nodes"] = [[node("1", "1Gi")]]
    readings.take(deadline=9)
    server.is_away = True

    clock.now = 899.0
    kept = readings.take(deadline=9)
    clock.now = 961.0
    dropped = readings.take(deadline=9)

    assert kept is not None
    assert dropped is not None
    assert kept.usage["capacity"] == {"cpu": "1", "memory": "1Gi"}
    assert dropped.usage == {}
    assert dropped.properties == {"k8s.io/cluster-entrypoint": "https://10.0.0.1"}


def test_what_may_not_be_listed_is_left_out_with_a_notice(
    readings: Readings, server: Server
) -> None:
    server.status = {"/api/v1/nodes": 403, "/api/v1/pods": 403}

    facts = readings.take(deadline=9)

    assert facts is not None
    assert facts.usage == {}
    assert facts.notice == (
        "no permission to list nodes: capacity is not known; "
        "no permission to list pods: available capacity is not known"
    )
