"""Sentences, tables and documents about resilience reports."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetui.apimachinery.words import counted
from placements.engine.resilience import AND, CLUSTER, pair_key
from placements.explain.decision_tables import csv_text

VARIANT_NAMES = {
    "down": "Down (still members)",
    "cordon": "Drained (still members)",
    "leave": "Removed from the fleet",
}
METRICS = ("unfulfilled", "empty", "lost")
_CSV = ("level", "value", "variant", "clusters", "placements", "lost", "moved", "unfulfilled", "empty")


@dataclass(frozen=True, slots=True)
class LevelWorst:
    """The worst loss of one level: how many placements are unfulfilled or without any cluster."""

    level: str
    unfulfilled: int
    empty: int
    lost: int
    value: str
    sentence: str

    @property
    def is_bad(self) -> bool:
        return bool(self.unfulfilled or self.empty)


def worst_by_level(totals: Mapping[str, Any], variant: str) -> list[LevelWorst]:
    """Return the worst loss of each level of a report, the smallest level first."""
    levels = []
    for level, by_variant in totals.items():
        worst = by_variant.get(variant, {})
        counts = {name: worst.get(name, {}).get("count", 0) for name in METRICS}
        first = next((name for name in METRICS if counts[name]), "lost")
        value = worst.get(first, {}).get("value", "")
        sentence = _sentence(level, variant, counts, value)
        levels.append(LevelWorst(level, value=value, sentence=sentence, **counts))
    return levels


def _sentence(level: str, variant: str, counts: Mapping[str, int], value: str) -> str:
    name = f"2 domains of {pair_key(level)}" if pair_key(level) else level
    loss = "Loss of any single cluster" if level == CLUSTER else f"Loss of any {name}"
    number = counts["empty" if variant == "down" else "unfulfilled"]
    words = "without any working cluster" if variant == "down" else "unfulfilled"
    if number:
        return f"{loss}: up to {counted(number, 'placement')} {words} ({value})."
    if counts["empty"]:
        return f"{loss}: up to {counted(counts['empty'], 'placement')} without any cluster ({value})."
    if counts["lost"]:
        verb = "lost" if variant == "down" else "not replaced"
        return f"{loss}: no placement {words}; up to {counted(counts['lost'], 'cluster')} {verb} ({value})."
    return f"{loss}: no placement is affected permanently."


def loss_name(level: str, value: str) -> str:
    """Return a loss in words: "cluster bravelion", "region=east", "region=east and region=west"."""
    if level == CLUSTER:
        return f"cluster {value}"
    return " and ".join(f"{pair_key(level) or level}={one}" for one in value.split(AND))


def what_if_query(level: str, value: str, variant: str) -> dict[str, str]:
    """Return the query of the page that analyzes a loss; one that is down is shown as drained."""
    labels = " ".join(f"{pair_key(level) or level}:{one}" for one in value.split(AND))
    chosen = {"cluster": value} if level == CLUSTER else {"label": labels}
    return {**chosen, "variant": "cordon" if variant == "down" else variant}


def losses_csv(rows: Iterable[Sequence[Any]]) -> str:
    """Return the losses of a report as CSV, in the order of its columns."""
    return csv_text(_CSV, map(tuple, rows))
