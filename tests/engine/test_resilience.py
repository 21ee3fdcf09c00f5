"""The cells of a resilience report are those of the what-if analysis of the same loss."""

import os
import random
from dataclasses import replace
from time import process_time
from typing import Any
from unittest.mock import patch

import pytest

from clusters.fleet import Cluster, Fleet, Taint
from fleetui.apimachinery.model import Semantics
from placements.engine import resilience
from placements.engine.resilience import (
    CLUSTER,
    LossResult,
    LossVariant,
    PlacedSubjects,
    Subject,
    decisions_until_rest,
    losses_of,
    placed_after,
    weakest_point,
    without,
)
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.scheduler import schedule
from placements.manifests.policy import parse_policy
from placements.services.what_if.queries import evaluate, fleet_under
from tests.load.problems import large_world

KEYS = ("region", "zone", "tier")
CELLS = int(os.environ.get("RESILIENCE_CELLS", "500"))


def random_fleet(rng: random.Random, size: int) -> Fleet:
    taints = ((), (), (Taint("cordon-key", "cordon-value"),), (Taint("gpu"),))
    rows = []
    for at in range(size):
        region = rng.choice("abc")
        labels = {"region": region, "zone": f"{region}{rng.randrange(2)}", "tier": rng.choice("xyz")}
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


def random_subject(rng: random.Random, fleet: Fleet) -> Subject:
    """Return a placement at rest."""
    semantics = rng.choice([Semantics.FLEET, Semantics.FLEET, Semantics.KUBEFLEET])
    policy = parse_policy(random_policy(rng, fleet), semantics=semantics)
    namespace = rng.choice(["", "", "shop"])
    last = decisions_until_rest(Cycle(fleet, policy, (), semantics, namespace=namespace))[-1]
    cycle = replace(last.cycle, bindings=last.bindings_after)
    again = schedule(cycle)
    return Subject(replace(cycle, bindings=again.bindings_after), again.is_fulfilled)


def expected(subject: Subject, fleet: Fleet, clusters: tuple[str, ...], variant: LossVariant) -> LossResult:
    """Return the cell according to the what-if analysis."""
    changed = replace(subject.cycle, fleet=fleet_under(fleet, clusters, variant))
    found = evaluate(
        changed,
        clusters,
        variant,
        was_fulfilled=subject.was_fulfilled,
        is_namespaced=bool(subject.cycle.namespace),
    )
    short = found.decision.is_failed or not found.decision.is_fulfilled
    lost = max(0, len(found.leaves) - len(found.joins))
    kept = found.placed_before - len(found.leaves)
    is_unfulfilled = bool(subject.was_fulfilled) and short
    after = placed_after(found.decision)
    skews = [0]
    for one in subject.cycle.policy.topology_spread_constraints:
        labels = [cluster.labels.get(one.topology_key) for cluster in changed.fleet if cluster.name in after]
        counts = [labels.count(value) for value in changed.fleet.label(one.topology_key).values]
        skews.append(max(counts, default=0) - min(counts, default=0))
    return LossResult(kept, len(found.joins), lost, is_unfulfilled, not found.placed_after, max(skews))


@pytest.mark.nightly
def test_cells_are_those_of_the_what_if_analysis() -> None:
    rng, compared, bad = random.Random(7), 0, 0
    while compared < CELLS:
        fleet = random_fleet(rng, rng.randint(4, 14))
        subjects = {at: random_subject(rng, fleet) for at in range(3)}
        placed = PlacedSubjects(subjects)
        for loss in rng.sample(losses_of(fleet, KEYS), 6):
            for variant, cells in placed.cells(fleet, loss, [LossVariant.CORDON, LossVariant.LEAVE]):
                for key, cell in cells.items():
                    assert cell == expected(subjects[key], fleet, loss.clusters, variant), (loss, variant)
                    compared, bad = compared + 1, bad + cell.is_bad
                there = [key for key, one in subjects.items() if not one.placed.isdisjoint(loss.clusters)]
                assert sorted(cells) == there
        gone, subject = rng.choice(losses_of(fleet, KEYS)).clusters, subjects[0]
        for variant in (LossVariant.CORDON, LossVariant.LEAVE):
            start = replace(subject.cycle, fleet=fleet_under(fleet, gone, variant))
            start = without(start, *gone) if variant is LossVariant.CORDON else start
            last = decisions_until_rest(start)[-1]
            following = schedule(replace(start, bindings=last.bindings_after))
            assert last.is_failed or placed_after(following) == placed_after(last)
    assert bad > CELLS // 20


def test_clusters_that_are_down_move_nothing_and_need_no_decision() -> None:
    rng = random.Random(3)
    fleet = random_fleet(rng, 12)
    subjects = {at: random_subject(rng, fleet) for at in range(6)}
    with patch.object(resilience, "schedule") as decide:
        for loss in losses_of(fleet, KEYS):
            [(_, cells)] = PlacedSubjects(subjects).cells(fleet, loss, [LossVariant.DOWN])
            for key, cell in cells.items():
                inside = len(subjects[key].placed.intersection(loss.clusters))
                assert (cell.lost, cell.moved, cell.is_unfulfilled) == (inside, 0, False)
                assert cell.is_empty == (inside == len(subjects[key].placed))
                assert cell.skew <= len(subjects[key].placed) - inside
    decide.assert_not_called()


@pytest.mark.timing
def test_a_report_costs_at_most_twelve_times_the_decisions() -> None:
    fleet, cycles = large_world(random.Random(5), 1_000, 1_000)
    started = process_time()
    decisions = [schedule(cycle) for cycle in cycles]
    assert all(one.bindings_after for one in decisions)
    once = process_time() - started
    subjects = {
        at: Subject(replace(one.cycle, bindings=one.bindings_after), one.is_fulfilled)
        for at, one in enumerate(decisions)
    }
    losses = losses_of(fleet, ("region", "zone", "provider"), has_clusters=False)
    assert len(losses) == 36
    for variant in (LossVariant.CORDON, LossVariant.LEAVE):
        started = process_time()
        placed = PlacedSubjects(subjects)
        for loss in losses:
            for _ in placed.cells(fleet, loss, [variant]):
                pass
        assert process_time() - started <= 12 * once, variant


@pytest.mark.parametrize(
    ("bad", "weakest"),
    [
        ([], None),
        ([("region", "a", 9), ("zone", "z", 1), ("zone", "y", 2), ("env", "prod", 20)], ("zone", "y")),
        ([("example.com/zone", "z", 1), (CLUSTER, "one", 1)], (CLUSTER, "one")),
    ],
)
def test_the_weakest_point_is_the_smallest_loss(bad: list[Any], weakest: tuple[str, str] | None) -> None:
    assert weakest_point(bad) == weakest
