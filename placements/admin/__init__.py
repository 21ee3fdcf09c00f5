"""The admin of fleet and hub; it has the clusters too, as their actions show the impact on placements."""

from placements.admin import clusters, placements, users

__all__ = ["clusters", "placements", "users"]
