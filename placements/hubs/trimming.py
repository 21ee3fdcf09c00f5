"""What is stored of an object of a hub (`rules/live-hub.md#mirror`): trimmed, without secrets, deflated."""

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from fleetui.apimachinery.kinds import (
    CLUSTER_OVERRIDE_KIND,
    OVERRIDE_KIND,
    api_version_of,
)
from fleetui.apimachinery.model import DEEPEST, items_at, mapping_at
from fleetui.apimachinery.secrets import LAST_APPLIED, without_secrets
from placements.hubs.kinds.base import Columns, Form, HubApi, Manifest, StreamKind

LARGEST_OBJECT = 2 * 1024 * 1024
LONGEST_NAME, LONGEST_VERSION = 253, 64
OVERRIDE_OF = {
    f"{kind}Snapshot": kind for kind in (CLUSTER_OVERRIDE_KIND, OVERRIDE_KIND)
}
"""The kind of the override that a kind of snapshot belongs to."""
_IDENTITY = frozenset(
    {
        "group",
        "version",
        "kind",
        "namespace",
        "name",
        "envelope",
        "observationTime",
        "firstDriftedObservedTime",
        "firstDiffedObservedTime",
        "targetClusterObservedGeneration",
    }
)
"""What is kept of a Secret that differs on a cluster, beside the paths: anything else may be a value."""


class UnusableObject(ValueError):
    """What a stream delivered is no object of its kind that can be stored."""


@dataclass(frozen=True, slots=True)
class MirrorRecord:
    """One object as the mirror stores it. `packed` is deflated JSON of `size` bytes.

    `digest` recognizes quiet events: it is that of the object without the fields that a heartbeat changes, ""
    where the kind has none.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    is_deleting: bool
    columns: Columns
    packed: bytes
    size: int
    digest: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


def record_of(
    hub: HubApi,
    stream: StreamKind,
    version: str,
    manifest: object,
) -> MirrorRecord:
    """Return what is stored of an object. Raise UnusableObject."""
    if not isinstance(manifest, dict):
        raise UnusableObject("not an object")
    metadata = manifest.get("metadata")
    kind = manifest.get("kind")
    if not isinstance(metadata, dict):
        raise UnusableObject("no metadata")
    # Items of a list of a built-in kind do not name their kind, and metadata has one of its own.
    if kind not in (None, stream.kind, "PartialObjectMetadata"):
        raise UnusableObject(f"kind {str(kind)[:60]!r} in the stream of {stream.kind}")
    name, namespace = metadata.get("name"), metadata.get("namespace") or ""
    uid, resource_version = metadata.get("uid"), metadata.get("resourceVersion")
    for key, value, longest in (
        ("name", name, LONGEST_NAME),
        ("namespace", namespace or "-", LONGEST_NAME),
        ("uid", uid, LONGEST_VERSION),
        ("resourceVersion", resource_version, LONGEST_VERSION),
    ):
        if (
            not isinstance(value, str)
            or not 0 < len(value) <= longest
            or not value.isprintable()
        ):
            raise UnusableObject(f"metadata.{key} is missing or not a short text")
    if is_too_deep(manifest):
        raise UnusableObject(f"nested deeper than {DEEPEST} levels")

    manifest.update(apiVersion=api_version_of(stream.group, version), kind=stream.kind)
    trimmed = trim(stream, manifest)
    quiet = hub.without_quiet(stream, trimmed)
    content = json.dumps(trimmed, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "replace"
    )
    if len(content) > LARGEST_OBJECT:
        raise UnusableObject(f"{name}: {len(content):,} bytes, which no hub stores")
    generation = metadata.get("generation")
    return MirrorRecord(
        namespace=namespace,
        name=cast("str", name),
        uid=cast("str", uid),
        resource_version=cast("str", resource_version),
        generation=generation
        if isinstance(generation, int) and 0 <= generation < 2**63
        else 0,
        is_deleting=bool(metadata.get("deletionTimestamp")),
        columns=hub.columns(stream, trimmed),
        packed=zlib.compress(content, 6),
        size=len(content),
        digest=short_digest(json.dumps(quiet, sort_keys=True)) if quiet else "",
    )


def short_digest(*texts: str) -> str:
    """Return 16 hex digits that differ where the texts do."""
    return hashlib.blake2b(
        "\0".join(texts).encode("utf-8", "replace"), digest_size=8
    ).hexdigest()


def unpack(packed: bytes) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(zlib.decompress(packed))
    return manifest


def is_too_deep(value: object) -> bool:
    """Return whether parsed JSON is nested deeper than DEEPEST."""
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True


def trim(stream: StreamKind, manifest: Manifest) -> dict[str, Any]:
    """Return what is kept of an object, without secret values."""
    copy = dict(manifest)
    if stream.form is Form.METADATA:
        kept = ("apiVersion", "kind", "metadata")
        copy = {key: manifest[key] for key in kept if key in manifest}
    metadata = dict(copy["metadata"])
    if "managedFields" in metadata:
        metadata["managedFields"] = [
            _manager(field)
            for field in items_at(metadata, "managedFields")
            if isinstance(field, dict)
        ]
    annotations = mapping_at(metadata, "annotations")
    if LAST_APPLIED in annotations:
        metadata["annotations"] = {
            key: value for key, value in annotations.items() if key != LAST_APPLIED
        }
    copy["metadata"] = metadata
    return hide_secrets(stream, copy)


def _manager(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return who owns fields: the set of top-level paths is enough to name the manager of a part."""
    manager = {
        key: entry[key]
        for key in ("manager", "operation", "subresource", "time")
        if key in entry
    }
    fields = entry.get("fieldsV1")
    if isinstance(fields, dict):
        manager["paths"] = sorted(key.removeprefix("f:") for key in fields)
    elif "paths" in entry:  # trimmed before
        manager["paths"] = entry["paths"]
    return manager


def hide_secrets(stream: StreamKind, manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest without the values of Secrets: in override patches, in drifts and in diffs."""
    if override := OVERRIDE_OF.get(stream.kind):
        inner = without_secrets(
            {"kind": override, "spec": mapping_at(manifest, "spec", "overrideSpec")}
        )
        return {
            **manifest,
            "spec": {**mapping_at(manifest, "spec"), "overrideSpec": inner["spec"]},
        }
    status = mapping_at(manifest, "status")
    if status:
        manifest = {**manifest, "status": without_secret_differences(status)}
    hidden: dict[str, Any] = without_secrets(manifest)
    return hidden


def without_secret_differences(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status whose drifted and diffed entries of kind Secret have names and paths, and no values."""
    copy = dict(status)
    for name, differences in (
        ("driftedPlacements", "observedDrifts"),
        ("diffedPlacements", "observedDiffs"),
    ):
        if name in status:
            copy[name] = items_at(status, name)
        for at, one in enumerate(copy.get(name, ())):
            if mapping_at(one).get("kind") == "Secret":
                known = {key: value for key, value in one.items() if key in _IDENTITY}
                known[differences] = [
                    {"path": mapping_at(item).get("path")}
                    for item in items_at(one, differences)
                ]
                copy[name][at] = known
    if "placementStatuses" in status:
        copy["placementStatuses"] = [
            without_secret_differences(mapping_at(one))
            for one in items_at(status, "placementStatuses")
        ]
    return copy
