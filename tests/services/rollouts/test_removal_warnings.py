"""What an API server warns of while objects are removed stays with the rollout that removed them."""

import re
from typing import Any

import pytest
from django.test import Client
from django.utils.html import strip_tags

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


def messages_on(client: Client, run: Rollout) -> list[str]:
    """Return the messages of the rows of the page of a rollout, in their order."""
    page = client.get(f"/rollouts/web/{run.number}/clusters/").content.decode()
    cells = re.findall(r'<td class="reason">(.*?)</td>', page, re.DOTALL)
    return [" ".join(strip_tags(cell).split()) for cell in cells]


@pytest.mark.usefixtures("warning")
def test_only_the_message_of_the_row_before_is_shortened() -> None:
    world = settled_world(3, spec())
    delete_placement("web", by=None, now=world.now)
    world.pass_time(60, step=5)
    run = Rollout.objects.get(is_deletion=True)
    client = Client()
    client.force_login(person("ana", "viewer"))
    updates = ClusterUpdate.objects.filter(rollout=run)

    assert messages_on(client, run) == [WORDS, "As above", "As above"]
    updates.filter(cluster_name="c001").update(message="another")
    assert messages_on(client, run) == [WORDS, "Another", WORDS]
    updates.filter(cluster_name="c000").update(message="")
    assert messages_on(client, run) == ["", "Another", WORDS]


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
    assert messages_on(client, run) == [WORDS, "As above"]
    rows = client.get(f"/api/v1/rollouts/web/{run.number}/clusters").json()["items"]
    assert [row["message"] for row in rows] == [WORDS] * 2
