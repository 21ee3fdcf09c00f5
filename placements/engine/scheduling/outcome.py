"""The outcome of a decision for one cluster, and its reason (`rules/scheduler.md#record-of-a-decision`)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, cached_property

from clusters.columns import ABSENT, Bools
from fleetui.apimachinery.effort import check_time
from placements.engine.scheduling.candidates import Verdicts, verdicts
from placements.engine.scheduling.decision import CycleKind, Decision
from placements.engine.scheduling.filters.eligibility import not_eligible
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.reason import Reason, ReasonCode
from placements.engine.scheduling.replay import equal_before, verdict
from placements.engine.scheduling.round import NAME_COLUMN, ConstraintScore, Round
from placements.engine.scheduling.scheduler import TRIM_COLUMNS, trim_order
from placements.manifests.binding import PlacedBinding

# How pages and commands name a filtered cluster that only a hard limit of the spread
# keeps out.
BLOCKED = "blocked"


class Outcome(StrEnum):
    """Result for a cluster; the first that applies, in this order."""

    PICKED = "picked"
    KEPT = "kept"
    UNSCHEDULED = "unscheduled"
    NOT_NAMED = "not named"
    NOT_REACHED = "not reached"
    NOT_ELIGIBLE = "not eligible"
    FILTERED = "filtered"
    OUTRANKED = "outranked"


@dataclass(frozen=True, slots=True)
class ClusterOutcome:
    """One cluster's outcome; exactly one of the reasons is the deciding one.

    A kept cluster also lists the filters that it would not pass today.
    `round` is the round that picked it (PickN only); `stays`: it was placed before. `lost` is how a blocked
    cluster was outranked in the round that filled its domain.
    """

    cluster: str
    outcome: Outcome
    reasons: tuple[Reason, ...]
    round: int | None = None
    stays: bool = False
    lost: Reason | None = None

    @property
    def against(self) -> Reason:
        """Return the deciding reason; for a lost place the first rule that the cluster breaks today."""
        has_others = self.outcome is Outcome.UNSCHEDULED and len(self.reasons) > 1
        return self.reasons[has_others]

    @property
    def state(self) -> str:
        """Return the outcome, or BLOCKED for a cluster that passes every filter."""
        is_filtered = self.outcome is Outcome.FILTERED
        is_by_spread = self.reasons[0].code is ReasonCode.TOPOLOGY_SPREAD
        return BLOCKED if is_filtered and is_by_spread else self.outcome


_NOT_REACHED = {
    CycleKind.NO_NAMES: ReasonCode.NO_NAMES,
    CycleKind.SCALE_DOWN: ReasonCode.SCALING_DOWN,
    CycleKind.NOTHING_TO_DO: ReasonCode.NOTHING_TO_DO,
    CycleKind.FAILED: ReasonCode.CYCLE_FAILED,
    CycleKind.REBALANCE: ReasonCode.NOT_IN_BATCH,
}


class Outcomes:
    """The outcomes of a decision: any cluster on request, or all of them by name."""

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self.cycle = decision.cycle
        self._round = cache(decision.round)
        self._pick_of = {
            name: number for number, name in enumerate(decision.picked_names, start=1)
        }
        self._kept, self._unscheduled = (
            frozenset(decision.kept),
            frozenset(decision.unscheduled),
        )
        self._bindings = {
            binding.cluster: binding for binding in decision.cycle.live_bindings
        }

    def __iter__(self) -> Iterator[ClusterOutcome]:
        return (self.of(name) for name in self.cycle.fleet.names)

    def of(self, cluster: str) -> ClusterOutcome:
        """Return the outcome of one cluster. Raise KeyError when the fleet has no such cluster."""
        check_time()
        position = self.cycle.fleet.positions[cluster]
        if cluster in self._pick_of:
            number = self._pick_of[cluster]
            in_round = min(number, self.decision.number_of_rounds) or None
            before = self._bindings.get(cluster)
            outcome = _outcome(
                cluster, Outcome.PICKED, self._why_picked(number, in_round)
            )
            return replace(
                outcome, round=in_round, stays=before is not None and before.is_active
            )
        if cluster in self._kept:
            kept = Reason(ReasonCode.KEPT, _binding_facts(self._bindings[cluster]))
            outcome = _outcome(
                cluster, Outcome.KEPT, kept, *self._filter_reasons(position)
            )
            return replace(outcome, stays=True)
        if cluster in self._unscheduled:
            why = self._why_unscheduled(cluster, position)
            return _outcome(cluster, Outcome.UNSCHEDULED, *why)
        if self.decision.kind in _NOT_REACHED:
            code = _NOT_REACHED[self.decision.kind]
            stops = profile_of(self.cycle).strategy.stops_without_candidate()
            is_all_or_none = code is ReasonCode.CYCLE_FAILED and not stops
            return _outcome(
                cluster,
                Outcome.NOT_REACHED,
                Reason(code, {"allOrNone": True} if is_all_or_none else {}),
            )

        reasons = self._against(position)
        outcomes = {
            ReasonCode.NOT_NAMED: Outcome.NOT_NAMED,
            ReasonCode.NOT_ELIGIBLE: Outcome.NOT_ELIGIBLE,
            ReasonCode.OUTRANKED: Outcome.OUTRANKED,
        }
        outcome = _outcome(
            cluster, outcomes.get(reasons[0].code, Outcome.FILTERED), *reasons
        )
        return replace(outcome, lost=self._lost_before(position))

    def summary(self) -> list[tuple[Outcome, int]]:
        """Return the outcome of every cluster by name, and its rank if it was outranked, else 0.

        Clusters that fail the same filters have the same outcome, so that one of them is examined.
        """
        fleet, failed = self.cycle.fleet, self._verdicts
        if failed is not None:
            alike: list[object] = failed.tolist()
        else:
            named = frozenset(self.cycle.policy.cluster_names)
            alike = [
                (name in named, ok)
                for name, ok in zip(fleet.names, fleet.is_eligible, strict=True)
            ]
        for _, excludes in self._exclusions:
            alike = list(zip(alike, excludes.tolist(), strict=True))
        by_verdict: dict[object, Outcome] = {}
        outcomes = []
        for position, name in enumerate(fleet.names):
            if name in self._pick_of:
                outcome = Outcome.PICKED
            elif name in self._kept:
                outcome = Outcome.KEPT
            elif name in self._unscheduled:
                outcome = Outcome.UNSCHEDULED
            else:
                outcome_before = by_verdict.get(alike[position])
                outcome = outcome_before or by_verdict.setdefault(
                    alike[position], self.of(name).outcome
                )
            outcomes.append(
                (
                    outcome,
                    self._rank_of[position] if outcome is Outcome.OUTRANKED else 0,
                )
            )
        return outcomes

    @cached_property
    def _last_round(self) -> Round | None:
        rounds = self.decision.number_of_rounds
        return self._round(rounds) if rounds else None

    @cached_property
    def _exclusions(self) -> list[tuple[ConstraintScore, Bools]]:
        """Return the constraints of the last round, each with the clusters that it excludes.

        A cluster in no domain although it has the key does not count for another reason.
        """
        pairs = []
        for score in self._last_round.constraint_scores if self._last_round else ():
            key, key_type = (
                score.constraint.topology_key,
                score.constraint.topology_key_type,
            )
            has_key = self.cycle.fleet.topology(key, key_type)
            pairs.append(
                (
                    score,
                    score.is_forbidden
                    & ~((score.groups.codes == ABSENT) & has_key.is_present),
                )
            )
        return pairs

    @cached_property
    def _verdicts(self) -> Verdicts | None:
        """Return the filters' results; down-scaling does not need them, but its explanation does."""
        if self.decision.kind is CycleKind.SCALE_DOWN:
            return verdicts(self.cycle)
        return self.decision.verdicts

    @cached_property
    def _rank_of(self) -> dict[int, int]:
        ranked = [] if self._last_round is None else self._last_round.ranked.tolist()
        return {position: rank for rank, position in enumerate(ranked, start=1)}

    def _why_picked(self, number: int, in_round: int | None) -> Reason:
        if self.decision.kind is CycleKind.PICK_FIXED:
            return Reason(ReasonCode.PICKED_BY_NAME)
        if self.decision.kind is CycleKind.REBALANCE:
            spread, affinity = self.decision.scores[number - 1]
            facts = {"topologySpreadScore": spread, "affinityScore": affinity}
            return Reason(ReasonCode.PICKED_BY_PLAN, facts)
        if in_round is None:
            return Reason(ReasonCode.PICKED_ALL)
        picked = self.decision.picked[number - 1]
        scores = {
            "topologySpreadScore": picked.topology_spread_score,
            "affinityScore": picked.affinity_score,
        }
        more: dict[str, object] = {"pick": number, "round": in_round, **scores}
        if not self.cycle.policy.topology_spread_constraints:
            more["rank"] = number  # one step selects all
        return Reason(ReasonCode.PICKED, more)

    def _why_unscheduled(self, cluster: str, position: int) -> tuple[Reason, ...]:
        binding, against = self._bindings[cluster], self._against(position)
        if self.cycle.fleet.clusters[position].is_leaving:
            code = ReasonCode.CLUSTER_LEFT
        elif self.decision.kind is CycleKind.REBALANCE:
            code = ReasonCode.MOVED_BY_PLAN
        elif not binding.is_current:
            code = ReasonCode.POLICY_CHANGED
        else:
            is_trimmed = self.decision.kind is CycleKind.SCALE_DOWN
            code = ReasonCode.SCALED_DOWN if is_trimmed else ReasonCode.CHOSEN_AGAIN
        facts = _binding_facts(binding)
        if code is ReasonCode.SCALED_DOWN and self.decision.kept:
            facts |= self._trim_facts(binding)
        return Reason(code, facts), *against

    def _trim_facts(self, binding: PlacedBinding) -> dict[str, object]:
        """Return which kept cluster would have been removed next, and what put this one before it."""
        kept = min(
            (self._bindings[name] for name in self.decision.kept), key=trim_order
        )
        columns = zip(TRIM_COLUMNS, trim_order(binding), trim_order(kept), strict=True)
        unlike = (name for name, own, other in columns if own != other)
        return {
            "behind": kept.cluster,
            "decidedBy": next(unlike, NAME_COLUMN),
            "behindTopologySpreadScore": kept.topology_spread_score,
            "behindAffinityScore": kept.affinity_score,
        }

    def _against(self, position: int) -> tuple[Reason, ...]:
        """Return the reasons against the cluster: failing filters, spread last, or that it was outranked."""
        reasons = self._filter_reasons(position)
        last = self._last_round
        if last is None:
            return reasons
        for score, excludes in self._exclusions:
            if excludes[position]:
                facts = {"round": last.number, **verdict(score, position).facts}
                reasons = (*reasons, Reason(ReasonCode.TOPOLOGY_SPREAD, facts))
        return reasons or (self._outranked(last, position),)

    def _filter_reasons(self, position: int) -> tuple[Reason, ...]:
        """Return each failing filter's reason; being placed already is no reason against a cluster."""
        failed = self._verdicts
        if failed is None:
            # Under PickFixed only the name and eligibility count.
            if self.decision.kind is not CycleKind.PICK_FIXED:
                return ()
            if self.cycle.fleet.names[position] not in self.cycle.policy.cluster_names:
                return (Reason(ReasonCode.NOT_NAMED),)
            return (
                ()
                if self.cycle.fleet.is_eligible[position]
                else (not_eligible(self.cycle, position),)
            )
        bits = int(failed[position])
        filters = enumerate(profile_of(self.cycle).filters)
        reasons = (
            rule.reason(self.cycle, position)
            for bit, rule in filters
            if bits >> bit & 1
        )
        return tuple(
            reason for reason in reasons if reason.code is not ReasonCode.ALREADY_PLACED
        )

    def _lost_before(self, position: int) -> Reason | None:
        """Return how a cluster lost when its domain was filled; None if it was no candidate then."""
        chosen = self.decision.chosen
        for score, excludes in self._exclusions:
            codes = score.groups.codes
            filled = (codes[chosen] == codes[position]).nonzero()[0]
            if excludes[position] and codes[position] != ABSENT and filled.size:
                step = self._round(int(filled[-1]) + 1)
                if step.contends[position]:
                    return self._outranked(step, position)
        return None

    def _outranked(self, last: Round, position: int) -> Reason:
        names = self.cycle.fleet.names
        last_in = int(
            last.ranked[0 if last.constraint_scores else len(self.decision.picked) - 1]
        )
        decided_by = last.decided_by(last_in, position)
        facts: dict[str, object] = {
            "round": last.number,
            "rank": int((last.ranked == position).argmax()) + 1,
            "behind": names[last_in],
            "decidedBy": decided_by,
            "topologySpreadScore": last.spread_score(position),
            "affinityScore": last.candidates.affinity[position].item(),
            "behindTopologySpreadScore": last.spread_score(last_in),
            "behindAffinityScore": last.candidates.affinity[last_in].item(),
        }
        if decided_by == NAME_COLUMN:
            facts["equal"] = equal_before(self.cycle, decided_by)
            facts["isFirstName"] = profile_of(self.cycle).strategy.smaller_name_wins
        own, behind = last.combined(position), last.combined(last_in)
        if decided_by in own:
            facts |= {"score": own[decided_by], "behindScore": behind[decided_by]}
        return Reason(ReasonCode.OUTRANKED, facts)


def _outcome(
    cluster: str, outcome: Outcome, deciding: Reason, *more: Reason
) -> ClusterOutcome:
    return ClusterOutcome(
        cluster, outcome, (replace(deciding, is_deciding=True), *more)
    )


def _binding_facts(binding: PlacedBinding) -> dict[str, object]:
    return {
        "state": binding.state,
        "topologySpreadScore": binding.topology_spread_score,
        "affinityScore": binding.affinity_score,
    }
