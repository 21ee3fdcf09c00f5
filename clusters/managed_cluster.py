"""ManagedCluster objects of Open Cluster Management, as clusters and as its scheduler reads them.

The mapping and its sources: `rules/other-schedulers.md#objects-of-a-hub`.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from clusters.fleet import (
    NO_SCHEDULE,
    AddOnScores,
    Cluster,
    Fleet,
    ManagedObject,
    ResourceUsage,
    Taint,
)
from fleetui.apimachinery.quantity import QuantityError, parse_quantity

_AMOUNTS = ("capacity", "allocatable")
_NO_SELECT = "NoSelect"
_DECIMAL_SUFFIXES = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def parse_managed_cluster(
    document: Mapping[str, Any], scores: Mapping[str, AddOnScores]
) -> Cluster:
    """Return the cluster of an object that its API server has accepted.

    Raise AttributeError, KeyError, TypeError or ValueError for another one.
    """
    metadata = document["metadata"]
    status = document.get("status") or {}
    managed = managed_object(document, scores)
    claims = status.get("clusterClaims") or []
    return Cluster(
        metadata["name"],
        metadata.get("labels") or {},
        managed.taints,
        {claim["name"]: claim["value"] for claim in claims},
        ResourceUsage(*(_amounts(status, name) for name in _AMOUNTS)),
        managed=managed,
    )


def managed_object(
    document: Mapping[str, Any], scores: Mapping[str, AddOnScores]
) -> ManagedObject:
    """Return what a hub has of a cluster, from its object or from {} if it has none.

    Raise AttributeError, KeyError, TypeError or ValueError.
    """
    taints = (document.get("spec") or {}).get("taints") or []
    return ManagedObject(document, scores, tuple(map(_taint, taints)))


def parse_scores(status: Mapping[str, Any]) -> AddOnScores:
    """Return the scores of an AddOnPlacementScore.

    Raise AttributeError, KeyError, TypeError or ValueError.
    """
    end = status.get("validUntil")
    values = {row["name"]: int(row["value"]) for row in status.get("scores") or []}
    return AddOnScores(values, parse_moment(end) if end else None)


def managed_to_plain(managed: ManagedObject) -> dict[str, Any]:
    """Return what a hub has of a cluster as JSON can hold it."""
    scores = {}
    for name, add_on_scores in managed.scores.items():
        end = add_on_scores.valid_until and add_on_scores.valid_until.isoformat()
        scores[name] = {"values": dict(add_on_scores.values), "validUntil": end}
    parts = {"document": managed.document, "scores": scores}
    return {name: part for name, part in parts.items() if part}


def managed_from_plain(plain: Mapping[str, Any] | None) -> ManagedObject | None:
    if not plain:
        return None
    scores = {}
    for name, one in plain.get("scores", {}).items():
        end = one["validUntil"]
        scores[name] = AddOnScores(one["values"], parse_moment(end) if end else None)
    return managed_object(plain.get("document", {}), scores)


def _amounts(status: Mapping[str, Any], name: str) -> dict[str, str]:
    amounts = status.get(name) or {}
    return {resource: str(amount) for resource, amount in amounts.items()}


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
    """Return a cluster as a typed ManagedCluster, as CEL reads it; its labels are those it has here.

    Of a cluster without an object of its own it has name, labels, taints, claims and resources.
    """
    raw = _object_of(cluster)
    metadata = raw.get("metadata") or {}
    spec = raw.get("spec") or {}
    status = raw.get("status") or {}
    typed_spec = {
        **spec,
        "taints": [
            {"timeAdded": None, **_filled(taint)} for taint in spec.get("taints") or []
        ],
    }
    amounts = {
        name: {
            resource: canonical_quantity(amount)
            for resource, amount in _amounts(status, name).items()
        }
        for name in _AMOUNTS
    }
    return {
        "apiVersion": raw.get("apiVersion", ""),
        "kind": raw.get("kind", ""),
        "metadata": _filled(metadata),
        "spec": {
            "hubAcceptsClient": False,
            "leaseDurationSeconds": 0,
            **_filled(typed_spec),
        },
        "status": {
            **_filled({**status, **amounts}),
            "conditions": status.get("conditions"),
            "version": status.get("version") or {},
        },
    }


def documents_digest(fleet: Fleet) -> str:
    """Return the hash of all that an expression may read of the clusters; the fleet keeps it."""
    kept = vars(fleet)
    if "documents_digest" not in kept:
        whole = hashlib.sha256()
        for cluster in fleet.clusters:
            managed = managed_to_plain(cluster.managed or ManagedObject({}))
            facts = [managed_cluster(cluster), managed.get("scores")]
            whole.update(json.dumps(facts, sort_keys=True).encode())
        kept["documents_digest"] = whole.hexdigest()
    return str(kept["documents_digest"])


def _filled(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a map without its empty values, which a typed client leaves out."""
    return {key: item for key, item in value.items() if item not in (None, "", [], {})}


def _object_of(cluster: Cluster) -> Mapping[str, Any]:
    own = {"name": cluster.name, "labels": dict(cluster.labels)}
    if cluster.managed and cluster.managed.document:
        document = cluster.managed.document
        return {**document, "metadata": {**document["metadata"], **own}}
    taints = [
        {"key": taint.key, "value": taint.value, "effect": _NO_SELECT}
        for taint in cluster.taints
    ]
    claims = [
        {"name": name, "value": value} for name, value in cluster.properties.items()
    ]
    return {
        "metadata": own,
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
    if not nano:
        return "0"
    whole, rest = divmod(nano, 10**9)
    if text.endswith("i") and not rest:
        power = _largest_power(whole, 1024, len(_BINARY_SUFFIXES))
        return f"{whole // 1024**power}{_BINARY_SUFFIXES[power]}"
    power = _largest_power(nano, 1000, len(_DECIMAL_SUFFIXES))
    number = nano // 1000**power
    exponent = 3 * power - 9
    is_exponent = text[-1:].isdigit() and "e" in text.lower()
    if is_exponent and exponent:
        return f"{number}e{exponent}"
    return f"{number}{_DECIMAL_SUFFIXES[power]}"


def _largest_power(number: int, base: int, count: int) -> int:
    """Return the largest of the first powers of a base that divides a number."""
    return max(power for power in range(count) if number % base**power == 0)
