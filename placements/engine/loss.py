"""What placements do if clusters are lost, leave, or get other labels or taints (`rules/foresight.md`).

Budgets and pauses are left aside: they affect when placements move, not the result.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np

from clusters.columns import ABSENT
from clusters.fleet import CORDON_KEY, CORDON_VALUE, NO_SCHEDULE, Cluster, Fleet, Taint
from fleetui.apimachinery.grouping import grouped
from placements.engine.balance import exceeded_limits
from placements.engine.disruption import KeptReason
from placements.engine.limits import ExceededLimit
from placements.engine.scheduling.candidates import (
    Candidates,
    candidates_of,
    malformed_properties,
)
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Decision, Picked
from placements.engine.scheduling.filters.taint_toleration import untolerated
from placements.engine.scheduling.picker import pick
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.scheduler import schedule
from placements.engine.scheduling.spread.base import SpreadInput
from placements.manifests.binding import BindingState
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


class PlacementImpact(StrEnum):
    """Impact of a change of the fleet on a placement, the worst first."""

    STUCK = "stuck"
    """Loses clusters or fulfillment, without replacements."""
    BLOCKED = "blocked"
    """Not evictable now: disruption budget, pause or staged update run."""
    DOWN = "down"
    """Some of its clusters do not work; nothing moves yet."""
    SHRINKS = "shrinks"
    """Loses clusters, and is fulfilled without them."""
    MOVES = "moves"
    """Other clusters are selected."""
    CANNOT = "cannot"
    """Not evictable."""
    LEAVING = "leaving"
    """Being removed or deleted already."""
    STAYS = "stays"
    """Keeps its clusters."""


def why_stays(policy: PlacementPolicy, *, is_namespaced: bool) -> KeptReason | None:
    """Return why a placement is not evictable from a cordoned cluster, None if it is."""
    if is_namespaced:
        return KeptReason.NAMESPACED
    if policy.placement_type is PlacementType.PICK_FIXED:
        return KeptReason.PICK_FIXED
    return None if untolerated((CORDON,), policy.tolerations) else KeptReason.TOLERATES


def cordoned(fleet: Fleet, *names: str) -> Fleet:
    at = fleet.positions
    members = [fleet.clusters[at[name]] for name in set(names) if name in at]
    return fleet.with_clusters(
        member.with_changes(taints=(*member.taints, CORDON))
        for member in members
        if CORDON not in member.taints
    )


def without(cycle: Cycle, *clusters: str) -> Cycle:
    """Return the cycle that follows the eviction from these clusters."""
    names = frozenset(clusters)
    bindings = tuple(
        binding.unscheduled(BindingState.BOUND)
        if binding.cluster in names and binding.is_active
        else binding
        for binding in cycle.bindings
    )
    return cycle.with_bindings(bindings)


def decisions_until_rest(start: Cycle) -> list[Decision]:
    """Schedule until nothing changes; return the first decision and those after it with a change.

    A placement that keeps its clusters is at rest after one cycle, which ends with the counts that the next
    one would start with.
    """
    chain = [schedule(start)]
    if not profile_of(start).chooses_again and not start.binding_classes.obsolete:
        return chain
    while len(chain) < MOST_CYCLES and _has_changes(chain[-1]):
        following = schedule(start.with_bindings(chain[-1].bindings_after))
        if not _has_changes(following):
            break
        chain.append(following)
    return chain


def _has_changes(decision: Decision) -> bool:
    return (
        not decision.is_failed and decision.placed_after != decision.cycle.placed_before
    )


def skew_of(
    fleet: Fleet,
    key: str,
    key_type: str | None,
    placed: Iterable[str],
) -> int:
    """Return the difference between the fullest and the emptiest domain of a topology key."""
    column = fleet.topology(key, key_type)
    codes = column.codes[
        [fleet.positions[name] for name in placed if name in fleet.positions]
    ]
    counts = np.bincount(codes[codes != ABSENT], minlength=len(column.values))
    return int(np.ptp(counts)) if len(counts) else 0


@dataclass(frozen=True)
class ChangedFleet:
    """A fleet, and what happens to it: clusters that are `changed` or join, and those that are lost."""

    before: Fleet
    changed: tuple[Cluster, ...] = ()
    lost: frozenset[str] = frozenset()
    variant: LossVariant = LossVariant.LEAVE

    @cached_property
    def after(self) -> Fleet:
        if self.variant is LossVariant.LEAVE:
            staying = (
                cluster for cluster in self.changed if cluster.name not in self.lost
            )
            return self.before.with_clusters(
                staying, gone=self.lost & self.before.positions.keys()
            )
        fleet = self.before.with_clusters(self.changed) if self.changed else self.before
        return (
            cordoned(fleet, *self.lost) if self.variant is LossVariant.CORDON else fleet
        )

    @cached_property
    def names(self) -> frozenset[str]:
        return self.lost.union(cluster.name for cluster in self.changed)

    @cached_property
    def part(self) -> "ChangedFleet":
        """The same change of a fleet that has these clusters alone."""
        at, clusters = self.before.positions, self.before.clusters
        before = Fleet(clusters[at[name]] for name in self.names if name in at)
        return replace(self, before=before)

    @cached_property
    def positions(self) -> list[int]:
        """The positions of the lost clusters in the fleet before."""
        return [
            self.before.positions[name]
            for name in self.lost
            if name in self.before.positions
        ]


class LossCounts(NamedTuple):
    """What a loss does to one placement: numbers of clusters, and whether it is unfulfilled or empty.

    `skew` is the worst of all constraints after the loss; of clusters that are down those that work count.
    Unfulfilled is one that has fewer clusters than it wants, and had all of them or more than now.
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
class PlacementLoss:
    """What a change of the fleet does to one placement.

    `cycle` is its last one on the fleet after the change; `inside` are the lost clusters that it is on.
    `stays` says why it is not evictable, `obstacle` why nothing is decided, and `message` is the sentence
    about all of this (`placements.explain.loss`). `elsewhere` is the number of its clusters beside those in
    `before` and `after`, which the change leaves as they are. Two are equal if their results are.
    """

    placement: str
    cycle: Cycle = field(compare=False)
    before: frozenset[str]
    after: frozenset[str]
    inside: frozenset[str]
    fleet_before: Fleet = field(compare=False)
    was_fulfilled: bool | None
    is_fulfilled: bool
    decisions: tuple[Decision, ...] = field(default=(), compare=False)
    stays: KeptReason | None = None
    obstacle: PlacementImpact | None = None
    objects: int = 0
    message: str = ""
    elsewhere: int = 0

    def with_message(self, message: str) -> "PlacementLoss":
        # `replace` would lose what is computed already.
        row = PlacementLoss.__new__(PlacementLoss)
        row.__dict__.update(self.__dict__, message=message)
        return row

    @cached_property
    def joins(self) -> tuple[str, ...]:
        return tuple(sorted(self.after - self.before))

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        return tuple(sorted(self.before - self.after))

    @property
    def scores(self) -> tuple[Picked, ...]:
        """The clusters that join, in the order in which they are picked, with their scores."""
        picked = {
            one.cluster: one for decision in self.decisions for one in decision.picked
        }
        return tuple(one for name, one in picked.items() if name in self.joins)

    @property
    def decision(self) -> Decision | None:
        """The last decision with a change, else the first one; None where nothing is decided."""
        return self.decisions[-1] if self.decisions else None

    @property
    def placed_before(self) -> int:
        return len(self.before) + self.elsewhere

    @property
    def placed_after(self) -> int:
        return len(self.after) + self.elsewhere

    @property
    def is_empty(self) -> bool:
        return bool(self.placed_before) and not self.placed_after

    @property
    def objects_out_of_service(self) -> int:
        return self.objects if self.is_empty else 0

    @property
    def is_touched(self) -> bool:
        return bool(self.inside or self.joins or self.leaves)

    @property
    def impact(self) -> PlacementImpact:
        if self.obstacle is not None:
            return self.obstacle
        if not self.decisions:
            return PlacementImpact.DOWN if self.inside else PlacementImpact.STAYS
        is_worse = len(self.after) < len(self.before) or self.was_fulfilled is True
        is_stuck = (
            not self.is_fulfilled
            and is_worse
            and (self.is_touched or self.was_fulfilled is True)
        )
        if (
            self.stays
            and not self.leaves
            and (is_stuck or (self.inside and not self.joins))
        ):
            return PlacementImpact.CANNOT
        if is_stuck:
            return PlacementImpact.STUCK
        if self.joins:
            return PlacementImpact.MOVES
        return PlacementImpact.SHRINKS if self.leaves else PlacementImpact.STAYS

    @property
    def gets_worse(self) -> bool:
        """Return whether it becomes unfulfilled, loses a cluster without replacement, or is not evicted."""
        if self.obstacle is not None or self.impact is PlacementImpact.CANNOT:
            return self.impact is not PlacementImpact.LEAVING
        is_worse = (
            self.was_fulfilled is not False or self.placed_after < self.placed_before
        )
        return not self.is_fulfilled and is_worse

    @cached_property
    def exceeded_limits(self) -> tuple[ExceededLimit, ...]:
        """The hard limits that what is placed afterwards exceeds."""
        return tuple(exceeded_limits(self.cycle, self.after))

    @property
    def exceeds_more(self) -> bool:
        """Return whether hard limits are exceeded by more than before, or by other domains."""
        if not self.exceeded_limits:
            return False
        before = self.cycle.on(self.fleet_before)
        return list(self.exceeded_limits) != exceeded_limits(before, self.before)

    @property
    def is_affected(self) -> bool:
        return self.is_touched or self.gets_worse or self.exceeds_more

    @property
    def counts(self) -> LossCounts:
        return _counts(
            self.cycle.policy,
            self.cycle.fleet,
            self.before,
            self.after,
            was_fulfilled=self.was_fulfilled,
            is_fulfilled=self.is_fulfilled or not self.decisions,
        )


def _counts(
    policy: PlacementPolicy,
    fleet: Fleet,
    before: frozenset[str],
    after: frozenset[str],
    *,
    was_fulfilled: bool | None,
    is_fulfilled: bool,
) -> LossCounts:
    kept = len(before & after)
    moved = len(after) - kept
    skews = [
        skew_of(fleet, constraint.topology_key, constraint.topology_key_type, after)
        for constraint in policy.topology_spread_constraints
    ]
    lost = max(0, len(before) - kept - moved)
    # One that has fewer clusters than it wants already loses each further one.
    is_unfulfilled = not is_fulfilled and (was_fulfilled is True or lost > 0)
    return LossCounts(
        kept, moved, lost, is_unfulfilled, not after, max(skews, default=0)
    )


@dataclass(frozen=True)
class EvaluatedPlacement:
    """A placement: its cycle on the fleet as it is, and whether it is fulfilled there.

    `elsewhere` is how many clusters it has beside those of the cycle.
    """

    cycle: Cycle
    was_fulfilled: bool | None
    name: str = ""
    objects: int = 0
    elsewhere: int = 0

    @cached_property
    def placed(self) -> frozenset[str]:
        return self.cycle.placed_before

    @cached_property
    def why_stays(self) -> KeptReason | None:
        return why_stays(self.cycle.policy, is_namespaced=bool(self.cycle.namespace))

    @cached_property
    def _candidates(self) -> Candidates:
        return candidates_of(self.cycle)

    @cached_property
    def _needs_scheduler(self) -> bool:
        """Return whether a loss changes more of a cycle than the entries of the lost clusters."""
        policy = self.cycle.policy
        binding_classes = self.cycle.binding_classes
        profile = profile_of(self.cycle)
        if profile.chooses_again or binding_classes.obsolete:
            return True
        if policy.placement_type is not PlacementType.PICK_N:
            return False
        return bool(
            not profile.has_exact_search
            or binding_classes.dangling
            or len(binding_classes.current) > (policy.number_of_clusters or 0)
            or any(term.preference.property_sorter for term in policy.preferred_terms)
            or malformed_properties(self.cycle)
        )

    def counts(self, change: ChangedFleet) -> LossCounts | None:
        """Return the counts of a loss, as `loss` would; None for one that does not concern the placement.

        Where the columns of the cycle stay the same, the filters and scores are not run again.
        """
        if self.placed.isdisjoint(change.lost):
            return None
        policy = self.cycle.policy
        is_left = change.variant is LossVariant.LEAVE
        is_evicted = is_left or self.why_stays is None
        stay = self.placed - change.lost if is_evicted else self.placed
        fleet = change.after if is_left else self.cycle.fleet
        if change.variant is LossVariant.DOWN or self._needs_scheduler:
            return loss(self, change).counts
        if policy.placement_type is not PlacementType.PICK_N:
            is_named = is_evicted and not change.lost.isdisjoint(policy.cluster_names)
            return _counts(
                policy,
                fleet,
                self.placed,
                stay,
                was_fulfilled=self.was_fulfilled,
                is_fulfilled=not is_named,
            )
        wanted = (policy.number_of_clusters or 0) - len(stay)
        joins = (
            self._joins(change, is_evicted=is_evicted, wanted=wanted) if wanted else []
        )
        return _counts(
            policy,
            fleet,
            self.placed,
            stay.union(joins),
            was_fulfilled=self.was_fulfilled,
            is_fulfilled=len(joins) >= wanted,
        )

    def _joins(
        self,
        change: ChangedFleet,
        *,
        is_evicted: bool,
        wanted: int,
    ) -> list[str]:
        """Return the clusters that join after a loss, without running the filters and scores again."""
        fleet = self.cycle.fleet
        candidates = self._candidates
        is_lost = np.zeros(len(fleet), dtype=np.bool_)
        is_lost[change.positions] = True
        failed = candidates.failed
        is_placed = self.cycle.is_placed
        if is_evicted:
            is_placed = is_placed & ~is_lost
        if change.variant is LossVariant.LEAVE:
            fleet = change.after
            stays = ~is_lost
            failed = failed[stays]
            is_placed = is_placed[stays]
            spread_input = SpreadInput(
                fleet, candidates.constraints, {}
            )  # reads labels only
            candidates = replace(
                candidates,
                groups=candidates.strategy.groups(spread_input),
                affinity=candidates.affinity[stays],
                preference=candidates.preference[stays],
                was_here=candidates.was_here[stays],
            )
        elif untolerated((CORDON,), self.cycle.policy.tolerations):
            failed = failed | is_lost
        if not candidates.constraints:  # which ones does not count
            return [
                fleet.names[position]
                for position in np.nonzero(failed == 0)[0][:wanted]
            ]
        placed = np.nonzero(is_placed)[0].astype(np.int32)
        picked = pick(replace(candidates, failed=failed, placed=placed), wanted)
        return [fleet.names[position] for position in picked.positions]


def loss(facts: EvaluatedPlacement, change: ChangedFleet) -> PlacementLoss:
    """Return what a change of the fleet does to a placement, scheduled until nothing changes."""
    inside = facts.placed & change.lost
    cycle = facts.cycle.on(change.after)
    if change.variant is LossVariant.DOWN and change.lost:
        return PlacementLoss(
            facts.name,
            cycle,
            facts.placed,
            facts.placed - inside,
            inside,
            facts.cycle.fleet,
            facts.was_fulfilled,
            bool(facts.was_fulfilled),
            objects=facts.objects,
            elsewhere=facts.elsewhere,
        )
    stays = facts.why_stays if change.variant is LossVariant.CORDON else None
    if change.variant is LossVariant.CORDON and stays is None:
        cycle = without(cycle, *inside)
    return replace(
        decided_loss(facts, decisions_until_rest(cycle)), inside=inside, stays=stays
    )


def decided_loss(
    facts: EvaluatedPlacement, decisions: Sequence[Decision]
) -> PlacementLoss:
    last = decisions[-1]
    return PlacementLoss(
        facts.name,
        last.cycle,
        facts.placed,
        last.placed_after,
        frozenset(),
        facts.cycle.fleet,
        facts.was_fulfilled,
        last.is_fulfilled and not last.is_failed,
        tuple(decisions),
        objects=facts.objects,
        elsewhere=facts.elsewhere,
    )


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
        constraint.topology_key
        for policy in policies
        for constraint in policy.topology_spread_constraints
        if constraint.topology_key_type != "Claim"
    }
    for key in _USUAL:
        column = fleet.label(key)
        is_common = int(column.is_present.sum()) * 100 >= _USUAL_SHARE * len(fleet)
        if is_common and len(column.values) > 1:
            used.add(key)
    keys = [key for key in used if 0 < len(fleet.label(key).values) <= MOST_DOMAINS]
    return tuple(sorted(keys, key=level_rank))


class LostDomain(NamedTuple):
    """One cluster, or all clusters of one domain or of two."""

    level: str
    value: str
    clusters: tuple[str, ...]


def domains_of(
    fleet: Fleet, keys: Sequence[str], *, has_clusters: bool = True
) -> list[LostDomain]:
    """Return the domains of the keys, the first 200 of each, then every single cluster.

    A key such as `region+region` means every pair of its domains, of the first 20.
    """
    every = list[LostDomain]()
    for key in keys:
        paired = pair_key(key)
        column = fleet.label(paired or key)
        members = grouped(
            (code, name)
            for name, code in zip(fleet.names, column.codes.tolist(), strict=True)
            if code != ABSENT
        )
        values = enumerate(column.values[:MOST_DOMAINS])
        domains = [
            LostDomain(key, value, tuple(members[code])) for code, value in values
        ]
        if paired:
            domains = [
                LostDomain(
                    key,
                    f"{first.value}{AND}{other.value}",
                    first.clusters + other.clusters,
                )
                for first, other in combinations(domains[:MOST_PAIRED], 2)
            ]
        every += domains
    return every + [
        LostDomain(CLUSTER, name, (name,)) for name in fleet.names if has_clusters
    ]


class PlacementIndex:
    """Placements by the clusters that they are on."""

    def __init__(self, placements: Mapping[int, EvaluatedPlacement]) -> None:
        self._placements = placements
        self._on: dict[str, list[int]] = {}
        for key, facts in placements.items():
            for name in facts.placed:
                self._on.setdefault(name, []).append(key)

    def counts(
        self,
        fleet: Fleet,
        clusters: Collection[str],
        variants: Iterable[LossVariant],
    ) -> Iterator[tuple[LossVariant, dict[int, LossCounts]]]:
        """Yield for each variant the counts of the placements that are on the lost clusters."""
        there = sorted({key for name in clusters for key in self._on.get(name, ())})
        for variant in variants:
            change = ChangedFleet(fleet, lost=frozenset(clusters), variant=variant)
            counts = {key: self._placements[key].counts(change) for key in there}
            yield (
                variant,
                {
                    key: loss_counts
                    for key, loss_counts in counts.items()
                    if loss_counts is not None
                },
            )


class Weakness(NamedTuple):
    """The smallest loss that leaves a placement unfulfilled or empty."""

    level: str
    value: str


def weakest_point(bad: Iterable[tuple[str, str, int]]) -> Weakness | None:
    """Return the first of the losses (level, value, clusters lost): by level, then with the most lost."""
    order = sorted(bad, key=lambda one: (level_rank(one[0]), -one[2], one[1]))
    return Weakness(*order[0][:2]) if order else None
