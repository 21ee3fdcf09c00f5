"""The overrides of a hub: list and detail, with the clusters that each rule selects."""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from fleetui.apimachinery.yaml import dump_yaml
from fleetui.htmx import render_page
from fleetui.permissions import for_readers
from placements.models import Override
from placements.services.filters import LIST_FILTERS
from placements.services.overrides.queries import effects_of, overrides_matching
from placements.web.filter_bar import filter_bar, read_filters
from placements.web.request import page_from


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
    row = Override.objects.filter(kind=kind, namespace=own, name=name).first()
    if row is None:
        raise Http404(f"{kind} {name} not found on the hub.")
    return render(
        request,
        "overrides/override.html",
        {"effects": effects_of(row), "manifest": dump_yaml(row.document)},
    )
