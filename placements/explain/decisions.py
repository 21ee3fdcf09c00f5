"""Sentences about the steps of a replay, and why one cluster came before another in a step."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np

from fleetui.apimachinery.model import Semantics
from fleetui.apimachinery.words import counted, joined, names_and_more
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.outcome import Outcome, Outcomes
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.replay import (
    Candidate,
    ConstraintCheck,
    Replay,
    RoundSummary,
    Spread,
    rank_names,
)
from placements.engine.scheduling.round import NAME_COLUMN, Round, SpreadScore
from placements.engine.scheduling.scoring import ScoreSource
from placements.engine.scheduling.spread.base import Groups
from placements.engine.scheduling.spread.kubernetes import SPREAD_WEIGHT
from placements.engine.scheduling.spread.ocm import UNSET
from placements.explain.vocabulary import (
    ALPHABET,
    COLUMN_WORDS,
    MEASURES,
    TIMES,
    only_words,
    reason_sentence,
    round_sentence,
    score_text,
    signed_text,
    verb,
)

_MOST_TIED = 4


def step_sentences(replay: Replay, step: RoundSummary) -> list[str]:
    """Return what a step did: what decided it, its effect on the spread, and what the limits blocked."""
    if step.winner is None or step.cut is not None:
        return [f"{_capital(round_sentence(step))}."]
    winner = replay.candidate(step.number, step.winner)
    effect = _EFFECTS[replay.decision.cycle.semantics]
    sentences = [
        *_decisive_scores(replay, step),
        *(
            effect(spread, check, winner.cluster)
            for spread, check in zip(step.spreads, winner.constraints, strict=True)
        ),
    ]
    for spread in step.spreads:
        over, without, key = (
            spread.forbids - spread.without_key,
            spread.without_key,
            spread.topology_key,
        )
        if over:
            broken = f"one more would break maxSkew {spread.max_skew} of {key}"
            sentences.append(f"{counted(over, 'cluster')} blocked: {broken}.")
        if without:
            label = f"the label {key}, which a hard limit requires"
            sentences.append(f"{counted(without, 'cluster')} blocked without {label}.")
    return sentences


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _effect_on_skew(spread: Spread, check: ConstraintCheck, cluster: str) -> str:
    key, before, after = check.topology_key, spread.skew_before, spread.skew_after
    if check.group is None:
        return f"{cluster} has no label {key}: this constraint does not limit it, and scores 0."
    skew = f"skew {before} → {after}"
    if after == before:
        skew = f"skew stays {after}"
    over = f", over the soft limit {spread.max_skew}" * check.violates
    return f"{key}={check.group}: {skew}{over} ({signed_text(check.score)})."


def _effect_on_gap(spread: Spread, check: ConstraintCheck, cluster: str) -> str:
    """Return where the selection puts its domain, compared with the emptiest sibling (`ocm`)."""
    if check.group is None:
        return f"{cluster} has no {key_words(check)}, so it counts as level with the emptiest domain."
    limit = f", limit {check.max_skew}" if spread.is_hard else ""
    return f"{_growth(check)}; measured before the selection that is {_above_smallest(check)}{limit}."


def _effect_on_cost(spread: Spread, check: ConstraintCheck, cluster: str) -> str:
    """Return the effect of a hard limit on the selection, or the cost by a soft one (`kubernetes`)."""
    key = check.topology_key
    if check.lacks_key:
        return f"{cluster} has no label {key}: its spread score is 0, the lowest."
    if check.group is None:
        return f"{cluster} does not count for {key}, without another label: its spread score is 0."
    if spread.is_hard:
        above = f"measured before the selection that is {_above_smallest(check)}, limit {check.max_skew}"
        return f"{_growth(check)}; {above}, and scores nothing."
    return f"{_growth(check)}, at a cost of {score_text(check.score)}."


def _growth(check: ConstraintCheck) -> str:
    count = check.count or 0
    return f"{check.topology_key}={check.group} goes from {count} to {count + 1}"


def _above_smallest(check: ConstraintCheck) -> str:
    return f"{check.skew_after} above {smallest_words(check)}"


_EFFECTS: Mapping[Semantics, Callable[[Spread, ConstraintCheck, str], str]] = {
    Semantics.FLEET: _effect_on_skew,
    Semantics.KUBEFLEET: _effect_on_skew,
    Semantics.OCM: _effect_on_gap,
    Semantics.KUBERNETES: _effect_on_cost,
}


def _decisive_scores(replay: Replay, step: RoundSummary) -> Iterator[str]:
    """Yield what the scores decided, and how many are preferred more and lose to the spread."""
    winner = str(step.winner)
    if step.runner_up is None:
        yield f"{winner} was {only_words(step)}."
        return
    one = replay.round(step.number)
    within = " within the limit" * (step.candidates > len(one.ranked))
    parts = "; ".join(_eliminations(replay, one))
    yield f"{counted(len(one.ranked), 'candidate')}{within}: {parts}."
    # The numbers of these columns mean nothing without their parts.
    if step.decided_by in ("preference", "score", "final"):
        yield f"{_capital(explain_rank(replay.decision, one, winner, step.runner_up))}."

    names = one.candidates.strategy.rank_names
    if names[0] == "topology" and len(one.ranked):
        preference = one.candidates.preference[one.ranked]
        higher = int(np.count_nonzero(preference > preference[0]))
        if higher:
            yield f"{higher:,} {verb(higher, 'has')} more {names[1]}, but spread decides first."


def _eliminations(replay: Replay, one: Round) -> Iterator[str]:
    """Yield what each score leaves of the candidates, in the order in which scores decide."""
    left = one.ranked
    winner = replay.candidate(one.number, replay.names[left[0]])
    shown = rank_names(replay.decision.cycle)
    for name, columns in groupby(one.named_columns(), key=itemgetter(0)):
        before = left
        for _, column in columns:
            left = left[column[left] == column[left[0]]]
        has = f"{_SHORT_WORDS[name]} {_ranked_value(name, winner)}"
        of_these = " of these" * (len(before) < len(one.ranked))
        if len(left) < len(before):
            # The candidates are in the order of the scores: the next one has the next best.
            other = replay.candidate(one.number, replay.names[before[len(left)]])
            best = f"the best {has} (next {_ranked_value(name, other)})"
            yield f"{len(left):,}{of_these} with {_BEST.get(name, best)}"
        elif name in shown and name not in _BEST:
            yield f"all{of_these} with {has}"
    if len(left) > 1:
        names = [replay.names[at] for at in left[: _MOST_TIED + 1]]
        order = names_and_more(names, _MOST_TIED, count=len(left))
        yield f"by name, {_alphabet(replay.decision)} of the alphabet first: {order}"


def _alphabet(decision: Decision) -> str:
    return ALPHABET[profile_of(decision.cycle).strategy.smaller_name_wins]


def _ranked_value(name: str, one: Candidate) -> str:
    scores: dict[str, SpreadScore | None] = {
        "topology": one.topology_spread_score,
        "affinity": one.affinity_score,
        **one.combined,
    }
    return signed_text(scores.get(name))


def step_title(step: RoundSummary) -> str:
    if step.cut is not None:
        return (
            f"Why {step.cut.last_in} and not {step.cut.first_out}"
            if step.cut.first_out
            else "One ranking"
        )
    if step.winner is None:
        return f"Step {step.number:,}: why no cluster"
    if step.runner_up is None:
        return f"Step {step.number:,}: why {step.winner} and no other"
    others = step.candidates - 2
    more = ""
    if others:
        more = f" or {counted(others, 'other')}"
    return f"Step {step.number:,}: why {step.winner} and not {step.runner_up}{more}"


# Of a column that is no score, what the best have.
_BEST = {"was-here": "the placement already"}
_SHORT_WORDS = COLUMN_WORDS | {"topology": "spread", "was-here": "placed before"}


def deciding_words(replay: Replay, step: RoundSummary) -> tuple[str, str, str]:
    """Return what decided a step, over which cluster, and both values; short, for a narrow column."""
    winner, second = step.winner, step.runner_up
    limits = [spread.topology_key for spread in step.spreads if spread.forbids]
    if winner is None:
        if limits:
            return "all blocked", "", f"by the limit of {joined(limits)}"
        return "no candidate", "", ""
    if second is None:
        if limits:
            return f"{joined(limits)} limit", "", "blocks all others"
        return "only candidate", "", ""
    column = str(step.decided_by)
    values = ""
    if column not in (NAME_COLUMN, "was-here"):
        pair = (replay.candidate(step.number, name) for name in (winner, second))
        values = " vs. ".join(_ranked_value(column, candidate) for candidate in pair)
    return _SHORT_WORDS[column], second, values


def blocked_words(verdict: ConstraintCheck) -> str:
    """Return the numbers of the hard limit that blocks a cluster: "east would be 2 against 0: skew 2 > 1"."""
    lacking = f"no {key_words(verdict)}, which the hard limit requires"
    return lacking if verdict.group is None else f"{_would_be(verdict)} (hard)"


def cost_words(verdict: ConstraintCheck) -> str:
    """Return the soft limit that a cluster breaks, in few words: "prod 4 against 1: 3 > 2 (soft)"."""
    return f"{_would_be(verdict).replace('skew ', '').replace(' would be', '')} (soft)"


def over_words(verdict: ConstraintCheck) -> str:
    return f"{verdict.topology_key} {MEASURES[verdict.limits_skew]} over {verdict.max_skew:,} (soft)"


def _would_be(verdict: ConstraintCheck) -> str:
    would = f"{verdict.group} would be {(verdict.count or 0) + 1:,} against {verdict.smallest:,}"
    measure = MEASURES[verdict.limits_skew]
    return f"{would}: {measure} {verdict.skew_after:,} > {verdict.max_skew:,}"


def rank_order_words(decision: Decision) -> str:
    """Return by which scores the rules rank, in their order, from the profile of the decision."""
    order = [_SHORT_WORDS[name] for name in rank_names(decision.cycle)]
    name = f"the name ({_alphabet(decision)} of the alphabet first)"
    return ", then ".join([*order, name])


def course_sentences(decision: Decision, cluster: str) -> list[str]:
    """Return on what a cluster lost in how many steps or was blocked, and how it lost the last time."""
    position, candidates = decision.cycle.fleet.positions[cluster], decision.candidates
    if (
        candidates is None
        or not candidates.passes[position]
        or not candidates.constraints
    ):
        return []
    chosen = decision.chosen.tolist()
    total = decision.number_of_rounds
    is_picked = position in chosen
    before = chosen.index(position) if is_picked else total
    steps: dict[str | None, list[int]] = {}
    # A last step without a winner blocks every candidate.
    for number, first in zip(range(1, before + 1), [*chosen, position], strict=False):
        step = decision.round(number)
        lost_on = step.decided_by(first, position) if step.contends[position] else None
        steps.setdefault(lost_on, []).append(number)

    forbidden = steps.pop(None, [])
    parts = [
        f"lost {len(numbers):,} on {COLUMN_WORDS[column]}"
        for column, numbers in steps.items()
    ]
    if forbidden:
        lacking = [
            verdict.topology_key
            for verdict in Replay(decision).verdicts(forbidden[0], cluster)
            if verdict.is_forbidden and verdict.lacks_key
        ]
        cause = f"its missing label {joined(lacking)}" if lacking else "a hard limit"
        blocked = f"blocked in {len(forbidden):,} by {cause}"
        parts.append(f"{blocked}, first in step {forbidden[0]:,}")
    if is_picked:
        parts.append(f"selected in step {before + 1:,}")
    count = f"{before + is_picked:,} of {counted(total, 'step')}"
    sentences = [f"Candidate in {count}: {', '.join(parts)}."]
    if steps and not is_picked:
        last = max(number for numbers in steps.values() for number in numbers)
        winner = decision.picked_names[last - 1]
        why = explain_rank(decision, decision.round(last), winner, cluster)
        sentences.append(f"Last ranked in step {last}: lost to {winner}; {why}.")
    return sentences


@dataclass(frozen=True)
class RankComparison:
    """Two clusters in one step of a decision, or one that its rules could have reached."""

    replay: Replay
    round: Round
    ahead: Candidate
    behind: Candidate

    @property
    def semantics(self) -> Semantics:
        return self.replay.decision.cycle.semantics

    @property
    def pairs(self) -> Iterator[tuple[ConstraintCheck, ConstraintCheck]]:
        return zip(self.ahead.constraints, self.behind.constraints, strict=True)


def explain_rank(
    decision: Decision,
    step: Round,
    ahead: str,
    behind: str,
    *,
    with_rules: bool = False,
) -> str:
    """Return why one cluster comes before another in a step. Raise KeyError.

    `with_rules` adds the rules that matter for the two although the numbers do not show them.
    """
    replay = Replay(decision)
    first, second = (decision.cycle.fleet.positions[name] for name in (ahead, behind))
    if not step.contends[second]:
        return out_words(decision, step, behind)
    decided_by = step.decided_by(first, second)
    pair = RankComparison(
        replay, step, *(replay.candidate_in(step, name) for name in (ahead, behind))
    )
    if decided_by == NAME_COLUMN:
        which = _alphabet(decision)
        same = tied_words(pair.ahead, pair.behind)
        words = f"{same} is the same, and the {which} name of the alphabet wins"
    else:
        words = _WORDS[decided_by](pair)
    notes: list[str] = []
    if with_rules and decided_by in _AFTER_SPREAD:
        above = ""
        for check, other in pair.pairs:
            notes += _notes(pair.semantics, check, other)
            parents = {
                (constraint_check.group or "").rpartition("/")[0]
                for constraint_check in (check, other)
            }
            if check.is_nested and check.group and other.group and len(parents) == 2:
                notes.append(nesting_words(check.topology_key, above))
            above = check.topology_key
    return "; ".join([*notes, words])


def out_words(decision: Decision, step: Round, cluster: str) -> str:
    """Return what keeps a cluster out of a step: a hard limit, or a filter. Raise KeyError."""
    one = Replay(decision).candidate_in(step, cluster)
    broken = [
        constraint
        for constraint in one.constraints
        if constraint.is_forbidden and not constraint.has_key
    ]
    if not broken:
        return passed_over_words(decision, cluster)
    return f"{cluster} is ruled out: {joined(list(map(forbidden_words, broken)))}"


def passed_over_words(decision: Decision, cluster: str) -> str:
    """Return which filter a cluster fails, also of one that was placed before. Raise KeyError."""
    outcome = Outcomes(decision).of(cluster)
    if outcome.outcome is Outcome.KEPT:
        return f"{cluster} is already placed"
    return f"{cluster}: {reason_sentence(outcome.against)}"


def removal_words(decision: Decision, cluster: str) -> str:
    """Return the rule that removed a cluster: where clusters were ranked again, how it lost."""
    if cluster not in decision.cycle.fleet.positions:
        return "No longer in the fleet"
    reasons = Outcomes(decision).of(cluster).reasons
    return reason_sentence(reasons[: 1 + bool(len(decision.chosen))][-1])


def forbidden_words(verdict: ConstraintCheck) -> str:
    lacking = f"it has no {key_words(verdict)}, which a hard limit requires"
    broken = f"{_measure_words(verdict)}, limit {verdict.max_skew}"
    return lacking if verdict.group is None else broken


def allowed_words(verdict: ConstraintCheck) -> str:
    """Return why a hard limit lets one more in, as its rules measure it."""
    if verdict.group is None:
        return f"no limit applies to a cluster without the {key_words(verdict)}"
    if (verdict.skew_after or 0) > verdict.max_skew:
        return (
            f"{_measure_words(verdict)}, no more than before, and "
            "only a selection that adds to it is forbidden"
        )
    return f"{_measure_words(verdict)}, within the limit {verdict.max_skew}"


def key_words(verdict: ConstraintCheck) -> str:
    return f"{'claim' if verdict.is_claim else 'label'} {verdict.topology_key}"


def _measure_words(verdict: ConstraintCheck) -> str:
    place = f"{verdict.topology_key}={verdict.group}"
    if verdict.limits_skew:
        return (
            f"one more in {place} makes the skew {verdict.skew_after} ("
            f"the smallest domain has {verdict.smallest})"
        )
    return f"one more in {place} would be {verdict.skew_after} above {smallest_words(verdict)}"


def smallest_words(verdict: ConstraintCheck) -> str:
    """Return what a group is compared with, where the limit is not on the skew."""
    if verdict.lacks_domains:
        return f"0, which counts as the smallest while there are fewer than {verdict.lacks_domains} domains"
    which = "emptiest sibling" if verdict.is_nested else "emptiest domain"
    return f"the {which} ({verdict.smallest})"


def _topology_words(pair: RankComparison) -> str:
    """Return what the selections do to the skew (`fleet`), or how far the domains are apart (`ocm`)."""
    groups = pair.round.candidates.groups
    if pair.semantics is Semantics.OCM:
        for (check, other), domains in zip(pair.pairs, groups, strict=True):
            if check.score != other.score:
                return f"{_gap(check, domains)}, {_gap(other, domains)}{_spread_first(pair, 'preference')}"
        return COLUMN_WORDS["topology"]
    unlike = [
        (check, other) for check, other in pair.pairs if check.score != other.score
    ]
    effects = [
        f"{_skew_effect(check)}, where {_skew_effect(other)}" for check, other in unlike
    ]
    return "; ".join(effects) + _spread_first(pair, "affinity")


def _spread_first(pair: RankComparison, what: str) -> str:
    """Return that the spread comes first, where the other cluster is preferred."""
    preference = pair.round.candidates.preference
    positions = pair.replay.decision.cycle.fleet.positions
    is_preferred = (
        preference[positions[pair.behind.cluster]]
        > preference[positions[pair.ahead.cluster]]
    )
    return f"; spread comes before {what}" if is_preferred else ""


def _skew_effect(verdict: ConstraintCheck) -> str:
    score = score_text(verdict.score)
    if verdict.group is None:
        return f"a cluster without the label {verdict.topology_key} scores {score}"
    before, after = verdict.skew_before, verdict.skew_after or 0
    does = "leaves" if after == before else "raises" if after > before else "lowers"
    to = "at" if after == before else "to"
    over = f", over the soft limit {verdict.max_skew}," if verdict.violates else ""
    return (
        f"one more in {verdict.topology_key}={verdict.group}"
        f" {does} the skew {to} {after}{over} and scores {score}"
    )


def _gap(verdict: ConstraintCheck, groups: Groups) -> str:
    if verdict.group is None:
        return f"a cluster without the {key_words(verdict)} has no gap"
    place = f"{verdict.topology_key}={verdict.group}"
    if groups.weights:
        weight = groups.weights[groups.values.index(verdict.group)]
        return f"{place} has {verdict.count} for its weight {weight}"
    return f"{place} is {(verdict.count or 0) - verdict.smallest} above {smallest_words(verdict)}"


def _sum_words(
    pair: RankComparison,
    column: str,
    factor: float,
    added: Callable[[Replay, Candidate], str],
    what: str,
) -> str:
    """Write both sums, the weighted spread and what is added, and whether the latter decided."""
    first, second = (
        f"{score_text(candidate.combined[column])} = {score_text(factor)} {TIMES}"
        f" {_bracketed(candidate.topology_spread_score)} + {added(pair.replay, candidate)}"
        for candidate in (pair.ahead, pair.behind)
    )
    words = f"{COLUMN_WORDS[column]} is {first} against {second}"
    ahead, behind = (
        candidate.topology_spread_score
        if isinstance(candidate.topology_spread_score, int | float)
        else 0
        for candidate in (pair.ahead, pair.behind)
    )
    return f"{words}: the {what} outweighs the spread" if behind > ahead else words


def preference_words(replay: Replay, one: Candidate) -> str:
    """Return the parts of the preference of a cluster under `ocm`: "132 (affinity 100, Balance 32)"."""
    parts: dict[str, SpreadScore | None] = {"affinity": one.affinity_score}
    decision = replay.decision
    if decision.candidates is not None:
        position = decision.cycle.fleet.positions[one.cluster]
        parts |= {
            _PRIORITIZERS[addend.source]: addend.points[position].item()
            for addend in profile_of(decision.cycle).preference.addends(
                decision.cycle, decision.candidates.passes
            )
            if addend.source in _PRIORITIZERS
        }
    made_of = ", ".join(f"{name} {score_text(part)}" for name, part in parts.items())
    return f"{_bracketed(one.combined['preference'])} ({made_of})"


# What adds to the affinity in a preference, by its name in OCM.
_PRIORITIZERS = {
    ScoreSource.STEADY: "Steady",
    ScoreSource.BALANCE: "Balance",
    ScoreSource.CPU: "ResourceAllocatableCPU",
    ScoreSource.MEMORY: "ResourceAllocatableMemory",
    ScoreSource.ADD_ON: "AddOn",
}


def _bracketed(value: SpreadScore | None) -> str:
    text = score_text(value)
    return f"({text})" if text.startswith("-") else text


def tied_words(one: Candidate, other: Candidate) -> str:
    """Return what is the same where the name decides: every score, or only what they add up to."""
    scores = [
        (candidate.topology_spread_score, candidate.affinity_score)
        for candidate in (one, other)
    ]
    if scores[0] != scores[1]:
        *_, column = one.combined
        return _SUMS[column]
    adds_up = any(
        mine.limits_skew and mine.score != theirs.score
        for mine, theirs in zip(one.constraints, other.constraints, strict=True)
    )
    return "the sum of the scores" if adds_up else "every score"


_SUMS = {"preference": "the preference", "score": COLUMN_WORDS["score"]}


def _notes(
    semantics: Semantics, one: ConstraintCheck, other: ConstraintCheck
) -> Iterator[str]:
    """Yield how the rules treat domains with different numbers, or a cluster in none."""
    key = one.topology_key
    is_alike = (one.score, one.skew_after) == (other.score, other.skew_after)
    if semantics is Semantics.OCM:
        groups = {
            verdict.group and verdict.group.rpartition("/")[2]
            for verdict in (one, other)
        }
        if len(groups) == 2 and UNSET in groups:
            yield f"clusters without {key} are a domain of their own, {UNSET}"
        if len(groups) == 2 and None in groups:
            yield f"a cluster without {key} counts as level with the emptiest domain"
    elif semantics is Semantics.KUBERNETES:
        if one.is_hard and one.count != other.count:
            yield f"the hard limit on {key} filters, and scores nothing"
        if not one.is_hard and one.lacks_key != other.lacks_key:
            yield f"a cluster without the label {key} has the lowest spread score, 0"
    elif None not in (one.group, other.group) and one.count != other.count and is_alike:
        places = f"{key}={one.group} ({one.count}) or {other.group} ({other.count})"
        yield f"only a change of the skew scores, and one more in {places} changes it alike"


def nesting_words(key: str, above: str) -> str:
    return f"domains of {key} are compared within one {above} only"


_AFTER_SPREAD = (NAME_COLUMN, "affinity", "preference", "was-here", "score", "final")
_WORDS: Mapping[str, Callable[[RankComparison], str]] = {
    "topology": _topology_words,
    "affinity": lambda pair: (
        f"its affinity is {score_text(pair.ahead.affinity_score)}"
        f" against {score_text(pair.behind.affinity_score)}"
    ),
    "was-here": lambda _: "it has the placement under an older policy",
    "final": lambda pair: _sum_words(
        pair,
        "final",
        pair.replay.decision.cycle.ocm_options.u,
        preference_words,
        "preference",
    ),
    "preference": lambda pair: (
        f"its preference is {preference_words(pair.replay, pair.ahead)}"
        f" against {preference_words(pair.replay, pair.behind)}"
    ),
    "score": lambda pair: _sum_words(
        pair,
        "score",
        SPREAD_WEIGHT,
        lambda _, one: _bracketed(one.affinity_score),
        "affinity",
    ),
}
