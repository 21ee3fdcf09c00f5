"""Gates on the speed of selecting resources: what grows with what, counted and, by `bench-more`, timed."""

from collections.abc import Callable
from time import perf_counter

import pytest

from fleetui.apimachinery.secrets import HubObject
from placements.engine.selection import select
from placements.manifests.placement import ResourceSelector
from tests.documents import parse_placement_spec
from tests.hub_objects import manifest
from tests.load.counting import lines_of

SELECTORS = 100


def _hub(inside: int) -> list[HubObject]:
    """Fill a hundred namespaces with so many config maps each."""
    names = [f"ns-{index}" for index in range(SELECTORS)]
    documents = [manifest("Namespace", name) for name in names]
    documents += [
        manifest("ConfigMap", f"c-{index}", name)
        for name in names
        for index in range(inside)
    ]
    return [HubObject.of(document) for document in documents]


def _selectors(*names: str) -> tuple[ResourceSelector, ...]:
    raw = [
        {"group": "", "version": "v1", "kind": "Namespace", "name": name}
        for name in names
    ]
    return parse_placement_spec({"resourceSelectors": raw}).resource_selectors


def _by_label(selectors: int) -> tuple[ResourceSelector, ...]:
    role = {
        "group": "rbac.authorization.k8s.io",
        "version": "v1",
        "kind": "ClusterRole",
    }
    raw = [
        {**role, "labelSelector": {"matchLabels": {"shard": str(each)}}}
        for each in range(selectors)
    ]
    return parse_placement_spec({"resourceSelectors": raw}).resource_selectors


def _best(action: Callable[[], object]) -> float:
    times = []
    for _ in range(5):
        start = perf_counter()
        action()
        times.append(perf_counter() - start)
    return min(times)


# What a selection costs: steps are exact but a library's work is one, seconds are all but never alike.
COSTS = pytest.mark.parametrize(
    "cost",
    [
        pytest.param(lines_of, id="steps"),
        pytest.param(_best, id="seconds", marks=pytest.mark.timing),
    ],
)
Cost = Callable[[Callable[[], object]], float]


@COSTS
def test_a_hundred_selectors_cost_little_more_than_one_for_the_same_objects(
    cost: Cost,
) -> None:
    hub = _hub(49)
    each = _selectors(*(f"ns-{index}" for index in range(SELECTORS)))
    every = (ResourceSelector(group="", version="v1", kind="Namespace"),)
    assert (
        len(hub)
        == len(select(each, hub).objects)
        == len(select(every, hub).objects)
        == 5_000
    )

    hundred, one = cost(lambda: select(each, hub)), cost(lambda: select(every, hub))

    assert hundred < 4 * one


@pytest.mark.parametrize(
    ("cost", "noise"),
    [
        pytest.param(lines_of, 1.25, id="steps"),
        pytest.param(_best, 3, id="seconds", marks=pytest.mark.timing),
    ],
)
def test_cost_grows_with_the_objects_and_no_faster(cost: Cost, noise: float) -> None:
    selectors = _selectors(*(f"ns-{index}" for index in range(SELECTORS)))
    small, large = _hub(9), _hub(79)

    ratio = cost(lambda: select(selectors, large)) / cost(
        lambda: select(selectors, small)
    )

    assert ratio < 8 * noise


@COSTS
def test_objects_of_other_kinds_are_not_compared_with_labels(cost: Cost) -> None:
    roles = [
        HubObject.of(
            manifest("ClusterRole", f"r-{index}", labels={"shard": str(index)})
        )
        for index in range(SELECTORS)
    ]
    selectors, crowd = _by_label(SELECTORS), _hub(49)
    assert len(select(selectors, [*crowd, *roles]).objects) == SELECTORS

    alone = cost(lambda: select(selectors, roles))
    crowded = cost(lambda: select(selectors, [*crowd, *roles]))

    indexing = cost(lambda: select(_selectors("gone"), crowd))
    assert crowded < 3 * (alone + indexing)
