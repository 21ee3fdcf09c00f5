"""The resources on the hub: the list, one of them, applying and deleting."""

from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlencode

from django.contrib import messages
from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from fleetui.access import for_operators, for_readers
from fleetui.htmx import render_page
from placements.forms import read_documents
from placements.manifests import dump_yaml
from placements.models import Placement, Resource
from placements.operations.applying import Result, apply_documents
from placements.operations.emptying import EmptiesPlacementError
from placements.operations.resources import RESOURCE, delete_resource, name_of
from placements.queries.hub import selectors_of
from placements.queries.lists import events_matching, resources_matching
from placements.scheduling.faults import Fault, Faults
from placements.scheduling.hub.objects import HubObject
from placements.scheduling.hub.secrets import without_secrets
from placements.scheduling.hub.selection import concerns
from placements.views.happenings import happening_rows, subject_of, url_of
from placements.views.lists import page_from
from placements.views.people import is_confirmed, user_of

_EVENTS_SHOWN = 15
_NAMESPACES_SHOWN = 200


@dataclass(frozen=True, slots=True)
class ResourceRow:
    """One line of the list."""

    resource: Resource
    url: str


@for_readers
@require_safe
def resources(request: HttpRequest) -> HttpResponse:
    """List what is on the hub, by kind and namespace."""
    kind, namespace = request.GET.get("kind", ""), request.GET.get("namespace", "")
    text = request.GET.get("q", "").strip()
    rows = resources_matching(kind=kind, namespace=namespace, text=text)
    page = page_from(request, rows.defer("content"), order="kind", unique="id")
    kinds = Resource.objects.values_list("kind").annotate(count=Count("pk")).order_by("kind")
    namespaces = Resource.objects.exclude(namespace="").order_by("namespace")
    context = {
        "rows": [ResourceRow(one, _url(one)) for one in page.rows],
        "after": page.after,
        "count": rows.count(),
        "kinds": list(kinds),
        "namespaces": list(namespaces.values_list("namespace", flat=True).distinct()[:_NAMESPACES_SHOWN]),
        "wanted": {"kind": kind, "namespace": namespace, "text": text},
    }
    return render_page(request, "resources/list.html", context, fragment="resources/_list.html")


def _url(one: Resource) -> str:
    return url_of(RESOURCE, _path(one))


def _path(one: Resource) -> str:
    return "/".join((one.group, one.kind, one.namespace, one.name))


def _found(group: str, kind: str, namespace: str, name: str) -> Resource:
    """Give a resource by the parts of its address, where `_` stands for nothing. Raises Http404."""
    key = {"group": group, "namespace": namespace}
    plain = {field: "" if value == "_" else value for field, value in key.items()}
    row = Resource.objects.filter(kind=kind, name=name, **plain).first()
    if row is None:
        raise Http404(f"There is no {kind} {name} on the hub.")
    return row


@for_readers
@require_safe
def resource(request: HttpRequest, group: str, kind: str, namespace: str, name: str) -> HttpResponse:
    """Show one object, and which placements may take it along."""
    row = _found(group, kind, namespace, name)
    one = HubObject.of(row.content)
    context = {
        "resource": row,
        "subject": subject_of(RESOURCE, name_of(one)),
        "url": _url(row),
        "apply_from": f"{reverse('pages:apply')}?{urlencode({'from': _path(row)})}",
        "placements": _taken_by(one),
        "manifest": dump_yaml(without_secrets(row.content)),
        "events": happening_rows(
            events_matching(kind=RESOURCE, name=name_of(one)).order_by("-id")[:_EVENTS_SHOWN]
        ),
    }
    return render_page(request, "resources/resource.html", context)


def _taken_by(one: HubObject) -> list[str]:
    """Name the placements whose selectors this object can matter to."""
    rows = Placement.objects.filter(deleting_since=None).only("name", "document").order_by("name")
    return [row.name for row in rows if concerns(selectors_of(row), [one])]


@for_operators("delete resources")
@require_http_methods(["GET", "HEAD", "POST"])
def delete(request: HttpRequest, group: str, kind: str, namespace: str, name: str) -> HttpResponse:
    """Say what would go, or delete it."""
    row = _found(group, kind, namespace, name)
    one = HubObject.of(row.content)
    if request.method == "POST":
        gone = delete_resource(one.key, by=user_of(request), now=datetime.now(UTC))
        more = f" and {len(gone) - 1} in it" if len(gone) > 1 else ""
        messages.success(request, f"{subject_of(RESOURCE, name_of(one))}{more} deleted.")
        return redirect("pages:resources")
    is_namespace = (row.group, row.kind) == ("", "Namespace")
    inside = Resource.objects.filter(namespace=row.name).count() if is_namespace else 0
    context = {
        "resource": row,
        "url": _url(row),
        "subject": subject_of(RESOURCE, name_of(one)),
        "inside": inside,
        "placements": _taken_by(one),
    }
    return render(request, "resources/delete.html", context)


@for_operators("apply manifests")
@require_http_methods(["GET", "HEAD", "POST"])
def apply(request: HttpRequest) -> HttpResponse:
    """Apply the documents of a text or a file, all or none, and say what became of each."""
    if request.method != "POST":
        return render(request, "resources/apply.html", {"text": _to_begin_with(request)})
    text = request.POST.get("manifest", "").replace("\r\n", "\n")
    try:
        given = _given(request, text)
        results = apply_documents(
            read_documents(given),
            by=user_of(request),
            now=datetime.now(UTC),
            confirmed=is_confirmed(request),
        )
    except EmptiesPlacementError as error:
        shown = given if isinstance(given, str) else given.decode("utf-8-sig")
        return render(request, "resources/apply.html", {"text": shown, "empties": error}, status=409)
    except Faults as found:
        return render(request, "resources/apply.html", {"text": text, "faults": found.faults}, status=422)
    return render(request, "resources/applied.html", {"results": [_result(one) for one in results]})


def _to_begin_with(request: HttpRequest) -> str:
    """Give the text of the resource that the address names, to change it; none else."""
    parts = request.GET.get("from", "").split("/")
    if len(parts) != 4:
        return ""
    group, kind, namespace, name = parts
    row = Resource.objects.filter(group=group, kind=kind, namespace=namespace, name=name).first()
    return dump_yaml(row.content) if row else ""


def _given(request: HttpRequest, text: str) -> str | bytes:
    upload = request.FILES.get("file")
    if upload is not None:
        return upload.read()
    if not text.strip():
        raise Faults([Fault("", "required", "nothing was given", "a file, or text")])
    return text


def _result(one: Result) -> dict[str, object]:
    subject, url = subject_of(one.kind, one.name), url_of(one.kind, one.name)
    return {"kind": one.kind, "subject": subject, "url": url, "did": one.did, "caveats": one.caveats}
