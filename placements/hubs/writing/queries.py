"""What pages read for their actions on a live hub."""

from dataclasses import dataclass

from django.contrib.auth.models import User

from clusters.models import Hub
from clusters.models.hubs import HubIdentity, HubMode
from fleetui.apimachinery.model import mapping_at
from fleetui.permissions import has_role, teams_of
from placements.hubs.kinds.base import text_of
from placements.hubs.queries import mirrored_objects
from placements.hubs.write_requests import kind_of
from placements.hubs.writing.catalogue import HubAction
from placements.hubs.writing.identity import (
    IdentityRefusedError,
    requester_on,
)
from placements.hubs.writing.planning import Fields
from placements.hubs.writing.staged import is_approved, is_replaced


@dataclass(frozen=True, slots=True)
class OpenApproval:
    """A request of a run that is not approved yet."""

    name: str
    stage: str


def open_approvals(hub: Hub, run: str, namespace: str = "") -> list[OpenApproval]:
    """Return the newest requests of a staged update run that are not approved, as the mirror has them."""
    approvals = []
    kind = kind_of("ApprovalRequest", namespace)
    for request in mirrored_objects(hub, kind, namespace=namespace):
        spec = mapping_at(request, "spec")
        is_open = not (is_replaced(request) or is_approved(request))
        if is_open and spec.get("parentStageRollout") == run:
            name = text_of(mapping_at(request, "metadata").get("name"))
            approvals.append(OpenApproval(name, text_of(spec.get("targetStage"))))
    return approvals


def refusal_of_write(
    hub: Hub,
    action: HubAction,
    user: User | None,
    fields: Fields,
) -> str:
    """Return why a person may not do an action on a hub now, and who changes that; "" where they may.

    Without a request and without a query but for roles: the watcher reads the permissions of the account with
    every discovery; of an impersonated person, a dry run of the last minute that was forbidden is known.
    """
    if user is None or not (has_role(user, action.role) or teams_of(user, action.role)):
        return (
            f"You don't have permission to {action.verb}. Required role: {action.role}."
        )
    if hub.mode != HubMode.OPERATE:
        return f"Hub {hub.name} is read only. A cluster administrator changes its mode to operate."
    if hub.is_paused:
        return f"Hub {hub.name} is paused. A cluster administrator resumes it."
    access = action.access_to(fields)
    try:
        requester = requester_on(hub, user.get_username(), str(action.role))
    except IdentityRefusedError as error:
        return f"{str(error)[:1].upper()}{str(error)[1:]}."
    reason = access.refusal(hub, requester)
    # The rules that the watcher reads are those of the namespace `default`; others may have more.
    is_covered = not access.kind.is_namespaced or access.namespace == "default"
    if not reason and is_covered and hub.identity == HubIdentity.SHARED:
        for row in hub.found.get("permissions", ()):
            is_same = row["resource"] == access.kind.resource
            if is_same and row["verbs"].get(access.verb) is False:
                reason = access.lacking(requester)
    if not reason:
        return ""
    if hub.identity == HubIdentity.IMPERSONATE:
        group = f"{hub.group_prefix}{action.role}"
        return f"{reason} An administrator of the hub binds a role that allows it to the group {group}."
    return (
        f"{reason} An administrator of the hub applies the manifest that "
        f"manage.py connect_hub --rbac {action.role} prints."
    )
