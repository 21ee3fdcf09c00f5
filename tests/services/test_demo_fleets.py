"""The demos: what is in them, that all entry points accept it, and what the placements come to."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import pytest

from clusters.fleet import EligibilityKind, Fleet
from clusters.manifest import MemberClusterManifest, parse_member
from fleetui.apimachinery.model import Semantics
from placements.engine.advice.diagnosis import pinned_groups, stale_picks
from placements.engine.checks.examination import fleet_warnings
from placements.engine.exact.record import exact_search
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.scheduler import schedule
from placements.manifests.binding import PlacedBinding
from placements.manifests.placement import parse_placement
from placements.manifests.policy import PlacementType
from placements.services.demo.load import DEMO_SIZES, demo_of
from placements.services.demo.model import SIMULATED_ANNOTATION, Demo, DemoFault
from placements.services.simulate.translate import PlacementInput, placement_input

NOW = datetime(2026, 8, 20, 12, 7, 31, tzinfo=UTC)
LARGE = (100, 5000)
SIZES = pytest.mark.parametrize("size", DEMO_SIZES)
LARGE_SIZES = pytest.mark.parametrize("size", LARGE)


@lru_cache
def demo(size: int) -> Demo:
    return demo_of(size, now=NOW)


@lru_cache
def members(size: int) -> tuple[MemberClusterManifest, ...]:
    return tuple(map(parse_member, demo(size).clusters))


def fleet_of(clusters: Iterable[Any]) -> Fleet:
    parsed = (
        cluster if isinstance(cluster, MemberClusterManifest) else parse_member(cluster)
        for cluster in clusters
    )
    return Fleet(manifest.cluster(now=NOW) for manifest in parsed)


def placements_of(one: Demo) -> dict[str, PlacementInput]:
    inputs = (placement_input(parse_placement(document)) for document in one.placements)
    return {placement.name: placement for placement in inputs}


@lru_cache
def decisions(size: int) -> Mapping[str, Decision]:
    fleet = fleet_of(members(size))
    return {
        name: schedule(placement.cycle(fleet, ()))
        for name, placement in placements_of(demo(size)).items()
    }


def label_counts(size: int, key: str) -> Counter[str]:
    return Counter(member.metadata.labels.get(key, "") for member in members(size))


# Every demo


@pytest.mark.nightly
@SIZES
def test_it_has_that_many_clusters_and_no_name_twice(size: int) -> None:
    names = {member.metadata.name for member in members(size)}

    assert len(names) == len(demo(size).clusters) == size


@pytest.mark.nightly
@SIZES
def test_it_is_the_same_every_time(size: int) -> None:
    assert demo_of(size, now=NOW) == demo(size)


def test_the_same_clusters_have_reported_at_any_other_moment() -> None:
    later = demo_of(100, now=NOW.replace(year=2027))

    assert [cluster["spec"] for cluster in later.clusters] == [
        cluster["spec"] for cluster in demo(100).clusters
    ]


def test_there_is_no_demo_of_another_size() -> None:
    with pytest.raises(
        ValueError, match="no demo has 7 clusters, only 4, 9, 100, 5000"
    ):
        demo_of(7, now=NOW)


@pytest.mark.nightly
@SIZES
def test_every_placement_selects_something_that_the_hub_holds(size: int) -> None:
    one = demo(size)

    for document in one.placements:
        selectors = parse_placement(document).spec.resource_selectors
        assert [
            selector
            for selector in selectors
            if not any(_selects(selector, thing) for thing in one.resources)
        ] == []


def _selects(selector: Any, resource: Mapping[str, Any]) -> bool:
    group, _, version = resource["apiVersion"].rpartition("/")
    metadata = resource["metadata"]
    wanted = (
        selector.label_selector.match_labels.items() if selector.label_selector else ()
    )
    return (selector.group, selector.version, selector.kind) == (
        group,
        version,
        resource["kind"],
    ) and (
        selector.name == metadata["name"]
        or (bool(wanted) and wanted <= metadata["labels"].items())
    )


@pytest.mark.nightly
@SIZES
def test_no_two_resources_are_the_same_object(size: int) -> None:
    resources = demo(size).resources
    keys = {
        (
            resource["apiVersion"],
            resource["kind"],
            resource["metadata"].get("namespace"),
            resource["metadata"]["name"],
        )
        for resource in resources
    }

    assert len(keys) == len(resources)


@pytest.mark.nightly
@SIZES
def test_every_resource_in_a_namespace_has_its_namespace(size: int) -> None:
    resources = demo(size).resources
    namespaces = {
        resource["metadata"]["name"]
        for resource in resources
        if resource["kind"] == "Namespace"
    }

    used = {
        resource["metadata"]["namespace"]
        for resource in resources
        if "namespace" in resource["metadata"]
    }

    assert used <= namespaces
    assert {"Namespace", "Deployment", "Service", "ConfigMap", "ClusterRole"} <= {
        resource["kind"] for resource in resources
    }


@pytest.mark.nightly
@SIZES
def test_simulated_faults_are_those_that_keep_a_cluster_from_being_picked(
    size: int,
) -> None:
    kinds = {
        DemoFault.SILENT: EligibilityKind.STALE_HEARTBEAT,
        DemoFault.UNHEALTHY: EligibilityKind.UNHEALTHY,
    }
    faults = {
        member.metadata.name: member.metadata.annotations.get(SIMULATED_ANNOTATION)
        for member in members(size)
    }

    eligibility = {
        cluster.name: cluster.eligibility.kind for cluster in fleet_of(members(size))
    }

    assert eligibility == {
        name: kinds[DemoFault(error)] if error else None
        for name, error in faults.items()
    }


@pytest.mark.nightly
@SIZES
def test_no_placement_fails_or_meets_a_property_that_is_no_quantity(size: int) -> None:
    odd = [
        name
        for name, decision in decisions(size).items()
        if decision.is_failed or decision.malformed
    ]

    assert odd == []


@pytest.mark.nightly
@SIZES
def test_no_placement_requires_labels_that_no_cluster_has(size: int) -> None:
    warnings = [
        (name, warning)
        for name, decision in decisions(size).items()
        for warning in fleet_warnings(decision.cycle)
    ]

    in_the_guide = {"clusters-lack-key", "single-group"}
    assert [
        warning for warning in warnings if warning[1].code not in in_the_guide
    ] == []


# Four


def test_four_answers_as_the_guides_do() -> None:
    assert {name: decision.picked_names for name, decision in decisions(4).items()} == {
        "fixed": ("bravelion", "smartfish"),
        "critical": ("bravelion", "jumpingcat"),
        "critical-or-standard": ("bravelion", "jumpingcat"),
        "east-with-system": ("bravelion",),
        "west-or-without-system": ("flyingpenguin", "jumpingcat", "smartfish"),
        "rather-west": ("jumpingcat", "flyingpenguin"),
        "system-rather-west": ("jumpingcat",),
        "even-by-region": ("smartfish", "jumpingcat"),
        "even-by-system": ("smartfish", "jumpingcat", "flyingpenguin"),
    }


# Nine, decided step by step as a loader does


@lru_cache
def story_of_nine() -> list[dict[str, Decision]]:
    """Return the decisions of every placement at first and after each step."""
    one = demo(9)
    state = {
        (document["kind"], document["metadata"]["name"]): document
        for document in _documents(one.at_first)
    }
    decided = [_decided(state, {})]
    for step in one.history:
        assert state.get((step.kind, step.name)) == step.before
        state[step.kind, step.name] = step.after
        decided.append(_decided(state, decided[-1]))
    assert sorted(state.values(), key=str) == sorted(_documents(one), key=str)
    return decided


def _documents(one: Demo) -> list[Any]:
    return [*one.clusters, *one.placements]


def _decided(
    state: Mapping[tuple[str, str], Any], before: Mapping[str, Decision]
) -> dict[str, Decision]:
    fleet = fleet_of(one for (kind, _), one in state.items() if kind == "MemberCluster")
    parsed = (
        parse_placement(one)
        for (kind, _), one in state.items()
        if kind != "MemberCluster"
    )
    inputs = map(placement_input, parsed)
    return {
        placement.name: schedule(
            placement.cycle(fleet, _bindings(placement, before.get(placement.name)))
        )
        for placement in inputs
    }


def _bindings(
    placement: PlacementInput, before: Decision | None
) -> tuple[PlacedBinding, ...]:
    """Return what is placed: under an older policy one more than the number has changed."""
    if before is None:
        return ()
    same = before.cycle.policy.without_number() == placement.policy.without_number()
    return tuple(
        binding._replace(is_current=binding.is_current and same)
        for binding in before.bindings_after
    )


def placed(decision: Decision) -> set[str]:
    return {*decision.kept, *decision.picked_names}


def test_nine_ends_as_the_overview_shows_it() -> None:
    last = story_of_nine()[-1]

    assert {name: len(placed(decision)) for name, decision in last.items()} == {
        "web": 5,
        "ledger": 3,
        "cache": 3,
        "config": 3,
        "batch": 9,
    }
    assert [name for name, decision in last.items() if not decision.is_fulfilled] == [
        "ledger"
    ]


def test_nine_has_a_namespace_for_the_first_placement_of_a_user() -> None:
    one = demo(9)
    names = {
        resource["metadata"]["name"]
        for resource in one.resources
        if resource["kind"] == "Namespace"
    }
    taken = {
        selector.name
        for document in one.placements
        for selector in parse_placement(document).spec.resource_selectors
    }

    assert names - taken == {"hello"}


def test_the_edit_of_web_swaps_two_clusters() -> None:
    before, after = (step["web"] for step in story_of_nine()[-2:])

    assert placed(before) == {
        "quietheron",
        "nimblefox",
        "palemoth",
        "bravelion",
        "jumpingcat",
    }
    assert placed(after) == {
        "quietheron",
        "smartfish",
        "nimblefox",
        "palemoth",
        "oldbadger",
    }


def test_web_alone_picks_in_the_order_that_is_printed() -> None:
    assert decisions(9)["web"].picked_names == (
        "quietheron",
        "smartfish",
        "nimblefox",
        "palemoth",
        "oldbadger",
    )


def test_cache_keeps_the_cluster_that_lost_its_label() -> None:
    assert stale_picks(story_of_nine()[-1]["cache"]) == ("flyingpenguin",)


def test_ledger_is_held_back_by_south() -> None:
    pinned = pinned_groups(decisions(9)["ledger"])

    assert [(domain.topology_key, domain.group) for domain in pinned] == [
        ("region", "south")
    ]


def test_batch_took_palemoth_when_it_joined() -> None:
    at_first, joined = story_of_nine()[:2]

    assert placed(joined["batch"]) - placed(at_first["batch"]) == {"palemoth"}


def test_the_history_is_in_order_and_ends_six_minutes_ago() -> None:
    moments = [step.at for step in demo(9).history]

    assert moments == sorted(moments)
    assert (NOW - moments[-1]).total_seconds() == 360


@pytest.mark.nightly
@pytest.mark.parametrize("size", [4, *LARGE])
def test_a_demo_without_a_history_was_never_different(size: int) -> None:
    assert demo(size).at_first == demo(size)


# A hundred and five thousand


@pytest.mark.nightly
@pytest.mark.parametrize(("size", "least", "most"), [(100, 0, 0), (5000, 100, 200)])
def test_a_few_clusters_of_the_largest_cannot_be_picked(
    size: int, least: int, most: int
) -> None:
    ill = sum(
        cluster.eligibility.kind is not None for cluster in fleet_of(members(size))
    )

    assert least <= ill <= most


@pytest.mark.nightly
@LARGE_SIZES
def test_some_clusters_are_tainted(size: int) -> None:
    taints = Counter(
        (taint.key, taint.value)
        for member in members(size)
        for taint in member.spec.taints
    )

    assert set(taints) == {
        ("cordon-key", "cordon-value"),
        ("gpu", "true"),
        ("dedicated", "payments"),
    }
    assert sum(taints.values()) < size / 10


@pytest.mark.nightly
@LARGE_SIZES
def test_label_hygiene_has_something_to_find(size: int) -> None:
    regions, envs = label_counts(size, "region"), label_counts(size, "env")

    assert regions["us-east-1"] > regions["US-East-1"] > 0
    assert envs["prod"] > envs["Prod"] > 0
    assert min(regions[""], envs[""]) > 0


@pytest.mark.nightly
@LARGE_SIZES
def test_the_new_region_has_nothing_in_production(size: int) -> None:
    envs = {
        member.metadata.labels.get("env")
        for member in members(size)
        if member.metadata.labels.get("region") == "me-south-1"
    }

    assert "staging" in envs
    assert "prod" not in envs


@LARGE_SIZES
def test_placements_are_of_every_sort(size: int) -> None:
    inputs = placements_of(demo(size)).values()

    assert {placement.policy.placement_type for placement in inputs} == set(
        PlacementType
    )
    assert {placement.semantics for placement in inputs} >= {
        Semantics.OCM,
        Semantics.KUBERNETES,
    }
    assert {
        len(placement.policy.topology_spread_constraints) for placement in inputs
    } == {0, 1, 2}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("size", "unfulfilled"),
    [
        (100, {"payments"}),
        (5000, {"payments", "lab-replicas", "licences"}),
    ],
)
def test_all_but_a_few_are_fulfilled(size: int, unfulfilled: set[str]) -> None:
    assert {
        name for name, decision in decisions(size).items() if not decision.is_fulfilled
    } == unfulfilled


@pytest.mark.nightly
@LARGE_SIZES
def test_every_placement_takes_some_cluster(size: int) -> None:
    assert [
        name for name, decision in decisions(size).items() if not decision.picked_names
    ] == []


@pytest.mark.nightly
@LARGE_SIZES
def test_payments_is_pinned_by_the_new_region(size: int) -> None:
    assert "me-south-1" in {
        group.group for group in pinned_groups(decisions(size)["payments"])
    }


@pytest.mark.nightly
def test_lab_replicas_comes_to_a_dead_end() -> None:
    decision = decisions(5000)["lab-replicas"]

    assert (len(decision.picked_names), len(exact_search(decision).picks)) == (3, 4)


def test_licences_names_a_cluster_that_left() -> None:
    assert decisions(5000)["licences"].not_found == ("gonewalrus",)


@pytest.mark.nightly
@pytest.mark.parametrize(("size", "number"), [(100, 9), (5000, 25)])
def test_it_has_so_many_placements(size: int, number: int) -> None:
    assert len(demo(size).placements) == number


def _shortest(action: Callable[[], object]) -> float:
    """Return the shortest of three times, which other work on the machine disturbs least."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return min(times)


def _schedule_all(fleet: Fleet, inputs: Mapping[str, PlacementInput]) -> None:
    for placement in inputs.values():
        schedule(placement.cycle(fleet, ()))


@pytest.mark.timing
def test_five_thousand_are_made_and_scheduled_quickly() -> None:
    inputs = placements_of(demo(5000))

    made = _shortest(lambda: demo_of(5000, now=NOW))
    small = _shortest(lambda: demo_of(100, now=NOW))
    scheduled = _shortest(lambda: _schedule_all(fleet_of(members(5000)), inputs))

    print(  # noqa: T201
        f"5000 clusters: made in {made:.2f} s, {len(inputs)} placements scheduled in {scheduled:.2f} s"
    )
    assert made < 2 * 50 * small
    assert scheduled < 10 * made
