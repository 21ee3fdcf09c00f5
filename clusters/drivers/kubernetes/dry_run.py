"""What an apply would do, by dry runs of the API server (`rules/kubernetes-driver.md#reportdiff`)."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from clusters.drivers.base import DiffResult, DriverPending, ObjectRef, Refusal, Version
from clusters.drivers.kubernetes.access import MemberAccess
from clusters.drivers.kubernetes.diff import RESERVE_SECONDS
from clusters.drivers.kubernetes.discovery import NOT_SERVED
from clusters.drivers.kubernetes.inventory import Entry, read_inventory
from clusters.drivers.kubernetes.one_object import ApplyCall, ObjectResult, examine
from clusters.drivers.kubernetes.parallel import pool, result_of, run_waves
from clusters.drivers.kubernetes.targets import (
    CUSTOM_RESOURCE_DEFINITION,
    RBAC,
    Target,
    defined_group,
    prepare_targets,
)

_BASES = {("", "Namespace"), CUSTOM_RESOURCE_DEFINITION}
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
            for ref, one in results.items()
            if one.diff and one.diff.member_generation is None
        }
        late = {
            one.ref
            for one in several
            if not missing.isdisjoint(needed_by(one, targets))
        }
        ready = [one for one in several if one.ref not in late]
        done = run_waves([ready], partial(examine, call), time_left=access.until(stop))
        results |= {target.ref: result for target, result in done}
        unchecked |= late

    unreached = [
        one.ref
        for one in targets
        if one.ref not in unchecked
        and (one.ref not in results or results[one.ref].is_deferred)
    ]
    if unreached and access.until(stop)() <= RESERVE_SECONDS:
        done_count, total = len(targets) - len(unreached), len(targets)
        message = f"{done_count} of {total} objects tried in time"
        raise DriverPending(
            message, done=done_count, total=total, remaining=tuple(unreached)
        )
    for target in targets:
        refusal = results[target.ref].refusal if target.ref in results else None
        if refusal and target.is_custom and refusal.code == NOT_SERVED:
            unchecked.add(target.ref)
        elif refusal:
            refusals.append(refusal)
    tried = [
        results[one.ref]
        for one in targets
        if one.ref in results and not results[one.ref].refusal
    ]
    return DiffResult(
        version.id,
        tuple(one.diff for one in tried if one.diff),
        tuple(refusals),
        removed=leftovers(inventory.entries.values(), targets, refusals),
        unchecked=tuple(
            one.ref for one in targets if one.ref in unchecked or one.ref in unreached
        ),
    )


def in_order(targets: Sequence[Target]) -> Iterator[list[Target]]:
    """Yield what others need before them: Namespaces and definitions, then roles, then all the rest."""
    kinds = {one.ref: (one.ref.group, one.ref.kind) for one in targets}
    yield [one for one in targets if kinds[one.ref] in _BASES]
    yield [one for one in targets if kinds[one.ref] in _ROLES]
    yield [one for one in targets if kinds[one.ref] not in _BASES | _ROLES]


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
    wanted = {one.ref for one in targets}
    gone = [one for one in entries if one.uid and one.ref not in wanted]
    stays = {
        one.ref
        for one in gone
        if one.is_taken_over and (one.ref.group, one.ref.kind) in _BASES
    }
    return () if refusals else tuple(one.ref for one in gone if one.ref not in stays)
