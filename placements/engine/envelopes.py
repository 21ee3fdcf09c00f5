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
    for manifest in manifests:
        contents += (
            _content(manifest)
            if is_envelope(manifest["apiVersion"], manifest["kind"])
            else (manifest,)
        )
    return tuple(contents)


def _content(envelope: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    data = envelope["data"]
    return (data[key] for key in sorted(data))


def wrapped_identities(objects: Sequence[HubObject]) -> list[list[Any]]:
    """Return the identities of what is in the envelopes among the objects of a snapshot."""
    return [
        [
            hub_object.api_version,
            hub_object.kind,
            hub_object.namespace,
            hub_object.name,
            envelope.kind,
            envelope.name,
        ]
        for envelope in objects
        if is_envelope(envelope.api_version, envelope.kind)
        for hub_object in map(HubObject.of, _content(envelope.content))
    ]


def applied_identities(
    identities: Iterable[Identity], wrapped: Iterable[Identity]
) -> list[Identity]:
    return [
        *(
            identity
            for identity in identities
            if not is_envelope(identity[0], identity[1])
        ),
        *wrapped,
    ]
