"""The placements app, as Django knows it."""

from django.apps import AppConfig


class PlacementsConfig(AppConfig):
    """Placements: policies, decisions and rollouts."""

    name = "placements"
