"""The apply of one object: read, decide, patch (`rules/kubernetes-driver.md#one-object`)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar

from clusters.drivers.base import (
    APPLY_FAILED,
    FAILED_TO_TAKE_OVER,
    DriverUnavailable,
    ObjectDiff,
    ObjectRef,
    Refusal,
    Version,
    owned_by_placement,
)
from clusters.drivers.kubernetes.access import (
    FIELD_MANAGER,
    LONGEST_MESSAGE,
    KindNotServedError,
    MemberAccess,
    Planned,
    RefusedError,
    causes_of,
    cut_message,
    delete_object,
    is_cut_off,
    is_namespace_missing,
    patch_object,
    read_object,
    server_message,
    without_secret_values,
)
from clusters.drivers.kubernetes.autoscaling import manifest_over
from clusters.drivers.kubernetes.client import Response
from clusters.drivers.kubernetes.inventory import (
    Entry,
    annotation,
    is_of_member,
    is_ours,
    live_entry,
    member_name,
)
from clusters.drivers.kubernetes.targets import (
    CUSTOM_RESOURCE_DEFINITION,
    MANIFEST_HASH,
    MEMBER,
    OWNER,
    RECREATE,
    WHOLE_OBJECT,
    Comparison,
    Live,
    Target,
    applyset_id,
    clean,
    compare_live,
    defined_group,
    diff_if_any,
    find_differences,
    generation_of,
    inventory_name,
    managed_fields_digest,
    object_diff,
    owner_value,
    with_ownership,
)
from clusters.drivers.readiness import AVAILABLE, custom_resource_definition
from fleetui.apimachinery.model import items_at

Step = TypeVar("Step")


_UNOWNED_MANAGERS = {FIELD_MANAGER, "before-first-apply"}
_HINTS: Mapping[tuple[str, str], str] = {
    ("batch", "Job"): "a Job cannot be changed: use another name, or allow recreation",
    (
        "apps",
        "StatefulSet",
    ): "only replicas, template and updateStrategy of a StatefulSet can be changed",
    (
        "apps",
        "Deployment",
    ): "the selector of a Deployment cannot be changed: use another name",
    (
        "apps",
        "DaemonSet",
    ): "the selector of a DaemonSet cannot be changed: use another name",
    ("", "Service"): "the clusterIP of a Service cannot be changed",
    ("", "ConfigMap"): "an immutable ConfigMap cannot be changed: use another name",
    (
        "",
        "Secret",
    ): "type and data of an immutable Secret cannot be changed: use another name",
    (
        "",
        "PersistentVolumeClaim",
    ): "of a PersistentVolumeClaim only the requested storage can be changed",
    (
        "storage.k8s.io",
        "StorageClass",
    ): "a StorageClass cannot be changed: use another name",
    (
        "rbac.authorization.k8s.io",
        "RoleBinding",
    ): "roleRef cannot be changed: use another name",
    (
        "rbac.authorization.k8s.io",
        "ClusterRoleBinding",
    ): "roleRef cannot be changed: use another name",
}


@dataclass(frozen=True, slots=True)
class ApplyCall:
    """What all objects of one apply have in common; no request for an object starts after
    `last_start` or runs longer than `stop`. A dry run writes nothing."""

    access: MemberAccess
    version: Version
    records: Mapping[ObjectRef, Entry]
    cleared: Mapping[ObjectRef, tuple[str, str, str]]
    stop: float
    last_start: float
    is_dry_run: bool = False

    @property
    def owner(self) -> str:
        return owner_value(self.access.hub_id, self.version.placement)


@dataclass(frozen=True, slots=True)
class ObjectResult:
    """What became of one object: applied (`entry`), refused, or deferred, possibly because of a `cause`.

    `is_evidence_of_loss`: it was ours although the inventory had no record of it.
    """

    entry: Entry | None = None
    is_changed: bool = False
    refusal: Refusal | None = None
    is_deferred: bool = False
    cause: str = ""
    drift: ObjectDiff | None = None
    diff: ObjectDiff | None = None
    is_evidence_of_loss: bool = False
    is_established: bool = True


Outcome: TypeAlias = ObjectResult | Planned[ObjectResult]
DEFERRED = ObjectResult(is_deferred=True)


class DifferencesError(RefusedError):
    """An object is refused because it differs from its manifest."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        drift: ObjectDiff | None = None,
        diff: ObjectDiff | None = None,
    ) -> None:
        super().__init__(code, message)
        self.drift = drift
        self.diff = diff


def examine(call: ApplyCall, target: Target) -> Outcome:
    """Read an object and decide: finished, or a PATCH when its apply wave is reached."""
    return _as_outcome(call, target, partial(_examine, call, target))


def _as_outcome(
    call: ApplyCall, target: Target, step: Callable[[], Step]
) -> Step | ObjectResult:
    try:
        return step()
    except KindNotServedError as error:
        return ObjectResult(refusal=Refusal(target.ref, error.code, error.message))
    except DifferencesError as error:
        refusal = Refusal(target.ref, error.code, error.message)
        return ObjectResult(refusal=refusal, drift=error.drift, diff=error.diff)
    except RefusedError as error:
        message = without_secret_values(error.message, target.manifest)
        return ObjectResult(refusal=Refusal(target.ref, error.code, message))
    except DriverUnavailable as error:
        if is_cut_off(error, call.access, call.stop):
            return DEFERRED
        raise


def _examine(call: ApplyCall, target: Target) -> Outcome:
    options = call.version.options
    live = read_object(call.access, target.api_version, target.ref, deadline=call.stop)
    record = call.records.get(target.ref) or Entry(target.ref, "")
    if live is None:
        if record.ends_itself and record.hash == target.hash:
            return ObjectResult(
                record
            )  # it has run; another run begins with another manifest
        return _planned_patch(call, target, None, is_taken_over=False)
    if live["metadata"].get("deletionTimestamp"):
        if _may_recreate(target):
            return DEFERRED
        raise RefusedError(
            APPLY_FAILED,
            f"{target.ref} is being deleted; applied again once it is deleted",
        )
    if not is_ours(call.access, live, call.version.placement):
        check_takeover(call, target, live)
        return _planned_patch(call, target, live, is_taken_over=True)

    if options.comparison == "PartialComparison" and is_unchanged(
        call, target, record, live
    ):
        entry = live_entry(target.ref, live, manifest_hash=target.hash)
        return ObjectResult(entry, is_established=_is_established(target, live))
    check_drift(call, target, live)
    return _planned_patch(
        call,
        target,
        live,
        is_taken_over=record.was_taken_over(live),
        is_loss=not record.uid,
    )


def _planned_patch(
    call: ApplyCall,
    target: Target,
    live: Live | None,
    *,
    is_taken_over: bool,
    is_loss: bool = False,
) -> Planned[ObjectResult]:
    step = partial(
        apply_object, call, target, live, is_taken_over=is_taken_over, is_loss=is_loss
    )
    return Planned(lambda: _as_outcome(call, target, step))


def is_unchanged(
    call: ApplyCall,
    target: Target,
    record: Entry,
    live: Live,
) -> bool:
    if (record.hash, record.uid) != (target.hash, live["metadata"].get("uid")):
        return False
    if (
        annotation(live, MEMBER) != call.access.identity.member
    ):  # from before it had this identity
        return False
    state = managed_fields_digest(live), generation_of(live)
    return state == (record.fields, record.generation) or call.cleared.get(
        target.ref
    ) == (record.uid, *state)


def check_drift(call: ApplyCall, target: Target, live: Live) -> None:
    """Raise DifferencesError for an object that drifted, if only others are applied again."""
    is_checked = call.version.options.when_to_apply == "IfNotDrifted"
    if not is_checked or annotation(live, MANIFEST_HASH) != target.hash:
        return
    drift = _difference(call, target, live, code="FailedToRunDriftDetection")
    if drift:
        code = "FoundDriftsInDegradedMode" if drift.is_degraded else "FoundDrifts"
        message = f"{target.ref} has drifted, and whenToApply is IfNotDrifted"
        raise DifferencesError(code, message, drift=drift)


def check_takeover(call: ApplyCall, target: Target, live: Live) -> None:
    """Raise RefusedError where an object that is not ours may not be taken over."""
    options, metadata = call.version.options, live["metadata"]
    owner = annotation(live, OWNER)
    hub, _, placement = owner.partition("/")
    is_of_hub = hub == call.access.hub_id
    if is_of_hub and not is_of_member(call.access, live):
        member = member_name(annotation(live, MEMBER))
        raise RefusedError(
            FAILED_TO_TAKE_OVER,
            f"belongs to member {member} of this hub: one server is joined under two names",
        )
    if is_of_hub:
        refusal = owned_by_placement(target.ref, placement)
        raise RefusedError(refusal.code, refusal.message)
    if owner:
        raise RefusedError(
            FAILED_TO_TAKE_OVER,
            f"belongs to hub {hub}; remove the annotation {OWNER} there first",
        )
    if options.when_to_take_over == "Never":
        raise RefusedError("NotTakenOver", "exists, and whenToTakeOver is Never")
    if (owners := metadata.get("ownerReferences")) and not options.allow_co_ownership:
        first = owners[0]
        message = (
            f"is owned by {first.get('kind')} {first.get('name')}; see allowCoOwnership"
        )
        raise RefusedError(FAILED_TO_TAKE_OVER, message)
    if options.when_to_take_over == "IfNoDiff":
        difference = _difference(call, target, live, code=FAILED_TO_TAKE_OVER)
        if difference:
            message = "differs from its manifest, and whenToTakeOver is IfNoDiff"
            raise DifferencesError(FAILED_TO_TAKE_OVER, message, diff=difference)


def _difference(
    call: ApplyCall,
    target: Target,
    live: Live,
    *,
    code: str,
) -> ObjectDiff | None:
    is_full = call.version.options.comparison == "FullComparison"
    try:
        comparison = compare_live(
            call.access, target, live, is_full=is_full, deadline=call.stop
        )
    except KindNotServedError:
        raise
    except RefusedError as error:
        raise RefusedError(code, error.message) from error
    return diff_if_any(target, live, comparison)


def apply_object(
    call: ApplyCall,
    target: Target,
    live: Live | None,
    *,
    is_taken_over: bool,
    is_loss: bool,
) -> ObjectResult:
    options = call.version.options
    guard = ""
    if live is not None and options.when_to_apply == "IfNotDrifted":
        guard = str(live["metadata"].get("resourceVersion") or "")
    body = with_ownership(
        target,
        live,
        part_of=applyset_id(inventory_name(call.access.hub_id, call.version.placement)),
        owner=call.owner,
        member=call.access.identity.member,
        is_taken_over=is_taken_over,
        resource_version=guard,
    )
    answer = patch_object(
        call.access,
        target.api_version,
        target.ref,
        body,
        query=apply_query(call, live),
        deadline=call.stop,
    )
    if answer.status not in (200, 201):
        return interpret_failure(call, target, live, answer, has_guard=bool(guard))
    applied = answer.body
    if call.is_dry_run:
        return ObjectResult(diff=change_of(target, live, applied))

    drift = None
    if options.comparison == "FullComparison":
        manifest = manifest_over(
            target.manifest, applied, is_autoscaled=target.is_autoscaled
        )
        comparison = find_differences(clean(applied), clean(manifest))
        drift = diff_if_any(target, applied, comparison)
    is_changed = live is None or clean(live) != clean(applied)
    if is_changed and (target.ref.group, target.ref.kind) == CUSTOM_RESOURCE_DEFINITION:
        call.access.discovery.forget(defined_group(target))
    return ObjectResult(
        live_entry(target.ref, applied, manifest_hash=target.hash),
        is_changed=is_changed,
        drift=drift,
        is_evidence_of_loss=is_loss,
        is_established=_is_established(target, applied),
    )


def apply_query(call: ApplyCall, live: Live | None) -> dict[str, str]:
    """Return the parameters of a PATCH; it is forced where that takes nothing from another manager."""
    options = call.version.options
    query = {"fieldManager": FIELD_MANAGER}
    entries = items_at(live, "metadata", "managedFields")
    is_free = {entry.get("manager") for entry in entries} <= _UNOWNED_MANAGERS
    if options.type == "ClientSideApply" or options.force or is_free:
        query["force"] = "true"
    if call.is_dry_run:
        query["dryRun"] = "All"
    return query


def change_of(target: Target, live: Live | None, applied: Live) -> ObjectDiff | None:
    """Return what a dry run would change; None where that is nothing but ownership metadata."""
    if live is None:
        return object_diff(target, None, Comparison((WHOLE_OBJECT,)))
    return diff_if_any(target, live, find_differences(clean(live), clean(applied)))


def _is_established(target: Target, live: Live) -> bool:
    if (target.ref.group, target.ref.kind) != CUSTOM_RESOURCE_DEFINITION:
        return True
    return custom_resource_definition(live) == AVAILABLE


def _may_recreate(target: Target) -> bool:
    is_job = (target.ref.group, target.ref.kind) == ("batch", "Job")
    return is_job and annotation(target.manifest, RECREATE) == "allowed"


def failure_hint(target: Target, live: Live | None, status: int, message: str) -> str:
    """Return in brackets what to do about a refusal, as far as that is known."""
    if status == 403 and "not currently held" in message:
        return " (the account must hold what the role grants, or the verb escalate)"
    hint = _HINTS.get((target.ref.group, target.ref.kind))
    if status == 422 and live is not None and hint:
        return f" ({hint})"
    return ""


def interpret_failure(
    call: ApplyCall,
    target: Target,
    live: Live | None,
    answer: Response,
    *,
    has_guard: bool,
) -> ObjectResult:
    """Return what an answer other than success to a PATCH means. Raise RefusedError."""
    message = server_message(answer, target.manifest)
    if conflicts := causes_of(answer, "FieldManagerConflict"):
        fields = (
            f"{conflict.get('field')}: {conflict.get('message')}"
            for conflict in conflicts
        )
        text = f"conflicts with other field managers: {'; '.join(fields)}"
        text = without_secret_values(text, target.manifest)
        raise RefusedError(APPLY_FAILED, cut_message(text))
    if answer.status == 409 and has_guard:  # changed since it was compared
        return DEFERRED
    if causes_of(answer, "NamespaceTerminating"):
        return ObjectResult(
            is_deferred=True, cause=f"namespace {target.ref.namespace} is being deleted"
        )
    if is_namespace_missing(answer):
        raise RefusedError(
            APPLY_FAILED, call.version.missing_namespace(target.ref.namespace)
        )
    if (
        answer.status == 422
        and live is not None
        and _may_recreate(target)
        and "spec.template" in message
    ):
        if call.is_dry_run:
            return ObjectResult(diff=change_of(target, live, target.manifest))
        uid = str(live["metadata"].get("uid"))
        deleted = delete_object(
            call.access, target.api_version, target.ref, uid=uid, deadline=call.stop
        )
        if deleted.status in (200, 202, 404, 409):
            return DEFERRED
        message = server_message(deleted, target.manifest)
    ending = failure_hint(target, live, answer.status, message)
    raise RefusedError(
        APPLY_FAILED, cut_message(message, LONGEST_MESSAGE - len(ending)) + ending
    )
