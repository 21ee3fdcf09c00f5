"""Who may open a page: what every view of the console says of itself in one line above it."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django_htmx.http import HttpResponseClientRedirect

from fleetui.htmx import wants_fragment
from fleetui.roles import may_operate, may_read

View = Callable[..., HttpResponseBase]


def for_readers(view: View) -> View:
    """Let in whoever has a role; the others log in first, or read what to ask for."""

    @wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return _to_login(request)
        if not may_read(request.user):
            return render(request, "no_role.html", status=403)
        return view(request, *args, **kwargs)

    return checked


def for_operators(wish: str) -> Callable[[View], View]:
    """Let in whoever may change the fleet; `wish` ends the sentence "You can view, but not …"."""

    def decorated(view: View) -> View:
        @for_readers
        @wraps(view)
        def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not may_operate(request.user):
                return render(request, "not_allowed.html", {"wish": wish}, status=403)
            return view(request, *args, **kwargs)

        return checked

    return decorated


def _to_login(request: HttpRequest) -> HttpResponse:
    """Send to the login page; a fragment must not put it into the middle of another page."""
    answer = redirect_to_login(request.get_full_path())
    return HttpResponseClientRedirect(answer.url) if wants_fragment(request) else answer
