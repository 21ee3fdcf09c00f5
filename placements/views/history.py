"""The past of a placement: what it was asked and what was decided, and any two of those side by side."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from fleetui.access import for_readers
from fleetui.htmx import render_page
from fleetui.paging import BadCursorError
from placements.explain.diffs import Difference, differences
from placements.explain.sentences import policy_sentence
from placements.explain.wording import counted, joined
from placements.manifests import dump_yaml
from placements.models import Decision, Placement, PolicySnapshot, ResourceSnapshot
from placements.queries.comparing import (
    Comparison,
    Side,
    UnknownSideError,
    UnlikeSidesError,
    compare,
)
from placements.queries.history import Entry, EntryKind, History, cursor_above, history_of
from placements.queries.restoring import Restoring, number_under, restoring, restorings
from placements.scheduling.semantics import Semantics
from placements.snapshots import policy_of
from placements.views.lists import PAGE_SIZE

_CHANGES_SHOWN, _NAMES_SHOWN = 4, 20
_KEY = re.compile("[a-z0-9-]{1,40}")
_POLICY = re.compile("p([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One line: what it is, what changed by it, and whether it can be had again."""

    entry: Entry
    title: str
    by: str
    words: str
    url: str = ""
    is_latest: bool = False
    changes: list[Difference] = field(default_factory=list)
    restored: str = ""
    """The manifest that restoring it would bring to the editor."""
    is_todays: bool = False
    rolls_back: bool = False

    @property
    def is_policy(self) -> bool:
        """Tell whether it is a policy, of which each stands here once."""
        return self.entry.kind is EntryKind.POLICY


@for_readers
@require_safe
def history(request: HttpRequest, name: str) -> HttpResponse:
    """List what a placement was asked and what was decided, newest first."""
    found = get_object_or_404(Placement, name=name)
    wanted = _wanted(request)
    page = _page_with(found, wanted) if wanted else _page(request, found)
    older = restorings(found, _older_policies(page.entries))
    context = {
        "placement": found,
        "at": f"p{wanted}",
        "missed": wanted if all(entry.key != f"p{wanted}" for entry in page.entries) else "",
        "rows": [_row(found, entry, older) for entry in page.entries],
        "after": page.after,
        **_two_latest(page.entries),
    }
    return render_page(request, "placements/history.html", context)


def _two_latest(entries: list[Entry]) -> dict[str, str]:
    """Choose beforehand what is compared most often: the last two decisions, or the last two policies."""
    for kind in (EntryKind.DECISION, EntryKind.POLICY):
        keys = list(dict.fromkeys(one.key for one in entries if one.kind is kind))
        if len(keys) > 1:
            return {"chosen_before": keys[1], "chosen_after": keys[0]}
    return {"chosen_before": "", "chosen_after": ""}


def _page(request: HttpRequest, placement: Placement) -> History:
    try:
        return history_of(placement, size=PAGE_SIZE, after=request.GET.get("after"))
    except BadCursorError:
        return history_of(placement, size=PAGE_SIZE)


def _wanted(request: HttpRequest) -> str:
    """Read the number of the policy to begin with; later pages are asked for without it."""
    found = _POLICY.fullmatch(request.GET.get("at", ""))
    return found[1] if found and "after" not in request.GET else ""


def _page_with(placement: Placement, number: str) -> History:
    """Give the page on which a policy stands: the first, or the one that begins with it."""
    first = history_of(placement, size=PAGE_SIZE)
    if any(entry.key == f"p{number}" for entry in first.entries):
        return first
    cursor = cursor_above(placement, int(number))
    return first if cursor is None else history_of(placement, size=PAGE_SIZE, after=cursor)


def _older_policies(entries: list[Entry]) -> list[PolicySnapshot]:
    rows = (entry.row for entry in entries)
    return [row for row in rows if isinstance(row, PolicySnapshot) and not row.is_latest]


def _row(placement: Placement, entry: Entry, older: Mapping[int, Restoring]) -> HistoryRow:
    match entry.row:
        case PolicySnapshot():
            found = older.get(entry.row.number, Restoring(None, is_todays=False))
            return _policy_row(placement, entry, entry.row, found)
        case ResourceSnapshot():
            return _resource_row(placement, entry, entry.row)
    return _decision_row(entry, entry.row)


def _sentence(placement: Placement, row: PolicySnapshot) -> str:
    policy = policy_of(row, number_under(placement, row))
    return policy_sentence(policy, Semantics(row.semantics), row.options)


def _policy_row(placement: Placement, entry: Entry, row: PolicySnapshot, found: Restoring) -> HistoryRow:
    before = entry.before
    changes = differences(_asked(before), _asked(row)) if isinstance(before, PolicySnapshot) else []
    return HistoryRow(
        entry,
        f"policy #{row.number}",
        row.created_by,
        "" if changes else _sentence(placement, row),
        is_latest=row.is_latest,
        changes=changes[:_CHANGES_SHOWN],
        restored=_text(found),
        is_todays=found.is_todays,
    )


def _text(found: Restoring) -> str:
    """Write the manifest that is worth bringing to the editor."""
    return "" if found.manifest is None or found.is_todays else dump_yaml(found.manifest)


def _asked(row: PolicySnapshot) -> dict[str, Any]:
    """Give what a policy snapshot holds; what is empty says nothing."""
    policy = {key: value for key, value in row.policy.items() if value not in (None, [], {})}
    options = {"options": row.options} if row.options else {}
    return {**policy, "semantics": row.semantics, **options}


def _resource_row(placement: Placement, entry: Entry, row: ResourceSnapshot) -> HistoryRow:
    holds_another = placement.held_number is not None and placement.held_number != row.number
    return HistoryRow(
        entry,
        f"resources r{row.number}",
        row.created_by,
        _resource_words(row, entry.before),
        is_latest=row.is_latest,
        rolls_back=not row.is_latest or holds_another,
    )


def _resource_words(row: ResourceSnapshot, before: object) -> str:
    if not isinstance(before, ResourceSnapshot):
        return counted(row.objects_count, "object")
    old, new = (dict.fromkeys(map(tuple, one.identities)) for one in (before, row))
    came = [one for one in new if one not in old]
    went = [one for one in old if one not in new]
    told = [
        *([f"{counted(len(came), 'object')} came"] if came else ()),
        *([f"{counted(len(went), 'object')} went"] if went else ()),
    ]
    return joined(told) or f"the same {counted(len(new), 'object')}, with another content"


def _decision_row(entry: Entry, row: Decision) -> HistoryRow:
    before = entry.before if isinstance(entry.before, Decision) else None
    return HistoryRow(
        entry,
        f"decision {row.number}",
        row.asked_by,
        row.because,
        url=reverse("pages:decision", args=[row.record.decision_id]),
        changes=_rescaled(before, row) if before else [],
    )


def _rescaled(before: Decision, row: Decision) -> list[Difference]:
    """Tell of another number of clusters, which makes no policy snapshot of its own."""
    if before.wanted == row.wanted:
        return []
    old, new = (None if one.wanted is None else str(one.wanted) for one in (before, row))
    return [Difference("numberOfClusters", old, new)]


@for_readers
@require_safe
def choose(request: HttpRequest, name: str) -> HttpResponse:
    """Lead to the comparison of the two that were chosen; to the history where they were not."""
    before, after = (request.GET.get(side, "").strip() for side in ("before", "after"))
    if not (_KEY.fullmatch(before) and _KEY.fullmatch(after)):
        return redirect("pages:history", name)
    return redirect("pages:compare", name, before, after)


@for_readers
@require_safe
def compare_two(request: HttpRequest, name: str, before: str, after: str) -> HttpResponse:
    """Show what differs between two snapshots or decisions of a placement."""
    found = get_object_or_404(Placement, name=name)
    try:
        comparison = compare(found, before, after)
    except UnknownSideError as error:
        raise Http404(str(error)) from error
    except UnlikeSidesError as error:
        context = {"placement": found, "fault": str(error)}
        return render(request, "placements/compare.html", {**context, "comparison": None}, status=422)
    context = {
        "placement": found,
        "comparison": comparison,
        "fault": "",
        "restorable": _restorable(found, comparison),
        "most": _NAMES_SHOWN,
    }
    return render(request, "placements/compare.html", context)


def _restorable(placement: Placement, comparison: Comparison) -> list[tuple[Side, str, bool]]:
    """Give the sides with an older policy, each with the manifest that restores it, and is that today's?"""
    older: dict[int, tuple[Side, str, bool]] = {}
    for side in (comparison.before, comparison.after):
        if side.snapshot and not side.snapshot.is_latest:
            found = restoring(placement, side.snapshot)
            older[side.snapshot.number] = (side, _text(found), found.is_todays)
    return list(older.values())
