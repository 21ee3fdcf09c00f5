"""Who may what: three groups, asked by every page, endpoint and admin action in the same words.

A viewer reads, an operator writes, an approver reads and approves; a superuser may do everything.
"""

from collections.abc import Collection
from enum import StrEnum

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User


class Role(StrEnum):
    """The names of the groups."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    APPROVER = "approver"


def may_read(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Tell whether the user may see the fleet."""
    return _has_one_of(user, tuple(Role))


def may_operate(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Tell whether the user may change the fleet and its placements."""
    return _has_one_of(user, (Role.OPERATOR,))


def may_approve(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Tell whether the user may approve a stage of a rollout."""
    return _has_one_of(user, (Role.APPROVER,))


def _has_one_of(user: AbstractBaseUser | AnonymousUser, roles: Collection[Role]) -> bool:
    if not isinstance(user, User) or not user.is_active:
        return False
    return user.is_superuser or not roles_of(user).isdisjoint(roles)


def roles_of(user: User) -> frozenset[str]:
    """Give the user's groups; they are looked up once for each request."""
    found: frozenset[str] | None = getattr(user, "_fleetui_roles", None)
    if found is None:
        found = frozenset(user.groups.values_list("name", flat=True))
        user._fleetui_roles = found  # type: ignore[attr-defined]  # the cache lives as long as the object
    return found
