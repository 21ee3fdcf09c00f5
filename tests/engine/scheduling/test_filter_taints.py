"""The taint filter: every taint has to be tolerated (`rules/scheduler.md#filters`)."""

import pytest

from placements.engine.scheduling.filters.taint_toleration import (
    TaintFilter,
    untolerated,
)
from placements.engine.scheduling.reason import Reason, ReasonCode
from placements.manifests.policy import Toleration, TolerationOperator
from tests.builders import cluster, cycle, fleet, pick_all, taint, tolerate

FILTER = TaintFilter()


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "cpu", "operator": "Exists"}, False),
        ({"key": "gpu", "value": "a100"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "a100"}, True),
        ({"key": "gpu", "value": "h100"}, False),
        ({"key": "gpu"}, False),
        ({"key": "gpu", "value": "a100", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "a100", "effect": ""}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
    ],
)
def test_tolerates_by_operator_key_value_and_effect(
    toleration: dict[str, str], tolerated: bool
) -> None:
    one = fleet(cluster("a", taints=[taint("gpu", "a100")]))

    passes = FILTER.passes(cycle(one, pick_all(tolerations=[toleration])))

    assert passes.tolist() == [tolerated]


def test_another_effect_is_not_tolerated() -> None:
    other = Toleration.model_construct(
        key="", operator=TolerationOperator.EXISTS, value="", effect="NoExecute"
    )

    assert untolerated((taint("gpu"),), (other,)) == (taint("gpu"),)


def test_a_toleration_without_value_matches_a_taint_without_value() -> None:
    one = fleet(cluster("a", taints=[taint("gpu")]))

    assert FILTER.passes(
        cycle(one, pick_all(tolerations=[tolerate(key="gpu")]))
    ).tolist() == [True]


def test_every_taint_of_a_cluster_has_to_be_tolerated() -> None:
    one = fleet(
        cluster("a", taints=[taint("gpu"), taint("old")]),
        cluster("b", taints=[taint("gpu")]),
        "c",
    )

    passes = FILTER.passes(
        cycle(one, pick_all(tolerations=[tolerate(key="gpu", operator="Exists")]))
    )

    assert passes.tolist() == [False, True, True]


def test_clusters_without_taints_need_no_toleration() -> None:
    assert FILTER.passes(cycle(fleet("a"))).tolist() == [True]


def test_lists_only_the_taints_that_nothing_tolerates() -> None:
    one = fleet(cluster("a", taints=[taint("gpu"), taint("old", "yes")]))

    reason = FILTER.reason(
        cycle(one, pick_all(tolerations=[tolerate(key="gpu", operator="Exists")])), 0
    )

    listed = [{"key": "old", "value": "yes", "effect": "NoSchedule"}]
    assert reason == Reason(ReasonCode.UNTOLERATED_TAINT, {"taints": listed})
