"""What pages read for their actions on a live hub."""

from dataclasses import dataclass

from clusters.hubs.kinds.base import mapping_at, text_of
from clusters.hubs.kinds.kubefleet import IS_LATEST_APPROVAL
from clusters.hubs.queries import mirrored_objects
from clusters.models import Hub
from clusters.models.hubs import HubIdentity
from placements.services.hub_writes.catalogue import Action
from placements.services.hub_writes.objects import condition_of
from placements.services.hub_writes.staged import ACCEPTED, APPROVED, kind_of


@dataclass(frozen=True, slots=True)
class OpenApproval:
    """A request of a run that is not approved yet."""

    name: str
    stage: str


def open_approvals(hub: Hub, run: str, namespace: str = "") -> list[OpenApproval]:
    """Return the newest requests of a staged update run that are not approved, as the mirror has them."""
    found = []
    for one in mirrored_objects(hub, kind_of("ApprovalRequest", namespace), namespace=namespace):
        spec, metadata = mapping_at(one, "spec"), mapping_at(one, "metadata")
        is_latest = mapping_at(metadata, "labels").get(IS_LATEST_APPROVAL, "true") == "true"
        is_approved = any(condition_of(one, kind).get("status") == "True" for kind in (APPROVED, ACCEPTED))
        if spec.get("parentStageRollout") == run and is_latest and not is_approved:
            found.append(OpenApproval(text_of(metadata.get("name")), text_of(spec.get("targetStage"))))
    return found


def lacking_permission(hub: Hub, action: Action) -> str:
    """Return why the hub would not let the account of the console do an action; "" where it may.

    From the permissions that the watcher reads with every discovery, so without a request. Those of an
    impersonated person are known by a preview only.
    """
    if hub.identity != HubIdentity.SHARED:
        return ""
    for row in hub.found.get("permissions", ()):
        for plural, verb in action.permissions:
            if row["resource"].partition(".")[0] == plural and row["verbs"].get(verb) is False:
                return f"On the hub, the account of the console may not {verb} {row['resource']}."
    return ""
