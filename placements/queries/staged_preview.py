"""What a staged run would do if it began now: its stages with their clusters, before anybody starts it."""

from dataclasses import dataclass
from datetime import datetime

from placements.explain.stage_words import StageWords, stage_words
from placements.explain.staged_wording import reason_sentence
from placements.models import Binding, Placement, ResourceSnapshot, StagedRun, StagedStrategy
from placements.rollout.staged import CannotStart, initialise
from placements.rollout.stages import Stage
from placements.rollout.state import Phase
from placements.scheduling.door.staged_documents import StageSpec, parse_staged_strategy
from placements.staging import placement_facts
from placements.standing import standing_of

_LONGEST = 63


@dataclass(frozen=True, slots=True)
class StagePreview:
    """One stage in words, with its clusters in the order in which they would be updated."""

    words: StageWords
    clusters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunPreview:
    """The stages of a run that has not begun; `problems` are why it could not begin, or not yet.

    `have_it` are clusters that run the chosen snapshot already: nothing would be started on them.
    """

    stages: tuple[StagePreview, ...]
    deletions: tuple[str, ...]
    problems: tuple[str, ...]
    is_final: bool
    have_it: frozenset[str]
    latest: int | None
    snapshot: int | None

    @property
    def is_rollback(self) -> bool:
        """Tell whether the run would bring older resources than the latest."""
        return self.snapshot is not None and self.latest is not None and self.snapshot < self.latest


def preview_of(
    placement: Placement, strategy: StagedStrategy, snapshot: int | None, *, now: datetime
) -> RunPreview:
    """Say what a run by this strategy would do; nothing is written."""
    spec = parse_staged_strategy(strategy.document).spec
    found = initialise(spec, placement_facts(standing_of(placement, now=now), {}))
    latest = ResourceSnapshot.objects.filter(placement=placement, is_latest=True).first()
    number = latest.number if latest else None
    if isinstance(found, CannotStart):
        problems = tuple(map(reason_sentence, found.reasons))
        return RunPreview((), (), problems, found.is_final, frozenset(), number, snapshot)
    stages = tuple(_stage(*pair) for pair in zip(spec.stages, found.stages, strict=True))
    have_it = _have(placement, snapshot)
    return RunPreview(stages, found.deletions.cluster_names, (), True, have_it, number, snapshot)


def _stage(spec: StageSpec, stage: Stage) -> StagePreview:
    names = stage.cluster_names
    return StagePreview(stage_words(spec, clusters=len(names)), names)


def _have(placement: Placement, snapshot: int | None) -> frozenset[str]:
    if snapshot is None:
        return frozenset()
    rows = Binding.objects.filter(
        placement=placement, resource_snapshot__number=snapshot, phase=Phase.AVAILABLE
    )
    return frozenset(rows.values_list("cluster_name", flat=True))


def is_rollback(run: StagedRun) -> bool:
    """Tell whether a run brings older resources than were the latest when it was made."""
    if run.resource_number is None or "resourceSnapshotIndex" not in run.document["spec"]:
        return False
    newer = ResourceSnapshot.objects.filter(
        placement=run.placement_id, number__gt=run.resource_number, created_at__lte=run.created_at
    )
    return newer.exists()


def free_name(placement: str) -> str:
    """Suggest a name for the next run of a placement: the first of web-1, web-2 … that nobody has."""
    number = StagedRun.objects.filter(placement_name=placement).count() + 1
    while StagedRun.objects.filter(name=_numbered(placement, number)).exists():
        number += 1
    return _numbered(placement, number)


def _numbered(placement: str, number: int) -> str:
    ending = f"-{number}"
    return placement[: _LONGEST - len(ending)].rstrip("-.") + ending
