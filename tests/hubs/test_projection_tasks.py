"""What makes the projection run: the watcher after each commit, and the sweep if its message is lost."""

from io import StringIO
from typing import Any

import pytest

from clusters.models import Hub, MemberCluster
from placements import tasks
from placements.hubs import tasks as hub_tasks
from placements.hubs.management.commands import watch_hubs
from placements.hubs.projection.operations import hubs_with_changes
from placements.models import Binding, Placement
from tests.commands import call_command
from tests.hubs.hub_documents import member, placement
from tests.hubs.projecting import NOW, ProjectedHub
from tests.hubs.test_projection_placements import put_web

pytestmark = pytest.mark.django_db


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Return the messages that would be sent to workers."""
    found: list[tuple[str, dict[str, Any]]] = []
    for module in (tasks, hub_tasks, watch_hubs):
        monkeypatch.setattr(
            module, "send_now", lambda task, arguments: found.append((task, arguments))
        )
    return found


def names(live: ProjectedHub) -> list[str]:
    with live.scope():
        return list(
            MemberCluster.objects.order_by("name").values_list("name", flat=True)
        )


def test_the_watcher_wakes_the_task_of_its_hub(sent: list[Any]) -> None:
    live = ProjectedHub()
    live.put("MemberCluster", member("paris"))

    watch_hubs.wake_projection(live.hub.pk)
    (task, arguments) = sent.pop()
    assert task == hub_tasks.project_hub.name
    hub_tasks.project_hub(**arguments)

    assert names(live) == ["paris"]
    assert sent == []


def test_the_sweep_finds_changes_that_nothing_woke_the_task_for(
    sent: list[Any],
) -> None:
    live, idle = ProjectedHub(), ProjectedHub("prod-us")
    live.put("MemberCluster", member("paris"))

    tasks.sweep()

    wanted = (hub_tasks.project_hub.name, {"hub": live.hub.pk})
    assert [one for one in sent if one[0] == hub_tasks.project_hub.name] == [wanted]
    hub_tasks.project_hub(hub=live.hub.pk)
    assert hubs_with_changes() == []
    assert names(idle) == []


def test_two_hubs_with_equal_names_do_not_mix() -> None:
    one, other = ProjectedHub(), ProjectedHub("prod-us")
    one.put("MemberCluster", member("paris"))
    other.put("MemberCluster", member("paris"), member("rome"))
    one.project()
    other.project()

    one.remove("MemberCluster", "paris")
    one.project()

    assert (names(one), names(other)) == ([], ["paris", "rome"])


def test_reprojecting_a_hub_makes_the_rows_again_and_counts_what_is_unresolved() -> (
    None
):
    live, output = ProjectedHub(), StringIO()
    live.put("MemberCluster", member("paris"))
    odd = placement("web", namespace="shop")
    odd["spec"]["newField"] = 1
    live.put("ResourcePlacement", odd)
    live.project()
    with live.scope():
        MemberCluster.objects.all().delete()

    call_command("hubs", "prod-eu", reproject=True, stdout=output)

    assert names(live) == ["paris"]
    assert output.getvalue().splitlines() == [
        "2 objects of hub prod-eu projected",
        "1 object is unresolved; the page of the hub lists it",
    ]


def test_all_clusters_of_live_hubs_are_judged_regularly() -> None:
    live = ProjectedHub(lease_expires_at=None)
    live.put("MemberCluster", member("paris"))
    live.project()

    hub_tasks.refresh_hubs()

    with live.scope():  # the hub is not watched any more: what is known stays
        assert MemberCluster.objects.get().verdict == ""


def test_the_rows_of_a_removed_hub_are_deleted() -> None:
    live, other = ProjectedHub(), ProjectedHub("prod-us")
    for hub in (live, other):
        hub.put("MemberCluster", member("paris"))
        put_web(hub)
        hub.project()
    Hub.objects.filter(pk=live.hub.pk).update(state="removed", removed_at=NOW)

    hub_tasks.refresh_hubs()

    with live.scope():
        assert [
            MemberCluster.objects.count(),
            Placement.objects.count(),
            Binding.objects.count(),
        ] == [
            0,
            0,
            0,
        ]
    assert names(other) == ["paris", "rome"]
