"""Configuration of the app."""

from django.apps import AppConfig


class ClustersConfig(AppConfig):
    """Member clusters: join, label, taint, cordon, drain, leave."""

    name = "clusters"
