"""The words of the inbox: kinds of items, and one sentence for each item."""

from collections.abc import Mapping
from typing import Any

from placements.explain.staged_updates import hub_eviction_sentence
from placements.explain.vocabulary import counted

KINDS: Mapping[str, tuple[str, str]] = {
    "approval": ("attention", "Pending approvals"),
    "disagreement": ("attention", "Disagreements"),
    "unfulfilled": ("attention", "Placements not fulfilled"),
    "rollout": ("failed", "Stalled, stopped and failed rollouts"),
    "eviction": ("failed", "Evictions not executed"),
    "difference": ("attention", "Drifted and differing objects"),
    "hub": ("attention", "Hubs not live"),
    "credentials": ("attention", "Expiring credentials"),
}
"""Level and title of each kind."""
_SIDES = {"before": "before the stage", "after": "after the stage"}
_RUNS = {
    "failed": "Staged update run failed. Clusters keep their current revision.",
    "stuck": "Staged update run is stuck.",
    "stopped": "Staged update run is stopped.",
    "halted": "Rollout stalled: no cluster can be updated.",
    "finished": "Rollout completed.",
}


def message_of(kind: str, facts: Mapping[str, Any]) -> str:
    """Return the sentence of an item; `facts` are those of its source."""
    match kind:
        case "approval":
            return (
                f"Stage {facts['stage']} of {facts['placement']} waits for approval, {_SIDES[facts['side']]}."
            )
        case "disagreement" if facts["is_behind"]:
            return "The hub has not decided for more than 5m."
        case "disagreement":
            places = counted(facts["differences"], "place")
            return f"The replay of what the hub decided differs in {places}."
        case "unfulfilled":
            wanted = facts["wanted"]
            of_all = "" if wanted is None else f" of {wanted:,}"
            return f"{facts['placed']:,}{of_all} clusters selected."
        case "rollout":
            failed, words = (
                f"failed on {counted(facts['failed'] or 0, 'cluster')}",
                _RUNS.get(facts["status"]),
            )
            if words:
                return f"{words} {failed.capitalize()}." if facts["failed"] else words
            noun = "Rollout" if facts["page"] == "rollout" else "Staged update run"
            return f"{noun} {failed}. Retrying."
        case "eviction":
            words = facts["why"] or hub_eviction_sentence(facts["conditions"])
            return f"Eviction from {facts['cluster']}: {words}"
        case "difference":
            found = {"drift": facts["drifted"], "differences": facts["diffed"]}
            parts = [f"{noun} on {counted(count, 'cluster')}" for noun, count in found.items() if count]
            return f"{', '.join(parts).capitalize()}."
        case "hub":
            return f"{facts['word']}: {facts['reason']}." if facts["reason"] else f"{facts['word']}."
    return f"{facts['credential'].capitalize()}: {facts['notice']}."
