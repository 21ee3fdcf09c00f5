"""Where the changed clusters alone say that nothing can change, a full cycle changes nothing."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusters.fleet import Cluster, Eligibility, EligibilityKind
from fleetui.apimachinery.model import Semantics
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import CycleKind
from placements.engine.scheduling.fleet_change import (
    can_change_picks,
    changed_clusters,
    schedule_changed,
)
from placements.engine.scheduling.record import pack
from placements.engine.scheduling.scheduler import schedule
from placements.manifests.binding import BindingState, PlacedBinding
from tests.builders import (
    cluster,
    cycle_of,
    fleet,
    labelled,
    measured,
    pick_all,
    pick_n,
    spread,
    taint,
)
from tests.effort import examples
from tests.engine.scheduling.random_cases import LABELS, MALFORMED, NAMES, cases

STEPS = 50


@pytest.mark.nightly
def test_a_skipped_cycle_would_have_changed_nothing() -> None:
    answers: Counter[bool] = Counter()

    @given(cases(types=("PickN", "PickAll")), st.integers(0, 2**32))
    @examples(100)
    def check(case: Any, seed: int) -> None:
        _check(case, random.Random(seed), answers)

    check()

    assert (
        min(answers[True], answers[False]) > 4 * settings().max_examples
    )  # each has many changes


def _check(case: Any, rng: random.Random, answers: Counter[bool]) -> None:
    cycle, decision = cycle_of(case), schedule(cycle_of(case))
    for _ in range(STEPS):
        at_rest = decision.is_fulfilled and cycle.policy.number_of_clusters is not None
        if at_rest:
            break
        cycle = replace(cycle, bindings=decision.bindings_after)
        changed, is_moved, gone = _change(cycle, rng)
        was = cycle.fleet.clusters
        cycle = replace(cycle, fleet=cycle.fleet.with_clusters(changed, gone=gone))
        bound = {
            binding.cluster for binding in cycle.live_bindings if binding.is_active
        }
        after = schedule(cycle)
        names = {one.name for one in changed}
        partial = replace(
            cycle,
            fleet=fleet(*changed),
            bindings=tuple(
                binding for binding in cycle.bindings if binding.cluster in names
            ),
        )
        keys = {
            key
            for one in changed
            for old in was
            if old.name == one.name
            for key in _keys(old, one)
        }
        can = can_change_picks(
            partial,
            label_keys=keys,
            is_membership_changed=is_moved,
            has_failed=decision.kind is CycleKind.FAILED,
        )
        answers[can] += 1
        is_losing = any(
            one.is_leaving and one.name in bound for one in changed
        ) or bool(gone & bound)
        if can or is_losing:
            decision = after
            continue
        assert (after.picked_names, after.unscheduled) == ((), ())
        assert after.is_fulfilled == decision.is_fulfilled


@pytest.mark.parametrize(
    "changes", [300, pytest.param(5_000, marks=pytest.mark.nightly)]
)
def test_a_pick_all_cycle_of_the_changed_clusters_is_byte_for_byte_a_full_one(
    changes: int,
) -> None:
    rng, seen, merged = random.Random(83), 0, 0
    required = [
        [labelled(env="prod")],
        [labelled(region="east"), measured("cpu", "Ge", "2")],
        [],
    ]
    while seen < changes:
        members = [
            cluster(name, {key: rng.choice(of) for key, of in LABELS.items()})
            for name in NAMES[:9]
        ]
        policy = pick_all(required=rng.choice(required))
        semantics = rng.choice([Semantics.FLEET, Semantics.KUBEFLEET])
        decision = schedule(
            Cycle(
                fleet(*members),
                policy,
                semantics=semantics,
                namespace=rng.choice(["", "x"]),
            )
        )
        for _ in range(STEPS):
            before = decision.cycle
            # Bindings stay as they were, follow the decision, or are changed by someone else.
            bindings = rng.choice(
                [before.bindings, decision.bindings_after, decision.bindings_after]
            )
            if bindings and rng.random() < 0.1:
                bindings = bindings[1:]
            cycle = replace(
                before, bindings=tuple(_bound(binding, rng) for binding in bindings)
            )
            for _ in range(rng.randint(1, 2)):
                changed, _, gone = _change(cycle, rng)
                cycle = replace(
                    cycle, fleet=cycle.fleet.with_clusters(changed, gone=gone)
                )
            full = schedule(cycle)
            part = schedule_changed(
                decision, cycle, changed_clusters(before.fleet, cycle.fleet)
            )
            if part is not None:
                merged += 1
                assert pack(part) == pack(full)
                assert (part.picked, part.bindings_after) == (
                    full.picked,
                    full.bindings_after,
                )
            decision, seen = part or full, seen + 1
    assert merged > seen // 2


def _bound(one: PlacedBinding, rng: random.Random) -> PlacedBinding:
    """Return a binding as a rollout may leave it."""
    is_scheduled = one.state is BindingState.SCHEDULED
    return (
        one._replace(state=BindingState.BOUND)
        if is_scheduled and rng.random() < 0.5
        else one
    )


def _keys(old: Cluster, new: Cluster) -> set[str]:
    return {key for key, _ in set(old.labels.items()) ^ set(new.labels.items())}


def _change(cycle: Cycle, rng: random.Random) -> tuple[list[Cluster], bool, set[str]]:
    """Return the changed clusters, whether one joined or left, and the names that left."""
    clusters = list(cycle.fleet)
    kind = rng.choice(
        ["label", "label", "taint", "eligibility", "property", "join", "leave"]
    )
    if kind == "join" or not clusters:
        name = rng.choice(NAMES)
        return (
            [cluster(name, region=rng.choice(LABELS["region"]))],
            name not in cycle.fleet.names,
            set(),
        )
    one = rng.choice(clusters)
    if kind == "label":
        key = rng.choice(sorted(LABELS))
        labels = {**one.labels, key: rng.choice(LABELS[key])}
        if rng.random() < 0.3:
            del labels[key]
        return [one.with_changes(labels=labels)], False, set()
    if kind == "taint":
        return (
            [one.with_changes(taints=rng.choice([(), (taint("gpu"),)]))],
            False,
            set(),
        )
    if kind == "property":
        return (
            [one.with_changes(properties={"cpu": rng.choice(["1", "3", MALFORMED])})],
            False,
            set(),
        )
    if kind == "eligibility":
        verdict = rng.choice([None, EligibilityKind.UNHEALTHY, EligibilityKind.LEAVING])
        changed = one.with_changes(eligibility=Eligibility(verdict))
        return [changed], changed.is_leaving or one.is_leaving, set()
    return [], True, {one.name}


def test_a_pinned_domain_that_disappears_with_its_only_cluster_lets_more_be_picked() -> (
    None
):
    """The ineligible cluster counts as a domain of its own, so its leaving raises what is possible."""
    pinned = cluster("c", region="south", not_eligible="unhealthy")
    clusters = [cluster(f"a{number}", region="east") for number in range(4)]
    policy = pick_n(4, spread=[spread("region")])
    before = schedule(Cycle(fleet(*clusters, pinned), policy))
    assert not before.is_fulfilled

    gone = Cycle(fleet(), policy, before.bindings_after)

    assert can_change_picks(gone, label_keys=(), is_membership_changed=True)
    assert schedule(Cycle(fleet(*clusters), policy, before.bindings_after)).is_fulfilled


def test_a_change_that_no_filter_reads_or_that_still_fails_needs_no_cycle() -> None:
    policy = pick_all(required=[labelled(env="prod")])
    changed = Cycle(
        fleet(
            cluster("a", env="test", tier="gold"),
            cluster("b", taints=[taint("x")], env="prod"),
        ),
        policy,
    )

    assert not can_change_picks(
        changed, label_keys={"env", "tier"}, is_membership_changed=True
    )
    assert can_change_picks(
        replace(changed, fleet=fleet(cluster("a", env="prod"))),
        label_keys={"env"},
        is_membership_changed=False,
    )
