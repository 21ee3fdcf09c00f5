"""The history of a placement: its snapshots and decisions, and any two of them compared."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from fleetui.apimachinery.model import Semantics
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.htmx import render_page
from fleetui.middleware import costly
from fleetui.pagination import BadCursorError
from fleetui.permissions import for_readers
from placements.explain.diff import FieldDifference, differences
from placements.explain.vocabulary import counted, joined, policy_sentence
from placements.models import Decision, Placement, PolicySnapshot, ResourceSnapshot
from placements.services.history.compare import IncomparableRevisionsError, UnknownRevisionError, compare
from placements.services.history.queries import (
    EntryKind,
    HistoryEntry,
    PolicyRestore,
    cursor_above,
    history_of,
    number_restores,
    numbers_under,
    policy_restores,
)
from placements.services.snapshots import policy_of
from placements.web.request import PAGE_SIZE

_CHANGES_SHOWN, _NAMES_SHOWN = 4, 20
_KEY = re.compile("[a-z0-9-]{1,40}")
_POLICY = re.compile("p([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One line: what it is, what changed by it, and whether it can be restored.

    `restored` is the manifest that restoring a policy would bring to the editor.
    """

    entry: HistoryEntry
    by: str
    description: str
    url: str = ""
    is_latest: bool = False
    changes: list[FieldDifference] = field(default_factory=list)
    restored: str = ""
    restored_words: str = ""
    is_current: bool = False
    rolls_back: bool = False

    @property
    def is_policy(self) -> bool:
        return self.entry.kind is EntryKind.POLICY


@for_readers
@require_safe
def history(request: HttpRequest, name: str) -> HttpResponse:
    """List the snapshots and decisions of a placement, newest first; `?at=p3` begins with a policy."""
    found = get_object_or_404(Placement, full_name=name)
    after, at = request.GET.get("after"), _POLICY.fullmatch(request.GET.get("at", ""))
    is_folded = request.GET.get("unchanged") != "1"
    policy = at[1] if at and after is None else ""  # later pages are asked for without it
    try:
        page = history_of(found, is_folded=is_folded, size=PAGE_SIZE, after=after)
    except BadCursorError:
        page = history_of(found, is_folded=is_folded, size=PAGE_SIZE)
    if policy and all(entry.key != f"p{policy}" for entry in page.entries):
        cursor = cursor_above(found, int(policy))
        page = (
            page if cursor is None else history_of(found, is_folded=is_folded, size=PAGE_SIZE, after=cursor)
        )

    rows = [entry.row for entry in page.entries]
    restores = policy_restores(
        found, [row for row in rows if isinstance(row, PolicySnapshot) and not row.is_latest]
    )
    numbers = number_restores(found, [row for row in rows if isinstance(row, Decision)])
    chosen = ("", "")  # what is compared most often: the last two decisions, or the last two policies
    for kind in (EntryKind.POLICY, EntryKind.DECISION):
        keys = list(dict.fromkeys(one.key for one in page.entries if one.kind is kind))
        if len(keys) > 1:
            chosen = keys[1], keys[0]
    context = {
        "placement": found,
        "tab": "history",
        "clusters": None,
        "at": f"p{policy}",
        "missing": policy if all(entry.key != f"p{policy}" for entry in page.entries) else "",
        "is_folded": is_folded,
        "rows": [_row(found, entry, restores, numbers) for entry in page.entries],
        "after": page.after,
        "chosen_before": chosen[0],
        "chosen_after": chosen[1],
    }
    return render_page(request, "placements/history.html", context)


def _row(
    placement: Placement,
    entry: HistoryEntry,
    restores: Mapping[int, PolicyRestore],
    numbers: Mapping[int, dict[str, Any]],
) -> HistoryRow:
    if isinstance(entry.row, PolicySnapshot):
        restore = restores.get(entry.row.number, PolicyRestore(None, is_current=False))
        row = entry.row
        before, sentence = entry.before, ""
        changes = differences(_content(before), _content(row)) if isinstance(before, PolicySnapshot) else []
        if not changes:
            policy = policy_of(row, numbers_under(placement, [row.number])[row.number])
            sentence = policy_sentence(policy, Semantics(row.semantics), row.options)
        return HistoryRow(
            entry,
            row.created_by,
            sentence,
            is_latest=row.is_latest,
            changes=changes[:_CHANGES_SHOWN],
            restored=_restored_text(restore),
            restored_words=entry.title,
            is_current=restore.is_current,
        )
    if isinstance(entry.row, ResourceSnapshot):
        return _resource_row(placement, entry, entry.row)
    restored = numbers.get(entry.row.number)
    return replace(
        _decision_row(entry, entry.row),
        restored=dump_yaml(restored) if restored else "",
        restored_words=f"{entry.row.wanted:,} clusters" if restored else "",
    )


def _content(row: PolicySnapshot) -> dict[str, Any]:
    """Return what a policy snapshot holds, without what is empty."""
    policy = {key: value for key, value in row.policy.items() if value not in (None, [], {})}
    options = {"options": row.options} if row.options else {}
    return {**policy, "semantics": row.semantics, **options}


def _restored_text(restore: PolicyRestore) -> str:
    """Return the manifest that is worth restoring."""
    return "" if restore.manifest is None or restore.is_current else dump_yaml(restore.manifest)


def _resource_row(placement: Placement, entry: HistoryEntry, row: ResourceSnapshot) -> HistoryRow:
    before, description = entry.before, counted(row.objects_count, "object")
    if isinstance(before, ResourceSnapshot):
        old, new = (dict.fromkeys(map(tuple, one.identities)) for one in (before, row))
        added = sum(one not in old for one in new)
        removed = sum(one not in new for one in old)
        changes = [
            *([f"{counted(added, 'object')} added"] if added else ()),
            *([f"{counted(removed, 'object')} removed"] if removed else ()),
        ]
        description = joined(changes) or f"{counted(len(new), 'object')}, content changed"
    is_pinned_elsewhere = placement.pinned_snapshot is not None and placement.pinned_snapshot != row.number
    return HistoryRow(
        entry,
        row.created_by,
        description,
        is_latest=row.is_latest,
        rolls_back=not row.is_latest or is_pinned_elsewhere,
    )


def _decision_row(entry: HistoryEntry, row: Decision) -> HistoryRow:
    before, changes = entry.before, []
    # Another number of clusters makes no policy snapshot of its own.
    if isinstance(before, Decision) and before.wanted != row.wanted:
        old, new = (None if one.wanted is None else str(one.wanted) for one in (before, row))
        changes = [FieldDifference("numberOfClusters", old, new)]
    url = reverse("web:decision", args=[row.record.decision_id])
    return HistoryRow(entry, row.triggered_by, row.trigger, url=url, changes=changes)


@for_readers
@require_safe
def choose(request: HttpRequest, name: str) -> HttpResponse:
    """Go to the comparison of the two that were chosen; to the history where they were not."""
    before, after = (request.GET.get(side, "").strip() for side in ("before", "after"))
    if not (_KEY.fullmatch(before) and _KEY.fullmatch(after)):
        return redirect("web:placement-history", name)
    return redirect("web:comparison", name, before, after)


@for_readers
@costly
@require_safe
def compare_two(request: HttpRequest, name: str, before: str, after: str) -> HttpResponse:
    """Show what differs between two snapshots or decisions of a placement."""
    found = get_object_or_404(Placement, full_name=name)
    try:
        comparison = compare(found, before, after)
    except UnknownRevisionError as error:
        raise Http404(str(error)) from error
    except IncomparableRevisionsError as error:
        context = {"placement": found, "error": str(error), "comparison": None}
        return render(request, "placements/compare.html", context, status=422)
    sides = {
        side.snapshot.number: (side, side.snapshot)
        for side in comparison.sides
        if side.snapshot and not side.snapshot.is_latest
    }
    restores = policy_restores(found, [snapshot for _, snapshot in sides.values()])
    is_resources = comparison.before.resources is not None
    entries = history_of(found, size=PAGE_SIZE, is_folded=True).entries
    kept = [one for one in entries if (one.kind is EntryKind.RESOURCES) == is_resources]
    revisions = {one.key: one.title for one in kept} | {one.key: one.title for one in comparison.sides}
    context = {
        "placement": found,
        "comparison": comparison,
        "error": "",
        "revisions": list(revisions.items()),
        "choices": [("before", "From", comparison.before.key), ("after", "To", comparison.after.key)],
        "restorable": [
            (side, _restored_text(restores[number]), restores[number].is_current)
            for number, (side, _) in sides.items()
        ],
        "most": _NAMES_SHOWN,
    }
    return render(request, "placements/compare.html", context)
