"""Clusters of other systems as clusters of this fleet: one table of rules, and its reader.

Import, simulations and the page `docs/reference/inventories.md` read the same table. Every value of an
object is used, left out for a reason that the table has, or named in a note.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial, reduce
from itertools import takewhile
from operator import getitem, itemgetter
from typing import Any, TypeAlias

from clusters.fleet import NO_SCHEDULE
from fleetui.apimachinery.errors import Keys, ManifestWarning, format_path
from fleetui.apimachinery.fields import label_value_problem
from fleetui.apimachinery.model import quote_value

Convert: TypeAlias = Callable[["InventoryDraft", str, Keys, Any], None]
ZONES = "topology.kubernetes.io/zones"
ANY = "*"
BELOW = "**"


@dataclass
class InventoryDraft:
    """A cluster in the plain form that is being filled, the place that each value is from, and the notes."""

    plain: dict[str, Any] = field(default_factory=dict)
    places: dict[Keys, Keys] = field(
        default_factory=lambda: {("name",): ("metadata", "name")}
    )
    notes: list[ManifestWarning] = field(default_factory=list)

    def put(self, field_name: str, key: str, value: Any, keys: Keys) -> None:
        """Set an entry of an object, unless it is there: a value of the user is kept, with a note."""
        entries = self.plain
        outer = field_name.split(".")
        for name in outer:
            entries = entries.setdefault(name, {})
        if entries.setdefault(key, value) != value:
            kept = quote_value(entries[key])
            self.note(keys, f"Not used: {field_name} has {key} already, {kept}")
            return
        self.places[*outer, key] = keys

    def note(self, keys: Keys, message: str, code: str = "not-used") -> None:
        self.notes.append(ManifestWarning(code, format_path(keys), message))

    def place_of(self, keys: Keys) -> str:
        """Return the path in the source for some keys of the plain form."""
        for end in range(len(keys), 0, -1):
            if place := self.places.get(keys[:end]):
                return format_path((*place, *keys[end:]))
        return format_path(keys)


@dataclass(frozen=True, slots=True)
class InventoryRule:
    """What becomes of the values at one place; `basis` is the type of the API that has them.

    In `source` a `*` is any key or index, `**` everything below, as a whole. With `fields` the rule reads an
    object with these. Without `convert`, which gets the target, the values are left out, for the reason in
    `words`.
    """

    source: str
    target: str
    words: str
    basis: str
    convert: Convert | None = None
    fields: tuple[str, ...] = ()

    @property
    def pattern(self) -> tuple[str, ...]:
        return tuple(self.source.split("."))


@dataclass(frozen=True, slots=True, eq=False)
class InventoryKind:
    """A kind of cluster of another system; `origin` is the file with the types of its API."""

    group: str
    kind: str
    system: str
    origin: str
    rules: tuple[InventoryRule, ...]


def to_entry(draft: InventoryDraft, target: str, keys: Keys, value: Any) -> None:
    """Use a value at a target `FIELD[KEY]`, or at its own key of a target `FIELD`."""
    field_name, _, key = target.removesuffix("]").partition("[")
    draft.put(field_name, key or str(keys[-1]), value, keys)


def to_named_property(
    draft: InventoryDraft, target: str, keys: Keys, value: Any
) -> None:
    name = value.get("name")
    if isinstance(name, str):
        draft.put(target, name, value.get("value"), keys)
    else:
        draft.note(keys, "Not used: it has no name")


def to_label(draft: InventoryDraft, target: str, keys: Keys, value: Any) -> None:
    if isinstance(value, str) and not label_value_problem(value):
        to_entry(draft, target, keys, value)
        return
    key = target.removeprefix("labels[").removesuffix("]")
    draft.put("properties", key, value, keys)
    draft.note(keys, f"No value of a label: stored as the property {key}")


def to_zone(draft: InventoryDraft, target: str, keys: Keys, value: Any) -> None:
    """Use the only zone as a label; several are one property, since a label has one value."""
    entries = [value] if isinstance(value, str) else value
    names = sorted(
        str(entry.get("name") if isinstance(entry, Mapping) else entry)
        for entry in entries
    )
    if len(names) == 1:
        to_label(draft, target, keys, names[0])
        return
    draft.put("properties", ZONES, ",".join(names), keys)
    draft.note(keys, f"Several zones are no label: stored as the property {ZONES}")


def to_region(draft: InventoryDraft, target: str, keys: Keys, value: Any) -> None:
    if value.get("name") in ("region", "location"):
        to_label(draft, target, keys, value.get("value"))
    else:
        draft.note(keys, f"Not used: variable {quote_value(value.get('name'))}")


def to_taint(
    draft: InventoryDraft,
    target: str,
    keys: Keys,
    value: Any,
    *,
    effects: Mapping[str, str],
) -> None:
    """Use a taint; `effects` are those that become NoSchedule, with a note or ""."""
    effect = str(value.get("effect"))
    if effect not in effects:
        draft.note(keys, f"Taint left out: {quote_value(effect)} has no equal here")
        return
    if effects[effect]:
        draft.note(keys, effects[effect])
    taint = {
        "key": value.get("key"),
        "value": value.get("value") or "",
        "effect": NO_SCHEDULE,
    }
    taints = draft.plain.setdefault(target, [])
    if taint in taints:
        draft.note(keys, "Taint left out: it is there already")
        return
    draft.places[target, len(taints)] = keys
    taints.append(taint)


def note_condition(
    draft: InventoryDraft, _: str, keys: Keys, value: Any, *, health: tuple[str, ...]
) -> None:
    """Note a condition of one of these types that is not True."""
    if value.get("type") in health and value.get("status") != "True":
        message = f"{value['type']} is {value.get('status')}; not used: readiness is observed here"
        draft.note(keys, message, "not-ready")


def note_unless_accepted(draft: InventoryDraft, _: str, keys: Keys, value: Any) -> None:
    if value is not True:
        draft.note(keys, "The other hub does not accept this cluster")


_META = "ObjectMeta"
_UNCONNECTED = "An address without credentials: connect the cluster after the import."
_NAME_AND_VALUE = ("name", "value")


def _left_out(words: str, basis: str, *sources: str) -> Iterator[InventoryRule]:
    yield from (InventoryRule(source, "", words, basis) for source in sources)


_label_rule = partial(
    InventoryRule,
    words="Unless the label is there. What is no value of a label becomes a property, with a note.",
    convert=to_label,
)
_region_rule = partial(_label_rule, target="labels[topology.kubernetes.io/region]")
_zone_rule = partial(_label_rule, target="labels[topology.kubernetes.io/zone]")
_zones_rule = partial(
    _zone_rule,
    words=f"The only one. Several become the property `{ZONES}`, with a note.",
    convert=to_zone,
)
_version_rule = partial(
    InventoryRule,
    target="properties[k8s.io/k8s-version]",
    words="The version of Kubernetes, unless the property is there.",
    convert=to_entry,
)
_properties_rule = partial(
    InventoryRule,
    target="properties",
    words="Each value, by its name.",
    convert=to_named_property,
    fields=_NAME_AND_VALUE,
)
_usage_rule = partial(InventoryRule, words="Each quantity.", convert=to_entry)
_taint_rule = partial(
    InventoryRule, "spec.taints.*", "taints", fields=("key", "value", "effect")
)
_condition_rule = partial(
    InventoryRule,
    "status.conditions.*",
    "",
    basis="Condition",
    fields=(
        "type",
        "status",
        "reason",
        "message",
        "severity",
        "lastTransitionTime",
        "lastUpdateTime",
        "observedGeneration",
    ),
)


_METADATA = (
    *_left_out("Names the kind.", "TypeMeta", "apiVersion", "kind"),
    InventoryRule(
        "metadata.name",
        "name",
        "A valid one is proposed for one that is not.",
        _META,
        lambda draft, _target, _keys, value: draft.plain.update(name=value),
    ),
    InventoryRule("metadata.labels.*", "labels", "Each label.", _META, to_entry),
    *_left_out("Member clusters have no namespace.", _META, "metadata.namespace"),
    *_left_out("Scheduling reads no annotations.", _META, "metadata.annotations.*"),
    InventoryRule(
        "metadata.deletionTimestamp",
        "",
        "A note: the cluster is being deleted.",
        _META,
        lambda draft, _target, keys, _value: draft.note(
            keys, "The cluster is being deleted in the other system"
        ),
    ),
    *_left_out(
        "Written by the other API server.",
        _META,
        "metadata.uid",
        "metadata.resourceVersion",
        "metadata.generation",
        "metadata.creationTimestamp",
        "metadata.selfLink",
        "metadata.generateName",
        "metadata.deletionGracePeriodSeconds",
        "metadata.finalizers.*",
        "metadata.managedFields.**",
        "metadata.ownerReferences.**",
    ),
)
_OCM = InventoryKind(
    "cluster.open-cluster-management.io",
    "ManagedCluster",
    "Open Cluster Management",
    "open-cluster-management-io/api cluster/v1/types.go",
    (
        *_METADATA,
        _taint_rule(
            words="`NoSelectIfNew` becomes `NoSchedule`, which has the same meaning. `NoSelect` does, too, with a"
            " note: what is placed already stays. `PreferNoSelect` is left out, with a note.",
            basis="Taint, TaintEffect",
            convert=partial(
                to_taint,
                effects={
                    "NoSelect": "NoSelect becomes NoSchedule: what is placed already stays",
                    "NoSelectIfNew": "",
                },
            ),
        ),
        *_left_out(
            "Kept with the object, for tolerations with `tolerationSeconds` under OCM's rules.",
            "Taint",
            "spec.taints.*.timeAdded",
        ),
        _properties_rule("status.clusterClaims.*", basis="ManagedClusterClaim"),
        _usage_rule(
            "status.capacity.*", "resourceUsage.capacity", basis="ResourceList"
        ),
        _usage_rule(
            "status.allocatable.*", "resourceUsage.allocatable", basis="ResourceList"
        ),
        _version_rule("status.version.kubernetes", basis="ManagedClusterVersion"),
        _condition_rule(
            words="Readiness is observed here. A note if `ManagedClusterConditionAvailable` is not `True`.",
            convert=partial(
                note_condition, health=("ManagedClusterConditionAvailable",)
            ),
        ),
        InventoryRule(
            "spec.hubAcceptsClient",
            "",
            "Joining is decided here. A note if it is false.",
            "ManagedClusterSpec",
            note_unless_accepted,
        ),
        *_left_out(
            "A heartbeat of the other agent.",
            "ManagedClusterSpec",
            "spec.leaseDurationSeconds",
        ),
        *_left_out(_UNCONNECTED, "ClientConfig", "spec.managedClusterClientConfigs.**"),
        *_left_out(
            "Namespaces of cluster sets.",
            "ClusterSetManagedNamespaceConfig",
            "status.managedNamespaces.**",
        ),
    ),
)
_KARMADA = InventoryKind(
    "cluster.karmada.io",
    "Cluster",
    "Karmada",
    "karmada-io/karmada pkg/apis/cluster/v1alpha1/types.go",
    (
        *_METADATA,
        _label_rule(
            "spec.provider", "labels[cluster.karmada.io/provider]", basis="ClusterSpec"
        ),
        _region_rule("spec.region", basis="ClusterSpec"),
        _zones_rule("spec.zones.**", basis="ClusterSpec"),
        _zone_rule("spec.zone", basis="ClusterSpec"),
        _taint_rule(
            words="`NoSchedule` stays. `NoExecute` becomes `NoSchedule`, with a note: what is placed already stays."
            " `PreferNoSchedule` is left out, with a note.",
            basis="core/v1 Taint",
            convert=partial(
                to_taint,
                effects={
                    NO_SCHEDULE: "",
                    "NoExecute": "NoExecute becomes NoSchedule: what is placed already stays",
                },
            ),
        ),
        *_left_out(
            "Has no effect on placements.", "core/v1 Taint", "spec.taints.*.timeAdded"
        ),
        InventoryRule(
            "spec.id",
            "properties[cluster.clusterset.k8s.io]",
            "The identifier, by the name of the ClusterProperty that Karmada takes it from.",
            "ClusterSpec",
            to_entry,
        ),
        _version_rule("status.kubernetesVersion", basis="ClusterStatus"),
        InventoryRule(
            "status.nodeSummary.totalNum",
            "properties[kubernetes-fleet.io/node-count]",
            "The number of nodes.",
            "NodeSummary",
            to_entry,
        ),
        _usage_rule(
            "status.resourceSummary.allocatable.*",
            "resourceUsage.allocatable",
            basis="ResourceSummary",
        ),
        _condition_rule(
            words="Readiness is observed here. A note if `Ready` is not `True`.",
            convert=partial(note_condition, health=("Ready",)),
        ),
        *_left_out(
            "Of the connection of Karmada: connect the cluster after the import.",
            "ClusterSpec",
            "spec.syncMode",
            "spec.apiEndpoint",
            "spec.secretRef.*",
            "spec.impersonatorSecretRef.*",
            "spec.insecureSkipTLSVerification",
            "spec.proxyURL",
            "spec.proxyHeader.*",
        ),
        *_left_out("Classes of nodes.", "ResourceModel", "spec.resourceModels.**"),
        *_left_out(
            "Changes with every pod.",
            "ResourceSummary",
            "status.resourceSummary.allocating.*",
            "status.resourceSummary.allocated.*",
            "status.resourceSummary.allocatableModelings.**",
        ),
        *_left_out(
            "Read from the cluster itself once it is connected.",
            "ClusterStatus",
            "status.apiEnablements.**",
            "status.nodeSummary.readyNum",
            "status.remedyActions.*",
        ),
    ),
)
_PROFILE = InventoryKind(
    "multicluster.x-k8s.io",
    "ClusterProfile",
    "SIG Multicluster",
    "kubernetes-sigs/cluster-inventory-api apis/v1alpha1/clusterprofile_types.go",
    (
        *_METADATA,
        _label_rule(
            "spec.clusterManager.name",
            "labels[x-k8s.io/cluster-manager]",
            basis="LabelClusterManagerKey",
        ),
        _properties_rule("status.properties.*", basis="Property"),
        *_left_out(
            "Has no effect on placements.",
            "Property",
            "status.properties.*.lastObservedTime",
        ),
        _version_rule("status.version.kubernetes", basis="ClusterVersion"),
        _condition_rule(
            words="Readiness is observed here. A note if `ControlPlaneHealthy` is not `True`.",
            convert=partial(note_condition, health=("ControlPlaneHealthy",)),
        ),
        *_left_out("For people.", "ClusterProfileSpec", "spec.displayName"),
        *_left_out(
            _UNCONNECTED,
            "AccessProvider",
            "status.accessProviders.**",
            "status.credentialProviders.**",
        ),
    ),
)
_CLUSTER_API = InventoryKind(
    "cluster.x-k8s.io",
    "Cluster",
    "Cluster API",
    "kubernetes-sigs/cluster-api api/core/v1beta2/cluster_types.go (and v1beta1)",
    (
        *_METADATA,
        _version_rule("spec.topology.version", basis="Topology"),
        _region_rule(
            "spec.topology.variables.*",
            words="The variable `region` or `location`, unless the label is there; a note for any other.",
            basis="ClusterVariable",
            convert=to_region,
            fields=_NAME_AND_VALUE,
        ),
        _zones_rule("status.failureDomains.**", basis="FailureDomain"),
        _condition_rule(
            words="Readiness is observed here. A note if `Available` or `Ready` is not `True`.",
            convert=partial(
                note_condition,
                health=(
                    "Available",
                    "Ready",
                ),
            ),
        ),
        *_left_out(
            "How machines are made.",
            "Topology",
            "spec.topology.class",
            "spec.topology.classNamespace",
            "spec.topology.classRef.*",
            "spec.topology.rolloutAfter",
            "spec.topology.controlPlane.**",
            "spec.topology.workers.**",
        ),
        *_left_out(_UNCONNECTED, "APIEndpoint", "spec.controlPlaneEndpoint.*"),
        *_left_out(
            "Objects of Cluster API, which are not read.",
            "ClusterSpec",
            "spec.controlPlaneRef.*",
            "spec.infrastructureRef.*",
            "spec.availabilityGates.**",
            "spec.clusterNetwork.**",
            "spec.paused",
        ),
        *_left_out(
            "State of the machines.",
            "ClusterStatus",
            "status.phase",
            "status.observedGeneration",
            "status.initialization.*",
            "status.controlPlane.**",
            "status.workers.**",
            "status.deprecated.**",
            "status.v1beta2.**",
            "status.infrastructureReady",
            "status.controlPlaneReady",
            "status.failureReason",
            "status.failureMessage",
        ),
    ),
)
INVENTORIES = (_OCM, _KARMADA, _PROFILE, _CLUSTER_API)


def inventory_of(data: object) -> InventoryKind | None:
    """Return the table for an object of another system, None for anything else."""
    if not isinstance(data, Mapping):
        return None
    wanted = (str(data.get("apiVersion")).rpartition("/")[0], data.get("kind"))
    return next(
        (
            inventory
            for inventory in INVENTORIES
            if (inventory.group, inventory.kind) == wanted
        ),
        None,
    )


def read_inventory(inventory: InventoryKind, data: Any) -> InventoryDraft:
    """Return a cluster of another system in the plain form, with a note for each field that is not known."""
    draft = InventoryDraft()
    taken: dict[tuple[int, Keys], None] = {}
    for keys, _ in leaves_of(data):
        shape = tuple(ANY if isinstance(key, int) else key for key in keys)
        number, depth = _rule_at(inventory, shape)
        taken[number, keys[:depth]] = None
    # In the order of the rules: labels of the object come before those that are made of other fields.
    for number, keys in sorted(taken, key=itemgetter(0)):
        if number == len(inventory.rules):
            draft.note(
                keys,
                f"Not used: unknown field of {inventory.kind} of {inventory.system}",
                "unknown-field",
            )
            continue
        rule = inventory.rules[number]
        if rule.convert:
            rule.convert(draft, rule.target, keys, reduce(getitem, keys, data))
    return draft


def leaves_of(data: Any, keys: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Yield every value that holds no others, with its keys; what is empty or null says nothing."""
    inner = data
    if isinstance(data, list):
        inner = dict(enumerate(data))
    if isinstance(inner, Mapping):
        for key, value in inner.items():
            yield from leaves_of(value, (*keys, key))
    elif data is not None:
        yield keys, data


@lru_cache(maxsize=4096)
def _rule_at(inventory: InventoryKind, shape: Keys) -> tuple[int, int]:
    """Return the number of the rule for a value, and how many of its keys lead to what the rule reads.

    Without a rule it is the number after the last, and the keys are those up to the first unknown one.
    """
    longest = 0
    for number, rule in enumerate(inventory.rules):
        pattern = rule.pattern
        pairs = zip(pattern, shape, strict=False)
        count = len(list(takewhile(lambda one: one[0] in (ANY, BELOW, one[1]), pairs)))
        longest = max(longest, count)
        fixed = len(pattern) - (pattern[-1] == BELOW)
        rest = shape[fixed:]
        is_read = not rest or pattern[-1] == BELOW
        if rule.fields:
            is_read = bool(rest) and rest[0] in rule.fields
        if is_read and count >= fixed:
            return number, fixed
    return len(inventory.rules), min(longest + 1, len(shape))
