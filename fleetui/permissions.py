"""Four roles as groups, checked by pages, REST and admin with the same functions.

A viewer reads, an operator writes, an approver reads and approves, a cluster administrator reads and sets the
connections of clusters; a superuser may do everything.
"""

from collections.abc import Callable, Collection
from functools import wraps
from typing import Any

from django.apps import apps
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.contrib.auth.views import redirect_to_login
from django.db.models import Exists, FilteredRelation, Q
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django_htmx.http import HttpResponseClientRedirect

from fleetui.htmx import wants_fragment
from fleetui.hub_scope import current_hub_id
from fleetui.role_names import Role


def may_read(user: AbstractBaseUser | AnonymousUser) -> bool:
    return _has_one_of(user, tuple(Role))


def may_operate(user: AbstractBaseUser | AnonymousUser) -> bool:
    return _has_one_of(user, (Role.OPERATOR,))


def may_approve(user: AbstractBaseUser | AnonymousUser) -> bool:
    return _has_one_of(user, (Role.APPROVER,))


def may_administer_clusters(user: AbstractBaseUser | AnonymousUser) -> bool:
    return _has_one_of(user, (Role.CLUSTER_ADMINISTRATOR,))


def has_role(user: AbstractBaseUser | AnonymousUser, role: Role) -> bool:
    """Return whether a user has a role on the hub in scope."""
    return _has_one_of(user, (role,))


def may_view_secrets(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Return whether a user sees the values of Secrets where nothing is edited: a permission of its own."""
    return isinstance(user, User) and user.has_perm("placements.view_secrets")


def _has_one_of(user: AbstractBaseUser | AnonymousUser, roles: Collection[Role]) -> bool:
    if not isinstance(user, User) or not user.is_active:
        return False
    return user.is_superuser or not roles_of(user).isdisjoint(roles)


def roles_of(user: User) -> frozenset[str]:
    """Return the roles of a user on the hub in scope; one query for each request.

    They are the groups of the user, unless somebody has a grant for this hub: then only grants count.
    """
    hub = current_hub_id()
    known: dict[int, frozenset[str]] = user.__dict__.setdefault("_fleetui_roles", {})
    if hub not in known:
        grants = apps.get_model("clusters", "HubGrant")._default_manager.filter(hub=hub)
        of_hub = FilteredRelation("hub_grants", condition=Q(hub_grants__hub=hub))
        groups = user.groups.annotate(is_granted=Exists(grants), of_hub=of_hub)
        rows = groups.values_list("name", "is_granted", "of_hub__role")
        known[hub] = frozenset(role or "" if is_granted else name for name, is_granted, role in rows)
    return known[hub]


View = Callable[..., HttpResponseBase]


def for_readers(view: View) -> View:
    """Require a role; without one the response is the login page or the page that names the roles."""

    @wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            answer = redirect_to_login(request.get_full_path())
            return HttpResponseClientRedirect(answer.url) if wants_fragment(request) else answer
        if not may_read(request.user):
            return render(request, "no_role.html", status=403)
        return view(request, *args, **kwargs)

    return checked


def for_roles(*roles: Role, action: str) -> Callable[[View], View]:
    """Require one of these roles; `action` ends the sentence "You don't have permission to …"."""

    def decorated(view: View) -> View:
        @for_readers
        @wraps(view)
        def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not _has_one_of(request.user, roles):
                context = {"action": action, "role": " or ".join(roles)}
                return render(request, "not_allowed.html", context, status=403)
            return view(request, *args, **kwargs)

        return checked

    return decorated


def for_operators(action: str) -> Callable[[View], View]:
    return for_roles(Role.OPERATOR, action=action)


def for_approvers(action: str) -> Callable[[View], View]:
    return for_roles(Role.APPROVER, action=action)


def for_cluster_administrators(action: str) -> Callable[[View], View]:
    return for_roles(Role.CLUSTER_ADMINISTRATOR, action=action)
