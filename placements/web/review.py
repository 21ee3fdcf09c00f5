"""The review of a draft: what saving it would do, and saving just that."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods, require_POST

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.model import Semantics
from fleetui.apimachinery.words import counted
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.audit import events_since
from fleetui.concurrency import RevisionConflict
from fleetui.htmx import render_page
from fleetui.middleware import costly
from fleetui.permissions import current_user, for_operators
from placements.engine.rollout.actions import Remove
from placements.engine.rollout.waves import Wave
from placements.engine.scheduling.decision import CycleKind
from placements.explain.decision_diffs import DecisionDiff
from placements.explain.diff import differences, document_diff, line_diff, sentence_diff
from placements.explain.preview import beginning, removal_sentences
from placements.explain.vocabulary import policy_sentence
from placements.manifests.policy import PlacementType
from placements.models import Draft, Placement
from placements.services.decisions.compare_semantics import side_by_side_of_draft
from placements.services.editor.operations import ReviewedDraft, confirm_draft
from placements.services.editor.preview import (
    DraftPreview,
    SchedulePreview,
    preview_draft,
)
from placements.services.editor.validation import PlacementDraft, text_for
from placements.services.placements import UnschedulesEverything
from placements.services.results import PLACEMENT
from placements.services.scheduling import PreviewOutdatedError
from placements.services.snapshots import policy_of
from placements.services.teams import of_draft
from placements.web.dry_runs import dry_run_response
from placements.web.request import actor, is_confirmed, redirect_after
from placements.web.semantics import sides_context

NAMES_SHOWN, WAVES_SHOWN = 20, 12
_MOST_NAMES_SENT = 300


@for_operators("save placements", of=of_draft)
@costly
@require_http_methods(["GET", "HEAD", "POST"])
def review(request: HttpRequest, number: int) -> HttpResponse:
    """Show what saving a draft would do, or save it as it was shown."""
    row = own_draft(request, number)
    if request.method != "POST":
        return _show_review(request, row)
    reviewed = ReviewedDraft(
        request.POST.get("digest", ""), request.POST.get("decision", "")
    )
    if "doubts" in request.POST and "accept" not in request.POST:
        return _show_review(request, row, status=422, unaccepted=True)
    try:
        saved = confirm_draft(
            number,
            reviewed=reviewed,
            **actor(request),
            confirmed=is_confirmed(request),
        )
    except UnschedulesEverything as error:
        return _show_review(request, row, status=409, empties=error)
    except PreviewOutdatedError as error:
        return _show_review(
            request, row, status=409, outdated="draft" if error.is_text else "fleet"
        )
    except RevisionConflict:
        return _show_review(request, own_draft(request, number), status=409)
    except InvalidManifest as error:
        return _show_review(request, row, status=422, refused=error.errors)
    return _after_save(request, row.placement, saved.object)


def _after_save(
    request: HttpRequest, before: Placement | None, placement: Placement
) -> HttpResponse:
    """Return to the placement; one that is updated by staged runs from now on needs the first of them."""
    name, done = placement.full_name, f"Placement {placement.full_name} saved."
    was_staged = before is not None and before.is_staged
    if placement.is_staged and not was_staged:
        done += " A staged update run rolls it out."
        return redirect_after(request, done, "web:staged-run-create", name)
    return redirect_after(request, done, "web:placement", name)


@for_operators("try drafts on the clusters", of=of_draft)
@costly
@require_POST
def dry_run_draft(request: HttpRequest, number: int) -> HttpResponse:
    row = own_draft(request, number)
    return dry_run_response(request, lambda: text_for(row, current_user(request)))


def own_draft(request: HttpRequest, number: int) -> Draft:
    """Return a draft of the user. Raise Http404."""
    drafts = Draft.objects.select_related("placement").filter(owner=request.user.pk)
    row = drafts.filter(pk=number).first()
    if row is None:
        raise Http404("You have no draft of that number.")
    row.owner = current_user(request)  # read already
    return row


def _show_review(
    request: HttpRequest, row: Draft, *, status: int = 200, **results: Any
) -> HttpResponse:
    """Show the review; `results` say why a confirmation was refused: outdated, empties, refused.

    Planning the rollout and finding issues take as long as all the rest: `?panel=rollout`, which the page
    fetches once it is shown, has them.
    """
    placement, preview = row.placement, preview_row(row, by=current_user(request))
    draft, schedule = preview.draft, preview.schedule
    outdated = results.get("outdated", "")
    base = placement.document if placement else {}
    lines = (
        document_diff(base, draft.data)
        if draft.document
        else line_diff(dump_yaml(base), draft.text)
    )
    context = {
        **preview_context(preview),
        "draft": row,
        "placement": placement,
        **conflict_context(row),
        "outdated": outdated,
        "empties": results.get("empties"),
        "refused": results.get("refused", ()),
        "unaccepted": results.get("unaccepted", False),
        "moved": (),
        "after": "",
        "lines": lines,
        "data": draft.data if isinstance(draft.data, dict) else {},
        "is_unchanged": placement is not None and draft.data == placement.document,
        "has_rules": "rules" in request.GET
        and draft.manifest is not None
        and not preview.errors,
    }
    if schedule is not None:
        context["after"] = names_after(schedule)
        if outdated == "fleet":
            context["moved"] = names_changed_since(request, schedule)
    if schedule is not None and placement is not None:
        saved = placement.policy_snapshots.filter(is_latest=True).first()
        if saved is not None:
            policy = policy_of(saved, placement.number_of_clusters)
            before = policy_sentence(policy, Semantics(saved.semantics), saved.options)
            context["sentence"] = sentence_diff(before, schedule.sentence)
    if context["has_rules"] and draft.manifest is not None:
        sides = side_by_side_of_draft(draft.manifest)
        context |= sides_context(sides, own=draft.manifest.semantics)
    if request.GET.get("panel") != "rollout":
        return render(request, "editor/review.html", context, status=status)
    context["rollout"] = rollout_sentence(schedule, preview.waves) if schedule else ""
    return render_page(
        request,
        "editor/review.html",
        context,
        fragment="editor/_rollout.html",
        status=status,
    )


def preview_row(row: Draft, *, by: User) -> DraftPreview:
    draft = PlacementDraft.parse(
        text_for(row, by), name=row.placement.full_name if row.placement else ""
    )
    return preview_draft(draft, saved=row.placement, now=datetime.now(UTC), by=by)


def names_after(schedule: SchedulePreview) -> str:
    """Return the clusters that would be placed, for comparing later; nothing where they are too many."""
    return (
        " ".join(schedule.placed_after)
        if len(schedule.placed_after) <= _MOST_NAMES_SENT
        else ""
    )


def names_changed_since(
    request: HttpRequest, schedule: SchedulePreview
) -> list[tuple[str, list[str]]]:
    """Return which clusters are selected now and were not in the confirmed review, and the reverse."""
    before, now = (
        set(request.POST.get("after", "").split()),
        set(names_after(schedule).split()),
    )
    if not before or not now:
        return []
    changes = (("joins", now - before), ("leaves", before - now))
    return [(sign, sorted(names)) for sign, names in changes if names]


def preview_context(preview: DraftPreview) -> dict[str, Any]:
    """Return the context that the editor and the review share."""
    return {
        "preview": preview,
        "errors": preview.errors,
        "is_saved": preview.saved is not None,
        **(
            decision_context(preview.schedule)
            if preview.schedule
            else {"schedule": None}
        ),
    }


def decision_context(schedule: SchedulePreview) -> dict[str, Any]:
    policy, placed, names_none = (
        schedule.decision.cycle.policy,
        len(schedule.placed_after),
        False,
    )
    if policy.placement_type is PlacementType.PICK_ALL:
        result = f"{counted(placed, 'cluster')} selected"
    else:
        is_pick_n = policy.placement_type is PlacementType.PICK_N
        wanted = (
            (policy.number_of_clusters or 0) if is_pick_n else len(policy.cluster_names)
        )
        result = f"{placed:,} of {counted(wanted, 'cluster')} selected"
        names_none = not is_pick_n and not wanted
    return {
        "schedule": schedule,
        "result": "No clusters named" if names_none else result,
        "is_fulfilled": schedule.decision.is_fulfilled and not names_none,
        "beginning": beginning(
            schedule.decision.cycle,
            is_incremental=schedule.is_incremental,
            is_scale_down=schedule.decision.kind is CycleKind.SCALE_DOWN,
        ),
        "removals": removal_sentences(schedule.decision, schedule.leaves),
        "changes": cluster_changes(schedule),
    }


def cluster_changes(
    change: SchedulePreview | DecisionDiff,
) -> list[tuple[str, str, Sequence[str], int, int]]:
    """Return what a change selects, deselects and keeps: words, sign, names, how many more, in all."""
    several: tuple[tuple[str, str, Sequence[str]], ...] = (
        ("selected", "joins", change.joins),
        ("deselected", "leaves", change.leaves),
        ("kept", "", change.stays),
    )
    return [
        (
            words,
            sign,
            names[:NAMES_SHOWN],
            max(0, len(names) - NAMES_SHOWN),
            len(names),
        )
        for words, sign, names in several
    ]


def rollout_sentence(schedule: SchedulePreview, waves: tuple[Wave, ...] | None) -> str:
    """Return how the change would roll out; `waves` is None where they were not planned."""
    if schedule.is_staged:
        words, saved = "Changes wait for a staged update run.", schedule.saved
        return (
            words
            if saved and saved.is_staged
            else f"{words} External cannot be changed to RollingUpdate."
        )
    if waves is None:
        return "The review shows the rollout plan."
    sentences = []
    updates = [
        sum(not isinstance(action, Remove) for action in wave.actions) for wave in waves
    ]
    if numbers := [number for number in updates if number]:
        sizes = ", ".join(map(str, numbers[:WAVES_SHOWN]))
        more = ", …" * (len(numbers) > WAVES_SHOWN)
        clusters = "cluster" if numbers == [1] else "clusters"
        sentences.append(
            f"Rolls out in {counted(len(numbers), 'wave')}: {sizes}{more} {clusters}."
        )
    if schedule.leaves:
        sentences.append(
            f"Removes the resources from {counted(len(schedule.leaves), 'cluster')}."
        )
    return " ".join(sentences) or "Nothing to roll out."


def conflict_context(draft: Draft | None) -> dict[str, Any]:
    """Return what was saved since a draft was started, and its author; nothing where nothing was."""
    placement = draft.placement if draft else None
    unchanged = {"is_stale": False, "theirs": [], "savers": []}
    if draft is None or placement is None:
        return unchanged
    # The generation of a hub does not count changes of metadata.
    is_same = placement.document == draft.base and (
        placement.revision == draft.revision or placement.is_mirrored
    )
    if is_same:
        return unchanged
    return {
        "is_stale": True,
        "theirs": differences(draft.base, placement.document),
        "savers": events_since(PLACEMENT, placement.full_name, draft.revision),
    }
