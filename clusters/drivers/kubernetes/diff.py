"""Differences between an object and its manifest, and drift suspicion.

See `rules/kubernetes-driver.md#comparison`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
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
    MemberAccess,
    is_cut_off,
    patch_object,
    read_object,
    server_message,
)
from clusters.drivers.kubernetes.autoscaling import manifest_over
from clusters.drivers.kubernetes.discovery import NOT_SERVED, RefusedError
from clusters.drivers.kubernetes.parallel import run_waves
from clusters.drivers.kubernetes.targets import Target, prepare_targets
from fleetui.apimachinery.secrets import hides_value, is_secret, secret_values

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
_TEMPLATES = (("spec", "template"), ("spec", "jobTemplate", "spec", "template"))


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
    for key, value in (live.get("metadata") or {}).items():
        if key in ("labels", "annotations"):
            kept = {
                name: text
                for name, text in (value or {}).items()
                if not any(part in name for part in _SYSTEM_KEYS)
            }
            if kept:
                metadata[key] = kept
        elif key not in _SERVER_METADATA:
            metadata[key] = value
    if metadata:
        cleaned["metadata"] = metadata
    for path in _TEMPLATES:
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
    elif (
        isinstance(member, bool) is not isinstance(hub, bool) or member != hub
    ):  # True == 1 in Python
        yield path or "/", member, hub


def compact_json(value: Any) -> str:
    if value is _ABSENT:
        return ""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)[:LONGEST_VALUE]


def managed_fields_digest(live: Live) -> str:
    """Return 16 hex digits for the fields that our applies own; "" when they own none."""
    entries = (live.get("metadata") or {}).get("managedFields") or ()
    ours = [one.get("fieldsV1") for one in entries if is_own_entry(one)]
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


def compared_manifest(target: Target, live: Live) -> Live:
    return manifest_over(target.manifest, live, is_autoscaled=target.is_autoscaled)


def compare_live(
    access: MemberAccess, target: Target, live: Live, *, is_full: bool, deadline: float
) -> Comparison:
    """Compare a live object with its manifest, by a dry run unless `is_full`.

    Raise RefusedError where the dry run is refused, unless by validation: then all fields are compared.
    """
    manifest = compared_manifest(target, live)
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


def object_diff(
    target: Target, live: Live | None, comparison: Comparison
) -> ObjectDiff:
    generation = (live.get("metadata") or {}).get("generation") if live else None
    return ObjectDiff(
        target.ref,
        target.api_version.rpartition("/")[2],
        (generation or 0) if live else None,
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
    failures = [_failure(one.object, one.code, one.message) for one in refusals]
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
    refused = {one.object for one in failures}
    remaining = tuple(
        one.ref for one in targets if one.ref not in progress and one.ref not in refused
    )
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


_UNREACHED = "not reached in time"


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
            return _UNREACHED
        raise
    return object_diff(target, live, comparison) if comparison.fields else None
