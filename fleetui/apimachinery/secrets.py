"""Objects of the hub: which fields are dropped before they are stored, and hiding of Secret values."""

import json
import operator
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, repeat
from typing import Any, TypeAlias

from fleetui.apimachinery.errors import FieldError, InvalidManifest, Keys, format_path
from fleetui.apimachinery.kinds import (
    CLUSTER_OVERRIDE_KIND,
    ENVELOPE_KINDS,
    OVERRIDE_KIND,
    api_version_of,
    is_envelope,
)
from fleetui.apimachinery.model import items_at, mapping_at
from fleetui.apimachinery.words import full_name

HIDDEN = "(hidden)"
HIDDEN_AND_CHANGED = "(hidden, changed)"
_SECRET = "Secret"  # noqa: S105 -- a kind
_REACHING = (_SECRET, "Namespace", *ENVELOPE_KINDS)
"""Kinds that an override selects to change a Secret."""
_SHOWN = ("apiVersion", "kind", "metadata")
_SHOWN_OF_A_SECRET = {"type": str, "immutable": bool}
"""Fields of a Secret without values, and their types. All others are hidden, also misspelt ones."""
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
_SHOWN_IN_METADATA = (
    "name",
    "generateName",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    *SERVER_METADATA,
)
_SHOWN_OF_A_PATCH = ("op", "path", "from")
_OF_OTHER_KINDS = ("spec", "rules", "subjects", "roleRef", "webhooks")
"""Fields that an override of a whole Namespace changes in objects that are no Secrets."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation that repeats the whole object."""
_COPIES = (
    LAST_APPLIED,
    "banzaicloud.com/last-applied",
    "kapp.k14s.io/original",
    "objectset.rio.cattle.io/applied",
)
_SHORTEST_VALUE = 6
"""An annotation may repeat a shorter value by chance."""
_SELECTORS = {
    CLUSTER_OVERRIDE_KIND: "clusterResourceSelectors",
    OVERRIDE_KIND: "resourceSelectors",
}
_ABSENT = object()


def without_secrets(content: Any, before: Any = None) -> Any:
    """Return a manifest with secret values hidden; keys stay, and values that differ from `before` are
    marked.

    That is a Secret, also inside an envelope or a list, or an override whose patches may reach one. Anything
    else comes back as it is.
    """
    if not isinstance(content, Mapping):
        return content
    older, kind = mapping_at(before), str(content.get("kind"))
    if is_secret(content):
        return _hidden_secret(content, older)
    if is_envelope(content.get("apiVersion"), kind):
        return _hidden_envelope(content, older)
    if kind.endswith("List") and isinstance(content.get("items"), list):
        return _hidden_list(content, older, kind.removesuffix("List"))
    if kind in _SELECTORS:
        return _hidden_override(content, older, _SELECTORS[kind])
    return content


def is_secret(content: Mapping[str, Any]) -> bool:
    """Return whether a manifest is that of a Secret, of any group and also if it is misspelt."""
    return str(content.get("kind")).casefold() == _SECRET.casefold()


def without_nested_secrets(value: Any) -> Any:
    """Return plain data with the values of all Secrets in it hidden, at any depth."""
    shown = without_secrets(value)
    if shown is not value:
        return shown
    if isinstance(value, Mapping):
        return {key: without_nested_secrets(one) for key, one in value.items()}
    if isinstance(value, list):
        return [without_nested_secrets(one) for one in value]
    return value


def holds_secrets(content: Any) -> bool:
    """Return whether a manifest, or one of a list, has a form without secret values."""
    if isinstance(content, list):
        return any(map(holds_secrets, content))
    return without_secrets(content) is not content


def _hidden_secret(
    content: Mapping[str, Any], older: Mapping[str, Any]
) -> dict[str, Any]:
    hidden = {
        key: _hidden(value, older.get(key))
        for key, value in content.items()
        if _holds_values(key, value)
    }
    metadata = _metadata(content, values=tuple(secret_values(content)))
    return {**content, **hidden, **metadata}


def _holds_values(key: str, value: Any) -> bool:
    """Return whether a field of a Secret may hold its values: not where it has its usual type."""
    return key not in _SHOWN and not isinstance(value, _SHOWN_OF_A_SECRET.get(key, ()))


def _hidden_envelope(
    content: Mapping[str, Any], older: Mapping[str, Any]
) -> dict[str, Any]:
    hidden = {
        key: _hidden(value, older.get(key))
        for key, value in content.items()
        if key not in _SHOWN
    }
    data, before = content.get("data"), mapping_at(older, "data")
    if isinstance(data, Mapping):
        wrapped = {
            name: without_secrets(manifest, before.get(name))
            for name, manifest in data.items()
            if isinstance(manifest, Mapping)
        }
        hidden["data"] |= wrapped
    return {**content, **hidden, **_metadata(content)}


def _hidden_list(
    content: Mapping[str, Any], older: Mapping[str, Any], implied: str
) -> Mapping[str, Any]:
    """Return a list with its items hidden, whose kind may be that of the list."""
    items = []
    for item, before in _pairs(content, older, "items"):
        named = item
        if isinstance(item, Mapping):
            named = {"kind": implied, **item}
        hidden = without_secrets(named, before)
        if hidden is named:
            items.append(item)
        else:
            items.append({key: hidden[key] for key in item})
    if all(map(operator.is_, items, content["items"])):
        return content
    return {**content, **_metadata(content), "items": items}


def _hidden_override(
    content: Mapping[str, Any], older: Mapping[str, Any], selector: str
) -> Mapping[str, Any]:
    """Return an override with its patches hidden where it selects what may reach a Secret."""
    kinds = {mapping_at(one).get("kind") for one in items_at(content, "spec", selector)}
    if kinds.isdisjoint(_REACHING):
        return content
    policy = mapping_at(content, "spec", "policy")
    pairs = _pairs(policy, mapping_at(older, "spec", "policy"), "overrideRules")
    others = _OF_OTHER_KINDS if _SECRET not in kinds else ()
    rules = [_rule(*pair, others) for pair in pairs]
    spec = {**content["spec"], "policy": {**policy, "overrideRules": rules}}
    return {**content, **_metadata(content), "spec": spec}


def secret_values(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values of a Secret as they are written, also those in unknown fields."""
    for key, value in content.items():
        if _holds_values(key, value):
            yield from _texts_in(value)


def _texts_in(value: Any) -> Iterator[str]:
    if value is None:
        yield ""
    elif isinstance(value, (str, int, float)):
        yield str(value)
    elif isinstance(value, Mapping):
        yield from _texts_in(list(value.values()))
    else:
        for inner in value:
            yield from _texts_in(inner)


def refuse_hidden(content: Any) -> None:
    """Raise InvalidManifest for a manifest that was read with hidden values, which would replace them."""
    hidden = hidden_places(content)
    message, allowed = (
        "the value was hidden when the manifest was read",
        "the value itself, or no such key",
    )
    if errors := [
        FieldError(format_path(place), "hidden-value", message, allowed)
        for place in hidden
    ]:
        raise InvalidManifest(errors)


def hidden_places(content: Any) -> list[Keys]:
    """Return where a manifest has the word that stands for a hidden value."""
    if not holds_secrets(content):
        return []
    return list(_hidden_in(content, ()))


def _hidden_in(value: Any, place: Keys) -> Iterator[Keys]:
    if value in (HIDDEN, HIDDEN_AND_CHANGED):
        yield place
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _hidden_in(inner, (*place, str(key)))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _hidden_in(inner, (*place, index))


def _hidden(values: Any, before: Any) -> Any:
    if not isinstance(values, Mapping):
        return _mark(values, _ABSENT if before is None else before)
    older = mapping_at(before)
    return {key: _mark(value, older.get(key, _ABSENT)) for key, value in values.items()}


def _mark(value: Any, before: Any) -> str:
    if value in (HIDDEN, HIDDEN_AND_CHANGED):
        return str(value)
    return HIDDEN if before in (_ABSENT, value) else HIDDEN_AND_CHANGED


def _metadata(
    content: Mapping[str, Any], values: Collection[str] = ()
) -> dict[str, Any]:
    """Return the metadata that is shown, if there is any: without unknown fields, and without copies."""
    if "metadata" not in content:
        return {}
    metadata = content["metadata"]
    if not isinstance(metadata, Mapping):
        return {"metadata": _hidden(metadata, None)}
    shown = _with_only(_SHOWN_IN_METADATA, metadata)
    if "annotations" in shown:
        shown["annotations"] = _annotations(metadata["annotations"], values)
    return {"metadata": shown}


def _with_only(shown: Collection[str], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of which all but these are hidden."""
    return {**fields, **dict.fromkeys(fields.keys() - shown, HIDDEN)}


def _annotations(annotations: Any, values: Collection[str] = ()) -> Any:
    """Return annotations with those hidden that repeat the object, or one of these values."""
    if not isinstance(annotations, Mapping):
        return annotations
    copies = [key for key, text in annotations.items() if _is_copy(key, text, values)]
    return {**annotations, **dict.fromkeys(copies, HIDDEN)}


def _is_copy(key: Any, text: Any, values: Collection[str]) -> bool:
    if not isinstance(text, str):
        return text is not None
    is_object = text.lstrip().startswith(("{", "["))
    repeats = any(len(value) >= _SHORTEST_VALUE and value in text for value in values)
    return key in _COPIES or is_object or repeats


def _rule(rule: Any, before: Any, others: Collection[str]) -> Any:
    if not isinstance(rule, Mapping) or "jsonPatchOverrides" not in rule:
        return rule
    pairs = _pairs(rule, before, "jsonPatchOverrides")
    return {**rule, "jsonPatchOverrides": [_patch(*pair, others) for pair in pairs]}


def _pairs(after: Any, before: Any, key: str) -> Iterator[tuple[Any, Any]]:
    """Yield each item of a list with the one that was in its place before, or None."""
    return zip(
        items_at(after, key), chain(items_at(before, key), repeat(None)), strict=False
    )


def _patch(patch: Any, before: Any, others: Collection[str]) -> Any:
    if not isinstance(patch, Mapping):
        return HIDDEN
    older, path = mapping_at(before), patch.get("path")
    known = older.get("value") if older.get("path") == path else None
    shown = _with_only(_SHOWN_OF_A_PATCH, patch)
    if "value" in patch:
        shown["value"] = _shown_at(str(path), patch["value"], known, others)
    return shown


def hides_value(path: str, value: Any, values: Collection[str]) -> bool:
    """Return whether a value is hidden at this path (JSON Pointer) in a Secret that has these values."""
    return bool(_shown_at(path, value, None, (), values) != value)


def _shown_at(
    path: str,
    value: Any,
    before: Any,
    others: Collection[str],
    values: Collection[str] = (),
) -> Any:
    """Return what is shown of a value that is written to this path of a Secret, or of an object beside it."""
    match path.split("/")[1:]:
        case ["metadata", "annotations", escaped]:
            key = escaped.replace("~1", "/").replace("~0", "~")
            return _annotations({key: value}, values)[key]
        case ["metadata", "annotations"]:
            return _annotations(value, values)
        case ["metadata"]:
            return _metadata({"metadata": value}, values)["metadata"]
        case ["metadata", name, *_] if name in _SHOWN_IN_METADATA:
            return value
        case [name] if isinstance(value, _SHOWN_OF_A_SECRET.get(name, ())):
            return value
        case [name, *_] if name in ("apiVersion", "kind", *others):
            return value
        case [] | [""] if isinstance(value, Mapping):
            return _hidden_secret(value, mapping_at(before))
    return _hidden(value, before)


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
        return cls(
            group,
            version,
            content["kind"],
            metadata.get("namespace") or "",
            metadata["name"],
            dict(labels),
            content,
        )

    @property
    def key(self) -> ObjectKey:
        """Return the identity of the object, which is the same in every API version."""
        return self.group, self.kind, self.namespace, self.name

    @property
    def api_version(self) -> str:
        return api_version_of(self.group, self.version)

    @property
    def metadata(self) -> Mapping[str, Any]:
        metadata: Mapping[str, Any] = self.content["metadata"]
        return metadata

    @cached_property
    def size(self) -> int:
        """Return the size of the manifest as canonical JSON, in bytes."""
        return len(canonical_json(self.content))

    def __str__(self) -> str:
        return f"{self.api_version} {self.kind} {full_name(self.namespace, self.name)}"


def canonical_json(data: object) -> bytes:
    """Write plain data as JSON in the one way that hashes and sizes go by: sorted, compact, UTF-8."""
    return json.dumps(
        data, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    ).encode()


_SERVER_ANNOTATIONS = ("deployment.kubernetes.io/revision", LAST_APPLIED)
_CONTROLLER_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")


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
            if "None" not in (  # it is headless
                spec.get("clusterIP"),
                *items_at(spec, "clusterIPs"),
            ):
                _drop(spec, "clusterIP", "clusterIPs")
            _drop(spec, "healthCheckNodePort")
            for port in items_at(spec, "ports"):
                if isinstance(port, dict):
                    _drop(port, "nodePort")
        case "batch/v1", "Job" if (
            _object_at(copy, "spec").get("manualSelector") is not True
        ):
            # What ties a job to its pods on this hub.
            _drop(
                _object_at(copy, "spec", "selector", "matchLabels"), *_CONTROLLER_LABELS
            )
            _drop(_object_at(copy, "spec", "template", "metadata"), "creationTimestamp")
            _drop(
                _object_at(copy, "spec", "template", "metadata", "labels"),
                *_CONTROLLER_LABELS,
            )
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
