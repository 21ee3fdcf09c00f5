"""Users, groups, tokens and grants, for superusers only."""

from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.http import HttpRequest
from rest_framework.authtoken.admin import TokenAdmin
from rest_framework.authtoken.models import TokenProxy

from clusters.models import HubGrant
from placements.admin.base import SuperusersOnly

# What allauth shows of e-mail addresses and providers has no use here, or has secrets.
for model in (User, Group, TokenProxy, Authenticator, EmailAddress, SocialAccount, SocialApp, SocialToken):
    admin.site.unregister(model)


@admin.register(User)
class UsersAdmin(SuperusersOnly, UserAdmin):
    """Users, with their roles in the list."""

    list_display = ("username", "roles", "is_active", "is_superuser", "last_login")
    list_filter = ("groups", "is_active", "is_superuser")

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        rows: QuerySet[User] = super().get_queryset(request)
        return rows.prefetch_related("groups")

    @admin.display(description="roles")
    def roles(self, user: User) -> str:
        return ", ".join(sorted(group.name for group in user.groups.all())) or "none"


@admin.register(Group)
class RolesAdmin(SuperusersOnly, GroupAdmin):
    """Groups; three of them are roles."""


@admin.register(Authenticator)
class SecondFactorsAdmin(SuperusersOnly, admin.ModelAdmin):
    """Second factors of users, without their keys; who lost one gets it removed here."""

    list_display = ("user", "type", "created_at", "last_used_at")
    list_filter = ("type",)
    fields = list_display

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(HubGrant)
class HubGrantsAdmin(SuperusersOnly, admin.ModelAdmin):
    """Roles of groups on single hubs."""

    list_display = ("hub", "group", "role")
    list_filter = ("hub", "role")


@admin.register(TokenProxy)
class ApiTokenAdmin(SuperusersOnly, TokenAdmin):
    """Tokens of the REST API, without the tokens in the list."""

    list_display = ("user", "created")
