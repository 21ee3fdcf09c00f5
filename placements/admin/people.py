"""Users, groups and tokens: Django's own admins, for superusers alone."""

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.http import HttpRequest
from rest_framework.authtoken.admin import TokenAdmin
from rest_framework.authtoken.models import TokenProxy

from placements.admin.access import SuperusersOnly

for model in (User, Group, TokenProxy):
    admin.site.unregister(model)


@admin.register(User)
class PeopleAdmin(SuperusersOnly, UserAdmin):
    """Users, with their roles in the list."""

    list_display = ("username", "roles", "is_active", "is_superuser", "last_login")
    list_filter = ("groups", "is_active", "is_superuser")

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        """Give the users with their groups in one query more."""
        rows: QuerySet[User] = super().get_queryset(request)
        return rows.prefetch_related("groups")

    @admin.display(description="roles")
    def roles(self, user: User) -> str:
        """Name the user's groups."""
        return ", ".join(sorted(group.name for group in user.groups.all())) or "none"


@admin.register(Group)
class RolesAdmin(SuperusersOnly, GroupAdmin):
    """Groups; three of them are the roles."""


@admin.register(TokenProxy)
class ApiTokenAdmin(SuperusersOnly, TokenAdmin):
    """Tokens of the REST API; the list does not show them, each own page does."""

    list_display = ("user", "created")
