"""Receivers of Django's signals: logins and roles change in many places that are not ours.

Logins come from every backend and library, and groups are changed by the admin, by claims of an identity
provider and by commands; nothing else sees all of them.
"""

from typing import Any

from django.contrib.auth.models import AnonymousUser, Group, Permission, User
from django.contrib.auth.signals import (
    user_logged_in,
    user_logged_out,
    user_login_failed,
)
from django.core.exceptions import PermissionDenied
from django.db.models.signals import m2m_changed
from django.dispatch import receiver
from django.http import HttpRequest

from fleetui.access.audit import record_access
from fleetui.access.models import ServiceAccount

_CHANGES = {"post_add": "added", "post_remove": "removed", "post_clear": "cleared"}


@receiver(user_logged_in)
def signed_in(request: HttpRequest, user: User, **_signal: Any) -> None:
    """Record a login. Raise PermissionDenied for a service account, whatever way it came."""
    if ServiceAccount.objects.filter(user=user.pk).exists():
        if hasattr(request, "session"):
            request.session.flush()
        request.user = AnonymousUser()
        record_access(
            "login failed",
            by=user,
            details={"reason": "service account"},
            request=request,
        )
        raise PermissionDenied("A service account cannot log in.")
    record_access("logged in", by=user, request=request)


@receiver(user_login_failed)
def sign_in_failed(
    credentials: dict[str, Any], request: HttpRequest | None = None, **_signal: Any
) -> None:
    """Record who tried, and never with what."""
    name = credentials.get("username") or credentials.get("email") or ""
    details = {"reason": credentials["reason"]} if "reason" in credentials else None
    record_access("login failed", by=str(name), details=details, request=request)


@receiver(user_logged_out)
def signed_out(request: HttpRequest, user: User | None, **_signal: Any) -> None:
    if user is not None:
        record_access("logged out", by=user, request=request)


_NAMED = {True: (User, "username"), False: (Group, "name")}


@receiver(m2m_changed, sender=User.groups.through)
def roles_changed(
    action: str, instance: Any, reverse: bool, pk_set: set[int] | None, **_signal: Any
) -> None:
    """Record that a user got or lost a group, from either side."""
    if action not in _CHANGES or (pk_set is not None and not pk_set):
        return
    model, key = _NAMED[reverse]
    names = sorted(
        model._default_manager.filter(pk__in=pk_set or ()).values_list(key, flat=True)
    )
    record_access("roles changed", str(instance), details={_CHANGES[action]: names})


@receiver(m2m_changed, sender=User.user_permissions.through)
@receiver(m2m_changed, sender=Group.permissions.through)
def permissions_changed(
    action: str, instance: Any, pk_set: set[int] | None, **_signal: Any
) -> None:
    if action in _CHANGES and (pk_set is None or pk_set):
        names = Permission.objects.filter(pk__in=pk_set or ()).values_list(
            "codename", flat=True
        )
        record_access(
            "permissions changed",
            str(instance),
            details={_CHANGES[action]: sorted(names)},
        )
