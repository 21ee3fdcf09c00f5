"""The picture of a rollout or staged run: waves or stages as columns of clusters, and the line below them.

Columns and line share one axis. A column has its own piece of it, as wide as the others, so that a stall or
an approval, which take most of the time, do not press the updates together; the title of the line says so.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from math import inf
from statistics import median_low

from fleetui.apimachinery.grouping import grouped
from fleetui.apimachinery.words import counted
from placements.engine.rollout.staged_run import Stage, StagedRunPlan
from placements.engine.rollout.waves import RolloutProgress
from placements.explain.run_pages import Part
from placements.explain.vocabulary import duration_text, seconds_between

MOST_COLUMNS, MOST_DOTS, MOST_NAMED, MOST_POINTS = 14, 20, 9, 400
BAR_ROWS = 5
_SHOWN_AT_WORK = 3
_SHORTEST_GAP = 20.0
# How far apart, in percent of the height, the labels at the end of the line are.
_LETTERS = 12.0
_ADDITIONS = (
    "Clusters without these resources start together: max unavailable limits updates of placed clusters, max surge"
    " how many clusters are placed beyond the number selected."
)


@dataclass(frozen=True, slots=True)
class Dot:
    """A cluster: the level of its state, the state in words, how many seconds its update took or takes."""

    cluster: str
    level: str
    words: str
    seconds: float | None = None

    @property
    def duration(self) -> str:
        if self.seconds is None:
            return ""
        return duration_text(self.seconds)


@dataclass(frozen=True, slots=True)
class RunColumn:
    """A wave, a stage, or a break of the axis; it starts and ends in seconds since the run began.

    Without a start it is planned.
    """

    name: str
    note: str = ""
    dots: tuple[Dot, ...] = ()
    start: float | None = None
    end: float | None = None
    is_current: bool = False
    is_break: bool = False
    level: str = ""
    details: tuple[str, ...] = ()
    width: int = 1
    is_joined: bool = False
    gate: str = ""
    minimum: int | None = None

    @property
    def is_crowded(self) -> bool:
        return len(self.dots) > MOST_DOTS

    @property
    def lasting(self) -> str:
        return duration_text((self.end or 0) - (self.start or 0))

    @property
    def troubled(self) -> list[Dot]:
        return [dot for dot in self.dots if dot.level in ("attention", "failed")]

    @property
    def counts(self) -> list[tuple[str, str, int]]:
        """The level, the words and the number of clusters of each state."""
        states = Counter((dot.level, dot.words) for dot in self.dots)
        return [(level, words, count) for (level, words), count in states.items()]


@dataclass(frozen=True, slots=True)
class LinePoint:
    """The available clusters from a place of the axis on, by revision."""

    at: float
    old: int
    new: int
    is_planned: bool = False

    @property
    def available(self) -> int:
        return self.old + self.new


@dataclass(frozen=True, slots=True)
class LineLabel:
    """A number at the end of the line; `height` and `place` are percent from below."""

    words: str
    value: int
    height: float
    place: float


@dataclass(frozen=True, slots=True)
class RunPicture:
    """Columns from left to right, and the line below; `now` is a place of the axis, None at the end."""

    columns: tuple[RunColumn, ...]
    points: tuple[LinePoint, ...]
    ticks: tuple[tuple[float, str], ...]
    labels: tuple[LineLabel, ...]
    top: float
    now: float | None
    caption: str
    unit: str
    available: str = ""
    minimums: tuple[tuple[float, float, int], ...] = field(default=())
    # The minimum of the stage in progress and of each that follows.
    limits: tuple[str, ...] = ()
    note: str = ""

    @property
    def slots(self) -> int:
        return sum(column.width for column in self.columns)

    @property
    def rows(self) -> int:
        """How many rows of dots the fullest column has; a bar is as high as five."""
        shown = [
            len(column.dots) for column in self.columns if not self.has_bar(column)
        ]
        if len(shown) < len(self.columns):
            shown.append(BAR_ROWS * 2)
        rows = max(shown, default=0)
        if not self.is_named:
            rows = -(-rows // 2)
        return max(2, rows)

    @property
    def most(self) -> int:
        """How many clusters the highest bar has; joined columns have a scale of their own."""
        apart = (len(column.dots) for column in self.columns if not column.is_joined)
        return max(apart, default=1)

    @property
    def is_crowded(self) -> bool:
        return self.most > MOST_DOTS

    def has_bar(self, column: RunColumn) -> bool:
        """Return whether a column is a bar by state: a crowded one, and all where a wave is crowded."""
        return column.is_crowded or self.is_crowded

    @property
    def barred_columns(self) -> list[tuple[float, RunColumn]]:
        return [column for column in self.placed_columns if self.has_bar(column[1])]

    @property
    def is_named(self) -> bool:
        """Whether there is room for a name beside each dot."""
        return self.slots <= 8 and all(
            len(column.dots) <= MOST_NAMED for column in self.columns
        )

    @property
    def placed_columns(self) -> list[tuple[float, RunColumn]]:
        places, at = [], 0
        for column in self.columns:
            places.append((float(at), column))
            at += column.width
        return places

    @property
    def marks(self) -> list[tuple[int, float]]:
        """The numbers at the start of the line, from below, with heights in percent."""
        marks = [(0, 0.0)]
        for label in reversed(self.labels):
            if label.height - marks[-1][1] >= _LETTERS:
                marks.append((label.value, label.height))
        return marks

    @property
    def break_edges(self) -> dict[float, str]:
        """The places where a break begins or ends, with its level; two that meet have one."""
        return {
            at: column.level
            for place, column in self.placed_columns
            if column.is_break
            for at in (place, place + column.width)
        }

    @property
    def scale(self) -> str:
        """What the axis of a run that started says of its times."""
        return f"time not to scale: each {self.unit} and break has a column"

    def height(self, value: float) -> float:
        """Return the height of a number of clusters in percent."""
        return round(100 * value / self.top, 2)

    @property
    def stretches(self) -> list[tuple[LinePoint, float]]:
        """The points, each with the place where the next one is; none where nothing was observed."""
        ends = [point.at for point in self.points[1:]] + [float(self.slots)]
        return list(zip(self.points, ends, strict=False))

    def area(self, part: str, *, is_planned: bool) -> str:
        """Return the area of a revision as the path of an SVG, 100 high and 100 wide for each slot."""
        corners: list[str] = []
        for point, end in self.stretches:
            if point.is_planned is is_planned and end > point.at:
                spans = {"new": (0, point.new), "old": (point.new, point.available)}
                bottom, top = (100 - self.height(value) for value in spans[part])
                left, right = point.at * 100, end * 100
                corners.append(
                    f"M{left:.1f} {bottom:.2f}V{top:.2f}H{right:.1f}V{bottom:.2f}z"
                )
        return "".join(corners)

    def line(self, *, is_planned: bool) -> str:
        """Return the line of available clusters as the path of an SVG."""
        drawn: list[str] = []
        for point, end in self.stretches:
            if point.is_planned is is_planned:
                sign = "L" if drawn else "M"
                top = 100 - self.height(point.available)
                drawn.append(f"{sign}{point.at * 100:.1f} {top:.2f}H{end * 100:.1f}")
        return "".join(drawn)

    @property
    def paths(self) -> list[tuple[str, str]]:
        """The areas and lines by their class in the style sheet."""
        paths = {
            "old": self.area("old", is_planned=False),
            "new": self.area("new", is_planned=False),
            "old planned": self.area("old", is_planned=True),
            "new planned": self.area("new", is_planned=True),
            "available": self.line(is_planned=False),
            "available planned": self.line(is_planned=True),
        }
        limits = [
            f"M{start * 100:.0f} {100 - self.height(value):.2f}H{end * 100:.0f}"
            for start, end, value in self.minimums
        ]
        drawn = [(name, path) for name, path in paths.items() if path]
        return [*drawn, ("limit", "".join(limits))]

    @property
    def now_percent(self) -> float | None:
        return None if self.now is None else round(100 * self.now / self.slots, 2)

    @property
    def tick_percents(self) -> list[tuple[float, str]]:
        return [(round(100 * at / self.slots, 2), words) for at, words in self.ticks]


@dataclass(frozen=True, slots=True)
class Start:
    """The first start of an update on a cluster, in seconds since the run began."""

    cluster: str
    at: float
    ended: float | None


def started_together(starts: Sequence[Start]) -> list[list[Start]]:
    """Group starts into waves: one that follows the end of a cluster of the last wave begins the next."""
    waves: list[list[Start]] = []
    first_end = -inf
    for start in sorted(starts, key=lambda one: (one.at, one.cluster)):
        if start.at >= first_end:
            waves.append([])
            first_end = inf
        waves[-1].append(start)
        if start.ended is not None:
            first_end = min(first_end, start.ended)
    return waves


def wave_columns(
    starts: Sequence[Start],
    pending: Sequence[Sequence[str]],
    before: Sequence[str],
    dots: Mapping[str, Dot],
    *,
    until: float,
    is_running: bool,
    rest: tuple[str, str] | None,
) -> list[RunColumn]:
    """Return the waves that started, the breaks between them, and the planned waves.

    `pending` are the waves of the plan, and `before` the clusters that needed no update. `rest` is why
    nothing starts now: a word and a sentence.
    """
    waves = started_together(starts)
    columns: list[RunColumn] = []
    if before:
        own = [dots[one] for one in before if one in dots]
        note = _done_words(own, "{kept:,} unchanged")
        columns.append(_column("", before, dots, note=note))
    begins = [wave[0].at for wave in waves]
    lengths = [later - first for first, later in pairwise(begins)]
    gap = max(_SHORTEST_GAP, 3 * median_low(lengths or [0.0]))
    ends = [*begins[1:], until]
    for number, (wave, end) in enumerate(zip(waves, ends, strict=False), 1):
        is_active = is_running and number == len(waves)
        moves = [
            start.ended
            for start in wave
            if start.ended is not None and start.ended <= end
        ]
        moved = max([*moves, *(start.at for start in wave)])
        pause: tuple[str, ...] | None = None
        if is_active:
            pause = rest
        elif number < len(waves) and end - moved > gap:
            pause = ("No start",)
        column = replace(
            _column(f"{number}", [start.cluster for start in wave], dots),
            start=wave[0].at,
            end=end,
            is_current=is_active,
        )
        if pause is None:
            columns.append(column)
            continue
        word, *details = pause
        stop = max(moved, wave[0].at + 0.1)
        columns += [
            replace(column, end=stop, is_current=False),
            RunColumn(
                word,
                start=stop,
                end=end,
                is_break=True,
                level="attention",
                details=tuple(details),
            ),
        ]
    planned = [list(wave) for wave in pending if wave]
    if waves:
        # Later waves are as large as the last: clusters in trouble use places of the plan.
        size = max(len(wave) for wave in waves[-2:])
        names = [name for wave in planned for name in wave]
        planned = [names[at : at + size] for at in range(0, len(names), size)]
    columns += [
        _column(f"{number}", names, dots, note=f"{len(names):,}")
        for number, names in enumerate(planned, len(waves) + 1)
    ]
    return _merged(columns)


def _column(
    name: str,
    clusters: Sequence[str],
    dots: Mapping[str, Dot],
    *,
    note: str = "",
) -> RunColumn:
    own = [dots[cluster] for cluster in clusters if cluster in dots]
    own.sort(key=lambda one: _WORST_FIRST[one.level])
    return RunColumn(name, note or _done_words(own), tuple(own))


def _done_words(dots: Sequence[Dot], words: str = "{done:,} of {kept:,}") -> str:
    """Return how many of the clusters that stay are done, and how many were removed."""
    kept = [dot for dot in dots if dot.words != Part.REMOVED]
    done = sum(dot.level == "healthy" for dot in kept)
    removed = len(dots) - len(kept)
    parts = [words.format(done=done, kept=len(kept))] * bool(kept)
    return ", ".join(parts + [f"{removed:,} removed"] * bool(removed))


_WORST_FIRST = {
    level: rank
    for rank, level in enumerate(
        ("failed", "attention", "unknown", "progress", "pending", "healthy")
    )
}


def _merged(columns: list[RunColumn]) -> list[RunColumn]:
    """Put the first of many waves that are done into one column, and the last of those that are planned."""
    excess = len(columns) - MOST_COLUMNS
    if excess <= 0:
        return columns
    started = [
        column for column in columns if column.start is not None or not column.name
    ]
    done = started[: max(0, len(started) - _SHOWN_AT_WORK)][: excess + 1]
    if len(done) > 1:
        columns = [_joined(done), *columns[len(done) :]]
    excess = len(columns) - MOST_COLUMNS
    if excess > 0:
        columns = [*columns[: -excess - 1], _joined(columns[-excess - 1 :])]
    return columns


def _joined(columns: Sequence[RunColumn]) -> RunColumn:
    dots = tuple(dot for column in columns for dot in column.dots)
    numbers = [column.name for column in columns if column.name.isdecimal()]
    is_planned = columns[0].start is None and bool(columns[0].name)
    note = f"{len(dots):,}" if is_planned else _done_words(dots)
    name = f"{numbers[0]}–{numbers[-1]}" if numbers else ""  # noqa: RUF001 -- a range
    starts = (column.start for column in columns if column.start is not None)
    start, end = next(starts, None), columns[-1].end
    return RunColumn(name, note, dots, start=start, end=end, is_joined=True)


def place_of(seconds: float, placed: Sequence[tuple[float, RunColumn]]) -> float:
    """Return where a moment is on the axis; what is in progress fills half of its column."""
    at = 0.0
    for place, column in placed:
        if column.start is None or column.end is None:
            continue
        if seconds < column.start:
            return at
        width = column.width * (0.5 if column.is_current else 1.0)
        share = min(1.0, (seconds - column.start) / max(0.1, column.end - column.start))
        at = place + width * share
    return at


def run_picture(
    columns: Sequence[RunColumn],
    moments: Sequence[tuple[float, RolloutProgress]],
    *,
    until: float,
    is_running: bool,
    has_maximum: bool,
    unit: str,
    is_held: bool = False,
) -> RunPicture:
    """Return the picture of columns with the line of these moments and of what is planned.

    `is_held`: the run continues after an action of a user only, so that nothing is expected.
    """
    drawn = RunPicture(tuple(columns), (), (), (), 1, None, "", unit)
    placed = drawn.placed_columns
    size = sum(len(column.dots) for column in columns)
    known = [rollout_progress for _, rollout_progress in moments] or [
        RolloutProgress(size, 0, 0, 0, size, 0, size)
    ]
    first = known[0]
    progress = known[-1]
    number = progress.number
    # In an initial deployment nothing can become unavailable.
    minimum = progress.min_available * bool(first.available)
    missing = max(0, first.number - first.available)
    now = None
    if is_running and any(column.start is not None for column in columns):
        now = place_of(until, placed)
    # What a run ends with has a piece of the axis, too.
    last = drawn.slots * (0.95 + 0.05 * is_running)
    # What a run finds is so from its start, also where its first column took no time.
    points = [
        LinePoint(
            (turn > 0) * min(place_of(at, placed), last),
            rollout_progress.old,
            rollout_progress.new,
        )
        for turn, (at, rollout_progress) in enumerate(_thinned(moments))
    ]
    planned: list[LinePoint] = []
    if is_running or not moments:
        planned = _planned_points(placed, progress, minimum)
        if now is None:
            points = planned  # before the first start, all of the line is the plan
        else:
            points.append(LinePoint(now, progress.old, progress.new, is_planned=True))
            planned = [] if is_held else planned
            points += planned
    bounds = [("minimum", minimum)]
    if has_maximum and progress.max_total != number:
        bounds.append(("maximum", progress.max_total))
    lines = [(0.0, float(drawn.slots), value) for _, value in bounds if value]
    # Clusters that were not available before the run are not lost by it.
    lowest = [
        (place, place + column.width, column.minimum - missing)
        for place, column in placed
        if column.minimum is not None and column.minimum > missing
    ]
    labels = [
        *((f"{words} {value:,}", value) for words, value in bounds if value),
        *((f"minimum {value:,}", value) for *_, value in lowest[-1:]),
    ]
    if lowest or not moments:
        labels.append((f"all {number:,}", number))
    heights = (
        1,
        number,
        *(point.available for point in points),
        *dict(labels).values(),
    )
    top = max(heights) * 1.25  # with room for the title
    if planned:
        labels.append((f"{points[-1].available:,} expected", points[-1].available))
    elif moments and is_running:
        labels.append((f"{progress.available:,} available", progress.available))
    if is_running and progress.available < minimum:
        labels.append(
            (f"{minimum - progress.available:,} below the minimum", progress.available)
        )
    available = f"{progress.available:,} of {number:,}"
    return replace(
        drawn,
        points=tuple(points),
        ticks=tuple(_ticks(placed, now, until)),
        labels=tuple(_labels(labels, top)),
        top=top,
        now=now,
        caption="; ".join(
            [
                counted(sum(bool(column.dots) for column in columns), unit),
                f"{available} clusters available",
                *(
                    f"{column.name} {column.lasting}"
                    for column in columns
                    if column.is_break
                ),
            ]
        ),
        available=available,
        minimums=(*lines, *lowest),
        limits=tuple(
            f"minimum {value:,} in stage {dict(placed)[start].name}:"
            f" {first.available:,} at the start, {first.available - value:,} at a time"
            for start, end, value in lowest
            if end > (now or 0)
        ),
        note=_ADDITIONS * has_maximum,
    )


def _thinned(
    moments: Sequence[tuple[float, RolloutProgress]],
) -> list[tuple[float, RolloutProgress]]:
    """Return, of more than 400 moments, those with the least available and the last of each stretch."""
    if len(moments) <= MOST_POINTS:
        return list(moments)
    stretch = -(-2 * len(moments) // MOST_POINTS)
    drawn = []
    for start in range(0, len(moments), stretch):
        part = moments[start : start + stretch]
        lowest = min(range(len(part)), key=lambda place: part[place][1].available)
        drawn += [part[place] for place in sorted({lowest, len(part) - 1})]
    return drawn


def _planned_points(
    placed: Sequence[tuple[float, RunColumn]],
    progress: RolloutProgress,
    minimum: int,
) -> list[LinePoint]:
    """Return what the line does if no update fails: a wave leaves the old revision for the new one.

    So many are updated at once as the minimum leaves, and the line does not fall below it.
    """
    old, new, number = progress.old, progress.new, progress.number
    points = []
    for place, column in placed:
        left = [dot for dot in column.dots if dot.level != "healthy"]
        # What the plan ends with has a piece of the axis, too.
        width = column.width * (0.95 if column is placed[-1][1] else 1.0)
        if column.is_current:
            new += sum(dot.level == "progress" for dot in left)
            points.append(LinePoint(place + width, old, new, is_planned=True))
        elif column.start is None and left:
            # A stage updates as many clusters at once as its minimum leaves; a wave all of them.
            size = len(left)
            if column.minimum is not None:
                size = max(1, number - column.minimum)
            if minimum:
                size = max(1, min(size, old + new - minimum))
            batches = range(0, len(left), size)
            for turn, first in enumerate(batches):
                updated = len(left[first : first + size])
                at = place + width * turn / len(batches)
                old = max(0, old - updated, min(old, minimum - new))
                points.append(LinePoint(at, old, new, is_planned=True))
                # Clusters that have the revision already are among those of the plan.
                new = min(number, new + updated)
                old = min(old, number - new)
            points.append(LinePoint(place + width, old, new, is_planned=True))
    return points


def _ticks(
    placed: Sequence[tuple[float, RunColumn]], now: float | None, until: float
) -> list[tuple[float, str]]:
    """Return the times of the starts, or of a plan how many clusters are updated after each wave."""
    started = [(place, column) for place, column in placed if column.start is not None]
    if not started:
        counts, ticks = 0, [(0.0, "0")]
        for place, column in placed:
            counts += len(column.dots)
            ticks.append((place + column.width, f"{counts:,}"))
        return ticks
    starts = {
        duration_text(column.start or 0): place for place, column in reversed(started)
    }
    ticks = [(place, words) for words, place in reversed(starts.items())]
    place, last = started[-1]
    if now is not None:
        return [*ticks, (now, "now")]  # the header counts the time on
    return [*ticks, (place + last.width, duration_text(last.end or until))]


def _labels(ends: Sequence[tuple[str, int]], top: float) -> list[LineLabel]:
    """Return the labels at the end of the line, from above, moved apart where they would overlap."""
    labels: list[LineLabel] = []
    highest = 100.0
    words_at = grouped((value, words) for words, value in dict(ends).items())
    for value in sorted(words_at, reverse=True):
        words = ", ".join(words_at[value])
        height = 100 * value / top
        highest = min(height, highest)
        labels.append(LineLabel(words, value, round(height, 2), round(highest, 2)))
        highest -= _LETTERS
    return labels


def stage_columns(
    run: StagedRunPlan,
    dots: Mapping[str, Dot],
    *,
    since: datetime,
    until: datetime,
) -> list[RunColumn]:
    """Return the stages of a run, and between them its timed waits and approvals, which break the axis."""
    columns: list[RunColumn] = []

    def seconds(moment: datetime | None) -> float:
        return seconds_between(since, moment or until)

    def approval(asked: datetime | None, given: datetime | None, stage: Stage) -> None:
        if asked is None:
            return
        start = max(
            [seconds(asked), *(run_column.end or 0.0 for run_column in columns[-1:])]
        )
        column = RunColumn(
            f"Approval of {stage.name}",
            start=start,
            end=max(start, seconds(given or run.ended_at)),
            is_break=True,
        )
        if given is None and run.outcome is None:
            column = replace(column, width=2, gate=stage.name)
        columns.append(column)

    for number, stage in enumerate((*run.stages, run.deletions), 1):
        if not stage.steps:
            continue
        approval(stage.requested_before_at, stage.approved_before_at, stage)
        name = "Removals" if stage is run.deletions else stage.name
        column = _column(f"{number} {name}", stage.cluster_names, dots)
        if stage is not run.deletions:
            column = replace(
                column,
                details=(f"{stage.limit:,} at a time",),
                minimum=len(run.steps) - len(run.deletions.steps) - stage.limit,
            )
        began = [step.started_at for step in stage.steps if step.started_at]
        if began:
            updated = stage.updated_at or stage.ended_at
            column = replace(
                column,
                start=seconds(min(began)),
                end=seconds(updated or run.ended_at),
                is_current=updated is None and run.outcome is None,
            )
        columns.append(column)
        if stage.wait and stage.updated_at:
            ends = min(stage.updated_at + stage.wait, stage.ended_at or until)
            columns.append(
                RunColumn(
                    "Timed wait",
                    start=seconds(stage.updated_at),
                    end=seconds(max(stage.updated_at, ends)),
                    is_break=True,
                )
            )
        approval(stage.requested_after_at, stage.approved_after_at, stage)
    return columns


def stage_moments(
    run: StagedRunPlan, parts: Mapping[str, Part], *, since: datetime
) -> list[tuple[float, RolloutProgress]]:
    """Return the progress of a staged run, counted from the starts and ends of its updates.

    Clusters that are updated before their turn are so from the start.
    """
    steps = [step for stage in run.stages for step in stage.steps]
    number = len(steps)
    changes: list[tuple[float, int, int]] = []
    for step in steps:
        if step.started_at:
            changes.append((seconds_between(since, step.started_at), -1, 0))
        if step.done_at:
            fewer = 0 if step.started_at else -1
            changes.append((seconds_between(since, step.done_at), fewer, 1))
    new = sum(
        not step.started_at and parts[step.name] is Part.UPDATED for step in steps
    )
    old = number - new
    moments = [(0.0, RolloutProgress(old, new, 0, 0, number, 0, number))]
    for at, fewer, more in sorted(changes):
        old += fewer
        new += more
        away = number - old - new
        moments.append((at, RolloutProgress(old, new, away, 0, number, 0, number)))
    return moments
