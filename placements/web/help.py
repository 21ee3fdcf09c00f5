"""Help pages with the documentation, and the demo fleet: loading and removing it."""

from django.contrib import messages
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
)
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import (
    require_http_methods,
    require_POST,
    require_safe,
)

from fleetui.documentation import (
    UnknownPageError,
    documentation_files,
    documentation_page,
    pages_by_folder,
)
from fleetui.permissions import for_operators, for_readers
from placements.models import Decision
from placements.services.demo.load import (
    DEMO_SIZES,
    NameTakenError,
    demo_state,
    load_demo,
    remove_demo,
)
from placements.web.request import actor, redirect_after

PAGES = ("keyboard", "semantics", "glossary")
_EXAMPLE = "concepts/four-clusters"
"""The page about a placement of the demo of four."""


@for_readers
@require_safe
def help_page(request: HttpRequest, page: str) -> HttpResponse:
    return render(request, f"help/{page}.html", {"pages": PAGES})


@for_readers
@require_safe
def documentation(request: HttpRequest, path: str = "index") -> HttpResponse:
    if path.endswith(".png") and path in documentation_files():
        return HttpResponse(
            documentation_files()[path].read_bytes(), content_type="image/png"
        )
    try:
        page = documentation_page(path, prefix=reverse("web:documentation"))
    except UnknownPageError as error:
        raise Http404(f"No page {path} in the documentation") from error
    is_start, is_example = path == "index", path == _EXAMPLE
    return render(
        request,
        "help/documentation.html",
        {
            "page": page,
            "pages": PAGES,
            "is_start": is_start,
            "folders": pages_by_folder() if is_start else {},
            "is_example": is_example,
            "example": is_example
            and Decision.objects.select_related("record")
            .filter(placement__full_name="even-by-region", placement__is_demo=True)
            .order_by("-number")
            .first(),
        },
    )


@for_readers
@require_safe
def demo(request: HttpRequest) -> HttpResponse:
    """Show what there is of the demo, and load, replace or remove it."""
    return render(
        request, "demo/demo.html", {"demo": demo_state(), "sizes": DEMO_SIZES}
    )


@for_operators("load demo data")
@require_POST
def load(request: HttpRequest) -> HttpResponse:
    """Load a demo fleet of the given size; it replaces the present one."""
    size = request.POST.get("size", "")
    if size not in map(str, DEMO_SIZES):
        allowed = ", ".join(map(str, DEMO_SIZES))
        messages.error(
            request,
            f"size: Unsupported value: {size[:20]!r}. Supported values: {allowed}",
        )
        return redirect("web:demo")
    try:
        load_demo(int(size), **actor(request))
    except NameTakenError as error:
        messages.error(request, f"Demo data not loaded: {error}")
        return redirect("web:demo")
    return redirect_after(
        request, f"Demo data loaded: {int(size):,} clusters.", "web:overview"
    )


@for_operators("remove demo data")
@require_http_methods(["GET", "HEAD", "POST"])
def remove(request: HttpRequest) -> HttpResponse:
    if request.method == "POST":
        remove_demo(**actor(request))
        return redirect_after(request, "Demo data removed.", "web:overview")
    return render(request, "demo/remove.html", {"demo": demo_state()})
