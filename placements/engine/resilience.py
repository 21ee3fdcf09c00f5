"""What the loss of each cluster and each domain does to placements (`rules/foresight.md#resilience`).

Budgets and pauses are left aside: they affect when placements move, not the result.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np

from clusters.columns import ABSENT
from clusters.fleet import CORDON_KEY, CORDON_VALUE, NO_SCHEDULE, Fleet, Taint
from placements.engine.disruption import KeptReason
from placements.engine.scheduling.candidates import Candidates, candidates_of, malformed_properties
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.filters.taint_toleration import untolerated
from placements.engine.scheduling.picker import pick
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.scheduler import schedule
from placements.engine.scheduling.spread.base import SpreadInput
from placements.manifests.binding import BindingState, PlacedBinding
from placements.manifests.policy import PlacementPolicy, PlacementType

CORDON = Taint(CORDON_KEY, CORDON_VALUE, NO_SCHEDULE)
MOST_CYCLES = 10
"""A placement is stable after one or two cycles; otherwise the evaluation ends after this many."""


class LossVariant(StrEnum):
    """How clusters are lost."""

    DOWN = "down"
    """They stay members and do not work: nothing moves yet."""
    CORDON = "cordon"
    """They are cordoned and evicted, and stay members."""
    LEAVE = "leave"
    """They leave the fleet."""


def why_stays(policy: PlacementPolicy, *, is_namespaced: bool) -> KeptReason | None:
    """Return why a placement is not evictable from a cordoned cluster, None if it is."""
    if is_namespaced:
        return KeptReason.NAMESPACED
    if policy.placement_type is PlacementType.PICK_FIXED:
        return KeptReason.PICK_FIXED
    return None if untolerated((CORDON,), policy.tolerations) else KeptReason.TOLERATES


def cordoned(fleet: Fleet, *names: str) -> Fleet:
    positions = [fleet.positions[name] for name in dict.fromkeys(names) if name in fleet.positions]
    members = [fleet.clusters[position] for position in positions]
    changed = [one for one in members if CORDON not in one.taints]
    return fleet.with_clusters([one._replace(taints=(*one.taints, CORDON)) for one in changed])


def without(cycle: Cycle, *clusters: str, fleet: Fleet | None = None) -> Cycle:
    """Return the cycle that follows the eviction from these clusters, on another fleet if there is one."""
    names = frozenset(clusters)
    bindings = tuple(
        one._replace(state=BindingState.UNSCHEDULED, previous_state=BindingState.BOUND)
        if one.cluster in names and one.is_active
        else one
        for one in cycle.bindings
    )
    return replace(cycle, bindings=bindings, fleet=cycle.fleet if fleet is None else fleet)


def decisions_until_rest(start: Cycle) -> list[Decision]:
    """Schedule until nothing changes; return the first decision and those after it with a change.

    A placement that keeps its clusters is at rest after one cycle, which ends with the counts that the next
    one would start with.
    """
    chain = [schedule(start)]
    if not profile_of(start).chooses_again and not start.binding_classes.obsolete:
        return chain
    while len(chain) < MOST_CYCLES and _has_changes(chain[-1]):
        following = schedule(replace(start, bindings=chain[-1].bindings_after))
        if not _has_changes(following):
            break
        chain.append(following)
    return chain


def _has_changes(decision: Decision) -> bool:
    return not decision.is_failed and placed_after(decision) != active(decision.cycle.live_bindings)


def placed_after(decision: Decision) -> frozenset[str]:
    if decision.is_failed:
        binding_classes = decision.cycle.binding_classes
        return frozenset(one.cluster for one in (*binding_classes.current, *binding_classes.obsolete))
    picked, ended = decision.picked_names, frozenset(decision.unscheduled)
    return (active(decision.cycle.live_bindings) - ended).union(picked)


def active(bindings: Iterable[PlacedBinding]) -> frozenset[str]:
    return frozenset(one.cluster for one in bindings if one.is_active)


CLUSTER = "cluster"
"""The level of single clusters; every other level is a topology key."""
_USUAL = ("zone", "region", "provider")
MOST_DOMAINS = 200
_USUAL_SHARE = 80
AND = "+"
"""Between the parts of a pair: the level `region+region`, the value `east+west`. No label has this sign."""
MOST_PAIRED = 20


def pair_key(level: str) -> str:
    """Return the key of which a level has pairs of domains, empty for one that has single domains."""
    key, sign, other = level.partition(AND)
    return key if sign and key == other else ""


def level_rank(level: str) -> tuple[bool, int, str]:
    """Return the sort key of levels: cluster, zone, region, provider, other keys by name, then pairs."""
    order = (CLUSTER, *_USUAL)
    last = (pair_key(level) or level).rpartition("/")[2]
    return (AND in level, order.index(last) if last in order else len(order), level)


def default_keys(fleet: Fleet, policies: Iterable[PlacementPolicy]) -> tuple[str, ...]:
    """Return the topology keys of the policies, and usual ones that most clusters have."""
    used = {
        one.topology_key
        for policy in policies
        for one in policy.topology_spread_constraints
        if one.topology_key_type != "Claim"
    }
    for key in _USUAL:
        column = fleet.label(key)
        is_common = int(column.is_present.sum()) * 100 >= _USUAL_SHARE * len(fleet)
        if is_common and len(column.values) > 1:
            used.add(key)
    keys = [key for key in used if 0 < len(fleet.label(key).values) <= MOST_DOMAINS]
    return tuple(sorted(keys, key=level_rank))


class Loss(NamedTuple):
    """One cluster, or all clusters of one domain or of two."""

    level: str
    value: str
    clusters: tuple[str, ...]


def losses_of(fleet: Fleet, keys: Sequence[str], *, has_clusters: bool = True) -> list[Loss]:
    """Return the domains of the keys, the first 200 of each, then every single cluster.

    A key such as `region+region` means every pair of its domains, of the first 20.
    """
    losses = list[Loss]()
    for key in keys:
        paired = pair_key(key)
        column = fleet.label(paired or key)
        members: dict[int, list[str]] = {}
        for name, code in zip(fleet.names, column.codes.tolist(), strict=True):
            if code != ABSENT:
                members.setdefault(code, []).append(name)
        domains = [
            Loss(key, value, tuple(members[code])) for code, value in enumerate(column.values[:MOST_DOMAINS])
        ]
        if paired:
            domains = [
                Loss(key, f"{one.value}{AND}{other.value}", one.clusters + other.clusters)
                for one, other in combinations(domains[:MOST_PAIRED], 2)
            ]
        losses += domains
    return losses + [Loss(CLUSTER, name, (name,)) for name in fleet.names if has_clusters]


class LossResult(NamedTuple):
    """What one loss does to one placement: numbers of clusters, and whether it is unfulfilled or empty.

    `skew` is the worst of all constraints after the loss; of clusters that are down those that work count.
    """

    kept: int
    moved: int
    lost: int
    is_unfulfilled: bool = False
    is_empty: bool = False
    skew: int = 0

    @property
    def is_bad(self) -> bool:
        return self.is_unfulfilled or self.is_empty


@dataclass(frozen=True)
class Subject:
    """A placement whose losses are evaluated: its cycle on the fleet as it is."""

    cycle: Cycle
    was_fulfilled: bool | None
    can_be_evicted: bool = True

    @cached_property
    def placed(self) -> frozenset[str]:
        return active(self.cycle.live_bindings)

    @cached_property
    def _needs_cycle(self) -> bool:
        """Return whether a scheduler has to decide what replaces a lost cluster."""
        if profile_of(self.cycle).chooses_again or self.cycle.binding_classes.obsolete:
            return True
        return self.cycle.policy.placement_type is PlacementType.PICK_N

    @cached_property
    def _candidates(self) -> Candidates | None:
        """The columns of a cycle, where a loss changes nothing of them but the entries of lost clusters."""
        cycle, policy, binding_classes = self.cycle, self.cycle.policy, self.cycle.binding_classes
        if (
            policy.placement_type is not PlacementType.PICK_N
            or not profile_of(cycle).has_exact_search
            or binding_classes.obsolete
            or binding_classes.dangling
            or len(binding_classes.current) > (policy.number_of_clusters or 0)
            or any(term.preference.property_sorter for term in policy.preferred_terms)
            or malformed_properties(cycle)
        ):
            return None
        return candidates_of(cycle)

    def _skew(self, fleet: Fleet, names: Iterable[str]) -> int:
        """Return the worst skew of the constraints with these clusters."""
        constraints = self.cycle.policy.topology_spread_constraints
        positions = [fleet.positions[name] for name in names] if constraints else []
        worst = 0
        for one in constraints:
            column = fleet.topology(one.topology_key, one.topology_key_type)
            codes = column.codes[positions]
            counts = np.bincount(codes[codes != ABSENT], minlength=len(column.values))
            worst = max(worst, int(np.ptp(counts)) if len(counts) else 0)
        return worst

    def _pick_after_loss(
        self, candidates: Candidates, of: "LossFleets", *, has_left: bool, are_evicted: bool, wanted: int
    ) -> tuple[int, list[str]]:
        """Return how many clusters join after a loss, without running the filters and scores again.

        Their names too, where there is a constraint that counts them.
        """
        is_lost = np.zeros(len(self.cycle.fleet), dtype=np.bool_)
        is_lost[of.positions] = True
        failed, is_placed = candidates.failed, self.cycle.is_placed
        if are_evicted:
            is_placed = is_placed & ~is_lost
        if has_left:
            stays = ~is_lost
            failed, is_placed = failed[stays], is_placed[stays]
            spread_input = SpreadInput(of.left, candidates.constraints, {})  # reads labels only
            candidates = replace(
                candidates,
                groups=candidates.strategy.groups(spread_input),
                affinity=candidates.affinity[stays],
                preference=candidates.preference[stays],
                was_here=candidates.was_here[stays],
            )
        elif untolerated((CORDON,), self.cycle.policy.tolerations):
            failed = failed | is_lost
        if not candidates.constraints:
            return min(wanted, int(np.count_nonzero(failed == 0))), []
        placed = np.nonzero(is_placed)[0].astype(np.int32)
        positions = pick(replace(candidates, failed=failed, placed=placed), wanted).positions
        names = (of.left if has_left else self.cycle.fleet).names
        return len(positions), [names[at] for at in positions]

    def cell(self, variant: LossVariant, of: "LossFleets") -> LossResult | None:
        """Return the result of a loss; None for one that does not concern the placement."""
        policy, inside = self.cycle.policy, self.placed.intersection(of.clusters)
        if not inside:
            return None
        outside = len(self.placed) - len(inside)
        if variant is LossVariant.DOWN:
            skew = self._skew(self.cycle.fleet, self.placed - inside)
            return LossResult(outside, 0, len(inside), is_empty=not outside, skew=skew)
        is_evicted = False
        if variant is LossVariant.CORDON and self.can_be_evicted:
            is_evicted = why_stays(policy, is_namespaced=bool(self.cycle.namespace)) is None
        if not self._needs_cycle:
            if variant is LossVariant.CORDON and not is_evicted:
                return LossResult(len(self.placed), 0, 0)
            is_named = not of.clusters.isdisjoint(policy.cluster_names)
            return LossResult(outside, 0, len(inside), bool(self.was_fulfilled) and is_named, not outside)
        has_left = variant is LossVariant.LEAVE
        if self._candidates is not None:
            are_evicted = has_left or is_evicted
            kept = outside if are_evicted else len(self.placed)
            wanted = (policy.number_of_clusters or 0) - kept
            moved, joins = 0, list[str]()
            if wanted:
                moved, joins = self._pick_after_loss(
                    self._candidates, of, has_left=has_left, are_evicted=are_evicted, wanted=wanted
                )
            lost = max(0, len(self.placed) - kept - moved)
            is_short = self.was_fulfilled is True and moved < wanted
            names = [*(self.placed - inside if are_evicted else self.placed), *joins]
            skew = self._skew(of.left if has_left else self.cycle.fleet, names)
            return LossResult(kept, moved, lost, is_short, not kept + moved, skew)
        fleet = of.left if has_left else of.cordoned
        start = without(self.cycle, *(inside if is_evicted else ()), fleet=fleet)
        last = decisions_until_rest(start)[-1]
        after = placed_after(last)
        kept, moved = len(self.placed & after), len(after - self.placed)
        lost = max(0, len(self.placed) - kept - moved)
        is_short = last.is_failed or not last.is_fulfilled
        skew = self._skew(fleet, after & fleet.positions.keys())
        return LossResult(kept, moved, lost, self.was_fulfilled is True and is_short, not after, skew)


class LossFleets:
    """The fleets after a loss, made when a placement needs them."""

    def __init__(self, fleet: Fleet, clusters: Collection[str]) -> None:
        self._fleet = fleet
        self.clusters = frozenset(clusters)

    @cached_property
    def positions(self) -> list[int]:
        return [self._fleet.positions[name] for name in self.clusters if name in self._fleet.positions]

    @cached_property
    def cordoned(self) -> Fleet:
        return cordoned(self._fleet, *self.clusters)

    @cached_property
    def left(self) -> Fleet:
        return self._fleet.with_clusters([], gone=self.clusters & self._fleet.positions.keys())


class PlacedSubjects:
    """Placements by the clusters that they are on."""

    def __init__(self, subjects: Mapping[int, Subject]) -> None:
        self._subjects = subjects
        self._on: dict[str, list[int]] = {}
        for key, subject in subjects.items():
            for name in subject.placed:
                self._on.setdefault(name, []).append(key)

    def cells(
        self, fleet: Fleet, loss: Loss, variants: Sequence[LossVariant]
    ) -> Iterator[tuple[LossVariant, dict[int, LossResult]]]:
        """Yield for each variant the cells of the placements that are in the domain."""
        there = sorted({key for name in loss.clusters for key in self._on.get(name, ())})
        fleets = LossFleets(fleet, loss.clusters)
        for variant in variants:
            cells = {key: self._subjects[key].cell(variant, fleets) for key in there}
            yield variant, {key: cell for key, cell in cells.items() if cell is not None}


class Weakness(NamedTuple):
    """The smallest loss that leaves a placement unfulfilled or empty."""

    level: str
    value: str


def weakest_point(bad: Iterable[tuple[str, str, int]]) -> Weakness | None:
    """Return the first of the losses (level, value, clusters lost): by level, then with the most lost."""
    order = sorted(bad, key=lambda one: (level_rank(one[0]), -one[2], one[1]))
    return Weakness(*order[0][:2]) if order else None
