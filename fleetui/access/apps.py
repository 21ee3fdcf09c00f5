"""Access to the console as an app."""

from importlib import import_module

from django.apps import AppConfig


class AccessConfig(AppConfig):
    name = "fleetui.access"
    label = "access"

    def ready(self) -> None:
        """Connect the receivers of logins and role changes."""
        import_module("fleetui.access.receivers")
