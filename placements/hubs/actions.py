"""The actions of the table that are writes to the hub, in the name of the person."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.contrib.auth.models import User

from clusters.hub_queries import live_hubs
from clusters.models import Hub
from fleetui.hub_scope import current_hub_id
from placements.hubs.drains import cancel_hub_drain, start_hub_drain
from placements.hubs.writing.catalogue import ACTIONS
from placements.hubs.writing.operations import apply_write
from placements.models import Drain
from placements.services.actions import ActionKind
from placements.services.disruption.drains import DEFAULT_PACE, Pace


def _hub() -> Hub:
    """Return the hub in scope with its credential."""
    return live_hubs().get(pk=current_hub_id())


def write(action: str, names: Sequence[str], *, by: User, now: datetime) -> None:
    for name in names:
        apply_write(_hub(), ACTIONS[action], {"name": name}, by=by, now=now)


def drain(
    clusters: Sequence[str], *, by: User, now: datetime, pace: Pace = DEFAULT_PACE
) -> list[Drain]:
    options: dict[str, Any] = {"at_once": pace.at_once or 1, "deadline": pace.deadline}
    return [
        start_hub_drain(_hub(), name, by=by, now=now, **options) for name in clusters
    ]


def cancel_drain(clusters: Sequence[str], *, by: User, now: datetime) -> list[Drain]:
    return [cancel_hub_drain(_hub(), name, by=by, now=now) for name in clusters]


OPERATIONS: Mapping[tuple[str, str], Callable[..., Any]] = {
    (ActionKind.CLUSTER, "cordon"): partial(write, "cordon"),
    (ActionKind.CLUSTER, "drain"): drain,
    (ActionKind.CLUSTER, "cancel-drain"): cancel_drain,
}
"""By kind and name; the hub decides the others itself, or pages and operations of REST write them."""
