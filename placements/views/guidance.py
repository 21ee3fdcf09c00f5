"""Pages to look things up: the keys, what each set of rules does, what the words mean."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from fleetui.access import for_readers

PAGES = ("keyboard", "semantics", "glossary")


@for_readers
@require_safe
def help_page(request: HttpRequest, page: str) -> HttpResponse:
    """Show one of the pages."""
    return render(request, f"help/{page}.html", {"pages": PAGES})
