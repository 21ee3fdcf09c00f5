"""Selection of overrides for a cluster, and their application (`rules/lifecycle.md#overrides`)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeAlias

import jsonpatch

from clusters.fleet import Cluster, Fleet
from fleetui.apimachinery.errors import InvalidManifest, ManifestWarning
from fleetui.apimachinery.secrets import HubObject, canonical_json
from fleetui.apimachinery.words import full_name
from placements.engine.resource_manifest import parse_hub_object
from placements.engine.scheduling.selectors import match_labels
from placements.manifests.override import (
    ClusterResourceOverride,
    JsonPatch,
    OverrideRule,
    OverrideType,
    PatchOperator,
    ResourceOverride,
)
from placements.manifests.strategy import ApplyStrategy

Override: TypeAlias = ClusterResourceOverride | ResourceOverride
_Key: TypeAlias = tuple[str, str, str, str, str]
_CLUSTER_NAME = "${MEMBER-CLUSTER-NAME}"
_CLUSTER_LABEL = "${MEMBER-CLUSTER-LABEL-KEY-"
_NOT_FOUND = re.compile(r" not found in .*", re.DOTALL)
"""jsonpatch's message about a missing member: it has the whole document, also the data of a Secret."""


@dataclass(frozen=True, slots=True)
class OverrideContent:
    """An immutable, numbered copy of an override, named `<override>-<index>`."""

    name: str
    override: Override

    @property
    def is_for_clusters(self) -> bool:
        return isinstance(self.override, ClusterResourceOverride)

    @property
    def namespace(self) -> str:
        return self.override.namespace

    @property
    def full_name(self) -> str:
        return full_name(self.namespace, self.name)

    @property
    def content_hash(self) -> str:
        return sha256(canonical_json(self.override.spec.to_plain())).hexdigest()


@dataclass(frozen=True, slots=True)
class Overridden:
    """The resources for one cluster; those that are removed for it are in `left_out`."""

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
    snapshots: Iterable[OverrideContent],
    *,
    placement: str,
    cluster: Cluster,
    objects: Sequence[HubObject],
) -> tuple[OverrideContent, ...]:
    """Return the latest snapshots for a placement's resources on a cluster, in the order of applying.

    Those for clusters come first, so that those of a namespace win; each kind is ordered by name.
    """
    by_cluster = applicable_to_each(
        snapshots, placement=placement, fleet=Fleet([cluster]), objects=objects
    )
    return by_cluster.get(cluster.name, ())


def applicable_to_each(
    snapshots: Iterable[OverrideContent],
    *,
    placement: str,
    fleet: Fleet,
    objects: Iterable[HubObject],
) -> dict[str, tuple[OverrideContent, ...]]:
    """Return what `applicable` returns, for every cluster of a fleet to which any snapshot applies."""
    selected = {
        key
        for hub_object in objects
        for key in (_own_key(hub_object), _namespace_key(hub_object))
    }
    concerned = [
        snapshot
        for snapshot in snapshots
        if snapshot.override.placement in ("", placement)
        and not selected.isdisjoint(_selected_keys(snapshot))
    ]
    by_cluster: dict[str, list[OverrideContent]] = {}
    for content in sorted(
        concerned, key=lambda one: (not one.is_for_clusters, one.namespace, one.name)
    ):
        rules = content.override.spec.policy.override_rules
        names = dict.fromkeys(
            name for rule in rules for name in clusters_matching_rule(rule, fleet)
        )
        for name in names:
            by_cluster.setdefault(name, []).append(content)
    return {name: tuple(several) for name, several in by_cluster.items()}


def _own_key(each: HubObject) -> _Key:
    return each.namespace, each.group, each.version, each.kind, each.name


def _namespace_key(each: HubObject) -> _Key:
    """Return what a cluster override has to select for an object: itself, or its namespace."""
    return (
        ("", "", "v1", "Namespace", each.namespace)
        if each.namespace
        else _own_key(each)
    )


def _selected_keys(snapshot: OverrideContent) -> frozenset[_Key]:
    if isinstance(snapshot.override, ClusterResourceOverride):
        selectors = snapshot.override.spec.cluster_resource_selectors
    else:
        selectors = snapshot.override.spec.resource_selectors
    return frozenset(
        (
            snapshot.namespace,
            selector.group,
            selector.version,
            selector.kind,
            selector.name,
        )
        for selector in selectors
    )


def clusters_matching_rule(rule: OverrideRule, fleet: Fleet) -> Sequence[str]:
    """Return the clusters that a rule selects: without a selector none, without terms all."""
    if rule.cluster_selector is None:
        return ()
    terms = rule.cluster_selector.cluster_selector_terms
    if not terms:
        return fleet.names
    masks = [match_labels(term.label_selector, fleet).tolist() for term in terms]
    return [
        name for name, *matches in zip(fleet.names, *masks, strict=True) if any(matches)
    ]


def idle_rule_warnings(override: Override, fleet: Fleet) -> tuple[ManifestWarning, ...]:
    """Return a warning for each rule of an override that selects no cluster of the fleet."""
    warnings = []
    for index, rule in enumerate(override.spec.policy.override_rules):
        message = "no cluster matches: the rule has no effect"
        if rule.cluster_selector is None:
            message = (
                "a rule without a clusterSelector selects no cluster and has no effect"
            )
        elif not len(fleet) or clusters_matching_rule(rule, fleet):
            continue
        path = f"spec.policy.overrideRules[{index}].clusterSelector"
        warnings.append(ManifestWarning("matches-nothing", path, message))
    return tuple(warnings)


def override(
    objects: Iterable[HubObject], snapshots: Sequence[OverrideContent], cluster: Cluster
) -> Overridden | OverrideFailed:
    """Return the resources for one cluster; the snapshots are those that `applicable` returned.

    The objects passed in are not changed. One patch that does not fit fails the whole cluster
    (`rules/lifecycle.md#terms`).
    """
    alone = Fleet([cluster])
    selected_by = [
        (snapshot, _selected_keys(snapshot), number, rule)
        for snapshot in snapshots
        for number, rule in enumerate(snapshot.override.spec.policy.override_rules)
        if clusters_matching_rule(rule, alone)
    ]
    kept: list[HubObject] = []
    left_out: list[HubObject] = []
    for hub_object in objects:
        # A cluster override selects an object directly or by its namespace.
        own, outer = _own_key(hub_object), _namespace_key(hub_object)
        rules = [
            (snapshot, number, rule)
            for snapshot, keys, number, rule in selected_by
            if (outer if snapshot.is_for_clusters else own) in keys
        ]
        changed = apply_rules(hub_object, rules, cluster)
        if isinstance(changed, OverrideFailed):
            return changed
        (left_out if changed is None else kept).append(changed or hub_object)
    return Overridden(tuple(kept), tuple(left_out))


def apply_rules(
    each: HubObject,
    rules: Iterable[tuple[OverrideContent, int, OverrideRule]],
    cluster: Cluster,
) -> HubObject | OverrideFailed | None:
    """Return an object after all rules, None if one leaves it out; the result must be a manifest."""
    for snapshot, number, rule in rules:
        if rule.override_type is OverrideType.DELETE:
            return None
        content = dict(each.content)
        path = f"spec.policy.overrideRules[{number}]"
        try:
            for index, patch in enumerate(rule.json_patch_overrides):
                path = (
                    f"spec.policy.overrideRules[{number}].jsonPatchOverrides[{index}]"
                )
                content = apply_patch(
                    content, patch, replace_variables(patch.value, cluster)
                )
            each = parse_hub_object(content)
        except (PatchError, VariableError, InvalidManifest) as error:
            return OverrideFailed(snapshot.full_name, path, str(each), str(error))
    return each


class VariableError(ValueError):
    """A variable has no end, or names a label that the cluster does not have."""


def replace_variables(value: Any, cluster: Cluster) -> Any:
    """Return a copy of a value with the variables of every text, keys too, replaced.

    See `rules/lifecycle.md#overrides`.

    Variables are the name and the labels of the cluster. Raises VariableError.
    """
    if isinstance(value, str):
        # From left to right; the value of a label is not searched again.
        before, *parts = value.replace(_CLUSTER_NAME, cluster.name).split(
            _CLUSTER_LABEL
        )
        return before + "".join(label_value(part, cluster) for part in parts)
    if isinstance(value, Mapping):
        return {
            replace_variables(key, cluster): replace_variables(item, cluster)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [replace_variables(item, cluster) for item in value]
    return value


def label_value(part: str, cluster: Cluster) -> str:
    """Return a label's value and the text after its variable. Raises VariableError."""
    key, brace, rest = part.partition("}")
    if not brace:
        raise VariableError(
            f"{_CLUSTER_LABEL}… has no closing brace"
        )  # what follows may be a secret
    if key not in cluster.labels:
        raise VariableError(f"the cluster has no label {key}")
    return cluster.labels[key] + rest


class PatchError(ValueError):
    """A patch does not fit the manifest; the text is the reason."""


def apply_patch(
    manifest: Mapping[str, Any], patch: JsonPatch, value: Any
) -> dict[str, Any]:
    """Return a copy of a manifest after one patch (RFC 6902) with this value. Raise PatchError."""
    operation: dict[str, Any] = {"op": patch.op.value, "path": patch.path}
    if patch.op is not PatchOperator.REMOVE:
        operation["value"] = value
    try:
        changed: dict[str, Any] = jsonpatch.apply_patch(dict(manifest), [operation])
    except (
        jsonpatch.JsonPatchException,
        jsonpatch.JsonPointerException,
        TypeError,
        ValueError,
    ) as error:
        raise PatchError(_NOT_FOUND.sub(" not found", str(error))) from error
    return changed


def cluster_version(
    resources: str, snapshots: Iterable[OverrideContent], apply_strategy: ApplyStrategy
) -> str:
    """Return the version of a cluster, as a hash: resource snapshot, overrides and apply strategy.

    See `rules/lifecycle.md#terms`.

    `resources` names a resource snapshot, or is its content hash where equal content is to be one version.
    """
    parts = {
        "resources": resources,
        "overrides": [
            [snapshot.is_for_clusters, snapshot.full_name, snapshot.content_hash]
            for snapshot in snapshots
        ],
        "applyStrategy": apply_strategy.effective().to_plain(),
    }
    return sha256(canonical_json(parts)).hexdigest()
