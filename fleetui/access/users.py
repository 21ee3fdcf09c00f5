"""Users, as superusers see and change them: a name, roles, whether they may log in."""

from collections.abc import Iterable

from django.contrib.auth.models import Group, User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Count, QuerySet

from fleetui.access.audit import record_access
from fleetui.apimachinery.errors import FieldError, raise_errors
from fleetui.bulk import save_fields
from fleetui.role_names import Role


def known_users() -> QuerySet[User]:
    return (
        User.objects.annotate(tokens=Count("api_tokens"))
        .select_related("service_account")
        .prefetch_related("groups")
        .order_by("username")
    )


def create_user(name: str, password: str, *, roles: Iterable[str], by: User) -> User:
    """Create a user who logs in with a password. Raise InvalidManifest."""
    user, errors = User(username=name), []
    try:
        user.clean_fields(exclude=["password"])
        user.validate_unique()
    except ValidationError as error:
        messages = error.message_dict.get("username", error.messages)
        errors += [FieldError("username", "invalid", message) for message in messages]
    try:
        validate_password(password, user)
    except ValidationError as error:
        errors += [
            FieldError("password", "invalid", message) for message in error.messages
        ]
    errors += _unknown(roles := list(roles))
    raise_errors(errors)
    user.set_password(password)
    with transaction.atomic():
        user.save()
        user.groups.set(_groups(roles))
        record_access(
            "account changed",
            name,
            by=by,
            details={"added": "User", "roles": sorted(roles)},
        )
    return user


def change_user(user: User, *, roles: Iterable[str], is_active: bool, by: User) -> None:
    """Set the roles of a user and whether the account is active; other groups stay. Raise InvalidManifest."""
    errors = _unknown(roles := list(roles))
    if user == by and not is_active:
        errors.append(
            FieldError(
                "active",
                "forbidden",
                "Forbidden: you cannot deactivate your own account",
            )
        )
    raise_errors(errors)
    with transaction.atomic():
        user.groups.set([*user.groups.exclude(name__in=list(Role)), *_groups(roles)])
        if user.is_active != is_active:
            save_fields(user, is_active=is_active)
            record_access(
                "account changed",
                str(user),
                by=by,
                details={"changed": ["active"], "active": is_active},
            )


def _unknown(roles: Iterable[str]) -> list[FieldError]:
    unknown = sorted(set(roles) - set(Role))
    allowed = ", ".join(Role)
    return [
        FieldError(
            "roles", "not-supported", f"Unsupported value: {one[:40]!r}", allowed
        )
        for one in unknown
    ]


def _groups(roles: Iterable[str]) -> list[Group]:
    return [Group.objects.get_or_create(name=role)[0] for role in sorted(roles)]
