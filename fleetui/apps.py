"""The project as an app, for its commands and its own admin site."""

from django.apps import AppConfig
from django.conf import settings
from django.contrib.admin.apps import SimpleAdminConfig

from fleetui.tracing import start_tracing


class FleetUIConfig(AppConfig):
    """Wiring: settings, addresses, roles, commands that run the whole."""

    name = "fleetui"

    def ready(self) -> None:
        """Start tracing where it is on: once for each process, before its first request or task."""
        if settings.TRACES:
            start_tracing()


class FleetAdminConfig(SimpleAdminConfig):
    """The admin, open to everyone with a role of this console.

    The addresses discover its modules: workers and commands would import a third of the project for nothing.
    """

    default_site = "fleetui.admin.FleetAdminSite"
