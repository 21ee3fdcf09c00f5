"""Whose objects a write to a live hub would change, for users whose role applies to some labels only."""

from collections.abc import Iterator
from typing import Any

from django.contrib.auth.models import User

from clusters.hubs.kinds.base import Manifest, mapping_at, text_of
from clusters.hubs.queries import mirrored_object
from clusters.hubs.writing.requests import KINDS
from clusters.models import Hub
from fleetui.permissions import FLEET, Labels, check_change, may_change
from placements.services.hub_writes.catalogue import Action
from placements.services.hub_writes.planning import WritePlan
from placements.services.teams import labels_in

_LABELLED = (
    *("ClusterResourcePlacement", "ResourcePlacement", "ClusterResourceOverride", "ResourceOverride"),
    *("ClusterStagedUpdateStrategy", "StagedUpdateStrategy"),
)
"""Kinds that have the label of their team themselves."""
_RUNS = {"ClusterApprovalRequest": "ClusterStagedUpdateRun", "ApprovalRequest": "StagedUpdateRun"}


def check_plan(hub: Hub, action: Action, plan: WritePlan, *, by: User) -> None:
    """Raise NotOfTeamError unless the user may change what the plan changes, as it is and as it will be."""
    if may_change(by, role=action.role) or plan.request is None:
        return
    body = plan.request.body if str(plan.request.verb) == "create" else None
    several = [one for one in (plan.live, plan.manifest, body) if one is not None]
    kind = plan.request.kind.kind
    for one in several:
        labels = tuple(_labels(hub, kind, one))
        check_change(by, *labels, role=action.role, what=f"{kind} {plan.request.name}")
    if not several:
        check_change(by, role=action.role, what=f"{kind} {plan.request.name}")


def _labels(hub: Hub, kind: str, manifest: Manifest) -> Iterator[Labels]:
    """Yield the labels of an object, of the placement that it belongs to, and of what it patches."""
    spec = mapping_at(manifest, "spec")
    namespace = text_of(mapping_at(manifest, "metadata").get("namespace"))
    if kind in _LABELLED:
        yield labels_in(manifest)
        owner = text_of(mapping_at(spec, "placement").get("name"))
        if "Override" not in kind:
            return
        # What an override patches is not mirrored, so that only one for a placement of the team is known.
        yield _placement_labels(hub, owner, "")
    elif kind in _RUNS:
        run = _mirrored(hub, _RUNS[kind], namespace, text_of(spec.get("parentStageRollout")))
        yield _placement_labels(hub, text_of(mapping_at(run, "spec").get("placementName")), namespace)
    elif kind == "ClusterResourcePlacementDisruptionBudget":
        yield _placement_labels(hub, text_of(mapping_at(manifest, "metadata").get("name")), "")
    else:
        name = text_of(spec.get("placementName"))
        yield _placement_labels(hub, name, namespace) if name else FLEET


def _placement_labels(hub: Hub, name: str, namespace: str) -> Labels:
    kind = "ResourcePlacement" if namespace else "ClusterResourcePlacement"
    return labels_in(_mirrored(hub, kind, namespace, name))


def _mirrored(hub: Hub, kind: str, namespace: str, name: str) -> Any:
    return mirrored_object(hub, KINDS[kind].group, kind, namespace, name) or {}
