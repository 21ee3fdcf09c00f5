"""The editor of placements: a form and the YAML of a manifest, with a preview of every change."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    JsonResponse,
    QueryDict,
)
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import (
    require_http_methods,
    require_POST,
    require_safe,
)
from django_htmx.http import push_url, reswap, retarget

from clusters.fleet import collector_paused
from clusters.queries import current_fleet
from fleetui.apimachinery.errors import FieldError, Keys, split_path
from fleetui.apimachinery.kinds import NAMESPACED_PLACEMENT_KIND, PLACEMENT_KIND
from fleetui.apimachinery.links import linked_text
from fleetui.apimachinery.secrets import HubObject
from fleetui.apimachinery.words import counted
from fleetui.apimachinery.yaml import MEBIBYTE, dump_yaml
from fleetui.apimachinery.yaml_edit import UneditableYaml
from fleetui.errors import FleetError
from fleetui.htmx import redirect_page, wants_fragment
from fleetui.hub_backend import current_backend
from fleetui.middleware import costly
from fleetui.permissions import (
    Role,
    by_operation,
    current_user,
    for_operators,
    for_readers,
    may_change_at,
)
from placements.manifests.placement import OcmPlacement
from placements.models import Draft, Placement
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
from placements.services.editor.hints import completions, cursor_at
from placements.services.editor.operations import (
    TEMPLATES,
    DraftExists,
    Side,
    discard_draft,
    drafts_of,
    manifest_at,
    rebase_draft,
    start_draft,
    starting_text,
    summaries_of,
    write_draft,
)
from placements.services.editor.preview import DraftPreview, preview_draft
from placements.services.editor.validation import PlacementDraft, text_for
from placements.services.resources.operations import apply_resource
from placements.services.resources.queries import hub_objects
from placements.services.results import name_on_hub
from placements.services.teams import of_draft, of_placement
from placements.web.request import actor, number_of, redirect_after
from placements.web.review import (
    conflict_context,
    own_draft,
    preview_context,
    preview_row,
    rollout_sentence,
)

_RESHAPING: tuple[Keys, ...] = (
    (*POLICY, "placementType"),
    (*STRATEGY, "type"),
    SEMANTICS,
)
PICKER = "picked"
"""The field for a resource of the hub."""
_LEFT = "left"
"""How a script picks what was typed when the focus is on another field already, where it stays."""
_BUTTONS = ("add", "pick", "remove", "tidy")
ALL_FIELDS = "*"
"""Among what was touched: the form was submitted, and every error counts."""


class EditorMode(StrEnum):
    FORM = "form"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class Submission:
    """The draft that comes of a submitted form, and what to show.

    `is_structural`: the whole editor has to be shown again, otherwise only what is beside the fields;
    `message` says what could not be done; `focus` is the name of the field to go to; `touched` as in a
    `DraftPreview`; `picked` is what stays typed into the picker of resources, and `matches` what it may mean,
    None unless that is no resource or several.
    """

    draft: PlacementDraft
    mode: EditorMode
    is_structural: bool = False
    message: str = ""
    focus: str = ""
    touched: frozenset[str] | None = frozenset()
    picked: str = ""
    matches: tuple[HubObject, ...] | None = None


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
    matches: list[HubObject] | None = None
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
                picked, matches = "", None
            else:
                mode = typed_in
                focus = "" if post.get("pick") == _LEFT else PICKER
    except OutdatedFormError:
        return Submission(
            before,
            mode,
            is_structural=True,
            message="The draft was changed in another window and is shown as it is now, without your last input.",
            picked=picked,
        )
    except UneditableYaml as error:
        message = f"The form cannot change this text: {error}. Change it as YAML."
        return Submission(
            before, mode, is_structural=True, message=message, picked=picked
        )
    if len(draft.text.encode()) > MEBIBYTE:
        return Submission(
            before,
            mode,
            is_structural=True,
            message="The text is larger than 1 MiB and was not saved.",
        )

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
        matches=None if matches is None else tuple(matches),
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
                    for field_group in draft.form.all_groups
                    if field_group.name == name
                    for row in field_group.rows
                ]
                if draft.form
                else []
            )
            fields = draft.form.fields if draft.form and rows else ()
            return draft, next(
                (
                    field.name
                    for field in fields
                    if field.name.startswith(rows[-1].name)
                ),
                "",
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
    missing = dict.fromkeys(error.path for error in preview.pending_errors)
    lines_with_errors = {error.line for error in errors}
    # Where something is left out, the places in warnings are not those in the text.
    warnings = (
        preview.schedule.warnings if preview.schedule and not draft.left_out else ()
    )
    at_lines = draft.with_lines(
        FieldError(warning.path, warning.code, warning.message)
        for warning in warnings
        if warning.path
    )
    count = draft.text.count("\n") + (not draft.text.endswith("\n"))
    return {
        "form": draft.form,
        "errors_summary": counted(len(errors), "error") if errors else "No errors",
        "warnings_summary": counted(len(preview.schedule.warnings), "warning")
        if preview.schedule
        else "",
        "missing": _labels(draft, missing),
        "left_out": _labels(draft, preview.notes.left_out),
        "pending": _labels(draft, preview.notes.pending),
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


def _labels(draft: PlacementDraft, paths: Iterable[str]) -> list[str]:
    return [draft.form.words_of(path) if draft.form else path for path in paths]


_FIRST_FIELDS = ("metadata.", "spec.resourceSelectors")
_METHODS = ["GET", "HEAD", "POST"]
_QUERIES: Mapping[EditorMode, dict[str, str]] = {
    EditorMode.FORM: {},
    EditorMode.YAML: {"as": "yaml"},
}
_LATEST_DRAFTS = 5


@dataclass(frozen=True)
class EditTarget:
    """What is being edited: a saved placement or a new one, in a draft or not yet.

    `text` is how it is before what is typed now; `base` and `revision` are the saved manifest that the page
    was made from.
    """

    text: str
    address: str
    placement: Placement | None = None
    draft: Draft | None = None
    base: dict[str, Any] | None = None
    revision: int = 0

    @classmethod
    def of_draft(cls, draft: Draft) -> "EditTarget":
        """Return the draft of its owner, who sees all of it."""
        return cls(
            text_for(draft, draft.owner),
            reverse("web:draft", args=[draft.pk]),
            draft.placement,
            draft,
            draft.base,
            draft.revision,
        )

    @property
    def name(self) -> str:
        return self.placement.full_name if self.placement else ""


CLUSTER, NAMESPACED = "cluster", "namespace"
_SCOPES = (
    (CLUSTER, "Cluster-scoped", PLACEMENT_KIND),
    (NAMESPACED, "Namespaced", NAMESPACED_PLACEMENT_KIND),
)
"""Where a new placement lives: the value, its word and the kind."""


@for_operators("create placements", of=by_operation)
@costly
@require_http_methods(_METHODS)
def new_placement(request: HttpRequest) -> HttpResponse:
    """Write a new placement: from a template, or as a copy of another one."""
    copied = (
        get_object_or_404(Placement, full_name=request.GET["from"])
        if request.GET.get("from")
        else None
    )
    template = request.GET.get("template", TEMPLATES[0].name)
    is_namespaced = request.GET.get("scope") == NAMESPACED
    text = starting_text(template, copied=copied, is_namespaced=is_namespaced)
    target = EditTarget(
        text, request.get_full_path(), base=PlacementDraft.parse(text).data
    )
    if request.method == "POST":
        return _edit(request, target)
    return _show(
        request,
        target,
        {
            "placement_templates": () if copied else TEMPLATES,
            "template_name": template,
            "scopes": () if copied else _SCOPES,
            "scope": NAMESPACED if is_namespaced else CLUSTER,
            "own_drafts": summaries_of(drafts_of(request.user, None)[:_LATEST_DRAFTS]),
        },
    )


@for_operators("edit placements", of=of_placement)
@costly
@require_http_methods(_METHODS)
def edit_placement(request: HttpRequest, name: str) -> HttpResponse:
    """Change a placement; the first change starts a draft."""
    placement = get_object_or_404(Placement, full_name=name)
    base, revision = placement.document, placement.revision
    if request.method == "POST":
        started = number_of(request.POST.get("revision", ""), digits=17)
        if started is not None:  # another user may have saved since then
            base, revision = manifest_at(placement, started)
        target = EditTarget(
            dump_yaml(base), request.get_full_path(), placement, None, base, revision
        )
        return _edit(request, target)
    if draft := drafts_of(request.user, placement).first():
        return render(
            request,
            "editor/draft_exists.html",
            {"placement": placement, "draft": draft},
        )
    return _show(
        request, EditTarget(dump_yaml(base), request.get_full_path(), placement)
    )


@for_readers
@costly
@require_http_methods(_METHODS)
def draft(request: HttpRequest, number: int) -> HttpResponseBase:
    """Show a draft: to its owner in the editor, to others to read."""
    if request.method == "POST":
        return change_draft(request, number=number)
    row = get_object_or_404(
        Draft.objects.select_related("placement", "owner"), pk=number
    )
    if row.owner_id == request.user.pk and may_change_at(
        request.user, of_draft, {"number": number}, Role.OPERATOR
    ):
        return _show(request, EditTarget.of_draft(row))
    return render(
        request,
        "editor/read.html",
        {
            "draft": row,
            **editor_context(preview_row(row, by=current_user(request))),
        },
    )


@for_readers
@costly
@require_safe
def linked_preview(request: HttpRequest) -> HttpResponse:
    """Preview the manifest that is in the address, as comments on pull requests link to it."""
    try:
        draft = PlacementDraft.parse(linked_text(request.GET.get("content", "")))
    except ValueError as error:
        return render(request, "editor/linked.html", {"refusal": error}, status=400)
    saved = None
    if readable := draft.manifest or draft.valid_part:
        saved = Placement.objects.filter(full_name=name_on_hub(readable)).first()
    preview = preview_draft(
        draft, saved=saved, now=datetime.now(UTC), by=current_user(request)
    )
    return render(
        request, "editor/linked.html", {"saved": saved, **editor_context(preview)}
    )


@for_operators("edit drafts", of=of_draft)
def change_draft(request: HttpRequest, number: int) -> HttpResponse:
    return _edit(request, EditTarget.of_draft(own_draft(request, number)))


@for_readers
@costly
@require_POST
def complete(request: HttpRequest) -> JsonResponse:
    """Return what is valid at the cursor in a manifest; nothing is saved."""
    row, column = (
        number_of(request.POST.get(name, "")) or 0 for name in ("row", "column")
    )
    cursor = cursor_at(request.POST.get("manifest", "")[:MEBIBYTE], row, column)
    items = completions(cursor, fleet=current_fleet().fleet, objects=hub_objects())
    return JsonResponse({"items": [asdict(item) for item in items]})


@for_operators("discard drafts", of=by_operation)
@require_POST
def discard(request: HttpRequest, number: int) -> HttpResponse:
    placement = discard_draft(number, by=current_user(request)).placement
    if placement:
        return redirect_after(
            request, "Draft discarded.", "web:placement", placement.full_name
        )
    return redirect_after(request, "Draft discarded.", "web:placements")


@for_operators("edit drafts", of=of_draft)
@require_POST
def rebase(request: HttpRequest, number: int) -> HttpResponse:
    """Base a draft on what another user saved meanwhile: with one's own text, or with theirs."""
    keep = Side.THEIRS if request.POST.get("keep") == Side.THEIRS else Side.MINE
    row = rebase_draft(number, keep=keep, **actor(request))
    return redirect_after(
        request, f"Draft rebased on revision {row.revision}.", "web:draft", number
    )


def _edit(request: HttpRequest, target: EditTarget) -> HttpResponse:
    """Apply what was typed, save it in a draft, which the first change starts, and show what follows."""
    started = request.POST.get("draft", "")
    if target.draft is None and started.isdecimal():
        target = EditTarget.of_draft(own_draft(request, int(started)))
    submission = parse_submission(
        request.POST, PlacementDraft.parse(target.text, name=target.name)
    )
    text, is_new, now = submission.draft.text, target.draft is None, datetime.now(UTC)
    try:
        if target.draft is not None:
            write_draft(target.draft, text, now=now)
        elif text != target.text or (
            "review" in request.POST and target.placement is None
        ):
            row = start_draft(
                text,
                placement=target.placement,
                base=target.base,
                revision=target.revision,
                by=current_user(request),
                now=now,
            )
            target = EditTarget.of_draft(row)
    except DraftExists as error:
        target, is_new = EditTarget.of_draft(error.draft), True
        message = (
            (
                "This is the draft that you started before. What you wanted to open is not in it: "
                "save or discard this one first, then open the other again."
            )
            if sends_manifest(request.POST)
            else "You have a draft from another window. It is shown here, without your last input."
        )
        draft_now = PlacementDraft.parse(target.text, name=target.name)
        submission = Submission(
            draft_now, submission.mode, is_structural=True, message=message
        )
    if "namespace" in request.POST:
        submission = _with_namespace(request, submission)
    if "review" in request.POST:
        submission = replace(submission, is_structural=True, touched=None)
        if target.draft is None and submission.matches is None:
            submission = replace(submission, message="There are no changes to review.")
    return _respond(request, target, submission, is_new=is_new)


def _with_namespace(request: HttpRequest, submission: Submission) -> Submission:
    """Create the Namespace that a field of the draft names, as *Apply YAML* would, or say why not."""
    field = request.POST["namespace"]
    try:
        name = str(at(submission.draft.data, split_path(field)))
        refusal = current_backend().refusal("web:resource-apply", is_form=True)
        if refusal is not None:
            raise refusal
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        apply_resource(manifest, **actor(request), expected=0)
        message = f"Namespace {name} created."
    except (FleetError, ValueError, PermissionDenied) as error:
        message = f"The namespace was not created. {error}"
    return replace(
        submission, is_structural=True, message=message, focus=submission.focus or field
    )


@collector_paused()  # a preview of thousands of clusters would be walked repeatedly
def _respond(
    request: HttpRequest,
    target: EditTarget,
    submission: Submission,
    *,
    is_new: bool,
) -> HttpResponse:
    """Return the editor or what changed in it; the review of a draft without errors, if that is wanted."""
    context = _context(target, submission)
    is_fragment, query = wants_fragment(request), _QUERIES[submission.mode]
    is_unclear = submission.matches is not None
    if "review" in request.POST and target.draft and not is_unclear:
        number = len(context["preview"].errors)
        if not number:
            url = reverse("web:draft-review", args=[target.draft.pk], query=query)
            return redirect_page(request, url)
        submission = replace(
            submission, message=f"Correct {counted(number, 'error')} before the review."
        )
        context["message"] = submission.message

    if not is_fragment:
        if is_unclear:
            return render(request, "editor/edit.html", context, status=422)
        if submission.message:
            messages.warning(request, submission.message)
        return redirect(_with_query(target.address, {**query, "errors": "all"}))
    address = _with_query(target.address, query)
    if submission.is_structural:
        response = render(request, "editor/_editor.html", context)
        return push_url(reswap(retarget(response, "#editor"), "outerHTML"), address)
    response = render(request, "editor/_response.html", context)
    return (
        push_url(response, address) if is_new and target.draft is not None else response
    )


def _with_query(address: str, query: Mapping[str, str]) -> str:
    """Return an address with this view of the editor in place of another one."""
    path, _, before = address.partition("?")
    kept = [pair for pair in parse_qsl(before) if pair[0] not in ("as", "errors")]
    after = urlencode([*kept, *query.items()])
    return f"{path}?{after}" if after else path


def _show(
    request: HttpRequest, target: EditTarget, more: dict[str, Any] | None = None
) -> HttpResponse:
    """Show the page of the editor; a text that no form can show as YAML."""
    mode = (
        EditorMode.YAML if request.GET.get("as") == EditorMode.YAML else EditorMode.FORM
    )
    parsed, message = PlacementDraft.parse(target.text, name=target.name), ""
    if parsed.form is None and mode is EditorMode.FORM:
        mode, message = EditorMode.YAML, parsed.no_form
    submission = Submission(parsed, mode, message=message)
    if request.GET.get("errors") == "all":  # sent without a script
        submission = replace(submission, touched=None)
    return render(
        request, "editor/edit.html", (_context(target, submission) | (more or {}))
    )


def _context(target: EditTarget, submission: Submission) -> dict[str, Any]:
    preview = preview_draft(
        submission.draft,
        saved=target.placement,
        now=datetime.now(UTC),
        base=target.base,
        touched=submission.touched,
    )
    focus, notes = submission.focus, preview.notes.by_name
    if submission.touched is None and not focus and preview.form:
        # The uppermost field with an error.
        names = sorted(
            (field.name for field in preview.form.fields),
            key=lambda name: not name.startswith(_FIRST_FIELDS),
        )
        focus = next(
            (name for name in names if name in notes and notes[name].errors), ""
        )
        if preview.hub_choices and notes[preview.form.resources.name].errors:
            focus = PICKER
    return {
        "address": target.address,
        "draft": target.draft,
        "placement": target.placement,
        "mode": str(submission.mode),
        "message": submission.message,
        "focus": focus,
        "picked": submission.picked,
        "matches": submission.matches,
        **conflict_context(target.draft),
        **editor_context(preview),
    }
