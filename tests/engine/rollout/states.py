"""States of a rollout written short.

available("a", "v1", wants="v2")         a cluster that runs v1 and shall have v2
leaving("b")                             one that is available and shall be cleared
state(empty("c"), policy=pick_n(5))      a rollout with the defaults: 25 %, 25 %, 60 s
budget(max_unavailable=1)                a strategy
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from fleetui.apimachinery.model import Semantics, parse_manifest
from placements.engine.rollout.actions import Action, Remove, RollingUpdateResult
from placements.engine.rollout.state import ClusterState, Phase, RolloutState
from placements.manifests.policy import PlacementPolicy
from placements.manifests.strategy import RollingUpdate

NOON = datetime(2026, 8, 20, 12, tzinfo=UTC)
OLD, NEW = "v1", "v2"


def after(seconds: float) -> datetime:
    """Return the moment that many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def budget(
    unavailable: int | str = "25%", surge: int | str = "25%", period: int = 60
) -> RollingUpdate:
    """Parse a strategy as every entry point does."""
    document = {
        "maxUnavailable": unavailable,
        "maxSurge": surge,
        "unavailablePeriodSeconds": period,
    }
    return parse_manifest(
        RollingUpdate, document, semantics=Semantics.FLEET, path="rollingUpdate"
    )


def cluster(
    name: str,
    phase: Phase,
    *,
    runs: str | None = OLD,
    wants: str | None = NEW,
    **facts: object,
) -> ClusterState:
    """Make a cluster in any phase."""
    return ClusterState(name, wants, runs, phase)._replace(**facts)  # type: ignore[arg-type]


def available(name: str, runs: str = OLD, *, wants: str | None = NEW) -> ClusterState:
    """Make a cluster that is available at a version."""
    return cluster(name, Phase.AVAILABLE, runs=runs, wants=wants)


def done(name: str) -> ClusterState:
    """Make a cluster that is available at the wanted version."""
    return available(name, NEW)


def leaving(name: str, phase: Phase = Phase.AVAILABLE) -> ClusterState:
    """Make a cluster that is to be cleared."""
    return cluster(name, phase, wants=None)


def empty(name: str) -> ClusterState:
    """Make a cluster that is picked and has nothing yet."""
    return ClusterState(name, NEW)


def gone(facts: ClusterState) -> ClusterState:
    """Make a cluster that left the fleet of one."""
    return facts._replace(is_in_fleet=False)


def lost(facts: ClusterState, since: datetime = NOON) -> ClusterState:
    """Make a cluster out of reach of one."""
    return facts._replace(unreachable_since=since)


def state(
    *clusters: ClusterState,
    policy: PlacementPolicy | None = None,
    strategy: RollingUpdate | None = None,
    at: datetime = NOON,
    **more: object,
) -> RolloutState:
    """Make a rollout; PickAll with the default budgets unless said otherwise."""
    made = RolloutState(clusters, policy or PlacementPolicy(), strategy or budget(), at)
    return replace(made, **more)  # type: ignore[arg-type]


def brief(actions: tuple[Action, ...]) -> str:
    """Write actions in short: "a:update -b"."""
    return " ".join(
        f"-{action.cluster}"
        if isinstance(action, Remove)
        else f"{action.cluster}:{action.reason}"
        for action in actions
    )


def blocks(answer: RollingUpdateResult) -> dict[str, str]:
    """Return what blocks each waiting cluster."""
    return {
        blocked_cluster.cluster: blocked_cluster.reason.value
        for blocked_cluster in answer.blocked
    }
