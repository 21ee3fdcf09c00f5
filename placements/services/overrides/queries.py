"""What an override changes, which overrides apply to a placement, and their result for each cluster."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from django.db.models import QuerySet

from clusters.fleet import Cluster
from clusters.queries import current_fleet
from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.secrets import HubObject
from fleetui.apimachinery.words import full_name
from fleetui.bulk import (
    batched,
)
from placements.engine.overrides import (
    OverrideContent,
    OverrideFailed,
    applicable_to_each,
    clusters_matching_rule,
    override,
)
from placements.explain.vocabulary import label_words
from placements.manifests.override import (
    OVERRIDE_PARSERS,
    OverrideRule,
)
from placements.models import (
    Override,
    OverrideSnapshot,
    OverrideTarget,
    ResourceSnapshot,
)

Applying: TypeAlias = Mapping[str, tuple[OverrideSnapshot, ...]]
"""The override snapshots that apply, by cluster; clusters to which none applies are missing."""
Manifests: TypeAlias = tuple[Mapping[str, Any], ...]
TargetKey: TypeAlias = tuple[str, str, str, str, str]
"""Namespace, group, version, kind, name: what an override selects."""
_MOST_NAMESPACES = 500


def applying_to(placement: str, target: ResourceSnapshot | None) -> Applying:
    """Return the latest override snapshots that apply to the resources of a placement, on every cluster.

    One query, without the fleet, if no override names one of the resources.
    """
    if target is None:
        return {}
    candidates = _candidates(placement, target)
    if not candidates:
        return {}
    rows = {(row.kind, str(row)): row for row in candidates}
    # What it selects needs no values of Secrets.
    by_cluster = applicable_to_each(
        (_content_of(row, row.document) for row in candidates),
        placement=placement,
        fleet=current_fleet().fleet,
        objects=list(_identified(target.identities)),
    )
    return {
        cluster: tuple(
            rows[content.override.kind, content.full_name] for content in several
        )
        for cluster, several in by_cluster.items()
    }


def target_keys(identities: Iterable[Sequence[str]]) -> frozenset[TargetKey]:
    """Return what an override may name to concern these resources: themselves, or their namespaces."""
    keys: set[TargetKey] = set()
    for hub_object in _identified(identities):
        keys.add(
            (
                hub_object.namespace,
                hub_object.group,
                hub_object.version,
                hub_object.kind,
                hub_object.name,
            )
        )
        if hub_object.namespace:
            keys.add(("", "", "v1", "Namespace", hub_object.namespace))
    return frozenset(keys)


def _identified(identities: Iterable[Sequence[str]]) -> Iterator[HubObject]:
    for api_version, kind, namespace, name in identities:
        group, _, version = api_version.rpartition("/")
        yield HubObject(group, version, kind, namespace, name, {}, {})


def _candidates(placement: str, target: ResourceSnapshot) -> list[OverrideSnapshot]:
    """Return the latest snapshots of overrides that name a resource of a placement, whatever the cluster."""
    keys = target_keys(target.identities)
    targets = OverrideTarget.objects.filter(
        override__placement_name__in=["", placement]
    )
    namespaces = {key[0] for key in keys} | {""}
    if len(namespaces) <= _MOST_NAMESPACES:
        targets = targets.filter(namespace__in=namespaces)
    columns = ("override_kind", "override__name", *KEY)
    named = {
        (kind, key[0], name)
        for kind, name, *key in targets.values_list(*columns)
        if tuple(key) in keys
    }
    return [
        row
        for part in batched(sorted({name for _, _, name in named}))
        for row in OverrideSnapshot.objects.filter(
            is_latest=True, override_name__in=part
        )
        if (row.kind, row.namespace, row.override_name) in named
    ]


KEY = ("namespace", "group", "version", "kind", "name")


def frozen_of(row: OverrideSnapshot) -> OverrideContent:
    """Return the content of a snapshot with values of Secrets, to be applied to manifests."""
    return _content_of(row, plain_manifest(row.document))


def _content_of(row: OverrideSnapshot, document: Mapping[str, Any]) -> OverrideContent:
    return OverrideContent(row.name, OVERRIDE_PARSERS[row.kind](document))


def overridden(
    manifests: Manifests, snapshots: Sequence[OverrideContent], cluster: Cluster
) -> Manifests | OverrideFailed:
    if not snapshots:
        return manifests
    result = override(map(HubObject.of, manifests), snapshots, cluster)
    if isinstance(result, OverrideFailed):
        return result
    return tuple(hub_object.content for hub_object in result.objects)


MOST_NAMES = 20


@dataclass(frozen=True, slots=True)
class RuleEffect:
    """A rule of an override: which clusters it selects, in words and by name, and its patches."""

    selector: str
    type: str
    patches: tuple[str, ...]
    clusters: tuple[str, ...]
    count: int

    @property
    def more(self) -> int:
        return self.count - len(self.clusters)

    @classmethod
    def of(cls, rule: OverrideRule) -> "RuleEffect":
        names = tuple(clusters_matching_rule(rule, current_fleet().fleet))
        selector = "No clusters"
        if rule.cluster_selector is not None:
            terms = rule.cluster_selector.cluster_selector_terms
            words = " or ".join(label_words(term.label_selector) for term in terms)
            selector = words or "All clusters"
        patches = tuple(
            f"{json_patch_override.op} {json_patch_override.path}"
            for json_patch_override in rule.json_patch_overrides
        )
        return cls(
            selector, str(rule.override_type), patches, names[:MOST_NAMES], len(names)
        )


@dataclass(frozen=True, slots=True)
class OverrideEffects:
    row: Override
    resources: tuple[str, ...]
    rules: tuple[RuleEffect, ...]
    snapshots: tuple[OverrideSnapshot, ...]


def overrides_matching(*, text: str = "", placement: str = "") -> QuerySet[Override]:
    """Return overrides without their manifests; with a placement, those that may change it."""
    rows = Override.objects.defer("document").filter(name__contains=text.lower())
    if placement:
        rows = rows.filter(placement_name__in=("", placement))
    return rows


def effects_of(row: Override) -> OverrideEffects:
    spec = OVERRIDE_PARSERS[row.kind](row.document).spec
    rules = tuple(RuleEffect.of(rule) for rule in spec.policy.override_rules)
    same = OverrideSnapshot.objects.filter(
        kind=row.kind, namespace=row.namespace, override_name=row.name
    )
    return OverrideEffects(
        row,
        tuple(
            f"{resource.kind} {full_name(row.namespace, resource.name)}"
            for resource in spec.selected
        ),
        rules,
        tuple(same.defer("document").order_by("-number")),
    )
