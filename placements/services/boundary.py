"""What a change lacks in the grant of a team: namespaces, kinds, clusters, resources (`docs/adr/0024`).

Every generator yields the ends of sentences that begin "The grant of team=blue does not include".
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from clusters.models import ClusterLabel
from fleetui.access.grants import Labels, Team
from fleetui.access.models import TeamGrant
from fleetui.apimachinery.kinds import KindScope, is_envelope, scope_of
from fleetui.apimachinery.model import mapping_at
from fleetui.apimachinery.secrets import HubObject, ObjectKey
from fleetui.hub_scope import current_hub_id
from placements.engine.envelopes import unwrapped
from placements.engine.selection import is_namespace_selector
from placements.manifests.affinity import (
    ClusterSelectorTerm,
    LabelOperator,
    LabelSelector,
)
from placements.manifests.override import ClusterResourceOverride, ResourceOverride
from placements.manifests.placement import (
    ClusterResourcePlacement,
    ResourceSelector,
    is_reserved_namespace,
)
from placements.manifests.policy import PlacementPolicy, PlacementType
from placements.models import Resource

RIGHTS_GROUPS = frozenset({"authorization.openshift.io", "rbac.authorization.k8s.io"})
"""Groups whose namespaced kinds give rights, so that they are granted as cluster-scoped ones are."""
NAMESPACE = ("", "Namespace")
_FIELDS_OF_RIGHTS = frozenset(
    {"data", "groupNames", "roleRef", "rules", "subjects", "userNames"}
)
"""What only RBAC and envelopes have at the top, apart from ConfigMaps and Secrets."""


class HubFacts:
    """What the hub in scope has, as far as it decides about grants; read when it is asked for.

    `written` are the labels that the change itself gives to namespaces.
    """

    def __init__(self, written: Mapping[str, Labels] | None = None) -> None:
        self._written = written or {}
        self._labels: dict[ObjectKey, Labels | None] = {}
        self._outside: dict[tuple[str, str], bool] = {}

    def read_labels(self, group: str, kind: str, name: str) -> Labels | None:
        rows = Resource.objects.filter(group=group, kind=kind, namespace="", name=name)
        labels: Labels | None = rows.values_list("labels", flat=True).first()
        return labels

    def labels_of(self, group: str, kind: str, name: str) -> Labels | None:
        """Return the labels of an object outside of namespaces; None where the hub has none of the name."""
        key = (group, kind, "", name)
        if key not in self._labels:
            self._labels[key] = self.read_labels(group, kind, name)
        return self._labels[key]

    def owns(self, team: Team, group: str, kind: str, name: str) -> bool:
        """Return whether an object outside of namespaces is on the hub with the label of a team."""
        labels = self.labels_of(group, kind, name)
        return labels is not None and team.has(labels)

    def owns_namespace(self, team: Team, name: str) -> bool:
        """Return whether a namespace is of a team: by its label, or by a pattern if it is of no other."""
        labels = self._written.get(name, self.labels_of(*NAMESPACE, name))
        return (labels is not None and team.has(labels)) or self._is_named(
            team, name, labels
        )

    def may_have_namespace(self, team: Team, name: str) -> bool:
        """Return whether a team may have an object of kind Namespace: it is there, or a pattern names it."""
        return self.labels_of(*NAMESPACE, name) is not None or self._is_named(
            team, name, None
        )

    def _is_named(self, team: Team, name: str, labels: Labels | None) -> bool:
        if is_reserved_namespace(name) or not team.names_namespace(name):
            return False
        if labels is None:
            return True
        return team.key not in labels and self._teams.isdisjoint(labels.items())

    @cached_property
    def _teams(self) -> frozenset[tuple[str, str]]:
        grants = TeamGrant.objects.filter(hub=current_hub_id())
        return frozenset(grants.values_list("key", "value"))

    def is_outside(self, group: str, kind: str) -> bool:
        """Return whether the hub has objects of a kind outside of namespaces."""
        key = (group, kind)
        if key not in self._outside:
            self._outside[key] = Resource.objects.filter(
                group=group, kind=kind, namespace=""
            ).exists()
        return self._outside[key]

    @cached_property
    def cluster_labels(self) -> Mapping[str, Labels]:
        by_cluster: dict[str, dict[str, str]] = {}
        for name, key, value in ClusterLabel.objects.values_list(
            "cluster__name", "key", "value"
        ):
            by_cluster.setdefault(name, {})[key] = value
        return by_cluster


def kind_words(group: str, kind: str) -> str:
    return f"the kind {group}/{kind}" if group else f"the kind {kind}"


def missing_for_object(team: Team, one: HubObject, facts: HubFacts) -> Iterator[str]:
    """Yield what is missing for an object on the hub, and for what it wraps if it is an envelope."""
    if (one.group, one.kind) == NAMESPACE:
        if not facts.may_have_namespace(team, one.name):
            yield f"the namespace {one.name}"
        return
    yield from _missing_for_kind(team, one, facts)
    if is_envelope(one.api_version, one.kind):
        for hub_object in map(HubObject.of, unwrapped([one.content])):
            if (hub_object.group, hub_object.kind) != NAMESPACE:
                yield from _missing_for_kind(team, hub_object, facts)
            elif not facts.owns_namespace(team, hub_object.name):
                yield f"the namespace {hub_object.name}"


def _missing_for_kind(team: Team, one: HubObject, facts: HubFacts) -> Iterator[str]:
    if one.namespace and not facts.owns_namespace(team, one.namespace):
        yield f"the namespace {one.namespace}"
    # Of a kind that Kubernetes does not have, the objects on the hub show the scope: a namespaced one among
    # cluster-scoped ones would break the placements that select these.
    is_unknown = scope_of(one.group, one.kind) is None
    is_outside = not one.namespace or (
        is_unknown and facts.is_outside(one.group, one.kind)
    )
    if (is_outside or one.group in RIGHTS_GROUPS) and not team.has_kind(
        one.group, one.kind
    ):
        yield kind_words(one.group, one.kind)


def missing_for_namespace(
    team: Team, document: Mapping[str, Any], facts: HubFacts
) -> Iterator[str]:
    """Yield the namespace that an object of Fleet or Open Cluster Management is in, if it is missing."""
    namespace = mapping_at(document, "metadata").get("namespace")
    if namespace and not facts.owns_namespace(team, str(namespace)):
        yield f"the namespace {namespace}"


def missing_for_placement(
    team: Team,
    manifest: ClusterResourcePlacement,
    document: Mapping[str, Any],
    facts: HubFacts,
) -> Iterator[str]:
    """Yield what is missing for a placement as it will be: what it selects, and where it may place that."""
    yield from missing_for_namespace(team, document, facts)
    if (
        not manifest.namespace
    ):  # in a namespace it selects what is in there, and nothing else
        for selector in manifest.spec.resource_selectors:
            yield from _missing_for_selector(team, selector, facts)
    yield from missing_for_policy(team, manifest.spec.policy, facts)


def _missing_for_selector(
    team: Team, selector: ResourceSelector, facts: HubFacts
) -> Iterator[str]:
    group, kind, name = selector.group, selector.kind, selector.name
    is_namespace = is_namespace_selector(selector)
    if is_namespace and name:
        if not facts.owns_namespace(team, name):
            yield f"the namespace {name}"
        return
    if not is_namespace:
        if scope_of(group, kind) is KindScope.NAMESPACED:
            return  # selected only inside of the one namespace that another selector names
        if not team.has_kind(group, kind):
            yield kind_words(group, kind)
    if name:
        if not facts.owns(team, group, kind, name):
            yield f"{kind} {name} without the label {team}"
    elif not _demands(selector.label_selector, {team.key: frozenset({team.value})}):
        yield f"objects of kind {kind} without the label {team}: select them by this label"


def _demands(
    selector: LabelSelector | None, allowed: Mapping[str, frozenset[str]]
) -> bool:
    """Return whether a selector matches nothing without one of these values of one of these labels."""
    if selector is None:
        return False
    if any(
        value in allowed.get(key, ()) for key, value in selector.match_labels.items()
    ):
        return True
    listed = [
        expression
        for expression in selector.match_expressions
        if expression.operator is LabelOperator.IN and expression.values
    ]
    return any(
        allowed.get(requirement.key, frozenset()).issuperset(requirement.values)
        for requirement in listed
    )


def missing_for_policy(
    team: Team, policy: PlacementPolicy, facts: HubFacts
) -> Iterator[str]:
    """Yield the clusters that a policy may select although the grant does not include them."""
    if not team.clusters:
        return
    granted = ", ".join(team.clusters)
    if policy.placement_type is PlacementType.PICK_FIXED:
        yield from (
            f"the cluster {name} (included: {granted})"
            for name in policy.cluster_names
            if not team.has_cluster(name, facts.cluster_labels.get(name, {}))
        )
        if not policy.cluster_names:
            yield f"all clusters that were selected before: name clusters (included: {granted})"
        return
    terms: Sequence[ClusterSelectorTerm] = policy.required_terms
    if not terms or not all(
        _demands(term.label_selector, team.cluster_labels) for term in terms
    ):
        demand = (
            "require one of these labels in each term of the required cluster affinity"
        )
        if not team.cluster_labels:
            demand = "use placementType PickFixed with these clusters"
        yield f"all clusters that the policy can select (included: {granted}): {demand}"


def missing_for_override(
    team: Team, manifest: ClusterResourceOverride | ResourceOverride
) -> Iterator[str]:
    """Yield what is missing for the patches of an override; its targets are resources of their own.

    An override of a Namespace patches everything in it, also what is applied later, and one of an envelope
    what is wrapped: with these patches it could write any kind.
    """
    if team.has_every_kind:
        return
    patches = (
        override
        for rule in manifest.spec.policy.override_rules
        for override in rule.json_patch_overrides
    )
    firsts = {patch.path.split("/")[1] for patch in patches}
    for resource in manifest.spec.selected:
        if is_envelope(
            f"{resource.group}/{resource.version}", resource.kind
        ) and firsts - {"metadata"}:
            yield f"every kind (*), which patches of {resource.kind} {resource.name} can write"
        elif (
            resource.group,
            resource.kind,
        ) == NAMESPACE and firsts & _FIELDS_OF_RIGHTS:
            fields = ", ".join(sorted(firsts & _FIELDS_OF_RIGHTS))
            yield f"every kind (*), which patches of {fields} in the namespace {resource.name} can write"
