"""The differences of two decisions of a placement: which clusters join, leave and stay, and why."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from clusters.fleet import Fleet
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.outcome import ClusterOutcome
from placements.explain.vocabulary import OUTCOME_WORDS, outcome_sentences


@dataclass(frozen=True, slots=True)
class Shift:
    """A cluster that stays for another reason: the reason before, and the reason now."""

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
        return self.after - self.before

    @property
    def change_text(self) -> str:
        return f"{self.change:+}".replace("-", "−")


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """The groups of one topology key; `no_label` counts the clusters outside of every group."""

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
    outcomes_before: Iterable[ClusterOutcome],
    outcomes_after: Iterable[ClusterOutcome],
) -> DecisionDiff:
    """Compare what two decisions left placed; the outcomes are those of all clusters in each."""
    old, new = before.placed_after, after.placed_after
    stays = tuple(sorted(old & new))
    by_name_before, by_name_after = (
        {outcome.cluster: outcome for outcome in outcomes}
        for outcomes in (outcomes_before, outcomes_after)
    )
    shifts = []
    for name in stays:
        if name in by_name_before and name in by_name_after:
            pair = (by_name_before[name], by_name_after[name])
            words = [
                f"{OUTCOME_WORDS[outcome.state]}: {outcome_sentences(outcome)[0]}"
                for outcome in pair
            ]
            if words[0] != words[1]:
                shifts.append(Shift(name, *words))
    several = [
        constraint
        for decision in (after, before)
        for constraint in decision.cycle.policy.topology_spread_constraints
    ]
    groups = []
    for key, sort in dict.fromkeys(
        (constraint.topology_key, constraint.topology_key_type)
        for constraint in reversed(several)
    ):
        was, now = (
            _by_group(before.cycle.fleet, old, key, sort),
            _by_group(after.cycle.fleet, new, key, sort),
        )
        there = _by_group(after.cycle.fleet, after.cycle.fleet.names, key, sort)
        lone, *counts = (
            GroupCount(name or "", was[name], now[name], there[name])
            for name in (
                None,
                *sorted({name for name in (*was, *now, *there) if name is not None}),
            )
        )
        has_lone = lone.before or lone.after or lone.clusters
        groups.append(GroupCounts(key, tuple(counts), lone if has_lone else None))
    return DecisionDiff(
        joins=tuple(sorted(new - old)),
        leaves=tuple(sorted(old - new)),
        stays=stays,
        shifts=tuple(shifts),
        groups=tuple(groups),
    )


def _by_group(
    fleet: Fleet, names: Iterable[str], key: str, sort: str | None
) -> Counter[str | None]:
    column, positions = fleet.topology(key, sort), fleet.positions
    return Counter(
        column.value_at(positions[name]) for name in names if name in positions
    )
