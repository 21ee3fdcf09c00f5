"""Selection of hub objects by the resource selectors of a placement.

See `rules/lifecycle.md#resource-selection`.

Also the exclusion of objects that are never placed, the order of objects in a snapshot
(`rules/lifecycle.md#resource-selection`), and the storage of a selection in parts of bounded size
(`rules/lifecycle.md#snapshots`).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256

from fleetui.apimachinery.errors import (
    ErrorDetail,
    ManifestWarning,
    faults_of,
    format_path,
    split_path,
)
from fleetui.apimachinery.kinds import ENVELOPES, KindScope, scope_of
from fleetui.apimachinery.model import quote_value
from fleetui.apimachinery.secrets import HubObject, ObjectKey, canonical_json
from fleetui.apimachinery.words import names_and_more
from placements.engine.scheduling.selectors import label_requirements, label_test
from placements.manifests.placement import (
    ResourceSelector,
    SelectionScope,
    cluster_scoped_kind_problem,
    is_reserved_namespace,
    namespaced_kind_problem,
    reserved_namespace_problem,
)

_NEVER_PLACED_GROUPS = frozenset(
    {
        "cluster.kubernetes-fleet.io",
        "coordination.k8s.io",
        "events.k8s.io",
        "metrics.k8s.io",
        "placement.kubernetes-fleet.io",
    }
)
_NEVER_PLACED_KINDS = frozenset(
    {
        ("", "Event"),
        ("", "Node"),
        ("", "Pod"),
        ("networking.fleet.azure.com", "ServiceImport"),
        ("networking.fleet.azure.com", "TrafficManagerBackend"),
        ("networking.fleet.azure.com", "TrafficManagerProfile"),
    }
)
_MADE_EVERYWHERE = frozenset(
    {("", "ConfigMap", "kube-root-ca.crt"), ("", "ServiceAccount", "default")}
)
_OWNED = frozenset({("apps", "ReplicaSet"), ("apps", "ControllerRevision")})


def is_ever_placed(group: str, kind: str) -> bool:
    """Return whether objects of a kind can be placed at all (`rules/lifecycle.md#resource-selection`)."""
    return (group, kind) in ENVELOPES or (
        group not in _NEVER_PLACED_GROUPS and (group, kind) not in _NEVER_PLACED_KINDS
    )


def why_left_out(each: HubObject, on_the_hub: Container[ObjectKey]) -> str | None:
    """Return why an object of a placeable kind is never placed, or None."""
    sort = (each.group, each.kind)
    if each.metadata.get("deletionTimestamp"):
        return "it is being deleted"
    if (*sort, each.name) in _MADE_EVERYWHERE:
        return "every cluster creates its own"
    if sort in _OWNED and each.metadata.get("ownerReferences"):
        return "its owner creates it"
    if (
        sort == ("", "Secret")
        and each.content.get("type") == "kubernetes.io/service-account-token"
    ):
        return "it is a service account token of the hub"
    if (
        sort == ("", "Endpoints")
        and ("", "Service", each.namespace, each.name) in on_the_hub
    ):
        return "its service creates it"
    if (
        sort == ("discovery.k8s.io", "EndpointSlice")
        and "endpointslice.kubernetes.io/managed-by" in each.labels
    ):
        return "its manager creates it"
    return None


class Inventory:
    """An index over objects of which no two have the same key."""

    def __init__(self, objects: Iterable[HubObject]) -> None:
        self.by_key: dict[ObjectKey, HubObject] = {
            hub_object.key: hub_object for hub_object in objects
        }
        self._by_place: defaultdict[tuple[str, str, str], list[HubObject]] = (
            defaultdict(list)
        )
        self._by_namespace: defaultdict[str, list[HubObject]] = defaultdict(list)
        self._namespaced: set[tuple[str, str]] = set()
        for hub_object in self.by_key.values():
            self._by_place[
                hub_object.group, hub_object.kind, hub_object.namespace
            ].append(hub_object)
            self._by_namespace[hub_object.namespace].append(hub_object)
            if hub_object.namespace:
                self._namespaced.add((hub_object.group, hub_object.kind))

    def is_namespaced(self, group: str, kind: str) -> bool:
        """Return whether a kind is namespaced; for kinds that are not built in, the objects decide."""
        scope = scope_of(group, kind)
        return (
            (group, kind) in self._namespaced
            if scope is None
            else scope is KindScope.NAMESPACED
        )

    def is_cluster_scoped(self, group: str, kind: str) -> bool:
        """Return whether a kind is not namespaced; one that is not built in and not on the hub may be."""
        scope = scope_of(group, kind)
        return (
            bool(self.of_kind(group, kind))
            if scope is None
            else scope is KindScope.CLUSTER
        )

    def of_kind(
        self, group: str, kind: str, *, namespace: str = "", name: str = ""
    ) -> Sequence[HubObject]:
        """Return the objects of a kind in a namespace, or outside all; with a name, that one if it exists."""
        if name:
            hub_object = self.by_key.get((group, kind, namespace, name))
            return () if hub_object is None else (hub_object,)
        return self._by_place.get((group, kind, namespace), ())

    def inside(self, namespace: str) -> Sequence[HubObject]:
        return self._by_namespace.get(namespace, ())


def is_namespace_selector(selector: ResourceSelector) -> bool:
    return (selector.group, selector.kind) == ("", "Namespace")


def own_namespace(selectors: tuple[ResourceSelector, ...]) -> str | None:
    """Return the namespace from which the other selectors may select namespaced kinds."""
    own = SelectionScope.NAMESPACE_WITH_RESOURCE_SELECTORS
    names = (
        selector.name
        for selector in selectors
        if is_namespace_selector(selector) and selector.selection_scope is own
    )
    return next(names, None)


def matcher(selector: ResourceSelector) -> Callable[[HubObject], bool]:
    """Return the test by name or by labels; kind and version are not checked."""
    if selector.name:
        return lambda each: each.name == selector.name
    tests = [
        label_test(requirement)
        for requirement in label_requirements(selector.label_selector)
    ]
    return lambda each: all(test(each.labels) for test in tests)


_FIRST_TO_LAST = """\
PriorityClass Namespace NetworkPolicy ResourceQuota LimitRange PodDisruptionBudget ServiceAccount Secret
ConfigMap StorageClass PersistentVolume PersistentVolumeClaim CustomResourceDefinition ClusterRole
ClusterRoleBinding Role RoleBinding Service DaemonSet Pod ReplicationController ReplicaSet Deployment
HorizontalPodAutoscaler StatefulSet Job CronJob IngressClass Ingress APIService
MutatingWebhookConfiguration ValidatingWebhookConfiguration
"""
_RANKS = {kind: rank for rank, kind in enumerate(_FIRST_TO_LAST.split())}


def ordered(objects: Iterable[HubObject]) -> tuple[HubObject, ...]:
    """Return objects sorted by the ranking of their kind, unknown kinds last, then by version and name."""
    return tuple(sorted(objects, key=_place))


def _place(each: HubObject) -> tuple[int, str, str]:
    """Return the sort key; group and version, and namespace and name, are compared as one text each."""
    name = f"{each.namespace}/{each.name}"
    if each.kind in _RANKS:
        return _RANKS[each.kind], each.api_version, name
    return len(_RANKS), f"{each.group}/{each.version}, Kind={each.kind}", name


_MOST_NAMES = 50


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected resources, in the order of a snapshot, and warnings about them."""

    objects: tuple[HubObject, ...]
    warnings: tuple[ManifestWarning, ...] = ()


@dataclass(slots=True)
class _Finding:
    """The result of one selector; problems and remarks have places inside the selector."""

    objects: list[HubObject] = field(default_factory=list)
    problems: list[ErrorDetail] = field(default_factory=list)
    remarks: list[ErrorDetail] = field(default_factory=list)

    def remark(self, key: str, code: str, message: str) -> None:
        self.remarks.append(ErrorDetail((key,) if key else (), code, message))


def select(
    selectors: tuple[ResourceSelector, ...],
    objects: Iterable[HubObject],
    *,
    namespace: str = "",
    path: str = "spec.resourceSelectors",
) -> Selection:
    """Return what the selectors of a placement select. Raise InvalidManifest if the selection is invalid.

    That is: an object selected twice, a missing namespace whose resources others select, a namespaced kind
    selected without its namespace, a namespace of the hub itself. A placement in a namespace selects only
    resources of it, and no kind that is cluster-scoped.
    """
    hub, within = Inventory(objects), own_namespace(selectors)
    find = (
        partial(_find_inside, namespace=namespace)
        if namespace
        else partial(_find, within=within)
    )
    findings = [find(selector, hub) for selector in selectors]
    problems = [
        *(
            problem.under(index)
            for index, finding in enumerate(findings)
            for problem in finding.problems
        ),
        *_duplicates(findings, path),
    ]
    if problems:
        raise faults_of(problems, None, path=path)
    remarks = [
        remark.under(index)
        for index, finding in enumerate(findings)
        for remark in finding.remarks
    ]
    outer = split_path(path) if remarks else ()
    return Selection(
        ordered(hub_object for finding in findings for hub_object in finding.objects),
        tuple(
            ManifestWarning(
                remark.code, format_path((*outer, *remark.keys)), remark.message
            )
            for remark in remarks
        ),
    )


def _duplicates(findings: Sequence[_Finding], path: str) -> Iterator[ErrorDetail]:
    owners: dict[ObjectKey, int] = {}
    shared: dict[tuple[int, int], list[HubObject]] = {}
    for index, finding in enumerate(findings):
        for hub_object in finding.objects:
            owner = owners.setdefault(hub_object.key, index)
            if owner != index:
                shared.setdefault((owner, index), []).append(hub_object)
    for (owner, index), twice in shared.items():
        names = names_and_more(map(str, ordered(twice)), 1)
        message = f"Duplicate value: {names}, also selected by {path}[{owner}]"
        yield ErrorDetail((index,), "duplicate", message, "each object selected once")


def _find(selector: ResourceSelector, hub: Inventory, within: str | None) -> _Finding:
    if is_namespace_selector(selector):
        return _find_namespaces(selector, hub)
    finding = _Finding()
    if not is_ever_placed(selector.group, selector.kind):
        message = f"selects nothing: objects of kind {selector.kind} are never placed"
        finding.remark("kind", "never-placed", message)
    elif not hub.is_namespaced(selector.group, selector.kind):
        finding.objects += _matches(selector, hub, "", finding)
    elif within is not None:
        finding.objects += _matches(selector, hub, within, finding)
    else:
        finding.problems.append(namespaced_kind_problem(selector.kind))
    return finding


def _find_inside(
    selector: ResourceSelector, hub: Inventory, *, namespace: str
) -> _Finding:
    finding = _Finding()
    if not is_ever_placed(selector.group, selector.kind):
        message = f"selects nothing: objects of kind {selector.kind} are never placed"
        finding.remark("kind", "never-placed", message)
    elif hub.is_cluster_scoped(selector.group, selector.kind):
        finding.problems.append(cluster_scoped_kind_problem(selector.kind))
    else:
        finding.objects += _matches(selector, hub, namespace, finding)
    return finding


def _matches(
    selector: ResourceSelector, hub: Inventory, place: str, finding: _Finding
) -> list[HubObject]:
    """Return what has the selector's kind, name or labels in a namespace and may be placed."""
    among = hub.of_kind(
        selector.group, selector.kind, namespace=place, name=selector.name
    )
    fits = matcher(selector)
    matching = [hub_object for hub_object in among if fits(hub_object)]
    same_version = [
        hub_object for hub_object in matching if hub_object.version == selector.version
    ]
    if len(same_version) < len(matching):
        versions = Counter(hub_object.api_version for hub_object in matching)
        api_version = f"{selector.group}/{selector.version}".lstrip("/")
        others = ", ".join(
            sorted(version for version in versions if version != api_version)
        )
        count = versions.total() - versions[api_version]
        message = f"skips {count} matching objects of kind {selector.kind}: on the hub in version {others}"
        finding.remark("version", "other-version", message)
    if not selector.name:
        return [
            hub_object
            for hub_object in same_version
            if why_left_out(hub_object, hub.by_key) is None
        ]
    if not matching:
        message = f"{selector.kind} {quote_value(selector.name)} is not on the hub"
        finding.remark("name", "not-on-the-hub", message)
    for hub_object in same_version:
        reason = why_left_out(hub_object, hub.by_key)
        if reason:
            finding.remark("name", "never-placed", f"skips {hub_object}: {reason}")
            return []
    return same_version


def _find_namespaces(selector: ResourceSelector, hub: Inventory) -> _Finding:
    finding = _Finding()
    if selector.name and is_reserved_namespace(selector.name):
        finding.problems.append(reserved_namespace_problem(selector.name))
        return finding
    matching = _matches(selector, hub, "", finding)
    namespaces = [
        hub_object
        for hub_object in matching
        if not is_reserved_namespace(hub_object.name)
    ]
    if len(namespaces) < len(matching):
        reserved = {hub_object.name for hub_object in matching} - {
            namespace.name for namespace in namespaces
        }
        message = f"skips reserved namespaces: {_listing(reserved)}"
        finding.remark("", "reserved-namespace", message)
    finding.objects += namespaces
    match selector.selection_scope:
        case SelectionScope.NAMESPACE_WITH_RESOURCES:
            # Add everything inside the namespaces that may leave the hub.
            inside = [
                hub_object
                for namespace in namespaces
                for hub_object in hub.inside(namespace.name)
            ]
            left_out = {
                hub_object.kind
                for hub_object in inside
                if not is_ever_placed(hub_object.group, hub_object.kind)
            }
            placeable = [
                hub_object
                for hub_object in inside
                if is_ever_placed(hub_object.group, hub_object.kind)
            ]
            finding.objects += [
                hub_object
                for hub_object in placeable
                if why_left_out(hub_object, hub.by_key) is None
            ]
            if left_out:
                message = f"skips kinds that are never placed: {_listing(left_out)}"
                finding.remark("", "never-placed", message)
        case SelectionScope.NAMESPACE_WITH_RESOURCE_SELECTORS if not namespaces:
            # Turn what was remarked about the one namespace into errors: the other selectors depend on it.
            finding.problems += [
                ErrorDetail(
                    remark.keys,
                    "not-on-the-hub",
                    remark.message,
                    "a namespace on the hub",
                )
                for remark in finding.remarks
            ]
    return finding


def _listing(names: Iterable[str]) -> str:
    return names_and_more(sorted(names), _MOST_NAMES)


def concerns(
    selectors: tuple[ResourceSelector, ...],
    changed: Iterable[HubObject],
    *,
    namespace: str = "",
) -> bool:
    """Return whether a change of these objects can change what the selectors of a placement select.

    Pass the objects before and after the change. True may be wrong, False never is.
    """
    within = namespace or own_namespace(selectors)
    objects = tuple(changed)
    return any(_concerns(selector, within, objects) for selector in selectors)


def _concerns(
    selector: ResourceSelector, within: str | None, objects: Sequence[HubObject]
) -> bool:
    if is_namespace_selector(selector):
        # Use a namespace by its name or labels, and what is inside one by that name if there is one.
        # Without a name the labels of the namespace would have to be known: anything inside any counts.
        fits = matcher(selector)
        if any(
            fits(hub_object)
            for hub_object in objects
            if (hub_object.group, hub_object.kind) == ("", "Namespace")
        ):
            return True
        if selector.selection_scope is not SelectionScope.NAMESPACE_WITH_RESOURCES:
            return False
        insides = {
            hub_object.namespace for hub_object in objects if hub_object.namespace
        }
        return any(
            not is_reserved_namespace(inside) and selector.name in ("", inside)
            for inside in insides
        )
    sort, fits = (selector.group, selector.kind), matcher(selector)
    of_kind = [
        hub_object
        for hub_object in objects
        if (hub_object.group, hub_object.kind) == sort
    ]
    match scope_of(*sort):
        case None:
            return bool(
                of_kind
            )  # any of them may be the first to show the scope of the kind
        case KindScope.CLUSTER:
            return any(fits(hub_object) for hub_object in of_kind)
    if sort == (
        "",
        "Endpoints",
    ):  # a service decides whether the endpoints of its name are placed
        of_kind += [
            hub_object
            for hub_object in objects
            if (hub_object.group, hub_object.kind) == ("", "Service")
        ]
        return any(hub_object.namespace == within for hub_object in of_kind)
    return any(
        hub_object.namespace == within and fits(hub_object) for hub_object in of_kind
    )


PART_LIMIT = 800 * 1024


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """Some of the objects of a snapshot, in its order; parts are numbered from 0."""

    index: int
    objects: tuple[HubObject, ...]

    @property
    def size(self) -> int:
        return sum(hub_object.size for hub_object in self.objects)


def parts(
    objects: Iterable[HubObject], *, limit: int = PART_LIMIT
) -> tuple[SnapshotPart, ...]:
    """Return sanitized objects in parts of at most `limit` bytes, in order; a larger object is a part."""
    groups: list[list[HubObject]] = [[]]
    size = 0
    for hub_object in objects:
        if groups[-1] and size + hub_object.size > limit:
            groups.append([])
            size = 0
        groups[-1].append(hub_object)
        size += hub_object.size
    return tuple(
        SnapshotPart(index, tuple(group)) for index, group in enumerate(groups)
    )


def content_hash(objects: Iterable[HubObject]) -> str:
    """Return the SHA-256, in hexadecimal, of sanitized objects as one JSON list."""
    return sha256(
        b"["
        + b",".join(canonical_json(hub_object.content) for hub_object in objects)
        + b"]"
    ).hexdigest()
