"""Events about what changed on a live hub, kept for the history period (10.1, 17.2)."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from fleetui.models import Event
from placements.models import Rollout
from placements.services.pruning import prune
from tests.hubs.hub_documents import member, placement, written_by
from tests.hubs.projecting import NOW, ProjectedHub
from tests.hubs.test_projection_placements import (
    CRP,
    bound,
    changed,
    condition,
    put_web,
    scheduled,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def live() -> ProjectedHub:
    found = ProjectedHub()
    put_web(found)
    found.project()
    return found


def events(live: ProjectedHub, kind: str = "placement") -> list[Event]:
    with live.scope():
        return list(Event.objects.filter(kind=kind).order_by("pk"))


@pytest.mark.nightly
def test_the_first_list_makes_no_events(live: ProjectedHub) -> None:
    live.reproject()

    assert events(live) == events(live, "cluster") == []


@pytest.mark.nightly
def test_a_changed_spec_is_an_event_by_its_last_manager(
    live: ProjectedHub, admin_client: Client
) -> None:
    content = changed(placement("web", clusters=3), status=scheduled())
    content["metadata"]["managedFields"] = [
        *written_by("kubectl", "spec", at="09:00"),
        *written_by("argocd-controller", "metadata", "spec", at="09:40"),
        *written_by("hubagent", "status", at="09:50"),
    ]
    live.put(CRP, content)
    live.project()

    (event,) = events(live)
    assert (event.verb, event.name, event.actor_name, event.actor) == (
        "changed on the hub",
        "web",
        "argocd-controller",
        None,
    )
    assert [
        one["spec"]["policy"]["numberOfClusters"] for one in (event.before, event.after)
    ] == [2, 3]
    page = admin_client.get("/hubs/prod-eu/placements/web/rollouts/").content.decode()
    assert "changed on the hub" in page
    assert "argocd-controller" in page


@pytest.mark.nightly
def test_a_changed_condition_is_an_event_with_reason_and_message(
    live: ProjectedHub,
) -> None:
    content = changed(placement("web"), status=scheduled("False"))
    content["metadata"]["managedFields"] = written_by("hubagent", "status")
    live.put(CRP, content)
    live.project()

    (event,) = events(live)
    assert (event.verb, event.actor_name) == ("reported", "hubagent")
    assert [one["Scheduled"]["status"] for one in (event.before, event.after)] == [
        "True",
        "False",
    ]
    assert (
        event.after["Scheduled"]["message"]
        == "ClusterResourcePlacementScheduled is False"
    )


@pytest.mark.nightly
def test_a_new_time_of_a_condition_is_no_event(live: ProjectedHub) -> None:
    status: dict[str, Any] = scheduled()
    status["conditions"][0]["lastTransitionTime"] = "2026-11-01T09:59:00Z"
    live.put(CRP, changed(placement("web"), status=status))
    live.project()

    assert events(live) == []


@pytest.mark.nightly
def test_labels_and_reports_of_clusters_are_events(live: ProjectedHub) -> None:
    changed_member = member("paris", region="west")
    changed_member["status"]["agentStatus"][0]["conditions"][1]["status"] = "False"
    live.put("MemberCluster", changed_member)
    live.project()

    first, second = events(live, "cluster")
    assert (first.verb, second.verb) == ("changed on the hub", "reported")
    assert first.actor_name == "hub"
    assert second.after["Healthy"]["status"] == "False"


@pytest.mark.nightly
def test_bindings_make_no_events_of_their_own(live: ProjectedHub) -> None:
    live.put(
        "ClusterResourceBinding",
        bound(
            "web",
            "paris",
            status={"conditions": [condition("RolloutStarted", generation=3)]},
        ),
    )
    live.project()

    assert events(live) == []


@pytest.mark.nightly
def test_history_is_kept_for_its_period(live: ProjectedHub, settings: Any) -> None:
    settings.KEEP_HUB_HISTORY = timedelta(days=30)
    for clusters in (3, 4):
        live.put(CRP, changed(placement("web", clusters=clusters), status=scheduled()))
        live.project()
    old, new = events(live)
    with live.scope():
        Event.objects.filter(pk=old.pk).update(at=NOW - timedelta(days=31))
        Event.objects.filter(pk=new.pk).update(at=NOW - timedelta(days=29))
        Rollout.objects.update(
            state="finished",
            started_at=NOW - timedelta(days=40),
            ended_at=NOW - timedelta(days=31),
        )

    prune(now=NOW)

    assert [event.pk for event in events(live)] == [new.pk]
    with live.scope():  # the last rollout of a placement stays
        assert Rollout.objects.count() == 1
