"""The ClusterResourcePlacement document and its spec: `parse_placement` and `parse_placement_spec`.

Rules: `spec/lifecycle.md` A.16, A.17, B.1.1 to B.1.4. The scheduling policy has its own module.
"""

import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from placements.scheduling.door.fields import api_version, listed, one_of, whole, word_of
from placements.scheduling.door.kinds import PLACEMENT_KIND, PLACEMENT_VERSIONS, refuse_other_kinds
from placements.scheduling.door.metadata import ObjectMeta
from placements.scheduling.door.parsing import Parsed, Raw, items_at, mapping_at, parse_model
from placements.scheduling.door.plain import plain_problems
from placements.scheduling.door.resource_selectors import (
    ResourceSelector,
    SelectionScope,
    namespaced_problems,
    scope_problems,
    selects_namespace,
)
from placements.scheduling.door.strategy import ApplyStrategy, RollingUpdate, RolloutStrategy, StrategyType
from placements.scheduling.faults import Caveat, Problem
from placements.scheduling.policy import PlacementPolicy, policy_caveats
from placements.scheduling.semantics import Semantics, semantics_problem

__all__ = [
    "APPROVER_DIFFERS_ANNOTATION",
    "SEMANTICS_ANNOTATION",
    "SPREAD_OPTIONS_ANNOTATION",
    "ApplyStrategy",
    "ClusterResourcePlacement",
    "PlacementSpec",
    "ResourceSelector",
    "RollingUpdate",
    "RolloutStrategy",
    "SelectionScope",
    "StatusReportingScope",
    "StrategyType",
    "parse_placement",
    "parse_placement_spec",
    "parse_resource_selectors",
    "spec_caveats",
]

SEMANTICS_ANNOTATION = "fleetui.io/semantics"
SPREAD_OPTIONS_ANNOTATION = "fleetui.io/spread-options"
APPROVER_DIFFERS_ANNOTATION = "fleetui.io/approver-differs"
MOST_SELECTORS = 100
_STORED = "stored, not acted on yet"


class StatusReportingScope(StrEnum):
    """Who can read a placement's status on the hub."""

    CLUSTER_SCOPE_ONLY = "ClusterScopeOnly"
    NAMESPACE_ACCESSIBLE = "NamespaceAccessible"


class PlacementSpec(Parsed):
    """What to place, where, and how changes get there."""

    noun: ClassVar[str] = "placement spec"

    resource_selectors: Annotated[tuple[ResourceSelector, ...], listed(low=1, high=MOST_SELECTORS)]
    policy: PlacementPolicy = Field(default_factory=PlacementPolicy)
    strategy: RolloutStrategy = Field(default_factory=RolloutStrategy)
    revision_history_limit: Annotated[int, whole(1, 1000)] = 10
    status_reporting_scope: Annotated[StatusReportingScope, one_of(StatusReportingScope)] = (
        StatusReportingScope.CLUSTER_SCOPE_ONLY
    )

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """What resource selectors demand of each other and of the status scope (lifecycle B.1.1)."""
        selectors = items_at(raw, "resourceSelectors")[:MOST_SELECTORS]
        across = (*scope_problems(selectors), *namespaced_problems(selectors))
        yield from (problem.under("resourceSelectors") for problem in across)
        namespaces = sum(selects_namespace(mapping_at(selector)) for selector in selectors)
        if raw.get("statusReportingScope") == StatusReportingScope.NAMESPACE_ACCESSIBLE and namespaces != 1:
            message = "NamespaceAccessible needs exactly one resource selector of kind Namespace"
            yield Problem(("statusReportingScope",), "conflict", message, "ClusterScopeOnly")


class ClusterResourcePlacement(Parsed):
    """A whole document; its status is accepted and left aside."""

    noun: ClassVar[str] = PLACEMENT_KIND
    left_aside: ClassVar[frozenset[str]] = frozenset({"status"})

    api_version: Annotated[str, api_version(*PLACEMENT_VERSIONS)]
    kind: Annotated[str, word_of(PLACEMENT_KIND)]
    metadata: ObjectMeta
    spec: PlacementSpec

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """The annotations of this console must be readable (lifecycle A.16)."""
        annotations = mapping_at(raw, "metadata", "annotations")
        for key, problem_of in _OUR_ANNOTATIONS.items():
            problem = problem_of(annotations[key]) if isinstance(annotations.get(key), str) else None
            if problem:
                yield problem.under("metadata", "annotations", key)

    @property
    def semantics(self) -> Semantics:
        """Give the semantics that the annotation names, `fleet` without one."""
        return Semantics(self.metadata.annotations.get(SEMANTICS_ANNOTATION, Semantics.FLEET))

    @property
    def spread_options(self) -> dict[str, Any]:
        """Give the options of the spread rules, as the annotation holds them."""
        text = self.metadata.annotations.get(SPREAD_OPTIONS_ANNOTATION)
        return dict(json.loads(text)) if text else {}

    @property
    def approver_differs(self) -> bool:
        """Tell whether somebody else has to approve the stages of a run than who started it."""
        return self.metadata.annotations.get(APPROVER_DIFFERS_ANNOTATION) == "true"

    def to_manifest(self) -> dict[str, Any]:
        """Give the document to export; parsing it gives an equal value."""
        return self.to_plain()


def _spread_options_problem(text: str) -> Problem | None:
    allowed = 'a JSON object such as {"mode": "strict"}'
    try:
        options = json.loads(text)
    except (ValueError, RecursionError):
        return Problem((), "bad-format", "is not JSON", allowed)
    if not isinstance(options, dict) or plain_problems(options):
        return Problem((), "bad-format", "is not a plain JSON object", allowed)
    return None


def _truth_problem(text: str) -> Problem | None:
    allowed = '"true" or "false"'
    return None if text in ("true", "false") else Problem((), "bad-format", "is neither", allowed)


_OUR_ANNOTATIONS = {
    APPROVER_DIFFERS_ANNOTATION: _truth_problem,
    SEMANTICS_ANNOTATION: semantics_problem,
    SPREAD_OPTIONS_ANNOTATION: _spread_options_problem,
}


def parse_placement(document: object) -> ClusterResourcePlacement:
    """Turn a ClusterResourcePlacement document into a value; raise Faults with all that is wrong.

    A document of another kind has that one fault only.
    """
    refuse_other_kinds(document, PLACEMENT_KIND)
    named = mapping_at(document, "metadata", "annotations").get(SEMANTICS_ANNOTATION)
    semantics = Semantics(named) if named in list(Semantics) else Semantics.FLEET
    return parse_model(ClusterResourcePlacement, document, semantics=semantics, path="")


def parse_placement_spec(
    raw: object, *, semantics: Semantics = Semantics.FLEET, path: str = "spec"
) -> PlacementSpec:
    """Turn the `spec` of a placement into a value; raise Faults with all that is wrong."""
    return parse_model(PlacementSpec, raw, semantics=semantics, path=path)


def parse_resource_selectors(
    raw: Iterable[object], *, path: str = "spec.resourceSelectors"
) -> tuple[ResourceSelector, ...]:
    """Turn resource selectors into values, each by itself. Raises Faults."""
    return tuple(
        parse_model(ResourceSelector, one, semantics=Semantics.FLEET, path=f"{path}[{index}]")
        for index, one in enumerate(raw)
    )


def spec_caveats(spec: PlacementSpec, *, path: str = "spec") -> tuple[Caveat, ...]:
    """List what was accepted and may surprise (lifecycle A.2, A.17); no fleet is needed to see it."""
    caveats = [*policy_caveats(spec.policy, path=f"{path}.policy"), *_strategy_caveats(spec.strategy, path)]
    if spec.status_reporting_scope is StatusReportingScope.NAMESPACE_ACCESSIBLE:
        caveats.append(
            Caveat("not-acted-on-yet", f"{path}.statusReportingScope", f"NamespaceAccessible: {_STORED}")
        )
    return tuple(caveats)


def _strategy_caveats(strategy: RolloutStrategy, path: str) -> Iterator[Caveat]:
    budgets = strategy.rolling_update
    if budgets and budgets.max_unavailable.number == 0:
        message = "0 means that in-place updates will not start"
        yield Caveat("zero-max-unavailable", f"{path}.strategy.rollingUpdate.maxUnavailable", message)
    if budgets and budgets.max_surge.number == 0:
        message = "0 means that a replacement starts only after a removal"
        yield Caveat("zero-max-surge", f"{path}.strategy.rollingUpdate.maxSurge", message)
    if strategy.apply_strategy != ApplyStrategy():
        message = f"anything but the defaults: {_STORED}"
        yield Caveat("not-acted-on-yet", f"{path}.strategy.applyStrategy", message)
