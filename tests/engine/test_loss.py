"""The loss of clusters: counts of a report are those of the full evaluation of the same loss."""

import os
import random
from dataclasses import replace
from time import process_time
from typing import Any
from unittest.mock import patch

import pytest

from clusters.fleet import Cluster, Fleet, Taint
from fleetui.apimachinery.model import Semantics
from placements.engine import loss as loss_module
from placements.engine.loss import (
    CLUSTER,
    ChangedFleet,
    EvaluatedPlacement,
    LossVariant,
    PlacementIndex,
    decisions_until_rest,
    domains_of,
    loss,
    weakest_point,
)
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.scheduler import schedule
from placements.manifests.policy import parse_policy
from tests.load.problems import large_world

KEYS = ("region", "zone", "tier")
CELLS = int(os.environ.get("RESILIENCE_CELLS", "500"))


def random_fleet(rng: random.Random, size: int) -> Fleet:
    taints = ((), (), (Taint("cordon-key", "cordon-value"),), (Taint("gpu"),))
    rows = []
    for at in range(size):
        region = rng.choice("abc")
        labels = {
            "region": region,
            "zone": f"{region}{rng.randrange(2)}",
            "tier": rng.choice("xyz"),
        }
        labels.pop(rng.choice([*KEYS, "none", "none", "none"]), None)
        rows.append(Cluster(f"c{at:02}", labels, rng.choice(taints)))
    return Fleet(rows)


def random_policy(rng: random.Random, fleet: Fleet) -> dict[str, Any]:
    kind = rng.choices(["PickN", "PickAll", "PickFixed"], [8, 2, 1])[0]
    policy: dict[str, Any] = {"placementType": kind}
    if kind == "PickFixed":
        return {**policy, "clusterNames": rng.sample(fleet.names, 3)}
    if rng.random() < 0.2:
        policy["tolerations"] = [{"key": "cordon-key", "operator": "Exists"}]
    if kind == "PickN":
        policy["numberOfClusters"] = rng.randint(1, len(fleet) // 2 + 1)
        policy["topologySpreadConstraints"] = [
            {
                "topologyKey": key,
                "maxSkew": rng.randint(1, 2),
                "whenUnsatisfiable": rng.choice(["DoNotSchedule", "ScheduleAnyway"]),
            }
            for key in rng.sample(KEYS, rng.randint(0, 2))
        ]
    return policy


def random_placement(rng: random.Random, fleet: Fleet) -> EvaluatedPlacement:
    """Return a placement at rest."""
    semantics = rng.choice([Semantics.FLEET, Semantics.FLEET, Semantics.KUBEFLEET])
    policy = parse_policy(random_policy(rng, fleet), semantics=semantics)
    namespace = rng.choice(["", "", "shop"])
    last = decisions_until_rest(
        Cycle(fleet, policy, (), semantics, namespace=namespace)
    )[-1]
    cycle = replace(last.cycle, bindings=last.bindings_after)
    again = schedule(cycle)
    return EvaluatedPlacement(
        replace(cycle, bindings=again.bindings_after), again.is_fulfilled
    )


@pytest.mark.nightly
def test_counts_are_those_of_the_full_evaluation() -> None:
    rng = random.Random(7)
    compared = bad = 0
    while compared < CELLS:
        fleet = random_fleet(rng, rng.randint(4, 14))
        placements = {at: random_placement(rng, fleet) for at in range(3)}
        index = PlacementIndex(placements)
        for domain in rng.sample(domains_of(fleet, KEYS), 6):
            there = [
                key
                for key, placement in placements.items()
                if not placement.placed.isdisjoint(domain.clusters)
            ]
            for variant, counts in index.counts(fleet, domain.clusters, LossVariant):
                change = ChangedFleet(
                    fleet, lost=frozenset(domain.clusters), variant=variant
                )
                assert sorted(counts) == there
                for key, found in counts.items():
                    assert found == loss(placements[key], change).counts, (
                        domain,
                        variant,
                    )
                    compared += 1
                    bad += found.is_bad
        gone = frozenset(rng.choice(domains_of(fleet, KEYS)).clusters)
        for variant in (LossVariant.CORDON, LossVariant.LEAVE):
            row = loss(placements[0], ChangedFleet(fleet, lost=gone, variant=variant))
            last = row.decision
            assert last is not None
            following = schedule(replace(last.cycle, bindings=last.bindings_after))
            assert last.is_failed or following.placed_after == row.after
    assert bad > CELLS // 20


def test_clusters_that_are_down_move_nothing_and_need_no_decision() -> None:
    rng = random.Random(3)
    fleet = random_fleet(rng, 12)
    subjects = {at: random_placement(rng, fleet) for at in range(6)}
    with patch.object(loss_module, "schedule") as decide:
        for domain in domains_of(fleet, KEYS):
            [(_, cells)] = PlacementIndex(subjects).counts(
                fleet, domain.clusters, [LossVariant.DOWN]
            )
            for key, cell in cells.items():
                inside = len(subjects[key].placed.intersection(domain.clusters))
                assert (cell.lost, cell.moved, cell.is_unfulfilled) == (
                    inside,
                    0,
                    False,
                )
                assert cell.is_empty == (inside == len(subjects[key].placed))
                assert cell.skew <= len(subjects[key].placed) - inside
    decide.assert_not_called()


@pytest.mark.parametrize("variant", [LossVariant.CORDON, LossVariant.LEAVE])
def test_a_further_loss_of_an_unfulfilled_placement_hurts(variant: LossVariant) -> None:
    wanted = parse_policy({"placementType": "PickN", "numberOfClusters": 3})
    found = []
    for names in ("abc", "ab"):
        cycle = Cycle(Fleet(Cluster(name, {}) for name in names), wanted, ())
        decision = schedule(cycle)
        subject = EvaluatedPlacement(
            replace(cycle, bindings=decision.bindings_after), decision.is_fulfilled
        )
        change = ChangedFleet(cycle.fleet, lost=frozenset("a"), variant=variant)
        counts = subject.counts(change)
        assert counts == loss(subject, change).counts
        found.append(counts.is_bad)
    assert found == [True, True]


@pytest.mark.timing
def test_a_report_costs_at_most_twelve_times_the_decisions() -> None:
    fleet, cycles = large_world(random.Random(5), 1_000, 1_000)
    started = process_time()
    decisions = [schedule(cycle) for cycle in cycles]
    assert all(decision.bindings_after for decision in decisions)
    once = process_time() - started
    subjects = {
        at: EvaluatedPlacement(
            replace(decision.cycle, bindings=decision.bindings_after),
            decision.is_fulfilled,
        )
        for at, decision in enumerate(decisions)
    }
    losses = domains_of(fleet, ("region", "zone", "provider"), has_clusters=False)
    assert len(losses) == 36
    for variant in (LossVariant.CORDON, LossVariant.LEAVE):
        started = process_time()
        placed = PlacementIndex(subjects)
        for domain in losses:
            for _ in placed.counts(fleet, domain.clusters, [variant]):
                pass
        assert process_time() - started <= 12 * once, variant


@pytest.mark.parametrize(
    ("bad", "weakest"),
    [
        ([], None),
        (
            [
                ("region", "a", 9),
                ("zone", "z", 1),
                ("zone", "y", 2),
                ("env", "prod", 20),
            ],
            ("zone", "y"),
        ),
        ([("example.com/zone", "z", 1), (CLUSTER, "one", 1)], (CLUSTER, "one")),
    ],
)
def test_the_weakest_point_is_the_smallest_loss(
    bad: list[Any], weakest: tuple[str, str] | None
) -> None:
    assert weakest_point(bad) == weakest
