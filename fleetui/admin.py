"""The admin site of the console."""

from typing import Any

from django.contrib.admin import AdminSite, ModelAdmin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import get_fields_from_path
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from fleetui.permissions import may_read

_LONGEST_SEARCH = 200


class ClosedLookups(ModelAdmin):
    """Filters a list only by what its page offers, with exact values; the site adds this to every admin.

    Django allows every lookup of a model's own fields, also of those that the page does not show: a regular
    expression of a user would run in the database, and hidden values could be guessed by the number of rows.
    An admin names in `linked_lookups` what has no filter but is in links of other pages.
    """

    def lookup_allowed(
        self,
        lookup: str,
        value: str,
        request: HttpRequest,
    ) -> bool:
        """Return whether a parameter is that of a filter, as it is in the links of the page."""
        offered = {*getattr(self, "linked_lookups", ())}
        if self.date_hierarchy:
            offered |= {
                f"{self.date_hierarchy}__{part}" for part in ("year", "month", "day")
            }
        filters: Any = self.get_list_filter(request)
        for item in filters:
            if hasattr(item, "parameter_name"):
                offered.add(item.parameter_name)
                continue
            path = item if isinstance(item, str) else item[0]
            field: Any = get_fields_from_path(self.model, path)[-1]
            target = f"__{field.target_field.name}" if field.is_relation else ""
            offered |= {path, f"{path}{target}__exact", f"{path}__isnull"}
        return lookup in offered and super().lookup_allowed(lookup, value, request)

    def get_search_results(
        self,
        request: HttpRequest,
        queryset: Any,
        search_term: str,
    ) -> Any:
        """Refuse a text of very many words: each is a condition, and a database has a limit for these."""
        if len(search_term) > _LONGEST_SEARCH:
            raise IncorrectLookupParameters
        return super().get_search_results(request, queryset, search_term)


class FleetAdminSite(AdminSite):
    """Open to all roles; permissions to change are checked by object."""

    site_header = "FleetUI"
    site_title = "FleetUI admin"
    index_title = "Fleet"
    enable_nav_sidebar = False  # the lists are wide; the index is one click away

    def register(
        self, model_or_iterable: Any, admin_class: Any = None, **options: Any
    ) -> None:
        """Register an admin with closed lookups, also one of a library."""
        admin_class = admin_class or ModelAdmin
        closed = type(
            admin_class.__name__,
            (ClosedLookups, admin_class),
            {"__module__": admin_class.__module__},
        )
        super().register(model_or_iterable, closed, **options)

    def autocomplete_view(self, request: HttpRequest) -> HttpResponse:  # noqa: ARG002
        """Answer nothing: no form has a field that completes, and this address would search every admin."""
        raise Http404

    def has_permission(self, request: HttpRequest) -> bool:
        return may_read(request.user)

    def login(
        self,
        request: HttpRequest,
        extra_context: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> HttpResponse:
        if request.user.is_authenticated and not self.has_permission(request):
            return render(request, "no_role.html", status=403)
        return redirect_to_login(request.GET.get("next") or reverse("admin:index"))

    def password_change(  # type: ignore[override]  # the page is elsewhere
        self,
        request: HttpRequest,  # noqa: ARG002
        extra_context: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> HttpResponse:
        return redirect("account_change_password")
