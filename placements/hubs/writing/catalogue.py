"""The actions that are offered on a live hub: what each one takes, changes and requires.

See `rules/live-hub.md#actions-on-a-hub`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.model import mapping_at
from fleetui.permissions import Role
from placements.hubs.kinds.base import Manifest, text_of
from placements.hubs.write_requests import KINDS, kind_of
from placements.hubs.writing.clusters import (
    change_labels,
    change_taints,
    cordon,
    uncordon,
)
from placements.hubs.writing.disruption import evict
from placements.hubs.writing.identity import WriteAccess
from placements.hubs.writing.objects import DELETED, check_name, delete, save, scale
from placements.hubs.writing.planning import (
    Fields,
    Planner,
    WritePlan,
    check_not_deleting,
    checked_fields,
)
from placements.hubs.writing.staged import approve, change_state, start_run

Change = Callable[[Planner, dict[str, Any], Any], WritePlan]


@dataclass(frozen=True, slots=True)
class HubAction:
    """One row of the catalogue; `title` is the label of its button, `verb` ends "permission to …".

    `change` gets the checked fields and the object that they name. `kind` is what it writes, without
    `Cluster`, and `access` the verb of RBAC that the account needs for it.
    """

    name: str
    title: str
    verb: str
    change: Change
    kind: str
    access: str = "patch"
    role: Role = Role.OPERATOR
    required: tuple[str, ...] = ("name",)
    optional: tuple[str, ...] = ()
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    is_destructive: bool = False

    def plan(self, planner: Planner, entered: Fields) -> WritePlan:
        """Return what the action would send.

        Raise InvalidManifest, UnknownObjectError, WriteRefusedError, StaleBaseError.
        """
        fields = checked_fields(
            entered,
            required=self.required,
            optional=self.optional,
            choices=self.choices,
        )
        live = self.object_of(planner, fields)
        plan = self.change(planner, fields, live)
        if self.access != "create":
            plan = replace(plan, live=plan.live or live)
        return replace(plan, fields=fields)

    def object_of(self, planner: Planner, fields: Fields) -> Manifest | None:
        """Return the object that the fields name: for what is created, the placement of it."""
        if "manifest" in fields:
            return None
        namespace = fields.get("namespace", "")
        if self.access == "create":
            kind = kind_of("ResourcePlacement", namespace)
            return planner.read(kind, fields["placement"], namespace)
        kind = fields.get("kind") or kind_of(self.kind, namespace)
        check_name(kind, fields)
        live = planner.read(kind, fields["name"], namespace)
        if self.access == "patch":
            check_not_deleting(live)
        return live

    def access_to(self, fields: Fields) -> WriteAccess:
        """Return what the account of a hub needs; the fields name the object, and may name its kind."""
        manifest = mapping_at(fields, "manifest")
        place = mapping_at(manifest, "metadata") if manifest else fields
        namespace, name = (text_of(place.get(key)) for key in ("namespace", "name"))
        kind = text_of((manifest or fields).get("kind"))
        if kind not in KINDS:
            kind = kind_of(self.kind, namespace)
        is_new = manifest and not fields.get("base")
        verb = "create" if is_new else self.access
        if verb == "create":
            name = ""
        part = "status" if self.role is Role.APPROVER else ""
        return WriteAccess(verb, KINDS[kind], part, namespace, name)


_PLACEMENT, _MEMBER, _RUN = "ResourcePlacement", "MemberCluster", "StagedUpdateRun"
_EVICTION = "ClusterResourcePlacementEviction"
_ACTIONS = (
    HubAction(
        "save",
        "Save",
        "change objects of this hub",
        save,
        _PLACEMENT,
        required=("manifest",),
        optional=("base", "patch"),
    ),
    HubAction(
        "scale",
        "Scale",
        "scale placements",
        scale,
        _PLACEMENT,
        required=("name", "numberOfClusters"),
        optional=("namespace",),
    ),
    HubAction(
        "delete",
        "Delete",
        "delete objects of this hub",
        delete,
        _PLACEMENT,
        "delete",
        required=("kind", "name"),
        optional=("namespace",),
        choices={"kind": DELETED},
        is_destructive=True,
    ),
    HubAction(
        "labels",
        "Change labels",
        "label clusters",
        change_labels,
        _MEMBER,
        required=("name", "labels"),
    ),
    HubAction(
        "taints",
        "Change taints",
        "taint clusters",
        change_taints,
        _MEMBER,
        optional=("taints",),
    ),
    HubAction("cordon", "Cordon", "cordon clusters", cordon, _MEMBER),
    HubAction("uncordon", "Uncordon", "uncordon clusters", uncordon, _MEMBER),
    HubAction(
        "evict",
        "Evict",
        "evict placements",
        evict,
        _EVICTION,
        "create",
        required=("placement", "cluster"),
        optional=("eviction",),
        is_destructive=True,
    ),
    HubAction(
        "start-run",
        "Start staged update run",
        "start staged update runs",
        start_run,
        _RUN,
        "create",
        required=("placement", "strategy"),
        optional=("namespace", "name", "resourceSnapshotIndex", "state"),
        choices={"state": ("Initialize", "Run")},
    ),
    HubAction(
        "run-state",
        "Change state",
        "run and stop staged update runs",
        change_state,
        _RUN,
        required=("name", "state"),
        optional=("namespace",),
        choices={"state": ("Run", "Stop")},
    ),
    HubAction(
        "abandon-run",
        "Abort",
        "abort staged update runs",
        delete,
        _RUN,
        "delete",
        optional=("namespace",),
        is_destructive=True,
    ),
    HubAction(
        "approve",
        "Approve",
        "approve stages",
        approve,
        "ApprovalRequest",
        role=Role.APPROVER,
        optional=("namespace", "comment", "at"),
    ),
)
ACTIONS: Mapping[str, HubAction] = {one.name: one for one in _ACTIONS}


def action_named(name: object) -> HubAction:
    """Return an action. Raise InvalidManifest."""
    if not isinstance(name, str) or name not in ACTIONS:
        message = f"Unsupported value: {str(name)[:80]!r}"
        raise InvalidManifest.of("action", "not-one-of", message, ", ".join(ACTIONS))
    return ACTIONS[name]
