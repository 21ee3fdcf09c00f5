"""One URL, two answers: the whole page for a browser, its fragment for htmx."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils.cache import patch_vary_headers
from django_htmx.http import HttpResponseClientRedirect
from django_htmx.middleware import HtmxDetails


def wants_fragment(request: HttpRequest) -> bool:
    """Return whether htmx requests a fragment; its history restore requires the whole page."""
    details: HtmxDetails | None = getattr(request, "htmx", None)
    return bool(details and not details.boosted and not details.history_restore_request)


def render_page(
    request: HttpRequest,
    page: str,
    context: Mapping[str, Any],
    *,
    fragment: str | None = None,
    status: int = 200,
) -> HttpResponse:
    """Render the page, or for htmx only the fragment, from the same context."""
    part = fragment if fragment and wants_fragment(request) else page
    response = render(request, part, dict(context), status=status)
    patch_vary_headers(response, ["HX-Request"])
    return response


def redirect_page(request: HttpRequest, url: str) -> HttpResponse:
    """Redirect the page, also where htmx would put the answer into a fragment."""
    return HttpResponseClientRedirect(url) if wants_fragment(request) else redirect(url)


def query_with(query: QueryDict, **changes: object) -> str:
    """Return the parameters of a page as the end of an address, some of them changed; None leaves one out.

    Lists have dozens of such links: a copy of the query for each would take several times as long.
    """
    kept = [
        (name, value)
        for name, values in query.lists()
        for value in values
        if name not in changes
    ]
    changed = [(name, value) for name, value in changes.items() if value is not None]
    return f"?{urlencode([*kept, *changed])}"
