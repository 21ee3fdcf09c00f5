"""Property values that are no quantities: fatal under `kubefleet`, a warning under `fleet` (spec 4.4)."""

import pytest

from clusters.fleet import ResourceUsage
from placements.engine.scheduling.decision import CycleKind, Decision
from placements.engine.scheduling.selectors import Malformed
from placements.engine.scheduling.warnings import decision_warnings
from placements.manifests.policy import PlacementPolicy, policy_warnings
from tests.builders import (
    binding,
    cluster,
    decide,
    expression,
    fleet,
    measured,
    pick_all,
    pick_n,
    prefer,
    sorted_by,
)


def _states(decision: Decision) -> dict[str, str]:
    """Return the state of every binding after the cycle, `old` in front where it stays obsolete."""
    return {
        placed_binding.cluster: ("" if placed_binding.is_current else "old ")
        + str(placed_binding.state)
        for placed_binding in decision.bindings_after
    }


STORAGE = "resources.kubernetes-fleet.io/total-ephemeral-storage"
MALFORMED = fleet(
    cluster("odd", properties={"cpu": "lots"}),
    cluster("a", properties={"cpu": "2"}),
    cluster("b", properties={"cpu": "0"}),
)


@pytest.mark.parametrize(
    "policy",
    [
        pick_all(required=[measured("cpu", "Ge", "1")]),
        pick_n(1, required=[measured("cpu", "Ge", "1")]),
        pick_n(1, prefer=[prefer(10, sorted_by("cpu"))]),
    ],
    ids=["PickAll", "required", "sorter"],
)
def test_a_malformed_property_fails_the_cycle_of_kubefleet_and_warns_under_fleet(
    policy: PlacementPolicy,
) -> None:
    failed = decide(MALFORMED, policy, binding("gone"), semantics="kubefleet")
    warned = decide(MALFORMED, policy, binding("gone"), semantics="fleet")

    assert (failed.kind, failed.is_failed, failed.picked, failed.is_fulfilled) == (
        CycleKind.FAILED,
        True,
        (),
        False,
    )
    assert failed.unscheduled == ("gone",)
    assert (warned.picked_names, warned.is_fulfilled) == (("a",), True)
    assert failed.malformed == warned.malformed == (Malformed("odd", "cpu", "lots"),)


@pytest.mark.parametrize(
    "policy",
    [
        pick_all(required=[measured(STORAGE, "Ge", "1")]),
        pick_n(1, prefer=[prefer(10, sorted_by(STORAGE))]),
        pick_n(1, prefer=[prefer(0, sorted_by(STORAGE))]),
    ],
    ids=["selector", "sorter", "weight zero"],
)
def test_a_resource_name_with_a_second_dash_fails_the_cycle_of_kubefleet_and_warns_at_the_door(
    policy: PlacementPolicy,
) -> None:
    one = fleet(
        cluster("a", usage=ResourceUsage(capacity={"ephemeral-storage": "5Gi"}))
    )

    failed = decide(one, policy, semantics="kubefleet")
    read = decide(one, policy, semantics="fleet")

    assert failed.is_failed
    assert [warning.message for warning in decision_warnings(failed)] == [
        "a resource name with a second dash cannot be read: the cycle fails"
    ]
    assert (read.picked_names, read.malformed) == (("a",), ())
    assert "second-dash" in {warning.code for warning in policy_warnings(policy)}


def test_a_failed_cycle_leaves_current_and_obsolete_bindings_alone() -> None:
    bindings = [binding("a", "Scheduled"), binding("b", obsolete=True)]
    policy = pick_n(3, prefer=[prefer(10, sorted_by("cpu"))])

    decision = decide(MALFORMED, policy, *bindings, semantics="kubefleet")

    assert _states(decision) == {"a": "Scheduled", "b": "old Bound"}


def test_an_earlier_match_hides_a_malformed_property_from_kubefleet() -> None:
    policy = pick_n(
        1, required=[expression("tier", "DoesNotExist"), measured("cpu", "Ge", "1")]
    )

    decision = decide(MALFORMED, policy, semantics="kubefleet")

    assert (decision.picked_names, decision.malformed) == (("odd",), ())


def test_a_malformed_property_is_harmless_where_no_picking_is_needed() -> None:
    policy = pick_n(1, prefer=[prefer(10, sorted_by("cpu"))])

    decision = decide(MALFORMED, policy, binding("a"), semantics="kubefleet")

    assert (decision.kind, decision.is_fulfilled, decision.malformed) == (
        CycleKind.NOTHING_TO_DO,
        True,
        (),
    )


def test_each_malformed_value_is_listed_once() -> None:
    policy = pick_n(
        1,
        required=[measured("cpu", "Ge", "1"), {}],
        prefer=[prefer(1, sorted_by("cpu"))],
    )

    assert decide(MALFORMED, policy).malformed == (Malformed("odd", "cpu", "lots"),)
