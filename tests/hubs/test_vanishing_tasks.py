"""What a task reads may be deleted between any two of its queries: no task fails or loses its round."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from celery import current_app

from clusters.models import Hub, HubStream
from fleetui.hub_scope import LOCAL_HUB
from placements import tasks
from placements.hubs import tasks as hub_tasks
from placements.hubs.replay.observed_decisions import observe_due
from placements.models import DueJudgement
from tests.api.test_schema import filled_hub
from tests.effort import IS_FULL
from tests.hubs.projecting import NOW, ProjectedHub
from tests.hubs.test_live_pages import busy_hub
from tests.vanishing import cluster_is_deleted, faults, placement_is_deleted

pytestmark = pytest.mark.django_db
EVERY = 1 if IS_FULL else 7
TASKS = sorted(
    name
    for name in current_app.tasks
    if name.startswith(("placements.", "clusters.", "fleetui."))
)
OF_ONE_HUB = {hub_tasks.project_hub.name, hub_tasks.observe_decisions.name}
OTHERS = {
    tasks.search_exactly.name: "has nothing to search here",
    tasks.run_cluster_calls.name: "calls in threads, which do not see the transaction of a test",
}


@pytest.fixture(autouse=True)
def _no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tasks, hub_tasks):
        monkeypatch.setattr(module, "send_now", lambda *_: None)


@pytest.mark.larger
def test_no_task_fails_for_what_is_deleted_meanwhile(subtests: pytest.Subtests) -> None:
    filled_hub()
    deletions = {
        "placement": placement_is_deleted("web", hub=LOCAL_HUB),
        "cluster": cluster_is_deleted("a", hub=LOCAL_HUB),
    }
    names = [name for name in TASKS if name not in OF_ONE_HUB | OTHERS.keys()]
    assert len(names) > 14
    for number, name in enumerate(names):
        with subtests.test(name):
            assert (
                faults(
                    current_app.tasks[name],
                    deletions,
                    first=number % EVERY + 1,
                    every=EVERY,
                )
                == []
            )


def observed(live: ProjectedHub) -> int:
    """Record the decisions of all placements; return how many are still due."""
    with live.scope():
        observe_due(now=NOW + timedelta(minutes=1))
        return DueJudgement.objects.filter(lease_expires_at=None).count()


@pytest.mark.parametrize("what", ["placement", "cluster"])
def test_a_round_of_recording_survives_a_deletion(what: str) -> None:
    live = busy_hub()
    with live.scope():
        HubStream.objects.update(listed_at=NOW)
        Hub.objects.filter(pk=live.hub.pk).update(
            lease_expires_at=NOW + timedelta(days=1)
        )
        assert DueJudgement.objects.count() > 2
    delete: Any = placement_is_deleted if what == "placement" else cluster_is_deleted
    name = "web" if what == "placement" else "paris"

    found = faults(partial(observed, live), {what: delete(name, hub=live.hub.pk)})

    assert found == []
