"""What the overview shows of the fleet, its rollouts and its placements, as rows of its template."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleetui.apimachinery.model import Semantics
from fleetui.apimachinery.words import counted, first_names
from placements.engine.problems import Noun, ProblemLevel
from placements.explain.run_pages import Part
from placements.explain.vocabulary import max_skew_words, measure_word
from placements.manifests.policy import PlacementType
from placements.models import ProblemKind, RunKind
from placements.services.dashboard import queries
from placements.services.dashboard.causes import AttentionItem
from placements.services.dashboard.pictures import Picture
from placements.services.dashboard.progress import RunProgress
from placements.services.dashboard.queries import PlacementHeadroom
from placements.services.filters import PlacementFilterState
from placements.services.fleet.queries import are_skews_known
from placements.services.problems.root_causes import AttentionSection
from placements.templatetags.fleet import address, run_address
from placements.web import badges


@dataclass(frozen=True, slots=True)
class FigurePart:
    """A part of a figure: its words, and its level where it is no good one."""

    words: str
    level: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    number: int
    words: str
    parts: list[FigurePart]
    since: datetime | None = None
    """When what the only part says happened."""


@dataclass(frozen=True, slots=True)
class PlacementLine:
    """A placement of the overview: its status, its picture, and available clusters.

    `limit` is in words; `ends` are the fewest and the most clusters of a domain in words.
    """

    name: str
    state: badges.Badge
    picture: Picture
    limit: str
    ends: str
    available: int
    wanted: int


@dataclass(frozen=True, slots=True)
class RunLine:
    progress: RunProgress
    name: str
    url: str
    state: badges.Badge
    step: str

    @property
    def ticks(self) -> Sequence[Sequence[tuple[Part, int]]]:
        """The bar: for each wave or stage its parts with their widths."""
        groups = self.progress.groups
        if not self.progress.has_ticks:
            return groups
        return [
            [(part, 1) for part, count in group for _ in range(count)]
            for group in groups
        ]


def _parts(*entries: tuple[int, str, str]) -> list[FigurePart]:
    return [
        FigurePart(f"{count:,} {words}", level)
        for count, words, level in entries
        if count > 0
    ]


def figures_of(
    counts: queries.Counts,
    fleet: Mapping[str, Any],
    runs: int,
    items: Collection[AttentionItem],
) -> list[Figure]:
    """Return the figures; the parts of each do not overlap."""
    of_placements = counts.of_placements
    healthy = of_placements.by_state[PlacementFilterState.HEALTHY]
    pending = [one for one in items if one.kind == ProblemKind.APPROVAL_PENDING]
    waiting = min(len({one.name for one in pending}), of_placements.waiting)
    stalled = of_placements.waiting - waiting
    quiet = of_placements.awaiting_approval, of_placements.suspended
    others = counts.placements - healthy - counts.degraded - sum(quiet)
    not_ready = [one for one in fleet["legend"] if one.kind != "healthy"]
    domains = (
        f"{counted(fleet['domains'], 'domain')} by {fleet['by']}" if fleet["by"] else ""
    )
    of_clusters = [
        FigurePart(f"{one.count:,} {one.words}", "" if one.is_quiet else one.kind)
        for one in not_ready
    ]
    is_all_unfulfilled = counts.degraded == counts.unfulfilled
    placement_parts = _parts(
        (
            counts.degraded,
            "not fulfilled" if is_all_unfulfilled else "degraded, failed or unknown",
            "attention",
        ),
        (counts.broken, "with broken assertions", "attention"),
        (of_placements.awaiting_approval, "waiting for approval", ""),
        (others, "in progress", ""),
        (of_placements.suspended, "paused or pending", ""),
    )
    run_parts = _parts(
        (runs - of_placements.waiting, "progressing", "progress"),
        (stalled, "stalled or paused", "attention"),
        (waiting, "waiting for approval", ""),
    )
    last_end = None if runs else queries.last_rollout_end()
    # Such as "edge-cache-1, stage canary".
    approvals = [FigurePart(one.title.replace(": approve", ",")) for one in pending[:1]]
    approval_words = "approval pending" if len(pending) == 1 else "approvals pending"
    run_words = "rollout in progress" if runs == 1 else "rollouts in progress"
    return [
        Figure(
            counts.ready,
            f"of {counted(counts.clusters, 'cluster')} ready",
            of_clusters or ([FigurePart(domains)] if domains else []),
        ),
        Figure(
            healthy,
            f"of {counted(counts.placements, 'placement')} healthy",
            placement_parts,
        ),
        Figure(runs, run_words, run_parts or [FigurePart("none ended yet")], last_end),
        Figure(
            len(pending),
            approval_words,
            approvals or [FigurePart("no staged run waits")],
        ),
    ]


def placement_line(
    headroom: PlacementHeadroom, picture: Picture, clusters: int
) -> PlacementLine:
    placement, counts = headroom.placement, headroom.health.counts
    limit = _NO_LIMIT[PlacementType(placement.placement_type)]
    if headroom.skews:
        worst = min(headroom.skews, key=lambda one: one.most - one.skew)
        measure = measure_word(Semantics(placement.semantics)).lower()
        most = max_skew_words(worst.most, hard=worst.is_hard)
        limit = f"{worst.key} {measure} {worst.skew} ({most})"
    elif placement.placement_type == PlacementType.PICK_N and not are_skews_known(
        placement
    ):
        limit = "skew pending"
    elif (
        placement.placement_type == PlacementType.PICK_ALL
        and counts.scheduled < clusters
    ):
        limit = "all that match"
    return PlacementLine(
        placement.full_name,
        badges.placement_state(headroom.health),
        picture,
        limit,
        picture.range_words,
        counts.available,
        max(counts.wanted, counts.scheduled),
    )


_NO_LIMIT = {
    PlacementType.PICK_ALL: "all clusters",
    PlacementType.PICK_N: "no spread",
    PlacementType.PICK_FIXED: "named clusters",
}


def run_line(progress: RunProgress) -> RunLine:
    run = progress.run
    state = badges.run_state(run)
    step = "stage" if run.kind == RunKind.STAGED else "wave"
    is_numbered = (
        progress.current is not None
        and len(progress.groups) > 1
        and state.kind != badges.APPROVAL
    )
    words = (
        f"{step} {progress.current} of {len(progress.groups)}" if is_numbered else ""
    )
    return RunLine(progress, run.placement_name, run_address(run), state, words)


_ADVICE_ROWS = 3
"""More advice than this is one row while all sections are shown."""


def rows_of(
    items: Sequence[AttentionItem], *, most: int, url: str
) -> tuple[list[AttentionItem], int]:
    """Return the first items, and how many are left out.

    More advice than three items is one row, with a link to all of it.
    """
    others = [one for one in items if one.section is not AttentionSection.ADVICE]
    advice = [one for one in items if one.section is AttentionSection.ADVICE]
    if not advice or (len(advice) <= _ADVICE_ROWS and len(items) <= most):
        return list(items[:most]), max(0, len(items) - most)
    left = max(0, len(others) - most + 1)
    if len(advice) == 1:
        return [*others[: most - 1], *advice], left
    facts = ("advice", ProblemLevel.OUTDATED, "", Noun.CLUSTER, "", "", url)
    title = f"Advice on {counted(len(advice), 'point')}"
    details = f"{first_names([one.title for one in advice])}."
    summary = AttentionItem(
        *facts, title=title, details=details, section=AttentionSection.ADVICE
    )
    return [*others[: most - 1], summary], left


def approval_url(item: AttentionItem) -> str:
    run, stage, _ = item.key.removeprefix(f"{ProblemKind.APPROVAL_PENDING}/").rsplit(
        "/", 2
    )
    return address("web:staged-run-approve", run, stage)
