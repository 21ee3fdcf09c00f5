"""Envelopes: resources of the hub whose content is placed instead of them.

See `rules/lifecycle.md#envelopes`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from fleetui.apimachinery.kinds import is_envelope
from fleetui.apimachinery.secrets import HubObject

MOST_WRAPPED = 50
Identity: TypeAlias = Sequence[Any]
"""apiVersion, kind, namespace and name; of a wrapped object also kind and name of its envelope."""


def unwrapped(manifests: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Return manifests as they are applied: the content of each envelope, by key, in its position."""
    contents: list[Mapping[str, Any]] = []
    for one in manifests:
        contents += (
            _content(one) if is_envelope(one["apiVersion"], one["kind"]) else (one,)
        )
    return tuple(contents)


def _content(envelope: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    data = envelope["data"]
    return (data[key] for key in sorted(data))


def wrapped_identities(objects: Sequence[HubObject]) -> list[list[Any]]:
    """Return the identities of what is in the envelopes among the objects of a snapshot."""
    return [
        [one.api_version, one.kind, one.namespace, one.name, each.kind, each.name]
        for each in objects
        if is_envelope(each.api_version, each.kind)
        for one in map(HubObject.of, _content(each.content))
    ]


def applied_identities(
    identities: Iterable[Identity], wrapped: Iterable[Identity]
) -> list[Identity]:
    return [*(one for one in identities if not is_envelope(one[0], one[1])), *wrapped]
