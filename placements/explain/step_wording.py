"""Sentences about one step of a replay, and about how one cluster fared through the steps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from placements.explain.contest_wording import contest_words, key_words, smallest_words, tied_words
from placements.explain.wording import (
    COLUMN_WORDS,
    counted,
    joined,
    round_sentence,
    score_text,
    signed_text,
)
from placements.scheduling.decision import Decision
from placements.scheduling.replay import Candidate, Replay, Step, Verdict
from placements.scheduling.semantics import Semantics
from placements.scheduling.spread.base import SOFT_VIOLATION_SCORE

_RANGES_SHOWN = 6


def step_sentences(replay: Replay, step: Step) -> list[str]:
    """Say what a step did: its effect on the spread, who came close, and what outranked a higher affinity."""
    if step.winner is None or step.cut is not None:
        return [f"{_capital(round_sentence(step))}."]
    winner = replay.candidate(step.number, step.winner)
    effects = _EFFECTS[replay.decision.cycle.semantics](step, winner)
    return [
        *effects,
        *_contest(replay, step),
        *_higher_preference(replay, step),
        *_forbidden(step),
    ]


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _effects_on_skew(step: Step, winner: Candidate) -> Iterator[str]:
    for spread, verdict in zip(step.spreads, winner.constraints, strict=True):
        key, group = verdict.topology_key, verdict.group
        if group is None:
            yield (
                f"{winner.cluster} has no label {key}, so no limit holds for it there: it scores 0 where"
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


def _effects_on_gap(step: Step, winner: Candidate) -> Iterator[str]:
    """Say level by level where the pick puts its group, seen from the emptiest sibling (`ocm`)."""
    for spread, verdict in zip(step.spreads, winner.constraints, strict=True):
        key = verdict.topology_key
        if verdict.group is None:
            level = "so it is free there, as if level with the emptiest group"
            yield f"{winner.cluster} has no {key_words(verdict)}, {level}."
            continue
        limit = f", limit {verdict.max_skew}" if spread.is_hard else ""
        yield (
            f"{key}={verdict.group} goes from {verdict.count} to {(verdict.count or 0) + 1}; measured"
            f" before the pick that is {verdict.skew_after} above {smallest_words(verdict)}{limit}."
        )


def _effects_on_cost(step: Step, winner: Candidate) -> Iterator[str]:
    """Say what a hard limit makes of the pick, and what a soft one makes it cost (`kubernetes`)."""
    for spread, verdict in zip(step.spreads, winner.constraints, strict=True):
        key, group, count = verdict.topology_key, verdict.group, verdict.count or 0
        if verdict.lacks_key:
            yield f"{winner.cluster} has no label {key}: its spread score is 0, the lowest."
        elif group is None:
            want = "for want of another label"
            yield f"{winner.cluster} does not count for {key}, {want}: its spread score is 0."
        elif spread.is_hard:
            above = f"{verdict.skew_after} above {smallest_words(verdict)}, limit {verdict.max_skew}"
            grows = f"{key}={group} goes from {count} to {count + 1}; measured before the pick that is"
            yield f"{grows} {above}, and scores nothing."
        else:
            yield f"{key}={group} goes from {count} to {count + 1}, at a cost of {score_text(verdict.score)}."


_EFFECTS: Mapping[Semantics, Callable[[Step, Candidate], Iterator[str]]] = {
    Semantics.FLEET: _effects_on_skew,
    Semantics.KUBEFLEET: _effects_on_skew,
    Semantics.OCM: _effects_on_gap,
    Semantics.KUBERNETES: _effects_on_cost,
}


def _contest(replay: Replay, step: Step) -> Iterator[str]:
    if step.winner is None or step.runner_up is None:
        yield f"{step.winner} was the only one left."
        return
    if step.decided_by == "name":
        pair = (replay.candidate(step.number, name) for name in (step.winner, step.runner_up))
        yield f"{step.winner} and {step.runner_up} tie on {tied_words(*pair)}; the name decides."
        return
    yield f"{step.winner} comes before {step.runner_up} by {COLUMN_WORDS[step.decided_by]}."
    if step.decided_by in _MADE_OF_PARTS:
        one = replay.decision.round(step.number)
        yield f"{_capital(contest_words(replay.decision, one, step.winner, step.runner_up))}."


_MADE_OF_PARTS = ("preference", "score", "final")
"""The columns whose numbers nobody can read without knowing what they are made of."""


def _higher_preference(replay: Replay, step: Step) -> Iterator[str]:
    """Count those that are preferred and lose, where the spread comes before what is preferred."""
    one = replay.decision.round(step.number)
    names = one.candidates.strategy.rank_names
    if names[0] != "topology" or not len(one.ranked):
        return
    preference = one.candidates.preference[one.ranked]
    higher = int(np.count_nonzero(preference > preference[0]))
    if higher:
        what = names[1]
        verb = f"has a higher {what} and loses" if higher == 1 else f"have a higher {what} and lose"
        yield f"{_capital(counted(higher, 'cluster'))} {verb}: topology outranks {what}."


def _forbidden(step: Step) -> Iterator[str]:
    for spread in step.spreads:
        too_many = spread.forbids - spread.without_key
        if too_many:
            yield (
                f"{_capital(counted(too_many, 'cluster'))} could not be picked: one more would break"
                f" max skew {spread.max_skew} of {spread.topology_key}."
            )
        if spread.without_key:
            yield (
                f"{_capital(counted(spread.without_key, 'cluster'))} could not be picked without the label"
                f" {spread.topology_key}, which a hard limit needs."
            )


def verdict_sentence(verdict: Verdict) -> str:
    """Say why a hard constraint forbids a cluster in a step: "region=west would be 2, the emptiest 0"."""
    if verdict.group is None:
        return f"has no label {verdict.topology_key}, which the spread needs"
    sort = "claim " if verdict.is_claim else ""
    would = f"{sort}{verdict.topology_key}={verdict.group} would be {(verdict.count or 0) + 1}"
    if verdict.limits_skew and _is_outgrown(verdict):
        return f"{would} and the skew {verdict.skew_after}, max skew {verdict.max_skew}"
    if verdict.limits_skew:
        return f"{would}, the emptiest group {verdict.smallest}, max skew {verdict.max_skew}"
    return f"{would}, {verdict.skew_after} above {smallest_words(verdict)}, limit {verdict.max_skew}"


def _is_outgrown(verdict: Verdict) -> bool:
    """Tell whether another group than this one would make the skew."""
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
    """Say in which steps a cluster competed or was kept out, and how it lost the last time it competed."""
    course = course_of(decision, cluster)
    if course is None or not decision.candidates or not decision.candidates.constraints:
        return []
    competed, forbidden = course.competed, course.forbidden
    parts = [f"Competed in {_steps(competed)}"] if competed else ["It never competed"]
    if forbidden:
        parts.append(f"kept out by {_keeps_out(decision, cluster, forbidden)} in {_steps(forbidden)}")
    sentences = [f"{', '.join(parts)}."]
    if competed and cluster not in decision.picked_names:
        sentences += _last_time(Replay(decision), competed[-1], cluster)
    return sentences


def _keeps_out(decision: Decision, cluster: str, forbidden: Sequence[int]) -> str:
    """Name what kept a cluster out: a missing label in every step, or the count of its group in some."""
    verdicts = Replay(decision).verdicts(forbidden[0], cluster)
    lacking = [one.topology_key for one in verdicts if one.is_forbidden and one.lacks_key]
    return f"its missing label {joined(lacking)}" if lacking else "a hard limit"


def _steps(numbers: Sequence[int]) -> str:
    """Write steps as people do: "step 4", "steps 1 to 3 and 5"."""
    runs = [
        [number for _, number in run]
        for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    ]
    spans = [span for run in runs for span in _spans(run)]
    if len(spans) > _RANGES_SHOWN:
        more = f"{len(spans) - _RANGES_SHOWN} more stretches ({len(numbers):,} steps in all)"
        spans = [*spans[:_RANGES_SHOWN], more]
    return f"step{'' if len(numbers) == 1 else 's'} {joined(spans)}"


def _spans(run: Sequence[int]) -> list[str]:
    """Write a stretch of steps: two by themselves, more as a span."""
    return list(map(str, run)) if len(run) < 3 else [f"{run[0]} to {run[-1]}"]


def _last_time(replay: Replay, number: int, cluster: str) -> list[str]:
    step = replay.step(number)
    if step.winner is None or step.winner == cluster:
        return []
    own, winner = replay.candidate(number, cluster), replay.candidate(number, step.winner)
    words = f"Last time, in step {number}, {step.winner} came first"
    if own.decided_by != "name" and not all(one.limits_skew for one in step.spreads):
        one = replay.decision.round(number)
        return [f"{words}: {contest_words(replay.decision, one, step.winner, cluster)}."]
    words += f" by {COLUMN_WORDS[own.decided_by]}"
    if own.decided_by == "topology":
        scores = f"{score_text(own.topology_spread_score)} against {score_text(winner.topology_spread_score)}"
        words += f" ({scores})"
    elif own.decided_by == "affinity":
        words += f" ({score_text(own.affinity_score)} against {score_text(winner.affinity_score)})"
    costs = [_cost(one) for one in own.constraints if one.violates]
    return [f"{words}{': ' if costs else ''}{'; '.join(costs)}."]


def _cost(verdict: Verdict) -> str:
    limit = f"that exceeds the soft limit {verdict.max_skew} and costs {-SOFT_VIOLATION_SCORE}"
    place = f"{verdict.topology_key}={verdict.group}"
    if _is_outgrown(verdict):
        does = "raises the skew to" if verdict.skew_after != verdict.skew_before else "leaves the skew at"
        return f"one more in {place} {does} {verdict.skew_after}; {limit}"
    grown = f"{place} would be {(verdict.count or 0) + 1}"
    return f"{grown} against {verdict.smallest} in the emptiest group; {limit}"
