"""A decision as text that one would paste into a ticket."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import wrap

from placements.explain import advice_wording, wording
from placements.explain.difference_wording import difference_head, difference_sentence, later_partings
from placements.scheduling.advice.changes import POLICY_CHANGES
from placements.scheduling.advice.search import Advice, how_to_fulfil
from placements.scheduling.bindings import Binding
from placements.scheduling.comparison import Comparison, Difference
from placements.scheduling.decision import CycleKind, Decision, Picked
from placements.scheduling.faults import Caveat
from placements.scheduling.outcomes import ClusterOutcome, Outcome, Outcomes
from placements.scheduling.profile import profile_of
from placements.scheduling.replay import Candidate, Replay, Spread, Step

_ROUNDS_SHOWN = 20
_CANDIDATES_SHOWN = 5
_CLUSTERS_SHOWN = 50
_GROUPS_SHOWN = 12
_WAYS_SHOWN = 12
_WIDTH = 100


def decision_text(
    decision: Decision,
    *,
    placement: str,
    notes: Iterable[str] = (),
    step: int | None = None,
    advice: Advice | None = None,
) -> str:
    """Write how the decision came out, who is placed, who is not and why, and a sentence a round.

    With `step` only that round, with all its candidates; with `advice` only why, and what would change it.
    `notes` go under the headline. Raises IndexError when there is no such round.
    """
    parts = [[*_head(decision, placement), *notes]]
    if step is not None:
        parts.append(list(_step(Replay(decision), step, candidates=None)))
    if advice is not None:
        parts.append(_advice(advice, has_bindings=bool(decision.cycle.bindings)))
    if step is None and advice is None:
        parts += [list(_placed(decision)), list(_unplaced(decision)), *_rounds(decision)]
    return "\n\n".join("\n".join(map(visible, part)) for part in parts if part) + "\n"


def visible(line: str) -> str:
    """Write what a terminal would act on, or would not show, as its code."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in line)


def warning_note(caveat: Caveat) -> str:
    """Write a warning as a line."""
    return f"warning: {caveat.path}: {caveat.message}"


def _head(decision: Decision, placement: str) -> Iterator[str]:
    verdict = "fulfilled" if decision.is_fulfilled else "NOT FULFILLED"
    cycle = decision.cycle
    yield f"{placement}: {wording.headline(decision)} ({verdict})"
    size = wording.counted(len(cycle.fleet), "cluster")
    yield f"{size}, {cycle.semantics} semantics, decision {decision.id}"
    if cycle.bindings:
        yield wording.bindings_sentence(cycle)
    for name in decision.not_found:
        yield f"{name} is named but not in the fleet"
    yield from advice_wording.trap_sentences(decision)
    ways = [advice_wording.change_words(one.change) for one in how_to_fulfil(decision)]
    if ways:
        yield f"it would be fulfilled with {'; or '.join(ways[:_WAYS_SHOWN])}"


def _rounds(decision: Decision) -> Iterator[list[str]]:
    replay, count = Replay(decision), decision.number_of_rounds
    shown = [*range(1, min(count, _ROUNDS_SHOWN) + 1)]
    if count > _ROUNDS_SHOWN:
        shown[-1] = count
    for number in shown:
        if number == count and count > _ROUNDS_SHOWN:
            yield [f"… steps {_ROUNDS_SHOWN} to {count - 1} left out; any of them: --step N"]
        yield list(_step(replay, number, candidates=_CANDIDATES_SHOWN))


def _step(replay: Replay, number: int, *, candidates: int | None) -> Iterator[str]:
    """Write one round: the sentence, the groups against their limits, the ranked candidates."""
    step = replay.step(number)
    name = f"STEP {number} of {replay.decision.number_of_rounds}" if step.winner else f"END in step {number}"
    yield f"{name}: {wording.round_sentence(step)}"
    yield from (f"  {_spread_line(spread)}" for spread in step.spreads)
    most = candidates or step.candidates
    if step.cut is not None and candidates is not None:
        most = max(most, min(step.cut.size + 2, _CLUSTERS_SHOWN))
    if step.candidates:
        candidates_shown = replay.candidates(number, most=most)
        rows = _candidate_table(candidates_shown, step, replay.decision)
        yield from (f"  {line}" for line in rows)
    if step.candidates > most:
        yield f"  … {step.candidates - most} more: --step {number}"


def _spread_line(spread: Spread) -> str:
    changed = [name for name in spread.before if spread.after[name] != spread.before[name]]
    quiet = [name for name in spread.before if name not in changed]
    names = [*changed, *quiet][:_GROUPS_SHOWN]
    counts = ", ".join(
        f"{name}: {_change(spread.before[name], spread.after[name])}" for name in sorted(names)
    )
    more = f", … {len(spread.before) - len(names)} more groups" if len(spread.before) > len(names) else ""
    measure = "skew" if spread.limits_skew else "gap"
    uneven = f"{measure} {_change(spread.skew_before, spread.skew_after)}"
    return f"{wording.spread_limit(spread)}: {counts or 'no groups'}{more}; {uneven}"


def _change(before: int, after: int) -> str:
    return str(before) if before == after else f"{before}→{after}"


def _candidate_table(candidates: Sequence[Candidate], step: Step, decision: Decision) -> list[str]:
    semantics, rank_names = decision.cycle.semantics, profile_of(decision.cycle).strategy.rank_names
    has_history = "was-here" in rank_names and any(one.was_here for one in candidates)
    combined = list(dict.fromkeys(name for one in candidates for name in one.combined))
    scored = (wording.scored_heading(spread.topology_key, semantics) for spread in step.spreads)
    header = ["rank", "cluster", *scored, "topology", "affinity"]
    headings = (wording.HEADINGS.get(name, name) for name in combined)
    rows = [[*header, *headings, *(["was here"] if has_history else []), "decided by"]]
    for one in candidates:
        scores = [_verdict_cell(verdict.score, forbidden=verdict.is_forbidden) for verdict in one.constraints]
        row = [
            wording.score_text(one.rank),
            one.cluster,
            *scores,
            wording.score_text(one.topology_spread_score),
            wording.score_text(one.affinity_score),
            *(wording.score_text(one.combined.get(name)) for name in combined),
        ]
        rows.append([*row, *([str(one.was_here)] if has_history else []), _place(one, step)])
    return table(rows)


def _verdict_cell(score: float, *, forbidden: bool) -> str:
    if forbidden:
        return "forbidden"
    is_cost = isinstance(score, float)  # of `kubernetes`: the more, the worse
    return f"+{wording.score_text(score)}" if score > 0 and not is_cost else wording.score_text(score)


def _place(one: Candidate, step: Step) -> str:
    if one.rank is None:
        return "filtered"
    if step.cut is not None:
        return "picked" if one.rank <= step.cut.size else "below the cut"
    words = wording.HEADINGS.get(one.decided_by or "", wording.COLUMN_WORDS[one.decided_by])
    return "picked" if one.rank == 1 else words


def _placed(decision: Decision) -> Iterator[str]:
    if not decision.picked and not decision.kept:
        return
    yield "PLACED"
    before = {binding.cluster: binding for binding in decision.cycle.live_bindings}
    placed: list[tuple[str, Picked | Binding]] = [(_how(one.cluster, before), one) for one in decision.picked]
    placed += [("kept", before[name]) for name in decision.kept]
    has_scores = decision.kind is not CycleKind.PICK_ALL and any(
        one.topology_spread_score is not None or one.affinity_score is not None for _, one in placed
    )
    rows = [["cluster", "how", *(["topology", "affinity"] if has_scores else [])]]
    for how, one in placed:
        scores = (
            [wording.score_text(one.topology_spread_score), wording.score_text(one.affinity_score)]
            if has_scores
            else []
        )
        rows.append([one.cluster, how, *scores])
    yield from (f"  {line}" for line in table(rows[: _CLUSTERS_SHOWN + 1]))
    yield from _more(len(rows) - 1)


def _how(cluster: str, before: Mapping[str, Binding]) -> str:
    binding = before.get(cluster)
    if binding is None:
        return "picked"
    return "picked again" if binding.is_active else "restored"


def _unplaced(decision: Decision) -> Iterator[str]:
    placed = (Outcome.PICKED, Outcome.KEPT)
    others = [one for one in Outcomes(decision) if one.outcome not in placed]
    gone = [name for name in decision.unscheduled if name not in decision.cycle.fleet.positions]
    if others or gone:
        yield "NOT PLACED" + (f": {_tally(others)}" if len(others) > _CLUSTERS_SHOWN else "")
    yield from (f"  {name}: unscheduled, no longer in the fleet" for name in gone)
    others.sort(key=_best_first)
    rows = [[one.cluster, str(one.outcome), _why(one)] for one in others[:_CLUSTERS_SHOWN]]
    yield from (f"  {line}" for line in table(rows))
    yield from _more(len(others))


def _tally(others: Sequence[ClusterOutcome]) -> str:
    counts = Counter(f"{one.outcome} ({one.reasons[0].code})" for one in others)
    return ", ".join(f"{count} {what}" for what, count in counts.most_common())


def _best_first(one: ClusterOutcome) -> int:
    """Order outranked clusters by rank, the others after them in the order they have."""
    rank = one.reasons[0].facts.get("rank")
    return rank if isinstance(rank, int) else 1 << 62


def _more(count: int) -> Iterator[str]:
    if count > _CLUSTERS_SHOWN:
        yield f"  … {count - _CLUSTERS_SHOWN} more: all of them with -o csv or -o json"


def _why(outcome: ClusterOutcome) -> str:
    sentences = [wording.reason_sentence(reason) for reason in outcome.reasons]
    return "; also: ".join(sentences) if len(sentences) > 1 else sentences[0]


def comparison_text(comparison: Comparison, *, placement: str, notes: Iterable[str] = ()) -> str:
    """Write whom each semantics places, side by side, with the first difference marked."""
    difference = comparison.first_difference
    lines = [f"{placement} under {len(comparison.decisions)} semantics", *_parts(comparison), *notes, ""]
    lines += (f"  {line}" for line in table(_comparison_rows(comparison, difference)))
    return "\n".join(map(visible, [*lines, *_more(len(comparison.rows))])) + "\n"


def _parts(comparison: Comparison) -> Iterator[str]:
    """Write where the rules part and why, a sentence a line, wrapped to stand above the columns."""
    sentence = difference_sentence(comparison)
    told = [sentence or difference_head(comparison)]
    told += (f"{one.semantics} {one.words}" for one in later_partings(comparison) if sentence)
    for words in told:
        first, *others = words.split(". ")
        yield from _wrapped(first, "")
        for one in others:
            yield from _wrapped(one, "  ")


def _wrapped(words: str, indent: str) -> list[str]:
    return wrap(
        words,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _comparison_rows(comparison: Comparison, difference: Difference | None) -> list[list[str]]:
    names = list(comparison.decisions)
    rows = [["", *map(str, names), ""]]
    for place, choices in enumerate(comparison.rows[:_CLUSTERS_SHOWN], start=1):
        mark = "◄" if difference is not None and place == difference.place else ""
        rows.append([str(place), *(_choice(comparison.decisions[one], choices[one]) for one in names), mark])
    decisions = comparison.decisions.values()
    if any(one.unscheduled for one in decisions):
        rows.append(["", *(f"{len(one.unscheduled)} unscheduled" for one in decisions), ""])
    return [*rows, ["", *("fulfilled" if one.is_fulfilled else "NOT FULFILLED" for one in decisions), ""]]


def _choice(decision: Decision, name: str | None) -> str:
    if name is None:
        return wording.NONE
    return f"{name} (kept)" if name in decision.kept else name


def _advice(advice: Advice, *, has_bindings: bool) -> list[str]:
    """Write why one cluster is where it is, and what would and would not change that."""
    lines = [f"WHY {advice.outcome.cluster} ({advice.outcome.outcome}): {_why(advice.outcome)}"]
    if advice.helps:
        lines.append("would be picked with")
    lines += [f"  ✓ {advice_wording.suggestion_sentence(one)}" for one in advice.helps]
    if advice.fails:
        lines.append("would still not be picked with")
    lines += [f"  ✗ {words}" for words in advice_wording.failure_sentences(advice.fails)]
    lines += [f"  ? not tried: {words}" for words in advice_wording.untried_sentences(advice.not_tried)]
    if advice.helps or advice.fails:
        lines.append("Each change was tried alone, by running the scheduler; combinations were not tried.")
    if has_bindings and any(one.change.kind in POLICY_CHANGES for one in (*advice.helps, *advice.fails)):
        lines.append(
            "A change of the policy makes a new policy snapshot: to repeat one with the same --bindings, add"
            " --snapshot and any new name."
        )
    return lines


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Line up columns, two blanks apart, numbers to the right."""
    if not rows:
        return []
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numeric = [all(map(_is_number, column[1:])) and len(rows) > 1 for column in columns]
    lines = []
    for row in rows:
        cells = zip(row, widths, numeric, strict=True)
        padded = (cell.rjust(width) if right else cell.ljust(width) for cell, width, right in cells)
        lines.append("  ".join(padded).rstrip())
    return lines


def _is_number(cell: str) -> bool:
    return cell in (wording.NONE, "forbidden") or all(
        part.lstrip("+-").replace(".", "", 1).isdigit() for part in cell.split("/")
    )
