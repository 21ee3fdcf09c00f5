"""The admin of member clusters and of roles on hubs; that of users is in `fleetui.access.admin`."""

from placements.admin import clusters, hub_grants

__all__ = ["clusters", "hub_grants"]
