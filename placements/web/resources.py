"""The resources on the hub, and the overrides of them: lists and details."""

from collections.abc import Collection

from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import (
    require_http_methods,
    require_safe,
)

from fleetui.apimachinery.secrets import HubObject
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.bulk import first_or_raise
from fleetui.htmx import render_page
from fleetui.permissions import for_operators, for_readers
from placements.models import Override, Placement, Resource
from placements.services.filters import (
    LIST_FILTERS,
    RESOURCE_ORDERS,
    events_matching,
    resources_matching,
    with_sizes,
)
from placements.services.overrides.queries import effects_of, overrides_matching
from placements.services.resources.operations import RESOURCE, delete_resource, name_of
from placements.services.resources.queries import may_select, placements_with
from placements.services.teams import of_resource
from placements.web.activity import event_rows, object_label, resource_url
from placements.web.filter_bar import Facet, filter_bar, plain_choices, read_filters
from placements.web.request import (
    actor,
    order_from,
    page_from,
    pager_of,
    redirect_after,
)

_EVENTS_SHOWN = 15
_NAMESPACES_SHOWN = 200


@for_readers
@require_safe
def resources(request: HttpRequest) -> HttpResponse:
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
    return render_page(
        request,
        "resources/list.html",
        {
            "rows": [(row, resource_url(row), used_by[row.pk]) for row in page.rows],
            "pager": pager_of(
                request, len(page.rows), count, before=page.before, after=page.after
            ),
            "count": count,
            "bar": filter_bar(
                request, LIST_FILTERS["resources"], facets, order=RESOURCE_ORDERS
            ),
            "order": order,
        },
        fragment="resources/_list.html",
    )


def _get_resource(
    group: str,
    kind: str,
    namespace: str,
    name: str,
) -> Resource:
    """Return a resource by the parts of its address, where `_` is an empty part. Raises Http404."""
    key = {"group": group, "namespace": namespace}
    plain = {field: "" if value == "_" else value for field, value in key.items()}
    return first_or_raise(
        Resource.objects.filter(kind=kind, name=name, **plain),
        Http404(f"{kind} {name} not found on the hub."),
    )


@for_readers
@require_safe
def resource(
    request: HttpRequest,
    group: str,
    kind: str,
    namespace: str,
    name: str,
) -> HttpResponse:
    row = _get_resource(group, kind, namespace, name)
    one = HubObject.of(row.content)
    events = events_matching(kind=RESOURCE, name=name_of(one))
    return render_page(
        request,
        "resources/resource.html",
        {
            "resource": row,
            "subject": object_label(RESOURCE, name_of(one)),
            "url": resource_url(row),
            "apply_from": reverse("web:resource-apply", query={"from": name_of(one)}),
            "placements": placements_selecting([one]),
            "manifest": dump_yaml(row.content),
            "events": event_rows(events.order_by("-at", "-id")[:_EVENTS_SHOWN]),
        },
    )


def placements_selecting(objects: Collection[HubObject]) -> list[str]:
    rows = Placement.objects.filter(deleting_since=None).only(
        "namespace", "full_name", "document"
    )
    return [
        row.full_name for row in rows.order_by("full_name") if may_select(row, objects)
    ]


@for_operators("delete resources", of=of_resource)
@require_http_methods(["GET", "HEAD", "POST"])
def delete(
    request: HttpRequest,
    group: str,
    kind: str,
    namespace: str,
    name: str,
) -> HttpResponse:
    row = _get_resource(group, kind, namespace, name)
    one = HubObject.of(row.content)
    if request.method == "POST":
        gone = delete_resource(one.key, **actor(request))
        more = (
            f" with {len(gone) - 1} objects in the namespace" if len(gone) > 1 else ""
        )
        return redirect_after(
            request,
            f"{object_label(RESOURCE, name_of(one))}{more} deleted.",
            "web:resources",
        )
    is_namespace = (row.group, row.kind) == ("", "Namespace")
    inside = Resource.objects.filter(namespace=row.name).count() if is_namespace else 0
    return render(
        request,
        "resources/delete.html",
        {
            "url": resource_url(row),
            "subject": object_label(RESOURCE, name_of(one)),
            "inside": inside,
            "placements": placements_selecting([one]),
        },
    )


@for_readers
@require_safe
def overrides(request: HttpRequest) -> HttpResponse:
    filters = read_filters(request, "overrides")
    page = page_from(
        request,
        overrides_matching(text=filters["q"], placement=filters["placement"]),
        order="name",
        unique="id",
    )
    return render_page(
        request,
        "overrides/list.html",
        {
            "rows": page.rows,
            "after": page.after,
            "bar": filter_bar(request, LIST_FILTERS["overrides"]),
        },
        fragment="overrides/_list.html",
    )


@for_readers
@require_safe
def show_override(
    request: HttpRequest, kind: str, namespace: str, name: str
) -> HttpResponse:
    """Show an override: the resources and clusters that it changes, its snapshots, its manifest."""
    own = "" if namespace == "_" else namespace
    row = first_or_raise(
        Override.objects.filter(kind=kind, namespace=own, name=name),
        Http404(f"{kind} {name} not found on the hub."),
    )
    return render(
        request,
        "overrides/override.html",
        {"effects": effects_of(row), "manifest": dump_yaml(row.document)},
    )
