"""Random rollouts: any mixture of clusters, policy and budgets, and what may happen in between."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cache

from hypothesis import strategies as st

from placements.engine.rollout.state import (
    ClusterState,
    Phase,
    RolloutState,
    Suspension,
)
from placements.manifests.policy import PlacementPolicy, PlacementType
from placements.manifests.strategy import RollingUpdate
from tests.builders import pick_all, pick_fixed, pick_n
from tests.engine.rollout.states import after, budget, lost, state
from tests.engine.rollout.world import World

NAMES = ("b", "a", "d-10", "c", "d-2", "f", "e")
VERSIONS = ("v1", "v2", "v3")
STARTED = [phase for phase in Phase if phase not in (Phase.NOT_STARTED, Phase.REMOVED)]
AMOUNTS = (0, 1, 2, "0%", "25%", "50%", "100%")
Event = Callable[[World], None]


@cache
def _budget(unavailable: int | str, surge: int | str, period: int) -> RollingUpdate:
    return budget(unavailable, surge, period)


versions = st.sampled_from(VERSIONS)
wanted_versions = st.dictionaries(st.sampled_from(NAMES), versions, max_size=len(NAMES))
budgets = (
    st.tuples(
        st.sampled_from(AMOUNTS), st.sampled_from(AMOUNTS), st.sampled_from((0, 15))
    )
    .filter(lambda amounts: str(amounts[0])[0] != "0" or str(amounts[1])[0] != "0")
    .map(lambda amounts: _budget(*amounts))
)
kinds = st.tuples(st.sampled_from(PlacementType), st.integers(0, 2))


@cache
def _policy(kind: PlacementType, number: int) -> PlacementPolicy:
    if kind is PlacementType.PICK_N:
        return pick_n(number)
    return (
        pick_fixed(*(f"n{one}" for one in range(number)))
        if kind is PlacementType.PICK_FIXED
        else pick_all()
    )


def policy_for(kind: tuple[PlacementType, int], selected: int) -> PlacementPolicy:
    """Return a policy that has found so many clusters, and misses some where its type can."""
    return _policy(kind[0], selected + kind[1])


@st.composite
def clusters(draw: st.DrawFn, name: str, *, calm: bool) -> ClusterState:
    """Draw a cluster; a calm one is available or empty, and in reach."""
    phases = (
        [Phase.NOT_STARTED, Phase.AVAILABLE, Phase.REMOVED] if calm else list(Phase)
    )
    phase = draw(st.sampled_from(phases))
    wanted = draw(st.one_of(st.none(), versions))
    running = draw(versions) if phase in STARTED else None
    facts = ClusterState(name, wanted, running, phase)
    if phase is Phase.APPLIED and draw(st.booleans()):
        facts = facts._replace(untrackable_since=after(draw(st.integers(-20, 0))))
    if phase in (Phase.FAILED, Phase.REMOVE_FAILED):
        facts = facts._replace(attempts=1, retry_at=after(draw(st.integers(-5, 5))))
    if not calm and draw(st.integers(0, 4)) == 0:
        facts = (
            lost(facts) if draw(st.booleans()) else facts._replace(is_in_fleet=False)
        )
    return facts


@st.composite
def rollouts(draw: st.DrawFn, *, calm: bool = False) -> RolloutState:
    """Draw a rollout in any state, or one from which nothing but its own starts moves things."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True))
    facts = [draw(clusters(name, calm=calm)) for name in names]
    made = state(*facts, strategy=draw(budgets))
    return replace(made, policy=policy_for(draw(kinds), made.number_selected))


def _want(wanted: Mapping[str, str], kind: tuple[PlacementType, int]) -> Event:
    def event(world: World) -> None:
        world.state = world.state.with_wanted(wanted, policy_for(kind, len(wanted)))

    return event


def _change(**fields: object) -> Event:
    def event(world: World) -> None:
        world.state = replace(world.state, **fields)  # type: ignore[arg-type]

    return event


def _to_one(name: str, what: str) -> Event:
    def event(world: World) -> None:
        if name not in world.clusters:
            return
        if what == "fail":
            world.failures[name] += 1
        elif what == "lose":
            world.lose(name)
        else:
            world.find(name)

    return event


def _restart(world: World) -> None:
    world.ends.clear()
    world.__post_init__()


def _wait(world: World) -> None:
    world.state = replace(world.state, at=world.state.at + timedelta(seconds=7))


def _spoil(version: str) -> Event:
    def event(world: World) -> None:
        world.bad = frozenset({version})

    return event


one_cluster_events = st.one_of(
    st.builds(
        _to_one, st.sampled_from(NAMES), st.sampled_from(("fail", "lose", "find"))
    ),
    st.just(_restart),
    st.just(_wait),
)
events = st.one_of(
    st.just(World.step),
    st.just(World.step),
    st.builds(_want, wanted_versions, kinds),
    st.builds(
        _to_one, st.sampled_from(NAMES), st.sampled_from(("fail", "lose", "find"))
    ),
    budgets.map(lambda strategy: _change(strategy=strategy)),
    st.sampled_from(Suspension).map(lambda suspension: _change(suspension=suspension)),
    versions.map(_spoil),
    st.just(_restart),
    st.just(_wait),
)
