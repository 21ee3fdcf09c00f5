"""The manifests of a version as they are sent, and how live objects differ from them.

See `rules/kubernetes-driver.md#ownership-and-inventory`.

See `rules/kubernetes-driver.md#comparison`.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from itertools import islice
from typing import Any, TypeAlias

from clusters.drivers.base import (
    DiffResult,
    DriverPending,
    DriverUnavailable,
    FieldDiff,
    ObjectDiff,
    ObjectRef,
    Refusal,
    Version,
)
from clusters.drivers.kubernetes.access import (
    FIELD_MANAGER,
    NOT_SERVED,
    MemberAccess,
    RefusedError,
    is_cut_off,
    patch_object,
    read_object,
    run_each,
    run_waves,
    server_message,
)
from clusters.drivers.kubernetes.autoscaling import (
    manifest_over,
    scaled_object,
    sent_over,
)
from fleetui.apimachinery.model import mapping_at
from fleetui.apimachinery.patches import differ
from fleetui.apimachinery.secrets import hides_value, is_secret, secret_values

INVENTORY_NAMESPACE = "fleetui-system"
PART_OF = "applyset.kubernetes.io/part-of"
OWNER = "fleetui.io/owner"
MEMBER = "fleetui.io/member"
TAKEN_OVER = "fleetui.io/taken-over"
MANIFEST_HASH = "fleetui.io/manifest-hash"
RECREATE = "fleetui.io/recreate"
LAST_WAVE = 6
CUSTOM_RESOURCE_DEFINITION = ("apiextensions.k8s.io", "CustomResourceDefinition")

RBAC, _ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
_WAVES: tuple[Mapping[str, str], ...] = (
    {"": "Namespace", "scheduling.k8s.io": "PriorityClass"},
    {
        "": "ResourceQuota LimitRange ServiceAccount Secret ConfigMap PersistentVolume PersistentVolumeClaim",
        "networking.k8s.io": "NetworkPolicy IngressClass",
        "policy": "PodDisruptionBudget",
        "storage.k8s.io": "StorageClass",
        "apiextensions.k8s.io": "CustomResourceDefinition",
    },
    {RBAC: "ClusterRole Role"},
    {RBAC: "ClusterRoleBinding RoleBinding"},
    {
        "": "Service Pod ReplicationController",
        "apps": "DaemonSet ReplicaSet Deployment StatefulSet",
        "autoscaling": "HorizontalPodAutoscaler",
        "batch": "Job CronJob",
        "networking.k8s.io": "Ingress",
    },
    {
        "apiregistration.k8s.io": "APIService",
        _ADMISSION: "ValidatingWebhookConfiguration MutatingWebhookConfiguration",
    },
)
_WAVE_OF = {
    (group, kind): place
    for place, groups in enumerate(_WAVES)
    for group, kinds in groups.items()
    for kind in kinds.split()
}
_NOT_SENT = frozenset(
    (
        "managedFields",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "ownerReferences",
        "selfLink",
    )
)


def wave_of(group: str, kind: str) -> int:
    """Return the apply wave of a kind; custom resources and unknown kinds come last."""
    return _WAVE_OF.get((group, kind), LAST_WAVE)


@dataclass(frozen=True)
class Target:
    """One object of a version: `manifest` is sent, with ownership metadata added.

    The namespace of `ref` is resolved. `is_custom`: a CustomResourceDefinition of the same version serves it.
    `is_autoscaled`: an autoscaler of the same version sets its replicas.
    """

    ref: ObjectRef
    api_version: str
    manifest: Mapping[str, Any]
    is_custom: bool = False
    is_autoscaled: bool = False

    @cached_property
    def hash(self) -> str:
        return manifest_hash(self.manifest)

    @property
    def wave(self) -> int:
        return wave_of(self.ref.group, self.ref.kind)


def defined_group(definition: Target) -> str:
    return str(mapping_at(definition.manifest, "spec").get("group"))


def manifest_hash(manifest: Mapping[str, Any]) -> str:
    text = json.dumps(
        manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return sha256(text.encode()).hexdigest()[:32]


def sent_manifest(manifest: Mapping[str, Any]) -> dict[str, Any]:
    sent = {
        key: value
        for key, value in manifest.items()
        if key not in ("status", "metadata")
    }
    metadata = {
        key: value
        for key, value in manifest["metadata"].items()
        if key not in _NOT_SENT
    }
    return {**sent, "metadata": metadata}


def owner_value(hub_id: str, placement: str) -> str:
    return f"{hub_id}/{placement}"


def inventory_name(hub_id: str, placement: str) -> str:
    """Return the name of the ConfigMap for a placement, which is named with its namespace if it has one.

    What distinguishes two placements of one name follows a `~`, which no name of Kubernetes has.
    """
    named, _, mark = placement.partition("~")
    namespace, _, name = named.rpartition("/")
    own = (
        f".{namespace}.{name}" if namespace else f"-{name}"
    )  # no name starts with a dot or a dash
    prefix = f"fleetui-{hub_id[:8]}--{mark}" if mark else f"fleetui-{hub_id[:8]}"
    return f"{prefix}{own}"


def applyset_id(name: str) -> str:
    digest = sha256(f"{name}.{INVENTORY_NAMESPACE}.ConfigMap.".encode()).digest()
    return f"applyset-{base64.urlsafe_b64encode(digest).decode().rstrip('=')}-v1"


def with_ownership(
    target: Target,
    live: Mapping[str, Any] | None,
    *,
    part_of: str,
    owner: str,
    member: str,
    is_taken_over: bool,
    resource_version: str = "",
) -> dict[str, Any]:
    """Return the manifest as it is applied; `resource_version` makes the server refuse a changed object."""
    metadata = target.manifest["metadata"]
    ours = {OWNER: owner, MEMBER: member, MANIFEST_HASH: target.hash}
    if is_taken_over:
        ours[TAKEN_OVER] = "true"
    changed: dict[str, Any] = {
        "labels": {**(metadata.get("labels") or {}), PART_OF: part_of},
        "annotations": {**(metadata.get("annotations") or {}), **ours},
    }
    if resource_version:
        changed["resourceVersion"] = resource_version
    manifest = target.manifest
    if live is not None:
        manifest = sent_over(
            manifest,
            live,
            is_autoscaled=target.is_autoscaled,
            field_manager=FIELD_MANAGER,
        )
    return {**manifest, "metadata": {**metadata, **changed}}


def prepare_targets(
    access: MemberAccess, version: Version, *, deadline: float
) -> tuple[list[Target], list[Refusal]]:
    """Return the objects of a version in the order of apply waves, and those that no request is made for.

    Raise DriverUnavailable.
    """
    custom = scopes_of_definitions(version)
    kinds = {
        (str(manifest.get("apiVersion")), str(manifest.get("kind")))
        for manifest in version.manifests
    }
    # Group versions that the version itself defines are not served before its definitions are applied.
    foreign = sorted(
        {
            api_version
            for api_version, kind in kinds
            if (api_version, kind) not in custom
        }
    )
    run_each(
        lambda each: access.discovery.load(each, deadline=deadline),
        foreign,
        time_left=access.until(deadline),
    )

    targets: dict[ObjectRef, Target] = {}
    refusals = []
    for manifest in version.manifests:
        try:
            target = parse_target(access, manifest, custom, deadline=deadline)
            if target.ref in targets:
                raise RefusedError(
                    "Duplicated", f"{target.ref} is in the version more than once"
                )
            targets[target.ref] = target
        except RefusedError as error:
            refusals.append(Refusal(_written_ref(manifest), error.code, error.message))
    refusals.sort(key=lambda one: wave_of(one.object.group, one.object.kind))
    for scaled in {scaled_object(manifest) for manifest in version.manifests}:
        if scaled in targets:
            targets[scaled] = replace(targets[scaled], is_autoscaled=True)
    return sorted(targets.values(), key=lambda one: one.wave), refusals


def _written_ref(manifest: Mapping[str, Any]) -> ObjectRef:
    metadata = manifest.get("metadata") or {}
    group = str(manifest.get("apiVersion") or "").rpartition("/")[0]
    name = metadata.get("name") or metadata.get("generateName") or ""
    return ObjectRef(
        group, str(manifest.get("kind") or ""), metadata.get("namespace") or "", name
    )


def scopes_of_definitions(version: Version) -> dict[tuple[str, str], bool]:
    """Return by (apiVersion, kind) whether what the definitions of a version will serve is namespaced."""
    scopes = {}
    for manifest in version.manifests:
        ref = _written_ref(manifest)
        spec = manifest.get("spec") or {}
        if (ref.group, ref.kind) == CUSTOM_RESOURCE_DEFINITION:
            kind = (spec.get("names") or {}).get("kind")
            for version_spec in spec.get("versions") or (
                {"name": spec.get("version")},
            ):
                if version_spec.get("served", True):
                    api_version = f"{spec.get('group')}/{version_spec.get('name')}"
                    scopes[api_version, str(kind)] = spec.get("scope") != "Cluster"
    return scopes


def parse_target(
    access: MemberAccess,
    manifest: Mapping[str, Any],
    custom: Mapping[tuple[str, str], bool],
    *,
    deadline: float,
) -> Target:
    written = _written_ref(manifest)
    metadata = mapping_at(manifest, "metadata")
    if written.kind.endswith("List") and "items" in manifest:
        raise RefusedError(
            "DecodingErred",
            "a list is not one object: write each object as its own manifest",
        )
    if not metadata.get("name"):
        if metadata.get("generateName"):
            raise RefusedError(
                "FoundGenerateName",
                "metadata.generateName is not supported: set metadata.name",
            )
        raise RefusedError("DecodingErred", "metadata.name is missing")
    if not all(map(manifest.get, ("apiVersion", "kind"))):
        raise RefusedError("DecodingErred", "apiVersion or kind is missing")
    api_version = str(manifest["apiVersion"])
    is_custom = (api_version, written.kind) in custom
    if is_custom:
        is_namespaced = custom[api_version, written.kind]
    else:
        resource = access.discovery.resource(
            api_version, written.kind, deadline=deadline
        )
        is_namespaced = resource.is_namespaced
    namespace = ""
    if is_namespaced:
        namespace = written.namespace or "default"
    elif written.namespace:
        raise RefusedError(
            "DecodingErred",
            f"metadata.namespace must be absent: {written.kind} is cluster-scoped",
        )
    ref = ObjectRef(written.group, written.kind, namespace, written.name)
    return Target(ref, api_version, sent_manifest(manifest), is_custom)


Live: TypeAlias = Mapping[str, Any]

MOST_DIFFERENCES = 100
LONGEST_VALUE = 1_024
REDACTED = "(redacted for security reasons)"
RESERVE_SECONDS = 0.25
WHOLE_OBJECT = FieldDiff("/", "", "(the whole object)")
_SERVER_METADATA = frozenset(
    (
        "name",
        "namespace",
        "generateName",
        "uid",
        "resourceVersion",
        "generation",
        "selfLink",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "ownerReferences",
        "finalizers",
    )
)
_SYSTEM_KEYS = ("kubernetes.io/", "k8s.io/", "kubernetes-fleet.io/", "fleetui.io/")


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a live object differs; `is_degraded`: all fields were compared, since the dry run was refused."""

    fields: tuple[FieldDiff, ...] = ()
    is_degraded: bool = False
    is_truncated: bool = False


def clean(live: Live) -> dict[str, Any]:
    """Return an object without what servers and controllers write into its metadata, and without status."""
    cleaned = {
        key: value for key, value in live.items() if key not in ("status", "metadata")
    }
    metadata: dict[str, Any] = {}
    for key, value in mapping_at(live, "metadata").items():
        if key in ("labels", "annotations"):
            kept = {
                name: text
                for name, text in mapping_at(value).items()
                if not any(part in name for part in _SYSTEM_KEYS)
            }
            if kept:
                metadata[key] = kept
        elif key not in _SERVER_METADATA:
            metadata[key] = value
    if metadata:
        cleaned["metadata"] = metadata
    for path in (("spec", "template"), ("spec", "jobTemplate", "spec", "template")):
        cleaned = _without_creation_timestamp(cleaned, path)
    return cleaned


def _without_creation_timestamp(
    fields: dict[str, Any], path: tuple[str, ...]
) -> dict[str, Any]:
    """Return the fields without `metadata.creationTimestamp` below the path; what changes is copied."""
    if not path:
        metadata = fields.get("metadata")
        if not isinstance(metadata, dict) or "creationTimestamp" not in metadata:
            return fields
        rest = {
            key: value for key, value in metadata.items() if key != "creationTimestamp"
        }
        without = {key: value for key, value in fields.items() if key != "metadata"}
        return {**without, "metadata": rest} if rest else without
    inner = fields.get(path[0])
    if not isinstance(inner, dict):
        return fields
    changed = _without_creation_timestamp(inner, path[1:])
    return fields if changed is inner else {**fields, path[0]: changed}


def find_differences(member: Live, hub: Live) -> Comparison:
    """Compare two cleaned objects; the values of a Secret are redacted."""
    has_values = is_secret(hub)
    values = {*secret_values(hub), *secret_values(member)} if has_values else ()
    fields = list(islice(_walk("", member, hub), MOST_DIFFERENCES + 1))
    written = []
    for path, one, other in fields[:MOST_DIFFERENCES]:
        sides = [side for side in (one, other) if side is not _ABSENT]
        if has_values and any(hides_value(path, side, values) for side in sides):
            texts = ["" if side is _ABSENT else REDACTED for side in (one, other)]
        else:
            texts = [compact_json(side) for side in (one, other)]
        written.append(FieldDiff(path, *texts))
    return Comparison(tuple(written), is_truncated=len(fields) > MOST_DIFFERENCES)


_ABSENT = object()


def _walk(path: str, member: Any, hub: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(member, Mapping) and isinstance(hub, Mapping):
        for key in sorted(member.keys() | hub.keys(), key=str):
            step = str(key).replace("~", "~0").replace("/", "~1")
            yield from _walk(
                f"{path}/{step}", member.get(key, _ABSENT), hub.get(key, _ABSENT)
            )
    elif isinstance(member, list) and isinstance(hub, list) and len(member) == len(hub):
        for place, (one, other) in enumerate(zip(member, hub, strict=True)):
            yield from _walk(f"{path}/{place}", one, other)
    elif differ(member, hub):
        yield path or "/", member, hub


def compact_json(value: Any) -> str:
    if value is _ABSENT:
        return ""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)[:LONGEST_VALUE]


def managed_fields_digest(live: Live) -> str:
    """Return 16 hex digits for the fields that our applies own; "" when they own none."""
    entries = (live.get("metadata") or {}).get("managedFields") or ()
    ours = [entry.get("fieldsV1") for entry in entries if is_own_entry(entry)]
    if not ours:
        return ""
    # With a single apiVersion there is one entry; after a change of it there can be two, in any order.
    texts = sorted(
        json.dumps(one, sort_keys=True, separators=(",", ":")) for one in ours
    )
    return sha256("\n".join(texts).encode()).hexdigest()[:16]


def is_own_entry(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry of managedFields is that of our applies."""
    is_apply = (
        entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply"
    )
    return is_apply and not entry.get("subresource")


def generation_of(live: Live) -> str:
    """Return `metadata.generation`, or the resource version for kinds without one."""
    metadata = live.get("metadata") or {}
    return str(metadata.get("generation") or metadata.get("resourceVersion") or "")


def compare_live(
    access: MemberAccess, target: Target, live: Live, *, is_full: bool, deadline: float
) -> Comparison:
    """Compare a live object with its manifest, by a dry run unless `is_full`.

    Raise RefusedError where the dry run is refused, unless by validation: then all fields are compared.
    """
    manifest = manifest_over(target.manifest, live, is_autoscaled=target.is_autoscaled)
    if is_full:
        return find_differences(clean(live), clean(manifest))
    query = {"fieldManager": FIELD_MANAGER, "force": "true", "dryRun": "All"}
    answer = patch_object(
        access, target.api_version, target.ref, manifest, query=query, deadline=deadline
    )
    if answer.status == 422:
        degraded = find_differences(clean(live), clean(manifest))
        return Comparison(
            degraded.fields, is_degraded=True, is_truncated=degraded.is_truncated
        )
    if answer.status not in (200, 201):
        raise RefusedError(
            "ManifestApplyFailed", server_message(answer, target.manifest)
        )
    return find_differences(clean(live), clean(answer.body))


def diff_if_any(
    target: Target, live: Live, comparison: Comparison
) -> ObjectDiff | None:
    if not comparison.fields:
        return None
    return object_diff(target, live, comparison)


def object_diff(
    target: Target, live: Live | None, comparison: Comparison
) -> ObjectDiff:
    generation = None
    if live:
        generation = mapping_at(live, "metadata").get("generation") or 0
    return ObjectDiff(
        target.ref,
        target.api_version.rpartition("/")[2],
        generation,
        comparison.fields,
        comparison.is_degraded,
        comparison.is_truncated,
    )


def diff_version(
    access: MemberAccess,
    version: Version,
    *,
    deadline: float,
    progress: dict[ObjectRef, ObjectDiff | None],
) -> DiffResult:
    """Compare all objects of a version; nothing is written.

    `progress` has what earlier calls compared and is extended, so that a slow link finishes in several calls.
    """
    stop = deadline - RESERVE_SECONDS
    targets, refusals = prepare_targets(access, version, deadline=deadline)
    failures = [
        _failure(refusal.object, refusal.code, refusal.message) for refusal in refusals
    ]
    left = [target for target in targets if target.ref not in progress]
    compare = partial(
        diff_target,
        access,
        is_full=version.options.comparison == "FullComparison",
        stop=stop,
    )
    for target, outcome in run_waves([left], compare, time_left=access.until(stop)):
        if isinstance(outcome, Refusal):
            failures.append(outcome)
        elif not isinstance(outcome, str):
            progress[target.ref] = outcome
    finished = progress.keys() | {failure.object for failure in failures}
    remaining = tuple(target.ref for target in targets if target.ref not in finished)
    if remaining:
        total = len(targets)
        done = total - len(remaining)
        raise DriverPending(
            f"{done} of {total} objects compared; continuing",
            done=done,
            total=total,
            remaining=remaining,
        )
    diffs = [diff for target in targets if (diff := progress.get(target.ref))]
    return DiffResult(version.id, tuple(diffs), tuple(failures))


def _failure(ref: ObjectRef, code: str, message: str) -> Refusal:
    """Return why an object could not be compared; a kind that is not served keeps its code."""
    return Refusal(
        ref, NOT_SERVED if code == NOT_SERVED else "FailedToReportDiff", message
    )


def diff_target(
    access: MemberAccess, target: Target, *, is_full: bool, stop: float
) -> ObjectDiff | Refusal | str | None:
    try:
        live = read_object(access, target.api_version, target.ref, deadline=stop)
        if live is None:
            return object_diff(target, None, Comparison((WHOLE_OBJECT,)))
        comparison = compare_live(access, target, live, is_full=is_full, deadline=stop)
    except RefusedError as error:
        return _failure(target.ref, error.code, error.message)
    except DriverUnavailable as error:
        if is_cut_off(error, access, stop):
            return "not reached in time"
        raise
    return diff_if_any(target, live, comparison)
