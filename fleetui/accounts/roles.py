"""Roles from outside: what an identity provider or a proxy says of a user, as roles here."""

from collections.abc import Iterable, Mapping

from django.contrib.auth.models import Group, User
from django.db import transaction
from django.utils import timezone

from fleetui.audit import AuditEvent, record
from fleetui.role_names import ADMINISTRATOR, Role


def apply_roles(user: User, names: Iterable[str], mapping: Mapping[str, str]) -> None:
    """Set the roles of a user to those of these groups; an empty mapping leaves the roles as they are.

    A role that no group means any more is removed. Groups that are no roles stay.
    """
    if not mapping:
        return
    wanted = {mapping[name] for name in names if name in mapping}
    groups = user.groups.filter(name__in=[role.value for role in Role])
    before = {*groups.values_list("name", flat=True)} | (
        {ADMINISTRATOR} if user.is_superuser else set()
    )
    if before == wanted:
        return
    with transaction.atomic():
        user.groups.remove(*groups.exclude(name__in=wanted))
        user.groups.add(*Group.objects.filter(name__in=wanted - {ADMINISTRATOR}))
        user.is_superuser = user.is_staff = ADMINISTRATOR in wanted
        user.save(update_fields=["is_superuser", "is_staff"])
        change = AuditEvent(
            "updated",
            "User",
            user.get_username(),
            before={"roles": sorted(before)},
            after={"roles": sorted(wanted)},
        )
        record(change, by=None, now=timezone.now())


def groups_in(claims: Mapping[str, object], path: str) -> list[str]:
    """Return the groups of a claim, such as `groups` or `realm_access.roles`; none if it is missing."""
    claim: object = claims
    for part in path.split("."):
        claim = claim.get(part) if isinstance(claim, Mapping) else None
    if isinstance(claim, str):
        return [claim]
    return (
        [one for one in claim if isinstance(one, str)]
        if isinstance(claim, list)
        else []
    )
