"""The plain form of a cluster, `{name, labels, taints, properties}`, and the MemberCluster made from it."""

from collections.abc import Mapping
from typing import Any

from placements.scheduling.door.kinds import MEMBER_KIND, MEMBER_VERSIONS
from placements.scheduling.faults import Fault, Keys, format_path
from placements.scheduling.fleet import NO_SCHEDULE

PLAIN_FIELDS = ("name", "labels", "taints", "properties", "resourceUsage")
_OF_DOCUMENTS = frozenset({"apiVersion", "kind", "metadata", "spec"})
_PLACES: Mapping[tuple[str, str], str] = {
    ("metadata", "name"): "name",
    ("metadata", "labels"): "labels",
    ("spec", "taints"): "taints",
    ("status", "properties"): "properties",
    ("status", "resourceUsage"): "resourceUsage",
}


def is_plain(data: Any) -> bool:
    """Tell whether an object has the plain form: none of the fields that all documents share."""
    return isinstance(data, dict) and _OF_DOCUMENTS.isdisjoint(data)


def member_document(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Write the MemberCluster of a plain object; what is malformed stays so, for `parse_member` to find."""
    given = {key: value for key, value in plain.items() if value not in (None, {}, [])}
    name = given.get("name")
    labels = {"labels": given["labels"]} if "labels" in given else {}
    taints = {"taints": _with_effects(given["taints"])} if "taints" in given else {}
    status = {}
    if "properties" in given:
        status["properties"] = _with_values(given["properties"])
    if "resourceUsage" in given:
        status["resourceUsage"] = given["resourceUsage"]
    return {
        "apiVersion": MEMBER_VERSIONS[0],
        "kind": MEMBER_KIND,
        "metadata": {"name": name, **labels},
        "spec": {"identity": _identity(name), **taints},
        **({"status": status} if status else {}),
    }


def _identity(name: Any) -> dict[str, str]:
    """Name the account of the member agent, which a plain form leaves open (`spec/lifecycle.md` B.1.6)."""
    return {
        "kind": "ServiceAccount",
        "name": f"fleet-member-{name}",
        "namespace": "fleet-system",
        "apiGroup": "",
    }


def _with_effects(taints: Any) -> Any:
    if not isinstance(taints, list):
        return taints
    return [{"effect": NO_SCHEDULE, **taint} if isinstance(taint, dict) else taint for taint in taints]


def _with_values(properties: Any) -> Any:
    if not isinstance(properties, dict):
        return properties
    return {name: {"value": value} for name, value in properties.items()}


def unknown_fields(plain: Mapping[str, Any]) -> list[Fault]:
    """Refuse the fields that the plain form does not have."""
    allowed = ", ".join(PLAIN_FIELDS)
    message = "is not a field of a cluster in the plain form"
    unknown = (key for key in plain if key not in PLAIN_FIELDS)
    return [Fault(format_path((key,)), "unknown-field", message, allowed) for key in unknown]


def plain_place(keys: Keys) -> Keys:
    """Give where the plain form has what its MemberCluster has at some keys."""
    field = _PLACES.get((str(keys[0]), str(keys[1]))) if len(keys) > 1 else None
    if field is None:
        return keys
    inner = keys[2:3] if field == "properties" else keys[2:]
    return (field, *inner)
