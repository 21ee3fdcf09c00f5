"""Which overrides apply to a cluster, and its resources as they become by them (lifecycle B.1.8, B.4.6)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeAlias

from placements.rollout.json_patches import PatchError, patched
from placements.rollout.variables import VariableError, replaced
from placements.scheduling.door.override_documents import (
    ClusterResourceOverride,
    OverriddenResource,
    OverrideRule,
    OverrideType,
    PlacementScope,
    ResourceOverride,
)
from placements.scheduling.door.strategy import ApplyStrategy
from placements.scheduling.faults import Faults
from placements.scheduling.fleet import Cluster, Fleet
from placements.scheduling.hub.manifest import parse_manifest
from placements.scheduling.hub.objects import HubObject, canonical_json
from placements.scheduling.selectors import match_labels

Override: TypeAlias = ClusterResourceOverride | ResourceOverride


@dataclass(frozen=True, slots=True)
class OverrideSnapshot:
    """An immutable, numbered copy of an override, named `<override>-<index>`."""

    name: str
    override: Override

    @property
    def is_for_clusters(self) -> bool:
        """Tell whether it is a ClusterResourceOverride."""
        return isinstance(self.override, ClusterResourceOverride)

    @property
    def namespace(self) -> str:
        """Give the namespace of a ResourceOverride."""
        return "" if isinstance(self.override, ClusterResourceOverride) else self.override.metadata.namespace

    @property
    def full_name(self) -> str:
        """Give the name that tells it from all others of its kind."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def content_hash(self) -> str:
        """Give the SHA-256 of what it says."""
        return sha256(canonical_json(self.override.spec.to_plain())).hexdigest()


@dataclass(frozen=True, slots=True)
class Overridden:
    """The resources as one cluster gets them; what it does not get is in `left_out`."""

    objects: tuple[HubObject, ...]
    left_out: tuple[HubObject, ...] = ()


@dataclass(frozen=True, slots=True)
class OverrideFailed:
    """Why nothing can be sent to one cluster: the override, the place in it, the resource, what is wrong."""

    snapshot: str
    path: str
    resource: str
    message: str


def applicable(
    snapshots: Iterable[OverrideSnapshot], *, placement: str, cluster: Cluster, objects: Sequence[HubObject]
) -> tuple[OverrideSnapshot, ...]:
    """Give the latest snapshots that concern a placement's resources on a cluster, in the order of applying.

    Those for clusters come first, so that those of a namespace win; each sort goes by name.
    """
    found = applicable_to_each(snapshots, placement=placement, fleet=Fleet([cluster]), objects=objects)
    return found.get(cluster.name, ())


def applicable_to_each(
    snapshots: Iterable[OverrideSnapshot], *, placement: str, fleet: Fleet, objects: Iterable[HubObject]
) -> dict[str, tuple[OverrideSnapshot, ...]]:
    """Give what `applicable` gives for every cluster of a fleet to which any snapshot applies."""
    selected = {key for each in objects for key in (_own_key(each), _namespace_key(each))}
    concerned = [
        one for one in snapshots if _is_for(one, placement) and not selected.isdisjoint(_selected_keys(one))
    ]
    found: dict[str, list[OverrideSnapshot]] = {}
    for one in sorted(concerned, key=lambda one: (not one.is_for_clusters, one.namespace, one.name)):
        for name in _clusters_of(one, fleet):
            found.setdefault(name, []).append(one)
    return {name: tuple(several) for name, several in found.items()}


def _clusters_of(snapshot: OverrideSnapshot, fleet: Fleet) -> Iterable[str]:
    """Give the clusters that some rule is about."""
    names: dict[str, None] = {}
    for rule in snapshot.override.spec.policy.override_rules:
        names |= dict.fromkeys(_matching(rule, fleet))
    return names


def _is_for(snapshot: OverrideSnapshot, placement: str) -> bool:
    """Tell whether an override is for this placement of a whole cluster, or for every one."""
    wanted = snapshot.override.spec.placement
    return wanted is None or (wanted.name == placement and wanted.scope == PlacementScope.CLUSTER)


_Key: TypeAlias = tuple[str, str, str, str, str]


def _own_key(each: HubObject) -> _Key:
    return each.namespace, each.group, each.version, each.kind, each.name


def _namespace_key(each: HubObject) -> _Key:
    """Give what a cluster override has to name for an object: itself, or the namespace that it is in."""
    return ("", "", "v1", "Namespace", each.namespace) if each.namespace else _own_key(each)


def _selected_keys(snapshot: OverrideSnapshot) -> frozenset[_Key]:
    return frozenset(
        (snapshot.namespace, one.group, one.version, one.kind, one.name) for one in _resources(snapshot)
    )


def _resources(snapshot: OverrideSnapshot) -> tuple[OverriddenResource, ...]:
    if isinstance(snapshot.override, ClusterResourceOverride):
        return snapshot.override.spec.cluster_resource_selectors
    return snapshot.override.spec.resource_selectors


def _matching(rule: OverrideRule, fleet: Fleet) -> Iterable[str]:
    """Give the clusters that a rule is about: without a selector none, without terms all."""
    if rule.cluster_selector is None:
        return ()
    terms = rule.cluster_selector.cluster_selector_terms
    if not terms:
        return fleet.names
    masks = [match_labels(term.label_selector, fleet).tolist() for term in terms]
    return [name for name, *matches in zip(fleet.names, *masks, strict=True) if any(matches)]


def override(
    objects: Iterable[HubObject], snapshots: Sequence[OverrideSnapshot], cluster: Cluster
) -> Overridden | OverrideFailed:
    """Give the resources as this cluster gets them; the snapshots are those that `applicable` gave.

    What is handed in stays as it is. One thing that does not fit fails the whole cluster (lifecycle A.1).
    """
    rules = [_Rules.of(one, cluster) for one in snapshots]
    kept: list[HubObject] = []
    left_out: list[HubObject] = []
    for each in objects:
        try:
            found = _overridden(each, rules, cluster)
        except _DoesNotFitError as error:
            return error.why
        (left_out if found is None else kept).append(found or each)
    return Overridden(tuple(kept), tuple(left_out))


class _DoesNotFitError(Exception):
    """A patch does not fit."""

    def __init__(self, why: OverrideFailed) -> None:
        super().__init__(why.message)
        self.why = why


@dataclass(frozen=True, slots=True)
class _Rules:
    """The rules of one snapshot that are about one cluster, with their numbers in the document."""

    snapshot: OverrideSnapshot
    keys: frozenset[_Key]
    rules: tuple[tuple[int, OverrideRule], ...]

    @classmethod
    def of(cls, snapshot: OverrideSnapshot, cluster: Cluster) -> "_Rules":
        numbered = enumerate(snapshot.override.spec.policy.override_rules)
        alone = Fleet([cluster])
        rules = tuple((number, rule) for number, rule in numbered if _matching(rule, alone))
        return cls(snapshot, _selected_keys(snapshot), rules)

    def select(self, each: HubObject) -> bool:
        """Tell whether an object is concerned, by itself or, for a cluster override, by its namespace."""
        key = _namespace_key(each) if self.snapshot.is_for_clusters else _own_key(each)
        return key in self.keys


def _overridden(each: HubObject, several: Iterable[_Rules], cluster: Cluster) -> HubObject | None:
    """Give an object as it becomes, or None if a rule leaves it out."""
    concerned = [one for one in several if one.select(each)]
    found = each
    for one in concerned:
        for number, rule in one.rules:
            if rule.override_type is OverrideType.DELETE:
                return None
            found = _patched(found, one.snapshot, number, rule, cluster)
    return found


def _patched(
    each: HubObject, snapshot: OverrideSnapshot, number: int, rule: OverrideRule, cluster: Cluster
) -> HubObject:
    """Apply the patches of one rule; what comes out has to be a manifest still."""
    content = dict(each.content)
    path = f"spec.policy.overrideRules[{number}]"
    try:
        for index, patch in enumerate(rule.json_patch_overrides):
            path = f"spec.policy.overrideRules[{number}].jsonPatchOverrides[{index}]"
            content = patched(content, patch, replaced(patch.value, cluster))
        return parse_manifest(content)
    except (PatchError, VariableError, Faults) as error:
        raise _DoesNotFitError(OverrideFailed(snapshot.full_name, path, str(each), str(error))) from error


def cluster_version(
    resources: str, snapshots: Iterable[OverrideSnapshot], apply_strategy: ApplyStrategy
) -> str:
    """Give the version of a cluster, as a hash: resource snapshot, overrides and apply strategy (A.1).

    `resources` names a resource snapshot, or is its content hash where equal content is to be one version.
    """
    parts = {
        "resources": resources,
        "overrides": [[one.is_for_clusters, one.full_name, one.content_hash] for one in snapshots],
        "applyStrategy": apply_strategy.to_plain(),
    }
    return sha256(canonical_json(parts)).hexdigest()
