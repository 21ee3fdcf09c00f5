"""Who may open a page: what every view of the console says of itself in one line above it."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django_htmx.http import HttpResponseClientRedirect

from fleetui.htmx import wants_fragment
from fleetui.roles import Role, may_approve, may_operate, may_read

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
                return _not_allowed(request, wish, Role.OPERATOR)
            return view(request, *args, **kwargs)

        return checked

    return decorated


def for_approvers(wish: str) -> Callable[[View], View]:
    """Let in whoever may let a stage go on; `wish` ends the sentence "You can view, but not …"."""

    def decorated(view: View) -> View:
        @for_readers
        @wraps(view)
        def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not may_approve(request.user):
                return _not_allowed(request, wish, Role.APPROVER)
            return view(request, *args, **kwargs)

        return checked

    return decorated


def _not_allowed(request: HttpRequest, wish: str, role: Role) -> HttpResponse:
    return render(request, "not_allowed.html", {"wish": wish, "role": str(role)}, status=403)


def _to_login(request: HttpRequest) -> HttpResponse:
    """Send to the login page; a fragment must not put it into the middle of another page."""
    answer = redirect_to_login(request.get_full_path())
    return HttpResponseClientRedirect(answer.url) if wants_fragment(request) else answer
