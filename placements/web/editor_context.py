"""What the pages of the editor get and send: a submitted form as a draft, a preview as template context."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.http import QueryDict

from fleetui.apimachinery.errors import FieldError, Keys, format_path, split_path
from fleetui.apimachinery.secrets import HubObject
from fleetui.apimachinery.words import counted
from fleetui.apimachinery.yaml import MEBIBYTE
from fleetui.apimachinery.yaml_edit import UneditableYaml
from placements.manifests.placement import OcmPlacement
from placements.services.editor.edits import (
    OutdatedFormError,
    add_row,
    apply_form,
    pick_cluster,
    pick_resource,
    remove_places,
    remove_row,
    resources_meant,
    without_budgets,
)
from placements.services.editor.form import POLICY, SEMANTICS, STRATEGY, at
from placements.services.editor.preview import DraftPreview
from placements.services.editor.validation import PlacementDraft
from placements.web.review import preview_context, rollout_sentence

_RESHAPING: tuple[Keys, ...] = (
    (*POLICY, "placementType"),
    (*STRATEGY, "type"),
    SEMANTICS,
)
PICKER = "picked"  # the focus where what is typed there is no resource or several
_BUTTONS = ("add", "pick", "remove", "tidy")
ALL_FIELDS = "*"
"""Among what was touched: the form was submitted, and every error counts."""
_CHANGED_ELSEWHERE = "The draft was changed in another window and is shown as it is now, without your last input."
_TOO_LARGE = "The text is larger than 1 MiB and was not saved."


class EditorMode(StrEnum):
    FORM = "form"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class Submission:
    """The draft that comes of a submitted form, and what to show.

    `is_structural`: the whole editor has to be shown again, otherwise only what is beside the fields;
    `message` says what could not be done; `focus` is the name of the field to go to; `touched` as in a
    `DraftPreview`; `picked` is what stays typed into the picker of resources, and `matches` what it may mean
    where the focus is there.
    """

    draft: PlacementDraft
    mode: EditorMode
    is_structural: bool = False
    message: str = ""
    focus: str = ""
    touched: frozenset[str] | None = frozenset()
    picked: str = ""
    matches: tuple[HubObject, ...] = ()


def parse_submission(post: QueryDict, before: PlacementDraft) -> Submission:
    """Apply what was typed, then what a button says, to the draft as it was before."""
    typed_in = (
        EditorMode.YAML if post.get("mode") == EditorMode.YAML else EditorMode.FORM
    )
    mode = (
        EditorMode(str(post["as"])) if post.get("as") in list(EditorMode) else typed_in
    )
    is_structural = any(name in post for name in ("as", "namespace", *_BUTTONS))
    picked = " ".join(post.get("picked", "").split())
    matches: list[HubObject] = []
    message = ""
    try:
        draft = before
        if typed_in is EditorMode.YAML or sends_manifest(post):
            text = (
                str(post.get("manifest", before.text))
                .replace("\r\n", "\n")
                .removeprefix("\ufeff")
            )
            draft = _changed(before, text)
        elif before.form is not None and "shape" in post:
            values = {name: str(post[name]) for name in post}
            draft = _changed(
                before, apply_form(before, values, shape=str(post["shape"]))
            )
            text, message = without_budgets(before, draft)
            draft = _changed(draft, text)
        draft, focus = _press_button(post, draft)
        if picked and (is_structural or "do" in post or "review" in post):
            is_structural = True
            matches = resources_meant(draft, picked)
            if len(matches) == 1:
                draft = _changed(draft, pick_resource(draft, matches[0]))
                picked = ""
            else:
                mode = typed_in
                focus = PICKER
    except OutdatedFormError:
        return Submission(
            before, mode, is_structural=True, message=_CHANGED_ELSEWHERE, picked=picked
        )
    except UneditableYaml as error:
        message = f"The form cannot change this text: {error}. Change it as YAML."
        return Submission(
            before, mode, is_structural=True, message=message, picked=picked
        )
    if len(draft.text.encode()) > MEBIBYTE:
        return Submission(before, mode, is_structural=True, message=_TOO_LARGE)

    if typed_in is EditorMode.FORM and draft is not before and not is_structural:
        is_structural = (
            before.form is None
            or draft.form is None
            or before.form.visible().keys() != draft.form.visible().keys()
            or any(at(before.data, keys) != at(draft.data, keys) for keys in _RESHAPING)
        )
    names = frozenset(post.get("touched", "").split())
    is_whole = ALL_FIELDS in names or typed_in is EditorMode.YAML
    return Submission(
        draft,
        mode,
        is_structural,
        message=message,
        focus=focus,
        touched=None if is_whole else names,
        picked=picked,
        matches=tuple(matches),
    )


def sends_manifest(post: QueryDict) -> bool:
    """Return whether another page sends a whole manifest to start with, such as an older policy."""
    return post.get("do") == "draft" and "manifest" in post


def _changed(draft: PlacementDraft, text: str) -> PlacementDraft:
    return draft if text == draft.text else PlacementDraft.parse(text, name=draft.name)


def _press_button(post: QueryDict, draft: PlacementDraft) -> tuple[PlacementDraft, str]:
    """Return the draft after an edit by a button, and the field to go to. Raises UneditableYaml."""
    button = next((name for name in _BUTTONS if name in post), "")
    if not button:
        return draft, ""
    try:
        if button == "add":
            name = str(post["add"])
            draft = _changed(draft, add_row(draft, name))
            rows = (
                [
                    row
                    for one in draft.form.all_groups
                    if one.name == name
                    for row in one.rows
                ]
                if draft.form
                else []
            )
            fields = draft.form.fields if draft.form and rows else ()
            return draft, next(
                (one.name for one in fields if one.name.startswith(rows[-1].name)), ""
            )
        if button == "pick":  # a resource is read with every button
            return _changed(
                draft, pick_cluster(draft, post.get("picked-cluster", "").strip())
            ), ""
        if button == "remove":
            return _changed(draft, remove_row(draft, str(post["remove"]))), ""
        return _changed(draft, remove_places(draft, post.getlist("tidy-place"))), ""
    except (KeyError, ValueError) as error:
        if isinstance(error, UneditableYaml):
            raise
        raise UneditableYaml("that row does not exist any more") from error


def editor_context(preview: DraftPreview) -> dict[str, Any]:
    draft, errors = preview.draft, preview.shown_errors
    waves = preview.waves_while_typing
    pending = len(preview.pending_errors)
    lines_with_errors = {error.line for error in errors}
    # Where something is left out, the places in warnings are not those in the text.
    warnings = (
        preview.schedule.warnings if preview.schedule and not draft.left_out else ()
    )
    at_lines = draft.with_lines(
        FieldError(one.path, one.code, one.message) for one in warnings if one.path
    )
    count = draft.text.count("\n") + (not draft.text.endswith("\n"))
    return {
        "form": draft.form,
        "errors_summary": counted(len(errors), "error") if errors else "No errors",
        "warnings_summary": counted(len(preview.schedule.warnings), "warning")
        if preview.schedule
        else "",
        "pending_summary": f"{counted(pending, 'required value')} missing"
        if pending
        else "",
        "left_out": _short_places(draft, preview.notes.left_out),
        "pending": _short_places(draft, preview.notes.pending),
        "is_ocm": isinstance(draft.manifest, OcmPlacement),
        "conflicting": [
            error.path
            for error in errors
            if error.code == "forbidden-for-type"
            or (error.code == "conflict" and error.path.endswith(".rollingUpdate"))
        ],
        "gutter": [
            (number, number in lines_with_errors) for number in range(1, count + 1)
        ],
        "warnings_at_lines": at_lines,
        **preview_context(preview),
        "errors": errors,
        "waves": waves,
        "rollout": rollout_sentence(preview.schedule, waves)
        if preview.schedule
        else "",
    }


def _short_places(draft: PlacementDraft, paths: Sequence[str]) -> list[str]:
    if draft.form is None:
        return list(paths)
    return [format_path(split_path(path)[-2:]) for path in paths]
