"""Whose objects a write to a live hub would change, for users whose role applies to some labels only."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from django.contrib.auth.models import User

from clusters.models import Hub
from fleetui.access.grants import Team
from fleetui.apimachinery.kinds import CLUSTER_OVERRIDE_KIND, KindScope, scope_of
from fleetui.permissions import Labels, check_boundary, check_change, may_change
from placements.hubs.kinds.base import Manifest, mapping_at, text_of
from placements.hubs.queries import mirrored_object
from placements.hubs.write_requests import KINDS
from placements.hubs.writing.catalogue import HubAction
from placements.hubs.writing.objects import PLACEMENTS
from placements.hubs.writing.planning import WritePlan
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

_LABELLED = (
    *(
        "ClusterResourcePlacement",
        "ResourcePlacement",
        "ClusterResourceOverride",
        "ResourceOverride",
    ),
    *("ClusterStagedUpdateStrategy", "StagedUpdateStrategy"),
)
"""Kinds that have the label of their team themselves."""
_RUNS = {
    "ClusterApprovalRequest": "ClusterStagedUpdateRun",
    "ApprovalRequest": "StagedUpdateRun",
}
_REMOVING = ("abandon-run", "approve", "delete")
"""Actions that place nothing: they need the label only."""


class MirrorFacts(HubFacts):
    """What the mirror has of a live hub: of resources, namespaces at most."""

    def __init__(self, hub: Hub) -> None:
        super().__init__()
        self._hub = hub

    def read_labels(self, group: str, kind: str, name: str) -> Labels | None:
        manifest = mirrored_object(self._hub, group, kind, "", name)
        return None if manifest is None else labels_in(manifest)


def check_plan(hub: Hub, action: HubAction, plan: WritePlan, *, by: User) -> None:
    """Raise NotOfTeamError unless the user may change what the plan changes, as it is and as it will be."""
    if may_change(by, role=action.role) or plan.request is None:
        return
    body = plan.request.body if str(plan.request.verb) == "create" else None
    several = [one for one in (plan.live, plan.manifest, body) if one is not None]
    kind, what = plan.request.kind.kind, f"{plan.request.kind.kind} {plan.request.name}"
    for one in several:
        labels = [
            labels_in(one if kind in _LABELLED else _placement_of(hub, kind, one))
        ]
        if "Override" in kind:
            # What an override patches is not mirrored, so that only one for a placement of the team is known.
            named = text_of(mapping_at(one, "spec", "placement").get("name"))
            labels.append(
                labels_in(_mirrored(hub, "ClusterResourcePlacement", "", named))
            )
        check_change(by, *labels, role=action.role, what=what)
    if not several:
        check_change(by, role=action.role, what=what)
    if action.name in _REMOVING:
        return
    facts = MirrorFacts(hub)
    wanted = [one for one in (plan.manifest, body) if one is not None] or several
    for one in wanted:
        owner = (
            {**one, "kind": kind}
            if kind in _LABELLED
            else _placement_of(hub, kind, one)
        )
        lacks = partial(_missing, manifest=owner, facts=facts)
        check_boundary(by, labels_in(owner), lacks, role=action.role, what=what)


def _missing(team: Team, manifest: Manifest, facts: HubFacts) -> Iterator[str]:
    """Yield what the grant of a team lacks for a placement, an override or a strategy as it will be."""
    kind = text_of(manifest.get("kind"))
    if kind in PLACEMENTS:
        yield from missing_for_placement(
            team, parse_placement(manifest), manifest, facts
        )
        return
    yield from missing_for_namespace(team, manifest, facts)
    if not kind.endswith("Override"):
        return
    override = (
        parse_cluster_override if kind == CLUSTER_OVERRIDE_KIND else parse_override
    )(manifest)
    field = (
        "cluster_resource_selectors"
        if kind == CLUSTER_OVERRIDE_KIND
        else "resource_selectors"
    )
    for one in getattr(override.spec, field):
        pair = (one.group, one.kind)
        is_outside = (
            kind == CLUSTER_OVERRIDE_KIND or scope_of(*pair) is KindScope.CLUSTER
        )
        if pair == NAMESPACE:
            if not facts.owns_namespace(team, one.name):
                yield f"the namespace {one.name}"
        elif (is_outside or one.group in RIGHTS_GROUPS) and not team.has_kind(*pair):
            yield kind_words(*pair)
    yield from missing_for_override(team, override)


def _placement_of(hub: Hub, kind: str, manifest: Manifest) -> Any:
    """Return the placement that an object without a label of its own belongs to; empty without one."""
    metadata, spec = mapping_at(manifest, "metadata"), mapping_at(manifest, "spec")
    namespace = text_of(metadata.get("namespace"))
    if kind in _RUNS:
        run = _mirrored(
            hub, _RUNS[kind], namespace, text_of(spec.get("parentStageRollout"))
        )
        name = text_of(mapping_at(run, "spec").get("placementName"))
    elif kind == "ClusterResourcePlacementDisruptionBudget":
        name = text_of(metadata.get("name"))
    else:
        name = text_of(spec.get("placementName"))
    if not name:
        return {}
    return _mirrored(
        hub,
        "ResourcePlacement" if namespace else "ClusterResourcePlacement",
        namespace,
        name,
    )


def _mirrored(hub: Hub, kind: str, namespace: str, name: str) -> Any:
    return mirrored_object(hub, KINDS[kind].group, kind, namespace, name) or {}
