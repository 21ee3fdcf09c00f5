"""The eligibility filter: a cluster that may be picked at all."""

import pytest

from clusters.fleet import Cluster, Eligibility, EligibilityKind, Fleet
from placements.engine.scheduling.filters.eligibility import EligibilityFilter
from placements.engine.scheduling.reason import Reason, ReasonCode
from tests.builders import cluster, cycle, fleet

FILTER = EligibilityFilter()


def test_passes_eligible_clusters() -> None:
    assert FILTER.passes(cycle(fleet("a", "b"))).tolist() == [True, True]


@pytest.mark.parametrize("kind", list(EligibilityKind))
def test_rejects_every_kind_of_ineligibility(kind: EligibilityKind) -> None:
    one = fleet("a", cluster("b", not_eligible=kind))

    assert FILTER.passes(cycle(one)).tolist() == [True, False]


def test_gives_kind_and_words_of_whoever_judged() -> None:
    unhealthy = Eligibility(EligibilityKind.UNHEALTHY, "unhealthy for 7 minutes")

    reason = FILTER.reason(cycle(Fleet([Cluster("a", eligibility=unhealthy)])), 0)

    facts = {"kind": EligibilityKind.UNHEALTHY, "reason": "unhealthy for 7 minutes"}
    assert reason == Reason(ReasonCode.NOT_ELIGIBLE, facts)
