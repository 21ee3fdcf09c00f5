"""The driver of a real Kubernetes cluster, and its dry runs (`rules/kubernetes-driver.md`)."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
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
    Refusal,
    Removed,
    Version,
)
from clusters.drivers.kubernetes.access import (
    KEEP_MISSING_SECONDS,
    NOT_SERVED,
    ApiClient,
    Discovery,
    MemberAccess,
    pool,
    result_of,
    run_waves,
)
from clusters.drivers.kubernetes.apply import apply_version
from clusters.drivers.kubernetes.inventory import (
    Entry,
    PlacementInventory,
    list_inventories,
    read_inventory,
)
from clusters.drivers.kubernetes.observation import (
    Cleared,
    observe_placements,
    read_health,
)
from clusters.drivers.kubernetes.one_object import ApplyCall, ObjectResult, examine
from clusters.drivers.kubernetes.properties import Readings
from clusters.drivers.kubernetes.removal import (
    CONTAINER_KINDS,
    Removal,
    end_placement,
    release_entries,
    remove_entries,
)
from clusters.drivers.kubernetes.targets import (
    CUSTOM_RESOURCE_DEFINITION,
    RBAC,
    RESERVE_SECONDS,
    Target,
    defined_group,
    diff_version,
    prepare_targets,
)

_ROLES = {(RBAC, "Role"), (RBAC, "ClusterRole")}


def dry_run_version(
    access: MemberAccess, version: Version, *, deadline: float
) -> DiffResult:
    """Return what an apply of a version would do. Raise DriverUnavailable, DriverPending, DriverRejected.

    An object that needs another one of the version, which is not there yet, cannot be tried: the server would
    refuse it for that reason alone.
    """
    stop = deadline - RESERVE_SECONDS
    reading = pool().submit(read_inventory, access, version.placement, deadline=stop)
    targets, refusals = prepare_targets(access, version, deadline=stop)
    inventory = result_of(reading, deadline - access.monotonic())
    call = ApplyCall(
        access, version, inventory.entries, {}, stop, last_start=stop, is_dry_run=True
    )

    results: dict[ObjectRef, ObjectResult] = {}
    unchecked: set[ObjectRef] = set()
    for several in in_order(targets):
        missing = unchecked | {
            ref
            for ref, result in results.items()
            if result.diff and result.diff.member_generation is None
        }
        late = {
            target.ref
            for target in several
            if not missing.isdisjoint(needed_by(target, targets))
        }
        ready = [target for target in several if target.ref not in late]
        done = run_waves([ready], partial(examine, call), time_left=access.until(stop))
        results |= {target.ref: result for target, result in done}
        unchecked |= late

    unreached = [
        target.ref
        for target in targets
        if target.ref not in unchecked
        and (target.ref not in results or results[target.ref].is_deferred)
    ]
    if unreached and access.until(stop)() <= RESERVE_SECONDS:
        done_count, total = len(targets) - len(unreached), len(targets)
        raise DriverPending(
            f"{done_count} of {total} objects tried in time",
            done=done_count,
            total=total,
            remaining=tuple(unreached),
        )
    for target in targets:
        refusal = results[target.ref].refusal if target.ref in results else None
        if refusal and target.is_custom and refusal.code == NOT_SERVED:
            unchecked.add(target.ref)
        elif refusal:
            refusals.append(refusal)
    tried = [
        results[target.ref]
        for target in targets
        if target.ref in results and not results[target.ref].refusal
    ]
    return DiffResult(
        version.id,
        tuple(result.diff for result in tried if result.diff),
        tuple(refusals),
        removed=leftovers(inventory.entries.values(), targets, refusals),
        unchecked=tuple(
            target.ref
            for target in targets
            if target.ref in unchecked or target.ref in unreached
        ),
    )


def in_order(targets: Sequence[Target]) -> Iterator[list[Target]]:
    """Yield what others need before them: Namespaces and definitions, then roles, then all the rest."""
    kinds = {target.ref: (target.ref.group, target.ref.kind) for target in targets}
    yield [target for target in targets if kinds[target.ref] in CONTAINER_KINDS]
    yield [target for target in targets if kinds[target.ref] in _ROLES]
    yield [
        target
        for target in targets
        if kinds[target.ref] not in CONTAINER_KINDS | _ROLES
    ]


def needed_by(target: Target, targets: Sequence[Target]) -> set[ObjectRef]:
    """Return what has to be there before an object can be applied, whether the version has it or not."""
    ref = target.ref
    needed = {ObjectRef("", "Namespace", "", ref.namespace)} if ref.namespace else set()
    if target.is_custom:
        needed |= {
            one.ref
            for one in targets
            if (one.ref.group, one.ref.kind) == CUSTOM_RESOURCE_DEFINITION
            and defined_group(one) == ref.group
        }
    if ref.group == RBAC and (role := target.manifest.get("roleRef")):
        namespace = ref.namespace if role.get("kind") == "Role" else ""
        needed.add(
            ObjectRef(RBAC, str(role.get("kind")), namespace, str(role.get("name")))
        )
    return needed


def leftovers(
    entries: Iterable[Entry], targets: Sequence[Target], refusals: Sequence[Refusal]
) -> tuple[ObjectRef, ...]:
    """Return what an apply would remove: nothing while something is refused (6.1 step 4)."""
    if refusals:
        return ()
    wanted = {target.ref for target in targets}
    gone = [entry for entry in entries if entry.uid and entry.ref not in wanted]
    stays = {
        entry.ref
        for entry in gone
        if entry.is_taken_over and (entry.ref.group, entry.ref.kind) in CONTAINER_KINDS
    }
    return tuple(entry.ref for entry in gone if entry.ref not in stays)


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
            health = Observation(is_healthy=not problem, health_message=problem)
            if facts is None:
                return health
            return replace(
                health,
                properties=facts.properties,
                usage=facts.usage,
                cluster_uid=facts.cluster_uid,
                health_message=problem or facts.notice,
            )
        # An inventory alone opens no second socket for it.
        reading = None
        if placements:
            reading = pool().submit(read_health, self._access, deadline=deadline)
        states = observe_placements(
            self._access,
            placements,
            deadline=deadline,
            cleared=lambda name: self._cleared.setdefault(name, {}),
            version_of=version_of,
        )
        fences, held = None, {}
        if inventory:
            inventories = list_inventories(self._access, deadline=deadline)
            fences = {
                placement_inventory.placement: placement_inventory.fence
                for placement_inventory in inventories
            }
            held = {
                placement_inventory.placement: held_objects(placement_inventory)
                for placement_inventory in inventories
            }
        if reading:
            problem = result_of(reading, deadline - self._access.monotonic())
        else:
            problem = read_health(self._access, deadline=deadline)
        return Observation(
            is_healthy=not problem,
            placements=states,
            fences=fences,
            held=held,
            health_message=problem,
        )

    def remove(
        self,
        placement: str,
        *,
        fence: int = 0,
        timeout: float = USUAL_TIMEOUT,
    ) -> Removed:
        return self._leave(remove_entries, "deleted", placement, fence, timeout)

    def release(
        self,
        placement: str,
        *,
        fence: int = 0,
        timeout: float = USUAL_TIMEOUT,
    ) -> Removed:
        return self._leave(release_entries, "released", placement, fence, timeout)

    def _leave(
        self,
        end_entries: Callable[..., Removal],
        ending: str,
        placement: str,
        fence: int,
        timeout: float,
    ) -> Removed:
        self._check_fence(placement, fence)
        deadline = self._access.monotonic() + timeout
        self._cleared.pop(placement, None)
        with self._with_warnings() as access:
            existed = end_placement(
                access, placement, end_entries, ending, fence=fence, deadline=deadline
            )
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
