"""The admin site of the console."""

from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.auth.forms import AuthenticationForm
from django.http import HttpRequest
from django.template.response import TemplateResponse

from fleetui.models import Event
from fleetui.permissions import may_read

_EVENTS_SHOWN = 12


class FleetAdminSite(AdminSite):
    """Open to all roles; permissions to change are checked by object."""

    site_header = "FleetUI"
    site_title = "FleetUI admin"
    index_title = "Fleet"
    enable_nav_sidebar = False  # the lists are wide; the index is one click away
    login_form = AuthenticationForm
    """Django's own for the admin lets only staff in."""

    def has_permission(self, request: HttpRequest) -> bool:
        return may_read(request.user)

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        """Show the models and the latest events."""
        latest = Event.objects.defer("before", "after").order_by("-at", "-pk")[:_EVENTS_SHOWN]
        return super().index(request, {**(extra_context or {}), "latest_events": latest})
