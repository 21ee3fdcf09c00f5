"""Whose objects a write to a live hub would change, for users whose role applies to some labels only."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from django.contrib.auth.models import User

from clusters.models import Hub
from fleetui.access.grants import Team
from fleetui.apimachinery.kinds import CLUSTER_OVERRIDE_KIND, KindScope, scope_of
from fleetui.apimachinery.model import mapping_at
from fleetui.permissions import Labels, check_boundary, check_change, may_change
from placements.hubs.kinds.base import Manifest, text_of
from placements.hubs.queries import mirrored_object
from placements.hubs.write_requests import KINDS, Verb, kind_of
from placements.hubs.writing.catalogue import HubAction
from placements.hubs.writing.objects import BUDGET, PLACEMENTS
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
    wanted = [plan.manifest] if plan.manifest else []
    if request.verb is Verb.CREATE:
        wanted.append(request.body)
    present = [plan.live] if plan.live else []
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
    for one in selectors:
        pair = (one.group, one.kind)
        is_outside = is_cluster_scoped or scope_of(*pair) is KindScope.CLUSTER
        if pair == NAMESPACE:
            if not facts.owns_namespace(team, one.name):
                yield f"the namespace {one.name}"
        elif (is_outside or one.group in RIGHTS_GROUPS) and not team.has_kind(*pair):
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
    if kind == BUDGET:
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
