"""The hubs of this console, and who may see them."""

from contextlib import AbstractContextManager

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q, QuerySet

from clusters.models import Hub, HubGrant
from clusters.models.hubs import HubKind
from fleetui.access.models import TeamGrant
from fleetui.bulk import first_or_raise
from fleetui.errors import UnknownObject
from fleetui.hub_scope import scopes_disabled
from fleetui.permissions import AnyUser, Role
from fleetui.prepared import PreparedQuery


class UnknownHubError(UnknownObject):
    """There is no such hub."""

    problem_type = "unknown-hub"

    def __init__(self, name: str) -> None:
        super().__init__(f"hub {name!r} not found")


def hub_named(name: str) -> Hub | None:
    """Return a hub that is not removed."""
    return Hub.objects.filter(name=name, removed_at__isnull=True).first()


def hub_id_named(name: str) -> int | None:
    return (
        Hub.objects.filter(name=name, removed_at__isnull=True)
        .values_list("pk", flat=True)
        .first()
    )


def has_watched_hubs() -> bool:
    """Return whether there is a live hub that is not paused."""
    return (
        Hub.objects.filter(removed_at=None, is_paused=False)
        .exclude(kind=HubKind.LOCAL)
        .exists()
    )


def across_hubs() -> AbstractContextManager[None]:
    """Include the rows of all hubs in the queries of this block.

    For maintenance and for lists of hubs; the caller shows nothing that the user may not read.
    """
    return scopes_disabled()


def live_hubs() -> QuerySet[Hub]:
    return (
        Hub.objects.filter(removed_at=None)
        .exclude(kind=HubKind.LOCAL)
        .select_related("credential")
    )


live_hub_keys = PreparedQuery(lambda: live_hubs().values_list("pk", flat=True))
"""The primary keys of the live hubs, read each second."""


def live_hub(name: str) -> Hub:
    """Return a live hub. Raise UnknownHubError."""
    return first_or_raise(live_hubs().filter(name=name), UnknownHubError(name))


def visible_hubs(user: AnyUser) -> QuerySet[Hub]:
    """Return the live hubs that a person may see: those without grants, or with one for a group of theirs."""
    hubs = live_hubs()
    if not isinstance(user, User) or user.is_superuser:
        return hubs if isinstance(user, User) else hubs.none()
    granted = HubGrant.objects.filter(group__user=user).values("hub")
    of_team = TeamGrant.objects.filter(group__user=user).values("hub")
    is_open = ~Exists(HubGrant.objects.filter(hub=OuterRef("pk")))
    return hubs.filter(is_open | Q(pk__in=granted) | Q(pk__in=of_team))


def visible_hub(user: AnyUser, name: str) -> Hub:
    """Return a live hub that a person may see. Raise UnknownHubError."""
    return first_or_raise(visible_hubs(user).filter(name=name), UnknownHubError(name))


def hubs_with_role(user: AnyUser, *roles: Role) -> QuerySet[Hub]:
    """Return the hubs, with the local one, on which a person has one of these roles; without any, all roles.

    The same rule as `fleetui.permissions.roles_of`, for all hubs by one query.
    """
    hubs = Hub.objects.filter(removed_at=None)
    if not isinstance(user, User) or not user.is_active:
        return hubs.none()
    if user.is_superuser:
        return hubs
    names = [str(role) for role in roles or Role]
    of_hub = HubGrant.objects.filter(hub=OuterRef("pk"))
    granted = of_hub.filter(group__user=user, role__in=names)
    return hubs.filter(
        Exists(granted) | ~Exists(of_hub) & Exists(user.groups.filter(name__in=names))
    )
