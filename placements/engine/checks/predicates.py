"""The predicates of assertions: pure functions of a decision and what it is compared with."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from clusters.columns import ABSENT, Codes
from clusters.fleet import Fleet
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.picker import possible_picks
from placements.engine.scheduling.scheduler import schedule
from placements.engine.scheduling.selectors import selects
from placements.manifests.assertions import (
    Assertion,
    AssertionEntry,
    parse_assertions,
    percent,
)
from placements.manifests.policy import PlacementType

_MOST_NAMES = 10
_Check = tuple[list[str], str]
"""What breaks an assertion, and why that is unknown."""


class AssertionState(StrEnum):
    HOLDS = "holds"
    BROKEN = "broken"
    UNKNOWN = "unknown"


_HOLDS, _BROKEN, _UNKNOWN = (
    AssertionState  # looking a member up costs as much as some predicates
)


@dataclass(frozen=True, slots=True)
class AssertionFacts:
    """What assertions read besides the decision.

    `others` has the clusters of each placement that an assertion names, None for one that does not exist.
    `survived` has for each level of the resilience report whether its losses are survived.
    """

    others: Mapping[str, set[str] | frozenset[str] | None] = field(default_factory=dict)
    survived: Mapping[str, bool] | None = None
    churn: int | None = None


class AssertionResult(NamedTuple):
    """The state of an assertion, with the clusters or domains that break it, or why it is unknown."""

    assertion: Assertion
    state: AssertionState
    evidence: tuple[str, ...] = ()
    reason: str = ""

    @property
    def is_broken(self) -> bool:
        return self.state is AssertionState.BROKEN

    @property
    def name(self) -> str:
        """The assertion as it is written: `spread: {"region": {"atLeast": 3}}`."""
        value = self.assertion.value
        text = (
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        )
        return f"{self.assertion.predicate}: {text}"

    @property
    def sentence(self) -> str:
        details = ", ".join(self.evidence) or self.reason
        return f"{self.name} ({details})" if details else self.name


def assertions_about(
    full_name: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    entries: Iterable[AssertionEntry],
) -> tuple[Assertion, ...]:
    """Return the assertions of a placement: of its annotation, and of the entries that are about it."""
    assertions = [*parse_assertions(annotations)]
    for entry in entries:
        is_selected = entry.selector is not None and selects(entry.selector, labels)
        is_about_all = entry.selector is None and not entry.placements
        if is_selected or is_about_all or full_name in entry.placements:
            assertions += entry.assertions
    return tuple(assertions)


def evaluate_assertions(
    items: Collection[Assertion], decision: Decision, facts: AssertionFacts
) -> list[AssertionResult]:
    fleet, positions = decision.cycle.fleet, decision.chosen
    if decision.cycle.live_bindings:
        is_placed = decision.cycle.is_active.copy()
        if not decision.is_failed:
            removed = filter(fleet.positions.__contains__, decision.unscheduled)
            is_placed[[fleet.positions[name] for name in removed]] = False
        is_placed[positions] = True
        positions = is_placed.nonzero()[0].astype(np.int32)
    placed = _PlacedClusters(fleet, positions)
    return [_evaluate(item, decision, placed, facts) for item in items]


@dataclass
class _PlacedClusters:
    """The positions of the placed clusters, in any order."""

    fleet: Fleet
    positions: Codes

    def __len__(self) -> int:
        return len(self.positions)

    @cached_property
    def names(self) -> list[str]:
        return [self.fleet.names[position] for position in self.positions.tolist()]


def _evaluate(
    one: Assertion, decision: Decision, placed: _PlacedClusters, facts: AssertionFacts
) -> AssertionResult:
    broken, reason = _PREDICATES[one.predicate](one.value, decision, placed, facts)
    if not broken:
        return AssertionResult(one, _UNKNOWN if reason else _HOLDS, (), reason)
    more = (
        (f"and {len(broken) - _MOST_NAMES} more",) if len(broken) > _MOST_NAMES else ()
    )
    return AssertionResult(one, _BROKEN, (*broken[:_MOST_NAMES], *more))


def _spread(
    value: Any, _decision: Decision, placed: _PlacedClusters, _facts: AssertionFacts
) -> _Check:
    counts = {
        key: len(placed.fleet.label(key).counts(placed.positions)) for key in value
    }
    short = {
        key: count
        for key, count in counts.items()
        if count < max(1, value[key]["atLeast"])
    }
    return [
        f"{key}: {count} of {value[key]['atLeast']}" for key, count in short.items()
    ], ""


def _beside(
    value: Any,
    _decision: Decision,
    placed: _PlacedClusters,
    facts: AssertionFacts,
    *,
    is_apart: bool = False,
) -> _Check:
    others, names = facts.others.get(value), placed.names
    if others is None:
        return [], f"placement {value} not found"
    if is_apart:
        return sorted(others.intersection(names)), ""
    return [] if others.issuperset(names) else sorted({*names} - others), ""


def _survives(
    value: Any, _decision: Decision, placed: _PlacedClusters, facts: AssertionFacts
) -> _Check:
    levels = [value] if isinstance(value, str) else value
    survived = facts.survived or {}
    missing = [level for level in levels if level not in survived]
    reason = f"no resilience report of {', '.join(missing)} yet" if missing else ""
    return [
        level for level in levels if not placed or not survived.get(level, True)
    ], reason


def _max_share(
    value: Any, _decision: Decision, placed: _PlacedClusters, _facts: AssertionFacts
) -> _Check:
    broken, total = [], len(placed)
    for key, share in value.items():
        most = percent(share) * total
        counts = placed.fleet.label(key).counts(placed.positions)
        broken += [
            f"{key}={name}: {count} of {total}"
            for name, count in counts
            if count * 100 > most
        ]
    return broken, ""


def _never(
    value: Any, _decision: Decision, placed: _PlacedClusters, _facts: AssertionFacts
) -> _Check:
    positions = placed.positions
    for key, text in value.items():
        column = placed.fleet.label(key)
        code = column.code_of(text)
        if code == ABSENT:
            return [], ""
        positions = positions[column.codes[positions] == code]
    return sorted(placed.fleet.names[at] for at in positions.tolist()), ""


def _churn(
    value: Any, _decision: Decision, _placed: _PlacedClusters, facts: AssertionFacts
) -> _Check:
    if facts.churn is None:
        return [], "no history of decisions"
    is_over = facts.churn > value["perWeek"]
    return [f"{facts.churn} changes in 7 days"] if is_over else [], ""


def _min_free(
    value: Any, decision: Decision, placed: _PlacedClusters, _facts: AssertionFacts
) -> _Check:
    """Pick the additional clusters after the picks of the decision, or else in a separate cycle."""
    cycle = decision.cycle
    if not value or cycle.policy.placement_type is not PlacementType.PICK_N:
        return [], ""
    wanted = (cycle.policy.number_of_clusters or 0) + value
    candidates, picks = decision.candidates, decision.picks
    if candidates is not None and picks is not None:
        more = 0 if picks.ran_dry else possible_picks(candidates, picks, value)
        return [] if more == value else [
            f"{len(placed) + more} of {wanted} clusters are possible"
        ], ""
    policy = cycle.policy.model_copy(update={"number_of_clusters": wanted})
    after = tuple(binding for binding in decision.bindings_after if binding.is_active)
    scaled_up = schedule(replace(cycle, policy=policy, bindings=after, batch=None))
    count = len(scaled_up.placed_after)
    return [] if scaled_up.is_fulfilled else [
        f"{count} of {wanted} clusters are possible"
    ], ""


_PREDICATES: dict[
    str, Callable[[Any, Decision, _PlacedClusters, AssertionFacts], _Check]
] = {
    "never": _never,
    "spread": _spread,
    "together": _beside,
    "apart": partial(_beside, is_apart=True),
    "survives": _survives,
    "maxShare": _max_share,
    "minFree": _min_free,
    "churn": _churn,
}
