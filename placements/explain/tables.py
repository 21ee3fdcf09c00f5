"""Tables of a decision: rows for CSV and for what stands beside a chart."""

import csv
import io
from collections.abc import Iterable, Iterator

from placements.explain.text import visible
from placements.explain.wording import reason_sentence
from placements.scheduling.comparison import Comparison
from placements.scheduling.decision import Decision
from placements.scheduling.outcomes import ClusterOutcome, Outcome, Outcomes
from placements.scheduling.reasons import ReasonCode

OUTCOME_COLUMNS = (
    "cluster",
    "outcome",
    "round",
    "stays",
    "topologySpreadScore",
    "affinityScore",
    "decidingReason",
    "reasons",
    "why",
)


def outcome_rows(decision: Decision) -> Iterator[tuple[object, ...]]:
    """Give a row per cluster, as OUTCOME_COLUMNS say: those of the fleet by name, then those not in it."""
    yield from rows_of(decision, Outcomes(decision))
    yield from _rows_of_absent(decision)


def rows_of(decision: Decision, outcomes: Iterable[ClusterOutcome]) -> Iterator[tuple[object, ...]]:
    """Give the rows of some clusters of the fleet, in their order."""
    scores = {one.cluster: (one.topology_spread_score, one.affinity_score) for one in decision.picked}
    for one in outcomes:
        yield (
            one.cluster,
            str(one.outcome),
            one.round,
            "yes" if one.stays else "no",
            *map(_score, scores.get(one.cluster, (None, None))),
            next(str(reason.code) for reason in one.reasons if reason.is_deciding),
            " ".join(str(reason.code) for reason in one.reasons),
            "; ".join(reason_sentence(reason) for reason in one.reasons),
        )


def _rows_of_absent(decision: Decision) -> Iterator[tuple[object, ...]]:
    fleet = decision.cycle.fleet.positions
    for name in decision.unscheduled:
        if name not in fleet:
            yield _absent(
                name, str(Outcome.UNSCHEDULED), "no", ReasonCode.CLUSTER_LEFT, "no longer in the fleet"
            )
    for name in decision.not_found:
        yield _absent(name, "not found", "no", "not-found", "named, but not in the fleet")


def _absent(name: str, outcome: str, stays: str, code: str, why: str) -> tuple[object, ...]:
    return (name, outcome, None, stays, None, None, code, code, why)


def _score(value: object) -> object:
    """Write a score of several levels with spaces: a spreadsheet takes 1/2 for a date."""
    return " ".join(map(str, value)) if isinstance(value, tuple) else value


def outcome_csv(decision: Decision) -> str:
    """Write the outcomes as CSV with a header line."""
    return written(outcome_rows(decision))


def written(rows: Iterable[tuple[object, ...]]) -> str:
    """Write rows of outcomes as CSV with a header line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(OUTCOME_COLUMNS)
    writer.writerows(map(_safe, rows))
    return text.getvalue()


def _safe(row: Iterable[object]) -> list[object]:
    """Keep a spreadsheet from taking a name for a formula, and a terminal from taking it for a command."""
    return [_safe_text(cell) if isinstance(cell, str) else cell for cell in row]


def _safe_text(text: str) -> str:
    return visible(f"'{text}" if text.startswith(("=", "+", "-", "@")) else text)


def comparison_csv(comparison: Comparison) -> str:
    """Write each cluster's outcome under every semantics as CSV with a header line."""
    columns = [
        {one.cluster: str(one.outcome) for one in Outcomes(each)} for each in comparison.decisions.values()
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("cluster", *map(str, comparison.decisions)))
    writer.writerows(_safe((name, *(column[name] for column in columns))) for name in columns[0])
    return text.getvalue()
