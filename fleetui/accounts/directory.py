"""Logging in with the name and password of a directory (LDAP).

Needs the extra `ldap`; nothing imports this module unless `FLEETUI_LDAP_SERVER` is set.
"""

from functools import cached_property
from typing import Any

import ldap
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib.auth.models import User
from django_auth_ldap.backend import LDAPBackend, LDAPSettings
from django_auth_ldap.config import GroupOfNamesType, LDAPSearch

from fleetui.accounts.roles import DIRECTORY, apply_roles

SECONDS = 5


class DirectoryBackend(LDAPBackend):
    """Users of the directory, whose roles are those of their groups at every login.

    An account is found by the name of the entry in the directory (DN). One that was created here, or by an
    identity provider, is never taken over by an entry of the same name.
    """

    @cached_property
    def _settings(self) -> LDAPSettings:
        options = {
            ldap.OPT_NETWORK_TIMEOUT: SECONDS,
            ldap.OPT_TIMEOUT: SECONDS,
            ldap.OPT_REFERRALS: 0,
            ldap.OPT_X_TLS_REQUIRE_CERT: ldap.OPT_X_TLS_DEMAND,
        }
        if settings.LDAP_CA:
            options[ldap.OPT_X_TLS_CACERTFILE] = settings.LDAP_CA
        # The last one: what was set before is used from then on.
        options[ldap.OPT_X_TLS_NEWCTX] = 0
        scope = ldap.SCOPE_SUBTREE
        values: dict[str, Any] = {
            "SERVER_URI": settings.LDAP_SERVER,
            "START_TLS": settings.LDAP_START_TLS,
            "BIND_DN": settings.LDAP_BIND_DN,
            "BIND_PASSWORD": settings.LDAP_BIND_PASSWORD,
            "USER_SEARCH": LDAPSearch(settings.LDAP_USERS, scope, settings.LDAP_USER_FILTER),
            "CONNECTION_OPTIONS": options,
        }
        if settings.LDAP_GROUPS:
            values["GROUP_SEARCH"] = LDAPSearch(settings.LDAP_GROUPS, scope, "(objectClass=groupOfNames)")
            values["GROUP_TYPE"] = GroupOfNamesType()
        return LDAPSettings("FLEETUI_AUTH_LDAP_", values)

    @property
    def settings(self) -> LDAPSettings:
        return self._settings

    def get_or_build_user(self, username: str, ldap_user: Any) -> tuple[User, bool]:
        """Return the account of an entry, or a new one. Raise AuthenticationFailed if its name is taken."""
        link = SocialAccount.objects.filter(provider=DIRECTORY, uid=_uid_of(ldap_user)).first()
        if link:
            return link.user, False
        if User.objects.filter(username__iexact=username).exists():
            raise ldap_user.AuthenticationFailed("an account that is not of the directory has this name")
        return User(username=username), True

    def authenticate_ldap_user(self, ldap_user: Any, password: str) -> User | None:
        """Return the user with the roles of the groups; None if the directory refuses it, or this console."""
        user: User | None = super().authenticate_ldap_user(ldap_user, password)
        if user is None or not user.is_active:
            return None
        SocialAccount.objects.get_or_create(
            provider=DIRECTORY, uid=_uid_of(ldap_user), defaults={"user": user}
        )
        if settings.LDAP_GROUPS:
            apply_roles(user, ldap_user.group_names, settings.LDAP_ROLES)
        return user


def _uid_of(ldap_user: Any) -> str:
    return str(ldap_user.dn).casefold()
