"""Users, groups, service accounts, tokens and grants, for superusers only; changes are in the access log."""

from datetime import UTC, datetime
from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django import forms
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.forms import AdminPasswordChangeForm
from django.contrib.auth.models import Group, User
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest

from fleetui.access.audit import record_access
from fleetui.access.models import ApiToken, ServiceAccount, TeamGrant
from fleetui.access.notices import send_notice
from fleetui.access.tokens import create_service_account, revoke_all_tokens
from fleetui.apimachinery.fields import label_key_problem, label_value_problem

# What allauth shows of e-mail addresses and providers has no use here, or has secrets.
for model in (
    User,
    Group,
    Authenticator,
    EmailAddress,
    SocialAccount,
    SocialApp,
    SocialToken,
):
    admin.site.unregister(model)


class SuperusersOnly:
    """Superusers do everything, others nothing, whatever Django permissions they have."""

    def has_module_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.is_active and request.user.is_superuser

    has_view_permission = has_add_permission = has_module_permission
    has_change_permission = has_delete_permission = has_module_permission


class RecordedAdmin(SuperusersOnly):
    """Writes what a superuser changes into the access log, and not only into Django's own."""

    verb = "permissions changed"

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        record_access(
            self.verb, str(obj), by=request.user, details={"added": type(obj).__name__}
        )
        return super().log_addition(request, obj, message)  # type: ignore[misc]  # of ModelAdmin

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        changes = [one.get("changed", {}) for one in message if isinstance(one, dict)]
        fields = [
            str(field) for change in changes for field in change.get("fields", ())
        ]
        record_access(
            self.verb,
            str(obj),
            by=request.user,
            details={"changed": fields or str(message)},
        )
        return super().log_change(request, obj, message)  # type: ignore[misc]  # of ModelAdmin

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        for obj in queryset:
            record_access(
                self.verb,
                str(obj),
                by=request.user,
                details={"removed": type(obj).__name__},
            )
        return super().log_deletions(request, queryset)  # type: ignore[misc]  # of ModelAdmin


class PasswordForm(AdminPasswordChangeForm):
    """A new password, and whether it ends the API tokens."""

    revoke_tokens = forms.BooleanField(
        required=False, label="Revoke all API tokens of this user"
    )

    def save(self, commit: bool = True) -> Any:
        user = super().save(commit)
        record_access("password changed", str(user))
        send_notice(user, "The password was changed")
        if self.cleaned_data["revoke_tokens"]:
            revoke_all_tokens(user, by=None, now=datetime.now(UTC))
        return user


@admin.register(User)
class UsersAdmin(RecordedAdmin, UserAdmin):
    verb = "account changed"
    list_display = ("username", "roles", "is_active", "is_superuser", "last_login")
    list_filter = ("groups", "is_active", "is_superuser")
    change_password_form = PasswordForm
    readonly_fields = ("last_login", "date_joined")

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        rows: QuerySet[User] = super().get_queryset(request)
        return rows.prefetch_related("groups")

    @admin.display(description="roles")
    def roles(self, user: User) -> str:
        return ", ".join(sorted(group.name for group in user.groups.all())) or "none"


@admin.register(Group)
class RolesAdmin(RecordedAdmin, GroupAdmin):
    """Groups; four of them are roles, others may have roles by label."""


@admin.register(Authenticator)
class SecondFactorsAdmin(RecordedAdmin, admin.ModelAdmin):
    """Second factors of users, without their keys; who lost one gets it removed here."""

    list_display = ("user", "type", "created_at", "last_used_at")
    list_filter = ("type",)
    fields = list_display

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    has_change_permission = has_add_permission


class TeamGrantForm(forms.ModelForm):
    """A label as Kubernetes accepts it, and patterns: others would match nothing."""

    class Meta:
        model = TeamGrant
        fields = (
            "hub",
            "group",
            "role",
            "key",
            "value",
            "namespaces",
            "kinds",
            "clusters",
        )
        widgets = {
            name: forms.Textarea(attrs={"rows": 2, "cols": 80})
            for name in ("namespaces", "kinds", "clusters")
        }

    def clean_key(self) -> str:
        return _valid(self.cleaned_data["key"], label_key_problem)

    def clean_value(self) -> str:
        return _valid(self.cleaned_data["value"], label_value_problem)


def _valid(text: str, problem_of: Any) -> str:
    if problem := problem_of(text):
        raise ValidationError(f"The text {problem.words}.")
    return text


@admin.register(TeamGrant)
class TeamGrantsAdmin(RecordedAdmin, admin.ModelAdmin):
    """Roles of groups for placements and resources with one label, and the boundary of each."""

    form = TeamGrantForm
    list_display = (
        "group",
        "role",
        "key",
        "value",
        "namespaces",
        "kinds",
        "clusters",
        "hub",
    )
    list_filter = ("hub", "role", "key")


class ServiceAccountForm(forms.ModelForm):
    """A new service account; its groups are set on the page of the user."""

    username = forms.CharField(max_length=150, validators=[UnicodeUsernameValidator()])

    class Meta:
        model = ServiceAccount
        fields = ("purpose",)

    def clean_username(self) -> str:
        name: str = self.cleaned_data["username"]
        if User.objects.filter(username=name).exists():
            raise ValidationError("A user has this name.")
        return name


@admin.register(ServiceAccount)
class ServiceAccountsAdmin(RecordedAdmin, admin.ModelAdmin):
    """Users for programs, which cannot log in on pages."""

    verb = "account changed"
    list_display = ("user", "purpose", "created_at", "created_by")

    def get_form(
        self,
        request: HttpRequest,
        obj: Any = None,
        change: bool = False,
        **options: Any,
    ) -> Any:
        """Return a form with a name for a new account; later only the purpose changes."""
        if obj is None:
            options["form"] = ServiceAccountForm
        options["fields"] = ["purpose"] if obj else None
        return super().get_form(request, obj, change, **options)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return ["purpose"] if obj else ["username", "purpose"]

    def save_model(
        self, request: HttpRequest, obj: ServiceAccount, form: Any, change: bool
    ) -> None:
        """Save the purpose, or create the user with the account."""
        if change:
            return super().save_model(request, obj, form, change)
        fields = form.cleaned_data
        by, now = (
            User.objects.get(username=request.user.get_username()),
            datetime.now(UTC),
        )
        made = create_service_account(
            fields["username"], purpose=fields["purpose"], by=by, now=now
        )
        obj.pk, obj.user = made.pk, made.user
        obj.created_at, obj.created_by = made.created_at, made.created_by
        return None

    def delete_model(self, request: HttpRequest, obj: ServiceAccount) -> None:
        """Delete the user as well: without the account it could log in."""
        User.objects.filter(username=obj.user.username).delete()

    def delete_queryset(
        self, request: HttpRequest, queryset: QuerySet[ServiceAccount]
    ) -> None:
        User.objects.filter(service_account__in=list(queryset)).delete()


@admin.register(ApiToken)
class ApiTokensAdmin(RecordedAdmin, admin.ModelAdmin):
    """API tokens of all users, to revoke them; they are created on the page API tokens."""

    verb = "token revoked"
    list_display = ("user", "name", "prefix", "scopes", "expires_at", "last_used_at")
    list_filter = ("scopes",)
    linked_lookups = ("user__id__exact",)
    search_fields = ("user__username", "name", "prefix")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    has_change_permission = has_add_permission
