"""The words of agreements: how a replay compares with what a live hub decided.

See `rules/live-hub.md#agreement`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placements.explain.decision_tables import csv_text
from placements.explain.hub_status import Plain

AGREEMENTS: Mapping[str, tuple[str, str, str]] = {
    "pending": ("progress", "Pending", "The hub has not decided yet"),
    "not-replayable": ("pending", "Not comparable", "This decision cannot be replayed"),
    "agrees": ("healthy", "Agrees", "Same selection, same scores"),
    "forgotten": (
        "healthy",
        "Reasons dropped",
        "The hub no longer lists why the other clusters were not selected",
    ),
    "agrees-on-picks": (
        "healthy",
        "Same selection",
        "Scores were recorded under an earlier fleet",
    ),
    "differs": (
        "attention",
        "Differs",
        "The hub and the replay decide differently on the same inputs",
    ),
    "uncertain": (
        "pending",
        "Uncertain",
        "The inputs of that moment were not observed",
    ),
}
"""Level, word and sentence of each agreement."""
INPUTS: Mapping[str, str] = {
    "observed": "Observed: the fleet and the bindings are those that the hub had",
    "present": "Present: only the fleet of now is known",
    "assumed": "Assumed: values that the policy reads have changed since",
    "none": "None: nothing could be replayed",
}
REPLAYS: Mapping[str, str] = {
    "pick": "the selection of the hub, repeated",
    "steady": "a cycle on everything as it is now",
}
DIFFERS_SENTENCE = (
    "The replay differs from the hub for this placement. "
    "What follows is the calculation of this console."
)
_COLUMNS = ("selected", "affinityScore", "topologySpreadScore", "reason")


@dataclass(frozen=True, slots=True)
class ShownAgreement:
    """An agreement as a badge and a sentence; `is_confirmed`: found again after minutes."""

    value: str
    level: str
    word: str
    sentence: str
    is_confirmed: bool = False
    is_behind: bool = False


def shown_agreement(
    value: str, *, note: str = "", is_confirmed: bool = False, is_behind: bool = False
) -> ShownAgreement:
    level, word, sentence = AGREEMENTS[value]
    words = f"{sentence}: {note}" if note else sentence
    return ShownAgreement(value, level, word, words, is_confirmed, is_behind)


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
            one["cluster"],
            _decision_words(one["hub"]),
            _decision_words(one["replay"]),
            one.get("cause", ""),
        )
        for one in differences
    ]


def _decision_words(side: Mapping[str, Any] | None) -> list[str]:
    """Return the decision of one side about a cluster, part by part: whether selected, scores, reason."""
    if side is None:
        return ["Not listed"]
    if "message" in side:
        return [f"{side['status']}, {side['reason']}", str(side["message"])]
    scores = [side["affinityScore"], side["topologySpreadScore"]]
    words = ["Selected" if side["selected"] else "Not selected"]
    if any(one is not None for one in scores):
        names = ("affinity", "topology spread")
        pairs = zip(names, scores, strict=True)
        words.append(
            ", ".join(f"{name} {'none' if one is None else one}" for name, one in pairs)
        )
    return [*words, str(side["reason"])]


def difference_csv(differences: Iterable[Plain]) -> str:
    """Write the differences as CSV: a row for each cluster, the condition without a name."""
    sides = ("hub", "replay")
    rows = [
        (
            one["cluster"],
            *((one[side] or {}).get(name) for side in sides for name in _COLUMNS),
            one["cause"],
        )
        for one in differences
    ]
    return csv_text(
        [
            "cluster",
            *(f"{side} {name}" for side in sides for name in _COLUMNS),
            "cause",
        ],
        rows,
    )


def agreement_document(row: Any) -> dict[str, Any]:
    """Return a hub decision as a document: the agreement, its inputs, and both sides."""
    return {
        **agreement_fields(row),
        "decisions": row.decisions,
        "differences": row.differences,
    }


def agreement_fields(row: Any) -> dict[str, Any]:
    """Return a hub decision without the lists of clusters."""
    version = row.fleet_version
    return {
        "placement": row.placement_name,
        "decision": row.decision.record.decision_id if row.decision else None,
        "agreement": row.agreement,
        "confirmed": row.confirmed_at is not None,
        "note": row.note,
        "replay": row.replay,
        "inputs": row.inputs,
        "fleetVersion": version.number if version else None,
        "policySnapshot": row.policy_snapshot,
        "observedGeneration": row.observed_generation,
        "condition": row.condition,
        "differencesCount": row.differences_count,
        "hubAt": row.hub_at.isoformat() if row.hub_at else None,
        "judgedAt": row.judged_at.isoformat(),
        "engine": row.engine,
        "hubBehind": row.hub_behind,
    }
