"""The history of a placement: its snapshots and decisions, and any two of them compared."""

import re
from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.model import Semantics
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.concurrency import RevisionConflict
from fleetui.htmx import render_page
from fleetui.middleware import costly
from fleetui.permissions import current_user, for_readers
from placements.engine.scheduling.decision import ENGINE_VERSION
from placements.explain.diff import FieldDifference, differences, document_diff
from placements.explain.run_pages import wait_rows
from placements.explain.vocabulary import policy_sentence
from placements.models import Placement, PolicySnapshot, RunKind
from placements.services.actions import ActionKind
from placements.services.decisions.records import latest_decision
from placements.services.editor.operations import plan_of_revision
from placements.services.editor.preview import preview_draft
from placements.services.editor.validation import PlacementDraft
from placements.services.fleet.queries import stale_picks_of, with_outdated
from placements.services.health import health_of, with_rollouts
from placements.services.history.compare import (
    IncomparableRevisionsError,
    compare,
    load_contents,
    resource_words,
)
from placements.services.history.queries import (
    FurtherDecisions,
    Revision,
    further_decisions,
    revision_titles,
    revisions_of,
    spec_restores,
    with_revision,
)
from placements.services.placements import UnschedulesEverything
from placements.services.roll_back import (
    restorable,
    restoration_of,
    roll_back_to,
)
from placements.services.rollouts.operations import ActionNotAllowed, why_not_roll_back
from placements.services.snapshots import policy_of
from placements.web.placements import head_context
from placements.web.request import (
    PAGE_SIZE,
    RowRange,
    actor,
    for_action,
    is_confirmed,
    number_of,
    redirect_after,
)
from placements.web.review import (
    cluster_changes,
    preview_context,
    rollout_sentence,
)
from placements.web.rollouts import RunRow, run_rows

_CHANGES_SHOWN, _NAMES_SHOWN = 4, 20
_KEY = re.compile("[a-z0-9-]{1,40}")
_POLICY = re.compile("p([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class RevisionRow:
    """One revision, what changed by it, and the manifest that restoring it brings to the editor."""

    revision: Revision
    key: str
    title: str
    description: str
    changes: list[FieldDifference]
    restored: str
    further: FurtherDecisions
    rolls_back: bool
    rollout: RunRow | None


@for_readers
@require_safe
def history(request: HttpRequest, name: str) -> HttpResponse:
    """List the revisions of a placement, newest first; `?at=p3` starts with the page of a policy."""
    placements = with_rollouts(
        with_revision(Placement.objects.all())
        .select_related("staleness_check", "assertion_check")
        .prefetch_related("policy_snapshots")
    )
    placement = get_object_or_404(with_outdated(placements), full_name=name)
    now = datetime.now(UTC)
    at = _POLICY.fullmatch(request.GET.get("at", ""))
    revisions = revisions_of(placement)
    target = next(
        (
            revision
            for revision in reversed(revisions)
            if at and revision.policy == int(at[1])
        ),
        None,
    )
    first = number_of(request.GET.get("from", "")) or (
        revisions.index(target) if target else 0
    )
    shown = RowRange(first - first % PAGE_SIZE, PAGE_SIZE, len(revisions))
    page = revisions[shown.start : shown.last]
    snapshots = {
        snapshot.number: snapshot for snapshot in placement.policy_snapshots.all()
    }
    restores = spec_restores(placement, page)
    kind = None if placement.runs_made else RunKind.STAGED
    runs = run_rows(placement, most=4 * PAGE_SIZE, kind=kind)
    latest, further = further_decisions(placement, revisions, page)
    rollouts = _rollouts_of(revisions, runs)
    compared = [
        snapshot
        for revision in page
        if revision.is_of_resources and revision.before
        for snapshot in (revision.resources, revision.before.resources)
        if snapshot
    ]
    has_content = load_contents(list(dict.fromkeys(compared)))
    restored = {at: dump_yaml(document) for at, document in restores.items()}
    rows = [
        _row(
            placement,
            revision,
            snapshots,
            has_content,
            restored.get(revision.at, ""),
            further[revision.at],
            rollouts.get(revision.at),
        )
        for revision in page
    ]
    if latest and latest.record.engine != ENGINE_VERSION:
        latest = latest_decision(placement)
    run = next((row.run for row in runs if not row.run.is_staged), None)
    stale = list(stale_picks_of(placement)) if placement.is_outdated else []
    return render_page(
        request,
        "placements/history.html",
        {
            **head_context(
                placement,
                latest,
                health_of(placement, now=now),
                stale,
                now=now,
                run=run,
            ),
            "tab": "history",
            "clusters": None,
            "target": target,
            "missing": at[1] if at and target is None else "",
            "rows": rows,
            "sides": (("before", "from", 2), ("after", "to", 1)),
            "earlier": shown.earlier,
            "later": shown.later,
        },
    )


def _rollouts_of(
    revisions: Sequence[Revision], runs: Sequence[RunRow]
) -> dict[datetime, RunRow]:
    """Return the newest rollout of each revision, by when this began.

    A rollout belongs to all revisions from the last before it to its own, which edits
    change while it runs.
    """
    starts = [revision.at for revision in reversed(revisions)]
    places = {revision.number: at for at, revision in enumerate(reversed(revisions), 1)}
    rollouts: dict[datetime, RunRow] = {}
    for row in reversed(runs):
        began = bisect(starts, row.began_at)
        last = max(began, places.get(row.run.revision_number, 0))
        rollouts |= dict.fromkeys(starts[max(began - 1, 0) : last], row)
    return rollouts


def _row(
    placement: Placement,
    one: Revision,
    snapshots: Mapping[int, PolicySnapshot],
    has_content: bool,
    restored: str,
    further: FurtherDecisions,
    rollout: RunRow | None,
) -> RevisionRow:
    before, new = one.before, snapshots.get(one.policy or 0)
    changes: list[FieldDifference] = []
    if before:
        old = snapshots.get(before.policy or 0)
        if old and new and old is not new:
            changes += differences(_content(old), _content(new))
        if one.decision and before.wanted != one.wanted:
            numbers = (
                None if number is None else str(number)
                for number in (before.wanted, one.wanted)
            )
            changes.insert(0, FieldDifference("numberOfClusters", *numbers))
        changes += differences(
            {**(before.fields or {}), "strategy": before.strategy},
            {**(one.fields or {}), "strategy": one.strategy},
        )
        description = (
            resource_words(before.resources, one.resources, has_content=has_content)
            if one.is_of_resources and one.resources
            else ""
        )
    else:
        # A hub has not decided yet, or its decision has no number.
        number = placement.number_of_clusters if one.wanted is None else one.wanted
        description = _policy_words(new, number)
        if one.number == 1:
            description = f"Created. {description}"
    if one.decision and not changes and not description:
        description = one.decision.trigger
    pinned, resources = placement.pinned_snapshot, one.resources
    return RevisionRow(
        one,
        f"{one.spec_key}~s{resources.number}" if resources else one.spec_key,
        f"revision {one.number}",
        description,
        changes[:_CHANGES_SHOWN],
        restored,
        further,
        resources is not None
        and (not resources.is_latest or pinned not in (None, resources.number)),
        rollout,
    )


def _content(row: PolicySnapshot) -> dict[str, Any]:
    """Return what a policy snapshot holds, without what is empty."""
    policy = {
        key: value for key, value in row.policy.items() if value not in (None, [], {})
    }
    options = {"options": row.options} if row.options else {}
    return {**policy, "semantics": row.semantics, **options}


@for_action(ActionKind.ROLLING, "roll-back")
@costly
@require_http_methods(["GET", "HEAD", "POST"])
def roll_back(request: HttpRequest, name: str) -> HttpResponse:
    """Show what rolling back to a revision restores, the newest earlier one without `?number=`, or do it."""
    placement = get_object_or_404(
        with_revision(Placement.objects.prefetch_related("policy_snapshots")),
        full_name=name,
    )
    number = number_of(request.POST.get("number") or request.GET.get("number", ""))
    page = _roll_back_context(request, placement, number)
    if request.method == "POST" and number is None and not page["refusal"]:
        page["refusal"] = f"{name} cannot roll back without the number of a revision"
    if request.method != "POST" or page["refusal"]:
        status = 409 if request.method == "POST" else 200
        return render_page(
            request,
            "placements/roll_back.html",
            page,
            fragment="placements/_rollback.html",
            status=status,
        )
    if page["unlikely"] and "accept" not in request.POST:
        page["unaccepted"] = True
        return render(request, "placements/roll_back.html", page, status=422)
    try:
        done = roll_back_to(
            name,
            page["restoration"].target.number,
            **actor(request),
            expected=number_of(request.POST.get("revision", ""), digits=18),
            confirmed=is_confirmed(request),
        )
    except UnschedulesEverything as error:
        page["empties"] = error
    except InvalidManifest as error:
        page["refusal"] = "; ".join(field_error.message for field_error in error.errors)
    except RevisionConflict:
        page["refusal"] = f"{name} was changed while you reviewed this"
    except (ActionNotAllowed, PermissionDenied) as error:
        page["refusal"] = str(error).rstrip(".")
    else:
        return redirect_after(request, done.message(name), "web:placement", name)
    return render(request, "placements/roll_back.html", page, status=409)


def _roll_back_context(
    request: HttpRequest, placement: Any, number: int | None
) -> dict[str, Any]:
    """Return the earlier revisions, and what restoring one of them changes and selects."""
    revisions = revisions_of(placement)
    earlier = restorable(placement, revisions)
    snapshots = {one.number: one for one in placement.policy_snapshots.all()}
    refusal = why_not_roll_back(placement)
    restoration = None
    if number is None:
        number = next(
            (revision.number for revision in [*earlier, *revisions[1:]]), None
        )
    if not refusal and number is not None:
        try:
            restoration = restoration_of(placement, number, revisions)
        except ActionNotAllowed as error:
            refusal = str(error)
    context: dict[str, Any] = {
        "placement": placement,
        "earlier": [
            (
                revision,
                _policy_words(snapshots.get(revision.policy or 0), revision.wanted),
            )
            for revision in earlier
        ],
        "number": number,
        "restoration": restoration,
        "refusal": refusal,
        "unlikely": (),
    }
    if restoration is None:
        return context
    if restoration.resources is not None:
        latest = placement.resource_snapshots.get(is_latest=True)
        context["resource_changes"] = compare(
            placement, f"s{latest.number}", f"s{restoration.resources}"
        ).resources
    if restoration.document is None:
        plan = plan_of_revision(placement, now=datetime.now(UTC))
        return {
            **context,
            "plan": plan,
            "blocked_rows": wait_rows(plan.rest, {}),
            "stale": stale_picks_of(placement),
        }
    draft = PlacementDraft.parse(
        dump_yaml(restoration.document), name=placement.full_name
    )
    preview = preview_draft(
        draft, saved=placement, now=datetime.now(UTC), by=current_user(request)
    )
    context["refusal"] = "; ".join(
        field_error.message for field_error in preview.errors
    )
    context["lines"] = document_diff(placement.document, restoration.document)
    if preview.schedule is None:
        return context
    snapshot = None
    if restoration.resources is not None:
        snapshot = restoration.target.resources
    schedule = replace(preview.schedule, snapshot=snapshot)
    plan = schedule.plan(now=datetime.now(UTC))
    return {
        **context,
        **preview_context(replace(preview, schedule=schedule)),
        "rollout": rollout_sentence(schedule, plan.waves),
        "blocked_rows": wait_rows(plan.rest, {}),
        "unlikely": schedule.unlikely_results,
    }


def _policy_words(snapshot: PolicySnapshot | None, number: int | None) -> str:
    """Return the policy of a revision as a sentence; empty where it or its number is not kept."""
    if snapshot is None:
        return ""
    if snapshot.policy.get("placementType") != "PickN":
        number = None
    elif number is None:
        return ""
    return policy_sentence(
        policy_of(snapshot, number), Semantics(snapshot.semantics), snapshot.options
    )


@for_readers
@require_safe
def choose(request: HttpRequest, name: str) -> HttpResponse:
    """Go to the comparison of the two that were chosen; to the history where they were not."""
    before, after = (request.GET.get(side, "").strip() for side in ("before", "after"))
    # Of two revisions their policies are compared, or where these are equal their resources.
    if "~" in before and "~" in after:
        old, new = before.split("~", 1), after.split("~", 1)
        before, after = (old[1], new[1]) if old[0] == new[0] else (old[0], new[0])
    if not (_KEY.fullmatch(before) and _KEY.fullmatch(after)):
        return redirect("web:placement-history", name)
    return redirect("web:comparison", name, before, after)


@for_readers
@costly
@require_safe
def compare_two(
    request: HttpRequest,
    name: str,
    before: str,
    after: str,
) -> HttpResponse:
    """Show what differs between two snapshots or decisions of a placement."""
    placement = get_object_or_404(Placement, full_name=name)
    try:
        comparison = compare(placement, before, after)
    except IncomparableRevisionsError as error:
        context = {"placement": placement, "error": str(error), "comparison": None}
        return render(request, "placements/compare.html", context, status=422)
    titles = revision_titles(placement)
    old, new = (
        replace(side, title=titles.get(side.key, side.title))
        for side in comparison.sides
    )
    comparison = replace(comparison, before=old, after=new)
    is_resources = comparison.before.resources is not None
    revisions = {
        **{
            key: title
            for key, title in titles.items()
            if (key[0] == "s") == is_resources
        },
        **{side.key: side.title for side in comparison.sides},
    }
    context = {
        "placement": placement,
        "comparison": comparison,
        "error": "",
        "revisions": list(revisions.items()),
        "choices": [
            ("before", "From", comparison.before.key),
            ("after", "To", comparison.after.key),
        ],
        "most": _NAMES_SHOWN,
        "changes": comparison.decision and cluster_changes(comparison.decision),
    }
    return render(request, "placements/compare.html", context)
