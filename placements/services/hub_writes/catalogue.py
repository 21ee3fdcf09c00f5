"""The actions that are offered on a live hub, and who may request them (`spec/live-hub.md` 13.1)."""

from collections.abc import Mapping
from dataclasses import dataclass

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.permissions import Role
from placements.services.hub_writes.clusters import plan_cordon, plan_labels, plan_taints, plan_uncordon
from placements.services.hub_writes.disruption import plan_evict
from placements.services.hub_writes.objects import plan_delete, plan_save, plan_scale
from placements.services.hub_writes.planning import Plan
from placements.services.hub_writes.staged import (
    plan_abandon_run,
    plan_approve,
    plan_run_state,
    plan_start_run,
)


@dataclass(frozen=True, slots=True)
class Action:
    """One row of the catalogue; `title` is the label of its button, `verb` ends "permission to …".

    `permissions` are plurals with the verbs that the account needs; none where that depends on the fields.
    """

    name: str
    title: str
    verb: str
    plan: Plan
    role: Role = Role.OPERATOR
    is_destructive: bool = False
    permissions: tuple[tuple[str, str], ...] = ()


_PATCH_MEMBERS = (("memberclusters", "patch"),)
_EVICT = (("clusterresourceplacementevictions", "create"),)
_ACTIONS = (
    Action("save", "Save", "change objects of this hub", plan_save),
    Action("scale", "Scale", "scale placements", plan_scale),
    Action("delete", "Delete", "delete objects of this hub", plan_delete, is_destructive=True),
    Action("labels", "Change labels", "label clusters", plan_labels, permissions=_PATCH_MEMBERS),
    Action("taints", "Change taints", "taint clusters", plan_taints, permissions=_PATCH_MEMBERS),
    Action("cordon", "Cordon", "cordon clusters", plan_cordon, permissions=_PATCH_MEMBERS),
    Action("uncordon", "Uncordon", "uncordon clusters", plan_uncordon, permissions=_PATCH_MEMBERS),
    Action("evict", "Evict", "evict placements", plan_evict, is_destructive=True, permissions=_EVICT),
    Action("start-run", "Start run", "start staged update runs", plan_start_run),
    Action("run-state", "Change state", "run and stop staged update runs", plan_run_state),
    Action("abandon-run", "Abort", "abort staged update runs", plan_abandon_run, is_destructive=True),
    Action("approve", "Approve", "approve stages", plan_approve, Role.APPROVER),
)
ACTIONS: Mapping[str, Action] = {one.name: one for one in _ACTIONS}


def action_named(name: object) -> Action:
    """Return an action. Raise InvalidManifest."""
    if not isinstance(name, str) or name not in ACTIONS:
        message = f"Unsupported value: {str(name)[:80]!r}"
        raise InvalidManifest.of("action", "not-one-of", message, ", ".join(ACTIONS))
    return ACTIONS[name]
