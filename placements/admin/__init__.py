"""The admin: member clusters, users with their roles and tokens, and grants."""

from placements.admin import clusters, users

__all__ = ["clusters", "users"]
