"""Four roles as groups, checked by pages, REST and admin with the same functions.

A viewer reads, an operator writes, an approver reads and approves, a cluster administrator reads and sets the
connections of clusters; a superuser may do everything. A grant of a team gives the role of an operator or
approver for placements and resources with one label only: `may_change` is that rule, and the only one. What
of these a grant includes is `check_boundary`: its namespaces, kinds and clusters. The scopes of an API token
restrict all of it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from itertools import compress
from operator import attrgetter
from typing import Any

from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import (
    AbstractBaseUser,
    AnonymousUser,
    Group,
    Permission,
    User,
)
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db.models import Exists, F, FilteredRelation, OuterRef, Q, QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from fleetui.access.grants import Labels, Team
from fleetui.htmx import redirect_page
from fleetui.hub_scope import current_hub_id
from fleetui.prepared import PreparedQuery
from fleetui.role_names import Role

AnyUser = AbstractBaseUser | AnonymousUser


def current_user(request: HttpRequest) -> User:
    """Return the user; every view that writes requires one."""
    if not isinstance(request.user, User):
        raise TypeError("this view requires login")
    return request.user


def may_read(user: AnyUser) -> bool:
    return _has_one_of(user, tuple(Role))


def may_operate(user: AnyUser) -> bool:
    return _has_one_of(user, (Role.OPERATOR,))


def may_approve(user: AnyUser) -> bool:
    return _has_one_of(user, (Role.APPROVER,))


def may_administer_clusters(user: AnyUser) -> bool:
    return _has_one_of(user, (Role.CLUSTER_ADMINISTRATOR,))


def has_role(user: AnyUser, role: Role) -> bool:
    return _has_one_of(user, (role,))


def may_view_secrets(user: AnyUser) -> bool:
    """Return whether a user sees the values of Secrets where nothing is edited: a permission of its own."""
    return isinstance(user, User) and user.has_perm(settings.SECRETS_PERMISSION)


def may_view_access_log(user: AnyUser) -> bool:
    """Return whether a user reads the access log: superusers, and those with its permission."""
    return _has_permission(user, _ACCESS_LOG_PERMISSION)


def may_manage_notifications(user: AnyUser) -> bool:
    """Return whether a user sees and changes channels and rules: superusers, and others by permission."""
    return _has_permission(user, settings.NOTIFICATIONS_PERMISSION)


def _has_permission(user: AnyUser, permission: str) -> bool:
    if not isinstance(user, User) or not user.is_active:
        return False
    return user.is_superuser or permission in grants_of(user).permissions


_ACCESS_LOG_PERMISSION = "access.view_access_log"
_PERMISSIONS = (settings.NOTIFICATIONS_PERMISSION, _ACCESS_LOG_PERMISSION)
"""The permissions that many pages need."""


def _has_one_of(user: AnyUser, roles: Collection[Role]) -> bool:
    if not isinstance(user, User) or not user.is_active:
        return False
    mine: Collection[str] = frozenset(Role) if user.is_superuser else roles_of(user)
    is_reader = Role.VIEWER in roles and bool(mine or grants_of(user).teams)
    return is_reader or any(role in mine and _is_in_scope(user, role) for role in roles)


_SCOPES = "_fleetui_scopes"
_SCOPE_OF_ROLE = {
    Role.OPERATOR: "operate",
    Role.CLUSTER_ADMINISTRATOR: "operate",
    Role.APPROVER: "approve",
}


def set_scopes(user: User, scopes: Iterable[str]) -> None:
    setattr(user, _SCOPES, frozenset(scopes))


def scopes_of(user: object) -> frozenset[str] | None:
    """Return the scopes of the token that the user came with; None for a session."""
    scopes: frozenset[str] | None = getattr(user, _SCOPES, None)
    return scopes


def _is_in_scope(user: User, role: Role) -> bool:
    """Return whether a token may use a role; every one reads."""
    scopes = scopes_of(user)
    return scopes is None or role is Role.VIEWER or _SCOPE_OF_ROLE[role] in scopes


@dataclass(frozen=True, slots=True)
class Grants:
    """What a user may do on a hub: roles on all of it, and roles of teams."""

    groups: frozenset[str]
    roles: frozenset[str]
    teams: frozenset[Team]
    permissions: frozenset[str]
    """Those of `_PERMISSIONS` that the user has, by a group or directly."""


_OF_TEAM = ("role", "key", "value", "namespaces", "kinds", "clusters")
_GRANTED = (
    "group_name",
    "is_granted",
    "hub_role",
    *(f"team_{name}" for name in _OF_TEAM),
    *(f"has_{number}" for number in range(len(_PERMISSIONS))),
)
"""The columns that decide what a user may do, beside the account: a row for each group and its grants."""


@PreparedQuery
def _account(*, user: int) -> QuerySet[User]:
    hub = current_hub_id()
    of_hub = FilteredRelation(
        "groups__hub_grants", condition=Q(groups__hub_grants__hub=hub)
    )
    of_team = FilteredRelation(
        "groups__team_grants", condition=Q(groups__team_grants__hub=hub)
    )
    of_user = Permission.objects.filter(
        Q(group=OuterRef("groups")) | Q(user=OuterRef("pk"))
    )
    permissions = {
        f"has_{number}": Exists(
            of_user.filter(content_type__app_label=app, codename=codename)
        )
        for number, (app, codename) in enumerate(
            permission.split(".") for permission in _PERMISSIONS
        )
    }
    users = User.objects.filter(pk=user).alias(of_hub=of_hub, of_team=of_team)
    return users.annotate(
        group_name=F("groups__name"),
        is_granted=Exists(Group.objects.filter(hub_grants__hub=hub)),
        hub_role=F("of_hub__role"),
        **{f"team_{name}": F(f"of_team__{name}") for name in _OF_TEAM},
        **permissions,
    )


class AccountBackend(ModelBackend):
    """Reads the account of a session with what it may do on the hub in scope, by one query."""

    def get_user(self, user_id: Any) -> User | None:
        rows = _account.rows(user=int(user_id))
        if not rows or not self.user_can_authenticate(rows[0]):
            return None
        user: User = rows[0]
        setattr(user, _ROWS, (current_hub_id(), list(map(attrgetter(*_GRANTED), rows))))
        return user


def grant_rows(user: int) -> list[tuple[Any, ...]]:
    """Return all that decides what a user may do on the hub in scope, by the primary key."""
    account = AccountBackend().get_user(user)
    return list(getattr(account, _ROWS)[1]) if account else []


_ROWS, _KEPT = "_fleetui_rows", "_fleetui_roles"


def grants_of(user: User) -> Grants:
    """Return the roles and teams of a user on the hub in scope; at most one query for each request."""
    hub = current_hub_id()
    known: dict[int, Grants] = getattr(user, _KEPT, {})
    if hub not in known:
        of_hub, rows = getattr(user, _ROWS, (None, []))
        if of_hub != hub:
            rows = grant_rows(user.pk)
        groups = frozenset(row[0] for row in rows if row[0])
        granted = [(name, role) for name, is_granted, role, *_ in rows if is_granted]
        teams = frozenset(Team.of(*row[3:9]) for row in rows if row[3])
        permissions = frozenset(
            one for row in rows for one in compress(_PERMISSIONS, row[9:])
        )
        grants = Grants(groups, roles_among(groups, granted), teams, permissions)
        known = {**known, hub: grants}
        setattr(user, _KEPT, known)
    return known[hub]


def roles_among(
    groups: Collection[str], granted: Collection[tuple[str, str | None]]
) -> frozenset[str]:
    """Return the roles that these groups have on a hub, of which `granted` has groups with their roles.

    They are the groups themselves, unless any group has a grant for the hub: then only grants count.
    """
    names = (
        {role or "" for group, role in granted if group in groups}
        if granted
        else groups
    )
    return frozenset(Role).intersection(names)


def roles_of(user: User) -> frozenset[str]:
    return grants_of(user).roles


FLEET: Labels = {}
"""The labels of what belongs to no team, such as clusters: only roles on the whole hub change it."""


def may_change(
    user: AnyUser | None, *labels: Labels, role: Role = Role.OPERATOR
) -> bool:
    """Return whether a user may change what has these labels: the rule of every change.

    The role on the whole hub is enough; without it each of the objects needs the label of one of the user's
    teams. An object that is changed counts twice, as it was and as it will be, so that no label can be
    removed or changed to leave or enter a team. Without a user the console itself acts.
    """
    if user is None or _has_one_of(user, (role,)):
        return True
    teams = teams_of(user, role)
    return bool(labels) and all(
        any(team.has(label) for team in teams) for label in labels
    )


def teams_of(user: AnyUser | None, role: Role = Role.OPERATOR) -> frozenset[Team]:
    if (
        not isinstance(user, User)
        or not user.is_active
        or user.is_superuser
        or not _is_in_scope(user, role)
    ):
        return frozenset()
    return frozenset(team for team in grants_of(user).teams if team.role == role)


class NotOfTeamError(PermissionDenied):
    """A user with a role for some labels only may not change this."""


def check_change(
    by: AnyUser | None, *labels: Labels, role: Role = Role.OPERATOR, what: str
) -> None:
    """Raise NotOfTeamError unless `may_change`; `what` is the object, for the message."""
    if may_change(by, *labels, role=role):
        return
    teams = " or ".join(sorted(set(map(str, teams_of(by, role)))))
    allowed = f" Your role applies to the label {teams} only." if teams else ""
    raise NotOfTeamError(
        f"You don't have permission to change {what}. Required role: {role}.{allowed}"
    )


Missing = Callable[[Team], Iterable[str]]
"""From a team to what its grant does not include, such as "the namespace shop"."""


def check_boundary(
    by: AnyUser | None,
    labels: Labels,
    missing: Missing,
    *,
    role: Role = Role.OPERATOR,
    what: str,
) -> None:
    """Raise NotOfTeamError unless one grant of a user has one of these labels and lacks nothing."""
    check_change(by, labels, role=role, what=what)
    if may_change(by, role=role):
        return
    refusals = []
    for team in sorted(
        (team for team in teams_of(by, role) if team.has(labels)), key=repr
    ):
        lacking = list(dict.fromkeys(missing(team)))
        if not lacking:
            return
        refusals.append(
            f"The grant of {team} does not include {' and '.join(lacking)}."
        )
    reasons = " ".join(dict.fromkeys(refusals))
    raise NotOfTeamError(f"You don't have permission to change {what}. {reasons}")


View = Callable[..., HttpResponseBase]


def for_readers(view: View) -> View:
    """Require a role; without one the response is the login page or the page that names the roles."""

    @wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            answer = redirect_to_login(request.get_full_path())
            return redirect_page(request, answer.url)
        if not may_read(request.user):
            return render(request, "no_role.html", status=403)
        return view(request, *args, **kwargs)

    return checked


LabelsOf = Callable[..., Iterable[Labels] | None]
"""From the arguments of a path to the labels of what the address changes; None where it names nothing yet."""


def by_operation(**_arguments: Any) -> None:
    """Return no labels: the operation checks what the body of the request names."""


def may_change_at(
    user: AnyUser,
    of: LabelsOf | None,
    arguments: Mapping[str, Any],
    role: Role,
) -> bool:
    """Return whether a user may use an address that changes something; without `of` teams may not."""
    if _has_one_of(user, (role,)):
        return True
    if of is None or not teams_of(user, role):
        return False
    labels = of(**arguments)
    return labels is None or may_change(user, *labels, role=role)


def for_roles(
    *roles: Role, action: str, of: LabelsOf | None = None
) -> Callable[[View], View]:
    """Require one of these roles; `action` ends the sentence "You don't have permission to …".

    `of` lets users with roles by label in, for objects of their teams.
    """

    return _for_those(
        lambda request, kwargs: any(
            may_change_at(request.user, of, kwargs, role) for role in roles
        ),
        lambda user: {
            "action": action,
            "role": " or ".join(roles),
            "teams": sorted(
                {str(team) for role in roles for team in teams_of(user, role)}
            ),
        },
    )


def _for_those(
    may: Callable[[HttpRequest, Mapping[str, Any]], bool],
    facts: Callable[[AnyUser], dict[str, Any]],
) -> Callable[[View], View]:
    """Require what `may` returns of the request and the arguments; the page of others has the `facts`."""

    def decorated(view: View) -> View:
        @for_readers
        @wraps(view)
        def checked(
            request: HttpRequest, *args: Any, **kwargs: Any
        ) -> HttpResponseBase:
            if may(request, kwargs):
                return view(request, *args, **kwargs)
            return render(request, "not_allowed.html", facts(request.user), status=403)

        return checked

    return decorated


def for_operators(action: str, *, of: LabelsOf | None = None) -> Callable[[View], View]:
    return for_roles(Role.OPERATOR, action=action, of=of)


def for_cluster_administrators(action: str) -> Callable[[View], View]:
    return for_roles(Role.CLUSTER_ADMINISTRATOR, action=action)


def _for_superusers_or(
    may: Callable[[AnyUser], bool], *, action: str
) -> Callable[[View], View]:
    return _for_those(
        lambda request, _: may(request.user),
        lambda _: {"action": action, "role": "superuser"},
    )


for_notification_managers = _for_superusers_or(
    may_manage_notifications, action="manage notifications"
)
"""Require the permission to manage notifications, which superusers have."""
for_superusers = _for_superusers_or(
    lambda user: isinstance(user, User) and user.is_active and user.is_superuser,
    action="manage users",
)
"""Require a superuser, for what no role may do."""
