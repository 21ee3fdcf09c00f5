"""Writes to the fake hub: server-side apply with managed fields, merge patches, preconditions, dry runs.

Every list but the conditions of a status is one value, as on a KubeFleet hub.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from tests.clusters.kubernetes.servers import Request, answer, status_body

if TYPE_CHECKING:
    from tests.hubs.crds import Resource
    from tests.hubs.fake_hub import FakeHub

Object = dict[str, Any]
Path = tuple[str, ...]
Webhook = Callable[[str, str, Mapping[str, Any]], str]
"""Called with verb, plural and object; returns why it is denied, or ""."""
AT = "2026-11-01T10:00:00Z"
_DEFAULTS: Mapping[str, Mapping[Path, Any]] = {
    "clusterresourceplacements": {
        ("spec", "revisionHistoryLimit"): 10,
        ("spec", "statusReportingScope"): "ClusterScopeOnly",
    }
}


class Refused(Exception):
    """The answer to a write that the hub refuses."""

    def __init__(
        self, code: int, reason: str, message: str, causes: list[Object] | None = None
    ) -> None:
        super().__init__(message)
        self.body = status_body(code, reason, message)
        if causes:
            self.body["details"] = {"causes": causes}
        self.code = code


def carry_out(
    hub: "FakeHub",
    resource: "Resource",
    found: Mapping[str, str | None],
    query: Mapping[str, str],
    request: Request,
) -> bytes:
    """Answer a write; the caller holds the lock of the hub."""
    body = json.loads(request.body) if request.body else {}
    place = hub.objects.setdefault((resource.group, resource.plural), {})
    name = found["name"] or body.get("metadata", {}).get("name", "")
    key = (found["namespace"] or "", name)
    live = place.get(key)
    verb = {"POST": "create", "DELETE": "delete"}.get(request.method, "patch")
    part = found["part"] or ""
    if not hub._may(verb, resource.plural + (f"/{part}" if part else "")):
        return answer(
            403,
            status_body(
                403, "Forbidden", f"{resource.plural} is forbidden: cannot {verb}"
            ),
        )
    try:
        if verb == "delete":
            wanted = body.get("preconditions") or {}
            if (
                live
                and wanted.get("uid", live["metadata"]["uid"])
                != live["metadata"]["uid"]
            ):
                raise Refused(
                    409, "Conflict", "the UID in the precondition does not match"
                )
            check_preconditions(live, wanted)
        elif verb == "create":
            after = created(resource, key, live, body, query)
        else:
            after = patched(
                live, body, query, request.headers.get("content-type", ""), part
            )
            check_preconditions(live, body.get("metadata") or {})
        content = live if verb == "delete" else with_defaults(resource.plural, after)
        for webhook in hub.webhooks:
            if reason := webhook(verb, resource.plural, content or {}):
                raise Refused(
                    403,
                    "Forbidden",
                    f'admission webhook "vcrp.kb.io" denied the request: {reason}',
                )
    except Refused as refused:
        return answer(refused.code, refused.body)
    if (
        "All" in body.get("dryRun", ())
        if verb == "delete" and body
        else "dryRun" in query
    ):
        return answer(201 if verb == "create" else 200, content)
    if verb == "delete":
        hub.delete(resource.plural, name, key[0])
        return answer(200, status_body(200, "", "deleted") | {"status": "Success"})
    stored = hub.put(resource.plural, content or {})
    return answer(201 if verb == "create" else 200, stored)


def check_preconditions(live: Object | None, wanted: Mapping[str, Any]) -> None:
    if live is None:
        raise Refused(404, "NotFound", "not found")
    metadata = live["metadata"]
    if wanted.get("uid", metadata["uid"]) != metadata["uid"]:
        cause = {
            "field": "metadata.uid",
            "reason": "FieldValueInvalid",
            "message": "field is immutable",
        }
        raise Refused(422, "Invalid", "metadata.uid: field is immutable", [cause])
    if (
        wanted.get("resourceVersion", metadata["resourceVersion"])
        != metadata["resourceVersion"]
    ):
        raise Refused(
            409,
            "Conflict",
            "the object has been modified; please apply your changes to it",
        )


def created(
    resource: "Resource",
    key: tuple[str, str],
    live: Object | None,
    body: Object,
    query: Mapping[str, str],
) -> Object:
    if live is not None:
        raise Refused(
            409, "AlreadyExists", f"{resource.plural} {key[1]!r} already exists"
        )
    after = deepcopy(body)
    entry = managed(query["fieldManager"], "Update", dict.fromkeys(leaves(after)))
    after["metadata"]["managedFields"] = [entry]
    return after


def patched(
    live: Object | None,
    body: Object,
    query: Mapping[str, str],
    content_type: str,
    part: str,
) -> Object:
    if live is None:
        if body.get("metadata", {}).get("uid"):
            message = "uid mismatch: the provided object specified uid x, and no existing object was found"
            raise Refused(409, "Conflict", message)
        raise Refused(404, "NotFound", "not found")
    manager, after = query["fieldManager"], deepcopy(live)
    entries = after["metadata"].setdefault("managedFields", [])
    if "merge-patch" in content_type:
        changed = dict(_patch_leaves(body))
        for path, value in changed.items():
            set_at(after, path, value)
        disown(entries, set(changed), keep=None)
        own(
            entries,
            manager,
            "Update",
            {path for path, value in changed.items() if value is not None},
            part,
        )
        return after
    root = "status" if part else "spec"
    values = {
        path: value
        for path, value in leaves(body).items()
        if path[0] in ("metadata", root)
    }
    conflicts = [
        {
            "reason": "FieldManagerConflict",
            "message": f'conflict with "{entry["manager"]}" using v1beta1',
            "field": "." + ".".join(path),
        }
        for entry in entries
        for path in owned(entry)
        if path in values
        and (entry["manager"], entry["operation"]) != (manager, "Apply")
        and values[path] != value_at(live, path)
    ]
    if conflicts and query.get("force") != "true":
        raise Refused(
            409, "Conflict", f"Apply failed with {len(conflicts)} conflicts", conflicts
        )
    mine = next((entry for entry in entries if is_apply_of(entry, manager, part)), None)
    others = {path for entry in entries if entry is not mine for path in owned(entry)}
    for path in set(owned(mine)) - set(values) - others if mine else ():
        set_at(after, path, None)
    lost = {path for path, value in values.items() if value != value_at(live, path)}
    for path, value in values.items():
        set_at(after, path, value)
    disown(entries, lost, keep=manager)
    entries[:] = [entry for entry in entries if not is_apply_of(entry, manager, part)]
    own(entries, manager, "Apply", set(values), part)
    return after


def with_defaults(plural: str, content: Object) -> Object:
    for path, value in _DEFAULTS.get(plural, {}).items():
        if value_at(content, path) is None:
            set_at(content, path, value)
    return content


# --- managed fields ---


def leaves(content: Mapping[str, Any]) -> dict[Path, Any]:
    """Return the values below labels, annotations, spec and status; a list is one value."""
    roots = [
        ("metadata", "labels"),
        ("metadata", "annotations"),
        ("spec",),
        ("status",),
    ]
    return {
        path: value
        for root in roots
        for path, value in _walk(root, value_at(content, root))
    }


def _walk(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _walk((*path, key), one)
    elif value is not None:
        yield path, value


def _patch_leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _patch_leaves(one, (*path, key))
    elif path[-1] not in ("uid", "resourceVersion"):
        yield path, value


def value_at(content: Any, path: Path) -> Any:
    for key in path:
        content = content.get(key) if isinstance(content, Mapping) else None
    return content


def set_at(content: Object, path: Path, value: Any) -> None:
    for key in path[:-1]:
        content = content.setdefault(key, {})
    if value is None:
        content.pop(path[-1], None)
    else:
        content[path[-1]] = deepcopy(value)


def managed(manager: str, operation: str, paths: Any, part: str = "") -> Object:
    """Return an entry of managedFields that owns these paths."""
    fields: Object = {}
    for path in paths:
        around = fields
        for key in path:
            around = around.setdefault(f"f:{key}", {})
    entry = {
        "manager": manager,
        "operation": operation,
        "time": AT,
        "fieldsType": "FieldsV1",
    }
    return {**entry, "fieldsV1": fields, **({"subresource": part} if part else {})}


def owned(entry: Mapping[str, Any]) -> list[Path]:
    def walk(fields: Mapping[str, Any], path: Path) -> Iterator[Path]:
        for key, inner in fields.items():
            place = (*path, key[2:])
            if inner:
                yield from walk(inner, place)
            else:
                yield place

    return list(walk(entry.get("fieldsV1") or {}, ()))


def is_apply_of(entry: Mapping[str, Any], manager: str, part: str) -> bool:
    return (entry["manager"], entry["operation"], entry.get("subresource", "")) == (
        manager,
        "Apply",
        part,
    )


def disown(entries: list[Object], paths: set[Path], *, keep: str | None) -> None:
    for entry in entries:
        if keep is None or entry["manager"] != keep or entry["operation"] != "Apply":
            left = [
                path
                for path in owned(entry)
                if not any(path[: len(one)] == one for one in paths)
            ]
            entry["fieldsV1"] = managed("", "", left)["fieldsV1"]
    entries[:] = [entry for entry in entries if entry["fieldsV1"]]


def own(
    entries: list[Object], manager: str, operation: str, paths: set[Path], part: str
) -> None:
    if paths:
        entries.append(managed(manager, operation, sorted(paths), part))
