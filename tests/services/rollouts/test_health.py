"""The status of a placement is the worst of its conditions, wherever it is shown."""

import json
from datetime import timedelta
from unittest.mock import patch

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from clusters.filters import (
    ClusterFilter,
    ClusterFilterState,
    clusters_matching,
    members_by,
)
from clusters.models import MemberCluster
from clusters.operations.edit import change_labels, leave
from placements.engine.status import HealthLevel, PlacementHealth
from placements.explain.rollouts import result_sentences
from placements.models import Binding, Placement, Problem, Resource, Rollout
from placements.services.filters import bindings_on
from placements.services.fleet_events import enqueue_affected_placements
from placements.services.health import (
    cluster_problems,
    health_of,
    statuses_on,
    with_rollouts,
)
from placements.services.placements import delete_placement, save_placement
from placements.services.problems.book import workloads_changed_at
from placements.services.resources.operations import delete_resources
from placements.services.rollouts.operations import pause, roll_back
from placements.services.rollouts.queries import report_of, with_failed
from placements.services.scheduling import schedule_due
from placements.services.status import status_of
from placements.services.verification import STALENESS_EVERY, refresh_staleness
from placements.web import badges
from placements.web.badges import cluster_badge
from tests.database import compare_all
from tests.problems import found, sentences
from tests.rows import (
    NOW,
    config_map,
    namespace,
    person,
    pick_n_spec,
    placement_document,
    spec,
)
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec
from tests.services.rollouts.test_out_of_reach import cut_off
from tests.services.rollouts.world import World, one_at_a_time, settled_world

pytestmark = pytest.mark.django_db

STATES = (
    *("available", "pending", "in_flight", "not_available", "failed", "differs"),
    *("unreachable", "not_observed", "not_monitored", "not_ready"),
)
NO_NAMESPACE = [{"group": "", "version": "v1", "kind": "Namespace", "name": "absent"}]


def health(world: World, name: str = "web") -> PlacementHealth:
    row = with_rollouts(Placement.objects.filter(name=name)).get()
    whole = health_of(row, now=world.now)
    counts = whole.counts
    assert sum(getattr(counts, state) for state in STATES) == counts.scheduled, (
        "disjoint, and complete"
    )
    compare_all(now=world.now)
    stored = Placement.objects.get(name=name)
    assert stored.health == whole.values
    assert stored.health_level == whole.level
    return whole


def placed(clusters: int, **rolling: object) -> World:
    return settled_world(clusters, one_at_a_time(**rolling))


def empty_world() -> World:
    world = World(3)
    world.place("web", {**spec(), "resourceSelectors": NO_NAMESPACE})
    world.pass_time(30)
    return world


@pytest.mark.nightly
def test_a_placement_that_is_available_everywhere_is_healthy() -> None:
    status = health(placed(3))

    assert (status.level, status.summary) == (HealthLevel.HEALTHY, "Healthy")
    counts = status.counts
    assert (
        counts.wanted,
        counts.scheduled,
        counts.started,
        counts.applied,
        counts.available,
    ) == (3,) * 5


@pytest.mark.skipif(
    connection.vendor != "sqlite", reason="another database writes its plans otherwise"
)
def test_bindings_are_counted_in_the_order_of_an_index() -> None:
    save_placement(placement_document("web", spec()), by=None, now=NOW)
    row = with_rollouts(Placement.objects.all()).get()
    with CaptureQueriesContext(connection) as captured:
        health_of(row, now=NOW)
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {captured[-1]['sql']}")
        steps = [row[-1] for row in cursor.fetchall()]

    everywhere = steps[: steps.index("UNION ALL")]
    assert any("INDEX binding_status" in step for step in everywhere)
    assert not [
        step
        for step in everywhere
        if "B-TREE" in step or "SUBQUERY" in step.removeprefix("LEFT-MOST SUBQUERY")
    ]


@pytest.mark.nightly
def test_what_is_wrong_is_found_among_many_clusters_that_wait() -> None:
    world = placed(3)
    first, *_, last = Binding.objects.order_by("cluster_name")
    Rollout.objects.update(state=Rollout.State.RUNNING, ended_at=None)
    waiting = {"phase": "settling", "phase_changed_at": world.now, "conditions": {}}
    Binding.objects.update(**waiting)
    Binding.objects.filter(pk=last.pk).update(phase="failed", message="denied")
    rows = Binding.objects.filter(pk=first.pk).values().get()
    many = [
        Binding(**{**rows, "id": None, "cluster_name": f"b{number:03}"})
        for number in range(210)
    ]
    Binding.objects.bulk_create(many)
    row = with_rollouts(Placement.objects.all()).get()

    problems = [
        (problem.status.word, problem.names, problem.count)
        for problem in cluster_problems(row, now=world.now)
    ]

    assert problems == [
        ("Apply failed", (last.cluster_name,), 1),
        ("Unreachable", ("b000", "b001", "b002"), 210),  # these are no member clusters
    ]


@pytest.mark.nightly
def test_what_has_no_condition_available_yet_is_degraded_once_it_is_late() -> None:
    world = placed(1)
    started = {"RolloutStarted": ["True", world.now.isoformat()]}
    Binding.objects.update(
        phase="settling", phase_changed_at=world.now, conditions=started
    )

    assert health(world).level is HealthLevel.ATTENTION


@pytest.mark.nightly
def test_a_cluster_has_its_own_status_in_a_degraded_placement() -> None:
    world = placed(3)
    Binding.objects.filter(cluster_name="c000").update(phase="failed")

    here = {
        name: statuses_on(bindings_on(name), most=5, now=world.now)
        for name in ("c000", "c001")
    }

    words = {
        name: [(row.owner, status.word) for row, status in rows]
        for name, rows in here.items()
    }
    assert words == {"c000": [("web", "Apply failed")], "c001": [("web", "Available")]}
    assert health(world).level is HealthLevel.FAILED


@pytest.mark.nightly
def test_selectors_that_match_nothing_roll_nothing_out() -> None:
    world = empty_world()

    assert not Rollout.objects.exists()
    assert set(world.phases().values()) == {"nothing"}
    status_of_web = health(world)
    assert (status_of_web.level, status_of_web.summary) == (
        HealthLevel.ATTENTION,
        "No resources selected",
    )
    assert (
        status_of_web.counts.scheduled,
        status_of_web.counts.applied,
        status_of_web.counts.available,
    ) == (
        3,
        0,
        0,
    )
    status = status_of(Placement.objects.get(), now=world.now)
    assert (status["health"]["word"], status["health"]["message"]) == (
        "Degraded",
        "No resources selected",
    )
    kinds = {
        condition["type"]: condition["status"] for condition in status["conditions"]
    }
    assert kinds["ClusterResourcePlacementRolloutStarted"] == "Unknown"


@pytest.mark.nightly
def test_resources_that_appear_later_are_rolled_out() -> None:
    world = empty_world()

    world.apply(namespace("absent"), config_map("settings", in_="absent"))
    world.run(until=lambda: len(world.available()) == 3)

    assert health(world).summary == "Healthy"


@pytest.mark.nightly
def test_a_staged_run_without_resources_fails_and_changes_no_cluster() -> None:
    world = StagedWorld({"canary": ["c000"]}, stage("canary"))
    delete_resources(list(Resource.objects.all()), by=None, now=world.now)
    world.place("web", staged_spec())
    assert health(world).summary == "No resources selected"

    world.begin("one")

    assert (world.status("one"), world.why("one")) == ("failed", ["no-resources"])
    assert set(world.phases().values()) == {"nothing"}


@pytest.mark.usefixtures("collected_static")
def test_a_run_that_waits_at_a_gate_says_for_what_wherever_it_is_shown(
    client: Client,
) -> None:
    gates = (stage("canary", after=True), stage("prod", wait="5m"))
    world = StagedWorld({"canary": ["c000"], "prod": ["c001", "c002"]}, *gates)
    world.place("web", staged_spec())
    world.begin("one")
    world.go_on(5)
    client.force_login(person("ana", "viewer"))

    status = health(world)
    words = "Waiting for approval (after stage canary, 1 of 3 started)"
    assert (status.level, status.summary) == (HealthLevel.ATTENTION, words)
    for address in ("/", "/placements/", "/placements/web/", "/clusters/c000/"):
        assert words in client.get(address).content.decode(), address
    for address in (
        "/rollouts/",
        "/rollouts/staged/runs/one/",
        "/placements/web/rollouts/",
    ):
        assert "Waiting for approval</span>" in client.get(address).content.decode(), (
            address
        )
    document = client.get("/api/v1/placements/web").json()["status"]["health"]
    assert (document["word"], document["message"]) == (
        "Waiting for approval",
        "after stage canary, 1 of 3 started",
    )

    world.approve("one", "canary")
    world.go_on(20)
    assert health(world).summary == "Waiting for timer (after stage prod)"


@pytest.mark.nightly
def test_a_rollout_that_ends_with_too_few_clusters_is_not_complete() -> None:
    world = settled_world(2, pick_n_spec(3))

    run = Rollout.objects.get()
    assert (run.state, run.ended_reason) == (
        "finished",
        "2 of 3 clusters selected; 2 available",
    )
    assert badges.run_state(run).words == "Completed with issues"
    assert health(world).summary == "Partially fulfilled (2 of 3)"


@pytest.mark.nightly
def test_a_complete_rollout_and_a_deletion_are_completed() -> None:
    world = placed(2)
    delete_placement("web", by=None, now=world.now)
    world.run(until=lambda: not Placement.objects.exists())

    reasons = list(
        Rollout.objects.order_by("number").values_list("ended_reason", flat=True)
    )
    assert reasons == ["all clusters are up to date", "removed from all clusters"]


@pytest.mark.nightly
def test_an_initial_deployment_has_no_minimum() -> None:
    world = World(3)
    world.inject("c001", {"kind": "notReady"})
    world.place("web", one_at_a_time())
    world.run(until=lambda: len(world.available()) == 2)
    run = Rollout.objects.get()
    result = report_of(run).result
    assert result is not None

    sentences = result_sentences(result, is_initial=run.is_initial)["budgets"]
    assert not any("minimum" in sentence for sentence in sentences)


@pytest.mark.nightly
def test_an_unreachable_cluster_is_not_available_though_nothing_rolls_out() -> None:
    world = placed(3)
    cut_off(world, "c001")

    status = health(world)
    assert (status.level, status.summary) == (
        HealthLevel.ATTENTION,
        "Degraded (2 of 3 available, 1 unreachable)",
    )
    assert (
        status.counts.applied,
        status.counts.available,
        status.counts.unreachable,
    ) == (3, 2, 1)

    cut_off(world, "c000", "c002")
    assert health(world).summary == "Unknown (0 of 3 available, 3 unreachable)"


@pytest.mark.nightly
def test_what_is_on_a_reachable_cluster_that_is_not_ready_is_degraded() -> None:
    world = placed(3)
    world.inject("c001", {"kind": "unhealthy"})
    MemberCluster.objects.update(observe_at=world.now)
    world.pass_time(400, step=20)

    assert MemberCluster.objects.get(name="c001").verdict == "unhealthy"
    status = health(world)
    assert (status.level, status.summary) == (
        HealthLevel.ATTENTION,
        "Degraded (2 of 3 available, 1 not ready)",
    )


def test_a_cluster_that_leaves_the_fleet_does_not_degrade_what_is_removed_from_it() -> (
    None
):
    world = placed(3)
    leave(["c001"], by=None, now=world.now)

    status = health(world)

    assert status.summary == "Progressing (removing from 1 cluster)", (
        "before the next decision too"
    )
    assert (status.counts.scheduled, status.counts.not_ready) == (2, 0)
    rows = Binding.objects.filter(cluster_name="c001")
    assert [
        cluster_status.word
        for _, cluster_status in statuses_on(rows, most=1, now=world.now)
    ] == ["Removing"]
    for phase in ("nothing", "failed"):
        rows.update(phase=phase)
        assert health(world).level is HealthLevel.PROGRESS, phase
    enqueue_affected_placements()
    schedule_due(now=world.now)
    assert health(world).summary == "Progressing (removing from 1 cluster)"


@pytest.mark.nightly
def test_what_is_on_clusters_without_a_driver_is_scheduled_and_not_applied() -> None:
    world = World(3)
    MemberCluster.objects.filter(name="c001").update(driver="")
    world.place("web", one_at_a_time())
    world.run(until=lambda: len(world.available()) == 2)
    status = health(world)
    assert (status.level, status.summary) == (
        HealthLevel.ATTENTION,
        "Degraded (2 of 3 available, 1 not monitored)",
    )

    MemberCluster.objects.update(driver="")
    status = health(world)
    assert (status.level, status.summary) == (
        HealthLevel.SUSPENDED,
        "Scheduled, not applied (3 clusters not monitored)",
    )


@pytest.mark.nightly
def test_what_is_never_available_is_degraded_and_once_its_rollout_ended() -> None:
    world = World(2)
    world.inject("c001", {"kind": "notReady"})
    world.place("web", one_at_a_time(unavailablePeriodSeconds=20))
    world.pass_time(10)
    assert health(world).level is HealthLevel.PROGRESS
    world.pass_time(40, step=5)
    assert health(world).summary == "Degraded (1 of 2 available)"
    [run] = with_failed(Rollout.objects.all())
    assert badges.run_state(run).words == "Stalled"
    [item] = found("rollout-stalled", now=world.now)
    since = "Not available since 2026-11-20 12:00:00 UTC"
    assert item.message == f"Rollout 1 stalled: 1 cluster blocked. {since}: c001."

    Rollout.objects.update(state=Rollout.State.STOPPED, ended_at=world.now)
    Binding.objects.update(phase_changed_at=world.now)
    assert health(world).summary == "Degraded (1 of 2 available)"


@pytest.mark.nightly
def test_what_failed_and_what_selects_nothing_is_degraded() -> None:
    world = World(2)
    world.inject("c001", {"kind": "refuse"})
    world.place("web", one_at_a_time())
    world.place("none", {**spec({"placementType": "PickFixed", "clusterNames": []})})
    world.pass_time(3)

    assert health(world).summary == "Failed (on 1 cluster)"
    assert health(world, "none").level in (HealthLevel.ATTENTION, HealthLevel.FAILED)


@pytest.mark.usefixtures("collected_static")
def test_a_stalled_rollout_is_no_success_and_a_blocked_cluster_says_what_unblocks_it(
    client: Client,
) -> None:
    world = placed(3, maxUnavailable=0, maxSurge=1)
    world.change()
    world.work()
    client.force_login(person("ana", "viewer"))
    assert health(world).summary == "Degraded (rollout stalled, 0 of 3 started)"

    numbers = "Cannot take down any cluster (3 available, minimum 3) because maxUnavailable is 0."
    words = f"Unblocks when maxUnavailable is increased. On revision 1, waiting for revision 2. {numbers}"
    for address in ("/placements/web/", "/rollouts/web/2/clusters/", "/clusters/c000/"):
        page = client.get(address).content.decode()
        assert words in page, address
    run = client.get("/api/v1/rollouts/web/2").json()
    assert {cluster["why"] for cluster in run["clusters"]} == {words}
    with patch(
        "placements.explain.rollouts.MOST_LISTED", 1
    ):  # the document of a large rollout lists few
        world.change()
        world.work()
    status = status_of(Placement.objects.get(), now=world.now)
    messages = {one["conditions"][-1]["message"] for one in status["placementStatuses"]}
    blocked = "The rollout is being blocked by the rollout strategy"
    later = words.replace("revision 2", "revision 3")
    assert messages == {f"{blocked}: {later}"}


@pytest.mark.nightly
def test_a_paused_placement_with_a_newer_version_says_so() -> None:
    world = placed(3)
    pause("web", by=None, now=world.now)
    world.change()
    world.work()

    status = health(world)
    assert (status.level, status.summary) == (
        HealthLevel.SUSPENDED,
        "Paused (0 of 3 started)",
    )
    assert (status.counts.started, status.counts.available) == (0, 3)


@pytest.mark.nightly
@pytest.mark.usefixtures("collected_static")
def test_a_rollout_that_is_due_is_in_progress_unless_the_placement_is_paused(
    admin_client: Client,
) -> None:
    world = placed(1)
    world.change()
    world.work()
    world.run(until=world.is_settled)
    assert health(world).level is HealthLevel.HEALTHY

    roll_back("web", 0, by=None, now=world.now)

    status = health(world)
    assert (status.level, status.summary) == (
        HealthLevel.PROGRESS,
        "Progressing (rollout pending)",
    )
    for address in ("/", "/placements/", "/placements/web/"):
        page = admin_client.get(address).content.decode()
        assert "Progressing (rollout pending)" in page, address
        assert "Healthy</span>" not in page, address
    manifest = json.loads(admin_client.get("/api/v1/placements/web").content)
    assert manifest["status"]["health"]["message"] == "rollout pending"
    pause("web", by=None, now=world.now)
    assert health(world).level is HealthLevel.HEALTHY


@pytest.mark.nightly
@pytest.mark.usefixtures("collected_static")
def test_pages_rest_and_status_show_the_same_word(admin_client: Client) -> None:
    world = placed(3)
    cut_off(world, "c001")
    words = "2 of 3 available, 1 unreachable"

    pages = (
        "/",
        "/placements/",
        "/placements/web/",
        "/placements/?state=degraded",
        "/clusters/c000/",
    )
    for address in (*pages, "/search/?q=e"):
        assert f"Degraded ({words})" in admin_client.get(address).content.decode(), (
            address
        )
    [row] = json.loads(admin_client.get("/api/v1/placements").content)["items"]
    manifest = json.loads(admin_client.get("/api/v1/placements/web").content)
    assert row["health"] == manifest["status"]["health"]
    assert (row["health"]["level"], row["health"]["message"]) == ("attention", words)
    assert row["health"]["counts"]["available"] == 2


def test_a_hard_limit_that_is_exceeded_is_out_of_balance_until_it_is_kept_again() -> (
    None
):
    world = World(4)
    for name, region in zip(
        ("c000", "c001", "c002", "c003"), ("east", "east", "west", "west"), strict=True
    ):
        change_labels([name], put={"region": region}, by=None, now=world.now)
    constraint = {
        "topologyKey": "region",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
    }
    world.place(
        "web",
        {**one_at_a_time(), **pick_n_spec(4, topologySpreadConstraints=[constraint])},
    )
    world.run(until=world.is_settled)
    refresh_staleness(now=world.now)
    assert health(world).word == "Healthy"

    change_labels(["c002"], put={"region": "east"}, by=None, now=world.now)
    world.work()
    refresh_staleness(now=world.now + STALENESS_EVERY)
    status = health(world)
    assert (status.level, status.word) == (HealthLevel.ATTENTION, "Out of balance")
    assert status.detail == "region skew 2 with east 3 and west 1, max skew 1"
    assert sentences("placement-degraded", now=world.now) == {
        "web": f"Out of balance: {status.detail}."
    }

    change_labels(["c002"], put={"region": "west"}, by=None, now=world.now)
    world.work()
    refresh_staleness(now=world.now + 2 * STALENESS_EVERY)
    assert health(world).word == "Healthy"
    assert sentences("placement-degraded", now=world.now) == {}


def test_a_cluster_on_which_several_placements_fail_is_one_problem(
    client: Client,
) -> None:
    world = World(3)
    for name in ("web", "db", "api"):
        world.place(name, one_at_a_time())
    world.run(until=world.is_settled)
    Binding.objects.filter(cluster_name="c001").exclude(placement__name="api").update(
        phase="failed", message="quota exceeded"
    )

    compare_all(now=world.now)

    problems = {
        problem.key: problem for problem in Problem.objects.filter(ended_at=None)
    }
    root = "cluster-workloads/c001"
    assert problems[root].message == (
        "Workloads failed in 2 placements. These placements work on their other ready clusters."
    )
    assert {key: problem.causes for key, problem in problems.items()} == {
        root: [],
        "placement-degraded/db": [root],
        "placement-degraded/web": [root],
    }
    row = MemberCluster.objects.get(name="c001")
    assert cluster_badge(row, is_cordoned=False).words == "Workloads failing"
    listed = clusters_matching(
        ClusterFilter(state=ClusterFilterState.WORKLOADS_FAILING)
    )
    assert [cluster.name for cluster in listed] == ["c001"]
    [members] = members_by("region")[0].values()
    assert dict(members)["c001"] == "workloads failing"
    client.force_login(person("ana", "viewer"))
    inbox = client.get("/api/v1/inbox").json()["items"]
    assert [(one["name"], one["following"]) for one in inbox] == [
        ("c001", ["db", "web"])
    ]
    changes = MemberCluster.objects.filter(name="c001").values_list(
        workloads_changed_at(), flat=True
    )
    assert list(changes.all()) == [problems[root].since]

    Binding.objects.filter(placement__name="web").update(phase="failed")
    ended_at = world.now + timedelta(minutes=5)
    compare_all(now=ended_at)
    assert not Problem.objects.filter(ended_at=None, key=root).exists(), (
        "web fails everywhere"
    )
    assert list(changes.all()) == [ended_at]
    assert MemberCluster.objects.get(name="c001").workloads_problem == ""
