"""The words of the inbox: kinds of items, and one sentence for each item."""

from collections.abc import Mapping
from typing import Any

from fleetui.apimachinery.words import counted
from placements.explain.staged_updates import hub_eviction_sentence

KINDS: Mapping[str, tuple[str, str]] = {
    "approval": ("attention", "Pending approvals"),
    "disagreement": ("attention", "Disagreements"),
    "unfulfilled": ("attention", "Placements not fulfilled"),
    "rollout": ("failed", "Stalled, stopped and failed rollouts"),
    "removal": ("attention", "Removals that wait"),
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


def removal_sentence(placement: str, reason: str, *, is_orphan: bool) -> str:
    """Return that a removal waits for a person, and why; the reason of a prune says both."""
    return f"{'The removal of ' * is_orphan}{placement}{' waits for a confirmation' * is_orphan}: {reason}"


def message_of(kind: str, facts: Mapping[str, Any]) -> str:
    """Return the sentence of an item; `facts` are those of its source."""
    match kind:
        case "approval":
            return (
                f"Stage {facts['stage']} of {facts['placement']} waits for approval, {_SIDES[facts['side']]}."
            )
        case "disagreement":
            places = counted(facts["differences"], "place")
            differs = f"The replay of what the hub decided differs in {places}."
            return "The hub has not decided for more than 5m." if facts["is_behind"] else differs
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
        case "removal":
            return removal_sentence(facts["placement"], facts["reason"], is_orphan=facts["is_orphan"])
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
