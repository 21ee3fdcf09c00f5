"""Bindings of a placement by class (`rules/scheduler.md#bindings`), and their parsers."""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias

from pydantic import BeforeValidator, Field

from fleetui.apimachinery.errors import ErrorDetail
from fleetui.apimachinery.fields import (
    FilledText,
    Moment,
    Text,
    api_version,
    list_of,
    literal,
    one_of,
)
from fleetui.apimachinery.kinds import PLACEMENT_VERSIONS, refuse_other_kinds
from fleetui.apimachinery.model import (
    DEFAULT_SEMANTICS,
    ManifestModel,
    Raw,
    duplicate_problems,
    failure,
    items_at,
    mapping_at,
    parse_manifest,
    wrong_type,
)
from fleetui.apimachinery.words import full_name


class BindingState(StrEnum):
    SCHEDULED = "Scheduled"
    BOUND = "Bound"
    UNSCHEDULED = "Unscheduled"


class PlacedBinding(NamedTuple):
    """A placement joined to one cluster.

    `is_current`: decided under the latest policy snapshot; `previous_state`: the state to which an
    Unscheduled binding returns when its cluster is picked again.
    """

    cluster: str
    state: BindingState
    is_current: bool = True
    topology_spread_score: float | tuple[float, ...] | None = None
    affinity_score: float | None = None
    previous_state: BindingState = BindingState.SCHEDULED
    is_deleting: bool = False

    @property
    def is_active(self) -> bool:
        """Return whether the cluster has, or is about to have, the resources."""
        return self.state is not BindingState.UNSCHEDULED

    def unscheduled(self, previous: BindingState) -> "PlacedBinding":
        return PlacedBinding(
            self.cluster,
            BindingState.UNSCHEDULED,
            self.is_current,
            self.topology_spread_score,
            self.affinity_score,
            previous,
            self.is_deleting,
        )


@dataclass(frozen=True)
class BindingsByClass:
    """The bindings of a placement by what a cycle does with them."""

    current: tuple[PlacedBinding, ...] = ()
    obsolete: tuple[PlacedBinding, ...] = ()
    dangling: tuple[PlacedBinding, ...] = ()
    unscheduled: tuple[PlacedBinding, ...] = ()


def classify_bindings(
    bindings: Iterable[PlacedBinding], *, staying: Collection[str]
) -> BindingsByClass:
    """Return the bindings by class; they come by cluster name and without those being deleted.

    `staying` are the names of the clusters that do not leave the fleet.
    """
    classes: tuple[list[PlacedBinding], ...] = ([], [], [], [])
    current, obsolete, dangling, unscheduled = classes
    for binding in bindings:
        if binding.state is BindingState.UNSCHEDULED:
            unscheduled.append(binding)
        elif binding.cluster not in staying:
            dangling.append(binding)
        else:
            (current if binding.is_current else obsolete).append(binding)
    return BindingsByClass(*map(tuple, classes))


BINDING_KIND = "ClusterResourceBinding"
NAMESPACED_BINDING_KIND = "ResourceBinding"
BINDING_KINDS = (BINDING_KIND, NAMESPACED_BINDING_KIND)
_INDEX = re.compile(r"(?:.*-)?([0-9]{1,18})", re.DOTALL)


def _score(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise failure([wrong_type(value, "a number")])
    return value


Score: TypeAlias = Annotated[int | float, BeforeValidator(_score)]
SpreadScore: TypeAlias = Annotated[
    int | float | tuple[int | float, ...],
    BeforeValidator(
        lambda value: (
            tuple(map(_score, value)) if isinstance(value, list) else _score(value)
        )
    ),
]
State: TypeAlias = Annotated[BindingState, one_of(BindingState)]


class CaseBinding(ManifestModel):
    """A binding as a case of `docs/reference/cases.md` has it."""

    cluster: FilledText
    state: State
    policy: Annotated[str, literal("current", "obsolete")] = "current"
    affinity_score: Score | None = None
    topology_spread_score: SpreadScore | None = None
    previous_state: Annotated[str, literal("Scheduled", "Bound")] = "Scheduled"

    def binding(self) -> PlacedBinding:
        return PlacedBinding(
            self.cluster,
            self.state,
            is_current=self.policy == "current",
            topology_spread_score=self.topology_spread_score,
            affinity_score=self.affinity_score,
            previous_state=BindingState(self.previous_state),
        )


class CaseBindings(ManifestModel):
    """All bindings of a case: at most one for each cluster."""

    bindings: Annotated[tuple[CaseBinding, ...], list_of()] = ()

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        items = enumerate(items_at(raw, "bindings"))
        return duplicate_problems(
            (
                (("bindings", index, "cluster"), mapping_at(item).get("cluster"))
                for index, item in items
            ),
            "one binding per cluster",
        )


class _FromHub(ManifestModel):
    allow_unknown: ClassVar[bool] = True


class ClusterScore(_FromHub):
    """Stored scores; on the wire the topology spread score is called priorityScore."""

    affinity_score: Score | None = None
    priority_score: Score | None = None


class ClusterDecision(_FromHub):
    """Why a hub made a binding."""

    cluster_score: ClusterScore = Field(default_factory=ClusterScore)


class BindingSpec(_FromHub):
    """The part of a binding's spec that the scheduler reads."""

    state: State
    target_cluster: FilledText
    scheduling_policy_snapshot_name: Text = ""
    cluster_decision: ClusterDecision = Field(default_factory=ClusterDecision)


class BindingMeta(_FromHub):
    """Whose binding it is, its state before, and whether it is being deleted."""

    namespace: Text = ""
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    deletion_timestamp: Moment | None = None


class BindingDocument(_FromHub):
    """A ClusterResourceBinding or ResourceBinding as `kubectl get -o yaml` prints it."""

    api_version: Annotated[str, api_version(*PLACEMENT_VERSIONS)]
    kind: Annotated[str, literal(*BINDING_KINDS)]
    metadata: BindingMeta = Field(default_factory=BindingMeta)
    spec: BindingSpec

    @property
    def placement(self) -> str | None:
        """Return the full name of its placement: one in a namespace has its bindings there."""
        name = self.metadata.labels.get("kubernetes-fleet.io/parent-CRP")
        return name if name is None else full_name(self.metadata.namespace, name)

    @property
    def snapshot(self) -> str:
        return self.spec.scheduling_policy_snapshot_name

    @property
    def is_deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    def binding(self, current_snapshot: str) -> PlacedBinding:
        """Return the binding that the scheduler reads, given the latest policy snapshot."""
        score = self.spec.cluster_decision.cluster_score
        previous = self.metadata.annotations.get(
            "kubernetes-fleet.io/previous-binding-state", ""
        )
        return PlacedBinding(
            self.spec.target_cluster,
            self.spec.state,
            is_current=self.snapshot == current_snapshot,
            topology_spread_score=score.priority_score,
            affinity_score=score.affinity_score,
            previous_state=BindingState.BOUND
            if previous == BindingState.BOUND
            else BindingState.SCHEDULED,
            is_deleting=self.is_deleting,
        )


def parse_case_bindings(raw: object, *, path: str = "") -> tuple[PlacedBinding, ...]:
    parsed = parse_manifest(
        CaseBindings, {"bindings": raw}, semantics=DEFAULT_SEMANTICS, path=path
    )
    return tuple(binding.binding() for binding in parsed.bindings)


def case_of_binding(one: PlacedBinding) -> dict[str, Any]:
    """Return the plain form of a binding that is not being deleted; parsing it results in an equal value."""
    scores = {
        "affinityScore": one.affinity_score,
        "topologySpreadScore": one.topology_spread_score,
    }
    return {
        "cluster": one.cluster,
        "state": str(one.state),
        **({} if one.is_current else {"policy": "obsolete"}),
        **{key: score for key, score in scores.items() if score is not None},
        **({} if one.is_active else {"previousState": str(one.previous_state)}),
    }


def parse_binding(document: object) -> BindingDocument:
    """Parse a binding of a hub. Raise InvalidManifest; only one error for another kind."""
    refuse_other_kinds(document, *BINDING_KINDS)
    return parse_manifest(
        BindingDocument, document, semantics=DEFAULT_SEMANTICS, path=""
    )


def newest_snapshot(bindings: Iterable[BindingDocument]) -> str:
    """Return the newest policy snapshot that the bindings name: `<placement>-<index>`, by index."""
    matches = {
        binding.snapshot: _INDEX.fullmatch(binding.snapshot) for binding in bindings
    }
    indexed = (
        (int(match[1]) if match else -1, name) for name, match in matches.items()
    )
    return max(indexed, default=(-1, ""))[1]
