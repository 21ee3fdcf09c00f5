"""What assertions and the checks of labels cost beside the decisions and rules that they come with."""

import random
from collections.abc import Callable
from functools import partial
from time import process_time

import pytest

from placements.engine.assertions import Known, evaluate_assertions
from placements.engine.doctor.examination import examine_fleet, examine_placement
from placements.engine.doctor.findings import Case
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.record import pack
from placements.engine.scheduling.scheduler import schedule
from placements.manifests.assertions import Assertion, assertions_in
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
]
"""All predicates but `survives`, which a report evaluates, and `minFree`, which is another cycle."""


def _seconds(work: Callable[[], object]) -> float:
    """Return the least processor time of three runs."""
    found = []
    for _ in range(3):
        started = process_time()
        work()
        found.append(process_time() - started)
    return min(found)


def test_each_assertion_of_1000_placements_costs_a_tenth_of_their_decisions() -> None:
    fleet, cycles = large_world(random.Random(5), 1_000, 1_000)
    decisions = [schedule(cycle) for cycle in cycles]
    items = assertions_in(ASSERTED).items
    known = Known({"web": set(fleet.names), "shop": set(fleet.names[:50])}, churn=3)

    # What a worker computes of each decision: its clusters, its id and its record.
    decided = _seconds(lambda: [(pack(one), one.id) for one in map(schedule, cycles)])
    for item in items:
        asserted = _seconds(partial(_evaluate_all, [item], decisions, known))
        assert asserted <= 0.1 * decided, item


def _evaluate_all(items: list[Assertion], decisions: list[Decision], known: Known) -> None:
    for one in decisions:
        evaluate_assertions(items, one, known)


def test_checks_of_labels_cost_half_of_the_rules_about_policies() -> None:
    fleet, cycles = large_world(random.Random(5), 5_000, 25)

    hygiene = _seconds(lambda: examine_fleet(fleet))
    policies = _seconds(lambda: [examine_placement(Case(one, RollingUpdate())) for one in cycles])

    assert hygiene <= 0.5 * policies
