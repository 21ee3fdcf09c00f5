"""Requests for objects of a member cluster, several at a time: their paths, and what its answers mean.

See `rules/kubernetes-driver.md#discovery`.
"""

import base64
import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from threading import Lock
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from clusters.drivers.base import DriverUnavailable, MemberIdentity, ObjectRef
from clusters.drivers.kubernetes.client import APPLY_PATCH, Response
from fleetui.apimachinery.kinds import api_path, current_version
from fleetui.apimachinery.model import mapping_at
from fleetui.apimachinery.secrets import is_secret, secret_values

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
        parts += [self.plural, name]
        return "/".join(parts).removesuffix("/")


Table: TypeAlias = Mapping[str, ResourceType]


@lru_cache(maxsize=1_024)
def _table(resources: tuple[ResourceType, ...]) -> Table:
    """Return the table of these resources; equal answers of several clusters share one."""
    return MappingProxyType(
        {resource.kind: resource for resource in reversed(resources)}
    )


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
            names = ", ".join(other.removeprefix(f"{group}/") for other in others)
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
                    str(resource["kind"]),
                    str(resource["name"]),
                    bool(resource.get("namespaced")),
                    "patch" in (resource.get("verbs") or ()),
                )
                for resource in answer.body.get("resources") or ()
                if "/" not in resource["name"]
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
        names = [f"{group}/{version.get('version')}" for version in versions]
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


FIELD_MANAGER = "fleetui"
LONGEST_MESSAGE = 500


@dataclass(frozen=True, slots=True)
class MemberAccess:
    """One member cluster: its client, the kinds it serves, and who this console and the member are.

    `warnings` collects what the API server warns of in one call, by object.
    """

    client: ApiClient
    discovery: Discovery
    identity: MemberIdentity
    monotonic: Callable[[], float]
    warnings: dict[ObjectRef, tuple[str, ...]] = field(default_factory=dict)

    @property
    def hub_id(self) -> str:
        return self.identity.hub_id

    def until(self, moment: float) -> Callable[[], float]:
        """Return a function that returns the seconds until a moment of the monotonic clock."""
        return lambda: moment - self.monotonic()


def read_object(
    access: MemberAccess, api_version: str, ref: ObjectRef, *, deadline: float
) -> Mapping[str, Any] | None:
    """Return a live object, or None when it does not exist.

    Raise KindNotServedError; RefusedError for any other error of the GET; DriverUnavailable.
    """
    answer = _get(access, api_version, ref, deadline=deadline)
    if answer is None:
        access.discovery.forget(ref.group)
        answer = _get(access, api_version, ref, deadline=deadline)
    if answer is None:
        raise KindNotServedError(f"the cluster serves no {ref.kind} in {api_version}")
    if answer.status == 200:
        return answer.body
    if answer.status == 404:
        return None
    raise RefusedError(
        "FailedToFindObjInMemberCluster", server_message(answer), status=answer.status
    )


def _get(
    access: MemberAccess, api_version: str, ref: ObjectRef, *, deadline: float
) -> Response | None:
    """Return the answer to a GET, or None where the path is not served although discovery has the kind."""
    resource = resolve_kind(access.discovery, api_version, ref, deadline=deadline)
    try:
        answer = access.client.request(
            "GET", resource.path(ref.namespace, ref.name), deadline=deadline
        )
    except DriverUnavailable as error:
        # Of a group that is no longer served, the server answers a 404 without a Status.
        if error.code not in ("not-kubernetes", "no-such-path") or "." not in ref.group:
            raise
        access.discovery.forget(ref.group)
        resolve_kind(access.discovery, api_version, ref, deadline=deadline)
        raise
    return None if is_path_missing(answer) else answer


def patch_object(
    access: MemberAccess,
    api_version: str,
    ref: ObjectRef,
    body: Mapping[str, Any],
    *,
    query: Mapping[str, str],
    content_type: str = APPLY_PATCH,
    deadline: float,
) -> Response:
    """Return the answer to a PATCH. Raise KindNotServedError, DriverUnavailable."""
    if content_type == APPLY_PATCH:  # the body names the version
        resource = access.discovery.resource(api_version, ref.kind, deadline=deadline)
    else:
        resource = resolve_kind(access.discovery, api_version, ref, deadline=deadline)
    answer = access.client.request(
        "PATCH",
        resource.path(ref.namespace, ref.name),
        query=query,
        body=body,
        content_type=content_type,
        deadline=deadline,
    )
    if is_path_missing(answer):
        access.discovery.forget(ref.group)
        raise KindNotServedError(f"the cluster serves no {ref.kind} in {api_version}")
    manifest = body if content_type == APPLY_PATCH else {}
    access.warnings[ref] = tuple(
        without_secret_values(warning, manifest) for warning in answer.warnings
    )
    return answer


def delete_object(
    access: MemberAccess, api_version: str, ref: ObjectRef, *, uid: str, deadline: float
) -> Response:
    """Return the answer to a DELETE of exactly this object, with its dependents in the background."""
    resource = resolve_kind(access.discovery, api_version, ref, deadline=deadline)
    body = {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "propagationPolicy": "Background",
        "preconditions": {"uid": uid},
    }
    path = resource.path(ref.namespace, ref.name)
    answer = access.client.request("DELETE", path, body=body, deadline=deadline)
    access.warnings[ref] = answer.warnings
    return answer


def is_path_missing(answer: Response) -> bool:
    """Return whether a 404 is about the path, not about an object: its details name none."""
    return answer.status == 404 and not (answer.body.get("details") or {}).get("name")


def is_cut_off(error: DriverUnavailable, access: MemberAccess, stop: float) -> bool:
    """Return whether a request failed only because the time for objects was used up."""
    return error.code == "timeout" and access.monotonic() >= stop - 0.05


def causes_of(answer: Response, reason: str) -> list[Mapping[str, Any]]:
    causes = (answer.body.get("details") or {}).get("causes") or ()
    return [cause for cause in causes if cause.get("reason") == reason]


def server_message(answer: Response, manifest: Mapping[str, Any] | None = None) -> str:
    """Return the message of a Status, cut, without the values of the manifest if that is a Secret."""
    message = str(
        answer.body.get("message") or f"the API server answered {answer.status}"
    )
    return cut_message(without_secret_values(message, manifest or {}))


def is_namespace_missing(answer: Response) -> bool:
    """Return whether a request failed because its namespace is not there."""
    kind = mapping_at(answer.body, "details").get("kind")
    return answer.status == 404 and kind == "namespaces"


def cut_message(message: str, longest: int = LONGEST_MESSAGE) -> str:
    """Return a message of at most so many characters, without its middle: the reason is often at the end."""
    if len(message) <= longest:
        return message
    kept = (longest - 3) // 2
    return f"{message[:kept]} … {message[-kept:]}"


def without_secret_values(message: str, manifest: Mapping[str, Any]) -> str:
    """Return a message without the values of a Secret: plain, base64, and as they are in a quoted message."""
    forms = set[str]()
    for text in secret_values(manifest) if is_secret(manifest) else ():
        forms |= {text, base64.b64encode(text.encode()).decode()}
        with suppress(ValueError):
            forms.add(base64.b64decode(text, validate=True).decode())
    forms |= {json.dumps(form)[1:-1] for form in forms}
    # The longest first: a value can be part of another.
    for form in sorted(forms - {""}, key=len, reverse=True):
        message = message.replace(form, "(redacted)")
    return message


THREADS = 64
WIDTH = 4
"""The most requests at a time of one call."""
_POLL_SECONDS = 0.05

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class Planned(Generic[Outcome]):
    """The second step of an item, which runs once all items of earlier waves are finished."""

    run: Callable[[], Outcome]


@cache
def pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="kubernetes")


os.register_at_fork(after_in_child=pool.cache_clear)  # threads do not survive a fork


def result_of(future: "Future[Outcome]", seconds: float) -> Outcome:
    """Return the result of a future. Raise DriverUnavailable when there is none within so many seconds."""
    try:
        return future.result(timeout=max(0.0, seconds))
    except TimeoutError:  # that of a request is a DriverUnavailable
        future.cancel()
        raise DriverUnavailable("no answer in time", code="timeout") from None


def run_each(
    function: Callable[[Item], Outcome],
    items: Iterable[Item],
    *,
    time_left: Callable[[], float],
) -> list[tuple[Item, Outcome]]:
    """Return the outcomes of a function for all items.

    Raise its first exception, once all calls that started have ended; DriverUnavailable where time is up.
    """
    every = list(items)
    results = run_waves([every], function, time_left=time_left)
    if len(results) < len(every):
        raise DriverUnavailable("no answer in time", code="timeout")
    return results


def run_waves(
    waves: Sequence[Sequence[Item]],
    function: Callable[[Item], Outcome | Planned[Outcome]],
    *,
    time_left: Callable[[], float],
) -> list[tuple[Item, Outcome]]:
    """Run the first step of each item, and its second, if any, after all items of earlier waves.

    First steps of later waves fill the threads that would be idle, which saves round trips to a far cluster.
    Once `time_left` (in seconds) is not positive, no step starts: its item is not among the results.
    """
    first_steps = deque(
        (place, item, partial(function, item))
        for place, items in enumerate(waves)
        for item in items
    )
    second_steps: list[deque[tuple[int, Item, Callable[[], Any]]]] = [
        deque() for _ in waves
    ]
    unfinished = Counter(place for place, _, _ in first_steps)
    running: dict[Future[Any], tuple[int, Item]] = {}
    results: list[tuple[Item, Outcome]] = []
    failure: BaseException | None = None

    while True:
        current = min(
            (place for place, count in unfinished.items() if count), default=None
        )
        while (
            current is not None
            and failure is None
            and len(running) < WIDTH
            and time_left() > 0
        ):
            ready = second_steps[current] or first_steps
            if not ready:
                break
            place, item, run = ready.popleft()
            running[pool().submit(run)] = place, item
        if not running:
            break
        for future in wait(
            running, max(_POLL_SECONDS, time_left()), FIRST_COMPLETED
        ).done:
            place, item = running.pop(future)
            if error := future.exception():
                failure = failure or error
            elif isinstance(outcome := future.result(), Planned):
                second_steps[place].append((place, item, outcome.run))
            else:
                unfinished[place] -= 1
                results.append((item, outcome))
        if time_left() <= 0 or failure:
            # What no thread has started must not wait for the calls to other clusters that fill the pool.
            running = {
                future: place
                for future, place in running.items()
                if not future.cancel()
            }

    if failure is not None:
        raise failure
    return results
