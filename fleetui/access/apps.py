"""Access to the console as an app."""

from importlib import import_module

from django.apps import AppConfig


class AccessConfig(AppConfig):
    name = "fleetui.access"
    label = "access"

    def ready(self) -> None:
        import_module("fleetui.access.receivers")
