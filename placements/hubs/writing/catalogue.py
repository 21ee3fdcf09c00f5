"""The actions that are offered on a live hub, and who may request them.

See `rules/live-hub.md#actions-on-a-hub`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.permissions import Role
from placements.hubs.kinds.base import mapping_at, text_of
from placements.hubs.write_requests import KINDS
from placements.hubs.writing.clusters import (
    plan_cordon,
    plan_labels,
    plan_taints,
    plan_uncordon,
)
from placements.hubs.writing.disruption import plan_evict
from placements.hubs.writing.identity import HubAccess
from placements.hubs.writing.objects import plan_delete, plan_save, plan_scale
from placements.hubs.writing.planning import Fields, Plan
from placements.hubs.writing.staged import (
    plan_abandon_run,
    plan_approve,
    plan_run_state,
    plan_start_run,
)


@dataclass(frozen=True, slots=True)
class HubAction:
    """One row of the catalogue; `title` is the label of its button, `verb` ends "permission to …".

    `kind` is what it writes, without `Cluster`, and `access` the verb of RBAC that the account needs for it.
    """

    name: str
    title: str
    verb: str
    plan: Plan
    kind: str
    access: str = "patch"
    role: Role = Role.OPERATOR
    is_destructive: bool = False

    def access_to(self, fields: Fields) -> HubAccess:
        """Return what the account of a hub needs; the fields name the object, and may name its kind."""
        manifest = fields.get("manifest")
        metadata = mapping_at(manifest, "metadata") if manifest else fields
        namespace, name = (
            text_of(metadata.get("namespace")),
            text_of(metadata.get("name")),
        )
        kind = text_of((manifest or fields).get("kind"))
        if kind not in KINDS:
            kind = (
                self.kind
                if namespace or f"Cluster{self.kind}" not in KINDS
                else f"Cluster{self.kind}"
            )
        verb = "create" if manifest and not fields.get("base") else self.access
        part = "status" if self.role is Role.APPROVER else ""
        return HubAccess(
            verb, KINDS[kind], part, namespace, "" if verb == "create" else name
        )


_PLACEMENT, _MEMBER, _RUN = "ResourcePlacement", "MemberCluster", "StagedUpdateRun"
_ACTIONS = (
    HubAction("save", "Save", "change objects of this hub", plan_save, _PLACEMENT),
    HubAction("scale", "Scale", "scale placements", plan_scale, _PLACEMENT),
    HubAction(
        *(
            "delete",
            "Delete",
            "delete objects of this hub",
            plan_delete,
            _PLACEMENT,
            "delete",
        ),
        is_destructive=True,
    ),
    HubAction("labels", "Change labels", "label clusters", plan_labels, _MEMBER),
    HubAction("taints", "Change taints", "taint clusters", plan_taints, _MEMBER),
    HubAction("cordon", "Cordon", "cordon clusters", plan_cordon, _MEMBER),
    HubAction("uncordon", "Uncordon", "uncordon clusters", plan_uncordon, _MEMBER),
    HubAction(
        *(
            "evict",
            "Evict",
            "evict placements",
            plan_evict,
            "ClusterResourcePlacementEviction",
            "create",
        ),
        is_destructive=True,
    ),
    HubAction(
        *("start-run", "Start staged update run", "start staged update runs"),
        *(plan_start_run, _RUN, "create"),
    ),
    HubAction(
        "run-state",
        "Change state",
        "run and stop staged update runs",
        plan_run_state,
        _RUN,
    ),
    HubAction(
        *(
            "abandon-run",
            "Abort",
            "abort staged update runs",
            plan_abandon_run,
            _RUN,
            "delete",
        ),
        is_destructive=True,
    ),
    HubAction(
        "approve",
        "Approve",
        "approve stages",
        plan_approve,
        "ApprovalRequest",
        role=Role.APPROVER,
    ),
)
ACTIONS: Mapping[str, HubAction] = {one.name: one for one in _ACTIONS}


def action_named(name: object) -> HubAction:
    """Return an action. Raise InvalidManifest."""
    if not isinstance(name, str) or name not in ACTIONS:
        message = f"Unsupported value: {str(name)[:80]!r}"
        raise InvalidManifest.of("action", "not-one-of", message, ", ".join(ACTIONS))
    return ACTIONS[name]
