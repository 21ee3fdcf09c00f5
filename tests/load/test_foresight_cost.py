"""What assertions and the checks of labels cost beside the decisions and rules that they come with."""

import random
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter_ns, process_time

import pytest

from placements.engine.checks.examination import examine_fleet, examine_placement
from placements.engine.checks.findings import Case
from placements.engine.checks.predicates import AssertionFacts, evaluate_assertions
from placements.engine.scheduling.record import pack
from placements.engine.scheduling.scheduler import schedule
from placements.manifests.assertions import assertions_in
from placements.manifests.strategy import RollingUpdate
from tests.load.problems import large_world

pytestmark = pytest.mark.timing
ASSERTED = [
    {"never": {"env": "canary"}},
    {"spread": {"region": {"atLeast": 2}}},
    {"together": "web"},
    {"apart": "shop"},
    {"maxShare": {"provider": "50%"}},
    {"churn": {"perWeek": 5}},
    {"minFree": 1},
]
"""All predicates but `survives`, which a report evaluates."""


def _seconds(work: Callable[[], object]) -> float:
    """Return the least processor time of three runs."""
    found = []
    for _ in range(3):
        started = process_time()
        work()
        found.append(process_time() - started)
    return min(found)


def test_all_assertions_together_cost_a_tenth_of_the_decision() -> None:
    fleet, cycles = large_world(random.Random(5), 1_000, 300)
    items = assertions_in(ASSERTED)
    known = AssertionFacts(
        {"web": set(fleet.names), "shop": set(fleet.names[:50])}, churn=3
    )
    # What a worker computes of each decision: its clusters, its id and its record. The least of several runs
    # of each placement, one beside the other, is what other work on the machine disturbs least.
    decided = asserted = 0
    for cycle in cycles:
        runs = []
        for _ in range(5):
            started = perf_counter_ns()
            decision = schedule(replace(cycle))
            pack(decision), decision.id
            between = perf_counter_ns()
            evaluate_assertions(items, decision, known)
            runs.append((between - started, perf_counter_ns() - between))
        decided += min(one for one, _ in runs)
        asserted += min(one for _, one in runs)
    assert asserted <= 0.1 * decided


def test_checks_of_labels_cost_half_of_the_rules_about_policies() -> None:
    fleet, cycles = large_world(random.Random(5), 5_000, 25)

    hygiene = _seconds(lambda: examine_fleet(fleet))
    policies = _seconds(
        lambda: [examine_placement(Case(cycle, RollingUpdate())) for cycle in cycles]
    )

    assert hygiene <= 0.5 * policies
