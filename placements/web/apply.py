"""Apply YAML: a preview with the difference of each object, then exactly what was previewed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods, require_POST

from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.errors import FieldError, InvalidManifest, ManifestWarning
from fleetui.apimachinery.secrets import HubObject
from fleetui.apimachinery.yaml import Document, dump_yaml
from fleetui.htmx import render_page, wants_fragment
from fleetui.middleware import costly
from fleetui.models import Event
from fleetui.permissions import (
    NotOfTeamError,
    by_operation,
    current_user,
    for_operators,
)
from placements.explain.diff import Piece, document_diff
from placements.models import Resource
from placements.services.apply import (
    CLUSTER,
    UNCHANGED,
    PartlyApplied,
    PreviewChangedError,
    RefusedDocuments,
    Result,
    apply_documents,
    document_name,
    preview_acceptable,
)
from placements.services.fleet.forms import read_documents
from placements.services.placements import UnschedulesEverything
from placements.services.resources.operations import RESOURCE
from placements.services.teams import may_change_resource
from placements.web.activity import url_of
from placements.web.dry_runs import dry_run_response
from placements.web.request import actor, file_or_text, is_confirmed
from placements.web.resources import placements_selecting

REFUSED = "refused"
_FUTURE = {one: f"would be {one}" for one in ("created", "changed", "joined")}
_PAGE = "resources/apply.html"
_MOST_SHOWN = 200


@dataclass(frozen=True, slots=True)
class ObjectPreview:
    """What applying would do to one object; `lines` are its difference, None where it is too long."""

    name: str
    did: str = REFUSED
    warnings: Sequence[ManifestWarning] = ()
    lines: Sequence[Piece] | None = ()
    errors: Sequence[FieldError] = ()

    @property
    def words(self) -> str:
        """What applying would do, in words that do not claim that it is done."""
        return _FUTURE.get(self.did, self.did)


@for_operators("apply manifests", of=by_operation)
@costly
@require_http_methods(["GET", "HEAD", "POST"])
def apply(request: HttpRequest) -> HttpResponse:
    """Preview the documents of a text or file, or apply exactly what was previewed."""
    if request.method != "POST":
        return render(request, _PAGE, {"text": _starting_text(request)})
    page: dict[str, Any] = {
        "text": request.POST.get("manifest", "").replace("\r\n", "\n"),
        "strict": "strict" in request.POST,
    }
    try:
        page["text"] = file_or_text(request, page["text"])
        documents = read_documents(page["text"])
        if "previewed" not in request.POST:
            return _show_preview(request, documents, page)
        results = apply_documents(
            documents,
            **actor(request),
            confirmed=is_confirmed(request),
            strict=page["strict"],
            previewed=request.POST["previewed"],
        )
        done = {
            "results": _linked(results),
            "placements": _rolling_out(documents, results),
            "is_placeable": any(
                result.kind in (RESOURCE, CLUSTER) for result in results
            ),
        }
        return render(request, "resources/applied.html", done)
    except PartlyApplied as error:
        page |= {
            "partly": str(error),
            "results": _linked(error.results),
            "errors": getattr(error.cause, "errors", ()),
        }
        if isinstance(error.cause, UnschedulesEverything):
            page["empties"] = error.cause
        return render(request, _PAGE, page, status=409)
    except (UnschedulesEverything, PreviewChangedError, RefusedDocuments) as error:
        page["has_changed"] = not isinstance(error, UnschedulesEverything)
        return _show_preview(request, documents, page, status=409)
    except (InvalidManifest, NotOfTeamError) as error:
        page["errors"] = getattr(
            error, "errors", [FieldError("", "forbidden", str(error))]
        )
        status = HTTPStatus.UNPROCESSABLE_ENTITY
        # A part of the page is shown with that status only.
        if isinstance(error, NotOfTeamError) and not wants_fragment(request):
            status = HTTPStatus.FORBIDDEN
        return render_page(
            request, _PAGE, page, fragment="resources/_preview.html", status=status
        )


def _starting_text(request: HttpRequest) -> str:
    """Return the manifest of the resource that the address names, without values that are not the user's."""
    key = request.GET.get("from", "").split("/")
    parts = dict(zip(("group", "kind", "namespace", "name"), key, strict=False))
    row = Resource.objects.filter(**parts).first() if len(key) == 4 else None
    if row is None:
        return ""
    content = row.content
    if may_change_resource(current_user(request), row):
        content = plain_manifest(content, shown_as=str(row))
    return dump_yaml(content)


def _show_preview(
    request: HttpRequest,
    documents: Sequence[Document],
    page: dict[str, Any],
    *,
    status: int = HTTPStatus.OK,
) -> HttpResponse:
    """Show the difference of each object; without a refused one it can be applied."""
    how = {**actor(request), "strict": page["strict"]}
    try:
        preview, refused = preview_acceptable(
            documents, **how, confirmed=is_confirmed(request)
        )
    except UnschedulesEverything as error:
        page["empties"] = error
        preview, refused = preview_acceptable(documents, **how, confirmed=True)
    rows = [
        ObjectPreview(document_name(document), errors=refused[id(document)])
        for document in documents
        if id(document) in refused
    ]
    if preview is not None:
        rows += _object_previews(preview.results, preview.changes)
        page["impact"] = preview.impact
    if preview is not None and not refused:
        page["digest"] = preview.digest
        page["placements"] = _rolling_out(documents, preview.results)
    elif status == HTTPStatus.OK:
        status = HTTPStatus.UNPROCESSABLE_ENTITY
    page["rows"] = rows[:_MOST_SHOWN]
    page["more"] = len(rows) - len(page["rows"])
    page["counts"] = Counter(row.words for row in rows).items()
    return render_page(
        request, _PAGE, page, fragment="resources/_preview.html", status=status
    )


def _object_previews(
    results: Sequence[Result], changes: Sequence[Event]
) -> list[ObjectPreview]:
    by_object = {(event.kind, event.name): event for event in changes}
    rows: list[ObjectPreview] = []
    for result in sorted(results, key=lambda one: one.did == UNCHANGED):
        change = by_object.get((result.kind, result.name))
        lines = (
            document_diff(change.before, change.after)
            if change and len(rows) < _MOST_SHOWN
            else ()
        )
        label = f"{result.object_kind} {result.object_name}"
        rows.append(ObjectPreview(label, result.did, result.warnings, lines))
    return rows


def _linked(results: Sequence[Result]) -> list[tuple[Result, str]]:
    return [(result, url_of(result.kind, result.name)) for result in results]


def _rolling_out(documents: Sequence[Document], results: Sequence[Result]) -> list[str]:
    pairs = zip(documents, results, strict=True)
    return placements_selecting(
        [
            HubObject.of(document.data)
            for document, result in pairs
            if result.kind == RESOURCE and result.did != UNCHANGED
        ]
    )


@for_operators("try manifests on the clusters", of=by_operation)
@costly
@require_POST
def dry_run(request: HttpRequest) -> HttpResponse:
    """Show what the clusters answer to applying the documents of a text or file."""
    return dry_run_response(
        request,
        lambda: file_or_text(
            request, request.POST.get("manifest", "").replace("\r\n", "\n")
        ),
    )
