"""What became of a document that was saved."""

from enum import StrEnum


class Did(StrEnum):
    """What became of a document."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
