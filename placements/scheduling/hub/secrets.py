"""What a Secret holds is shown and written down nowhere but in the object itself."""

from collections.abc import Mapping
from typing import Any

HIDDEN = "(hidden)"
HIDDEN_AND_CHANGED = "(hidden, changed)"
_FIELDS = ("data", "stringData")
_COPY = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation that holds the whole object once more."""


def without_secrets(content: Any, before: Any = None) -> Any:
    """Give a manifest whose values nobody may read; its keys may be seen, and which changed since `before`.

    What is not a Secret comes back as it is.
    """
    if not isinstance(content, Mapping) or content.get("kind") != "Secret":
        return content
    older = before if isinstance(before, Mapping) else {}
    fields = {field: _hidden(content[field], older.get(field)) for field in _FIELDS if field in content}
    return {**content, **_metadata(content), **fields}


def _hidden(values: Any, before: Any) -> Any:
    if not isinstance(values, Mapping):
        return HIDDEN
    older = before if isinstance(before, Mapping) else {}
    return {
        key: HIDDEN_AND_CHANGED if key in older and older[key] != value else HIDDEN
        for key, value in values.items()
    }


def _metadata(content: Mapping[str, Any]) -> dict[str, Any]:
    metadata = content.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    if not isinstance(metadata, Mapping) or not isinstance(annotations, Mapping) or _COPY not in annotations:
        return {}
    return {"metadata": {**metadata, "annotations": {**annotations, _COPY: HIDDEN}}}
