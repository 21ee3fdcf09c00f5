"""What an override changes: which resources, on which clusters, of which placements."""

from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from clusters.queries import current_fleet
from fleetui.apimachinery.metadata import full_name
from placements.engine.overrides import clusters_matching_rule
from placements.explain.vocabulary import label_words
from placements.manifests.override import (
    ClusterResourceOverride,
    OverrideRule,
    parse_cluster_override,
    parse_override,
)
from placements.models import Override, OverrideSnapshot

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


@dataclass(frozen=True, slots=True)
class OverrideEffects:
    """An override with its rules, and the resources that it selects."""

    row: Override
    resources: tuple[str, ...]
    rules: tuple[RuleEffect, ...]
    snapshots: tuple[OverrideSnapshot, ...]


def overrides_matching(*, text: str = "", placement: str = "") -> QuerySet[Override]:
    """Return overrides without their manifests; with a placement, those that may change it."""
    rows = Override.objects.defer("document")
    rows = rows.filter(name__contains=text.lower()) if text else rows
    return rows.filter(placement_name__in=("", placement)) if placement else rows


def effects_of(row: Override) -> OverrideEffects:
    """Return what an override changes on the fleet as it is now."""
    is_for_clusters = row.kind == ClusterResourceOverride.__name__
    parsed: Any = (parse_cluster_override if is_for_clusters else parse_override)(row.document)
    spec = parsed.spec
    selected = spec.cluster_resource_selectors if is_for_clusters else spec.resource_selectors
    rules = tuple(_effect_of(one) for one in spec.policy.override_rules)
    same = OverrideSnapshot.objects.filter(kind=row.kind, namespace=row.namespace, override_name=row.name)
    return OverrideEffects(
        row,
        tuple(f"{one.kind} {full_name(row.namespace, one.name)}" for one in selected),
        rules,
        tuple(same.defer("document").order_by("-number")),
    )


def _effect_of(rule: OverrideRule) -> RuleEffect:
    fleet = current_fleet().fleet
    names = tuple(clusters_matching_rule(rule, fleet))
    terms = rule.cluster_selector.cluster_selector_terms if rule.cluster_selector else ()
    words = " or ".join(label_words(one.label_selector) for one in terms)
    selector = words or ("All clusters" if rule.cluster_selector is not None else "No clusters")
    patches = tuple(f"{one.op} {one.path}" for one in rule.json_patch_overrides)
    return RuleEffect(selector, str(rule.override_type), patches, names[:MOST_NAMES], len(names))
