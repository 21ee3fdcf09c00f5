"""The stages of a strategy in words: which clusters, in which order, how many at once, what they wait for."""

from dataclasses import dataclass
from datetime import timedelta

from placements.explain.sentences import label_words
from placements.scheduling.door.amounts import IntOrPercent
from placements.scheduling.door.staged_documents import StageSpec

APPROVE = "somebody approves"


@dataclass(frozen=True, slots=True)
class StageWords:
    """One stage as it was written; `before` and `after` are what it waits for."""

    name: str
    clusters: str
    order: str
    at_once: str
    before: str
    after: str


def stage_words(stage: StageSpec, *, clusters: int | None = None) -> StageWords:
    """Say what a stage does; with the number of its clusters a percentage is worked out."""
    return StageWords(
        stage.name,
        _clusters(stage),
        f"by the number in {stage.sorting_label_key}, then by name" if stage.sorting_label_key else "by name",
        at_once_words(stage.max_concurrency, clusters),
        APPROVE if stage.needs_approval_before else "",
        " and ".join(_after(stage)),
    )


def _clusters(stage: StageSpec) -> str:
    if stage.label_selector is None:
        return "no cluster: it has no label selector"
    words = label_words(stage.label_selector)
    return f"clusters where {words}" if words else "every cluster"


def _after(stage: StageSpec) -> list[str]:
    waits = [f"{duration_words(stage.wait)} pass"] if stage.wait else []
    return [*waits, *([APPROVE] if stage.needs_approval_after else [])]


def at_once_words(amount: IntOrPercent, clusters: int | None) -> str:
    """Say how many clusters may run at once: "25% of 8 → 2"."""
    if clusters is None:
        return f"{amount}, rounded down, at least 1" if amount.is_percent else str(amount)
    most = amount.at_least_one_of(clusters)
    return f"{amount} of {clusters:,} → {most:,}" if amount.is_percent else str(most)


def duration_words(time: timedelta) -> str:
    """Write a time as people do: "1 h 30 min", "45 s"."""
    minutes, seconds = divmod(int(time.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (seconds, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0 s"
