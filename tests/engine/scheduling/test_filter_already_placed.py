"""The filter for clusters that the current policy has placed already."""

from placements.engine.scheduling.filters.already_placed import AlreadyPlacedFilter
from placements.engine.scheduling.reason import Reason, ReasonCode
from placements.manifests.binding import BindingState
from tests.builders import binding, cluster, cycle, fleet

FILTER = AlreadyPlacedFilter()


def test_rejects_scheduled_and_bound_bindings_of_the_current_policy() -> None:
    one = cycle(
        fleet("a", "b", "c"), None, binding("a", "Scheduled"), binding("b", "Bound")
    )

    assert FILTER.passes(one).tolist() == [False, False, True]


def test_passes_obsolete_unscheduled_and_deleting_bindings() -> None:
    bindings = [
        binding("a", obsolete=True),
        binding("b", "Unscheduled"),
        binding("c", deleting=True),
    ]

    assert FILTER.passes(cycle(fleet("a", "b", "c"), None, *bindings)).all()


def test_passes_a_cluster_on_its_way_out_whose_binding_dangles() -> None:
    one = cycle(fleet(cluster("a", not_eligible="leaving")), None, binding("a"))

    assert FILTER.passes(one).tolist() == [True]


def test_gives_the_state_of_the_binding() -> None:
    reason = FILTER.reason(cycle(fleet("a"), None, binding("a", "Bound")), 0)

    assert reason == Reason(ReasonCode.ALREADY_PLACED, {"state": BindingState.BOUND})
