"""Where two or more sets of rules select differently on the same inputs, and why, in words."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from clusters.columns import Bools
from fleetui.apimachinery.model import Semantics
from fleetui.apimachinery.words import first_names, joined
from placements.engine.scheduling.comparison import (
    SemanticsComparison,
    SemanticsDifference,
    last_followed,
    placed,
    turn_of,
)
from placements.engine.scheduling.decision import (
    WITHOUT_EVALUATION,
    CycleKind,
    Decision,
)
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.replay import Replay
from placements.engine.scheduling.round import NAME_COLUMN, ConstraintScore, Round
from placements.engine.scheduling.spread.ocm import UNSET
from placements.explain.decisions import (
    allowed_words,
    explain_rank,
    nesting_words,
    out_words,
    passed_over_words,
)
from placements.explain.vocabulary import NAMES_SHOWN, headline, verb


@dataclass(frozen=True, slots=True)
class Divergence:
    """One set of rules against the one it is compared with: the first difference, and why.

    `place` is None where they place the same clusters in the same order; `is_by_name`: there they
    differ in the order of names only, and the words are about a later difference between the rules.
    """

    semantics: Semantics
    place: int | None
    is_by_name: bool
    words: str


def difference_sentence(comparison: SemanticsComparison) -> str:
    """Return the rank of the first difference, what each selects there, and why; empty without one."""
    clauses = ". ".join(f"{who} {words}" for who, words in difference_parts(comparison))
    return f"{difference_head(comparison)}: {clauses}" if clauses else ""


def difference_head(comparison: SemanticsComparison) -> str:
    """Return the rank of the first difference, and whether the same clusters are selected."""
    difference = comparison.first_difference
    if difference is None:
        return "all place the same clusters in the same order"
    if comparison.is_same_set:
        return f"all place the same clusters, in another order from rank {difference.place} on"
    return f"rank {difference.place}"


def difference_parts(comparison: SemanticsComparison) -> list[tuple[str, str]]:
    """Return for the first difference which rules do the same for the same reason, and what they do."""
    return (
        _side_words(comparison, comparison.first_difference)
        if comparison.first_difference
        else []
    )


def divergences(comparison: SemanticsComparison) -> list[Divergence]:
    """Return for each of the others its first difference from the base, and why."""
    base = comparison.base
    rows = []
    for other in comparison.decisions if base in comparison.decisions else ():
        difference = comparison.difference_among((base, other))
        if other is base:
            continue
        if difference is not None and _is_by_name(comparison, difference):
            rows.append(_beyond_names(comparison, base, other, difference))
            continue
        place, words = None, f"places the same clusters as {base}, in the same order"
        if difference is not None:
            parts = ". ".join(
                f"{who} {what}" for who, what in _side_words(comparison, difference)
            )
            place, words = (
                difference.place,
                f"differs from {base} at rank {difference.place}: {parts}",
            )
        rows.append(Divergence(other, place, is_by_name=False, words=words))
    return rows


def later_divergences(comparison: SemanticsComparison) -> list[Divergence]:
    """Return the divergences that the sentence on the first difference does not cover."""
    difference = comparison.first_difference
    first = difference.place if difference else None
    return [
        divergence
        for divergence in divergences(comparison)
        if divergence.place != first or divergence.is_by_name
    ]


def apart_words(gained: Sequence[str], lost: Sequence[str]) -> str:
    """Return the clusters that one selects and another does not: "also b-1 and b-2; not a-3"."""
    parts = (("also", gained), ("not", lost))
    return "; ".join(
        f"{word} {first_names(names, NAMES_SHOWN)}" for word, names in parts if names
    )


def _is_by_name(
    comparison: SemanticsComparison, difference: SemanticsDifference
) -> bool:
    """Return whether under each of the rules the choices are as good as each other but for the name."""
    names = set(difference.choices.values())
    if None in names:
        return False
    for semantics, one in difference.steps.items():
        positions = [
            comparison.decisions[semantics].cycle.fleet.positions[str(name)]
            for name in names
        ]
        if one is None or not all(one.contends[positions]):
            return False
        if any(
            one.decided_by(positions[0], place) != NAME_COLUMN
            for place in positions[1:]
        ):
            return False
    return True


def _beyond_names(
    comparison: SemanticsComparison,
    base: Semantics,
    other: Semantics,
    difference: SemanticsDifference,
) -> Divergence:
    decision, rival = comparison.decisions[base], comparison.decisions[other]
    smaller_wins = [
        profile_of(each.cycle).strategy.smaller_name_wins for each in (decision, rival)
    ]
    own, their = ("first" if is_first else "last" for is_first in smaller_wins)
    of_equals = (
        f"selects the {their} name of equals "
        f"where {base} selects the {own}, from rank {difference.place} on"
    )
    further = _turn_words(decision, rival, difference.place) or _turn_words(
        rival, decision, difference.place
    )
    last = last_followed(decision, difference.place)
    up_to = "" if last > len(placed(decision)) else f" up to rank {last:,}"
    words = (
        f"{of_equals}. {further}"
        if further
        else f"{of_equals}; otherwise they select the same{up_to}"
    )
    return Divergence(other, difference.place, is_by_name=True, words=words)


def _turn_words(decision: Decision, other: Decision, start: int) -> str:
    """Return where other rules would not have made the same decision, and why."""
    turn = turn_of(decision, other, start=start)
    if turn is None:
        return ""
    own = _Side(decision.cycle.semantics, decision, turn.step, turn.choice)
    their = _Side(
        other.cycle.semantics, other, turn.other_step, turn.instead, would=True
    )
    clauses = [
        f"{own.semantics} {own.words(their)}",
        f"{their.semantics} {their.words(own)}",
    ]
    if turn.choice is None:
        clauses.reverse()
    rank = f"At rank {turn.place}, after the selections of {own.semantics} before it"
    return f"{rank if turn.place > 1 else 'There'}: {'. '.join(clauses)}"


def _side_words(
    comparison: SemanticsComparison, difference: SemanticsDifference
) -> list[tuple[str, str]]:
    sides = [
        _Side(
            semantics,
            comparison.decisions[semantics],
            difference.steps[semantics],
            choice,
        )
        for semantics, choice in difference.choices.items()
    ]
    alike: dict[str, list[tuple[_Side, _Side]]] = {}
    for side in sides:
        others = [one for one in sides if one.choice != side.choice]
        rival = min(others, key=lambda one: one.choice is None)
        alike.setdefault(side.words(rival), []).append((side, rival))
    return [
        (
            joined([str(side.semantics) for side, _ in those]),
            those[0][0].words(those[0][1], many=len(those)),
        )
        for those in sorted(
            alike.values(), key=lambda pairs: pairs[0][0].choice is None
        )
    ]


@dataclass(frozen=True)
class _Side:
    """What one set of rules does at a place: the decision, the step there, its choice or what it would be."""

    semantics: Semantics
    decision: Decision
    step: Round | None
    choice: str | None
    would: bool = False

    def words(self, rival: "_Side", *, many: int = 1) -> str:
        if self.choice is None:
            return f"{self._verb('finds', many)} no cluster{_because(self._why_none(rival.choice))}"
        if self.choice in self.decision.kept:
            return f"{self._verb('keeps', many)} {self.choice}, which is already placed"
        rather = f" rather than {rival.choice}" if rival.choice else ""
        return f"{self._verb('selects', many)} {self.choice}{rather}{_because(self._why(rival))}"

    def _verb(self, singular: str, many: int) -> str:
        return f"would {verb(2, singular)}" if self.would else verb(many, singular)

    def _why_none(self, rival: str | None) -> Iterator[str]:
        """Yield why no cluster is selected, and the domains that hold the minimum without candidates."""
        decision, step = self.decision, self.step
        silent = (*WITHOUT_EVALUATION, CycleKind.NO_NAMES)
        if decision.is_failed:
            yield headline(decision)
        elif decision.kind in silent:
            yield "no more clusters are requested"
        elif rival is None:
            yield "no cluster passes the filters"
        elif step is None:
            yield passed_over_words(decision, rival)
        else:
            yield out_words(decision, step, rival)
            verdicts = Replay(decision).candidate_in(step, rival).constraints
            for score, verdict in zip(step.constraint_scores, verdicts, strict=True):
                if (
                    not verdict.is_forbidden
                    or verdict.group is None
                    or verdict.lacks_domains
                ):
                    continue
                groups, left = (
                    score.groups,
                    score.groups.count(step.is_left.nonzero()[0]),
                )
                siblings = (
                    groups.siblings
                    == groups.siblings[groups.values.index(verdict.group)]
                )
                fixed = siblings & (score.counts == verdict.smallest) & (left == 0)
                if names := [groups.values[at] for at in fixed.nonzero()[0]]:
                    yield (
                        f"{first_names(names, NAMES_SHOWN)} {verb(len(names), 'keeps')}"
                        f" the minimum at {verdict.smallest}, without candidates"
                    )

    def _why(self, rival: "_Side") -> Iterator[str]:
        """Return what put the choice first, and what let it in where the rival's rules keep it out."""
        if (
            self.decision.cycle.live_bindings
            and not self.decision.kept
            and rival.decision.kept
        ):
            has_counts = bool(self.decision.cycle.policy.topology_spread_constraints)
            yield f"every cycle selects again{' and counts from 0' if has_counts else ''}"
        if self.step is None:
            return
        yield from self._allowed(self.step, rival)
        if rival.choice is not None:
            choice = str(self.choice)
            yield explain_rank(
                self.decision, self.step, choice, rival.choice, with_rules=True
            )

    def _allowed(self, step: Round, rival: "_Side") -> Iterator[str]:
        """Yield the limits that rule the choice out under the rival's rules, as these rules see them."""
        if rival.step is None:
            return
        positions, fits = (
            self.decision.cycle.fleet.positions,
            step.candidates.passes.copy(),
        )
        fits[[positions[name] for name in self.decision.kept if name in positions]] = (
            True
        )
        ours = Replay(self.decision).candidate_in(step, str(self.choice)).constraints
        theirs = (
            Replay(rival.decision)
            .candidate_in(rival.step, str(self.choice))
            .constraints
        )
        for score, own in zip(step.constraint_scores, ours, strict=True):
            key = (own.topology_key, own.is_claim)
            their = [
                check
                for check in theirs
                if (check.topology_key, check.is_claim) == key and check.is_forbidden
            ]
            if their and own.is_hard:
                above = [
                    constraint_check.topology_key
                    for constraint_check in ours[: ours.index(own)]
                ]
                if own.is_nested and not their[0].is_nested and above:
                    yield nesting_words(own.topology_key, above[-1])
                yield allowed_words(own)
                yield from _uncounted(score, fits, rival.step)


def _uncounted(score: ConstraintScore, fits: Bools, rival: Round) -> Iterator[str]:
    """Return the groups that the rival counts and these rules do not."""
    key, counted = (
        score.constraint.topology_key,
        {_last(value) for value in score.groups.values},
    )
    theirs = [
        constraint_score.groups
        for constraint_score in rival.constraint_scores
        if constraint_score.constraint.topology_key == key
    ]
    passing = {
        _last(value): bool(fits[groups.codes == code].any())
        for groups in theirs
        for code, value in enumerate(groups.values)
        if _last(value) not in counted
    }
    if passing.pop(UNSET, None) is not None:
        yield f"clusters without {key} are in no domain"
    if names := sorted(passing):
        why = "" if any(passing.values()) else ", as no cluster there passes"
        yield f"{first_names(names, NAMES_SHOWN)} {verb(len(names), 'does')} not count{why}"


def _last(value: str) -> str:
    return value.rpartition("/")[2]


def _because(reasons: Iterable[str]) -> str:
    clauses = list(dict.fromkeys(filter(None, reasons)))
    return f": {'; '.join(clauses)}" if clauses else ""
