"""Files of clusters to MemberCluster documents: YAML, JSON and tables, through one door."""

from placements.imports.members import MemberRead, read_members

__all__ = ["MemberRead", "read_members"]
