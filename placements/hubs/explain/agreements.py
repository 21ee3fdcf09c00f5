"""The words of agreements: how a replay compares with what a live hub decided.

See `rules/live-hub.md#agreement`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from placements.explain.decision_tables import csv_text
from placements.explain.hub_status import Plain


class Agreement(StrEnum):
    PENDING = "pending"
    NOT_REPLAYABLE = "not-replayable"
    AGREES = "agrees"
    FORGOTTEN = "forgotten"
    AGREES_ON_PICKS = "agrees-on-picks"
    DIFFERS = "differs"
    UNCERTAIN = "uncertain"


AGREEMENTS: Mapping[Agreement, tuple[str, str, str]] = {
    Agreement.PENDING: ("progress", "Pending", "The hub has not decided yet"),
    Agreement.NOT_REPLAYABLE: (
        "pending",
        "Not comparable",
        "This decision cannot be replayed",
    ),
    Agreement.AGREES: ("healthy", "Agrees", "Same selection, same scores"),
    Agreement.FORGOTTEN: (
        "healthy",
        "Reasons dropped",
        "The hub no longer lists why the other clusters were not selected",
    ),
    Agreement.AGREES_ON_PICKS: (
        "healthy",
        "Same selection",
        "Scores were recorded under an earlier fleet",
    ),
    Agreement.DIFFERS: (
        "attention",
        "Differs",
        "The hub and the replay decide differently on the same inputs",
    ),
    Agreement.UNCERTAIN: (
        "pending",
        "Uncertain",
        "The inputs of that moment were not observed",
    ),
}
"""Level, word and sentence of each agreement."""
INPUTS: Mapping[str, str] = {
    "observed": "Observed: the fleet and the bindings are those that the hub had",
    "present": "Present: only the fleet of when the decision was first seen is known",
    "assumed": "Assumed: values that the policy reads had changed when the decision was first seen",
    "none": "None: nothing could be replayed",
}
DIFFERS_SENTENCE = (
    "The replay differs from the hub for this placement. "
    "What follows is the calculation of this console."
)
_COLUMNS = ("selected", "affinityScore", "topologySpreadScore", "reason")


@dataclass(frozen=True, slots=True)
class ShownAgreement:
    """An agreement as a badge and a sentence."""

    value: Agreement
    level: str
    word: str
    sentence: str


def shown_agreement(value: Agreement, *, note: str = "") -> ShownAgreement:
    level, word, sentence = AGREEMENTS[value]
    words = f"{sentence}: {note}" if note else sentence
    return ShownAgreement(value, level, word, words)


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """One cluster, or the condition, as the hub and the replay have it."""

    cluster: str
    hub: Sequence[str]
    replay: Sequence[str]
    cause: str


def difference_rows(differences: Iterable[Plain]) -> list[DifferenceRow]:
    return [
        DifferenceRow(
            difference["cluster"],
            _decision_words(difference["hub"]),
            _decision_words(difference["replay"]),
            difference.get("cause", ""),
        )
        for difference in differences
    ]


def _decision_words(side: Mapping[str, Any] | None) -> list[str]:
    """Return the decision of one side about a cluster, part by part: whether selected, scores, reason."""
    if side is None:
        return ["Not listed"]
    if "message" in side:
        return [f"{side['status']}, {side['reason']}", str(side["message"])]
    scores = [side["affinityScore"], side["topologySpreadScore"]]
    words = ["Selected" if side["selected"] else "Not selected"]
    if any(score is not None for score in scores):
        pairs = zip(("affinity", "topology spread"), scores, strict=True)
        words.append(
            ", ".join(f"{name} {'none' if one is None else one}" for name, one in pairs)
        )
    return [*words, str(side["reason"])]


def difference_csv(differences: Iterable[Plain]) -> str:
    """Write the differences as CSV: a row for each cluster, the condition without a name."""
    sides = ("hub", "replay")
    rows = [
        (
            difference["cluster"],
            *(
                (difference[side] or {}).get(name)
                for side in sides
                for name in _COLUMNS
            ),
            difference["cause"],
        )
        for difference in differences
    ]
    return csv_text(
        [
            "cluster",
            *(f"{side} {name}" for side in sides for name in _COLUMNS),
            "cause",
        ],
        rows,
    )


def agreement_document(side: Any) -> dict[str, Any]:
    """Return what a hub decided as a document: the agreement, its inputs, and both sides."""
    row = side.row
    decision, version, hub_at = row.decision, row.fleet_version, row.hub_at
    return {
        "placement": row.placement_name,
        "decision": decision and decision.record.decision_id,
        "agreement": side.agreement.value,
        "message": side.agreement.sentence,
        "note": row.note,
        "inputs": row.inputs,
        "fleetVersion": version and version.number,
        "policySnapshot": row.policy_snapshot,
        "observedGeneration": row.observed_generation,
        "condition": row.condition,
        "differencesCount": side.differences_count,
        "hubAt": hub_at and hub_at.isoformat(),
        "seenAt": row.seen_at.isoformat(),
        "decisions": row.decisions,
        "differences": list(side.differences),
    }
