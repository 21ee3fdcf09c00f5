"""The admin site of the console."""

from django.contrib.admin import AdminSite
from django.http import HttpRequest

from fleetui.roles import may_read


class FleetAdminSite(AdminSite):
    """Open to everyone who may read; what one may change there is decided object by object."""

    site_header = "FleetUI"
    site_title = "FleetUI admin"
    index_title = "Fleet"

    def has_permission(self, request: HttpRequest) -> bool:
        """Let in whoever has a role, staff or not."""
        return may_read(request.user)
