"""How far the mirror of a hub is; a column of `Hub`, and what the streams are judged by."""

from enum import StrEnum


class HubState(StrEnum):
    """Whether the mirror of a hub can be relied on (`rules/live-hub.md#state-of-a-hub`)."""

    NEW = "new"
    CONNECTING = "connecting"
    SYNCING = "syncing"
    LIVE = "live"
    STALE = "stale"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    UNSUITABLE = "unsuitable"
    PAUSED = "paused"
    REMOVED = "removed"
