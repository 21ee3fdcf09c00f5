"""Sentences about the steps of a replay, and why one cluster came before another in a step."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from fleetui.apimachinery.model import Semantics
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.outcome import Outcome, Outcomes
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.replay import Candidate, ConstraintCheck, Replay, RoundSummary
from placements.engine.scheduling.round import NAME_COLUMN, Round, SpreadScore
from placements.engine.scheduling.scoring import ScoreSource
from placements.engine.scheduling.spread.base import SOFT_VIOLATION_SCORE, Groups
from placements.engine.scheduling.spread.kubernetes import SPREAD_WEIGHT
from placements.engine.scheduling.spread.ocm import UNSET
from placements.explain.vocabulary import (
    COLUMN_WORDS,
    TIMES,
    counted,
    joined,
    minimum_words,
    reason_sentence,
    round_sentence,
    score_text,
    signed_text,
    verb,
)

_RANGES_SHOWN = 6


def step_sentences(replay: Replay, step: RoundSummary) -> list[str]:
    """Return what a step did: its effect on the spread, the runner-up, and what lost to the spread."""
    if step.winner is None or step.cut is not None:
        return [f"{_capital(round_sentence(step))}."]
    winner = replay.candidate(step.number, step.winner)
    sentences = [
        *_EFFECTS[replay.decision.cycle.semantics](step, winner),
        *_decisive_score(replay, step),
        *_higher_preference(replay, step),
    ]
    for spread in step.spreads:
        over, without, key = spread.forbids - spread.without_key, spread.without_key, spread.topology_key
        if over:
            broken = f"one more would break maxSkew {spread.max_skew} of {key}"
            sentences.append(f"{counted(over, 'cluster')} could not be selected: {broken}.")
        if without:
            label = f"the label {key}, which a hard limit requires"
            sentences.append(f"{counted(without, 'cluster')} could not be selected without {label}.")
    return sentences


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _effects_on_skew(step: RoundSummary, winner: Candidate) -> Iterator[str]:
    for spread, verdict in zip(step.spreads, winner.constraints, strict=True):
        key, group = verdict.topology_key, verdict.group
        if group is None:
            yield (
                f"{winner.cluster} has no label {key}, so no limit applies to it: it scores 0 where"
                " clusters with the label may score −1."
            )
            continue
        place, score = f"{key}={group}", signed_text(verdict.score)
        before, after = spread.skew_before, spread.skew_after
        if verdict.violates:
            limit = f"over the soft limit {spread.max_skew}"
            yield f"Placing in {place} makes the skew {after}, {limit} ({score})."
        elif after < before:
            yield f"Placing in {place} evens out {key}: skew {before} → {after} ({score})."
        elif after > before:
            yield f"Placing in {place} raises the skew of {key} from {before} to {after} ({score})."
        else:
            yield f"Placing in {place} leaves the skew of {key} at {after} ({score})."


def _effects_on_gap(step: RoundSummary, winner: Candidate) -> Iterator[str]:
    """Return level by level where the pick puts its group, seen from the emptiest sibling (`ocm`)."""
    for spread, verdict in zip(step.spreads, winner.constraints, strict=True):
        key = verdict.topology_key
        if verdict.group is None:
            level = "so it counts as level with the emptiest domain"
            yield f"{winner.cluster} has no {key_words(verdict)}, {level}."
            continue
        limit = f", limit {verdict.max_skew}" if spread.is_hard else ""
        yield (
            f"{key}={verdict.group} goes from {verdict.count} to {(verdict.count or 0) + 1}; measured"
            f" before the selection that is {verdict.skew_after} above {smallest_words(verdict)}{limit}."
        )


def _effects_on_cost(step: RoundSummary, winner: Candidate) -> Iterator[str]:
    """Return what a hard limit makes of the pick, and what a soft one makes it cost (`kubernetes`)."""
    for spread, verdict in zip(step.spreads, winner.constraints, strict=True):
        key, group, count = verdict.topology_key, verdict.group, verdict.count or 0
        if verdict.lacks_key:
            yield f"{winner.cluster} has no label {key}: its spread score is 0, the lowest."
        elif group is None:
            yield f"{winner.cluster} does not count for {key}, without another label: its spread score is 0."
        elif spread.is_hard:
            above = f"{verdict.skew_after} above {smallest_words(verdict)}, limit {verdict.max_skew}"
            grows = f"{key}={group} goes from {count} to {count + 1}; measured before the selection that is"
            yield f"{grows} {above}, and scores nothing."
        else:
            yield f"{key}={group} goes from {count} to {count + 1}, at a cost of {score_text(verdict.score)}."


_EFFECTS: Mapping[Semantics, Callable[[RoundSummary, Candidate], Iterator[str]]] = {
    Semantics.FLEET: _effects_on_skew,
    Semantics.KUBEFLEET: _effects_on_skew,
    Semantics.OCM: _effects_on_gap,
    Semantics.KUBERNETES: _effects_on_cost,
}


def _decisive_score(replay: Replay, step: RoundSummary) -> Iterator[str]:
    if step.winner is None or step.runner_up is None:
        yield f"{step.winner} was the only candidate."
        return
    if step.decided_by == "name":
        pair = (replay.candidate(step.number, name) for name in (step.winner, step.runner_up))
        yield f"{step.winner} and {step.runner_up} tie on {tied_words(*pair)}; the name decides."
        return
    yield f"{step.winner} comes before {step.runner_up} on {COLUMN_WORDS[step.decided_by]}."
    if step.decided_by in _MADE_OF_PARTS:
        one = replay.decision.round(step.number)
        yield f"{_capital(explain_rank(replay.decision, one, step.winner, step.runner_up))}."


_MADE_OF_PARTS = ("preference", "score", "final")
"""The columns whose numbers nobody can read without knowing what they are made of."""


def _higher_preference(replay: Replay, step: RoundSummary) -> Iterator[str]:
    """Yield how many clusters are preferred more and lose, where the spread takes precedence."""
    one = replay.decision.round(step.number)
    names = one.candidates.strategy.rank_names
    if names[0] != "topology" or not len(one.ranked):
        return
    preference = one.candidates.preference[one.ranked]
    higher = int(np.count_nonzero(preference > preference[0]))
    if higher:
        what = names[1]
        clusters = f"{counted(higher, 'cluster')} {verb(higher, 'has')}"
        yield f"{clusters} higher {what}, but topology spread takes precedence."


def verdict_sentence(verdict: ConstraintCheck) -> str:
    """Return why a hard constraint forbids a cluster in a step: "region=west would be 2, the emptiest 0"."""
    if verdict.group is None:
        return f"no label {verdict.topology_key}, which the topology spread requires"
    sort = "claim " if verdict.is_claim else ""
    would = f"{sort}{verdict.topology_key}={verdict.group} would be {(verdict.count or 0) + 1}"
    if verdict.limits_skew and _is_outgrown(verdict):
        return f"{would} (skew {verdict.skew_after} > maxSkew {verdict.max_skew})"
    minimum = minimum_words(verdict.smallest, lacks=verdict.lacks_domains, is_nested=verdict.is_nested)
    broken = f"{'skew' if verdict.limits_skew else 'gap'} {verdict.skew_after} > maxSkew {verdict.max_skew}"
    return f"{would} vs. {minimum} ({broken})"


def _is_outgrown(verdict: ConstraintCheck) -> bool:
    return verdict.skew_after != (verdict.count or 0) + 1 - verdict.smallest


@dataclass(frozen=True, slots=True)
class Course:
    """How one cluster fared: the steps in which it competed, and those in which a hard limit kept it out."""

    competed: tuple[int, ...]
    forbidden: tuple[int, ...]


def course_of(decision: Decision, cluster: str) -> Course | None:
    """Follow a cluster through the steps until it was picked; None where it was not there to be picked."""
    position = decision.cycle.fleet.positions[cluster]
    if decision.candidates is None or not decision.candidates.passes[position]:
        return None
    last = decision.number_of_rounds
    if cluster in decision.picked_names:
        last = min(last, decision.picked_names.index(cluster) + 1)
    kept_out = {n: decision.round(n).alone(position).is_forbidden for n in range(1, last + 1)}
    return Course(
        tuple(number for number, is_out in kept_out.items() if not is_out),
        tuple(number for number, is_out in kept_out.items() if is_out),
    )


def course_sentences(decision: Decision, cluster: str) -> list[str]:
    """Return in which steps a cluster competed or was kept out, and how it lost the last time it competed."""
    course = course_of(decision, cluster)
    if course is None or not decision.candidates or not decision.candidates.constraints:
        return []
    competed, forbidden = course.competed, course.forbidden
    parts = [f"Candidate in {_steps(competed)}"] if competed else ["Never a candidate"]
    if forbidden:
        verdicts = Replay(decision).verdicts(forbidden[0], cluster)
        lacking = [one.topology_key for one in verdicts if one.is_forbidden and one.lacks_key]
        cause = f"its missing label {joined(lacking)}" if lacking else "a hard limit"
        parts.append(f"ruled out by {cause} in {_steps(forbidden)}")
    sentences = [f"{', '.join(parts)}."]
    if competed and cluster not in decision.picked_names:
        sentences += _last_time(Replay(decision), competed[-1], cluster)
    return sentences


def _steps(numbers: Sequence[int]) -> str:
    """Write steps as people do: "step 4", "steps 1 to 3 and 5"."""
    runs = [
        [number for _, number in run]
        for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    ]
    # Two steps in a row by themselves, more as a span.
    spans = [span for run in runs for span in (map(str, run) if len(run) < 3 else [f"{run[0]} to {run[-1]}"])]
    if len(spans) > _RANGES_SHOWN:
        more = f"{len(spans) - _RANGES_SHOWN} more stretches ({len(numbers):,} steps in all)"
        spans = [*spans[:_RANGES_SHOWN], more]
    return f"step{'' if len(numbers) == 1 else 's'} {joined(spans)}"


def _last_time(replay: Replay, number: int, cluster: str) -> list[str]:
    step = replay.step(number)
    if step.winner is None or step.winner == cluster:
        return []
    own, winner = replay.candidate(number, cluster), replay.candidate(number, step.winner)
    words = f"Last candidate in step {number}: lost to {step.winner}"
    if own.decided_by != "name" and not all(one.limits_skew for one in step.spreads):
        one = replay.decision.round(number)
        return [f"{words}; {explain_rank(replay.decision, one, step.winner, cluster)}."]
    words += f" on {COLUMN_WORDS[own.decided_by]}"
    if own.decided_by == "topology":
        scores = f"{score_text(own.topology_spread_score)} vs. {score_text(winner.topology_spread_score)}"
        words += f" ({scores})"
    elif own.decided_by == "affinity":
        words += f" ({score_text(own.affinity_score)} vs. {score_text(winner.affinity_score)})"
    costs = [_cost(one) for one in own.constraints if one.violates]
    return [f"{words}{': ' if costs else ''}{'; '.join(costs)}."]


def _cost(verdict: ConstraintCheck) -> str:
    limit = f"exceeds the soft limit {verdict.max_skew} and costs {-SOFT_VIOLATION_SCORE}"
    place = f"{verdict.topology_key}={verdict.group}"
    if _is_outgrown(verdict):
        does = "raises the skew to" if verdict.skew_after != verdict.skew_before else "leaves the skew at"
        return f"one more in {place} {does} {verdict.skew_after}; {limit}"
    grown = f"{place} would be {(verdict.count or 0) + 1}"
    return f"{grown} vs. minimum {verdict.smallest}; {limit}"


@dataclass(frozen=True)
class RankComparison:
    """Two clusters in one step of a decision, or one that its rules could have come to."""

    replay: Replay
    round: Round
    ahead: Candidate
    behind: Candidate

    @property
    def semantics(self) -> Semantics:
        return self.replay.decision.cycle.semantics

    @property
    def decided_by(self) -> str:
        positions = self.replay.decision.cycle.fleet.positions
        return self.round.decided_by(positions[self.ahead.cluster], positions[self.behind.cluster])

    @property
    def pairs(self) -> Iterator[tuple[ConstraintCheck, ConstraintCheck]]:
        return zip(self.ahead.constraints, self.behind.constraints, strict=True)


def explain_rank(
    decision: Decision, step: Round, ahead: str, behind: str, *, with_rules: bool = False
) -> str:
    """Return why one cluster comes before another in a step. Raise KeyError.

    `with_rules` adds the rules that matter for the two although the numbers do not tell of them.
    """
    replay = Replay(decision)
    if not step.contends[decision.cycle.fleet.positions[behind]]:
        return out_words(decision, step, behind)
    pair = RankComparison(replay, step, *(replay.candidate_in(step, name) for name in (ahead, behind)))
    is_by_name = pair.decided_by == NAME_COLUMN
    if is_by_name:
        which = "first" if profile_of(decision.cycle).strategy.smaller_name_wins else "last"
        same = tied_words(pair.ahead, pair.behind)
        words = f"{same} is the same, and the {which} name of the alphabet wins"
    else:
        words = _WORDS[pair.semantics, pair.decided_by](pair)
    has_rules = with_rules and (is_by_name or pair.decided_by in _AFTER_SPREAD)
    return "; ".join([*(_notes(pair) if has_rules else ()), words])


def out_words(decision: Decision, step: Round, cluster: str) -> str:
    """Return what keeps a cluster out of a step: a hard limit, or a filter. Raise KeyError."""
    one = Replay(decision).candidate_in(step, cluster)
    forbidden = [
        forbidden_words(verdict)
        for verdict in one.constraints
        if verdict.is_forbidden and not verdict.has_key
    ]
    return (
        f"{cluster} is ruled out: {joined(forbidden)}" if forbidden else passed_over_words(decision, cluster)
    )


def passed_over_words(decision: Decision, cluster: str) -> str:
    """Return which filter a cluster fails, also of one that was placed before. Raise KeyError."""
    outcome = Outcomes(decision).of(cluster)
    if outcome.outcome is Outcome.KEPT:
        return f"{cluster} is already placed"
    deciding, *others = outcome.reasons
    reason = others[0] if others and outcome.outcome is Outcome.UNSCHEDULED else deciding
    return f"{cluster}: {reason_sentence(reason)}"


def forbidden_words(verdict: ConstraintCheck) -> str:
    """Return why a hard limit forbids one more, as its rules measure it."""
    if verdict.group is None:
        return f"it has no {key_words(verdict)}, which a hard limit requires"
    return f"{_measure_words(verdict)}, limit {verdict.max_skew}"


def allowed_words(verdict: ConstraintCheck) -> str:
    """Return why a hard limit lets one more in, as its rules measure it."""
    if verdict.group is None:
        return f"no limit applies to a cluster without the {key_words(verdict)}"
    after = verdict.skew_after or 0
    if after > verdict.max_skew:
        rule = "only a selection that adds to it is forbidden"
        return f"{_measure_words(verdict)}, no more than before, and {rule}"
    return f"{_measure_words(verdict)}, within the limit {verdict.max_skew}"


def key_words(verdict: ConstraintCheck) -> str:
    """Return what a constraint groups by: "label zone", "claim zone"."""
    return f"{'claim' if verdict.is_claim else 'label'} {verdict.topology_key}"


def _measure_words(verdict: ConstraintCheck) -> str:
    place = f"{verdict.topology_key}={verdict.group}"
    if verdict.limits_skew:
        smallest = f"the smallest domain has {verdict.smallest}"
        return f"one more in {place} makes the skew {verdict.skew_after} ({smallest})"
    return f"one more in {place} would be {verdict.skew_after} above {smallest_words(verdict)}"


def smallest_words(verdict: ConstraintCheck) -> str:
    """Return what a group is compared with, where the limit is not on the skew."""
    if verdict.lacks_domains:
        return f"0, which counts as the smallest while there are fewer than {verdict.lacks_domains} domains"
    which = "emptiest sibling" if verdict.is_nested else "emptiest domain"
    return f"the {which} ({verdict.smallest})"


# What each column went by


def _skew_words(pair: RankComparison) -> str:
    """Fleet: what a pick would do to the skew of each constraint that tells the two apart."""
    effects = [
        f"{_skew_effect(one)}, where {_skew_effect(other)}"
        for one, other in pair.pairs
        if one.score != other.score
    ]
    return "; ".join(effects) + _spread_first(pair, "affinity")


def _spread_first(pair: RankComparison, what: str) -> str:
    """Return that the spread comes first, where the other cluster is preferred."""
    preference = pair.round.candidates.preference
    positions = pair.replay.decision.cycle.fleet.positions
    is_preferred = preference[positions[pair.behind.cluster]] > preference[positions[pair.ahead.cluster]]
    return f"; spread comes before {what}" if is_preferred else ""


def _skew_effect(verdict: ConstraintCheck) -> str:
    score = score_text(verdict.score)
    if verdict.group is None:
        return f"a cluster without the label {verdict.topology_key} scores {score}"
    before, after = verdict.skew_before, verdict.skew_after or 0
    does = "leaves" if after == before else "raises" if after > before else "lowers"
    to = "at" if after == before else "to"
    over = f", over the soft limit {verdict.max_skew}," if verdict.violates else ""
    place = f"{verdict.topology_key}={verdict.group}"
    return f"one more in {place} {does} the skew {to} {after}{over} and scores {score}"


def _gap_words(pair: RankComparison) -> str:
    for (one, other), groups in zip(pair.pairs, pair.round.candidates.groups, strict=True):
        if one.score != other.score:
            return f"{_gap(one, groups)}, {_gap(other, groups)}{_spread_first(pair, 'preference')}"
    return COLUMN_WORDS["topology"] or ""


def _gap(verdict: ConstraintCheck, groups: Groups) -> str:
    key = verdict.topology_key
    if verdict.group is None:
        return f"a cluster without the {key_words(verdict)} has no gap"
    place = f"{key}={verdict.group}"
    if groups.weights:
        weight = groups.weights[groups.values.index(verdict.group)]
        return f"{place} has {verdict.count} for its weight {weight}"
    return f"{place} is {(verdict.count or 0) - verdict.smallest} above {smallest_words(verdict)}"


def _summed(pair: RankComparison, column: str, factor: float, added: Sequence[str], what: str) -> str:
    """Write both sums, so many times the spread and what is added, and whether the latter tipped them."""
    first, second = (
        f"{score_text(one.combined[column])} = {score_text(factor)} {TIMES}"
        f" {_bracketed(one.topology_spread_score)} + {more}"
        for one, more in zip((pair.ahead, pair.behind), added, strict=True)
    )
    words = f"{COLUMN_WORDS[column]} is {first} against {second}"
    is_outweighed = _spread_of(pair.behind) > _spread_of(pair.ahead)
    return f"{words}: the {what} outweighs the spread" if is_outweighed else words


def preference_words(replay: Replay, one: Candidate) -> str:
    """Write what the preference of a cluster is made of under `ocm`: "132 (affinity 100, Balance 32)"."""
    value = _bracketed(one.combined["preference"])
    parts: dict[str, SpreadScore | None] = {"affinity": one.affinity_score}
    decision = replay.decision
    if decision.candidates is not None:
        position = decision.cycle.fleet.positions[one.cluster]
        addends = profile_of(decision.cycle).preference.addends(decision.cycle, decision.candidates.passes)
        parts |= {
            _PRIORITIZERS[each.source]: each.points[position].item()
            for each in addends
            if each.source in _PRIORITIZERS
        }
    made_of = ", ".join(f"{name} {score_text(part)}" for name, part in parts.items())
    return f"{value} ({made_of})"


_PRIORITIZERS = {
    ScoreSource.STEADY: "Steady",
    ScoreSource.BALANCE: "Balance",
    ScoreSource.CPU: "ResourceAllocatableCPU",
    ScoreSource.MEMORY: "ResourceAllocatableMemory",
}
"""What adds to the affinity in a preference, by its name in OCM."""


def _spread_of(one: Candidate) -> float:
    score = one.topology_spread_score
    return score if isinstance(score, int | float) else 0


def _bracketed(value: SpreadScore | None) -> str:
    text = score_text(value)
    return f"({text})" if text.startswith("-") else text


def tied_words(one: Candidate, other: Candidate) -> str:
    """Return what is the same where the name decides: every score, or only what they add up to."""
    scores = [(each.topology_spread_score, each.affinity_score) for each in (one, other)]
    if scores[0] != scores[1]:
        *_, column = one.combined
        return _SUMS[column]
    pairs = zip(one.constraints, other.constraints, strict=True)
    adds_up = any(mine.limits_skew and mine.score != theirs.score for mine, theirs in pairs)
    return "the sum of the scores" if adds_up else "every score"


_SUMS = {"preference": "the preference", "score": COLUMN_WORDS["score"]}


def _notes(pair: RankComparison) -> Iterator[str]:
    """Return what the rules make of groups that hold different numbers, or of a cluster in none."""
    above = ""
    for one, other in pair.pairs:
        yield from _NOTES[pair.semantics](one, other)
        if one.is_nested and one.group and other.group and _above(one) != _above(other):
            yield nesting_words(one.topology_key, above)
        above = one.topology_key


def _above(verdict: ConstraintCheck) -> str:
    return (verdict.group or "").rpartition("/")[0]


def nesting_words(key: str, above: str) -> str:
    """Return that groups of a key are compared with their siblings only."""
    return f"domains of {key} are compared within one {above} only"


def _note_of_skew(one: ConstraintCheck, other: ConstraintCheck) -> Iterator[str]:
    if one.group is None or other.group is None or one.count == other.count:
        return
    if (one.score, one.skew_after) != (other.score, other.skew_after):
        return
    yield (
        f"only a change of the skew scores, and one more in {one.topology_key}={one.group} ({one.count}) or"
        f" {other.group} ({other.count}) changes it alike"
    )


def _note_of_hard(one: ConstraintCheck, other: ConstraintCheck) -> Iterator[str]:
    if one.is_hard and one.count != other.count:
        yield f"the hard limit on {one.topology_key} filters, and scores nothing"
    if not one.is_hard and one.lacks_key != other.lacks_key:
        yield f"a cluster without the label {one.topology_key} has the lowest spread score, 0"


def _note_of_missing_key(one: ConstraintCheck, other: ConstraintCheck) -> Iterator[str]:
    key = one.topology_key
    groups = {verdict.group and verdict.group.rpartition("/")[2] for verdict in (one, other)}
    if len(groups) == 2 and UNSET in groups:
        yield f"clusters without {key} are a domain of their own, {UNSET}"
    if len(groups) == 2 and None in groups:
        yield f"a cluster without {key} counts as level with the emptiest domain"


_AFTER_SPREAD = ("affinity", "preference", "was-here", "score", "final")
_NOTES: Mapping[Semantics, Callable[[ConstraintCheck, ConstraintCheck], Iterator[str]]] = {
    Semantics.FLEET: _note_of_skew,
    Semantics.KUBEFLEET: _note_of_skew,
    Semantics.OCM: _note_of_missing_key,
    Semantics.KUBERNETES: _note_of_hard,
}
_WORDS: Mapping[tuple[Semantics, str], Callable[[RankComparison], str]] = {
    **{
        (one, column): words
        for one in (Semantics.FLEET, Semantics.KUBEFLEET)
        for column, words in (
            ("topology", _skew_words),
            (
                "affinity",
                lambda pair: (
                    f"its affinity is {score_text(pair.ahead.affinity_score)}"
                    f" against {score_text(pair.behind.affinity_score)}"
                ),
            ),
            ("was-here", lambda _: "it has the placement under an older policy"),
        )
    },
    (Semantics.OCM, "topology"): _gap_words,
    (Semantics.OCM, "final"): lambda pair: _summed(
        pair,
        "final",
        pair.replay.decision.cycle.ocm_options.u,
        [preference_words(pair.replay, one) for one in (pair.ahead, pair.behind)],
        "preference",
    ),
    (Semantics.OCM, "preference"): lambda pair: (
        f"its preference is {preference_words(pair.replay, pair.ahead)}"
        f" against {preference_words(pair.replay, pair.behind)}"
    ),
    (Semantics.KUBERNETES, "score"): lambda pair: _summed(
        pair,
        "score",
        SPREAD_WEIGHT,
        [_bracketed(one.affinity_score) for one in (pair.ahead, pair.behind)],
        "affinity",
    ),
}
