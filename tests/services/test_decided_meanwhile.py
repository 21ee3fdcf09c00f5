"""Users and rollouts continue while a cycle decides.

What is written starts from the bindings as they are then, and is what the fleet as it is then leads to.
"""

import pytest

from clusters.operations.edit import change_labels
from placements.engine.rollout.state import Phase
from placements.manifests.binding import BindingState
from placements.models import Binding, Placement
from placements.services.placements import save_placement
from placements.services.scheduling import FleetChanged, run_cycle, write_decision
from tests.rows import NOW, all_joined, decided, pick_n_spec, placed, placement_document

pytestmark = [pytest.mark.django_db, pytest.mark.servers]


def _changed_policy(number: int) -> Placement:
    """Save another policy: everything is rescheduled."""
    taint = {"key": "any", "operator": "Exists"}
    document = placement_document("web", pick_n_spec(number, tolerations=[taint]))
    save_placement(document, by=None, now=NOW)
    return Placement.objects.get(name="web")


def _bound(cluster: str) -> Binding:
    """Start the rollout on this cluster."""
    Binding.objects.filter(cluster_name=cluster).update(
        state=BindingState.BOUND, phase=Phase.APPLYING
    )
    return Binding.objects.get(cluster_name=cluster)


@pytest.fixture(autouse=True)
def _placed() -> None:
    all_joined("a", "b", "c")
    decided("web", pick_n_spec(3))


def test_a_cluster_that_was_begun_meanwhile_stays_begun() -> None:
    cycled = run_cycle(_changed_policy(3))
    begun = _bound("b")

    assert write_decision(cycled, now=NOW) is not None

    after = Binding.objects.get(pk=begun.pk)
    assert (after.state, after.phase) == (BindingState.BOUND, Phase.APPLYING)
    assert after.policy_snapshot != begun.policy_snapshot
    assert placed(begun.placement) == ["a", "b", "c"]


def test_a_cluster_that_was_begun_meanwhile_and_goes_is_removed_and_not_forgotten() -> (
    None
):
    cycled = run_cycle(_changed_policy(2))
    gone = cycled.decision.unscheduled[0]
    _bound(gone)

    write_decision(cycled, now=NOW)

    after = Binding.objects.get(cluster_name=gone)
    assert (after.state, after.previous_state) == (
        BindingState.UNSCHEDULED,
        BindingState.BOUND,
    )


def test_a_cluster_that_ended_meanwhile_and_is_picked_again_begins_again() -> None:
    cycled = run_cycle(_changed_policy(3))
    Binding.objects.filter(cluster_name="b").delete()

    write_decision(cycled, now=NOW)

    again = Binding.objects.get(cluster_name="b")
    assert (again.state, again.phase) == (BindingState.SCHEDULED, Phase.NOT_STARTED)


def _spread_by_tier() -> Placement:
    keys = [{"topologyKey": "tier"}]
    spread = pick_n_spec(2, topologySpreadConstraints=keys)
    save_placement(placement_document("web", spread), by=None, now=NOW)
    return Placement.objects.get(name="web")


def test_a_label_that_a_decision_does_not_read_may_change_meanwhile() -> None:
    cycled = run_cycle(_spread_by_tier())
    change_labels(["a"], put={"owner": "ana"}, by=None, now=NOW)

    assert write_decision(cycled, now=NOW) is not None

    assert not Placement.objects.get(name="web").is_due


def test_a_label_that_a_decision_reads_may_not_change_meanwhile() -> None:
    cycled = run_cycle(_spread_by_tier())
    change_labels(["a"], put={"tier": "gold"}, by=None, now=NOW)

    with pytest.raises(FleetChanged):
        write_decision(cycled, now=NOW)
