"""A decision as text that one would paste into a ticket."""

from collections.abc import Iterable, Iterator, Sequence

from placements.explain import advice_wording, wording
from placements.scheduling.advice.search import Advice, how_to_fulfil
from placements.scheduling.bindings import Binding
from placements.scheduling.decision import Decision, Picked
from placements.scheduling.faults import Caveat
from placements.scheduling.outcomes import ClusterOutcome, Outcome, Outcomes
from placements.scheduling.replay import Candidate, Replay, Spread, Step

_ROUNDS_SHOWN = 20
_CANDIDATES_SHOWN = 5
_CLUSTERS_SHOWN = 50
_GROUPS_SHOWN = 12
_WAYS_SHOWN = 12
_NONE = "–"  # noqa: RUF001 -- the dash of tables, not a minus


def decision_text(
    decision: Decision, *, placement: str, warnings: Iterable[Caveat] = (), step: int | None = None
) -> str:
    """Write the decision: how it came out, a sentence a round, who was not picked and why.

    With `step` only that round, with all its candidates. Raises IndexError when there is no such round.
    """
    parts = [list(_head(decision, placement)), [f"warning: {one.path}: {one.message}" for one in warnings]]
    if step is None:
        parts += [list(_rounds(decision)), list(_placed(decision)), list(_unplaced(decision))]
    else:
        parts += [list(_step(Replay(decision), step, candidates=None))]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _head(decision: Decision, placement: str) -> Iterator[str]:
    verdict = "fulfilled" if decision.is_fulfilled else "NOT FULFILLED"
    yield f"{placement}: {wording.headline(decision)} ({verdict})"
    cycle = decision.cycle
    yield f"{len(cycle.fleet)} clusters, {cycle.semantics} semantics, decision {decision.id}"
    for name in decision.not_found:
        yield f"{name} is named but not in the fleet"
    yield from advice_wording.trap_sentences(decision)
    ways = [advice_wording.change_words(one.change) for one in how_to_fulfil(decision)]
    if ways:
        yield f"it would be fulfilled with {'; or '.join(ways[:_WAYS_SHOWN])}"


def _rounds(decision: Decision) -> Iterator[str]:
    replay, count = Replay(decision), decision.number_of_rounds
    shown = [*range(1, min(count, _ROUNDS_SHOWN) + 1)]
    if count > _ROUNDS_SHOWN:
        shown[-1] = count
    for number in shown:
        if number == count and count > _ROUNDS_SHOWN:
            yield f"… steps {_ROUNDS_SHOWN} to {count - 1} left out; any of them: --step N"
        yield from _step(replay, number, candidates=_CANDIDATES_SHOWN)


def _step(replay: Replay, number: int, *, candidates: int | None) -> Iterator[str]:
    """Write one round: the sentence, the groups against their limits, the ranked candidates."""
    step = replay.step(number)
    yield f"STEP {number} of {replay.decision.number_of_rounds}: {wording.round_sentence(step)}"
    yield from (f"  {_spread_line(spread)}" for spread in step.spreads)
    listed = replay.candidates(number)
    most = candidates or len(listed)
    if step.cut is not None and candidates is not None:
        most = max(most, min(step.cut.size + 2, _CLUSTERS_SHOWN))
    yield from (f"  {line}" for line in _candidate_table(listed[:most], step))
    if len(listed) > most:
        yield f"  … {len(listed) - most} more: --step {number}"


def _spread_line(spread: Spread) -> str:
    changed = [name for name in spread.before if spread.after[name] != spread.before[name]]
    quiet = [name for name in spread.before if name not in changed]
    names = [*changed, *quiet][:_GROUPS_SHOWN]
    counts = ", ".join(f"{name} {_change(spread.before[name], spread.after[name])}" for name in sorted(names))
    more = f", … {len(spread.before) - len(names)} more groups" if len(spread.before) > len(names) else ""
    skew = _change(spread.skew_before, spread.skew_after)
    return f"{wording.spread_limit(spread)}: {counts or 'no groups'}{more}; skew {skew}"


def _change(before: int, after: int) -> str:
    return str(before) if before == after else f"{before}→{after}"


def _candidate_table(candidates: Sequence[Candidate], step: Step) -> list[str]:
    has_history = any(one.was_here for one in candidates)
    header = ["rank", "cluster", *(spread.topology_key for spread in step.spreads), "topology", "affinity"]
    rows = [[*header, *(["was here"] if has_history else []), "decided by"]]
    for one in candidates:
        scores = [_verdict_cell(verdict.score, forbidden=verdict.is_forbidden) for verdict in one.constraints]
        row = [
            _score(one.rank),
            one.cluster,
            *scores,
            _score(one.topology_spread_score),
            _score(one.affinity_score),
        ]
        rows.append([*row, *([str(one.was_here)] if has_history else []), _place(one, step)])
    return table(rows)


def _verdict_cell(score: int, *, forbidden: bool) -> str:
    return "forbidden" if forbidden else f"{score:+d}" if score else "0"


def _place(one: Candidate, step: Step) -> str:
    if one.rank is None:
        return "filtered"
    if step.cut is not None:
        return "picked" if one.rank <= step.cut.size else "below the cut"
    return "PICKED" if one.rank == 1 else wording.COLUMN_WORDS[one.decided_by]


def _placed(decision: Decision) -> Iterator[str]:
    if not decision.picked and not decision.kept:
        return
    yield "PLACED"
    rows = [["cluster", "", "topology", "affinity"]]
    stored = {binding.cluster: binding for binding in decision.cycle.live_bindings}
    placed: list[tuple[str, Picked | Binding]] = [("picked", one) for one in decision.picked]
    placed += [("kept", stored[name]) for name in decision.kept]
    for how, one in placed:
        rows.append([one.cluster, how, _score(one.topology_spread_score), _score(one.affinity_score)])
    yield from (f"  {line}" for line in table(rows[: _CLUSTERS_SHOWN + 1]))
    yield from _more(len(rows) - 1)


def _score(value: float | None) -> str:
    return _NONE if value is None else str(value)


def _unplaced(decision: Decision) -> Iterator[str]:
    placed = (Outcome.PICKED, Outcome.KEPT)
    others = [one for one in Outcomes(decision) if one.outcome not in placed]
    gone = [name for name in decision.unscheduled if name not in decision.cycle.fleet.positions]
    if others or gone:
        yield "NOT PLACED"
    yield from (f"  {name}: unscheduled, no longer in the fleet" for name in gone)
    rows = [[one.cluster, str(one.outcome), _why(one)] for one in others[:_CLUSTERS_SHOWN]]
    yield from (f"  {line}" for line in table(rows))
    yield from _more(len(others))


def _more(count: int) -> Iterator[str]:
    if count > _CLUSTERS_SHOWN:
        yield f"  … {count - _CLUSTERS_SHOWN} more: all of them with -o csv or -o json"


def _why(outcome: ClusterOutcome) -> str:
    sentences = [wording.reason_sentence(reason) for reason in outcome.reasons]
    return "; also: ".join(sentences) if len(sentences) > 1 else sentences[0]


def advice_text(advice: Advice) -> str:
    """Write why one cluster was not picked, and what would and would not change that."""
    lines = [f"WHY {advice.outcome.cluster}: {advice.outcome.outcome}. {_why(advice.outcome)}"]
    if advice.helps:
        lines.append("would be picked with")
    lines += [f"  ✓ {advice_wording.suggestion_sentence(one)}" for one in advice.helps]
    if advice.fails:
        lines.append("would still not be picked with")
    lines += [f"  ✗ {words}" for words in advice_wording.failure_sentences(advice.fails)]
    lines += [f"  ? not tried: {advice_wording.change_words(one)}" for one in advice.not_tried]
    if advice.helps or advice.fails:
        lines.append(
            "Each change was tried by itself, by running the scheduler; combinations were not tried."
        )
    return "\n".join(lines) + "\n"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Line up columns, two blanks apart."""
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows)
    return ["  ".join(cells).rstrip() for cells in padded]
