"""The project as an app, for its commands and its own admin site."""

from django.apps import AppConfig
from django.conf import settings
from django.contrib.admin.apps import SimpleAdminConfig

from fleetui.tracing import start_tracing


class FleetUIConfig(AppConfig):
    name = "fleetui"

    def ready(self) -> None:
        """Register the checks of this app; start tracing before the first request or task where it is on.

        Every process with models has the Celery application before its first task.
        """
        from fleetui import celery, private_files  # noqa: F401, PLC0415  # the settings are complete by now

        if settings.TRACES:
            start_tracing()


class FleetAdminConfig(SimpleAdminConfig):
    """The admin, open to everyone with a role of this console.

    The addresses discover its modules: workers and commands would import a third of the project for nothing.
    """

    default_site = "fleetui.admin.FleetAdminSite"
