"""The scheduling policy of a placement, and `parse_policy`, the one door to it.

Rules: `spec/scheduler.md` and `spec/lifecycle.md` B.1.3. Values are frozen; take `model_copy(update=…)`
for a changed one.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, ValidationInfo

from placements.scheduling.door.fields import (
    ClusterName,
    LabelKey,
    LabelValue,
    OptionalLabelKey,
    listed,
    one_of,
    whole,
    word_of,
)
from placements.scheduling.door.parsing import Parsed, Raw, failure, items_at, mapping_at, parse_model
from placements.scheduling.door.terms import (
    Affinity,
    ClusterAffinity,
    ClusterSelectorTerm,
    LabelOperator,
    LabelRequirement,
    LabelSelector,
    PreferredTerm,
    PropertyOperator,
    PropertyRequirement,
    PropertySelector,
    PropertySorter,
    RequiredTerms,
    SortOrder,
)
from placements.scheduling.faults import Caveat, Problem
from placements.scheduling.semantics import DEFAULT_SEMANTICS, Semantics, parse_semantics

__all__ = [
    "Affinity",
    "ClusterAffinity",
    "ClusterSelectorTerm",
    "InclusionPolicy",
    "LabelOperator",
    "LabelRequirement",
    "LabelSelector",
    "PlacementPolicy",
    "PlacementType",
    "PreferredTerm",
    "PropertyOperator",
    "PropertyRequirement",
    "PropertySelector",
    "PropertySorter",
    "RequiredTerms",
    "Semantics",
    "SortOrder",
    "Toleration",
    "TolerationOperator",
    "TopologySpreadConstraint",
    "WhenUnsatisfiable",
    "parse_policy",
    "parse_semantics",
    "policy_caveats",
]

MOST_CLUSTER_NAMES = 100
MOST_TOLERATIONS = 100
MOST_CONSTRAINTS = 60
_PREFERRED = ("affinity", "clusterAffinity", "preferredDuringSchedulingIgnoredDuringExecution")
_TYPES_WITH = {
    "numberOfClusters": ("PickN",),
    "clusterNames": ("PickFixed",),
    "affinity": ("PickAll", "PickN"),
    "topologySpreadConstraints": ("PickN",),
    "tolerations": ("PickAll", "PickN"),
}


class PlacementType(StrEnum):
    """How clusters are chosen."""

    PICK_ALL = "PickAll"
    PICK_N = "PickN"
    PICK_FIXED = "PickFixed"


class WhenUnsatisfiable(StrEnum):
    """Whether a spread constraint forbids or only discourages."""

    DO_NOT_SCHEDULE = "DoNotSchedule"
    SCHEDULE_ANYWAY = "ScheduleAnyway"


class InclusionPolicy(StrEnum):
    """Whether clusters ruled out by affinity or taints count for a spread (`kubernetes` semantics)."""

    HONOR = "Honor"
    IGNORE = "Ignore"


class KeyType(StrEnum):
    """Whether a topology key names a label or a claim, which is a property here (`ocm` semantics)."""

    LABEL = "Label"
    CLAIM = "Claim"


class TolerationOperator(StrEnum):
    """Whether a toleration compares the taint's value."""

    EQUAL = "Equal"
    EXISTS = "Exists"


def _only_under(*allowed: Semantics) -> BeforeValidator:
    def check(value: object, info: ValidationInfo) -> object:
        semantics = (info.context or {}).get("semantics")
        if semantics and semantics not in allowed:
            message = f"is a field of {allowed[0]} semantics; this placement has {semantics} semantics"
            raise failure([Problem((), "field-of-other-semantics", message)])
        return value

    return BeforeValidator(check)


# Side by side, a policy runs under every semantics; `ocm` looks at the policies of Kubernetes as little as
# the proposal does.
_KUBERNETES_ONLY = _only_under(Semantics.KUBERNETES, Semantics.OCM)
_OCM_ONLY = _only_under(Semantics.OCM)


class TopologySpreadConstraint(Parsed):
    """Keep the groups that a label makes about equally full."""

    noun: ClassVar[str] = "topology spread constraint"

    topology_key: LabelKey
    max_skew: Annotated[int, whole(1)] = 1
    when_unsatisfiable: Annotated[WhenUnsatisfiable, one_of(WhenUnsatisfiable)] = (
        WhenUnsatisfiable.DO_NOT_SCHEDULE
    )
    min_domains: Annotated[int, whole(1), _KUBERNETES_ONLY] | None = None
    node_affinity_policy: Annotated[InclusionPolicy, one_of(InclusionPolicy), _KUBERNETES_ONLY] | None = None
    node_taints_policy: Annotated[InclusionPolicy, one_of(InclusionPolicy), _KUBERNETES_ONLY] | None = None
    topology_key_type: Annotated[KeyType, one_of(KeyType), _OCM_ONLY] | None = None

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """A hard constraint alone can ask for a number of groups (KEP-895)."""
        if "minDomains" in raw and raw.get("whenUnsatisfiable") == "ScheduleAnyway":
            yield Problem(("minDomains",), "conflict", "goes with whenUnsatisfiable: DoNotSchedule only")


class Toleration(Parsed):
    """Put up with the taints that this matches."""

    noun: ClassVar[str] = "toleration"

    key: OptionalLabelKey = ""
    operator: Annotated[TolerationOperator, one_of(TolerationOperator)] = TolerationOperator.EQUAL
    value: LabelValue = ""
    effect: Annotated[str, word_of("NoSchedule", "")] = ""

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """Exists takes no value; only Exists may do without a key (lifecycle B.1.3)."""
        operator = raw.get("operator", "Equal")
        if operator == "Exists" and raw.get("value", "") != "":
            yield Problem(("value",), "conflict", "Exists matches any value and takes none", "no value")
        if operator == "Equal" and raw.get("key", "") == "":
            message = "Equal needs the key of a taint; to tolerate every taint write operator: Exists"
            yield Problem(("key",), "required", message)


class PlacementPolicy(Parsed):
    """How clusters are chosen; an absent policy is the default one: every cluster of the fleet."""

    noun: ClassVar[str] = "placement policy"

    placement_type: Annotated[PlacementType, one_of(PlacementType)] = PlacementType.PICK_ALL
    cluster_names: Annotated[tuple[ClusterName, ...], listed(high=MOST_CLUSTER_NAMES)] = ()
    number_of_clusters: Annotated[int, whole(0)] | None = None
    affinity: Affinity | None = None
    topology_spread_constraints: Annotated[
        tuple[TopologySpreadConstraint, ...], listed(high=MOST_CONSTRAINTS, ours=True)
    ] = ()
    tolerations: Annotated[tuple[Toleration, ...], listed(high=MOST_TOLERATIONS)] = ()

    @classmethod
    def rules_under(cls, raw: Raw, semantics: Semantics) -> Iterator[Problem]:
        """The table of fields for each placement type, and lists without duplicates (lifecycle B.1.3)."""
        placement_type = raw.get("placementType", "PickAll")
        if placement_type in list(PlacementType):
            yield from _type_problems(raw, placement_type)
            if semantics in (Semantics.FLEET, Semantics.KUBEFLEET):
                yield from _preference_problems(raw, placement_type)
        yield from _duplicate_names(items_at(raw, "clusterNames")[:MOST_CLUSTER_NAMES])
        yield from _duplicate_tolerations(items_at(raw, "tolerations")[:MOST_TOLERATIONS])

    @property
    def required_terms(self) -> tuple[ClusterSelectorTerm, ...]:
        """Give the terms of which a cluster must match one; none means that every cluster passes."""
        affinity = self.affinity and self.affinity.cluster_affinity
        required = affinity and affinity.required_during_scheduling_ignored_during_execution
        return required.cluster_selector_terms if required else ()

    @property
    def preferred_terms(self) -> tuple[PreferredTerm, ...]:
        """Give the terms that score a cluster."""
        affinity = self.affinity and self.affinity.cluster_affinity
        return affinity.preferred_during_scheduling_ignored_during_execution if affinity else ()

    def canonical(self) -> dict[str, Any]:
        """Give the policy as JSON data with defaults filled in: equal policies have equal forms."""
        return self.to_plain()

    def without_number(self) -> dict[str, Any]:
        """Give the canonical form without the number: when it changes, a new policy snapshot is needed."""
        plain = self.to_plain()
        plain.pop("numberOfClusters", None)
        return plain


def _type_problems(raw: Raw, placement_type: str) -> Iterator[Problem]:
    for key, types in _TYPES_WITH.items():
        if placement_type not in types and not _says_nothing(raw.get(key)):
            message = f"does not go with placement type {placement_type}"
            yield Problem((key,), "forbidden-for-type", message, f"only with {' or '.join(types)}")
    if placement_type == "PickN" and raw.get("numberOfClusters") is None:
        yield Problem(("numberOfClusters",), "required", "is missing; PickN needs it", "0 or more")


def _preference_problems(raw: Raw, placement_type: str) -> Iterator[Problem]:
    """PickAll has nothing to prefer under Fleet; elsewhere its preferences are merely moot."""
    if placement_type == "PickAll" and items_at(mapping_at(raw, *_PREFERRED[:-1]), _PREFERRED[-1]):
        message = "does not go with placement type PickAll, which picks every cluster that passes"
        yield Problem(_PREFERRED, "forbidden-for-type", message, "required terms, or placement type PickN")


def _says_nothing(value: object) -> bool:
    """Tell whether a field is as good as absent: null or an empty list, but not zero or an empty object."""
    return value is None or (isinstance(value, (list, tuple)) and not value)


def _duplicate_names(items: list[Any]) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, name in enumerate(items):
        if isinstance(name, str) and name in seen:
            yield Problem(("clusterNames", index), "duplicate", f"{name} is named twice", "each name once")
        elif isinstance(name, str):
            seen.add(name)


def _duplicate_tolerations(items: list[Any]) -> Iterator[Problem]:
    seen: set[tuple[str, ...]] = set()
    for index, item in enumerate(items):
        entry = _toleration_entry(mapping_at(item))
        if entry in seen:
            yield Problem(("tolerations", index), "duplicate", "repeats an entry above", "each entry once")
        elif entry:
            seen.add(entry)


def _toleration_entry(raw: Raw) -> tuple[str, ...]:
    """Give what makes two tolerations the same, or nothing if this one is malformed."""
    defaults = {"key": "", "operator": "Equal", "value": "", "effect": ""}
    entry = [default if raw.get(key) is None else raw[key] for key, default in defaults.items()]
    return tuple(entry) if raw and all(isinstance(part, str) for part in entry) else ()


def parse_policy(
    raw: object, *, semantics: Semantics = DEFAULT_SEMANTICS, path: str = "policy"
) -> PlacementPolicy:
    """Turn `spec.policy` into a value; null means absent, which is PickAll. Raises Faults."""
    if raw is None:
        return PlacementPolicy()
    return parse_model(PlacementPolicy, raw, semantics=semantics, path=path)


def policy_caveats(policy: PlacementPolicy, *, path: str = "policy") -> tuple[Caveat, ...]:
    """List what was accepted and may surprise (`spec/scheduler.md` 4.4); no fleet is needed to see it."""
    caveats: list[Caveat] = []
    if policy.placement_type is PlacementType.PICK_FIXED and not policy.cluster_names:
        message = "an empty list does nothing at all: clusters placed earlier stay"
        caveats.append(Caveat("no-cluster-names", f"{path}.clusterNames", message))
    affinity = f"{path}.affinity.clusterAffinity"
    for index, term in enumerate(policy.required_terms):
        place = f"{affinity}.requiredDuringSchedulingIgnoredDuringExecution.clusterSelectorTerms[{index}]"
        if term.asks_nothing:
            caveats.append(Caveat("empty-term", place, "asks nothing, so every cluster matches"))
    for index, preferred in enumerate(policy.preferred_terms):
        place = f"{affinity}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        caveats += _preferred_caveats(preferred, place)
    return tuple(caveats)


def _preferred_caveats(term: PreferredTerm, path: str) -> Iterator[Caveat]:
    if term.preference.asks_nothing:
        message = "asks nothing, so every cluster gets the weight"
        yield Caveat("empty-term", f"{path}.preference", message)
    if term.weight == 0:
        yield Caveat("weight-zero", f"{path}.weight", "a weight of 0 changes nothing; the term is skipped")
