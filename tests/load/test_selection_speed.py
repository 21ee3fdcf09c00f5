"""Gates on the speed of selecting resources: ratios, with ample room for noise."""

from collections.abc import Callable
from time import perf_counter

from placements.scheduling.door.resource_selectors import ResourceSelector
from placements.scheduling.hub.manifest import HubObject
from placements.scheduling.hub.selection import select
from placements.scheduling.spec import parse_placement_spec
from tests.hub_objects import manifest

SELECTORS = 100


def _hub(inside: int) -> list[HubObject]:
    """Fill a hundred namespaces with so many config maps each."""
    names = [f"ns-{index}" for index in range(SELECTORS)]
    documents = [manifest("Namespace", name) for name in names]
    documents += [manifest("ConfigMap", f"c-{index}", name) for name in names for index in range(inside)]
    return [HubObject.of(document) for document in documents]


def _selectors(*names: str) -> tuple[ResourceSelector, ...]:
    raw = [{"group": "", "version": "v1", "kind": "Namespace", "name": name} for name in names]
    return parse_placement_spec({"resourceSelectors": raw}).resource_selectors


def _by_label(selectors: int) -> tuple[ResourceSelector, ...]:
    role = {"group": "rbac.authorization.k8s.io", "version": "v1", "kind": "ClusterRole"}
    raw = [{**role, "labelSelector": {"matchLabels": {"shard": str(each)}}} for each in range(selectors)]
    return parse_placement_spec({"resourceSelectors": raw}).resource_selectors


def _best(action: Callable[[], object]) -> float:
    times = []
    for _ in range(5):
        start = perf_counter()
        action()
        times.append(perf_counter() - start)
    return min(times)


def test_a_hundred_selectors_cost_little_more_than_one_for_the_same_objects() -> None:
    hub = _hub(49)
    each = _selectors(*(f"ns-{index}" for index in range(SELECTORS)))
    every = (ResourceSelector(group="", version="v1", kind="Namespace"),)
    assert len(hub) == len(select(each, hub).objects) == len(select(every, hub).objects) == 5_000

    hundred, one = _best(lambda: select(each, hub)), _best(lambda: select(every, hub))

    print(f"5,000 objects, 100 selectors: {hundred * 1000:.1f} ms; one selector: {one * 1000:.1f} ms")
    assert hundred < 4 * one


def test_time_grows_with_the_objects_and_no_faster() -> None:
    selectors = _selectors(*(f"ns-{index}" for index in range(SELECTORS)))
    small, large = _hub(9), _hub(79)

    ratio = _best(lambda: select(selectors, large)) / _best(lambda: select(selectors, small))

    assert ratio < 8 * 3


def test_objects_of_other_kinds_are_not_compared_with_labels() -> None:
    roles = [
        HubObject.of(manifest("ClusterRole", f"r-{index}", labels={"shard": str(index)}))
        for index in range(SELECTORS)
    ]
    selectors, crowd = _by_label(SELECTORS), _hub(49)
    assert len(select(selectors, [*crowd, *roles]).objects) == SELECTORS

    alone = _best(lambda: select(selectors, roles))
    crowded = _best(lambda: select(selectors, [*crowd, *roles]))

    indexing = _best(lambda: select(_selectors("gone"), crowd))
    print(f"100 label selectors: {alone * 1000:.1f} ms; among 5,000 others: {crowded * 1000:.1f} ms")
    assert crowded < 3 * (alone + indexing)
