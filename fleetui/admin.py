"""The admin site of the console."""

from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.response import TemplateResponse
from django.urls import reverse

from fleetui.models import Event
from fleetui.permissions import may_read

_EVENTS_SHOWN = 12


class FleetAdminSite(AdminSite):
    """Open to all roles; permissions to change are checked by object."""

    site_header = "FleetUI"
    site_title = "FleetUI admin"
    index_title = "Fleet"
    enable_nav_sidebar = False  # the lists are wide; the index is one click away

    def has_permission(self, request: HttpRequest) -> bool:
        return may_read(request.user)

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:  # noqa: ARG002
        if request.user.is_authenticated and not self.has_permission(request):
            return render(request, "no_role.html", status=403)
        return redirect_to_login(request.GET.get("next") or reverse("admin:index"))

    def password_change(  # type: ignore[override]  # the page is elsewhere
        self,
        request: HttpRequest,  # noqa: ARG002
        extra_context: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> HttpResponse:
        return redirect("account_change_password")

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        latest = Event.objects.defer("before", "after").order_by("-at", "-pk")[:_EVENTS_SHOWN]
        return super().index(request, {**(extra_context or {}), "latest_events": latest})
