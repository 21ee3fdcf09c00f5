"""What a Secret holds is shown and written down nowhere but in the object itself, or in what overrides it."""

from collections.abc import Mapping
from typing import Any

from placements.scheduling.door.kinds import CLUSTER_OVERRIDE_KIND, OVERRIDE_KIND

HIDDEN = "(hidden)"
HIDDEN_AND_CHANGED = "(hidden, changed)"
_SECRET, _NAMESPACE = "Secret", "Namespace"
_FIELDS = ("data", "stringData")
_COPY = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation that holds the whole object once more."""
_COPY_IN_PATH = _COPY.replace("/", "~1")
_ANNOTATIONS = ["metadata", "annotations"]
_SELECTORS = {CLUSTER_OVERRIDE_KIND: "clusterResourceSelectors", OVERRIDE_KIND: "resourceSelectors"}
_ABSENT = object()


def without_secrets(content: Any, before: Any = None) -> Any:
    """Give a manifest whose values nobody may read; its keys may be seen, and which changed since `before`.

    That is a Secret, or an override whose patches may reach one. Anything else comes back as it is.
    """
    if not isinstance(content, Mapping):
        return content
    older = _mapping(before)
    if content.get("kind") == _SECRET:
        fields = {field: _hidden(content[field], older.get(field)) for field in _FIELDS if field in content}
        return {**content, **_metadata(content), **fields}
    if _reaches_secrets(content):
        return {**content, **_metadata(content), "spec": _spec(content["spec"], _mapping(older.get("spec")))}
    return content


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
    """Say whether a value changed; what says so already stays."""
    if value in (HIDDEN, HIDDEN_AND_CHANGED):
        return str(value)
    return HIDDEN if before in (_ABSENT, value) else HIDDEN_AND_CHANGED


def _metadata(content: Mapping[str, Any]) -> dict[str, Any]:
    metadata = content.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    if not isinstance(metadata, Mapping) or not isinstance(annotations, Mapping) or _COPY not in annotations:
        return {}
    return {"metadata": {**metadata, "annotations": {**annotations, _COPY: HIDDEN}}}


def _reaches_secrets(content: Mapping[str, Any]) -> bool:
    """Tell whether it overrides a Secret, or a namespace with all that is inside it."""
    spec, field = content.get("spec"), _SELECTORS.get(str(content.get("kind")))
    selected = _items(spec.get(field)) if field and isinstance(spec, Mapping) else []
    return any(_mapping(one).get("kind") in (_SECRET, _NAMESPACE) for one in selected)


def _spec(spec: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    policy, older = _mapping(spec.get("policy")), _mapping(before.get("policy"))
    rules = _pairs(policy.get("overrideRules"), older.get("overrideRules"))
    return {**spec, "policy": {**policy, "overrideRules": [_rule(*pair) for pair in rules]}}


def _rule(rule: Any, before: Any) -> Any:
    if not isinstance(rule, Mapping) or "jsonPatchOverrides" not in rule:
        return rule
    pairs = _pairs(rule["jsonPatchOverrides"], _mapping(before).get("jsonPatchOverrides"))
    return {**rule, "jsonPatchOverrides": [_patch(*pair) for pair in pairs]}


def _pairs(after: Any, before: Any) -> list[tuple[Any, Any]]:
    """Give each item with the one that stood in its place."""
    older = _items(before)
    return [(one, older[place] if place < len(older) else None) for place, one in enumerate(_items(after))]


def _patch(patch: Any, before: Any) -> Any:
    if not isinstance(patch, Mapping) or "value" not in patch:
        return patch
    older = _mapping(before)
    same_place = older.get("value", _ABSENT) if older.get("path") == patch.get("path") else _ABSENT
    return {**patch, "value": _patched(str(patch.get("path")), patch["value"], same_place)}


def _patched(path: str, value: Any, before: Any) -> Any:
    """Hide a value that a patch puts where a Secret holds what nobody may read."""
    parts = path.split("/")[1:]
    known = None if before is _ABSENT else before
    if parts[:1] in ([field] for field in _FIELDS):
        return _hidden(value, known)
    if parts[:2] == _ANNOTATIONS and parts[2:] == [_COPY_IN_PATH]:
        return HIDDEN
    if parts == _ANNOTATIONS and isinstance(value, Mapping) and _COPY in value:
        return {**value, _COPY: HIDDEN}
    return value
