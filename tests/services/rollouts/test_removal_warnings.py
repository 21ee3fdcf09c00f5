"""What an API server warns of while objects are removed stays with the rollout that removed them."""

from typing import Any

import pytest
from django.test import Client

from clusters.drivers.base import ObjectRef, ObjectWarnings, Removed
from clusters.drivers.simulated.driver import SimulatedDriver
from placements.models import Binding, ClusterUpdate, Rollout
from placements.services.placements import delete_placement
from tests.rows import person, spec
from tests.services.rollouts.world import settled_world

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("collected_static")]
WORDS = "Warnings of the API server: Deployment shop/web: v1 goes in 1.40"


@pytest.fixture
def warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each removal end with a warning."""
    remove = SimulatedDriver.remove

    def warn(driver: SimulatedDriver, placement: str, **options: Any) -> Removed:
        removed = remove(driver, placement, **options)
        warned = ObjectWarnings(
            ObjectRef("apps", "Deployment", "shop", "web"), ("v1 goes in 1.40",)
        )
        return Removed(removed.existed, (warned,))

    monkeypatch.setattr(SimulatedDriver, "remove", warn)


@pytest.mark.usefixtures("warning")
def test_the_warnings_of_a_deletion_are_on_the_page_and_in_rest_after_it() -> None:
    world = settled_world(2, spec())
    delete_placement("web", by=None, now=world.now)
    world.pass_time(60, step=5)

    assert not Binding.objects.exists()
    run = Rollout.objects.get(is_deletion=True)
    updates = ClusterUpdate.objects.filter(rollout=run)
    assert list(updates.values_list("outcome", "message")) == [("removed", WORDS)] * 2

    client = Client()
    client.force_login(person("ana", "viewer"))
    page = client.get(f"/rollouts/web/{run.number}/clusters/").content.decode()
    assert page.count(WORDS) == 1
    assert page.count("As above") == 1
    rows = client.get(f"/api/v1/rollouts/web/{run.number}/clusters").json()["items"]
    assert [one["message"] for one in rows] == [WORDS] * 2
