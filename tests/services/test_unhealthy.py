"""A cluster that reports itself unhealthy is not ready at once, wherever that is shown.

That it can be selected for five more minutes is another fact, which its page says.
"""

import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from clusters.filters import (
    ClusterFilter,
    ClusterFilterState,
    ClusterListState,
    clusters_matching,
    counts_by_state,
    list_state,
)
from clusters.models import MemberCluster
from clusters.observation import unhealthy_since
from clusters.operations.edit import cordon, not_ready_at
from clusters.operations.heartbeat import observe
from fleetui.hub_scope import LOCAL_HUB
from placements.manifests.binding import BindingState
from placements.models import Binding
from placements.services.dashboard.causes import attention
from placements.services.filters import (
    PlacementFilter,
    PlacementFilterState,
    placements_matching,
)
from placements.services.hub_version import stored_version
from placements.services.metrics import metrics_registry
from placements.services.problems import root_causes
from placements.services.problems.book import compare
from placements.web.badges import STATE_BADGES, Badge, cluster_badge
from tests.database import compare_all
from tests.problems import found
from tests.rows import simulated
from tests.services.rollouts.test_health import health
from tests.services.rollouts.world import World
from tests.services.test_not_observed import observed_at, settled
from tests.web.reading import page_text, words_of

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.real_silence,
    pytest.mark.usefixtures("collected_static"),
]
MINUTE = timedelta(minutes=1)
UNHEALTHY = Badge("attention", "Unhealthy")
PANEL = "/topology/panel/?cluster=c001"


@pytest.fixture
def root() -> User:
    return User.objects.create_superuser("root")


@pytest.fixture
def since() -> datetime:
    """Return since when c001 of three clusters, all observed now, has reported itself unhealthy."""
    settled()
    now = datetime.now(UTC)
    observed_at(now)
    since = now - 2 * MINUTE
    MemberCluster.objects.filter(name="c001").update(
        agent_healthy="False", healthy_since=since, health_message="no memory left"
    )
    return since


def test_the_driver_reports_it_and_the_cluster_stays_eligible_for_five_minutes() -> (
    None
):
    now = datetime.now(UTC)
    simulated("sick", now=now, fault="unhealthy")
    observe(now=now)

    row = MemberCluster.objects.get()
    assert (row.is_eligible, row.is_unhealthy, unhealthy_since(row, now=now)) == (
        True,
        True,
        now,
    )
    assert cluster_badge(row, is_cordoned=False) == UNHEALTHY
    assert not_ready_at(row, now=now) == now + 5 * MINUTE


@pytest.mark.usefixtures("since")
def test_lists_filters_and_counts_have_the_same_answer() -> None:
    def names(state: ClusterFilterState) -> set[str]:
        return set(
            clusters_matching(ClusterFilter(state=state)).values_list("name", flat=True)
        )

    for state, expected in {
        ClusterFilterState.UNHEALTHY: {"c001"},
        ClusterFilterState.READY: {"c000", "c002"},
        ClusterFilterState.ELIGIBLE: {"c000", "c001", "c002"},
        ClusterFilterState.NOT_ELIGIBLE: set(),
    }.items():
        assert names(state) == expected
        assert counts_by_state()[state] == len(expected)
    compare_all(now=datetime.now(UTC))
    for placement_state, number in (
        (PlacementFilterState.HEALTHY, 0),
        (PlacementFilterState.DEGRADED, 1),
    ):
        assert (
            placements_matching(PlacementFilter(state=placement_state)).count()
            == number
        )


CASES: dict[str, tuple[dict[str, Any], ClusterListState]] = {
    "reports it": ({}, ClusterListState.UNHEALTHY),
    "does not know": ({"agent_healthy": "Unknown"}, ClusterListState.UNHEALTHY),
    "healthy": ({"agent_healthy": "True"}, ClusterListState.READY),
    "says nothing": ({"agent_healthy": ""}, ClusterListState.READY),
    "does not answer": ({"unanswered_since": MINUTE}, ClusterListState.HEARTBEAT_LATE),
    "not observed": ({"observed_until": MINUTE}, ClusterListState.NOT_OBSERVED),
    "never observed": ({"observed_until": None}, ClusterListState.UNHEALTHY),
    "for long": (
        {"verdict": "unhealthy", "verdict_reason": "x"},
        ClusterListState.NOT_ELIGIBLE,
    ),
}


@pytest.mark.parametrize(("changes", "state"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("is_cordoned", [False, True])
@pytest.mark.usefixtures("since")
def test_python_and_sql_agree(
    changes: dict[str, Any], state: ClusterListState, is_cordoned: bool
) -> None:
    now = datetime.now(UTC)
    values = {
        key: now - one if isinstance(one, timedelta) else one
        for key, one in changes.items()
    }
    if is_cordoned:
        cordon(["c001"], by=None, now=now)
    MemberCluster.objects.filter(name="c001").update(**values)
    is_unhealthy = state is ClusterListState.UNHEALTHY

    row = MemberCluster.objects.annotate(how=list_state()).get(name="c001")
    expected = (
        ClusterListState.CORDONED
        if is_cordoned and state is ClusterListState.READY
        else state
    )
    assert row.how == expected
    assert (unhealthy_since(row, now=now) is not None) == is_unhealthy
    assert (counts_by_state()[ClusterFilterState.UNHEALTHY] == 1) == is_unhealthy
    badge = cluster_badge(row, is_cordoned=is_cordoned)
    assert (badge == UNHEALTHY) == is_unhealthy
    assert STATE_BADGES[ClusterListState.UNHEALTHY] == UNHEALTHY
    assert (badge.kind == "healthy") == (expected is ClusterListState.READY)


@pytest.mark.usefixtures("since")
def test_a_placement_on_it_is_degraded() -> None:
    world = SimpleNamespace(now=datetime.now(UTC))

    assert (
        health(cast(World, world)).summary == "Degraded (2 of 3 available, 1 not ready)"
    )


@pytest.mark.parametrize(
    "path",
    [
        "/clusters/",
        "/clusters/?state=unhealthy",
        "/clusters/c001/",
        "/clusters/c001/inject-fault/",
        "/",
        "/?map=cells",
        "/?map=bars",
        PANEL,
        "/placements/",
        "/placements/?state=degraded",
        "/placements/web/",
        "/admin/clusters/membercluster/",
    ],
)
@pytest.mark.usefixtures("since")
def test_every_page_says_it(client: Client, root: User, path: str) -> None:
    client.force_login(root)

    page = client.get(
        path, headers={"hx-request": "true"} if path == PANEL else {}
    ).content.decode()

    assert re.search("unhealthy", page, re.IGNORECASE) or "/placements/" in path
    if path.startswith("/placements"):
        assert "1 not ready" in page
    if path in ("/clusters/?state=unhealthy", "/clusters/c001/", PANEL):
        assert re.search(r'class="mark attention">.{0,200}?Unhealthy<', page)
        assert not re.search(r'class="mark healthy">.{0,200}?Ready<', page)


@pytest.mark.usefixtures("since")
def test_the_page_says_from_when_on_it_is_not_selected(
    client: Client, root: User
) -> None:
    client.force_login(root)
    text = words_of(page_text(client.get("/clusters/c001/")))

    assert re.search(r"Reports itself unhealthy for 2m\. Not ready in 2m\d+s", text)
    assert "Health: no memory left" in text


@pytest.mark.usefixtures("since")
def test_the_overview_lists_it_with_its_consequence(client: Client, root: User) -> None:
    client.force_login(root)
    text = " ".join(re.sub(r"<[^>]+>", " ", client.get("/").content.decode()).split())

    assert "2 of 3 clusters ready 1 unhealthy" in text
    assert "c001 Unhealthy" in text, "the map of the fleet"
    assert "c001: reports itself unhealthy No memory left." in text


def test_the_attention_list_counts_several(
    since: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root_causes, "GROUPED_FROM", 1)

    found = attention(None, snoozes={}, now=datetime.now(UTC))

    [one] = [item for item in found.items if item.key.startswith("clusters/")]
    assert (one.level, one.name, one.since) == (
        "attention",
        "1 cluster unhealthy",
        since,
    )
    assert one.message == "By own report; not selected after 5m of it: c001."
    assert one.path == "/clusters/?state=unhealthy"
    assert [effect.words for effect in one.effects] == ["web"]


def test_rest_says_it(root: User, since: datetime) -> None:
    rest = APIClient()
    rest.force_authenticate(root)

    def get(path: str) -> dict[str, Any]:
        found: dict[str, Any] = rest.get(f"/api/v1/{path}").json()
        return found

    said = {item["name"]: item["unhealthySince"] for item in get("clusters")["items"]}
    assert said == {"c000": None, "c001": said["c001"], "c002": None}
    assert datetime.fromisoformat(said["c001"]) == since
    assert [item["name"] for item in get("clusters?state=unhealthy")["items"]] == [
        "c001"
    ]
    assert [item["name"] for item in get("clusters?state=ready")["items"]] == [
        "c000",
        "c002",
    ]
    one = rest.post(
        "/api/v1/clusters/c001/heartbeat", {"healthy": False}, format="json"
    ).json()
    assert (one["eligible"], one["unhealthySince"]) == (True, said["c001"])
    assert datetime.fromisoformat(one["notReadyAt"]) == since + 5 * MINUTE
    overview = get("overview")
    assert (overview["unhealthy"], overview["notEligible"]) == (1, 0)
    assert "attention" in {each["level"] for each in overview["attention"]}


def test_metrics_and_notifications_say_it(since: datetime) -> None:
    now = datetime.now(UTC)
    registry = metrics_registry(now=now)
    samples = {
        sample.name: sample
        for family in registry.collect()
        for sample in family.samples
    }
    assert samples["fleetui_clusters_unhealthy"].value == 1
    [problem] = found("cluster-not-ready", now=now)
    assert (problem.name, problem.since) == ("c001", since)
    assert (
        problem.message
        == "Reports itself unhealthy: no memory left. Not selected after 5m of it. Placed there: web."
    )


def test_a_placement_that_leaves_a_cluster_is_not_named_as_placed_there(
    since: datetime,
) -> None:
    leaving = Binding.objects.filter(cluster_name="c001")
    leaving.update(state=BindingState.UNSCHEDULED)

    [problem] = found("cluster-not-ready", now=datetime.now(UTC))

    assert problem.since == since
    assert problem.message.endswith("Not selected after 5m of it.")


def test_open_pages_notice_it() -> None:
    settled()
    observed_at(datetime.now(UTC))
    before = stored_version(LOCAL_HUB)

    MemberCluster.objects.filter(name="c001").update(
        agent_healthy="False", healthy_since=datetime.now(UTC)
    )
    compare(now=datetime.now(UTC))

    assert stored_version(LOCAL_HUB) != before
