"""Objects of the hub: which fields are dropped before they are stored, and hiding of Secret values."""

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

from fleetui.apimachinery.errors import FieldError, InvalidManifest, Keys, format_path
from fleetui.apimachinery.kinds import CLUSTER_OVERRIDE_KIND, ENVELOPE_KINDS, OVERRIDE_KIND, is_envelope

HIDDEN = "(hidden)"
HIDDEN_AND_CHANGED = "(hidden, changed)"
_SECRET = "Secret"  # noqa: S105 -- a kind
_REACHING = (_SECRET, "Namespace", *ENVELOPE_KINDS)
"""Kinds that an override selects to change a Secret."""
_FIELDS = ("data", "stringData")
_COPY = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation that repeats the whole object."""
_COPY_IN_PATH = _COPY.replace("/", "~1")
_ANNOTATIONS = ["metadata", "annotations"]
_SELECTORS = {CLUSTER_OVERRIDE_KIND: "clusterResourceSelectors", OVERRIDE_KIND: "resourceSelectors"}
_ABSENT = object()


def without_secrets(content: Any, before: Any = None) -> Any:
    """Return a manifest with secret values hidden; keys stay, and values that differ from `before` are
    marked.

    That is a Secret, also inside an envelope, or an override whose patches may reach one. Anything else comes
    back as it is.
    """
    if not isinstance(content, Mapping):
        return content
    older = _mapping(before)
    if content.get("kind") == _SECRET:
        fields = {field: _hidden(content[field], older.get(field)) for field in _FIELDS if field in content}
        return {**content, **_metadata(content), **fields}

    if is_envelope(content.get("apiVersion"), content.get("kind")) and isinstance(
        content.get("data"), Mapping
    ):
        earlier = _mapping(older.get("data"))
        wrapped = {key: without_secrets(one, earlier.get(key)) for key, one in content["data"].items()}
        return {**content, **_metadata(content), "data": wrapped}

    field = _SELECTORS.get(str(content.get("kind")))
    selected = _items(_mapping(content.get("spec")).get(field)) if field else []
    reaches_secrets = any(_mapping(one).get("kind") in _REACHING for one in selected)
    if reaches_secrets:
        policy = _mapping(content["spec"].get("policy"))
        earlier = _mapping(_mapping(older.get("spec")).get("policy"))
        rules = [_rule(*pair) for pair in _pairs(policy.get("overrideRules"), earlier.get("overrideRules"))]
        spec = {**content["spec"], "policy": {**policy, "overrideRules": rules}}
        return {**content, **_metadata(content), "spec": spec}

    return content


def refuse_hidden(content: Any) -> None:
    """Raise InvalidManifest for a manifest that was read with hidden values, which would replace them."""
    hidden = [] if without_secrets(content) is content else _hidden_in(content, ())
    message, allowed = "the value was hidden when the manifest was read", "the value itself, or no such key"
    if errors := [FieldError(format_path(place), "hidden-value", message, allowed) for place in hidden]:
        raise InvalidManifest(errors)


def _hidden_in(value: Any, place: Keys) -> Iterator[Keys]:
    if value in (HIDDEN, HIDDEN_AND_CHANGED):
        yield place
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _hidden_in(inner, (*place, str(key)))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _hidden_in(inner, (*place, index))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _hidden(values: Any, before: Any) -> Any:
    if not isinstance(values, Mapping):
        return _mark(values, _ABSENT if before is None else before)
    older = _mapping(before)
    return {key: _mark(value, older.get(key, _ABSENT)) for key, value in values.items()}


def _mark(value: Any, before: Any) -> str:
    if value in (HIDDEN, HIDDEN_AND_CHANGED):
        return str(value)
    return HIDDEN if before in (_ABSENT, value) else HIDDEN_AND_CHANGED


def _metadata(content: Mapping[str, Any]) -> dict[str, Any]:
    metadata = content.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    if not isinstance(metadata, Mapping) or not isinstance(annotations, Mapping) or _COPY not in annotations:
        return {}
    return {"metadata": {**metadata, "annotations": {**annotations, _COPY: HIDDEN}}}


def _rule(rule: Any, before: Any) -> Any:
    if not isinstance(rule, Mapping) or "jsonPatchOverrides" not in rule:
        return rule
    pairs = _pairs(rule["jsonPatchOverrides"], _mapping(before).get("jsonPatchOverrides"))
    return {**rule, "jsonPatchOverrides": [_patch(*pair) for pair in pairs]}


def _pairs(after: Any, before: Any) -> list[tuple[Any, Any]]:
    older = _items(before)
    return [(one, older[place] if place < len(older) else None) for place, one in enumerate(_items(after))]


def _patch(patch: Any, before: Any) -> Any:
    if not isinstance(patch, Mapping) or "value" not in patch:
        return patch
    older = _mapping(before)
    same_place = older.get("value", _ABSENT) if older.get("path") == patch.get("path") else _ABSENT
    value = patch["value"]
    parts = str(patch.get("path")).split("/")[1:]
    known = None if same_place is _ABSENT else same_place
    if parts[:1] in ([field] for field in _FIELDS):
        patched = _hidden(value, known)
    elif parts[:2] == _ANNOTATIONS and parts[2:] == [_COPY_IN_PATH]:
        patched = HIDDEN
    elif parts == _ANNOTATIONS and isinstance(value, Mapping) and _COPY in value:
        patched = {**value, _COPY: HIDDEN}
    else:
        patched = value
    return {**patch, "value": patched}


Content: TypeAlias = Mapping[str, Any]
ObjectKey: TypeAlias = tuple[str, str, str, str]


@dataclass(frozen=True)
class HubObject:
    """A Kubernetes object on the hub; its content is the document as written and is never changed."""

    group: str
    version: str
    kind: str
    namespace: str
    name: str
    labels: Mapping[str, str] = field(hash=False)
    content: Content = field(hash=False, repr=False)

    @classmethod
    def of(cls, content: Content) -> "HubObject":
        """Return the object of a manifest that `parse_manifest` has accepted before."""
        group, _, version = content["apiVersion"].rpartition("/")
        metadata = content["metadata"]
        labels = metadata.get("labels") or {}
        namespace = metadata.get("namespace") or ""
        return cls(group, version, content["kind"], namespace, metadata["name"], dict(labels), content)

    @property
    def key(self) -> ObjectKey:
        """Return the identity of the object, which is the same in every API version."""
        return self.group, self.kind, self.namespace, self.name

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def metadata(self) -> Mapping[str, Any]:
        metadata: Mapping[str, Any] = self.content["metadata"]
        return metadata

    @cached_property
    def size(self) -> int:
        """Return the size of the manifest as canonical JSON, in bytes."""
        return len(canonical_json(self.content))

    def __str__(self) -> str:
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.api_version} {self.kind} {place}{self.name}"


def canonical_json(data: object) -> bytes:
    """Write plain data as JSON in the one way that hashes and sizes go by: sorted, compact, UTF-8."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


SERVER_METADATA = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
)
_SERVER_ANNOTATIONS = ("deployment.kubernetes.io/revision", _COPY)
_CONTROLLER_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")
_HEADLESS = "None"


def sanitised(each: HubObject) -> HubObject:
    """Return the object as it is stored in a snapshot and applied to clusters."""
    return replace(each, content=sanitise(each.content))


def sanitise(content: Content) -> dict[str, Any]:
    """Return a copy of a manifest without the fields that its hub manages; labels and finalizers stay."""
    copy = dict(deepcopy(content))
    copy.pop("status", None)
    metadata = _object_at(copy, "metadata")
    _drop(metadata, *SERVER_METADATA)
    _drop(_object_at(metadata, "annotations"), *_SERVER_ANNOTATIONS)
    if not metadata.get("annotations"):
        metadata.pop("annotations", None)
    match copy.get("apiVersion"), copy.get("kind"):
        case "v1", "Service":
            spec = _object_at(copy, "spec")
            if _HEADLESS not in (spec.get("clusterIP"), *_items(spec.get("clusterIPs"))):
                _drop(spec, "clusterIP", "clusterIPs")
            _drop(spec, "healthCheckNodePort")
            for port in _items(spec.get("ports")):
                if isinstance(port, dict):
                    _drop(port, "nodePort")
        case "batch/v1", "Job" if _object_at(copy, "spec").get("manualSelector") is not True:
            # What ties a job to its pods on this hub.
            _drop(_object_at(copy, "spec", "selector", "matchLabels"), *_CONTROLLER_LABELS)
            _drop(_object_at(copy, "spec", "template", "metadata"), "creationTimestamp")
            _drop(_object_at(copy, "spec", "template", "metadata", "labels"), *_CONTROLLER_LABELS)
    return copy


def _drop(fields: dict[str, Any], *names: str) -> None:
    for name in names:
        fields.pop(name, None)


def _object_at(raw: dict[str, Any], *keys: str) -> dict[str, Any]:
    """Return the object at these keys to be changed, or an empty one that belongs to nothing."""
    value: Any = raw
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}
