"""Users, groups, tokens and grants, for superusers only."""

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.http import HttpRequest
from rest_framework.authtoken.admin import TokenAdmin
from rest_framework.authtoken.models import TokenProxy

from clusters.models import HubGrant
from placements.admin.base import SuperusersOnly

for model in (User, Group, TokenProxy):
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


@admin.register(HubGrant)
class HubGrantsAdmin(SuperusersOnly, admin.ModelAdmin):
    """Roles of groups on single hubs."""

    list_display = ("hub", "group", "role")
    list_filter = ("hub", "role")


@admin.register(TokenProxy)
class ApiTokenAdmin(SuperusersOnly, TokenAdmin):
    """Tokens of the REST API, without the tokens in the list."""

    list_display = ("user", "created")
