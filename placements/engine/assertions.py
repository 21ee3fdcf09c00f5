"""Evaluation of the assertions of a placement: pure functions of a decision and what it is compared with."""

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, partial
from typing import Any

import numpy as np

from clusters.columns import ABSENT, Ints
from clusters.fleet import Fleet
from placements.engine.resilience import active, placed_after
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.scheduler import schedule
from placements.engine.scheduling.selectors import selects
from placements.manifests.assertions import (
    Assertion,
    Assertions,
    PlacementAssertion,
    parse_assertions,
    percent,
)
from placements.manifests.policy import PlacementType

_SHOWN = 10
Found = tuple[list[str], str]
"""What breaks an assertion, and why that is unknown."""


class AssertionState(StrEnum):
    """Whether an assertion holds."""

    HOLDS = "holds"
    BROKEN = "broken"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Known:
    """What assertions read besides the decision.

    `others` has the clusters of each placement that an assertion names, None for one that does not exist.
    `survived` has for each level of the resilience report whether its losses are survived.
    """

    others: Mapping[str, Set[str] | None] = field(default_factory=dict)
    survived: Mapping[str, bool] | None = None
    churn: int | None = None


@dataclass(frozen=True, slots=True)
class AssertionResult:
    """The state of one assertion, with the clusters or domains that break it, or why it is unknown."""

    predicate: str
    value: Any
    state: AssertionState
    evidence: tuple[str, ...] = ()
    reason: str = ""


def assertions_about(
    full_name: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    documents: Iterable[PlacementAssertion],
) -> list[tuple[str, Assertions]]:
    """Return the assertions of a placement by the document that has them, "" for its annotation."""
    own = parse_assertions(annotations)
    found = [("", own)] if own.items else []
    for one in documents:
        is_selected = one.spec.selector is not None and selects(one.spec.selector, labels)
        if is_selected or full_name in one.spec.placements:
            found.append((one.metadata.name, one.assertions))
    return found


def evaluate_assertions(
    items: Collection[Assertion], decision: Decision, known: Known
) -> list[AssertionResult]:
    fleet = decision.cycle.fleet
    stays = active(decision.cycle.live_bindings).difference(
        () if decision.is_failed else decision.unscheduled
    )
    kept = {name: fleet.positions[name] for name in stays if name in fleet.positions}
    placed = _PlacedClusters(
        fleet,
        decision,
        frozenset(kept),
        np.sort(np.concatenate((decision.chosen, np.array([*kept.values()], dtype=np.int64)))),
    )
    return [_evaluate(one, decision, placed, known) for one in items]


@dataclass(frozen=True)
class _PlacedClusters:
    """The positions of the placed clusters, in the order of their names."""

    fleet: Fleet
    decision: Decision
    kept: frozenset[str]
    positions: Ints

    def __len__(self) -> int:
        return len(self.positions)

    @cached_property
    def clusters(self) -> frozenset[str]:
        return self.kept.union(self.decision.picked_names)

    def counts(self, key: str) -> dict[str, int]:
        """Return how many of them have each value of a label."""
        column = self.fleet.label(key)
        codes = column.codes[self.positions]
        counts = np.bincount(codes[codes != ABSENT], minlength=len(column.values)).tolist()
        return {value: count for value, count in zip(column.values, counts, strict=True) if count}


def _evaluate(one: Assertion, decision: Decision, placed: _PlacedClusters, known: Known) -> AssertionResult:
    broken, reason = _PREDICATES[one.predicate](one.value, decision, placed, known)
    state = AssertionState.BROKEN if broken else AssertionState.HOLDS
    if reason and not broken:
        state = AssertionState.UNKNOWN
    more = (f"and {len(broken) - _SHOWN} more",) if len(broken) > _SHOWN else ()
    evidence = (*broken[:_SHOWN], *more)
    return AssertionResult(one.predicate, one.value, state, evidence, "" if broken else reason)


def _spread(value: Any, _decision: Decision, placed: _PlacedClusters, _known: Known) -> Found:
    counts = {key: len(placed.counts(key)) for key in value}
    short = {key: count for key, count in counts.items() if count < max(1, value[key]["atLeast"])}
    return [f"{key}: {count} of {value[key]['atLeast']}" for key, count in short.items()], ""


def _beside(
    value: Any, _decision: Decision, placed: _PlacedClusters, known: Known, *, is_apart: bool = False
) -> Found:
    others = known.others.get(value)
    if others is None:
        return [], f"placement {value} not found"
    return sorted(placed.clusters & others if is_apart else placed.clusters - others), ""


def _survives(value: Any, _decision: Decision, placed: _PlacedClusters, known: Known) -> Found:
    levels = [value] if isinstance(value, str) else value
    survived = known.survived or {}
    missing = [level for level in levels if level not in survived]
    reason = f"no resilience report of {', '.join(missing)} yet" if missing else ""
    return [level for level in levels if not placed or not survived.get(level, True)], reason


def _max_share(value: Any, _decision: Decision, placed: _PlacedClusters, _known: Known) -> Found:
    broken, total = [], len(placed)
    for key, share in value.items():
        most = percent(share) * total
        over = {name: count for name, count in placed.counts(key).items() if count * 100 > most}
        broken += [f"{key}={name}: {count} of {total}" for name, count in over.items()]
    return broken, ""


def _never(value: Any, _decision: Decision, placed: _PlacedClusters, _known: Known) -> Found:
    found = placed.positions
    for key, text in value.items():
        column = placed.fleet.label(key)
        code = column.code_of(text)
        found = found[(column.codes[found] == code) & (code != ABSENT)]
    return [placed.fleet.names[at] for at in found.tolist()], ""


def _churn(value: Any, _decision: Decision, _placed: _PlacedClusters, known: Known) -> Found:
    if known.churn is None:
        return [], "no history of decisions"
    is_over = known.churn > value["perWeek"]
    return [f"{known.churn} changes in 7 days"] if is_over else [], ""


def _min_free(value: Any, decision: Decision, _placed: _PlacedClusters, _known: Known) -> Found:
    """Run a cycle with so many more clusters; it is fulfilled where these are free."""
    cycle = decision.cycle
    if not value or cycle.policy.placement_type is not PlacementType.PICK_N:
        return [], ""
    wanted = (cycle.policy.number_of_clusters or 0) + value
    policy = cycle.policy.model_copy(update={"number_of_clusters": wanted})
    after = tuple(one for one in decision.bindings_after if one.is_active)
    found = schedule(replace(cycle, policy=policy, bindings=after, batch=None))
    count = len(placed_after(found))
    return [] if found.is_fulfilled else [f"{count} of {wanted} clusters are possible"], ""


_PREDICATES: dict[str, Callable[[Any, Decision, _PlacedClusters, Known], Found]] = {
    "never": _never,
    "spread": _spread,
    "together": _beside,
    "apart": partial(_beside, is_apart=True),
    "survives": _survives,
    "maxShare": _max_share,
    "minFree": _min_free,
    "churn": _churn,
}
