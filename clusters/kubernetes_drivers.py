"""The drivers of Kubernetes clusters in this process, with their sockets, guarded by 401 answers."""

import hashlib
import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from functools import cache
from logging import getLogger
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar
from uuid import UUID, uuid5

from django.conf import settings
from django.db import DatabaseError

from clusters.credentials import (
    BLOCKED_AFTER,
    BLOCKED_FOR,
    credential_of,
    decrypt,
    record_acceptance,
    record_rejection,
)
from clusters.drivers.base import (
    KUBERNETES,
    USUAL_TIMEOUT,
    Applied,
    DiffResult,
    Driver,
    DriverUnavailable,
    MemberIdentity,
    Observation,
    Removed,
    Version,
)
from clusters.drivers.kubernetes.client import Client
from clusters.drivers.kubernetes.configuration import Connection, parse_connection
from clusters.drivers.kubernetes.sockets import AddressRules
from clusters.drivers.registry import DriverContext, driver_named
from clusters.models import ClusterCredential, Hub, MemberCluster
from fleetui import __version__
from fleetui.hub_scope import LOCAL_HUB
from fleetui.threads import brief_connection

log = getLogger(__name__)
MOST_DRIVERS = 2_000
REAP_SECONDS = 5.0
USER_AGENT = f"fleetui/{__version__} (cluster-driver)"
REJECTED = "credentials"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
Answer = TypeVar("Answer")


def address_rules() -> AddressRules:
    """Return the settings of this console that decide what may be connected to."""
    return AddressRules(
        networks=settings.MEMBER_NETWORKS,
        allow_loopback=settings.MEMBER_LOOPBACK,
        proxies=settings.MEMBER_PROXIES,
        allow_insecure_tls=settings.ALLOW_INSECURE_TLS,
        allow_in_cluster=settings.IN_CLUSTER,
    )


def open_client(
    connection: Connection,
    secret: Callable[[], Mapping[str, str]],
    *,
    monotonic: Callable[[], float] = time.monotonic,
    user_agent: str = USER_AGENT,
) -> Client:
    """Return a client with the settings of this console; in a pod, with the account of that pod."""
    rules = address_rules()
    if connection.in_cluster:
        if not rules.allow_in_cluster:
            raise DriverUnavailable(
                "FLEETUI_IN_CLUSTER is not set on this console", code="not-in-cluster"
            )
        connection, secret = in_cluster(connection, SERVICE_ACCOUNT, os.environ)
    return Client(
        connection, secret, rules=rules, monotonic=monotonic, user_agent=user_agent
    )


def in_cluster(
    connection: Connection, folder: Path, environ: Mapping[str, str]
) -> tuple[Connection, Callable[[], Mapping[str, str]]]:
    """Return the connection of the service account in a folder, and what reads its token.

    Raise DriverUnavailable outside of a pod.
    """
    host = environ.get("KUBERNETES_SERVICE_HOST")
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        ca = (folder / "ca.crt").read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise DriverUnavailable(
            "this console does not run in a pod with a service account",
            code="not-in-cluster",
        ) from error
    if host:
        host = f"[{host}]" if ":" in host else host
        connection = replace(connection, server=f"https://{host}:{port}")
    return replace(connection, ca=ca), TokenFile(folder / "token")


class TokenFile:
    """The token in a file, read again when the file has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[int, str] = (-1, "")

    def __call__(self) -> Mapping[str, str]:
        try:
            modified = self._path.stat().st_mtime_ns
            if modified != self._read[0]:
                self._read = modified, self._path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise DriverUnavailable(
                "the token of this console's pod cannot be read",
                code="credentials-unreadable",
            ) from error
        return {"token": self._read[1]}


class StoredSecret:
    """Decrypts the stored secret of a cluster when a connection is opened."""

    def __init__(self, cluster: MemberCluster) -> None:
        self._uid = cluster.uid
        self.ciphertext = ""

    def __call__(self) -> Mapping[str, str]:
        if not self.ciphertext:
            raise DriverUnavailable(
                "the cluster has no credentials", code="credentials-unreadable"
            )
        return decrypt(self._uid, self.ciphertext).values


DriverVersion: TypeAlias = tuple[str, str, MemberIdentity]


class CachedDriver(NamedTuple):
    """A driver with its parts; `version` changes with the connection, the credential and the identity."""

    version: DriverVersion
    driver: Driver
    client: Client
    secret: StoredSecret
    rejections: "Rejections"


class DriverCache:
    """The drivers of a process, at most 2,000, the least recently used leave first; for several threads."""

    def __init__(
        self,
        *,
        most: int = MOST_DRIVERS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._cached: OrderedDict[int, CachedDriver] = OrderedDict()
        self._is_cleared: threading.Event | None = None

    def driver_of(self, cluster: MemberCluster, context: DriverContext) -> Driver:
        """Return the driver of a cluster for its present connection and credential.

        Raise InvalidManifest for a malformed connection, DriverUnavailable outside of a pod.
        """
        credential = credential_of(cluster)
        content = json.dumps(cluster.connection, sort_keys=True).encode()
        # The fingerprint, since the revision starts again after a removal.
        revision = (
            f"{credential.revision} {credential.fingerprint}" if credential else ""
        )
        identity = identity_of(cluster)
        version = (revision, hashlib.sha256(content).hexdigest(), identity)
        with self._lock:
            cached = self._cached.get(cluster.pk)
            if cached and cached.version == version:
                self._cached.move_to_end(cluster.pk)
        if cached is None or cached.version != version:
            secret = StoredSecret(cluster)
            client = open_client(
                parse_connection(cluster.connection), secret, monotonic=self._monotonic
            )
            context = replace(
                context, identity=identity, monotonic=self._monotonic, client=client
            )
            driver = driver_named(KUBERNETES, cluster.connection, context)
            cached = CachedDriver(version, driver, client, secret, Rejections())
            self._keep(cluster.pk, cached)
        if credential:
            cached.secret.ciphertext = (
                credential.ciphertext
            )  # a rotation of keys does not change the revision
        return GuardedDriver(
            cached.driver, credential, cached.rejections, context.clock
        )

    def close_idle(self) -> None:
        with self._lock:
            clients = [cached.client for cached in self._cached.values()]
        for client in clients:
            client.close_idle()

    def clear(self) -> None:
        with self._lock:
            cached = self._cached
            self._cached = OrderedDict()
            if self._is_cleared:
                self._is_cleared.set()
                self._is_cleared = None
        for driver in cached.values():
            driver.client.close()

    def __len__(self) -> int:
        return len(self._cached)

    def _keep(self, pk: int, cached: CachedDriver) -> None:
        replaced: list[CachedDriver] = []
        with self._lock:
            if pk in self._cached:
                replaced.append(self._cached.pop(pk))
            self._cached[pk] = cached
            while len(self._cached) > self._most:
                replaced.append(self._cached.popitem(last=False)[1])
            if self._is_cleared is None:
                self._is_cleared = threading.Event()
                closing = threading.Thread(
                    target=self.close_regularly,
                    args=(self._is_cleared,),
                    name="idle sockets",
                    daemon=True,
                )
                closing.start()
        for driver in replaced:
            driver.client.close()

    def close_regularly(self, is_over: threading.Event) -> None:
        while not is_over.wait(REAP_SECONDS):
            self.close_idle()


@cache
def hub_id() -> str:
    """Return the ID of this installation; read from the database once per process."""
    with brief_connection():
        return str(Hub.objects.values_list("uid", flat=True).get(pk=LOCAL_HUB))


def member_id(name: str) -> str:
    """Return the stable ID of a member of this installation, with its name.

    It follows from the ID of the installation and the name, so that a member that joins again, or whose row
    was lost with the database, finds what it has on its cluster.
    """
    return f"{uuid5(UUID(hub_id()), name)}/{name}"


def identity_of(cluster: MemberCluster) -> MemberIdentity:
    return MemberIdentity(
        hub_id(),
        member_id(cluster.name),
        cluster.cluster_uid,
        cluster.shares_server_with,
        tuple(member_id(name) for name in cluster.inherited_names.split()),
    )


class Rejections:
    """The 401 answers to one secret that this process knows of; for several threads.

    They block calls of this process even where the database cannot record them. What it could not record is
    recorded before the next call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unrecorded: list[datetime] = []
        self.count = 0
        self.since: datetime | None = None
        self.blocked_until: datetime | None = None

    def add(self, credential: ClusterCredential, now: datetime) -> None:
        """Count an answer, after those that the row of the credential knows of."""
        with self._lock:
            self.count = max(self.count, credential.unauthorized_count) + 1
            self.since = self.since or credential.unauthorized_since or now
            if self.count >= BLOCKED_AFTER:
                self.blocked_until = now + BLOCKED_FOR
            self._unrecorded.append(now)
        self.record(credential)

    def record(self, credential: ClusterCredential) -> None:
        """Write for all workers what is not written yet; a database that refuses is asked again later."""
        with self._lock:
            taken = self._unrecorded
            self._unrecorded = []
        try:
            while taken:
                with brief_connection():
                    record_rejection(
                        credential.pk, revision=credential.revision, now=taken[0]
                    )
                del taken[0]
        except DatabaseError as error:
            log.warning(
                "the rejection of the credentials of a cluster is not recorded yet: %s",
                error,
            )
            with self._lock:
                self._unrecorded[:0] = taken

    def forget(self, credential: ClusterCredential) -> None:
        """Forget the answers, since a call succeeded; the next success repeats what the database refuses."""
        with self._lock:
            self._unrecorded.clear()
            self.count = 0
            self.since = None
            self.blocked_until = None
        try:
            with brief_connection():
                record_acceptance(credential.pk, revision=credential.revision)
        except DatabaseError as error:
            log.warning(
                "the acceptance of the credentials of a cluster is not recorded yet: %s",
                error,
            )
        else:
            credential.unauthorized_count = 0
            credential.blocked_until = None


class GuardedDriver:
    """Counts 401 answers, and makes no call while they block the cluster.

    See `rules/kubernetes-driver.md#secrets`.

    The database is used only after a 401 answer, and by the first success after one.
    """

    def __init__(
        self,
        driver: Driver,
        credential: ClusterCredential | None,
        rejections: Rejections,
        clock: Callable[[], datetime],
    ) -> None:
        self._driver = driver
        self._credential = credential
        self._rejections = rejections
        self._clock = clock

    def apply(self, version: Version, *, timeout: float = USUAL_TIMEOUT) -> Applied:
        return self._call(lambda: self._driver.apply(version, timeout=timeout))

    def observe(
        self,
        *placements: str,
        inventory: bool = False,
        version_of: Callable[[str], Version | None] | None = None,
        timeout: float = USUAL_TIMEOUT,
    ) -> Observation:
        return self._call(
            lambda: self._driver.observe(
                *placements, inventory=inventory, version_of=version_of, timeout=timeout
            )
        )

    def remove(
        self,
        placement: str,
        *,
        fence: int = 0,
        timeout: float = USUAL_TIMEOUT,
    ) -> Removed:
        return self._call(
            lambda: self._driver.remove(placement, fence=fence, timeout=timeout)
        )

    def diff(
        self,
        version: Version,
        *,
        as_apply: bool = False,
        timeout: float = USUAL_TIMEOUT,
    ) -> DiffResult:
        return self._call(
            lambda: self._driver.diff(version, as_apply=as_apply, timeout=timeout)
        )

    def release(
        self,
        placement: str,
        *,
        fence: int = 0,
        timeout: float = USUAL_TIMEOUT,
    ) -> Removed:
        return self._call(
            lambda: self._driver.release(placement, fence=fence, timeout=timeout)
        )

    def serves(
        self, kinds: Collection[tuple[str, str]], *, timeout: float = USUAL_TIMEOUT
    ) -> bool:
        return self._call(lambda: self._driver.serves(kinds, timeout=timeout))

    def leave(self, *, timeout: float = USUAL_TIMEOUT) -> None:
        self._driver.leave(timeout=timeout)

    def _call(self, call: Callable[[], Answer]) -> Answer:
        credential = self._credential
        if credential is None:
            return call()
        rejections = self._rejections
        rejections.record(credential)
        now = self._clock()
        ends = [
            end
            for end in (credential.blocked_until, rejections.blocked_until)
            if end and now < end
        ]
        if ends:
            since = credential.unauthorized_since or rejections.since or now
            left = (max(ends) - now).total_seconds()
            message = f"credentials rejected since {since:%Y-%m-%d %H:%M} UTC; no call until they change"
            raise DriverUnavailable(message, code=REJECTED, retry_after=left)
        try:
            answer = call()
        except DriverUnavailable as error:
            if error.code == REJECTED:
                rejections.add(credential, now)
            raise
        if credential.unauthorized_count or rejections.count:
            rejections.forget(credential)
        return answer


drivers = DriverCache()


def forget_after_fork() -> None:
    """Start with an empty cache in a child process: sockets and threads belong to the parent."""
    global drivers  # noqa: PLW0603 -- one cache per process
    drivers = DriverCache()


os.register_at_fork(after_in_child=forget_after_fork)
