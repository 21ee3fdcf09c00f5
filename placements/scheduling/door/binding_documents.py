"""Bindings from outside: the plain form of a case, and the ClusterResourceBinding objects of a hub."""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar, TypeAlias

from pydantic import BeforeValidator, Field

from placements.scheduling.bindings import Binding, BindingState
from placements.scheduling.door.fields import FilledText, Moment, Text, api_version, listed, one_of, word_of
from placements.scheduling.door.kinds import PLACEMENT_VERSIONS, refuse_other_kinds
from placements.scheduling.door.parsing import (
    Parsed,
    Raw,
    failure,
    items_at,
    mapping_at,
    parse_model,
    shown,
    wrong_type,
)
from placements.scheduling.faults import Problem
from placements.scheduling.semantics import DEFAULT_SEMANTICS

BINDING_KIND = "ClusterResourceBinding"
_PARENT_LABEL = "kubernetes-fleet.io/parent-CRP"
_PREVIOUS_STATE = "kubernetes-fleet.io/previous-binding-state"
_INDEX = re.compile(r"(?:.*-)?([0-9]{1,18})", re.DOTALL)


def _score(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise failure([wrong_type(value, "a number")])
    return value


def _score_or_levels(value: object) -> int | float | tuple[int | float, ...]:
    return tuple(map(_score, value)) if isinstance(value, list) else _score(value)


Score: TypeAlias = Annotated[int | float, BeforeValidator(_score)]
SpreadScore: TypeAlias = Annotated[int | float | tuple[int | float, ...], BeforeValidator(_score_or_levels)]
State: TypeAlias = Annotated[BindingState, one_of(BindingState)]


class CaseBinding(Parsed):
    """A binding as a case of `conformance/README.md` has it."""

    noun: ClassVar[str] = "binding"

    cluster: FilledText
    state: State
    policy: Annotated[str, word_of("current", "obsolete")] = "current"
    affinity_score: Score | None = None
    topology_spread_score: SpreadScore | None = None
    previous_state: Annotated[str, word_of("Scheduled", "Bound")] = "Scheduled"

    def binding(self) -> Binding:
        """Give the binding as the scheduler sees it."""
        return Binding(
            self.cluster,
            self.state,
            is_current=self.policy == "current",
            topology_spread_score=self.topology_spread_score,
            affinity_score=self.affinity_score,
            previous_state=BindingState(self.previous_state),
        )


class CaseBindings(Parsed):
    """All bindings of a case: at most one for each cluster."""

    bindings: Annotated[tuple[CaseBinding, ...], listed()] = ()

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """No cluster has two bindings."""
        seen: set[str] = set()
        for index, item in enumerate(items_at(raw, "bindings")):
            cluster = mapping_at(item).get("cluster")
            if isinstance(cluster, str) and cluster in seen:
                message = f"{shown(cluster)} has a binding above"
                yield Problem(("bindings", index, "cluster"), "duplicate", message, "one for each cluster")
            elif isinstance(cluster, str):
                seen.add(cluster)


class _FromHub(Parsed):
    takes_unknown: ClassVar[bool] = True


class ClusterScore(_FromHub):
    """Stored scores; on the wire the topology spread score is called priorityScore."""

    affinity_score: Score | None = None
    priority_score: Score | None = None


class ClusterDecision(_FromHub):
    """Why a hub made a binding."""

    cluster_score: ClusterScore = Field(default_factory=ClusterScore)


class BindingSpec(_FromHub):
    """What a binding says of its cluster (`spec/lifecycle.md` B.1.11)."""

    state: State
    target_cluster: FilledText
    scheduling_policy_snapshot_name: Text = ""
    cluster_decision: ClusterDecision = Field(default_factory=ClusterDecision)


class BindingMeta(_FromHub):
    """Whose binding it is, what it was before, and whether it is on its way out."""

    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    deletion_timestamp: Moment | None = None


class BindingDocument(_FromHub):
    """A ClusterResourceBinding as `kubectl get -o yaml` prints it."""

    noun: ClassVar[str] = BINDING_KIND

    api_version: Annotated[str, api_version(*PLACEMENT_VERSIONS)]
    kind: Annotated[str, word_of(BINDING_KIND)]
    metadata: BindingMeta = Field(default_factory=BindingMeta)
    spec: BindingSpec

    @property
    def placement(self) -> str | None:
        """Give the name of the placement that the binding belongs to, where it says so."""
        return self.metadata.labels.get(_PARENT_LABEL)

    @property
    def snapshot(self) -> str:
        """Give the name of the policy snapshot under which the binding was decided."""
        return self.spec.scheduling_policy_snapshot_name

    @property
    def is_deleting(self) -> bool:
        """Tell whether the binding is on its way out."""
        return self.metadata.deletion_timestamp is not None

    def binding(self, current_snapshot: str) -> Binding:
        """Give the binding as the scheduler sees it, given the latest policy snapshot."""
        score = self.spec.cluster_decision.cluster_score
        previous = self.metadata.annotations.get(_PREVIOUS_STATE, "")
        return Binding(
            self.spec.target_cluster,
            self.spec.state,
            is_current=self.snapshot == current_snapshot,
            topology_spread_score=score.priority_score,
            affinity_score=score.affinity_score,
            previous_state=BindingState.BOUND if previous == BindingState.BOUND else BindingState.SCHEDULED,
            is_deleting=self.is_deleting,
        )


def parse_case_bindings(raw: object, *, path: str = "") -> tuple[Binding, ...]:
    """Turn the `bindings` of a case into values. Raises Faults."""
    parsed = parse_model(CaseBindings, {"bindings": raw}, semantics=DEFAULT_SEMANTICS, path=path)
    return tuple(one.binding() for one in parsed.bindings)


def parse_binding(document: object) -> BindingDocument:
    """Turn a ClusterResourceBinding object into a value. Raises Faults; only one for another kind."""
    refuse_other_kinds(document, BINDING_KIND)
    return parse_model(BindingDocument, document, semantics=DEFAULT_SEMANTICS, path="")


def newest_snapshot(bindings: Iterable[BindingDocument]) -> str:
    """Give the newest policy snapshot that the bindings name: `<placement>-<index>`, by index."""
    return max((one.snapshot for one in bindings), key=_snapshot_order, default="")


def _snapshot_order(name: str) -> tuple[int, str]:
    match = _INDEX.fullmatch(name)
    return (int(match[1]) if match else -1), name
