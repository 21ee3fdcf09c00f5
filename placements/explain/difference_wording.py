"""Where sets of rules part, and why: what each went by at that place, told from the decisions themselves."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from placements.explain.contest_wording import (
    allowed_words,
    contest_words,
    nesting_words,
    out_words,
    passed_over_words,
)
from placements.explain.wording import headline, joined, verb
from placements.scheduling.columns import Bools
from placements.scheduling.comparison import Comparison, Difference, last_followed, placed, turn_of
from placements.scheduling.cycle import Cycle
from placements.scheduling.decision import CycleKind, Decision
from placements.scheduling.profile import profile_of
from placements.scheduling.replay import Replay, Verdict
from placements.scheduling.rounds import NAME_COLUMN, Bid, Round
from placements.scheduling.semantics import Semantics
from placements.scheduling.spread.ocm import UNSET

_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Parting:
    """One set of rules against the one it is compared with: where they part, and why.

    `place` is None where they place the same clusters in the same order; `is_by_name` says that there they
    differ in the order of names only, and the words look further for a difference between the rules.
    """

    semantics: Semantics
    place: int | None
    is_by_name: bool
    words: str


def difference_sentence(comparison: Comparison) -> str:
    """Say at which place the rules part, whom each takes there, and why; nothing where they do not."""
    told = ". ".join(f"{who} {words}" for who, words in difference_parts(comparison))
    return f"{difference_head(comparison)}: {told}" if told else ""


def difference_head(comparison: Comparison) -> str:
    """Say at which place the rules part, and whether the same clusters are placed all the same."""
    difference = comparison.first_difference
    if difference is None:
        return "all place the same clusters in the same order"
    if comparison.is_same_set:
        return f"all place the same clusters, in another order from place {difference.place} on"
    return f"place {difference.place}"


def difference_parts(comparison: Comparison) -> list[tuple[str, str]]:
    """Give for the first difference who does the same for the same reason, and what it is."""
    difference = comparison.first_difference
    return _parts(comparison, difference) if difference else []


def partings(comparison: Comparison) -> list[Parting]:
    """Say of each of the others where it parts from the base, and why."""
    base = comparison.base
    others = [one for one in comparison.decisions if one is not base]
    return [_parting(comparison, base, one) for one in others] if base in comparison.decisions else []


def later_partings(comparison: Comparison) -> list[Parting]:
    """Give those of the partings that the sentence on the first difference does not tell already."""
    difference = comparison.first_difference
    first = difference.place if difference else None
    return [one for one in partings(comparison) if one.place != first or one.is_by_name]


def apart_words(gained: Sequence[str], lost: Sequence[str]) -> str:
    """Say whom one has in the end and another has not: "also b-1 and b-2; not a-3"."""
    parts = (("also", gained), ("not", lost))
    return "; ".join(f"{word} {joined(_first(names))}" for word, names in parts if names)


def _first(names: Sequence[str]) -> list[str]:
    more = len(names) - _NAMES_SHOWN
    return [*names[:_NAMES_SHOWN], f"{more:,} more"] if more > 0 else list(names)


def _parting(comparison: Comparison, base: Semantics, other: Semantics) -> Parting:
    difference = comparison.difference_among((base, other))
    if difference is None:
        return Parting(
            other, None, is_by_name=False, words=f"places the same clusters as {base}, in the same order"
        )
    if not _is_by_name(comparison, difference):
        words = f"parts from {base} at place {difference.place}: {_told(comparison, difference)}"
        return Parting(other, difference.place, is_by_name=False, words=words)
    return _beyond_names(comparison, base, other, difference)


def _is_by_name(comparison: Comparison, difference: Difference) -> bool:
    """Tell whether under each of the rules the choices are as good as each other but for the name."""
    names = set(difference.choices.values())
    if None in names:
        return False
    for semantics, one in difference.steps.items():
        positions = [comparison.decisions[semantics].cycle.fleet.positions[str(name)] for name in names]
        if one is None or not all(one.contends[positions]):
            return False
        if any(one.decided_by(positions[0], place) != NAME_COLUMN for place in positions[1:]):
            return False
    return True


def _beyond_names(
    comparison: Comparison, base: Semantics, other: Semantics, difference: Difference
) -> Parting:
    decision, rival = comparison.decisions[base], comparison.decisions[other]
    of_equals = (
        f"takes the {_name_order(rival.cycle)} name of equals where {base} takes the"
        f" {_name_order(decision.cycle)}, from place {difference.place} on"
    )
    further = _turn_words(decision, rival, difference.place) or _turn_words(rival, decision, difference.place)
    words = f"{of_equals}. {further}" if further else f"{of_equals}; {_alike(decision, difference.place)}"
    return Parting(other, difference.place, is_by_name=True, words=words)


def _alike(decision: Decision, start: int) -> str:
    """Say that nothing but names tells them apart, and how far that was looked at."""
    last = last_followed(decision, start)
    up_to = "" if last > len(placed(decision)) else f" up to place {last:,}"
    return f"but for that they choose alike{up_to}"


def _turn_words(decision: Decision, other: Decision, start: int) -> str:
    """Follow a decision under other rules; say where they would not have done the same, and why."""
    turn = turn_of(decision, other, start=start)
    if turn is None:
        return ""
    own = _Side(decision.cycle.semantics, decision, turn.step, turn.choice)
    their = _Side(other.cycle.semantics, other, turn.other_step, turn.instead, would=True)
    told = [f"{own.semantics} {own.words(their)}", f"{their.semantics} {their.words(own)}"]
    if turn.choice is None:
        told.reverse()
    after = (
        f"At place {turn.place}, after what {own.semantics} chose before it" if turn.place > 1 else "There"
    )
    return f"{after}: {'. '.join(told)}"


def _name_order(cycle: Cycle) -> str:
    return "first" if profile_of(cycle).strategy.smaller_name_wins else "last"


def _told(comparison: Comparison, difference: Difference) -> str:
    return ". ".join(f"{who} {words}" for who, words in _parts(comparison, difference))


def _parts(comparison: Comparison, difference: Difference) -> list[tuple[str, str]]:
    """Say what each does there, those together that do it for the same reason."""
    sides = [
        _Side(one, comparison.decisions[one], difference.steps[one], choice)
        for one, choice in difference.choices.items()
    ]
    alike: dict[str, list[_Side]] = {}
    for side in sides:
        alike.setdefault(side.words(_rival_of(side, sides)), []).append(side)
    ordered = sorted(alike.values(), key=lambda those: those[0].choice is None)
    return [(_who(those), those[0].words(_rival_of(those[0], sides), many=len(those))) for those in ordered]


def _who(sides: list["_Side"]) -> str:
    return joined([str(one.semantics) for one in sides])


def _rival_of(side: "_Side", sides: list["_Side"]) -> "_Side":
    """Give the first that chose otherwise, one that chose somebody if there is one."""
    others = [one for one in sides if one.choice != side.choice]
    return min(others, key=lambda one: one.choice is None)


@dataclass(frozen=True)
class _Side:
    """What one set of rules does at a place: the decision, the step there, whom it takes or would take."""

    semantics: Semantics
    decision: Decision
    step: Round | None
    choice: str | None
    would: bool = False

    def words(self, rival: "_Side", *, many: int = 1) -> str:
        """Say whom so many of them take rather than another, and why."""
        if self.choice is None:
            return f"{self._verb('finds', many)} nobody{_because(self._why_nobody(rival.choice))}"
        if self.choice in self.decision.kept:
            return f"{self._verb('keeps', many)} {self.choice}, which is placed already"
        rather = f" rather than {rival.choice}" if rival.choice else ""
        return f"{self._verb('takes', many)} {self.choice}{rather}{_because(self._why(rival))}"

    def _verb(self, singular: str, many: int) -> str:
        return f"would {verb(2, singular)}" if self.would else verb(many, singular)

    def _why_nobody(self, rival: str | None) -> Iterable[str]:
        if self.decision.is_failed:
            return [headline(self.decision)]
        if self.decision.kind in (CycleKind.SCALE_DOWN, CycleKind.NOTHING_TO_DO, CycleKind.NO_NAMES):
            return ["no more are wanted"]
        if rival is None:
            return ["nobody passes the filters"]
        if self.step is None:
            return [passed_over_words(self.decision, rival)]
        return [out_words(self.decision, self.step, rival), *self._pins(self.step, rival)]

    def _pins(self, step: Round, rival: str) -> Iterator[str]:
        """Name the groups that hold the smallest count down although nobody there can be picked."""
        verdicts = Replay(self.decision).candidate_in(step, rival).constraints
        for bid, verdict in zip(step.bids, verdicts, strict=True):
            names = _held_down(bid, verdict, step)
            if names:
                holds = f"{joined(_first(names))} {verb(len(names), 'holds')}"
                yield f"{holds} the smallest count at {verdict.smallest}, with nobody to pick"

    def _why(self, rival: "_Side") -> Iterator[str]:
        """Say what put the choice first, and what let it in where the rival's rules keep it out."""
        if self.decision.cycle.live_bindings and not self.decision.kept and rival.decision.kept:
            has_counts = bool(self.decision.cycle.policy.topology_spread_constraints)
            yield f"it chooses anew{' and counts from 0' if has_counts else ''}"
        if self.step is None:
            return
        yield from self._allowed(self.step, rival)
        if rival.choice is not None:
            choice = str(self.choice)
            yield contest_words(self.decision, self.step, choice, rival.choice, with_rules=True)

    def _allowed(self, step: Round, rival: "_Side") -> Iterator[str]:
        """Tell the limits that would keep the choice out under the rival's rules, as these rules see them."""
        if rival.step is None:
            return
        ours = Replay(self.decision).candidate_in(step, str(self.choice)).constraints
        theirs = Replay(rival.decision).candidate_in(rival.step, str(self.choice)).constraints
        for bid, own in zip(step.bids, ours, strict=True):
            their = [one for one in theirs if _is_same_key(one, own) and one.is_forbidden]
            if their and own.is_hard:
                yield from _nesting(ours, own, their[0])
                yield allowed_words(own)
                yield from _uncounted(bid, self._fits(step), rival.step)

    def _fits(self, step: Round) -> Bools:
        """Mark the clusters that pass the filters, and those that stay."""
        positions, fits = self.decision.cycle.fleet.positions, step.candidates.passes.copy()
        fits[[positions[name] for name in self.decision.kept if name in positions]] = True
        return fits


def _held_down(bid: Bid, verdict: Verdict, step: Round) -> list[str]:
    if not verdict.is_forbidden or verdict.group is None or verdict.lacks_domains:
        return []
    left = bid.groups.count(step.is_left.nonzero()[0])
    siblings = bid.groups.siblings == bid.groups.siblings[bid.groups.values.index(verdict.group)]
    held = siblings & (bid.counts == verdict.smallest) & (left == 0)
    return [value for value, is_held in zip(bid.groups.values, held.tolist(), strict=True) if is_held]


def _nesting(ours: Sequence[Verdict], own: Verdict, their: Verdict) -> Iterator[str]:
    above = [one.topology_key for one in ours[: ours.index(own)]]
    if own.is_nested and not their.is_nested and above:
        yield nesting_words(own.topology_key, above[-1])


def _is_same_key(one: Verdict, other: Verdict) -> bool:
    return (one.topology_key, one.is_claim) == (other.topology_key, other.is_claim)


def _uncounted(bid: Bid, fits: Bools, rival: Round) -> Iterator[str]:
    """Name the groups that the rival counts and these rules do not."""
    key, counted = bid.constraint.topology_key, {_last(value) for value in bid.groups.values}
    theirs = [one.groups for one in rival.bids if one.constraint.topology_key == key]
    passing = {
        _last(value): bool(fits[groups.codes == code].any())
        for groups in theirs
        for code, value in enumerate(groups.values)
        if _last(value) not in counted
    }
    if passing.pop(UNSET, None) is not None:
        yield f"clusters without {key} are in no group"
    if names := sorted(passing):
        why = "" if any(passing.values()) else ", as no cluster there passes"
        yield f"{joined(_first(names))} {verb(len(names), 'does')} not count{why}"


def _last(value: str) -> str:
    """Give the value of a group without those of the levels above."""
    return value.rpartition("/")[2]


def _because(reasons: Iterable[str]) -> str:
    told = list(dict.fromkeys(filter(None, reasons)))
    return f": {'; '.join(told)}" if told else ""
