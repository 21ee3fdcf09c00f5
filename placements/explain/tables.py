"""Tables of a decision: rows for CSV and for what stands beside a chart."""

import csv
import io
from collections.abc import Iterator

from placements.explain.wording import reason_sentence
from placements.scheduling.decision import Decision
from placements.scheduling.outcomes import Outcomes

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
    """Give one row per cluster of the fleet, by name, in the order of OUTCOME_COLUMNS."""
    scores = {one.cluster: (one.topology_spread_score, one.affinity_score) for one in decision.picked}
    for one in Outcomes(decision):
        yield (
            one.cluster,
            str(one.outcome),
            one.round,
            "yes" if one.stays else "no",
            *scores.get(one.cluster, (None, None)),
            next(str(reason.code) for reason in one.reasons if reason.is_deciding),
            " ".join(str(reason.code) for reason in one.reasons),
            "; ".join(reason_sentence(reason) for reason in one.reasons),
        )


def outcome_csv(decision: Decision) -> str:
    """Write the outcomes as CSV with a header line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(OUTCOME_COLUMNS)
    writer.writerows(outcome_rows(decision))
    return text.getvalue()
