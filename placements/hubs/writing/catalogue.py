"""The actions that are offered on a live hub: what each takes and requires, and who may do it.

See `rules/live-hub.md#actions-on-a-hub`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from django.contrib.auth.models import User

from clusters.models import Hub
from clusters.models.hubs import HubIdentity, HubMode
from fleetui.access.grants import Team
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.kinds import (
    BUDGET_KIND,
    CLUSTER_OVERRIDE_KIND,
    KindScope,
    scope_of,
)
from fleetui.apimachinery.model import mapping_at
from fleetui.permissions import (
    Labels,
    Role,
    check_boundary,
    check_change,
    has_role,
    may_change,
    teams_of,
)
from placements.hubs.kinds.base import Manifest, text_of
from placements.hubs.queries import mirrored_object, mirrored_objects
from placements.hubs.write_requests import KINDS, Verb, kind_of
from placements.hubs.writing.objects import (
    DELETED,
    PLACEMENTS,
    approve,
    change_labels,
    change_state,
    change_taints,
    check_name,
    cordon,
    delete,
    evict,
    is_approved,
    is_replaced,
    save,
    scale,
    start_run,
    uncordon,
)
from placements.hubs.writing.planning import (
    Fields,
    Planner,
    WritePlan,
    check_not_deleting,
    checked_fields,
)
from placements.hubs.writing.sending import (
    IdentityRefusedError,
    WriteAccess,
    requester_on,
)
from placements.manifests.override import parse_cluster_override, parse_override
from placements.manifests.placement import parse_placement
from placements.services.boundary import (
    NAMESPACE,
    RIGHTS_GROUPS,
    HubFacts,
    kind_words,
    missing_for_namespace,
    missing_for_override,
    missing_for_placement,
)
from placements.services.teams import labels_in

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
        "start and pause staged update runs",
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
ACTIONS: Mapping[str, HubAction] = {
    hub_action.name: hub_action for hub_action in _ACTIONS
}


def action_named(name: object) -> HubAction:
    """Return an action. Raise InvalidManifest."""
    if not isinstance(name, str) or name not in ACTIONS:
        message = f"Unsupported value: {str(name)[:80]!r}"
        raise InvalidManifest.of("action", "not-one-of", message, ", ".join(ACTIONS))
    return ACTIONS[name]


@dataclass(frozen=True, slots=True)
class OpenApproval:
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


_LABELLED = frozenset(
    {
        "ClusterResourcePlacement",
        "ResourcePlacement",
        "ClusterResourceOverride",
        "ResourceOverride",
        "ClusterStagedUpdateStrategy",
        "StagedUpdateStrategy",
    }
)
"""Kinds that have the label of their team themselves."""
_REMOVING = ("abandon-run", "approve", "delete")
"""Actions that place nothing: they need the label only."""


class MirrorFacts(HubFacts):
    """What the mirror has of a live hub: of resources, namespaces at most."""

    def __init__(self, hub: Hub) -> None:
        super().__init__()
        self._hub = hub

    def read_labels(
        self,
        group: str,
        kind: str,
        name: str,
    ) -> Labels | None:
        manifest = mirrored_object(self._hub, group, kind, "", name)
        return None if manifest is None else labels_in(manifest)


def check_plan(
    hub: Hub,
    action: HubAction,
    plan: WritePlan,
    *,
    by: User,
) -> None:
    """Raise NotOfTeamError unless the user may change what the plan changes, as it is and as it will be."""
    request, role = plan.request, action.role
    if request is None or may_change(by, role=role):
        return
    kind = request.kind.kind
    what = f"{kind} {request.name}"
    wanted = list(filter(None, [plan.manifest]))
    if request.verb is Verb.CREATE:
        wanted.append(request.body)
    present = list(filter(None, [plan.live]))
    # With neither, nothing shows the label of the team, and the change is refused.
    for manifest in [*present, *wanted] or [{}]:
        labels = [labels_in(_owner_of(hub, kind, manifest))]
        if "Override" in kind:
            # What an override patches is not mirrored, so that only one for a placement of the team is known.
            named = text_of(mapping_at(manifest, "spec", "placement").get("name"))
            placement = _mirrored(hub, "ClusterResourcePlacement", "", named)
            labels.append(labels_in(placement))
        check_change(by, *labels, role=role, what=what)
    if action.name in _REMOVING:
        return
    facts = MirrorFacts(hub)
    for manifest in wanted or present:
        owner = _owner_of(hub, kind, manifest)
        lacks = partial(_missing, manifest=owner, facts=facts)
        check_boundary(by, labels_in(owner), lacks, role=role, what=what)


def _missing(team: Team, manifest: Manifest, facts: HubFacts) -> Iterator[str]:
    """Yield what the grant of a team lacks for a placement, an override or a strategy as it will be."""
    kind = text_of(manifest.get("kind"))
    if kind in PLACEMENTS:
        placement = parse_placement(manifest)
        yield from missing_for_placement(team, placement, manifest, facts)
        return
    yield from missing_for_namespace(team, manifest, facts)
    if not kind.endswith("Override"):
        return
    override: Any
    is_cluster_scoped = kind == CLUSTER_OVERRIDE_KIND
    if is_cluster_scoped:
        override = parse_cluster_override(manifest)
        selectors = override.spec.cluster_resource_selectors
    else:
        override = parse_override(manifest)
        selectors = override.spec.resource_selectors
    for selector in selectors:
        pair = (selector.group, selector.kind)
        is_granted_apart = (
            is_cluster_scoped
            or scope_of(*pair) is KindScope.CLUSTER
            or selector.group in RIGHTS_GROUPS
        )
        if pair == NAMESPACE:
            if not facts.owns_namespace(team, selector.name):
                yield f"the namespace {selector.name}"
        elif is_granted_apart and not team.has_kind(*pair):
            yield kind_words(*pair)
    yield from missing_for_override(team, override)


def _owner_of(hub: Hub, kind: str, manifest: Manifest) -> Any:
    """Return the object whose label says which team a manifest belongs to; empty without one."""
    if kind in _LABELLED:
        return {**manifest, "kind": kind}
    metadata, spec = mapping_at(manifest, "metadata"), mapping_at(manifest, "spec")
    namespace = text_of(metadata.get("namespace"))
    if kind.endswith("ApprovalRequest"):
        run = text_of(spec.get("parentStageRollout"))
        run_kind = kind_of("StagedUpdateRun", namespace)
        spec = mapping_at(_mirrored(hub, run_kind, namespace, run), "spec")
    name = text_of(spec.get("placementName"))
    if kind == BUDGET_KIND:
        name = text_of(metadata.get("name"))
    return _mirrored(hub, kind_of("ResourcePlacement", namespace), namespace, name)


def _mirrored(
    hub: Hub,
    kind: str,
    namespace: str,
    name: str,
) -> Any:
    if not name:
        return {}
    return mirrored_object(hub, KINDS[kind].group, kind, namespace, name) or {}
