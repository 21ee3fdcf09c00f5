"""Rollouts of a live hub as they are observed from the conditions of its bindings (10.1)."""

import random
from typing import Any

import pytest
from django.test import Client

from placements.hubs.projection import observed_rollouts
from placements.models import ClusterUpdate, Placement, Rollout
from tests.hubs.hub_documents import placement, snapshot
from tests.hubs.projecting import ProjectedHub
from tests.hubs.test_projection_placements import (
    BINDING,
    CRP,
    POLICY,
    RESOURCES,
    bound,
    changed,
    condition,
    resource_snapshot,
    scheduled,
)
from tests.rows import person

pytestmark = pytest.mark.django_db
STEPS = ("RolloutStarted", "Overridden", "WorkSynchronized", "Applied", "Available")
MOST = 8
COLUMNS = ("number", "state", "resource_number", "trigger", "ended_reason")


@pytest.fixture
def live() -> ProjectedHub:
    found = ProjectedHub()
    found.put(CRP, changed(placement("web"), status=scheduled()))
    found.put(POLICY, snapshot("web"))
    found.put(RESOURCES, resource_snapshot("web"))
    return found


def at(
    cluster: str, *, number: int = 0, steps: int = 5, minute: int = 30, **spec: Any
) -> dict[str, Any]:
    """Return a binding at a resource snapshot, with so many of its conditions True."""
    conditions = [
        {
            **condition(kind, "True" if index < steps else "Unknown", generation=3),
            "lastTransitionTime": f"2026-11-01T09:{minute + index:02}:00Z",
        }
        for index, kind in enumerate(STEPS)
    ]
    spec = {"resourceSnapshotName": f"web-{number}-snapshot", **spec}
    return changed(bound("web", cluster), spec=spec, status={"conditions": conditions})


def rollouts(live: ProjectedHub) -> list[Any]:
    with live.scope():
        return list(Rollout.objects.order_by("number").values_list(*COLUMNS))


def updates(live: ProjectedHub, number: int) -> list[Any]:
    with live.scope():
        rows = ClusterUpdate.objects.filter(rollout__number=number).order_by(
            "cluster_name", "pk"
        )
        return [
            (
                row.cluster_name,
                row.outcome,
                f"{row.started_at:%H:%M}",
                row.ended_at and f"{row.ended_at:%H:%M}",
            )
            for row in rows
        ]


def put_newest(live: ProjectedHub, number: int) -> None:
    old = [resource_snapshot("web", each, is_latest=False) for each in range(number)]
    live.put(RESOURCES, *old, resource_snapshot("web", number))


@pytest.mark.nightly
@pytest.mark.servers
def test_a_placement_that_is_up_to_date_has_a_completed_rollout(
    live: ProjectedHub,
) -> None:
    live.put(BINDING, at("paris"), at("rome", minute=40))
    live.project()

    assert rollouts(live) == [(1, "finished", 0, "resources of revision 1", "")]
    assert updates(live, 1) == [
        ("paris", "available", "09:30", "09:34"),
        ("rome", "available", "09:40", "09:44"),
    ]
    with live.scope():
        run = Rollout.objects.get()
    assert f"{run.ended_at:%H:%M}" == "09:44"
    live.reproject()
    assert len(rollouts(live)) == 1


@pytest.mark.nightly
def test_a_new_snapshot_supersedes_the_rollout_in_progress(live: ProjectedHub) -> None:
    live.put(BINDING, at("paris"), at("rome", steps=3))
    live.project()
    assert rollouts(live) == [(1, "running", 0, "resources of revision 1", "")]

    put_newest(live, 1)
    live.project()
    live.put(BINDING, at("paris", number=1, steps=2, minute=50))
    live.project()

    assert rollouts(live) == [
        (
            1,
            "superseded",
            0,
            "resources of revision 1",
            "superseded by the next rollout",
        ),
        (2, "running", 1, "resources of revision 2", ""),
    ]
    assert [update[:2] for update in updates(live, 1)] == [
        ("paris", "available"),
        ("rome", "superseded"),
    ]
    assert updates(live, 2) == [("paris", "", "09:50", None)]

    live.put(BINDING, at("paris", number=1, minute=50), at("rome", number=1, minute=52))
    live.project()
    assert rollouts(live)[1] == (2, "finished", 1, "resources of revision 2", "")
    assert updates(live, 2) == [
        ("paris", "available", "09:50", "09:54"),
        ("rome", "available", "09:52", "09:56"),
    ]


@pytest.mark.nightly
def test_a_new_policy_snapshot_starts_a_rollout(live: ProjectedHub) -> None:
    live.put(BINDING, at("paris"))
    live.project()

    live.put(POLICY, snapshot("web", is_latest=False), snapshot("web", 1))
    live.project()

    assert rollouts(live)[1][:4] == (2, "finished", 0, "new policy")


def test_a_binding_with_another_target_starts_a_rollout(live: ProjectedHub) -> None:
    live.put(BINDING, at("paris"), at("rome"))
    live.project()

    live.put(BINDING, at("oslo", steps=1, minute=50))
    live.project()
    assert rollouts(live)[1][:4] == (2, "running", 0, "target changed on oslo")
    live.put(BINDING, at("oslo", minute=50))
    live.project()
    live.put(
        BINDING,
        at("rome", steps=2, minute=55, clusterResourceOverrideSnapshots=["tier-0"]),
    )
    live.project()

    assert [rollout[1:4] for rollout in rollouts(live)[1:]] == [
        ("finished", 0, "target changed on oslo"),
        ("running", 0, "target changed on rome"),
    ]


@pytest.mark.nightly
def test_a_cluster_that_becomes_unavailable_starts_no_rollout(
    live: ProjectedHub,
) -> None:
    live.put(BINDING, at("paris"))
    live.project()

    live.put(BINDING, at("paris", steps=4))
    live.project()

    assert [rollout[1] for rollout in rollouts(live)] == ["finished"]


@pytest.mark.nightly
def test_nothing_is_observed_before_the_hub_is_live(live: ProjectedHub) -> None:
    live.hub.state = "syncing"
    live.hub.save()
    live.put(BINDING, at("paris"))
    live.project()
    assert rollouts(live) == []

    live.hub.state = "live"
    live.hub.save()
    live.put(BINDING, at("rome"))
    live.project()

    assert rollouts(live) == [(1, "finished", 0, "resources of revision 1", "")]
    assert [update[0] for update in updates(live, 1)] == ["paris", "rome"]


@pytest.mark.nightly
def test_an_undecided_placement_does_not_complete(live: ProjectedHub) -> None:
    live.put(
        CRP, changed(placement("web"), metadata={"generation": 2}, status=scheduled())
    )
    live.put(BINDING, at("paris"))
    live.project()
    assert rollouts(live)[0][1] == "running"

    status = scheduled(generation=2)
    live.put(CRP, changed(placement("web"), metadata={"generation": 2}, status=status))
    live.project()
    assert rollouts(live)[0][1] == "finished"


def test_staged_placements_have_no_observed_rollout(live: ProjectedHub) -> None:
    live.put(BINDING, at("paris", steps=2))
    live.project()
    assert rollouts(live)[0][1] == "running"

    external = changed(
        placement("web"), spec={"strategy": {"type": "External"}}, status=scheduled()
    )
    live.put(CRP, external)
    live.project()
    live.put(BINDING, at("rome"))
    live.project()

    assert [(rollout[1], rollout[4]) for rollout in rollouts(live)] == [
        ("stopped", "the strategy is External now")
    ]


@pytest.mark.nightly
def test_a_deleted_placement_ends_its_rollout(live: ProjectedHub) -> None:
    live.put(BINDING, at("paris", steps=2))
    live.project()

    live.remove(CRP, "web")
    live.project()

    assert [(rollout[1], rollout[4]) for rollout in rollouts(live)] == [
        ("stopped", "the placement was deleted")
    ]
    with live.scope():
        assert not Placement.objects.exists()


@pytest.mark.servers
def test_a_rollout_that_cannot_be_observed_delays_no_other(
    live: ProjectedHub,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    live.put(CRP, changed(placement("shop"), status=scheduled()))
    live.put(RESOURCES, resource_snapshot("shop"))
    live.put(BINDING, at("paris"), bound("shop", "paris"))
    since = observed_rollouts.moment_of
    calls = iter([ValueError("odd")])

    def odd_at_first(text: str) -> Any:
        for error in calls:
            raise error
        return since(text)

    monkeypatch.setattr(observed_rollouts, "moment_of", odd_at_first)
    live.project()

    with live.scope():
        assert Rollout.objects.count() == 1
        assert not Placement.objects.filter(observe_rollout=True).exists()
    assert "rollout not observed" in caplog.text


@pytest.mark.nightly
def test_the_page_says_that_it_is_observed_and_has_no_actions(
    live: ProjectedHub, client: Client
) -> None:
    live.put(BINDING, at("paris"), at("rome", steps=2))
    live.project()
    client.force_login(person("root", "operator"))

    page = client.get("/hubs/prod-eu/rollouts/web/1/").content.decode()

    assert "Observed from the hub" in page
    assert "1 of 2" in page
    for words in ("Pause", "Resume", "Stop rollout", "Unpin", "Roll back", ">Retry"):
        assert words not in page
    listed = client.get("/hubs/prod-eu/rollouts/").content.decode()
    assert "/hubs/prod-eu/rollouts/web/1/" in listed
    assert (
        client.get("/hubs/prod-eu/api/v1/rollouts").json()["items"][0]["state"]
        == "running"
    )


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(MOST))
def test_any_history_keeps_one_rollout_in_progress_and_one_open_update(
    live: ProjectedHub, seed: int
) -> None:
    chance, newest = random.Random(seed), 0
    for _ in range(12):
        match chance.choice(("snapshot", "bindings", "bindings", "remove")):
            case "snapshot":
                newest += 1
                put_newest(live, newest)
            case "remove":
                live.remove(BINDING, at("rome")["metadata"]["name"])
            case _:
                for cluster in chance.sample(("paris", "rome", "oslo"), 2):
                    number = chance.randint(max(0, newest - 1), newest)
                    live.put(
                        BINDING, at(cluster, number=number, steps=chance.randint(0, 5))
                    )
        live.project()

        with live.scope():
            runs = list(Rollout.objects.order_by("number"))
            is_open = ClusterUpdate.objects.filter(outcome="")
            assert [run.state for run in runs[:-1]].count("running") == 0
            assert all(run.ended_at >= run.started_at for run in runs if run.ended_at)
            ended = ClusterUpdate.objects.exclude(outcome="")
            assert all(
                update.ended_at and update.ended_at >= update.started_at
                for update in ended
            )
            assert not is_open.exclude(rollout__state="running").exists()
    for cluster in ("paris", "rome", "oslo"):
        live.put(BINDING, at(cluster, number=newest))
    live.project()
    with live.scope():
        last = Rollout.objects.order_by("number").last()
    assert last is not None
    assert (last.state, last.resource_number) == ("finished", newest)
