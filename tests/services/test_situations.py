"""About sixty situations: whoever is asked says the same word, the same level and the same count."""

import html
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

import pytest
from django.contrib.auth.models import User
from django.db.models import F
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from clusters.filters import (
    ClusterFilter,
    ClusterFilterState,
    clusters_matching,
    list_state,
    members_by,
)
from clusters.models import MemberCluster
from clusters.operations.edit import change_labels, cordon, leave
from placements.engine.rollout.state import Phase
from placements.manifests.binding import BindingState
from placements.models import Binding, Placement, Problem, Rollout, StagedRun
from placements.services.dashboard.queries import counts
from placements.services.filters import (
    PlacementFilter,
    PlacementFilterState,
    placements_matching,
)
from placements.services.placements import delete_placement, save_placement
from placements.services.rollouts.operations import abandon, pause
from placements.services.verification import STALENESS_EVERY, refresh_staleness
from tests.database import compare_all
from tests.rows import decided, pick_n_spec, placement_document, saved, spec
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec
from tests.services.rollouts.test_out_of_reach import cut_off
from tests.services.rollouts.world import World, one_at_a_time, settled_world
from tests.web.test_cluster_objects import drift

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("collected_static")]

TROUBLE = ("failed", "attention", "unknown")
NO_NAMESPACE = [{"group": "", "version": "v1", "kind": "Namespace", "name": "absent"}]
GONE = {"placementType": "PickFixed", "clusterNames": ["nowhere"]}


class Expected(NamedTuple):
    """What all say about the placement web: level, one line, and the kinds of its problems."""

    level: str
    summary: str
    kinds: frozenset[str] = frozenset()


Situation = Callable[[], object]
MadeBy = TypeVar("MadeBy", bound=Situation)
SITUATIONS: dict[str, tuple[Situation, Expected]] = {}


def of(level: str, summary: str, *kinds: str) -> Callable[[MadeBy], MadeBy]:
    """Register a situation with what all say about it."""

    def add(make: MadeBy) -> MadeBy:
        SITUATIONS[make.__name__] = make, Expected(level, summary, frozenset(kinds))
        return make

    return add


def settled() -> World:
    return settled_world(3, one_at_a_time())


def bindings(*names: str, **values: Any) -> None:
    """Change the bindings on these clusters, or on all."""
    rows = (
        Binding.objects.filter(cluster_name__in=names)
        if names
        else Binding.objects.all()
    )
    rows.update(**values)


def conditions(*, started: bool = True) -> dict[str, list[str]]:
    """Return the conditions of a binding without Available, started or not."""
    return {"RolloutStarted": [str(started), datetime.now(UTC).isoformat()]}


def staged(**of_stage: Any) -> StagedWorld:
    world = StagedWorld(
        {"canary": ["c000"], "prod": ["c001"]},
        stage("canary", **of_stage),
        stage("prod"),
    )
    world.place("web", staged_spec())
    return world


# --- what is well, on the way, or asked for ---


@of("healthy", "Healthy")
def available_everywhere() -> None:
    settled()


@of("healthy", "Healthy (scaled to 0)")
def scaled_to_zero() -> None:
    settled_world(2, {**one_at_a_time(), **pick_n_spec(0)})


@of("progress", "Scheduling")
def saved_and_not_decided() -> None:
    world = settled_world(3, {**one_at_a_time(), **pick_n_spec(1)})
    save_placement(placement_document("web", pick_n_spec(2)), by=None, now=world.now)


@of("progress", "Scheduling")
def unfulfilled_and_edited_since() -> None:
    World(2)
    decided("web", pick_n_spec(9))
    save_placement(
        placement_document("web", pick_n_spec(1)), by=None, now=datetime.now(UTC)
    )


@of("progress", "Scheduling")
def fleet_changed_since() -> None:
    settled()
    Placement.objects.update(generation=F("generation") + 1)


@of("suspended", "Pending")
def never_decided() -> None:
    saved("web", spec())
    Placement.objects.update(observed_generation=F("generation"), scheduled="")


@of("progress", "Progressing (2 of 3 started)")
def rollout_goes_on() -> None:
    settled()
    bindings("c000", conditions=conditions(started=False))
    Rollout.objects.update(state="running", ended_at=None)


@of("progress", "Progressing (removing from 1 cluster)")
def cluster_leaves() -> None:
    world = settled()
    leave(["c002"], by=None, now=world.now)


@of("progress", "Deleting")
def being_deleted() -> None:
    world = settled()
    delete_placement("web", by=None, now=world.now)


@of("progress", "Deleting")
def unfulfilled_and_being_deleted() -> None:
    world = settled_world(2, {**one_at_a_time(), **pick_n_spec(9)})
    delete_placement("web", by=None, now=world.now)


@of("failed", "Deleting (removal failed on 1 cluster)", "placement-degraded")
def deletion_fails() -> None:
    world = settled()
    delete_placement("web", by=None, now=world.now)
    bindings("c000", phase=Phase.REMOVE_FAILED, message="no")


@of("healthy", "Healthy", "rollout-held")
def paused_with_nothing_to_do() -> None:
    world = settled()
    pause("web", by=None, now=world.now)


@of("suspended", "Paused (0 of 3 started)", "rollout-held")
def paused_before_it_began() -> None:
    world = settled()
    pause("web", by=None, now=world.now)
    bindings(conditions=conditions(started=False))


@of("suspended", "Stopped (0 of 3 started)", "rollout-held")
def stopped() -> None:
    settled()
    Placement.objects.update(is_stopped=True)
    bindings(conditions=conditions(started=False))


@of("suspended", "Scheduled, not applied (2 clusters not monitored)")
def no_driver_anywhere() -> None:
    world = World(2)
    MemberCluster.objects.update(driver="")
    world.place("web", spec())


# --- decisions ---


@of("failed", "Not fulfilled (0 of 2)", "placement-not-fulfilled")
def nothing_selected() -> None:
    World(2)
    MemberCluster.objects.update(
        verdict="staleHeartbeat", verdict_since=datetime.now(UTC)
    )
    decided("web", pick_n_spec(2))
    MemberCluster.objects.update(verdict="")
    Placement.objects.update(observed_generation=F("generation"))


@of("attention", "Partially fulfilled (2 of 9)", "placement-not-fulfilled")
def too_few_clusters() -> None:
    settled_world(2, {**one_at_a_time(), **pick_n_spec(9)})


@of("failed", "Not fulfilled (0 of 1)", "placement-not-fulfilled")
def named_cluster_is_not_there() -> None:
    World(2)
    decided("web", spec(policy=GONE))


@of("attention", "No clusters selected", "placement-degraded")
def no_cluster_matches() -> None:
    terms = [{"labelSelector": {"matchLabels": {"no": "cluster"}}}]
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "clusterSelectorTerms": terms
        }
    }
    World(2)
    decided(
        "web",
        spec(
            policy={
                "placementType": "PickAll",
                "affinity": {"clusterAffinity": affinity},
            }
        ),
    )


@of("failed", "Invalid resource selector", "placement-degraded")
def selectors_are_invalid() -> None:
    settled()
    fault = {"path": "spec", "code": "duplicate", "message": "selects it again"}
    Placement.objects.update(selection_faults=[fault])


@of("attention", "No resources selected", "placement-degraded")
def selectors_match_nothing() -> None:
    world = World(2)
    world.place("web", {**one_at_a_time(), "resourceSelectors": NO_NAMESPACE})
    world.pass_time(5)


@of(
    "attention",
    "Out of balance (region skew 2 with east 2 and west 0, max skew 1)",
    "placement-degraded",
)
def hard_limit_is_exceeded() -> World:
    world = World(3)
    for name, region in (("c000", "east"), ("c001", "west"), ("c002", "west")):
        change_labels([name], put={"region": region}, by=None, now=world.now)
    limit = {
        "topologyKey": "region",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
    }
    world.place(
        "web", {**one_at_a_time(), **pick_n_spec(2, topologySpreadConstraints=[limit])}
    )
    world.run(until=world.is_settled)
    placed = set(Binding.objects.values_list("cluster_name", flat=True))
    change_labels(sorted(placed), put={"region": "east"}, by=None, now=world.now)
    world.work()
    refresh_staleness(now=world.now + STALENESS_EVERY)
    return world


@of(
    "attention",
    "Degraded (1 of 2 available, 1 unreachable, out of balance)",
    "placement-degraded",
)
def hard_limit_is_exceeded_and_a_cluster_is_lost() -> None:
    world = hard_limit_is_exceeded()
    cut_off(world, Binding.objects.earliest("cluster_name").cluster_name)


@of(
    "attention",
    "Partially fulfilled (2 of 9, 1 unreachable)",
    "placement-not-fulfilled",
)
def too_few_clusters_and_one_is_lost() -> None:
    cut_off(settled_world(2, {**one_at_a_time(), **pick_n_spec(9)}), "c000")


# --- clusters ---


@of("attention", "Degraded (2 of 3 available, 1 unreachable)", "placement-degraded")
def cluster_is_lost() -> None:
    cut_off(settled(), "c001")


@of("attention", "Degraded (2 of 3 available, 1 unreachable)", "placement-degraded")
def cluster_does_not_answer() -> None:
    settled()
    MemberCluster.objects.filter(name="c001").update(unanswered_since=datetime.now(UTC))


@of("attention", "Unknown (0 of 3 available, 3 unreachable)", "placement-degraded")
def all_clusters_are_lost() -> None:
    cut_off(settled(), "c000", "c001", "c002")


@of("attention", "Degraded (2 of 3 available, 1 not ready)", "placement-degraded")
def cluster_reports_itself_unhealthy() -> None:
    settled()
    now = datetime.now(UTC)
    MemberCluster.objects.filter(name="c001").update(
        agent_healthy="False", healthy_since=now
    )


@of("attention", "Degraded (2 of 3 available, 1 not ready)", "placement-degraded")
def cluster_cannot_be_selected() -> None:
    settled()
    MemberCluster.objects.filter(name="c001").update(
        verdict="unhealthy", verdict_since=datetime.now(UTC)
    )


@of("healthy", "Healthy")
def cluster_is_cordoned() -> None:
    world = settled()
    cordon(["c001"], by=None, now=world.now)
    world.work()


@of("attention", "Degraded (2 of 3 available, 1 not monitored)", "placement-degraded")
def one_cluster_has_no_driver() -> None:
    settled()
    MemberCluster.objects.filter(name="c001").update(driver="")


@of("failed", "Failed (on 1 cluster)", "placement-degraded")
def apply_fails() -> None:
    settled()
    bindings("c001", phase=Phase.FAILED, message="quota exceeded")


@of("failed", "Failed (on 2 clusters)", "placement-degraded")
def apply_fails_while_a_cluster_is_lost() -> None:
    world = settled()
    cut_off(world, "c002")
    bindings("c000", "c001", phase=Phase.FAILED, message="quota exceeded")


@of("failed", "Failed (removal failed on 1 cluster)", "placement-degraded")
def removal_fails() -> None:
    settled()
    bindings(
        "c001", phase=Phase.REMOVE_FAILED, state=BindingState.UNSCHEDULED, message="no"
    )


@of("attention", "Differs (differs on 1 cluster)", "placement-degraded")
def report_differs() -> None:
    settled()
    bindings("c001", failure="differs")


@of("attention", "Degraded (2 of 3 available)", "placement-degraded")
def never_available() -> None:
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    settled()
    bindings(
        "c001", phase=Phase.APPLIED, conditions=conditions(), phase_changed_at=long_ago
    )


@of(
    "attention",
    "Degraded (1 of 3 available, 1 unreachable, 1 not available)",
    "placement-degraded",
)
def unavailable_beside_a_lost_cluster() -> None:
    world = settled()
    cut_off(world, "c002")
    bindings("c001", phase=Phase.APPLIED, conditions=conditions())


@of("healthy", "Healthy", "drift")
def objects_have_drifted() -> None:
    settled()
    bindings("c001", drifted_objects=[drift()])


# --- runs ---


@of("suspended", "Pending (needs a staged run)", "rollout-held")
def staged_without_a_run() -> None:
    staged()


@of(
    "attention",
    "Waiting for approval (before stage canary, 0 of 2 started)",
    "approval-pending",
)
def run_waits_for_approval() -> None:
    staged(before=True).begin("one")


@of("suspended", "Paused (0 of 2 started)", "rollout-held")
def run_is_paused_at_its_gate() -> None:
    world = staged(before=True)
    world.begin("one")
    world.go_on()
    world.set("one", "Stop")
    world.go_on()
    world.work()


@of("suspended", "Pending (needs a staged run)", "rollout-failed")
def run_has_failed() -> None:
    world = staged(before=True)
    world.begin("one")
    abandon("one", by=None, now=world.now)
    world.work()
    StagedRun.objects.update(status="failed")


@of("healthy", "Healthy")
def run_has_succeeded() -> None:
    world = staged()
    world.begin("one")
    world.run(until=lambda: world.status("one") == "succeeded")


LINE = re.compile(r"\s+")


def text_of(client: Client, address: str) -> str:
    content = client.get(address).content.decode()
    return LINE.sub(
        " ", html.unescape(re.sub(r"<[^>]*>", " ", content.partition("<main")[2]))
    )


@pytest.fixture
def reader(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("reader"))
    return client


@pytest.mark.parametrize("name", SITUATIONS)
def test_all_say_the_same_about_a_placement(reader: Client, name: str) -> None:
    make, expected = SITUATIONS[name]
    make()
    compare_all(now=datetime.now(UTC))
    is_degraded = expected.level in TROUBLE and "Waiting" not in expected.summary

    health = reader.get("/api/v1/placements/web").json()["status"]["health"]
    assert health["level"] == expected.level
    shown = {
        "page": text_of(reader, "/placements/web/"),
        "list": text_of(reader, "/placements/"),
    }
    for place in ("page", "list"):
        assert expected.summary in shown[place], place
    counts_of = health["counts"]
    states = (
        *("available", "pending", "inProgress", "notAvailable", "failed", "differs"),
        *("unreachable", "notObserved", "notMonitored", "notReady"),
    )
    assert sum(counts_of[state] for state in states) == counts_of["scheduled"]

    def listed(state: PlacementFilterState) -> list[bool]:
        address = f"/api/v1/placements?state={state}"
        rows = placements_matching(PlacementFilter(state=state))
        return [rows.exists(), bool(reader.get(address).json()["items"])]

    assert listed(PlacementFilterState.DEGRADED) == [is_degraded] * 2
    assert listed(PlacementFilterState.HEALTHY) == [expected.level == "healthy"] * 2
    is_unfulfilled = "placement-not-fulfilled" in expected.kinds
    assert listed(PlacementFilterState.UNFULFILLED) == [is_unfulfilled] * 2

    problems = Problem.objects.filter(ended_at=None)
    kinds = set(problems.filter(placement="web").values_list("kind", flat=True)) - {
        "placement-outdated"
    }
    assert kinds == expected.kinds
    totals = counts()
    assert (totals.degraded, totals.unfulfilled) == (is_degraded, is_unfulfilled)
    families = text_string_to_metric_families(reader.get("/metrics").content.decode())
    gauges = {
        sample.labels.get("state"): sample.value
        for family in families
        if family.name == "fleetui_placements"
        for sample in family.samples
    }
    assert (gauges["degraded"], gauges["unfulfilled"]) == (is_degraded, is_unfulfilled)

    inbox = reader.get("/api/v1/inbox").json()["items"]
    roots = {
        one["kind"]
        for one in inbox
        if "web" in (one["name"], *one["following"]) or one["kind"] in kinds
    }
    explained = set(
        problems.filter(placement="web")
        .exclude(causes=[])
        .values_list("kind", flat=True)
    )
    assert roots >= kinds - explained
    if explained:
        assert any("web" in one["following"] for one in inbox), (
            "it follows from another problem"
        )
    overview = reader.get("/api/v1/overview").json()
    attention = [
        one
        for one in overview["attention"]
        if "web" in (one["name"], *one["effects"], *one["message"].split())
    ]
    assert bool(attention) == bool(kinds)
    levels = [problem.level for problem in problems.filter(placement="web", causes=[])]
    if levels and not explained:
        order = ("failed", "attention", "unknown", "progress", "outdated", "suspended")
        assert attention[0]["level"] == min(levels, key=order.index)


# --- member clusters ---


class OfCluster(NamedTuple):
    """What all say about the cluster c001: its word, the filter that has it, and its problem."""

    word: str
    state: ClusterFilterState
    level: str = ""


def lost() -> None:
    cut_off(World(3), "c001")


def changed(**values: Any) -> Situation:
    def make() -> None:
        settled()
        MemberCluster.objects.filter(name="c001").update(**values)

    return make


def cordoned() -> None:
    world = settled()
    cordon(["c001"], by=None, now=world.now)


def leaving() -> None:
    leave(["c001"], by=None, now=settled().now)


def workloads() -> None:
    world = settled()
    world.place("db", one_at_a_time())
    world.run(until=world.is_settled)
    bindings("c001", phase=Phase.FAILED, message="quota exceeded")


AT = datetime.now(UTC)
CLUSTERS: dict[str, tuple[Situation, OfCluster]] = {
    "ready": (changed(), OfCluster("Ready", ClusterFilterState.READY)),
    "lost": (
        lost,
        OfCluster(
            "Not ready (heartbeat lost)", ClusterFilterState.NOT_ELIGIBLE, "failed"
        ),
    ),
    "does not answer": (
        changed(unanswered_since=AT),
        OfCluster("Heartbeat late", ClusterFilterState.HEARTBEAT_LATE, "attention"),
    ),
    "reports itself unhealthy": (
        changed(agent_healthy="False", healthy_since=AT),
        OfCluster("Unhealthy", ClusterFilterState.UNHEALTHY, "attention"),
    ),
    "unhealthy for long": (
        changed(verdict="unhealthy", verdict_since=AT),
        OfCluster("Not ready (unhealthy)", ClusterFilterState.NOT_ELIGIBLE, "failed"),
    ),
    "has no driver": (
        changed(driver=""),
        OfCluster("Not monitored", ClusterFilterState.NOT_MONITORED),
    ),
    "cordoned": (cordoned, OfCluster("ordoned", ClusterFilterState.CORDONED)),
    "leaving": (leaving, OfCluster("Leaving", ClusterFilterState.LEAVING, "progress")),
    "joining": (
        changed(membership="joining"),
        OfCluster("Joining", ClusterFilterState.JOINING),
    ),
    "workloads fail": (
        workloads,
        OfCluster("Workloads failing", ClusterFilterState.WORKLOADS_FAILING, "failed"),
    ),
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_all_say_the_same_about_a_cluster(reader: Client, name: str) -> None:
    make, expected = CLUSTERS[name]
    make()
    compare_all(now=datetime.now(UTC))

    rows = clusters_matching(ClusterFilter(state=expected.state))
    assert "c001" in rows.values_list("name", flat=True)
    rest = reader.get(f"/api/v1/clusters?state={expected.state}").json()["items"]
    assert "c001" in [one["name"] for one in rest]
    others = {state for state in ClusterFilterState if state != expected.state}
    is_ready = (
        clusters_matching(ClusterFilter(state=ClusterFilterState.READY))
        .filter(name="c001")
        .exists()
    )
    assert is_ready == (expected.state is ClusterFilterState.READY)
    assert others
    of_list = MemberCluster.objects.annotate(how=list_state()).get(name="c001").how
    of_map = {
        name: state
        for members in members_by("region")[0].values()
        for name, state in members
    }
    assert of_map["c001"] == of_list
    assert of_list.replace(" ", "-") == expected.state

    for address in ("/clusters/c001/", f"/clusters/?state={expected.state}"):
        assert expected.word in text_of(reader, address), address
    problems = Problem.objects.filter(ended_at=None, noun="cluster", name="c001")
    assert [problem.level for problem in problems] == (
        [expected.level] if expected.level else []
    )
    attention = reader.get("/api/v1/overview").json()["attention"]
    levels = [one["level"] for one in attention if one["name"] == "c001"]
    assert levels == ([expected.level] if expected.level else [])
    inbox = reader.get("/api/v1/inbox").json()["items"]
    assert [one["level"] for one in inbox if one["name"] == "c001"] == levels
