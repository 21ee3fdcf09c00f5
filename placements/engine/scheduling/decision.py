"""The result of a scheduling cycle, and all that is needed to explain it.

Pages, charts, the API and the command line render this one object. Rounds and outcomes (`outcome.py`) are
computed on demand from the picks and the columns. `ENGINE_VERSION` is part of every decision id.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any

from clusters.columns import Codes
from clusters.fleet import ANY_NAME, SCORE_PREFIX
from clusters.managed_cluster import documents_digest
from placements.engine.scheduling.candidates import Candidates, Picks, Verdicts
from placements.engine.scheduling.cycle import NO_CLUSTERS, Cycle
from placements.engine.scheduling.filters.cluster_sets import leaving_in_hub, set_keys
from placements.engine.scheduling.filters.taint_toleration import (
    tolerates,
    toleration_end,
)
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.round import Round, SpreadScore
from placements.engine.scheduling.scores.ocm_prioritizers import (
    add_on_scores,
    reported_scores,
)
from placements.engine.scheduling.selectors import (
    Malformed,
    label_requirements,
    property_requirements,
)
from placements.engine.scheduling.spread.base import reported_score
from placements.manifests.affinity import ClusterSelectorTerm
from placements.manifests.binding import BindingState, PlacedBinding
from placements.manifests.policy import KeyType, PlacementPolicy

ENGINE_VERSION = "3"
_FIRST_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)
_JUST_AFTER = timedelta(microseconds=1)


class CycleKind(StrEnum):
    PICK_FIXED = "pick-fixed"
    NO_NAMES = "no-names"
    PICK_ALL = "pick-all"
    PICK = "pick"
    SCALE_DOWN = "scale-down"
    NOTHING_TO_DO = "nothing-to-do"
    FAILED = "failed"
    REBALANCE = "rebalance"


WITHOUT_EVALUATION = frozenset(
    {CycleKind.SCALE_DOWN, CycleKind.NOTHING_TO_DO, CycleKind.REBALANCE}
)
"""The kinds of cycles that compare no clusters with each other."""


@dataclass(frozen=True, slots=True)
class Picked:
    """One cluster chosen in this cycle, with the scores of its round; PickFixed has none."""

    cluster: str
    topology_spread_score: SpreadScore | None = None
    affinity_score: float | None = None


@dataclass(frozen=True)
class Decision:
    """The result of one scheduling cycle.

    `chosen` has the positions of the clusters picked, in the order of picking; `kept` and `unscheduled`
    are names, sorted, the latter with clusters that are no longer in the fleet. `verdicts` are the
    filters' where filters ran; `candidates` and `picks` are there when a PickN cycle picked. `scores` are
    the topology spread and affinity scores of the clusters that rescheduling with few moves adds.
    """

    cycle: Cycle
    kind: CycleKind
    chosen: Codes = field(default_factory=lambda: NO_CLUSTERS)
    kept: tuple[str, ...] = ()
    unscheduled: tuple[str, ...] = ()
    not_found: tuple[str, ...] = ()
    is_fulfilled: bool = False
    verdicts: Verdicts | None = None
    candidates: Candidates | None = None
    picks: Picks | None = None
    malformed: tuple[Malformed, ...] = ()
    scores: tuple[tuple[SpreadScore, float], ...] = ()

    @cached_property
    def id(self) -> str:
        """Return the content hash of the inputs (`rules/scheduler.md#record-of-a-decision`)."""
        cycle = self.cycle
        identity = {
            "engine": ENGINE_VERSION,
            "semantics": cycle.semantics,
            "options": dict(cycle.options),
            "policy": cycle.policy.to_plain(),
            "bindings": [binding_facts(binding) for binding in cycle.live_bindings],
            "fleet": fleet_digest(cycle),
        }
        if cycle.namespace:
            identity["namespace"] = cycle.namespace
        if cycle.moment is not None or cycle.cluster_sets is not None:
            identity |= hub_facts(cycle)
        if cycle.batch is not None:
            identity["batch"] = cycle.batch.to_plain()
        text = json.dumps(
            identity, ensure_ascii=False, sort_keys=True, separators=(",", ":")
        )

        return "d-" + hashlib.sha256(text.encode()).hexdigest()[:32]

    @cached_property
    def picked_names(self) -> tuple[str, ...]:
        return tuple(map(self.cycle.fleet.names.__getitem__, self.chosen.tolist()))

    @cached_property
    def picked(self) -> tuple[Picked, ...]:
        """Return the clusters picked in this cycle, in the order of picking, with their rounds' scores."""
        if self.kind is CycleKind.PICK_FIXED:
            return tuple(map(Picked, self.picked_names))
        if self.kind is CycleKind.REBALANCE:
            return tuple(
                Picked(name, *one)
                for name, one in zip(self.picked_names, self.scores, strict=True)
            )
        if self.candidates is None or self.picks is None:
            return tuple(Picked(name, 0, 0) for name in self.picked_names)
        affinity = self.candidates.affinity[self.chosen].tolist()
        columns = [column.tolist() for column in self.picks.spread]
        rows = zip(*columns, strict=True) if columns else ((),) * len(affinity)
        spread = (reported_score(list(row), self.candidates.strategy) for row in rows)
        return tuple(map(Picked, self.picked_names, spread, affinity))

    @property
    def is_failed(self) -> bool:
        return self.kind is CycleKind.FAILED

    @property
    def is_unsatisfiable(self) -> bool:
        """Return whether it failed with too few candidates; otherwise a property value made it fail."""
        return self.is_failed and not profile_of(self.cycle).fails_on_malformed_property

    @property
    def number_of_rounds(self) -> int:
        """Return how many rounds were evaluated; the last one may have found no candidate."""
        if self.candidates is None or self.picks is None:
            return 0
        if not self.candidates.constraints:
            return 1
        return len(self.picks.positions) + self.picks.ran_dry

    @property
    def domains_in_round(self) -> int:
        """Return how many domains a round compares, over all constraints: a key may have one per cluster."""
        groups = () if self.candidates is None else self.candidates.groups
        return sum(len(group.values) for group in groups)

    def round(self, number: int) -> Round:
        """Return one round, numbered from 1, computed again. Raise IndexError for any other number."""
        if (
            self.candidates is None
            or self.picks is None
            or not 1 <= number <= self.number_of_rounds
        ):
            raise IndexError(
                f"round {number} not found: this decision has {self.number_of_rounds}"
            )
        return Round(self.candidates, number, self.picks.positions[: number - 1])

    @property
    def placed_after(self) -> frozenset[str]:
        """Return the clusters with an active binding after the decision."""
        kept = self.cycle.placed_before.difference(self.unscheduled)
        return kept.union(self.picked_names)

    @cached_property
    def bindings_after(self) -> tuple[PlacedBinding, ...]:
        """Return the placement's bindings after the decision, by cluster name."""
        before = {binding.cluster: binding for binding in self.cycle.live_bindings}
        after = before | {
            name: before[name].unscheduled(before[name].state)
            for name in self.unscheduled
        }
        for picked in self.picked:
            old, state = before.get(picked.cluster), BindingState.SCHEDULED
            if old is not None:
                state = old.state if old.is_active else old.previous_state
            after[picked.cluster] = PlacedBinding(
                picked.cluster,
                state,
                topology_spread_score=picked.topology_spread_score,
                affinity_score=picked.affinity_score,
            )
        return tuple(after[name] for name in sorted(after))


def binding_facts(binding: PlacedBinding) -> dict[str, object]:
    """Return a binding as plain data: the part of it that an id and a stored record contain."""
    return {
        "cluster": binding.cluster,
        "state": binding.state,
        "policy": "current" if binding.is_current else "obsolete",
        "previousState": binding.previous_state,
        "topologySpreadScore": _score_identity(binding.topology_spread_score),
        "affinityScore": _score_identity(binding.affinity_score),
    }


def _score_identity(score: SpreadScore | None) -> SpreadScore | None:
    """Return 1 and 1.0 as the same text: a database may return one where the scheduler had the other."""
    if isinstance(score, tuple):
        return tuple(float(one) + 0.0 for one in score)
    return None if score is None else float(score) + 0.0


def fleet_digest(cycle: Cycle) -> str:
    """Return the hash of what the cycle reads of its fleet."""
    digest = cycle.fleet.digest(
        labels_read(cycle), properties_read(cycle), cycle.namespace
    )
    facts = profile_of(cycle).has_hub_objects and _facts_of_hub(cycle)
    if not facts:
        return digest
    return hashlib.sha256(f"{digest}{json.dumps(facts)}".encode()).hexdigest()


def _facts_of_hub(cycle: Cycle) -> dict[str, object]:
    """Return what a cycle under `ocm` reads of clusters beside labels, properties and taints."""
    facts: dict[str, object] = {}
    if cycle.cluster_sets is not None:
        facts["leaving"] = leaving_in_hub(cycle.fleet)
    for add_on in cycle.ocm_options.add_ons:
        scores = add_on_scores(add_on, cycle)
        if scores.any():
            facts[f"{add_on.resource_name}/{add_on.score_name}"] = scores.tolist()
    fleet = cycle.fleet.of_hub
    has_ends = cycle.moment is not None and _has_ends(cycle.policy)
    if has_ends or fleet is not cycle.fleet:
        sets = [list(map(str, taints)) for taints in fleet.taint_sets]
        facts["taints"] = list(map(sets.__getitem__, fleet.taint_codes.tolist()))
    if cycle.moment is not None and _has_expressions(cycle.policy):
        facts["clusters"] = documents_digest(cycle.fleet)
    return facts


def hub_facts(cycle: Cycle) -> dict[str, Any]:
    """Return what a cycle has of a hub beside its fleet, for its id and its record."""
    facts: dict[str, Any] = {}
    if cycle.moment is not None:
        facts["moment"] = cycle.moment.isoformat()
    if cycle.cluster_sets is not None:
        facts["clusterSets"] = dict(cycle.cluster_sets)
    return facts


def reads_hub(cycle: Cycle) -> bool:
    """Return whether a cycle under `ocm` reads scores, times of taints or whole objects of clusters."""
    reads = _has_ends(cycle.policy) or _has_expressions(cycle.policy)
    return reads or bool(cycle.ocm_options.add_ons)


def names_read(cycle: Cycle) -> tuple[set[str], set[str]]:
    """Return the labels and properties whose changes may change a decision, `ANY_NAME` for all of them."""
    keys = {*labels_read(cycle)}
    names = {*properties_read(cycle)}
    if profile_of(cycle).has_hub_objects:
        # The selector of a set may read any label.
        keys.add(ANY_NAME)
        add_ons = cycle.ocm_options.add_ons
        names |= {f"{SCORE_PREFIX}{add_on.resource_name}" for add_on in add_ons}
    if _has_ends(cycle.policy) or _has_expressions(cycle.policy):
        names.add(ANY_NAME)
    return keys, names


def _has_ends(policy: PlacementPolicy) -> bool:
    return any(
        toleration.toleration_seconds is not None for toleration in policy.tolerations
    )


def _has_expressions(policy: PlacementPolicy) -> bool:
    return any(term.cel_expressions for term in _terms(policy))


def at_moment(cycle: Cycle, now: datetime) -> Cycle:
    """Return the cycle as it runs now; without a moment if nothing that it reads ever ends.

    The moment is the latest one at which something that it reads ended, so that equal inputs have equal ids
    (`rules/other-schedulers.md#stored-objects`).
    """
    if not reads_hub(cycle):
        return cycle
    ended = (moment for moment in _moments(cycle) if moment <= now)
    return replace(cycle, moment=max(ended, default=_FIRST_MOMENT))


def next_moment(cycle: Cycle) -> datetime | None:
    """Return when a cycle may decide something else although nothing was changed."""
    if cycle.moment is None:
        return None
    return min(
        (moment for moment in _moments(cycle) if moment > cycle.moment), default=None
    )


def _moments(cycle: Cycle) -> Iterator[datetime]:
    for add_on in cycle.ocm_options.add_ons:
        for _, scores in reported_scores(add_on, cycle.fleet):
            if scores.valid_until is not None:
                # At its very end a score still counts.
                yield scores.valid_until + _JUST_AFTER
    ends = (
        toleration_end(taint, toleration.toleration_seconds)
        for taints in cycle.fleet.of_hub.taint_sets
        for taint in taints
        for toleration in cycle.policy.tolerations
        if toleration.toleration_seconds is not None
        and tolerates(toleration, taint, None)
    )
    yield from filter(None, ends)


def labels_read(cycle: Cycle) -> tuple[str, ...]:
    """Return the label keys that a policy and its options mention, sorted."""
    keys = _topology_keys(cycle, KeyType.LABEL)
    for chosen in (cycle.cluster_sets or {}).values():
        keys |= set_keys(chosen)
    for term in _terms(cycle.policy):
        keys.update(
            requirement.key for requirement in label_requirements(term.label_selector)
        )
    return tuple(sorted(keys))


def properties_read(cycle: Cycle) -> tuple[str, ...]:
    """Return the property names that a policy and its options mention, claims among them, sorted."""
    names = _topology_keys(cycle, KeyType.CLAIM)
    for term in _terms(cycle.policy):
        names.update(requirement.name for requirement in property_requirements(term))
        names.update(
            requirement.key for requirement in label_requirements(term.claim_selector)
        )
        if term.property_sorter is not None:
            names.add(term.property_sorter.name)
    return tuple(sorted(names | profile_of(cycle).preference.properties_read()))


def _topology_keys(cycle: Cycle, kind: KeyType) -> set[str]:
    spread = {
        constraint.topology_key
        for constraint in cycle.policy.topology_spread_constraints
        if (constraint.topology_key_type or KeyType.LABEL) is kind
    }
    return spread | profile_of(cycle).preference.keys_read(kind)


def _terms(policy: PlacementPolicy) -> Iterator[ClusterSelectorTerm]:
    yield from policy.required_terms
    yield from (term.preference for term in policy.preferred_terms)
