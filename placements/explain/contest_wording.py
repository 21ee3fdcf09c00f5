"""Why one cluster came before another in a step, in the words of the rules that put it there.

Each set of rules measures in its own way (`spec/other-schedulers.md` 6.1), so each has its own words for what
it went by; the numbers are those of the step.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from placements.explain.wording import (
    COLUMN_WORDS,
    TIMES,
    joined,
    reason_sentence,
    score_text,
)
from placements.scheduling.decision import Decision
from placements.scheduling.outcomes import Outcome, Outcomes
from placements.scheduling.preference import Source
from placements.scheduling.profile import profile_of
from placements.scheduling.replay import Candidate, Replay, Verdict
from placements.scheduling.rounds import NAME_COLUMN, Round, SpreadScore
from placements.scheduling.semantics import Semantics
from placements.scheduling.spread.base import Groups
from placements.scheduling.spread.ocm import UNSET
from placements.scheduling.standings.kubernetes_rules import SPREAD_WEIGHT


@dataclass(frozen=True)
class Contest:
    """Two clusters in one step of a decision, or one that its rules could have come to."""

    replay: Replay
    round: Round
    ahead: Candidate
    behind: Candidate

    @property
    def semantics(self) -> Semantics:
        """Tell whose rules hold."""
        return self.replay.decision.cycle.semantics

    @property
    def decided_by(self) -> str:
        """Name the column that puts one before the other."""
        positions = self.replay.decision.cycle.fleet.positions
        return self.round.decided_by(positions[self.ahead.cluster], positions[self.behind.cluster])

    @property
    def pairs(self) -> Iterator[tuple[Verdict, Verdict]]:
        """Give what each constraint says of the one ahead and of the one behind."""
        return zip(self.ahead.constraints, self.behind.constraints, strict=True)


def contest_words(
    decision: Decision, step: Round, ahead: str, behind: str, *, with_rules: bool = False
) -> str:
    """Say why one cluster comes before another in a step. Raises KeyError.

    `with_rules` adds the rules that matter for the two although the numbers do not tell of them.
    """
    replay = Replay(decision)
    if not step.contends[decision.cycle.fleet.positions[behind]]:
        return out_words(decision, step, behind)
    contest = Contest(replay, step, *(replay.candidate_in(step, name) for name in (ahead, behind)))
    is_by_name = contest.decided_by == NAME_COLUMN
    words = _by_name(contest) if is_by_name else _WORDS[contest.semantics, contest.decided_by](contest)
    has_rules = with_rules and (is_by_name or contest.decided_by in _AFTER_SPREAD)
    return "; ".join([*(_notes(contest) if has_rules else ()), words])


def out_words(decision: Decision, step: Round, cluster: str) -> str:
    """Say what keeps a cluster out of a step: a hard limit, or a filter. Raises KeyError."""
    one = Replay(decision).candidate_in(step, cluster)
    forbidden = [
        forbidden_words(verdict)
        for verdict in one.constraints
        if verdict.is_forbidden and not verdict.has_key
    ]
    return f"{cluster} is out: {joined(forbidden)}" if forbidden else passed_over_words(decision, cluster)


def passed_over_words(decision: Decision, cluster: str) -> str:
    """Say which filter a cluster fails, also of one that was placed before. Raises KeyError."""
    outcome = Outcomes(decision).of(cluster)
    if outcome.outcome is Outcome.KEPT:
        return f"{cluster} is placed already"
    deciding, *others = outcome.reasons
    reason = others[0] if others and outcome.outcome is Outcome.UNSCHEDULED else deciding
    return f"{cluster} {reason_sentence(reason)}"


def forbidden_words(verdict: Verdict) -> str:
    """Say why a hard limit forbids one more, as its rules measure it."""
    if verdict.group is None:
        return f"it has no {key_words(verdict)}, and a hard limit takes only clusters that have it"
    return f"{_measure_words(verdict)}, limit {verdict.max_skew}"


def allowed_words(verdict: Verdict) -> str:
    """Say why a hard limit lets one more in, as its rules measure it."""
    if verdict.group is None:
        return f"no limit holds for a cluster without the {key_words(verdict)}"
    after = verdict.skew_after or 0
    if after > verdict.max_skew:
        return f"{_measure_words(verdict)}, no more than before, and only a pick that adds to it is forbidden"
    return f"{_measure_words(verdict)}, within the limit {verdict.max_skew}"


def key_words(verdict: Verdict) -> str:
    """Name what a constraint groups by: "label zone", "claim zone"."""
    return f"{'claim' if verdict.is_claim else 'label'} {verdict.topology_key}"


def _measure_words(verdict: Verdict) -> str:
    place = f"{verdict.topology_key}={verdict.group}"
    if verdict.limits_skew:
        smallest = f"the smallest group has {verdict.smallest}"
        return f"one more in {place} makes the skew {verdict.skew_after} ({smallest})"
    return f"one more in {place} would be {verdict.skew_after} above {smallest_words(verdict)}"


def smallest_words(verdict: Verdict) -> str:
    """Name what a group is compared with, where the limit is not on the skew."""
    if verdict.lacks_domains:
        return f"0, which counts as the smallest while there are fewer than {verdict.lacks_domains} groups"
    which = "emptiest sibling" if verdict.is_nested else "emptiest group"
    return f"the {which} ({verdict.smallest})"


# What each column went by


def _skew_words(contest: Contest) -> str:
    """Fleet: what a pick would do to the skew of each constraint that tells the two apart."""
    told = [
        f"{_skew_effect(one)}, where {_skew_effect(other)}"
        for one, other in contest.pairs
        if one.score != other.score
    ]
    return "; ".join(told) + _spread_first(contest, "affinity")


def _spread_first(contest: Contest, what: str) -> str:
    """Say that the spread comes first, where the other cluster is preferred."""
    preference = contest.round.candidates.preference
    positions = contest.replay.decision.cycle.fleet.positions
    is_preferred = (
        preference[positions[contest.behind.cluster]] > preference[positions[contest.ahead.cluster]]
    )
    return f"; spread comes before {what}" if is_preferred else ""


def _skew_effect(verdict: Verdict) -> str:
    score = score_text(verdict.score)
    if verdict.group is None:
        return f"a cluster without the label {verdict.topology_key} scores {score}"
    before, after = verdict.skew_before, verdict.skew_after or 0
    does = "leaves" if after == before else "raises" if after > before else "lowers"
    to = "at" if after == before else "to"
    over = f", over the soft limit {verdict.max_skew}," if verdict.violates else ""
    place = f"{verdict.topology_key}={verdict.group}"
    return f"one more in {place} {does} the skew {to} {after}{over} and scores {score}"


def _gap_words(contest: Contest) -> str:
    """OCM, level by level: the first level on which the gaps differ."""
    for (one, other), groups in zip(contest.pairs, contest.round.candidates.groups, strict=True):
        if one.score != other.score:
            return f"{_gap(one, groups)}, {_gap(other, groups)}{_spread_first(contest, 'preference')}"
    return COLUMN_WORDS["topology"] or ""


def _gap(verdict: Verdict, groups: Groups) -> str:
    key = verdict.topology_key
    if verdict.group is None:
        return f"a cluster without the {key_words(verdict)} has no gap"
    place = f"{key}={verdict.group}"
    if groups.weights:
        weight = groups.weights[groups.values.index(verdict.group)]
        return f"{place} has {verdict.count} for its weight {weight}"
    return f"{place} is {(verdict.count or 0) - verdict.smallest} above {smallest_words(verdict)}"


def _final_words(contest: Contest) -> str:
    """OCM, weighted: the sum that ranks, and what it is made of."""
    u = contest.replay.decision.cycle.ocm_options.u
    made_of = [preference_words(contest.replay, one) for one in (contest.ahead, contest.behind)]
    return _summed(contest, "final", u, made_of, "preference")


def _summed(contest: Contest, column: str, factor: float, added: Sequence[str], what: str) -> str:
    """Write both sums, so many times the spread and what is added, and whether the latter tipped them."""
    first, second = (
        f"{score_text(one.combined[column])} = {score_text(factor)} {TIMES}"
        f" {_bracketed(one.topology_spread_score)} + {more}"
        for one, more in zip((contest.ahead, contest.behind), added, strict=True)
    )
    words = f"{COLUMN_WORDS[column]} is {first} against {second}"
    is_outweighed = _spread_of(contest.behind) > _spread_of(contest.ahead)
    return f"{words}: the {what} outweighs the spread" if is_outweighed else words


def _preference_words(contest: Contest) -> str:
    own, other = (preference_words(contest.replay, one) for one in (contest.ahead, contest.behind))
    return f"its preference is {own} against {other}"


def preference_words(replay: Replay, one: Candidate) -> str:
    """Write what the preference of a cluster is made of under `ocm`: "132 (affinity 100, Balance 32)"."""
    value = _bracketed(one.combined["preference"])
    parts = {"affinity": one.affinity_score, **_prioritized(replay, one.cluster)}
    made_of = ", ".join(f"{name} {score_text(part)}" for name, part in parts.items())
    return f"{value} ({made_of})"


def _prioritized(replay: Replay, cluster: str) -> dict[str, float]:
    decision = replay.decision
    if decision.candidates is None:
        return {}
    position = decision.cycle.fleet.positions[cluster]
    addends = profile_of(decision.cycle).preference.addends(decision.cycle, decision.candidates.passes)
    return {
        _PRIORITIZERS[one.source]: one.points[position].item()
        for one in addends
        if one.source in _PRIORITIZERS
    }


_PRIORITIZERS = {
    Source.STEADY: "Steady",
    Source.BALANCE: "Balance",
    Source.CPU: "ResourceAllocatableCPU",
    Source.MEMORY: "ResourceAllocatableMemory",
}
"""What adds to the affinity in a preference, by its name in OCM."""


def _sum_words(contest: Contest) -> str:
    """Kubernetes: the sum that ranks, what it is made of, and which part of it tipped the scale."""
    affinity = [_bracketed(one.affinity_score) for one in (contest.ahead, contest.behind)]
    return _summed(contest, "score", SPREAD_WEIGHT, affinity, "affinity")


def _spread_of(one: Candidate) -> float:
    score = one.topology_spread_score
    return score if isinstance(score, int | float) else 0


def _bracketed(value: SpreadScore | None) -> str:
    text = score_text(value)
    return f"({text})" if text.startswith("-") else text


def _affinity_words(contest: Contest) -> str:
    own, other = score_text(contest.ahead.affinity_score), score_text(contest.behind.affinity_score)
    return f"its affinity is {own} against {other}"


def _by_name(contest: Contest) -> str:
    which = "first" if profile_of(contest.replay.decision.cycle).strategy.smaller_name_wins else "last"
    same = tied_words(contest.ahead, contest.behind)
    return f"{same} is the same, and the {which} name of the alphabet wins"


def tied_words(one: Candidate, other: Candidate) -> str:
    """Name what is the same where the name decides: every score, or only what they add up to."""
    told = [(each.topology_spread_score, each.affinity_score) for each in (one, other)]
    if told[0] != told[1]:
        *_, column = one.combined
        return _SUMS[column]
    pairs = zip(one.constraints, other.constraints, strict=True)
    adds_up = any(mine.limits_skew and mine.score != theirs.score for mine, theirs in pairs)
    return "the sum of the scores" if adds_up else "every score"


_SUMS = {"preference": "the preference", "score": COLUMN_WORDS["score"]}


def _notes(contest: Contest) -> Iterator[str]:
    """Say what the rules make of groups that hold different numbers, or of a cluster in none."""
    above = ""
    for one, other in contest.pairs:
        yield from _NOTES[contest.semantics](one, other)
        if one.is_nested and one.group and other.group and _above(one) != _above(other):
            yield nesting_words(one.topology_key, above)
        above = one.topology_key


def _above(verdict: Verdict) -> str:
    """Give the groups of the levels above that a nested group is in."""
    return (verdict.group or "").rpartition("/")[0]


def nesting_words(key: str, above: str) -> str:
    """Say that groups of a key are compared with their siblings only."""
    return f"groups of {key} are compared within one {above} only"


def _note_of_skew(one: Verdict, other: Verdict) -> Iterator[str]:
    if one.group is None or other.group is None or one.count == other.count:
        return
    if (one.score, one.skew_after) != (other.score, other.skew_after):
        return
    yield (
        f"only a change of the skew scores, and one more in {one.topology_key}={one.group} ({one.count}) or"
        f" {other.group} ({other.count}) changes it alike"
    )


def _note_of_hard(one: Verdict, other: Verdict) -> Iterator[str]:
    if one.is_hard and one.count != other.count:
        yield f"the hard limit on {one.topology_key} filters, and scores nothing"
    if not one.is_hard and one.lacks_key != other.lacks_key:
        yield f"a cluster without the label {one.topology_key} has the lowest spread score, 0"


def _note_of_keyless(one: Verdict, other: Verdict) -> Iterator[str]:
    key = one.topology_key
    groups = {verdict.group and verdict.group.rpartition("/")[2] for verdict in (one, other)}
    if len(groups) == 2 and UNSET in groups:
        yield f"clusters without {key} are a group of their own, {UNSET}"
    if len(groups) == 2 and None in groups:
        yield f"a cluster without {key} is free, as if level with the emptiest group"


_AFTER_SPREAD = ("affinity", "preference", "was-here", "score", "final")
_NOTES: Mapping[Semantics, Callable[[Verdict, Verdict], Iterator[str]]] = {
    Semantics.FLEET: _note_of_skew,
    Semantics.KUBEFLEET: _note_of_skew,
    Semantics.OCM: _note_of_keyless,
    Semantics.KUBERNETES: _note_of_hard,
}
_WORDS: Mapping[tuple[Semantics, str], Callable[[Contest], str]] = {
    **{
        (one, column): words
        for one in (Semantics.FLEET, Semantics.KUBEFLEET)
        for column, words in (
            ("topology", _skew_words),
            ("affinity", _affinity_words),
            ("was-here", lambda _: "it has the placement under an older policy"),
        )
    },
    (Semantics.OCM, "topology"): _gap_words,
    (Semantics.OCM, "final"): _final_words,
    (Semantics.OCM, "preference"): _preference_words,
    (Semantics.KUBERNETES, "score"): _sum_words,
}
