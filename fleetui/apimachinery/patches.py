"""JSON merge patches, as Kubernetes reads them."""

from typing import Any

from fleetui.apimachinery.model import mapping_at


def differ(one: Any, other: Any) -> bool:
    """Return whether two plain values differ; in Python, but not in JSON, true equals 1."""
    return one != other or isinstance(one, bool) is not isinstance(other, bool)


def merged(document: Any, patch: Any) -> Any:
    """Return a document with a JSON merge patch (RFC 7396): null removes, a list is one value."""
    if not isinstance(patch, dict):
        return patch
    fields = dict(mapping_at(document))
    for key, value in patch.items():
        if value is None:
            fields.pop(key, None)
        else:
            fields[key] = merged(fields.get(key), value)
    return fields
