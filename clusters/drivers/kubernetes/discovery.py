"""From apiVersion and kind to the path of an object, as the API server declares it.

See `rules/kubernetes-driver.md#discovery`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from clusters.drivers.base import DriverUnavailable, ObjectRef
from clusters.drivers.kubernetes.client import Response
from fleetui.apimachinery.kinds import current_version

NOT_SERVED = "KindNotServed"
PAGE = 500
KEEP_SECONDS = 600.0
KEEP_MISSING_SECONDS = 5.0
"""How long a kind that was not served may be taken as not served without another request (limit 30)."""


class ApiClient(Protocol):
    """What this package needs of a client; tests pass one that counts, delays or cuts requests."""

    def request(
        self,
        method: str,
        path: str,
        *,
        deadline: float,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Response:
        """Return every answer of a Kubernetes API server. Raise DriverUnavailable."""


class RefusedError(Exception):
    """One object was refused by a rule of this package or by the API server."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int = 0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


class KindNotServedError(RefusedError):
    """The cluster does not serve a kind in this apiVersion; `served_in` are other ones that have it."""

    def __init__(self, message: str, served_in: tuple[str, ...] = ()) -> None:
        super().__init__(NOT_SERVED, message)
        self.served_in = served_in


@dataclass(frozen=True, slots=True)
class ResourceType:
    """How one kind of an apiVersion is addressed."""

    api_version: str
    kind: str
    plural: str
    is_namespaced: bool
    can_be_patched: bool

    def path(self, namespace: str = "", name: str = "") -> str:
        """Return the path of an object, or without a name that of the list in all namespaces."""
        parts = [api_path(self.api_version)]
        if self.is_namespaced and name:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        return "/".join([*parts, name] if name else parts)


Table: TypeAlias = Mapping[str, ResourceType]


def api_path(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


@lru_cache(maxsize=1_024)
def _table(resources: tuple[ResourceType, ...]) -> Table:
    """Return the table of these resources; equal answers of several clusters share one."""
    return MappingProxyType({one.kind: one for one in reversed(resources)})


class Discovery:
    """The resource types of one cluster, remembered for ten minutes; thread-safe."""

    def __init__(self, client: ApiClient, monotonic: Callable[[], float]) -> None:
        self._client, self._monotonic = client, monotonic
        self._tables: dict[str, tuple[float, Table]] = {}
        self._locks: dict[str, Lock] = {}
        self._lock = Lock()

    def resource(
        self,
        api_version: str,
        kind: str,
        *,
        deadline: float,
    ) -> ResourceType:
        """Return how a kind is addressed. Raise KindNotServedError, DriverUnavailable."""
        resource = self.load(api_version, deadline=deadline).get(kind)
        if resource is None:
            resource = self.load(
                api_version, keep=KEEP_MISSING_SECONDS, deadline=deadline
            ).get(kind)
        if resource is None:
            others = self.other_versions(api_version, kind, deadline=deadline)
            group = api_version.rpartition("/")[0]
            names = ", ".join(one.removeprefix(f"{group}/") for one in others)
            hint = f"; it serves {names}" if names else ""
            raise KindNotServedError(
                f"the cluster serves no {kind} in {api_version}{hint}", others
            )
        if not resource.can_be_patched:
            raise KindNotServedError(
                f"{kind} in {api_version} cannot be applied: it has no verb patch"
            )
        return resource

    def load(
        self,
        api_version: str,
        *,
        keep: float = KEEP_SECONDS,
        deadline: float,
    ) -> Table:
        """Return the table of a group version, empty when it is not served; at most `keep` seconds old."""
        with self._lock:
            lock = self._locks.setdefault(api_version, Lock())
        # One request for all threads that need it at the same time.
        if not lock.acquire(timeout=max(0.0, deadline - self._monotonic())):
            raise DriverUnavailable(
                f"no answer about {api_version} in time", code="timeout"
            )
        try:
            at, table = self._tables.get(api_version, (float("-inf"), {}))
            if self._monotonic() - at >= keep:
                table = self._fetch(api_version, deadline=deadline)
                self._tables[api_version] = self._monotonic(), table
            return table
        finally:
            lock.release()

    def forget(self, group: str) -> None:
        """Drop a group, of which a CustomResourceDefinition changed or whose paths were not found."""
        for api_version in list(self._tables):
            if api_version.rpartition("/")[0] == group:
                self._tables.pop(api_version, None)

    def _fetch(self, api_version: str, *, deadline: float) -> Table:
        answer = self._client.request("GET", api_path(api_version), deadline=deadline)
        if answer.status == 404:
            return _table(())
        if answer.status != 200:
            message = answer.body.get("message") or f"answer {answer.status}"
            raise DriverUnavailable(
                f"discovery of {api_version}: {message}", code=f"http-{answer.status}"
            )
        return _table(
            tuple(
                ResourceType(
                    api_version,
                    str(one["kind"]),
                    str(one["name"]),
                    bool(one.get("namespaced")),
                    "patch" in (one.get("verbs") or ()),
                )
                for one in answer.body.get("resources") or ()
                if "/" not in one["name"]
            )
        )

    def other_versions(
        self,
        api_version: str,
        kind: str,
        *,
        deadline: float,
    ) -> tuple[str, ...]:
        """Return the other apiVersions that serve a kind: of the same group, or of the one it moved to."""
        group = (current_version(api_version, kind) or api_version).rpartition("/")[0]
        if not group:
            return ()
        answer = self._client.request("GET", f"/apis/{group}", deadline=deadline)
        versions = answer.body.get("versions") or () if answer.status == 200 else ()
        names = [f"{group}/{one.get('version')}" for one in versions]
        return tuple(
            name
            for name in names
            if name != api_version and kind in self.load(name, deadline=deadline)
        )


def resolve_kind(
    discovery: Discovery,
    api_version: str,
    ref: ObjectRef,
    *,
    deadline: float,
) -> ResourceType:
    """Return how an object is addressed now: where its version is no longer served, by another one.

    Raise KindNotServedError when no version has the kind.
    """
    try:
        return discovery.resource(api_version, ref.kind, deadline=deadline)
    except KindNotServedError as error:
        if not error.served_in:
            raise
        return discovery.resource(error.served_in[0], ref.kind, deadline=deadline)


def items_in_pages(
    client: ApiClient,
    path: str,
    query: Mapping[str, str],
    *,
    deadline: float,
) -> Iterator[Mapping[str, Any] | Response]:
    """Yield the items of a list, page by page, or at last the answer that was not a list.

    A page can be freed when the next one is parsed.
    """
    query = {**query, "limit": str(PAGE)}
    while True:
        answer = client.request("GET", path, query=query, deadline=deadline)
        if answer.status != 200:
            yield answer
            return
        yield from answer.body.get("items") or ()
        following = (answer.body.get("metadata") or {}).get("continue")
        if not following:
            return
        query = {**query, "continue": str(following)}
