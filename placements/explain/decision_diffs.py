"""What two decisions of a placement did differently: who joins, leaves and stays, and why."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from placements.explain.wording import reason_sentence
from placements.scheduling.decision import Decision
from placements.scheduling.fleet import Fleet
from placements.scheduling.outcomes import ClusterOutcome
from placements.scheduling.policy import TopologySpreadConstraint


@dataclass(frozen=True, slots=True)
class Shift:
    """A cluster that stays for another reason: what was said of it before, and what is said now."""

    cluster: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class GroupCount:
    """How many clusters of one group the placement had and has, and how many it could have had."""

    group: str
    before: int
    after: int
    clusters: int

    @property
    def change(self) -> int:
        """Give how many more there are now."""
        return self.after - self.before

    @property
    def change_text(self) -> str:
        """Write that with a sign."""
        return f"{self.change:+}".replace("-", "−")


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """The groups of one topology key; `no_label` counts what stands outside of every group."""

    key: str
    groups: tuple[GroupCount, ...]
    no_label: GroupCount | None


@dataclass(frozen=True, slots=True)
class DecisionDiff:
    """Two decisions compared; names are sorted."""

    joins: tuple[str, ...]
    leaves: tuple[str, ...]
    stays: tuple[str, ...]
    shifts: tuple[Shift, ...]
    groups: tuple[GroupCounts, ...]


def decision_diff(
    before: Decision,
    after: Decision,
    *,
    told_before: Iterable[ClusterOutcome],
    told_after: Iterable[ClusterOutcome],
) -> DecisionDiff:
    """Compare what two decisions left placed; `told_…` are the outcomes of all clusters in each."""
    old, new = placed_by(before), placed_by(after)
    stays = tuple(sorted(old & new))
    said_before, said_after = ({one.cluster: one for one in told} for told in (told_before, told_after))
    return DecisionDiff(
        joins=tuple(sorted(new - old)),
        leaves=tuple(sorted(old - new)),
        stays=stays,
        shifts=tuple(_shifts(stays, said_before, said_after)),
        groups=tuple(_group_counts(one, before, after) for one in _constraints(before, after)),
    )


def placed_by(decision: Decision) -> frozenset[str]:
    """Give the clusters that a decision leaves placed."""
    return frozenset(binding.cluster for binding in decision.bindings_after if binding.is_active)


def _shifts(
    stays: Iterable[str], before: Mapping[str, ClusterOutcome], after: Mapping[str, ClusterOutcome]
) -> Iterable[Shift]:
    for name in stays:
        if name in before and name in after:
            old, new = _said(before[name]), _said(after[name])
            if old != new:
                yield Shift(name, old, new)


def _said(outcome: ClusterOutcome) -> str:
    return f"{outcome.outcome}: {reason_sentence(outcome.reasons[0])}"


def _constraints(before: Decision, after: Decision) -> Iterable[TopologySpreadConstraint]:
    several = (
        *after.cycle.policy.topology_spread_constraints,
        *before.cycle.policy.topology_spread_constraints,
    )
    return {(one.topology_key, one.topology_key_type): one for one in reversed(several)}.values()


def _group_counts(constraint: TopologySpreadConstraint, before: Decision, after: Decision) -> GroupCounts:
    key, sort = constraint.topology_key, constraint.topology_key_type
    old, new = (_by_group(one.cycle.fleet, placed_by(one), key, sort) for one in (before, after))
    there = _by_group(after.cycle.fleet, after.cycle.fleet.names, key, sort)
    names = sorted({name for name in (*old, *new, *there) if name is not None})
    lone = GroupCount("", old[None], new[None], there[None])
    return GroupCounts(
        key,
        tuple(GroupCount(name, old[name], new[name], there[name]) for name in names),
        lone if lone.before or lone.after or lone.clusters else None,
    )


def _by_group(fleet: Fleet, names: Iterable[str], key: str, sort: str | None) -> Counter[str | None]:
    """Count clusters by group; one that is no longer in the fleet counts nowhere."""
    column, positions = fleet.topology(key, sort), fleet.positions
    return Counter(column.value_at(positions[name]) for name in names if name in positions)
