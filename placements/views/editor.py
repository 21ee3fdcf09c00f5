"""The editor of placements: a form and the YAML of the whole manifest, with a preview of every change."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST
from django_htmx.http import HttpResponseClientRedirect, push_url, reswap, retarget

from clusters.queries import fleet_now
from fleetui.access import for_operators, for_readers
from fleetui.events import events_since
from fleetui.htmx import wants_fragment
from fleetui.roles import may_operate
from placements.drafting.recipes import RECIPES, recipe_named
from placements.manifests import dump_yaml
from placements.models import LONGEST_NAME, Draft, Placement
from placements.operations.drafts import (
    DraftThereError,
    UnknownDraftError,
    discard_draft,
    draft_of,
    start_draft,
    write_draft,
)
from placements.operations.placements import PLACEMENT
from placements.queries.drafts import drafts_of, look_at
from placements.views.editor_posts import Mode, Posted, is_handed_over, read_post
from placements.views.editor_showing import conflict, showing
from placements.views.people import user_of

_METHODS = ["GET", "HEAD", "POST"]


@dataclass
class Subject:
    """What is being edited: a saved placement or none, in a draft or not yet; `text` is where it stands."""

    text: str
    placement: Placement | None = None
    draft: Draft | None = None
    address: str = ""

    @property
    def revision(self) -> int:
        """Give the revision that the editing started from."""
        if self.draft:
            return self.draft.revision
        return self.placement.revision if self.placement else 0


@for_operators("write placements")
@require_http_methods(_METHODS)
def new_placement(request: HttpRequest) -> HttpResponse:
    """Write a new placement: from a recipe, or from what another one says."""
    subject = Subject(_start(request), address=request.get_full_path())
    if request.method == "POST":
        return _posted(request, subject)
    context = {
        "recipes": RECIPES,
        "recipe": request.GET.get("recipe", RECIPES[0].name),
        "others": drafts_of(request.user, None)[:5],
        "is_copy": "from" in request.GET,
    }
    return _page(request, subject, context)


def _start(request: HttpRequest) -> str:
    other = request.GET.get("from", "")
    if not other:
        return recipe_named(request.GET.get("recipe", "")).text(fleet_now().fleet)
    found = get_object_or_404(Placement, name=other)
    name = f"{found.name[: LONGEST_NAME - 5]}-copy"
    return dump_yaml({**found.document, "metadata": {**found.document["metadata"], "name": name}})


@for_operators("edit placements")
@require_http_methods(_METHODS)
def edit_placement(request: HttpRequest, name: str) -> HttpResponse:
    """Change a placement; the first change begins a draft."""
    found = get_object_or_404(Placement, name=name)
    subject = Subject(dump_yaml(found.document), found, address=request.get_full_path())
    if request.method == "POST":
        return _posted(request, subject)
    there = drafts_of(request.user, found).first()
    if there:
        return render(request, "drafts/there.html", {"placement": found, "draft": there})
    return _page(request, subject)


@for_readers
@require_http_methods(_METHODS)
def draft(request: HttpRequest, number: int) -> HttpResponseBase:
    """Show a draft: to its owner in the editor, to others to read."""
    if request.method == "POST":
        return change_draft(request, number)
    found = get_object_or_404(Draft.objects.select_related("placement", "owner"), pk=number)
    if found.owner_id == request.user.pk and may_operate(request.user):
        return _page(request, _subject_of(found))
    look = look_at(found.text, saved=found.placement, now=datetime.now(UTC))
    context = {"draft": found, "text": found.text, **showing(look, found.placement)}
    return render(request, "drafts/read.html", context)


@for_operators("edit drafts")
def change_draft(request: HttpRequest, number: int) -> HttpResponse:
    """Take a change of one's own draft."""
    return _posted(request, _subject_of(_own(request, number)))


@for_operators("discard drafts")
@require_POST
def discard(request: HttpRequest, number: int) -> HttpResponse:
    """Throw one's own draft away."""
    try:
        gone = discard_draft(number, by=user_of(request))
    except UnknownDraftError as error:
        raise Http404(str(error)) from error
    messages.success(request, "The draft is discarded.")
    if gone.placement:
        return redirect("pages:placement", gone.placement.name)
    return redirect("pages:placements")


def _own(request: HttpRequest, number: int) -> Draft:
    try:
        return draft_of(number, by=user_of(request))
    except UnknownDraftError as error:
        raise Http404("You have no draft of that number.") from error


def _subject_of(found: Draft) -> Subject:
    return Subject(found.text, found.placement, found, reverse("pages:draft", args=[found.pk]))


def _posted(request: HttpRequest, subject: Subject) -> HttpResponse:
    """Take what was typed into a draft, beginning one with the first change; then do what the button says."""
    begun = request.POST.get("draft", "")
    if subject.draft is None and begun.isdecimal():
        subject = _subject_of(_own(request, int(begun)))
    base, revision = _base(request, subject)
    if subject.draft is None and base is not None:
        subject.text = dump_yaml(base)
    posted = read_post(request.POST, subject.text)
    is_new = subject.draft is None
    try:
        _keep(request, subject, posted, base=base, revision=revision)
    except DraftThereError as error:
        there = _subject_of(error.draft)
        trouble = _WAITING if is_handed_over(request.POST) else _THERE
        posted = Posted(there.text, posted.mode, is_structural=True, trouble=trouble)
        return _answer(request, there, posted, is_new=True)
    return _answer(request, subject, posted, is_new=is_new)


_THERE = "You had begun a draft elsewhere: it is shown here now, and what you typed last is not in it."

_WAITING = (
    "This is the draft that you had begun before. What you wanted to open is not in it: "
    "save or discard this one first, then open the other again."
)


def _base(request: HttpRequest, subject: Subject) -> tuple[dict[str, Any] | None, int]:
    """Give the manifest that the page was made from, and its revision; somebody may have saved since."""
    if subject.placement is None or subject.draft is not None:
        return None, 0
    given = request.POST.get("revision", "")
    revision = int(given) if given.isdecimal() and len(given) < 18 else subject.placement.revision
    since = [
        event.before
        for event in events_since(PLACEMENT, subject.placement.name, revision)
        if event.before and revision < subject.placement.revision
    ]
    return (since[0], revision) if since else (subject.placement.document, subject.placement.revision)


def _keep(
    request: HttpRequest, subject: Subject, posted: Posted, *, base: dict[str, Any] | None, revision: int
) -> None:
    now, is_for_review = datetime.now(UTC), "review" in request.POST and subject.placement is None
    if subject.draft is not None:
        write_draft(subject.draft, posted.text, now=now)
    elif posted.text != subject.text or is_for_review:
        subject.draft = start_draft(
            posted.text,
            placement=subject.placement,
            base=base,
            revision=revision,
            by=user_of(request),
            now=now,
        )
        subject.address = reverse("pages:draft", args=[subject.draft.pk])
    subject.text = posted.text


def _answer(request: HttpRequest, subject: Subject, posted: Posted, *, is_new: bool) -> HttpResponse:
    address = subject.address.partition("?as=")[0]
    if posted.mode is Mode.YAML:
        address += f"{'&' if '?' in address else '?'}as=yaml"
    if "review" in request.POST and subject.draft is not None:
        return _go(request, reverse("pages:review-draft", args=[subject.draft.pk]))
    if not wants_fragment(request):
        if posted.trouble:
            messages.warning(request, posted.trouble)
        return redirect(address)
    context = _context(subject, posted.mode, trouble=posted.trouble, focus=posted.focus)
    if posted.is_structural:
        answer = render(request, "drafts/_editor.html", context)
        return push_url(reswap(retarget(answer, "#editor"), "outerHTML"), address)
    answer = render(request, "drafts/_answer.html", context)
    return push_url(answer, address) if is_new and subject.draft is not None else answer


def _go(request: HttpRequest, address: str) -> HttpResponse:
    return HttpResponseClientRedirect(address) if wants_fragment(request) else redirect(address)


def _page(request: HttpRequest, subject: Subject, more: dict[str, Any] | None = None) -> HttpResponse:
    """Show the editor, a text that no form can show as YAML."""
    mode = Mode.YAML if request.GET.get("as") == Mode.YAML else Mode.FORM
    context = _context(subject, mode) | (more or {})
    if context["form"] is None and mode is Mode.FORM:
        context |= {"mode": str(Mode.YAML), "trouble": context["checked"].no_form}
    return render(request, "drafts/edit.html", context)


def _context(subject: Subject, mode: Mode, *, trouble: str = "", focus: str = "") -> dict[str, Any]:
    look = look_at(subject.text, saved=subject.placement, now=datetime.now(UTC))
    placement, draft = subject.placement, subject.draft
    return {
        "subject": subject,
        "draft": draft,
        "placement": placement,
        "mode": str(mode),
        "trouble": trouble,
        "focus": focus,
        **conflict(draft, placement),
        **showing(look, placement),
    }
