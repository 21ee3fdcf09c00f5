"""Who owns what on a member cluster: the installation and the member that objects and inventories name.

One API server can be joined by several consoles, and by mistake under several names. What is removed has the
owner and the member of the caller; what is from before members had an identity, the inventory proves.
"""

from collections.abc import Mapping
from typing import Any

from clusters.drivers.kubernetes.access import MemberAccess
from clusters.drivers.kubernetes.discovery import ApiClient
from clusters.drivers.kubernetes.targets import MEMBER, OWNER, owner_value

OTHER_HUB, OTHER_MEMBER = "OwnedByAnotherHub", "OwnedByAnotherMember"
NOT_CONFIRMED, SHARED = "RemovalNotConfirmed", "SharedServer"
SYSTEM_NAMESPACE_PATH = "/api/v1/namespaces/kube-system"


def read_cluster_uid(client: ApiClient, *, deadline: float) -> str:
    """Return the UID of the namespace `kube-system`, "" where it may not be read. Raise DriverUnavailable."""
    answer = client.request("GET", SYSTEM_NAMESPACE_PATH, deadline=deadline)
    if answer.status != 200:
        return ""
    return str((answer.body.get("metadata") or {}).get("uid") or "")[:64]


def annotation(live: Mapping[str, Any], name: str) -> str:
    """Return an annotation of a live object; "" without it."""
    annotations = (live.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(name) or "")


def is_of_member(access: MemberAccess, live: Mapping[str, Any]) -> bool:
    """Return whether an object names this member, or none: then it is from before they had an identity."""
    return annotation(live, MEMBER) in access.identity.own_members


def is_ours(access: MemberAccess, live: Mapping[str, Any], placement: str) -> bool:
    return annotation(live, OWNER) == owner_value(
        access.hub_id, placement
    ) and is_of_member(access, live)


def member_name(value: str) -> str:
    """Return the name in the ID of a member."""
    return value.partition("/")[2] or value
