"""Users with their roles, for superusers, and API tokens."""

from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from fleetui.access.models import SCOPES, TeamGrant
from fleetui.access.tokens import (
    create_token,
    revoke_all_tokens,
    revoke_token,
    visible_tokens,
)
from fleetui.access.users import change_user, create_user, known_users
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.bulk import first_or_raise
from fleetui.permissions import current_user, for_readers, for_superusers
from fleetui.role_names import Role
from placements.web.request import number_of, page_from, redirect_after

ROLES = {
    Role.VIEWER: "View clusters, placements and decisions",
    Role.OPERATOR: "View everything, change clusters, placements and resources",
    Role.APPROVER: "View everything and approve stages of rollouts",
    Role.CLUSTER_ADMINISTRATOR: "View everything and set connections of clusters",
}


@for_superusers
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def users(request: HttpRequest) -> HttpResponse:
    params, status = request.POST, 200
    context: dict[str, Any] = {"username": ""}
    if request.method == "POST":
        name = params.get("username", "").strip()
        try:
            create_user(
                name,
                params.get("password", ""),
                roles=params.getlist("roles"),
                by=current_user(request),
            )
        except InvalidManifest as error:
            context, status = {"errors": error.errors, "username": name}, 422
        else:
            return redirect_after(request, f"User {name} added.", "web:users")
    page = page_from(request, known_users(), order="username", unique="username")
    context |= {
        "rows": [(row, _roles_of(row)) for row in page.rows],
        "after": page.after,
        **_form(params.getlist("roles") or [Role.VIEWER]),
    }
    return render(request, "users/list.html", context, status=status)


@for_superusers
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def user(request: HttpRequest, number: int) -> HttpResponse:
    """Show the roles of a user and whether the account is active, or change them."""
    person = get_object_or_404(known_users(), pk=number)
    params, status = request.POST, 200
    roles, is_active = _roles_of(person), person.is_active
    context: dict[str, Any] = {"person": person}
    if request.method == "POST":
        roles, is_active = params.getlist("roles"), "active" in params
        try:
            change_user(
                person, roles=roles, is_active=is_active, by=current_user(request)
            )
        except InvalidManifest as error:
            context["errors"], status = error.errors, 422
        else:
            return redirect_after(request, f"User {person} saved.", "web:users")
    grants = TeamGrant.objects.filter(group__user=person).select_related("hub", "group")
    context |= {
        "is_active": is_active,
        "grants": grants.order_by("hub", "group", "role", "pk"),
        **_form(roles),
    }
    return render(request, "users/user.html", context, status=status)


def _roles_of(person: User) -> list[str]:
    return sorted({group.name for group in person.groups.all()} & set(Role))


def _form(chosen: list[str]) -> dict[str, Any]:
    roles = [(role.value, words, role in chosen) for role, words in ROLES.items()]
    return {"roles": roles, "provider": getattr(settings, "OIDC_NAME", "")}


_SCOPE_WORDS = {
    "read": "Read",
    "operate": "Operate: what your roles operator and cluster-administrator allow",
    "approve": "Approve: what your role approver allows",
}
_DAYS = 90


@for_readers
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def tokens(request: HttpRequest) -> HttpResponse:
    user, now = current_user(request), datetime.now(UTC)
    context: dict[str, Any] = {"name": "", "chosen": ["read"], "days": _DAYS}
    status = 200
    if request.method == "POST":
        params = request.POST
        context |= {"name": params.get("name", ""), "chosen": params.getlist("scopes")}
        context["days"] = number_of(params.get("days", "")) or 0
        try:
            context["created"], context["secret"] = create_token(
                _owner(params.get("user", ""), user),
                name=context["name"],
                scopes=context["chosen"],
                days=context["days"],
                by=user,
                now=now,
            )
            context["name"] = ""
        except InvalidManifest as error:
            context["errors"], status = error.errors, 422
    accounts = User.objects.filter(service_account__isnull=False).order_by("username")
    context |= {
        "tokens": [
            (token, token.expires_at <= now)
            for token in visible_tokens(user).order_by("-created_at", "-pk")
        ],
        "scopes": [
            (scope, _SCOPE_WORDS[scope], scope in context["chosen"]) for scope in SCOPES
        ],
        "periods": [
            one for one in (1, 7, 30, 90, 365) if one <= settings.TOKEN_MOST_DAYS
        ]
        or [settings.TOKEN_MOST_DAYS],
        "accounts": accounts if user.is_superuser else (),
    }
    return render(request, "access/tokens.html", context, status=status)


def _owner(name: str, user: User) -> User:
    """Return the user of a new token: the caller, or a service account. Raise InvalidManifest."""
    if name in ("", user.get_username()):
        return user
    account = User.objects.filter(username=name, service_account__isnull=False).first()
    if account is None:
        raise InvalidManifest.of("user", "not-found", "Not found", "a service account")
    return account


@for_readers
@require_http_methods(["GET", "HEAD", "POST"])
def revoke(request: HttpRequest, number: int | None) -> HttpResponse:
    """Show the confirmation, or revoke one token, or all of the user."""
    user, now = current_user(request), datetime.now(UTC)
    if number is None:
        if request.method == "POST":
            count = revoke_all_tokens(user, by=user, now=now)
            return redirect_after(
                request,
                f"{count} API token{'' if count == 1 else 's'} revoked.",
                "web:tokens",
            )
        return render(request, "access/revoke.html", {"count": user.api_tokens.count()})
    token = first_or_raise(
        visible_tokens(user).filter(pk=number),
        Http404(f"API token {number} not found."),
    )
    if request.method == "POST":
        revoke_token(number, by=user, now=now)
        return redirect_after(request, f"API token {token.name} revoked.", "web:tokens")
    return render(request, "access/revoke.html", {"token": token})
