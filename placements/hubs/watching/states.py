"""The state of a hub from the states of its streams (`rules/live-hub.md#state-of-a-hub`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from clusters.hub_state import HubState

SILENT_SECONDS, DISCONNECTED_SECONDS, RELISTING_SECONDS, UNREACHABLE_SECONDS = (
    120.0,
    20.0,
    60.0,
    60.0,
)
UNREACHABLE_CODES = frozenset(
    {"dns", "refused", "tls", "timeout", "broken", "proxy", "address"}
)
"""Why a request fails although nothing is wrong with the request (`rules/kubernetes-driver.md#errors`)."""


class StreamState(StrEnum):
    """What the list and watch of one kind does."""

    IDLE = "idle"
    LISTING = "listing"
    WATCHING = "watching"
    ABSENT = "absent"
    FORBIDDEN = "forbidden"
    FAILING = "failing"


SIDE_STATES = frozenset({StreamState.ABSENT, StreamState.FORBIDDEN})


@dataclass(frozen=True, slots=True)
class StreamHealth:
    """One stream as of now; ages in seconds, None while that does not apply.

    `silent`: since the last byte that counts. `disconnected`: since the watch ended. `listing`: since the
    list started. `failing`: since the last answer of the server. `verb` is what was refused.
    """

    resource: str
    state: StreamState
    is_required: bool
    is_listed: bool
    silent: float | None = None
    disconnected: float | None = None
    listing: float | None = None
    failing: float | None = None
    code: str = ""
    error: str = ""
    verb: str = "list"


@dataclass(frozen=True, slots=True)
class HubCondition:
    """The state of a hub and its reason in one sentence, "" where there is none."""

    state: HubState
    reason: str = ""


def condition_of(
    streams: Sequence[StreamHealth], *, rejected: str = ""
) -> HubCondition:
    """Return the state of a hub that is connected; `rejected` says why its credentials are, if they are."""
    required = [one for one in streams if one.is_required]
    if rejected:
        return HubCondition(HubState.REFUSED, rejected)
    for one in required:
        if one.state is StreamState.FORBIDDEN:
            return HubCondition(
                HubState.REFUSED, f"not allowed: {one.verb} {one.resource}"
            )
        if one.state is StreamState.ABSENT:
            return HubCondition(
                HubState.UNSUITABLE, f"the hub does not serve {one.resource}"
            )
    tried = [one for one in streams if one.state not in SIDE_STATES]
    failed = [
        one
        for one in tried
        if one.code in UNREACHABLE_CODES and one.failing is not None
    ]
    if (
        tried
        and len(failed) == len(tried)
        and min(one.failing or 0.0 for one in failed) > UNREACHABLE_SECONDS
    ):
        return HubCondition(HubState.UNREACHABLE, failed[0].error)
    if not all(one.is_listed for one in required):
        kinds = {one.resource for one in tried}
        incomplete = {one.resource for one in tried if not one.is_listed}
        count = len(kinds - incomplete)
        return HubCondition(HubState.SYNCING, f"{count} of {len(kinds)} kinds")
    for one in required:
        if reason := stale_reason(one):
            return HubCondition(HubState.STALE, reason)
    return HubCondition(HubState.LIVE)


def stale_reason(stream: StreamHealth) -> str:
    """Return why the mirror of a kind may be behind the hub; "" if it is not."""
    if stream.listing is not None and stream.listing > RELISTING_SECONDS:
        return f"{stream.resource} is being listed again"
    if stream.listing is None and stream.disconnected is not None:
        if stream.disconnected > DISCONNECTED_SECONDS:
            return f"{stream.resource}: {stream.error or 'no connection'}"
    elif stream.silent is not None and stream.silent > SILENT_SECONDS:
        return f"{stream.resource}: nothing was received for more than {SILENT_SECONDS:.0f} s"
    return ""
