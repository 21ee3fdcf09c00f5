"""Users and their roles, for superusers; passwords, groups and rights of superusers are in the admin."""

from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from fleetui.access.models import TeamGrant
from fleetui.access.users import change_user, create_user, known_users
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.permissions import current_user, for_superusers
from fleetui.role_names import Role
from placements.web.request import page_from, redirect_after

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
        "rows": [(one, _roles_of(one)) for one in page.rows],
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
