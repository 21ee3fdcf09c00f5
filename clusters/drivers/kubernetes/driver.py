"""The driver of a real Kubernetes cluster (`rules/kubernetes-driver.md`)."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Any

from clusters.drivers.base import (
    USUAL_TIMEOUT,
    Applied,
    DiffResult,
    DriverError,
    DriverFenced,
    DriverPending,
    HeldObjects,
    MemberIdentity,
    ObjectRef,
    ObjectWarnings,
    Observation,
    Removed,
    Version,
)
from clusters.drivers.kubernetes.access import MemberAccess
from clusters.drivers.kubernetes.apply import apply_version
from clusters.drivers.kubernetes.diff import diff_version
from clusters.drivers.kubernetes.discovery import (
    KEEP_MISSING_SECONDS,
    ApiClient,
    Discovery,
)
from clusters.drivers.kubernetes.dry_run import dry_run_version
from clusters.drivers.kubernetes.inventory import PlacementInventory, list_inventories
from clusters.drivers.kubernetes.observation import (
    Cleared,
    observe_placements,
    read_health,
)
from clusters.drivers.kubernetes.parallel import pool, result_of
from clusters.drivers.kubernetes.properties import Readings
from clusters.drivers.kubernetes.removal import (
    CONTAINER_KINDS,
    release_placement,
    remove_placement,
)

KEEP_SECONDS = 300.0
"""After this time, objects that were finished before a call ran out of time are read again."""
MOST_FENCES = 1_000


def held_objects(inventory: PlacementInventory) -> HeldObjects:
    containers = (
        ref for ref in inventory.entries if (ref.group, ref.kind) in CONTAINER_KINDS
    )
    return HeldObjects(len(inventory.entries), tuple(containers))


def _collected(access: MemberAccess) -> tuple[ObjectWarnings, ...]:
    return tuple(
        ObjectWarnings(ref, messages)
        for ref, messages in sorted(access.warnings.items())
    )


class KubernetesDriver:
    """Driver of one cluster, used by all threads of a process; it remembers nothing that must not be lost."""

    def __init__(
        self,
        client: ApiClient,
        *,
        identity: MemberIdentity,
        server: str,
        monotonic: Callable[[], float],
    ) -> None:
        self._access = MemberAccess(
            client, Discovery(client, monotonic), identity, monotonic
        )
        self._readings = Readings(client, server, monotonic)
        self._unfinished: dict[
            tuple[str, str, str], tuple[float, dict[ObjectRef, Any]]
        ] = {}
        self._cleared: dict[str, Cleared] = {}
        self._fences: dict[str, int] = {}
        self._lock = Lock()

    def apply(self, version: Version, *, timeout: float = USUAL_TIMEOUT) -> Applied:
        """Apply a version; what does not fit into the time is left to the next call (DriverPending)."""
        self._check_fence(version.placement, version.fence)
        deadline = self._access.monotonic() + timeout
        with (
            self._with_warnings() as access,
            self._continued("apply", version) as results,
        ):
            applied = apply_version(
                access,
                version,
                deadline=deadline,
                finished=results,
                cleared=self._cleared.get(version.placement, {}),
            )
        self._cleared.pop(version.placement, None)  # recorded in the inventory now
        return replace(applied, warnings=_collected(access))

    def observe(
        self,
        *placements: str,
        inventory: bool = False,
        version_of: Callable[[str], Version | None] | None = None,
        timeout: float = USUAL_TIMEOUT,
    ) -> Observation:
        """Return the health and these placements; without placements also the readings that are due."""
        deadline = self._access.monotonic() + timeout
        if not placements and not inventory:
            problem = read_health(self._access, deadline=deadline)
            facts = self._readings.take(deadline=deadline)
            return Observation(
                is_healthy=not problem,
                properties=facts.properties if facts else None,
                usage=facts.usage if facts else None,
                cluster_uid=facts.cluster_uid if facts else None,
                health_message=problem or (facts.notice if facts else ""),
            )
        # An inventory alone opens no second socket for it.
        health = (
            pool().submit(read_health, self._access, deadline=deadline)
            if placements
            else None
        )
        states = observe_placements(
            self._access,
            placements,
            deadline=deadline,
            cleared=lambda name: self._cleared.setdefault(name, {}),
            version_of=version_of,
        )
        inventories = (
            list_inventories(self._access, deadline=deadline) if inventory else None
        )
        if health:
            problem = result_of(health, deadline - self._access.monotonic())
        else:
            problem = read_health(self._access, deadline=deadline)
        return Observation(
            is_healthy=not problem,
            placements=states,
            fences=None
            if inventories is None
            else {one.placement: one.fence for one in inventories},
            held={one.placement: held_objects(one) for one in inventories or ()},
            health_message=problem,
        )

    def remove(
        self,
        placement: str,
        *,
        fence: int = 0,
        timeout: float = USUAL_TIMEOUT,
    ) -> Removed:
        return self._leave(remove_placement, placement, fence, timeout)

    def release(
        self,
        placement: str,
        *,
        fence: int = 0,
        timeout: float = USUAL_TIMEOUT,
    ) -> Removed:
        return self._leave(release_placement, placement, fence, timeout)

    def _leave(
        self,
        end: Callable[..., bool],
        placement: str,
        fence: int,
        timeout: float,
    ) -> Removed:
        self._check_fence(placement, fence)
        deadline = self._access.monotonic() + timeout
        self._cleared.pop(placement, None)
        with self._with_warnings() as access:
            existed = end(access, placement, fence=fence, deadline=deadline)
        return Removed(existed, _collected(access))

    def diff(
        self,
        version: Version,
        *,
        as_apply: bool = False,
        timeout: float = USUAL_TIMEOUT,
    ) -> DiffResult:
        """Compare every object by a dry run; what does not fit into the time is left to the next call."""
        deadline = self._access.monotonic() + timeout
        if as_apply and version.options.type != "ReportDiff":
            with self._with_warnings() as access:
                tried = dry_run_version(access, version, deadline=deadline)
        else:
            with (
                self._with_warnings() as access,
                self._continued("diff", version) as results,
            ):
                tried = diff_version(
                    access, version, deadline=deadline, progress=results
                )
        return replace(tried, warnings=_collected(access))

    def serves(
        self, kinds: Collection[tuple[str, str]], *, timeout: float = USUAL_TIMEOUT
    ) -> bool:
        deadline = self._access.monotonic() + timeout
        for api_version, kind in kinds:
            table = self._access.discovery.load(
                api_version, keep=KEEP_MISSING_SECONDS, deadline=deadline
            )
            if kind in table and table[kind].can_be_patched:
                return True
        return False

    def leave(self, *, timeout: float = USUAL_TIMEOUT) -> None:
        """Do nothing: inventories and ownership metadata stay, so that the cluster can join again."""

    @contextmanager
    def _with_warnings(self) -> Iterator[MemberAccess]:
        """Yield what one call uses: the warnings until then are kept with its error, too."""
        access = replace(self._access, warnings={})
        try:
            yield access
        except DriverError as error:
            error.warnings = _collected(access)
            raise

    @contextmanager
    def _continued(self, call: str, version: Version) -> Iterator[dict[ObjectRef, Any]]:
        """Yield what earlier calls finished of this one, to be extended; keep it when the call is pending."""
        now = self._access.monotonic()
        key = call, version.placement, version.id
        with self._lock:
            for old in [
                old
                for old, (since, _) in self._unfinished.items()
                if now - since > KEEP_SECONDS
            ]:
                del self._unfinished[old]
            since, results = self._unfinished.pop(key, (now, {}))
        try:
            yield results
        except DriverPending:
            with self._lock:
                self._unfinished[key] = since, results
            raise

    def _check_fence(self, placement: str, fence: int) -> None:
        """Raise DriverFenced for a call of this process that is older than one it made.

        After a removal there is no inventory that has the fence; a call that was delayed in this process
        would apply again what was removed.
        """
        with self._lock:
            newest = self._fences.pop(placement, 0)
            self._fences[placement] = max(newest, fence)
            while len(self._fences) > MOST_FENCES:
                del self._fences[next(iter(self._fences))]
        if fence < newest:
            raise DriverFenced(placement, newest)
