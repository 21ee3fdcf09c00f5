"""Properties and resource usage of a cluster from its version, nodes and pods.

See `rules/kubernetes-driver.md#properties`.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from clusters.drivers.base import DriverUnavailable
from clusters.drivers.kubernetes.access import ApiClient, items_in_pages
from clusters.drivers.kubernetes.client import Response
from clusters.drivers.kubernetes.inventory import read_cluster_uid
from fleetui.apimachinery.quantity import QuantityError, parse_quantity

NODE_COUNT = "kubernetes-fleet.io/node-count"
VERSION = "k8s.io/k8s-version"
ENTRYPOINT = "k8s.io/cluster-entrypoint"
RESOURCES = ("cpu", "memory")
NODES_SECONDS, PODS_SECONDS, VERSION_SECONDS = 60.0, 300.0, 900.0
IDENTITY_SECONDS = 300.0
LONGEST_SECONDS = 900.0
"""Older readings are dropped."""
CPU_FACTOR = 100
"""A reading that took a second of processor time is repeated after 100: at most 1 % of a core."""
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")

Totals = Mapping[str, int]


@dataclass(slots=True)
class Reading:
    """One kind of reading: its value, when it was taken, and when the next one is due (monotonic)."""

    value: Any = None
    taken_at: float = float("-inf")
    due_at: float = float("-inf")
    is_forbidden: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """What is reported; `notice` says what may not be read, `cluster_uid` is None where it was not read."""

    properties: Mapping[str, str]
    usage: Mapping[str, Mapping[str, str]]
    notice: str = ""
    cluster_uid: str | None = None


class ForbiddenError(Exception):
    """The account may not list a kind."""


@dataclass(slots=True)
class Readings:
    """The readings of one cluster in this process; thread-safe."""

    client: ApiClient
    server: str
    monotonic: Callable[[], float]
    version: Reading = field(default_factory=Reading)
    nodes: Reading = field(default_factory=Reading)
    pods: Reading = field(default_factory=Reading)
    identity: Reading = field(default_factory=Reading)
    _lock: Lock = field(default_factory=Lock)

    def take(self, *, deadline: float) -> Facts | None:
        """Read what is due and return all facts; None when nothing was due or another thread reads."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            steps = (
                (self.identity, self.read_identity, IDENTITY_SECONDS),
                (self.version, self.read_version, VERSION_SECONDS),
                (self.nodes, self.read_nodes, NODES_SECONDS),
                (self.pods, self.read_pods, PODS_SECONDS),
            )
            reads = [self._take(*step, deadline=deadline) for step in steps]
            return self.facts() if any(reads) else None
        finally:
            self._lock.release()

    def _take(
        self,
        reading: Reading,
        read: Callable[[float], Any],
        period: float,
        *,
        deadline: float,
    ) -> bool:
        now = self.monotonic()
        if now < reading.due_at:
            return False
        started = time.thread_time()
        try:
            reading.value, reading.taken_at, reading.is_forbidden = (
                read(deadline),
                self.monotonic(),
                False,
            )
        except ForbiddenError:
            reading.value, reading.is_forbidden = None, True
        except (
            DriverUnavailable
        ):  # the heartbeat was answered; the last reading stays until it is too old
            pass
        reading.due_at = now + max(period, CPU_FACTOR * (time.thread_time() - started))
        return True

    def facts(self) -> Facts:
        """Return the properties and the usage of all readings that are not too old."""
        now = self.monotonic()
        version, nodes, pods = (
            reading.value if now - reading.taken_at <= LONGEST_SECONDS else None
            for reading in (self.version, self.nodes, self.pods)
        )
        properties = {ENTRYPOINT: self.server}
        usage: dict[str, dict[str, str]] = {}
        if version:
            properties[VERSION] = version
        if nodes:
            count, capacity, allocatable = nodes
            properties[NODE_COUNT] = str(count)
            usage["capacity"] = written_totals(capacity)
            usage["allocatable"] = written_totals(allocatable)
            if pods is not None:
                free = {
                    name: max(0, allocatable[name] - pods[name]) for name in RESOURCES
                }
                usage["available"] = written_totals(free)
        readings = (
            (
                self.identity,
                "no permission to get the namespace kube-system: which cluster this is, is not known",
            ),
            (self.nodes, "no permission to list nodes: capacity is not known"),
            (self.pods, "no permission to list pods: available capacity is not known"),
        )
        notices = [text for reading, text in readings if reading.is_forbidden]
        return Facts(properties, usage, "; ".join(notices), self.identity.value)

    def read_identity(self, deadline: float) -> str:
        uid = read_cluster_uid(self.client, deadline=deadline)
        if not uid:
            raise ForbiddenError
        return uid

    def read_version(self, deadline: float) -> str:
        answer = self.client.request("GET", "/version", deadline=deadline)
        return str(answer.body.get("gitVersion") or "") if answer.status == 200 else ""

    def read_nodes(self, deadline: float) -> tuple[int, Totals, Totals]:
        count, capacity, allocatable = (
            0,
            dict.fromkeys(RESOURCES, 0),
            dict.fromkeys(RESOURCES, 0),
        )
        for node in self._items("/api/v1/nodes", {}, deadline=deadline):
            count += 1
            status = node.get("status") or {}
            add_quantities(capacity, status.get("capacity"))
            add_quantities(allocatable, status.get("allocatable"))
        return count, capacity, allocatable

    def read_pods(self, deadline: float) -> Totals:
        requested = dict.fromkeys(RESOURCES, 0)
        for pod in self._items(
            "/api/v1/pods",
            {
                "fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
            },
            deadline=deadline,
        ):
            for container in (pod.get("spec") or {}).get("containers") or ():
                add_quantities(
                    requested, (container.get("resources") or {}).get("requests")
                )
        return requested

    def _items(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        deadline: float,
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the items page by page, so that a page can be freed when the next one is parsed."""
        for item in items_in_pages(self.client, path, query, deadline=deadline):
            if not isinstance(item, Response):
                yield item
            elif item.status == 403:
                raise ForbiddenError
            else:
                message = item.body.get("message") or f"answer {item.status}"
                raise DriverUnavailable(
                    f"{path}: {message}", code=f"http-{item.status}"
                )


def add_quantities(totals: dict[str, int], amounts: Mapping[str, Any] | None) -> None:
    """Add quantities exactly, in units of 10⁻⁹; what is none counts as 0."""
    for name in RESOURCES:
        text = (amounts or {}).get(name)
        if text is not None:
            try:
                totals[name] += parse_quantity(str(text)).nano
            except QuantityError:
                continue


def written_totals(totals: Totals) -> dict[str, str]:
    return {
        name: written_quantity(nano, is_binary=name == "memory")
        for name, nano in totals.items()
    }


def written_quantity(nano: int, *, is_binary: bool) -> str:
    """Write an exact quantity with the shortest suffix that Kubernetes would use."""
    whole, rest = divmod(nano, 10**9)
    if rest:
        exponents: Iterable[tuple[str, int]] = (("m", 10**6), ("u", 10**3), ("n", 1))
        suffix, unit = next(
            exponent for exponent in exponents if nano % exponent[1] == 0
        )
        return f"{nano // unit}{suffix}"
    suffix = ""
    for following in _BINARY if is_binary else ():
        if not whole or whole % 1_024:
            break
        whole, suffix = whole // 1_024, following
    return f"{whole}{suffix}"
