"""The state of a hub from the states of its streams (`rules/live-hub.md#state-of-a-hub`)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from clusters.hub_state import HubState
from placements.hubs.kinds.base import StreamKind

SILENT_SECONDS = 120.0
DISCONNECTED_SECONDS = 20.0
RELISTING_SECONDS = 60.0
UNREACHABLE_SECONDS = 60.0
UNREACHABLE_CODES = frozenset(
    {"dns", "refused", "tls", "timeout", "broken", "proxy", "address"}
)
"""Why a request fails although nothing is wrong with the request (`rules/kubernetes-driver.md#errors`)."""


class StreamState(StrEnum):
    IDLE = "idle"
    LISTING = "listing"
    WATCHING = "watching"
    ABSENT = "absent"
    FORBIDDEN = "forbidden"
    FAILING = "failing"


SIDE_STATES = frozenset({StreamState.ABSENT, StreamState.FORBIDDEN})


@dataclass(slots=True)
class StreamStatus:
    """What a stream reports: written by its thread, read by the others. Times are monotonic.

    `heard_at`: of the last byte that counts. `disconnected`: the end of the watch. `listing`: the start of a
    list. `failing`: since when the server has not answered. `verb` is what was refused, `is_listed` whether
    the mirror has a complete list.
    """

    kind: StreamKind
    state: StreamState = StreamState.IDLE
    position: str = ""
    is_listed: bool = False
    error: str = ""
    code: str = ""
    verb: str = "list"
    heard_at: float | None = None
    disconnected: float | None = None
    listing: float | None = None
    failing: float | None = None
    retry_at: float | None = None
    failures: int = 0
    events: int = 0
    bytes: int = 0
    relists: int = 0
    skipped: int = 0
    lists: int = 0
    dates: list[tuple[float, str]] = field(default_factory=list)
    """The last Date headers with the wall time of their arrival."""


class HubCondition(NamedTuple):
    """The state of a hub and its reason in one sentence, "" where there is none."""

    state: HubState
    reason: str = ""


def condition_of(
    streams: Sequence[StreamStatus], *, now: float, rejected: str = ""
) -> HubCondition:
    """Return the state of a hub that is connected; `rejected` says why its credentials are, if they are."""
    required = [stream for stream in streams if stream.kind.is_required]
    if rejected:
        return HubCondition(HubState.REFUSED, rejected)
    for stream in required:
        resource = stream.kind.resource
        if stream.state is StreamState.FORBIDDEN:
            reason = f"not allowed: {stream.verb} {resource}"
            return HubCondition(HubState.REFUSED, reason)
        if stream.state is StreamState.ABSENT:
            reason = f"the hub does not serve {resource}"
            return HubCondition(HubState.UNSUITABLE, reason)
    tried = [stream for stream in streams if stream.state not in SIDE_STATES]
    if tried and all(is_unreachable(stream, now) for stream in tried):
        return HubCondition(HubState.UNREACHABLE, tried[0].error)
    if not all(stream.is_listed for stream in required):
        kinds = {stream.kind.resource for stream in tried}
        incomplete = {stream.kind.resource for stream in tried if not stream.is_listed}
        listed = len(kinds - incomplete)
        return HubCondition(HubState.SYNCING, f"{listed} of {len(kinds)} kinds")
    reason = next(filter(None, (stale_reason(stream, now) for stream in required)), "")
    if reason:
        return HubCondition(HubState.STALE, reason)
    return HubCondition(HubState.LIVE)


def is_unreachable(stream: StreamStatus, now: float) -> bool:
    is_failing = stream.failing is not None and stream.code in UNREACHABLE_CODES
    return is_failing and _age(stream.failing, now) > UNREACHABLE_SECONDS


def stale_reason(stream: StreamStatus, now: float) -> str:
    """Return why the mirror of a kind may be behind the hub; "" if it is not."""
    resource = stream.kind.resource
    if stream.listing is not None:
        if _age(stream.listing, now) > RELISTING_SECONDS:
            return f"{resource} is being listed again"
    elif stream.disconnected is not None:
        if _age(stream.disconnected, now) > DISCONNECTED_SECONDS:
            return f"{resource}: {stream.error or 'no connection'}"
    elif _age(stream.heard_at, now) > SILENT_SECONDS:
        return f"{resource}: nothing was received for more than {SILENT_SECONDS:.0f} s"
    return ""


def _age(since: float | None, now: float) -> float:
    if since is None:
        return 0.0
    return now - since
