"""The scheduling policy of a placement, and its parser `parse_policy`.

Rules: `rules/scheduler.md` and `rules/lifecycle.md#policies`. Values are frozen; use `model_copy(update=…)`
for a changed one.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, TypeAdapter, ValidationInfo

from fleetui.apimachinery.errors import ErrorDetail, ManifestWarning, warnings_of
from fleetui.apimachinery.fields import (
    ClusterName,
    LabelKey,
    LabelValue,
    OptionalLabelKey,
    has_second_dash,
    integer,
    list_of,
    literal,
    one_of,
    refusal,
    text,
)
from fleetui.apimachinery.model import (
    DEFAULT_SEMANTICS,
    ManifestModel,
    Raw,
    Semantics,
    conflict,
    duplicate_problems,
    items_at,
    mapping_at,
    parse_manifest,
    required,
)
from placements.manifests.affinity import (
    Affinity,
    ClusterSelectorTerm,
    PreferredTerm,
    PropertySelector,
)

MOST_CLUSTER_NAMES = 100
MOST_TOLERATIONS = 100
MOST_CONSTRAINTS = 60
_PREFERRED = (
    "affinity",
    "clusterAffinity",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
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
    """Whether clusters filtered by affinity or taints count for a spread (`kubernetes` semantics)."""

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
            raise refusal(
                "field-of-other-semantics",
                f"Forbidden: only allowed for {allowed[0]} semantics, not for {semantics}",
            )
        return value

    return BeforeValidator(check)


# In a comparison a policy runs under every semantics; `ocm` ignores the policies of Kubernetes, as the
# proposal does.
_KUBERNETES_ONLY = _only_under(Semantics.KUBERNETES, Semantics.OCM)
_OCM_ONLY = _only_under(Semantics.OCM)


class TopologySpreadConstraint(ManifestModel):
    """Limits how unevenly clusters may be picked from the domains of a topology key."""

    topology_key: LabelKey
    max_skew: Annotated[int, integer(1)] = 1
    when_unsatisfiable: Annotated[WhenUnsatisfiable, one_of(WhenUnsatisfiable)] = (
        WhenUnsatisfiable.DO_NOT_SCHEDULE
    )
    min_domains: Annotated[int, integer(1), _KUBERNETES_ONLY] | None = None
    node_affinity_policy: (
        Annotated[InclusionPolicy, one_of(InclusionPolicy), _KUBERNETES_ONLY] | None
    ) = None
    node_taints_policy: (
        Annotated[InclusionPolicy, one_of(InclusionPolicy), _KUBERNETES_ONLY] | None
    ) = None
    topology_key_type: Annotated[KeyType, one_of(KeyType), _OCM_ONLY] | None = None

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """Only a hard constraint can require a number of domains (KEP-895)."""
        if "minDomains" in raw and raw.get("whenUnsatisfiable") == "ScheduleAnyway":
            yield conflict(
                "minDomains", "only allowed for whenUnsatisfiable DoNotSchedule"
            )


_LONGEST_OCM_VALUE = 1024
_LABEL_VALUE: TypeAdapter[str] = TypeAdapter(LabelValue)


def _toleration_value(value: object, info: ValidationInfo) -> object:
    """Check the value of a toleration: a label value, or under `ocm` any text that is not too long."""
    semantics = (info.context or {}).get("semantics")
    if semantics is not Semantics.OCM or len(text(value)) > _LONGEST_OCM_VALUE:
        return _LABEL_VALUE.validate_python(value)
    return value


SOFT_EFFECTS = ("PreferNoSelect", "NoSelectIfNew")
"""Effects of taints that only Open Cluster Management has."""
_EFFECT: TypeAdapter[str] = TypeAdapter(Annotated[str, literal("NoSchedule", "")])


def _toleration_effect(value: object, info: ValidationInfo) -> object:
    semantics = (info.context or {}).get("semantics")
    if semantics is Semantics.OCM and value in SOFT_EFFECTS:
        return value
    return _EFFECT.validate_python(value)


class Toleration(ManifestModel):
    """Accepts the taints that it matches."""

    key: OptionalLabelKey = ""
    operator: Annotated[TolerationOperator, one_of(TolerationOperator)] = (
        TolerationOperator.EQUAL
    )
    value: Annotated[str, BeforeValidator(_toleration_value)] = ""
    effect: Annotated[
        str,
        BeforeValidator(
            _toleration_effect, json_schema_input_type=Literal["NoSchedule", ""]
        ),
    ] = ""
    toleration_seconds: (
        Annotated[int, integer(-(2**63), 2**63 - 1), _OCM_ONLY] | None
    ) = None

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """Exists takes no value; only Exists may do without a key (`rules/lifecycle.md#policies`)."""
        operator = raw.get("operator", "Equal")
        if operator == "Exists" and raw.get("value", "") != "":
            yield conflict("value", "not allowed for operator Exists", "no value")
        if operator == "Equal" and raw.get("key", "") == "":
            yield required(
                "key",
                "operator Equal needs a key; use operator Exists to tolerate every taint",
            )


class PlacementPolicy(ManifestModel):
    """How clusters are chosen; an absent policy is the default one: every cluster of the fleet."""

    placement_type: Annotated[PlacementType, one_of(PlacementType)] = (
        PlacementType.PICK_ALL
    )
    cluster_names: Annotated[
        tuple[ClusterName, ...], list_of(high=MOST_CLUSTER_NAMES)
    ] = ()
    number_of_clusters: Annotated[int, integer(0)] | None = None
    affinity: Affinity | None = None
    topology_spread_constraints: Annotated[
        tuple[TopologySpreadConstraint, ...], list_of(high=MOST_CONSTRAINTS, ours=True)
    ] = ()
    tolerations: Annotated[tuple[Toleration, ...], list_of(high=MOST_TOLERATIONS)] = ()

    @classmethod
    def validate_for(cls, raw: Raw, semantics: Semantics) -> Iterator[ErrorDetail]:
        """The table of fields for each placement type, and lists without duplicates.

        See `rules/lifecycle.md#policies`.
        """
        placement_type = raw.get("placementType", "PickAll")
        if placement_type in list(PlacementType):
            for key, types in _TYPES_WITH.items():
                if placement_type not in types and raw.get(key) not in (None, [], ()):
                    message = (
                        f"Forbidden: not allowed for placementType {placement_type}"
                    )
                    allowed = f"only with {' or '.join(types)}"
                    yield ErrorDetail((key,), "forbidden-for-type", message, allowed)
            if placement_type == "PickN" and raw.get("numberOfClusters") is None:
                yield required(
                    "numberOfClusters", "placementType PickN needs it", "0 or more"
                )

            # PickAll has nothing to prefer under Fleet; elsewhere its preferences just have no effect.
            is_fleet = semantics in (Semantics.FLEET, Semantics.KUBEFLEET)
            preferred = items_at(mapping_at(raw, *_PREFERRED[:-1]), _PREFERRED[-1])
            if is_fleet and placement_type == "PickAll" and preferred:
                message = "Forbidden: not allowed for placementType PickAll"
                allowed = "required terms, or placementType PickN"
                yield ErrorDetail(_PREFERRED, "forbidden-for-type", message, allowed)

        names = enumerate(items_at(raw, "clusterNames")[:MOST_CLUSTER_NAMES])
        yield from duplicate_problems(
            ((("clusterNames", at), name) for at, name in names), "unique names"
        )

        defaults = {"key": "", "operator": "Equal", "value": "", "effect": ""}
        tolerations = (
            (
                ("tolerations", index),
                (
                    *(
                        default if toleration.get(key) is None else toleration[key]
                        for key, default in defaults.items()
                    ),
                    repr(toleration.get("tolerationSeconds")),
                ),
            )
            for index, toleration in enumerate(
                map(mapping_at, items_at(raw, "tolerations")[:MOST_TOLERATIONS])
            )
            if toleration
            and all(isinstance(toleration.get(key), str | None) for key in defaults)
        )
        yield from duplicate_problems(tolerations, "unique tolerations")

    @property
    def required_terms(self) -> tuple[ClusterSelectorTerm, ...]:
        """Return the terms of which a cluster must match one; none means that every cluster passes."""
        affinity = self.affinity and self.affinity.cluster_affinity
        required = (
            affinity and affinity.required_during_scheduling_ignored_during_execution
        )
        return required.cluster_selector_terms if required else ()

    @property
    def preferred_terms(self) -> tuple[PreferredTerm, ...]:
        affinity = self.affinity and self.affinity.cluster_affinity
        return (
            affinity.preferred_during_scheduling_ignored_during_execution
            if affinity
            else ()
        )

    def without_number(self) -> dict[str, Any]:
        """Return the plain form without the number: when it changes, a new policy snapshot is needed."""
        plain = self.to_plain()
        plain.pop("numberOfClusters", None)
        return plain


def parse_policy(
    raw: object, *, semantics: Semantics = DEFAULT_SEMANTICS, path: str = "policy"
) -> PlacementPolicy:
    """Return the value of `spec.policy`; null means absent, which is PickAll. Raise InvalidManifest."""
    if raw is None:
        return PlacementPolicy()
    return parse_manifest(PlacementPolicy, raw, semantics=semantics, path=path)


_SECOND_DASH = "KubeFleet cannot read a resource name with a second dash: on a hub every cycle fails"


def policy_warnings(
    policy: PlacementPolicy, *, path: str = "policy"
) -> tuple[ManifestWarning, ...]:
    """Return the warnings that need no fleet (`rules/scheduler.md#unusual-values`)."""
    is_fixed = policy.placement_type is PlacementType.PICK_FIXED
    checks: list[tuple[object, str, str, str]] = [
        (
            is_fixed and not policy.cluster_names,
            "no-cluster-names",
            f"{path}.clusterNames",
            "an empty list changes nothing: clusters selected earlier stay",
        )
    ]
    affinity = f"{path}.affinity.clusterAffinity"
    for index, term in enumerate(policy.required_terms):
        place = f"{affinity}.requiredDuringSchedulingIgnoredDuringExecution.clusterSelectorTerms[{index}]"
        selector = term.property_selector or PropertySelector()
        checks += [
            (
                term.matches_everything,
                "empty-term",
                place,
                "empty term: every cluster matches",
            ),
            *(
                (
                    has_second_dash(requirement.name),
                    "second-dash",
                    f"{place}.propertySelector.matchExpressions[{number}].name",
                    _SECOND_DASH,
                )
                for number, requirement in enumerate(selector.match_expressions)
            ),
        ]
    for index, preferred in enumerate(policy.preferred_terms):
        place = f"{affinity}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        sorter = preferred.preference.property_sorter
        checks += [
            (
                preferred.preference.matches_everything,
                "empty-term",
                f"{place}.preference",
                "empty term: every cluster gets the weight",
            ),
            (
                sorter and has_second_dash(sorter.name),
                "second-dash",
                f"{place}.preference.propertySorter.name",
                _SECOND_DASH,
            ),
            (
                preferred.weight == 0,
                "weight-zero",
                f"{place}.weight",
                "a weight of 0 has no effect",
            ),
        ]
    return warnings_of(checks)
