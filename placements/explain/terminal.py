"""A decision as plain text, for a terminal or a ticket."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from fleetui.apimachinery.errors import ManifestWarning
from fleetui.apimachinery.words import counted
from placements.engine.advice.changes import POLICY_CHANGES
from placements.engine.advice.search import Advice, evaluated_decision, how_to_fulfil
from placements.engine.exact.record import inline_search
from placements.engine.scheduling.comparison import SemanticsComparison
from placements.engine.scheduling.decision import CycleKind, Decision, Picked
from placements.engine.scheduling.outcome import ClusterOutcome, Outcome, Outcomes
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.replay import Candidate, Replay, RoundSummary
from placements.explain.advice import (
    change_words,
    failure_sentences,
    plausible,
    suggestion_sentence,
    trap_sentences,
    untried_sentences,
)
from placements.explain.comparison import (
    difference_head,
    difference_sentence,
    later_divergences,
)
from placements.explain.decisions import course_sentences
from placements.explain.vocabulary import (
    COLUMN_WORDS,
    HEADINGS,
    MEASURES,
    NONE,
    bindings_sentence,
    headline,
    outcome_sentences,
    round_sentence,
    score_text,
    scored_heading,
    spread_limit,
)
from placements.manifests.binding import PlacedBinding

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
    """Return the result of the decision, all outcomes with their reasons, and a sentence for each step.

    With `step` only that step, with all its candidates; with `advice` only the outcome of its cluster, and
    what would change it. `notes` follow the headline. Raise IndexError for a step that does not exist.
    """
    cycle, replay, count = decision.cycle, Replay(decision), decision.number_of_rounds
    head = [
        f"{placement}: {headline(decision)}, {_RESULTS[decision.is_fulfilled]}",
        f"{counted(len(cycle.fleet), 'cluster')}, {cycle.semantics} semantics, decision {decision.id}",
    ]
    head += [bindings_sentence(cycle)] if cycle.bindings else []
    exact = inline_search(decision)
    head += trap_sentences(decision, exact=exact)
    # No advice to weaken a policy that can be satisfied as it is.
    if exact is None or not exact.is_possible:
        ways = [
            change_words(suggestion.change)
            for suggestion in plausible(how_to_fulfil(decision))
        ]
        if ways:
            head.append(
                f"fulfilled by any of these changes: {'; '.join(ways[:_WAYS_SHOWN])}"
            )

    parts: list[list[str]] = [[*head, *notes]]
    if step is not None:
        parts.append(list(_step_lines(replay, step, candidates=None)))
    if advice is not None:
        parts.append(_advice(advice, decision))
    if step is None and advice is None:
        parts += [_placed_lines(decision), _not_placed(decision)]
        parts += [
            list(_step_lines(replay, number, candidates=_CANDIDATES_SHOWN))
            for number in sorted({*range(1, min(count, _ROUNDS_SHOWN)), count} - {0})
        ]
        if count > _ROUNDS_SHOWN:
            left_out = f"… steps {_ROUNDS_SHOWN} to {count - 1} not shown"
            parts.insert(-1, [f"{left_out}; show one with --step N"])
    return "\n\n".join("\n".join(map(visible, part)) for part in parts if part) + "\n"


_RESULTS = {True: "fulfilled", False: "NOT FULFILLED"}


def visible(line: str) -> str:
    """Return a line with escapes for what a terminal would act on, or would not show."""
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode()
        for one in line
    )


def warning_note(warning: ManifestWarning) -> str:
    return f"warning: {warning.path}: {warning.message}"


def _step_lines(
    replay: Replay, number: int, *, candidates: int | None
) -> Iterator[str]:
    """Yield the sentence of a step, the domains against their limits, and the ranked candidates."""
    step = replay.step(number)
    name = (
        f"STEP {number} of {replay.decision.number_of_rounds}"
        if step.winner
        else f"END in step {number}"
    )
    yield f"{name}: {round_sentence(step)}"
    for spread in step.spreads:
        changes = {
            name: _arrow(number, spread.after[name])
            for name, number in spread.before.items()
        }
        # Those that change come first.
        names = sorted(changes, key=lambda name: "→" not in changes[name])
        counts = [f"{name}: {changes[name]}" for name in sorted(names[:_GROUPS_SHOWN])]
        if len(names) > _GROUPS_SHOWN:
            counts.append(f"… {len(names) - _GROUPS_SHOWN} more domains")
        yield (
            f"  {spread_limit(spread)}: {', '.join(counts) or 'no domains'}; "
            f"{MEASURES[spread.limits_skew]} {_arrow(spread.skew_before, spread.skew_after)}"
        )
    most = candidates or step.candidates
    if step.cut is not None and candidates is not None:
        most = max(most, min(step.cut.size + 2, _CLUSTERS_SHOWN))
    if step.candidates:
        ranked = replay.candidates(number, most=most)
        yield from (
            f"  {line}" for line in _candidate_table(ranked, step, replay.decision)
        )
    if step.candidates > most:
        yield f"  … {step.candidates - most} more: --step {number}"


def _arrow(before: int, after: int) -> str:
    return str(before) if before == after else f"{before}→{after}"


def _candidate_table(
    candidates: Sequence[Candidate], step: RoundSummary, decision: Decision
) -> list[str]:
    rank_names = profile_of(decision.cycle).strategy.rank_names
    has_history = "was-here" in rank_names and any(
        candidate.was_here for candidate in candidates
    )
    combined = list(
        dict.fromkeys(name for candidate in candidates for name in candidate.combined)
    )
    scored = (
        scored_heading(spread.topology_key, decision.cycle.semantics)
        for spread in step.spreads
    )
    headings = (HEADINGS.get(name, name) for name in combined)
    header = ["rank", "cluster", *scored, "topology", "affinity", *headings]
    rows = [[*header, *(["previously placed"] if has_history else []), "decided by"]]
    for candidate in candidates:
        row = [score_text(candidate.rank), candidate.cluster]
        for verdict in candidate.constraints:
            is_cost = isinstance(
                verdict.score, float
            )  # of `kubernetes`: the more, the worse
            sign = "+" if verdict.score > 0 and not is_cost else ""
            row.append(
                "blocked"
                if verdict.is_forbidden
                else f"{sign}{score_text(verdict.score)}"
            )
        row += [
            score_text(candidate.topology_spread_score),
            score_text(candidate.affinity_score),
        ]
        row += [score_text(candidate.combined.get(name)) for name in combined]
        row += [str(candidate.was_here)] if has_history else []
        if candidate.rank is None:
            decided = "spread limit"
        elif step.cut is not None:
            decided = (
                "selected" if candidate.rank <= step.cut.size else "below the cut-off"
            )
        elif candidate.rank == 1:
            decided = "selected"
        else:
            decided = HEADINGS.get(
                candidate.decided_by or "", COLUMN_WORDS[candidate.decided_by]
            )
        rows.append([*row, decided])
    return table(rows)


# By whether the binding that a cluster had is active; None without one.
_SELECTED = {None: "selected", True: "selected again", False: "selected (restored)"}


def _placed_lines(decision: Decision) -> list[str]:
    before = {binding.cluster: binding for binding in decision.cycle.live_bindings}
    active = {name: binding.is_active for name, binding in before.items()}
    placed: list[tuple[str, Picked | PlacedBinding]] = [
        *(
            (_SELECTED[active.get(picked.cluster)], picked)
            for picked in decision.picked
        ),
        *(("kept", before[name]) for name in decision.kept),
    ]
    if not placed:
        return []
    scores = [(row.topology_spread_score, row.affinity_score) for _, row in placed]
    has_scores = decision.kind is not CycleKind.PICK_ALL and any(
        score != (None, None) for score in scores
    )
    rows = [
        ["cluster", "how", *(["topology", "affinity"] if has_scores else [])],
        *(
            [row.cluster, how, *(map(score_text, pair) if has_scores else [])]
            for (how, row), pair in zip(placed, scores, strict=True)
        ),
    ]
    lines = (f"  {line}" for line in table(rows[: _CLUSTERS_SHOWN + 1]))
    return ["PLACED", *lines, *_more(len(placed))]


def _not_placed(decision: Decision) -> list[str]:
    others = [
        outcome
        for outcome in Outcomes(decision)
        if outcome.outcome not in (Outcome.PICKED, Outcome.KEPT)
    ]
    removed = [
        name
        for name in decision.unscheduled
        if name not in decision.cycle.fleet.positions
    ]
    if not others and not removed:
        return []
    title = "NOT PLACED"
    if len(others) > _CLUSTERS_SHOWN:
        counts = Counter(f"{other.state} ({other.reasons[0].code})" for other in others)
        title += ": " + ", ".join(
            f"{count} {what}" for what, count in counts.most_common()
        )
    others.sort(key=lambda one: one.reasons[0].facts.get("rank") or 1 << 62)
    rows = [
        [other.cluster, other.state, _reasons(other)]
        for other in others[:_CLUSTERS_SHOWN]
    ]
    return [
        title,
        *(f"  {name}: unscheduled, no longer in the fleet" for name in removed),
        *(f"  {line}" for line in table(rows)),
        *_more(len(others)),
    ]


def _more(count: int) -> list[str]:
    if count <= _CLUSTERS_SHOWN:
        return []
    return [f"  … {count - _CLUSTERS_SHOWN} more: all of them with -o csv or -o json"]


def _reasons(outcome: ClusterOutcome) -> str:
    return "; also: ".join(outcome_sentences(outcome))


def _advice(advice: Advice, decision: Decision) -> list[str]:
    outcome, helps, fails = advice.outcome, advice.helps, advice.fails
    condition = ", if rescheduled" if advice.is_rescheduled else ""
    lines = [
        f"WHY {outcome.cluster} ({outcome.state}{condition}): {_reasons(outcome)}",
        *course_sentences(
            evaluated_decision(decision, outcome.cluster), outcome.cluster
        ),
    ]
    if helps:
        ticked = [f"  ✓ {suggestion_sentence(one)}" for one in helps]
        lines += ["changes that would select it", *ticked]
    if fails:
        crossed = [f"  ✗ {words}" for words in failure_sentences(fails)]
        lines += ["changes that would not help", *crossed]
    lines += [
        f"  ? not evaluated (time limit): {words}"
        for words in untried_sentences(advice.not_tried)
    ]
    if helps or fails:
        lines.append(
            "Each change was evaluated alone by running the scheduler, without combinations."
        )
    if decision.cycle.bindings and any(
        suggestion.change.kind in POLICY_CHANGES for suggestion in (*helps, *fails)
    ):
        lines.append(
            "A change of the policy creates a new policy snapshot: to repeat one with the same --bindings,"
            " add --snapshot and any new name."
        )
    return lines


def comparison_text(
    comparison: SemanticsComparison, *, placement: str, notes: Iterable[str] = ()
) -> str:
    """Return the clusters that each semantics selects, side by side, with the first difference marked."""
    difference, decisions = comparison.first_difference, comparison.decisions
    lines = [f"{placement} under {len(decisions)} semantics"]
    sentence = difference_sentence(comparison)
    paragraphs = [sentence or difference_head(comparison)]
    paragraphs += (
        f"{divergence.semantics} {divergence.words}"
        for divergence in later_divergences(comparison)
        if sentence
    )
    for words in paragraphs:
        for place, part in enumerate(words.split(". ")):
            indent = "  " * bool(place)
            lines += wrap(
                part,
                _WIDTH,
                initial_indent=indent,
                subsequent_indent=f"{indent}  ",
                break_long_words=False,
                break_on_hyphens=False,
            )

    rows = [["", *map(str, decisions), ""]]
    for place, choices in enumerate(comparison.rows[:_CLUSTERS_SHOWN], start=1):
        picked = (choices[semantics] for semantics in decisions)
        mark = "◄" if difference is not None and place == difference.place else ""
        names = [
            f"{name or NONE}{' (kept)' * (name in decision.kept)}"
            for decision, name in zip(decisions.values(), picked, strict=True)
        ]
        rows.append([str(place), *names, mark])
    if any(decision.unscheduled for decision in decisions.values()):
        rows.append(
            [
                "",
                *(
                    f"{len(decision.unscheduled)} unscheduled"
                    for decision in decisions.values()
                ),
                "",
            ]
        )
    rows.append(
        ["", *(_RESULTS[decision.is_fulfilled] for decision in decisions.values()), ""]
    )
    lines += [
        *notes,
        "",
        *(f"  {line}" for line in table(rows)),
        *_more(len(comparison.rows)),
    ]
    return "\n".join(map(visible, lines)) + "\n"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows with their columns lined up, two blanks apart, numbers to the right."""

    def is_number(cell: str) -> bool:
        parts = (part.lstrip("+-").replace(".", "", 1) for part in cell.split("/"))
        return cell in (NONE, "blocked") or all(part.isdigit() for part in parts)

    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numeric = [all(map(is_number, column[1:])) and len(rows) > 1 for column in columns]
    lines = []
    for row in rows:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        lines.append("  ".join(padded).rstrip())
    return lines
