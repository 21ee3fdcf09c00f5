"""One request that changes something on a hub: what it sends, and the closed list of those offered."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from enum import StrEnum
from http import HTTPStatus
from typing import Any, ClassVar, TypeAlias

from clusters.drivers.kubernetes.client import APPLY_PATCH
from fleetui.apimachinery.errors import Keys, format_path
from fleetui.apimachinery.model import items_at, mapping_at
from fleetui.apimachinery.patches import differ
from fleetui.apimachinery.secrets import canonical_json, without_secrets
from fleetui.errors import FleetError
from placements.hubs.kinds.base import Manifest, StreamKind
from placements.hubs.kinds.kubefleet import REQUESTED_BY, STREAMS

Path: TypeAlias = tuple[str, ...]
ABSENT: Any = object()
WRITABLE: tuple[Path, ...] = (
    ("spec",),
    ("metadata", "labels"),
    ("metadata", "annotations"),
)
"""Where a draft may differ; all the rest belongs to the hub."""
_METADATA = frozenset(
    {"name", "namespace", "uid", "resourceVersion", "labels", "annotations"}
)
_TOP = frozenset({"apiVersion", "kind", "metadata", "spec"})
_STATUS_ALONE = frozenset({"apiVersion", "kind", "metadata", "status"})
_DEFAULTS: Mapping[tuple[str, str], Any] = {
    ("spec", "revisionHistoryLimit"): 10,
    ("spec", "statusReportingScope"): "ClusterScopeOnly",
    ("spec", "heartbeatPeriodSeconds"): 60,
    ("spec", "state"): "Initialize",
    ("deleteOptions", "validationMode"): "Strict",
    ("policy", "placementType"): "PickAll",
    ("strategy", "type"): "RollingUpdate",
    ("rollingUpdate", "maxUnavailable"): "25%",
    ("rollingUpdate", "maxSurge"): "25%",
    ("rollingUpdate", "unavailablePeriodSeconds"): 60,
    ("applyStrategy", "type"): "ClientSideApply",
    ("applyStrategy", "comparisonOption"): "PartialComparison",
    ("applyStrategy", "whenToApply"): "Always",
    ("applyStrategy", "whenToTakeOver"): "Always",
    ("deleteStrategy", "propagationPolicy"): "Delete",
    ("reportBackStrategy", "type"): "Disabled",
}
"""What the hub fills in where a manifest says nothing, by the last two keys of its path.

See `rules/live-hub.md#objects-of-a-hub`.
"""
_ITEM_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "resourceSelectors": {"selectionScope": "NamespaceWithResources"},
    "tolerations": {"operator": "Equal"},
    "topologySpreadConstraints": {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"},
}


class ForbiddenBodyError(ValueError):
    """A body has something that is never sent to a hub."""


class StaleBaseError(FleetError):
    """The hub has other values than the base at what a draft changes; `paths` are those places."""

    problem_type = "stale-edit"
    since: ClassVar[str] = "the draft was started"

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = tuple(paths)
        places = ", ".join(self.paths)
        super().__init__(f"changed on the hub since {self.since}: {places}")


class ChangedSincePreviewError(StaleBaseError):
    """The hub has other metadata or another spec than at the preview; `paths` are those places."""

    since = "the preview"


@dataclass(frozen=True, slots=True)
class Changes:
    """What a draft sets and removes, by path; a list is one value."""

    values: Mapping[Path, Any]
    removed: tuple[Path, ...]

    @property
    def paths(self) -> tuple[Path, ...]:
        return (*self.values, *self.removed)

    def __bool__(self) -> bool:
        return bool(self.values or self.removed)


@dataclass(frozen=True, slots=True)
class EditBody:
    """The body of an edit, and the removals that it cannot make: other managers own those fields."""

    content: dict[str, Any]
    changes: Changes
    foreign: tuple[Path, ...] = ()


def value_at(document: object, path: Iterable[str]) -> Any:
    """Return the value at a path, ABSENT where there is none."""
    value = document
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return ABSENT
        value = value[key]
    return value


def set_at(document: dict[str, Any], path: Path, value: Any) -> None:
    around = document
    for key in path[:-1]:
        inner = around.get(key)
        if not isinstance(inner, dict):
            inner = around[key] = {}
        around = inner
    around[path[-1]] = deepcopy(value)


def find_changes(base: Manifest, draft: Manifest) -> Changes:
    """Return how a draft differs from its base, apart from defaults that it leaves to the hub."""
    values: dict[Path, Any] = {}
    removed: list[Path] = []
    for root in WRITABLE:
        for path, value in _differences(
            root, value_at(base, root), value_at(draft, root)
        ):
            if value is ABSENT:
                removed.append(path)
            else:
                values[path] = value
    return Changes(values, tuple(removed))


def _differences(path: Path, before: Any, after: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys((*before, *after)):
            yield from _differences(
                (*path, str(key)), before.get(key, ABSENT), after.get(key, ABSENT)
            )
    elif after in (ABSENT, None):
        if before is not ABSENT and not is_default(path, before):
            yield path, ABSENT
    elif path in WRITABLE and before is ABSENT:
        yield from _differences(path, {}, after)
    else:
        completed = complete_items(path, after, before)
        if differ(completed, before):
            yield path, completed


def is_default(path: Path, value: Any) -> bool:
    """Return whether the hub fills in this value where a manifest says nothing."""
    if isinstance(value, Mapping):
        return bool(value) and all(
            is_default((*path, str(key)), one) for key, one in value.items()
        )
    default = _DEFAULTS.get((path[-2], path[-1]), ABSENT) if len(path) > 1 else ABSENT
    return default is not ABSENT and bool(value == default)


def complete_items(path: Path, items: Any, live: Any) -> Any:
    """Return a list whose items have the defaults that the same items have on the hub.

    A list is sent whole, so that an item without its default would count as another value, and conflict.
    """
    defaults = _ITEM_DEFAULTS.get(path[-1])
    if not defaults or not isinstance(items, list) or not isinstance(live, list):
        return items
    present = [one for one in live if isinstance(one, Mapping)]
    completed = []
    for item in items:
        whole = item
        if isinstance(item, Mapping) and item not in live:
            most = {**defaults, **item}.items()
            same = (
                deepcopy(document)
                for document in present
                if item.items() <= document.items() <= most
            )
            whole = next(same, item)
        completed.append(whole)
    return completed


def owned_paths(live: Manifest, manager: str) -> frozenset[Path]:
    paths: set[Path] = set()
    for entry in items_at(live, "metadata", "managedFields"):
        owner = tuple(
            mapping_at(entry).get(key) or ""
            for key in ("manager", "operation", "subresource")
        )
        if owner == (manager, "Apply", ""):
            paths.update(_field_paths(mapping_at(entry, "fieldsV1"), ()))
    return frozenset(
        path for path in paths if any(path[: len(root)] == root for root in WRITABLE)
    )


def _field_paths(fields: Mapping[str, Any], path: Path) -> Iterator[Path]:
    """Yield the outermost values of a set of fields; a list is one value, whatever is owned of it."""
    for key, inner in fields.items():
        if not key.startswith("f:") or not isinstance(inner, Mapping):
            continue
        place = (*path, key[2:])
        is_list = any(one[:2] in ("k:", "v:", "i:") for one in inner)
        if not is_list and any(one.startswith("f:") for one in inner):
            yield from _field_paths(inner, place)
        else:
            yield place


def owners_of(live: Manifest, path: Path) -> tuple[Mapping[str, Any], ...]:
    """Return the entries of managedFields that own a path, or something inside of it."""
    owners = []
    for entry in items_at(live, "metadata", "managedFields"):
        paths = _field_paths(mapping_at(entry, "fieldsV1"), ())
        if any(one[: len(path)] == path or path[: len(one)] == one for one in paths):
            owners.append(mapping_at(entry))
    return tuple(owners)


def edit_body(
    live: Manifest,
    base: Manifest,
    draft: Manifest,
    *,
    manager: str,
) -> EditBody:
    """Return the server-side apply of a draft. Raise StaleBaseError.

    It has what the manager owns already, since an apply without it removes it, and what the draft changes.
    """
    changes = find_changes(base, draft)
    stale = [
        path for path in changes.paths if value_at(live, path) != value_at(base, path)
    ]
    if stale:
        raise StaleBaseError(format_path(path) for path in stale)
    content = identity_of(live)
    removed = set(changes.removed)
    for path in sorted(owned_paths(live, manager)):
        value = value_at(live, path)
        if value is not ABSENT and not any(
            path[:end] in removed for end in range(1, len(path) + 1)
        ):
            set_at(content, path, value)
    for path, value in changes.values.items():
        set_at(content, path, complete_items(path, value, value_at(live, path)))
    foreign = tuple(
        path for path in changes.removed if not is_ours_alone(live, path, manager)
    )
    return EditBody(content, changes, foreign)


def is_ours_alone(live: Manifest, path: Path, manager: str) -> bool:
    owners = owners_of(live, path)
    return bool(owners) and all(
        (owner.get("manager"), owner.get("operation")) == (manager, "Apply")
        for owner in owners
    )


def without_paths(body: Mapping[str, Any], dropped: Iterable[Path]) -> dict[str, Any]:
    """Return a body without these paths, and without the objects that are empty after that."""
    remaining = deepcopy(dict(body))
    for path in dropped:
        _drop(remaining, path)
    return remaining


def _drop(around: dict[str, Any], path: Path) -> None:
    inner = around.get(path[0])
    if len(path) == 1:
        around.pop(path[0], None)
    elif isinstance(inner, dict):
        _drop(inner, path[1:])
        if not inner:
            del around[path[0]]


def leaf_paths(content: Manifest) -> tuple[Path, ...]:
    """Return the writable paths of a body, a list as one value."""
    paths = [path for root in WRITABLE for path in _leaves(root, content)]
    return tuple(path for path in paths if value_at(content, path) not in (ABSENT, {}))


def _leaves(path: Path, content: Manifest) -> Iterator[Path]:
    value = value_at(content, path)
    if isinstance(value, Mapping) and value:
        for key in value:
            yield from _leaves((*path, str(key)), content)
    else:
        yield path


def merge_patch(
    live: Manifest, values: Mapping[Path, Any], removed: Iterable[Path] = ()
) -> dict[str, Any]:
    """Return a JSON merge patch of a live object with its preconditions."""
    metadata = mapping_at(live, "metadata")
    patch: dict[str, Any] = {
        "metadata": {
            key: metadata[key] for key in ("uid", "resourceVersion") if key in metadata
        }
    }
    for path, value in values.items():
        set_at(patch, path, value)
    for path in removed:
        set_at(patch, path, None)
    return patch


def create_body(
    manifest: Manifest, *, api_version: str, requested_by: str = ""
) -> dict[str, Any]:
    """Return the manifest of a new object, without what belongs to the hub."""
    metadata = mapping_at(manifest, "metadata")
    kept = {
        key: deepcopy(metadata[key])
        for key in ("name", "namespace", "labels", "annotations")
        if metadata.get(key)
    }
    if requested_by:
        kept["annotations"] = {
            **kept.get("annotations", {}),
            REQUESTED_BY: requested_by,
        }
    body: dict[str, Any] = {
        "apiVersion": api_version,
        "kind": manifest.get("kind"),
        "metadata": kept,
    }
    if "spec" in manifest:
        body["spec"] = deepcopy(manifest["spec"])
    return body


def identity_of(live: Manifest) -> dict[str, Any]:
    """Return what names a live object, with the preconditions of a write: uid and resourceVersion."""
    metadata = mapping_at(live, "metadata")
    names = ("name", "namespace", "uid", "resourceVersion")
    return {
        "apiVersion": live.get("apiVersion"),
        "kind": live.get("kind"),
        "metadata": {key: metadata[key] for key in names if key in metadata},
    }


def written_parts(
    live: Manifest | None, *, conditions: Iterable[str] = ()
) -> dict[str, str]:
    """Return short hashes of what people and their tools write of an object, by path.

    Controllers write the rest every few seconds, above all the status: of it only conditions of these types.
    """
    if live is None:
        return {}
    metadata = mapping_at(live, "metadata")
    keys = ("uid", "generation", "deletionTimestamp", "labels", "annotations")
    parts = {
        **{f"metadata.{key}": metadata.get(key) for key in keys},
        **{f"spec.{key}": one for key, one in mapping_at(live, "spec").items()},
    }
    types = set(conditions)
    for condition in map(mapping_at, items_at(live, "status", "conditions")):
        if condition.get("type") in types:
            parts[f"status.conditions.{condition['type']}"] = condition
    present = {path: one for path, one in parts.items() if one not in (None, {})}
    return {
        path: hashlib.sha256(canonical_json(one)).hexdigest()[:16]
        for path, one in present.items()
    }


def different_parts(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the paths of the parts that differ, what was changed rather than that something was."""
    paths = sorted(
        path for path in {*before, *after} if before.get(path) != after.get(path)
    )
    return [path for path in paths if path != "metadata.generation"] or paths


def check_body(body: Manifest, *, subresource: str = "") -> None:
    """Raise ForbiddenBodyError where a body has what is never sent (`rules/live-hub.md#bodies`)."""
    allowed = _STATUS_ALONE if subresource == "status" else _TOP
    forbidden = [str(key) for key in body if key not in allowed]
    metadata = body.get("metadata")
    if isinstance(metadata, Mapping):
        forbidden += [f"metadata.{key}" for key in metadata if key not in _METADATA]
    if forbidden:
        raise ForbiddenBodyError(f"never sent to a hub: {', '.join(sorted(forbidden))}")


def server_path(path: Keys) -> str:
    """Return a path as API servers write it in conflicts, such as `.spec.policy.numberOfClusters`."""
    return "".join(f".{key}" for key in path)


JSON, MERGE_PATCH = "application/json", "application/merge-patch+json"
_EDITED = frozenset({"create", "apply", "patch", "delete"})
OFFERED: Mapping[str, frozenset[str]] = {
    "clusterresourceplacements": _EDITED,
    "resourceplacements": _EDITED,
    "clusterresourceoverrides": _EDITED,
    "resourceoverrides": _EDITED,
    "clusterresourceplacementdisruptionbudgets": _EDITED,
    "clusterstagedupdatestrategies": _EDITED,
    "stagedupdatestrategies": _EDITED,
    "clusterresourceplacementevictions": frozenset({"create", "delete"}),
    "clusterstagedupdateruns": frozenset({"create", "patch", "delete"}),
    "stagedupdateruns": frozenset({"create", "patch", "delete"}),
    "clusterapprovalrequests": frozenset({"approve"}),
    "approvalrequests": frozenset({"approve"}),
    "memberclusters": frozenset({"patch"}),
}
"""What is offered by plural; everything else, such as snapshots, bindings and Works, is never written."""
KINDS: Mapping[str, StreamKind] = {
    stream.kind: stream for stream in STREAMS if stream.plural in OFFERED
}


def kind_of(name: str, namespace: str) -> str:
    """Return the kind of this name in a namespace, or its cluster-scoped sibling."""
    sibling = f"Cluster{name}"
    if namespace or sibling not in KINDS:
        return name
    return sibling


class Verb(StrEnum):
    """How a request changes an object; `apply` with the part `status` approves."""

    CREATE = "create"
    APPLY = "apply"
    PATCH = "patch"
    DELETE = "delete"

    @property
    def permission(self) -> str:
        """The verb of RBAC: an apply is a patch."""
        return "patch" if self is Verb.APPLY else str(self)


class NotOfferedError(FleetError, ValueError):
    """The console never sends such a request."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY
    problem_type = "not-offered"


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A write as it is sent, with or without a dry run; its digest decides whether both are the same.

    `uid` and `resource_version` are the preconditions, "" for a creation. `is_forced` takes the fields of the
    body from their owners.
    """

    verb: Verb
    kind: StreamKind
    version: str
    name: str
    body: Mapping[str, Any]
    namespace: str = ""
    subresource: str = ""
    is_forced: bool = False
    uid: str = ""
    resource_version: str = ""

    def __post_init__(self) -> None:
        """Raise NotOfferedError, ForbiddenBodyError."""
        verb = str(self.verb)
        if self.subresource:
            sent = f"{self.verb} {self.subresource}"
            verb = "approve" if sent == "apply status" else sent
        if verb not in OFFERED.get(self.kind.plural, frozenset()):
            raise NotOfferedError(f"{verb} {self.kind.resource} is not offered")
        if self.verb is not Verb.DELETE:
            check_body(self.body, subresource=self.subresource)
        is_named = bool(self.uid and self.resource_version)
        if self.verb is not Verb.CREATE and not is_named:
            raise NotOfferedError(
                "a write to an object names its uid and its resourceVersion"
            )

    @property
    def method(self) -> str:
        return {Verb.CREATE: "POST", Verb.DELETE: "DELETE"}.get(self.verb, "PATCH")

    @property
    def content_type(self) -> str:
        return {Verb.APPLY: APPLY_PATCH, Verb.PATCH: MERGE_PATCH}.get(self.verb, JSON)

    @property
    def path(self) -> str:
        if self.verb is Verb.CREATE:
            return self.kind.path(self.version, self.namespace)
        return f"{self.object_path}/{self.subresource}".removesuffix("/")

    @property
    def object_path(self) -> str:
        return f"{self.kind.path(self.version, self.namespace)}/{self.name}"

    def query(self, manager: str, *, is_dry_run: bool) -> dict[str, str]:
        query: dict[str, str] = {}
        if self.verb is not Verb.DELETE:
            query = {"fieldManager": manager, "fieldValidation": "Strict"}
        if self.verb is Verb.APPLY and self.is_forced:
            query["force"] = "true"
        return {**query, "dryRun": "All"} if is_dry_run else query

    def content(self, *, is_dry_run: bool) -> Mapping[str, Any]:
        """Return the body as it is sent: of a DELETE with a body, API servers ignore the query."""
        if self.verb is Verb.DELETE and is_dry_run:
            return {**self.body, "dryRun": ["All"]}
        return self.body

    @property
    def digest(self) -> str:
        """Identify what is sent, apart from the resourceVersion: each status of a controller is a new one."""
        body = self.at_version("0").body if self.resource_version else self.body
        sent = [self.method, self.path, self.content_type, self.is_forced, body]
        return hashlib.sha256(canonical_json(sent)).hexdigest()

    @property
    def written_conditions(self) -> tuple[str, ...]:
        conditions = map(mapping_at, items_at(self.body, "status", "conditions"))
        return tuple(str(condition.get("type")) for condition in conditions)

    def at_version(self, resource_version: str) -> "WriteRequest":
        part = "preconditions" if self.verb is Verb.DELETE else "metadata"
        inner = {**mapping_at(self.body, part), "resourceVersion": resource_version}
        return replace(
            self, body={**self.body, part: inner}, resource_version=resource_version
        )

    @property
    def stored_body(self) -> dict[str, Any]:
        # The kind says which values are secret.
        body: dict[str, Any] = without_secrets({**self.body, "kind": self.kind.kind})
        if "kind" not in self.body:
            del body["kind"]
        return body

    def forced(self) -> "WriteRequest":
        return replace(self, is_forced=True)

    def hidden_texts(self) -> list[str]:
        """Return the secret values of the body, the longest first: a message of the hub may quote them."""
        hidden = set(_texts(self.body)) - set(_texts(self.stored_body))
        return sorted({text for _, text in hidden if text}, key=len, reverse=True)


def _texts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, str]]:
    """Yield all values that are neither objects nor lists, each with its path."""
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        yield path, str(value)
    for key, inner in items:
        yield from _texts(inner, (*path, key))
