"""A binding of a cluster that holds nothing ends with the decision that no longer selects it."""

import pytest

from clusters.operations.edit import change_labels
from placements.engine.disruption import EvictionReason
from placements.models import Binding
from placements.services.disruption.budgets import save_budget
from placements.services.disruption.evictions import evict
from placements.services.placements import save_placement
from tests.rows import placement_document, spec
from tests.services.rollouts.test_evictions import budget
from tests.services.rollouts.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.servers]


def _on_label(value: str) -> dict[str, object]:
    term = {
        "labelSelector": {
            "matchExpressions": [{"key": "off", "operator": "NotIn", "values": [value]}]
        }
    }
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "clusterSelectorTerms": [term]
        }
    }
    return spec({"placementType": "PickAll", "affinity": {"clusterAffinity": required}})


@pytest.mark.servers_only
def test_evicted_and_then_edited_away_leaves_no_binding() -> None:
    world = World(3)
    change_labels(["c002"], put={"off": "later"}, replaces=True, by=None, now=world.now)
    world.place("web", _on_label("never"))
    world.run(until=world.is_settled)
    world.inject(
        "c000", {"kind": "timeOut"}
    )  # the rollout waits for it, so that c002 stays empty
    evict("web", "c002", by=None, now=world.now)
    world.work()
    Binding.objects.filter(cluster_name="c002").update(
        phase="removed", state="Bound", next_call_at=None
    )

    save_placement(
        placement_document("web", _on_label("later")), by=None, now=world.now
    )
    world.inject("c000")
    world.run(until=world.is_settled)

    assert sorted(world.phases()) == ["c000", "c001"]
    save_budget(budget(minAvailable=1), by=None, now=world.now)
    assert (
        evict("web", "c000", by=None, now=world.now).why == EvictionReason.WITHIN_BUDGET
    )
