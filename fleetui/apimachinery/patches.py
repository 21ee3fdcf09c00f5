"""JSON merge patches, as Kubernetes reads them."""

from typing import Any


def merged(document: Any, patch: Any) -> Any:
    """Return a document with a JSON merge patch (RFC 7396): null removes, a list is one value."""
    if not isinstance(patch, dict):
        return patch
    fields = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            fields.pop(key, None)
        else:
            fields[key] = merged(fields.get(key), value)
    return fields
