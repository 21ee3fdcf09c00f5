"""ManagedCluster objects of Open Cluster Management, as clusters and as its scheduler reads them.

The mapping and its sources: `rules/other-schedulers.md#objects-of-a-hub`.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from clusters.fleet import (
    NO_SCHEDULE,
    AddOnScores,
    Cluster,
    ManagedObject,
    ResourceUsage,
    Taint,
)
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.quantity import QuantityError, parse_quantity

_NO_SELECT = "NoSelect"
_DECIMAL_SUFFIXES = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def parse_managed_cluster(
    document: Mapping[str, Any],
    scores: Mapping[str, AddOnScores] | None = None,
    *,
    path: str = "",
) -> Cluster:
    """Return the cluster of an object that its API server has accepted. Raise InvalidManifest."""
    try:
        metadata = document["metadata"]
        status = document.get("status") or {}
        taints = (document.get("spec") or {}).get("taints") or []
        claims = status.get("clusterClaims") or []
        usage = [
            {name: str(value) for name, value in (status.get(sort) or {}).items()}
            for sort in ("capacity", "allocatable")
        ]
        return Cluster(
            metadata["name"],
            metadata.get("labels") or {},
            tuple(map(_taint, taints)),
            {one["name"]: one["value"] for one in claims},
            ResourceUsage(*usage),
            managed=ManagedObject(document, scores or {}),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidManifest.of(
            path, "bad-format", "Invalid value: must be a ManagedCluster"
        ) from error


def _taint(raw: Mapping[str, Any]) -> Taint:
    effect = raw.get("effect", _NO_SELECT)
    if effect == _NO_SELECT:
        effect = NO_SCHEDULE
    added = raw.get("timeAdded")
    moment = parse_moment(added) if added else None
    return Taint(raw["key"], raw.get("value") or "", effect, moment)


def parse_moment(text: str) -> datetime:
    """Return the moment of an RFC 3339 text. Raise ValueError."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=moment.tzinfo or UTC)


def managed_cluster(cluster: Cluster) -> dict[str, Any]:
    """Return a cluster as a typed ManagedCluster, as CEL reads it.

    Of a cluster without an object of its own it has name, labels, taints, claims and resources.
    """
    raw = cluster.managed.document if cluster.managed else _object_of(cluster)
    metadata = raw.get("metadata") or {}
    spec = raw.get("spec") or {}
    status = raw.get("status") or {}
    taints = spec.get("taints") or []
    conditions = status.get("conditions")
    typed_spec = {
        **spec,
        "hubAcceptsClient": spec.get("hubAcceptsClient", False),
        "leaseDurationSeconds": spec.get("leaseDurationSeconds", 0),
        "taints": [{"timeAdded": None, **_filled(one)} for one in taints],
    }
    typed_status = {
        **status,
        **{
            sort: {
                name: canonical_quantity(str(value))
                for name, value in (status.get(sort) or {}).items()
            }
            for sort in ("capacity", "allocatable")
        },
    }
    return {
        "apiVersion": raw.get("apiVersion", ""),
        "kind": raw.get("kind", ""),
        "metadata": _filled({**metadata}),
        "spec": _filled(typed_spec, kept=("hubAcceptsClient", "leaseDurationSeconds")),
        "status": {
            **_filled(typed_status),
            "conditions": conditions,
            "version": status.get("version") or {},
        },
    }


def _filled(value: Mapping[str, Any], *, kept: Iterable[str] = ()) -> dict[str, Any]:
    """Return a map without its empty values, which a typed client leaves out."""
    return {
        key: item
        for key, item in value.items()
        if key in kept or item not in (None, "", [], {})
    }


def _object_of(cluster: Cluster) -> dict[str, Any]:
    taints = [
        {"key": one.key, "value": one.value, "effect": _NO_SELECT}
        for one in cluster.taints
    ]
    claims = [
        {"name": name, "value": value} for name, value in cluster.properties.items()
    ]
    return {
        "metadata": {"name": cluster.name, "labels": dict(cluster.labels)},
        "spec": {"hubAcceptsClient": True, "taints": taints},
        "status": {
            "clusterClaims": claims,
            "capacity": dict(cluster.usage.capacity),
            "allocatable": dict(cluster.usage.allocatable),
        },
    }


def canonical_quantity(text: str) -> str:
    """Return a quantity as Kubernetes writes it: `1024Mi` as `1Gi`, `0.5` as `500m`; other text as is."""
    try:
        nano = parse_quantity(text).nano
    except QuantityError:
        return text
    whole, rest = divmod(nano, 10**9)
    if text[-1:] == "i" and not rest:
        for suffix in _BINARY_SUFFIXES:
            if whole % 1024 or not whole or suffix == _BINARY_SUFFIXES[-1]:
                return f"{whole}{suffix}"
            whole //= 1024
    is_exponent = text[-1:].isdigit() and "e" in text.lower()
    index = 0
    while nano and nano % 1000 == 0 and index < len(_DECIMAL_SUFFIXES) - 1:
        nano //= 1000
        index += 1
    if not nano:
        return "0"
    exponent = 3 * index - 9
    if is_exponent and exponent:
        return f"{nano}e{exponent}"
    return f"{nano}{_DECIMAL_SUFFIXES[index]}"
