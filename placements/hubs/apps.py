"""The app of live hubs, as Django knows it."""

from django.apps import AppConfig

from fleetui.hub_backend import register


class HubsConfig(AppConfig):
    """Live hubs. Left out of `INSTALLED_APPS`, the console has the local hub only."""

    name = "placements.hubs"
    label = "hubs"

    def ready(self) -> None:
        register("placements.hubs.backend.LiveHubBackend", pages=[("Hubs", "web:hubs")])
