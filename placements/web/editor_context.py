"""What the pages of the editor get and send: a submitted form as a draft, a preview as template context."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.http import QueryDict

from fleetui.apimachinery.errors import Keys, format_path, split_path
from fleetui.apimachinery.yaml import MEBIBYTE
from fleetui.apimachinery.yaml_edit import UneditableYaml
from fleetui.audit import events_since
from placements.explain.diff import differences
from placements.explain.preview import beginning
from placements.explain.vocabulary import counted
from placements.manifests.placement import OcmPlacement
from placements.manifests.policy import PlacementType
from placements.models import Draft
from placements.services.editor.edits import OutdatedFormError, add_row, apply_form, remove_places, remove_row
from placements.services.editor.form import POLICY, SEMANTICS, STRATEGY, at
from placements.services.editor.preview import SchedulePreview
from placements.services.editor.queries import DraftPreview
from placements.services.editor.validation import PlacementDraft
from placements.services.results import PLACEMENT

NAMES_SHOWN, WAVES_SHOWN = 20, 12
_RESHAPING: tuple[Keys, ...] = ((*POLICY, "placementType"), (*STRATEGY, "type"), SEMANTICS)
_CHANGED_ELSEWHERE = (
    "The draft was changed in another window and is shown as it is now, without your last input."
)
_TOO_LARGE = "The text is larger than 1 MiB and was not saved."


class EditorMode(StrEnum):
    """The two sides of the editor."""

    FORM = "form"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class Submission:
    """The draft that comes of a submitted form, and what to show.

    `is_structural`: the whole editor has to be shown again, otherwise only what is beside the fields;
    `message` says what could not be done; `focus` is the name of the field to go to.
    """

    draft: PlacementDraft
    mode: EditorMode
    is_structural: bool = False
    message: str = ""
    focus: str = ""


def parse_submission(post: QueryDict, before: PlacementDraft) -> Submission:
    """Apply what was typed, then what a button says, to the draft as it was before."""
    typed_in = EditorMode.YAML if post.get("mode") == EditorMode.YAML else EditorMode.FORM
    mode = EditorMode(str(post["as"])) if post.get("as") in list(EditorMode) else typed_in
    is_structural = any(name in post for name in ("as", "add", "remove", "tidy"))
    try:
        draft = before
        if typed_in is EditorMode.YAML or is_handed_over(post):
            text = str(post.get("manifest", before.text)).replace("\r\n", "\n").removeprefix("\ufeff")
            draft = _changed(before, text)
        elif before.form is not None and "shape" in post:
            values = {name: str(post[name]) for name in post}
            draft = _changed(before, apply_form(before, values, shape=str(post["shape"])))
        draft, focus = _press_button(post, draft)
    except OutdatedFormError:
        return Submission(before, mode, is_structural=True, message=_CHANGED_ELSEWHERE)
    except UneditableYaml as error:
        message = f"The form cannot change this text: {error}. Change it as YAML."
        return Submission(before, mode, is_structural=True, message=message)
    if len(draft.text) > MEBIBYTE:
        return Submission(before, mode, is_structural=True, message=_TOO_LARGE)

    if typed_in is EditorMode.FORM and draft is not before and not is_structural:
        has_forms = before.form is not None and draft.form is not None
        is_structural = not has_forms or any(
            at(before.data, keys) != at(draft.data, keys) for keys in _RESHAPING
        )
    return Submission(draft, mode, is_structural, focus=focus)


def is_handed_over(post: QueryDict) -> bool:
    """Return whether another page sends a whole manifest to start with, such as an older policy."""
    return post.get("do") == "draft" and "manifest" in post


def _changed(draft: PlacementDraft, text: str) -> PlacementDraft:
    return draft if text == draft.text else PlacementDraft.parse(text, name=draft.name)


def _press_button(post: QueryDict, draft: PlacementDraft) -> tuple[PlacementDraft, str]:
    """Return the draft after an edit by a button, and the field to go to. Raises CannotEditError."""
    button = next((name for name in ("add", "remove", "tidy") if name in post), "")
    if not button:
        return draft, ""
    try:
        if button == "add":
            name = str(post["add"])
            draft = _changed(draft, add_row(draft, name))
            rows = (
                [row for one in draft.form.all_groups if one.name == name for row in one.rows]
                if draft.form
                else []
            )
            fields = draft.form.fields if draft.form and rows else ()
            return draft, next((one.name for one in fields if one.name.startswith(rows[-1].name)), "")
        if button == "remove":
            return _changed(draft, remove_row(draft, str(post["remove"]))), ""
        return _changed(draft, remove_places(draft, post.getlist("tidy-place"))), ""
    except (KeyError, ValueError) as error:
        if isinstance(error, UneditableYaml):
            raise
        raise UneditableYaml("that row does not exist any more") from error


def editor_context(preview: DraftPreview) -> dict[str, Any]:
    """Return the context of the editor's templates."""
    draft, errors = preview.draft, preview.errors
    lines_with_errors = {error.line for error in errors}
    count = draft.text.count("\n") + (not draft.text.endswith("\n"))
    return {
        "form": draft.form,
        "errors_summary": counted(len(errors), "error") if errors else "No errors",
        "warnings_summary": counted(len(preview.schedule.warnings), "warning") if preview.schedule else "",
        "left_out": [
            format_path(split_path(path)[-2:]) if draft.form else path for path in preview.notes.left_out
        ],
        "is_ocm": isinstance(draft.manifest, OcmPlacement),
        "conflicting": [
            error.path
            for error in errors
            if error.code == "forbidden-for-type"
            or (error.code == "conflict" and error.path.endswith(".rollingUpdate"))
        ],
        "gutter": [(number, number in lines_with_errors) for number in range(1, count + 1)],
        **preview_context(preview, preview.waves_while_typing),
    }


def preview_context(preview: DraftPreview, waves: tuple[int, ...] | None) -> dict[str, Any]:
    """Return the context that the editor and the review share."""
    decision = decision_context(preview.schedule, waves) if preview.schedule else {"schedule": None}
    return {
        "preview": preview,
        "errors": preview.errors,
        "is_saved": preview.saved is not None,
        **decision,
    }


def decision_context(schedule: SchedulePreview, waves: tuple[int, ...] | None) -> dict[str, Any]:
    """Return the context of what a preview says of the decision and its rollout."""
    changes = (
        ("selected", "joins", schedule.joins),
        ("deselected", "leaves", schedule.leaves),
        ("kept", "", schedule.stays),
    )
    return {
        "schedule": schedule,
        "result": _result(schedule),
        "beginning": beginning(schedule.decision.cycle, is_incremental=schedule.is_incremental),
        "changes": [
            (
                words,
                sign,
                names[:NAMES_SHOWN],
                max(0, len(names) - NAMES_SHOWN),
                len(names),
            )
            for words, sign, names in changes
        ],
        "rollout": _rollout(schedule, waves),
    }


def conflict_context(draft: Draft | None) -> dict[str, Any]:
    """Return what was saved since a draft was started, and by whom; nothing where nothing was."""
    placement = draft.placement if draft else None
    if draft is None or placement is None or placement.revision == draft.revision:
        return {"is_stale": False, "theirs": [], "savers": []}
    return {
        "is_stale": True,
        "theirs": differences(draft.base, placement.document),
        "savers": events_since(PLACEMENT, placement.name, draft.revision),
    }


def _result(schedule: SchedulePreview) -> str:
    policy, placed = schedule.decision.cycle.policy, len(schedule.placed_after)
    if policy.placement_type is PlacementType.PICK_ALL:
        return f"{counted(placed, 'cluster')} selected"
    is_pick_n = policy.placement_type is PlacementType.PICK_N
    wanted = (policy.number_of_clusters or 0) if is_pick_n else len(policy.cluster_names)
    return f"{placed:,} of {counted(wanted, 'cluster')} selected"


def _rollout(schedule: SchedulePreview, waves: tuple[int, ...] | None) -> str:
    if schedule.is_staged:
        return "Changes wait for a staged update run."
    if waves is None:
        return "The review shows the rollout plan."
    if not waves:
        return "Nothing to roll out."
    shown = ", ".join(map(str, waves[:WAVES_SHOWN])) + (", …" if len(waves) > WAVES_SHOWN else "")
    clusters = "cluster" if waves == (1,) else "clusters"
    return f"Rolls out in {counted(len(waves), 'wave')}: {shown} {clusters}."
