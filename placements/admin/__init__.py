"""The admin of fleet and hub; it has the clusters too, as their actions show what placements would do."""

from placements.admin import clusters, disruptions, hub, people

__all__ = ["clusters", "disruptions", "hub", "people"]
