"""The resources on the hub: list, detail, apply and delete."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import (
    require_http_methods,
    require_POST,
    require_safe,
)

from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.secrets import HubObject
from fleetui.apimachinery.yaml import Document, dump_yaml
from fleetui.htmx import render_page
from fleetui.middleware import costly
from fleetui.permissions import by_operation, current_user, for_operators, for_readers
from placements.models import Placement, Resource
from placements.services.apply import (
    UNCHANGED,
    PartlyApplied,
    Result,
    apply_documents,
    preview_documents,
)
from placements.services.filters import (
    LIST_FILTERS,
    RESOURCE_ORDERS,
    events_matching,
    resources_matching,
    with_sizes,
)
from placements.services.fleet.forms import read_documents
from placements.services.placements import UnschedulesEverything
from placements.services.resources.operations import RESOURCE, delete_resource, name_of
from placements.services.resources.queries import may_select, placements_with
from placements.services.teams import may_change_resource, of_resource
from placements.web.activity import event_rows, object_label, resource_url, url_of
from placements.web.dry_runs import dry_run_response
from placements.web.filter_bar import Facet, filter_bar, plain_choices, read_filters
from placements.web.request import (
    file_or_text,
    is_confirmed,
    order_from,
    page_from,
    pager_of,
)

_EVENTS_SHOWN = 15
_NAMESPACES_SHOWN = 200


@for_readers
@require_safe
def resources(request: HttpRequest) -> HttpResponse:
    """List the resources on the hub, by kind and namespace."""
    filters = read_filters(request, "resources")
    order = order_from(request, RESOURCE_ORDERS)
    rows = resources_matching(text=filters.pop("q"), **filters)
    page = page_from(request, with_sizes(rows), order=order, unique="id")
    kinds = (
        Resource.objects.values_list("kind")
        .annotate(count=Count("pk"))
        .order_by("kind")
    )
    namespaces = Resource.objects.exclude(namespace="").order_by("namespace")
    used_by = placements_with(page.rows)
    named = namespaces.values_list("namespace", flat=True).distinct()[
        :_NAMESPACES_SHOWN
    ]
    facets = [
        Facet("kind", "Kind", [(one, one, number) for one, number in kinds]),
        Facet("namespace", "Namespace", plain_choices(named)),
    ]
    count = rows.count()
    context = {
        "rows": [(one, resource_url(one), used_by[one.pk]) for one in page.rows],
        "pager": pager_of(
            request, len(page.rows), count, before=page.before, after=page.after
        ),
        "count": count,
        "bar": filter_bar(
            request, LIST_FILTERS["resources"], facets, order=RESOURCE_ORDERS
        ),
        "order": order,
    }
    return render_page(
        request, "resources/list.html", context, fragment="resources/_list.html"
    )


def _get_resource(group: str, kind: str, namespace: str, name: str) -> Resource:
    """Return a resource by the parts of its address, where `_` is an empty part. Raises Http404."""
    key = {"group": group, "namespace": namespace}
    plain = {field: "" if value == "_" else value for field, value in key.items()}
    row = Resource.objects.filter(kind=kind, name=name, **plain).first()
    if row is None:
        raise Http404(f"{kind} {name} not found on the hub.")
    return row


@for_readers
@require_safe
def resource(
    request: HttpRequest, group: str, kind: str, namespace: str, name: str
) -> HttpResponse:
    """Show one resource and the placements that select it."""
    row = _get_resource(group, kind, namespace, name)
    one = HubObject.of(row.content)
    events = events_matching(kind=RESOURCE, name=name_of(one))
    context = {
        "resource": row,
        "subject": object_label(RESOURCE, name_of(one)),
        "url": resource_url(row),
        "apply_from": f"{reverse('web:resource-apply')}?{urlencode({'from': name_of(one)})}",
        "placements": _selecting([one]),
        "manifest": dump_yaml(row.content),
        "events": event_rows(events.order_by("-at", "-id")[:_EVENTS_SHOWN]),
    }
    return render_page(request, "resources/resource.html", context)


def _selecting(objects: Collection[HubObject]) -> list[str]:
    rows = Placement.objects.filter(deleting_since=None).only(
        "namespace", "full_name", "document"
    )
    return [
        row.full_name for row in rows.order_by("full_name") if may_select(row, objects)
    ]


@for_operators("delete resources", of=of_resource)
@require_http_methods(["GET", "HEAD", "POST"])
def delete(
    request: HttpRequest, group: str, kind: str, namespace: str, name: str
) -> HttpResponse:
    """Show the confirmation, or delete the resource."""
    row = _get_resource(group, kind, namespace, name)
    one = HubObject.of(row.content)
    if request.method == "POST":
        gone = delete_resource(one.key, by=current_user(request), now=datetime.now(UTC))
        more = (
            f" with {len(gone) - 1} objects in the namespace" if len(gone) > 1 else ""
        )
        messages.success(
            request, f"{object_label(RESOURCE, name_of(one))}{more} deleted."
        )
        return redirect("web:resources")
    is_namespace = (row.group, row.kind) == ("", "Namespace")
    inside = Resource.objects.filter(namespace=row.name).count() if is_namespace else 0
    context = {
        "resource": row,
        "url": resource_url(row),
        "subject": object_label(RESOURCE, name_of(one)),
        "inside": inside,
        "placements": _selecting([one]),
    }
    return render(request, "resources/delete.html", context)


@for_operators("apply manifests", of=by_operation)
@costly
@require_http_methods(["GET", "HEAD", "POST"])
def apply(request: HttpRequest) -> HttpResponse:
    """Apply the documents of a text or file, and show the result of each."""
    if request.method != "POST":
        key = request.GET.get("from", "").split("/")  # the resource to start with
        parts = dict(zip(("group", "kind", "namespace", "name"), key, strict=False))
        row = Resource.objects.filter(**parts).first() if len(key) == 4 else None
        content = row.content if row else None
        if row and may_change_resource(current_user(request), row):
            content = plain_manifest(content, shown_as=str(row))
        return render(
            request,
            "resources/apply.html",
            {"text": dump_yaml(content) if content else ""},
        )
    text = request.POST.get("manifest", "").replace("\r\n", "\n")
    try:
        content = file_or_text(request, text)
        documents, by, now = (
            read_documents(content),
            current_user(request),
            datetime.now(UTC),
        )
        manifests = content if isinstance(content, str) else content.decode("utf-8-sig")
        confirmed, strict = is_confirmed(request), "strict" in request.POST
        if "preview" in request.POST:
            preview = preview_documents(
                documents, by=by, now=now, confirmed=confirmed, strict=strict
            )
            context = {
                "text": manifests,
                "strict": strict,
                **_results_context(documents, preview.results),
                "impact": preview.impact,
            }
            return render(request, "resources/apply.html", context)
        results = apply_documents(
            documents, by=by, now=now, confirmed=confirmed, strict=strict
        )
    except PartlyApplied as error:
        context = {"text": manifests, "strict": strict, **_partial_context(error)}
        return render(request, "resources/apply.html", context, status=409)
    except UnschedulesEverything as error:
        return render(
            request,
            "resources/apply.html",
            {"text": manifests, "empties": error},
            status=409,
        )
    except InvalidManifest as error:
        return render(
            request,
            "resources/apply.html",
            {"text": text, "errors": error.errors},
            status=422,
        )
    return render(
        request, "resources/applied.html", _results_context(documents, results)
    )


def _partial_context(error: PartlyApplied) -> dict[str, Any]:
    """Return what was applied before an error, the error, and the confirmation that it may need."""
    errors = error.cause.errors if isinstance(error.cause, InvalidManifest) else ()
    empties = error.cause if isinstance(error.cause, UnschedulesEverything) else None
    rows = [
        (one, object_label(one.kind, one.name), url_of(one.kind, one.name))
        for one in error.results
    ]
    return {"partly": str(error), "errors": errors, "empties": empties, "results": rows}


def _results_context(
    documents: Sequence[Document], results: Sequence[Result]
) -> dict[str, Any]:
    """Return the results, and the placements that roll out what changes."""
    pairs = zip(documents, results, strict=True)
    changed = [
        HubObject.of(one.data)
        for one, result in pairs
        if result.kind == RESOURCE and result.did != UNCHANGED
    ]
    rows = [
        (one, object_label(one.kind, one.name), url_of(one.kind, one.name))
        for one in results
    ]
    return {"results": rows, "placements": _selecting(changed)}


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
