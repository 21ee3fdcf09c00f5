"""One fact has one answer: every reader of what is wrong says the same at the same moment."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from placements.engine.rollout.state import Phase
from placements.manifests.binding import BindingState
from placements.models import Binding, ProblemKind
from placements.services.dashboard.causes import attention
from placements.services.dashboard.queries import counts
from placements.services.filters import PlacementFilter, PlacementFilterState, placements_matching
from placements.services.hubs.inbox import InboxKind, inbox, reader_of
from placements.services.notifications.problems import problems_of_hub
from placements.services.placements import delete_placement
from placements.services.rollouts.approvals import approvals_waiting
from tests.rows import NOW, all_joined, decided, person, pick_n_spec
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("collected_static")]


@pytest.fixture
def reader() -> User:
    return User.objects.create_superuser("reader")


def in_inbox(reader: User, kind: InboxKind) -> int:
    groups = inbox(reader_of(reader, now=NOW))
    return sum(item.kind == kind for group in groups for item in group.items)


def numbers_of_unfulfilled(reader: User, client: Client) -> dict[str, int]:
    """Return how many placements are not fulfilled, by who says so."""
    listed = placements_matching(PlacementFilter(state=PlacementFilterState.UNFULFILLED))
    problems = problems_of_hub(now=NOW)[ProblemKind.PLACEMENT_NOT_FULFILLED]
    causes = attention(counts(), reader, snoozes={}, now=NOW).causes
    client.force_login(reader)
    metrics = client.get("/metrics").content.decode()
    return {
        "list": listed.count(),
        "inbox": in_inbox(reader, InboxKind.UNFULFILLED),
        "notifications": len(problems),
        "counts": counts().unfulfilled,
        "overview": sum(one.key.startswith("placement/") for one in causes),
        "metrics": metrics.count('fleetui_placements{hub="local",state="unfulfilled"} 1.0'),
        "REST": len(client.get("/api/v1/placements?state=unfulfilled").json()["items"]),
    }


def test_a_placement_with_too_few_clusters_is_one_problem_for_every_reader(
    reader: User, client: Client
) -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(9))

    assert set(numbers_of_unfulfilled(reader, client).values()) == {1}


def test_a_placement_that_is_being_deleted_wants_no_clusters(reader: User, client: Client) -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(9))
    Binding.objects.update(state=BindingState.BOUND, phase=Phase.AVAILABLE)  # removing takes a while
    delete_placement("web", by=reader, now=NOW)

    assert set(numbers_of_unfulfilled(reader, client).values()) == {0}
    assert [one.full_name for one in placements_matching(PlacementFilter())] == ["web"]


def test_a_run_that_is_stopped_at_its_gate_waits_for_no_approval() -> None:
    world = StagedWorld({"canary": ["c000"], "prod": ["c001"]}, stage("canary", before=True), stage("prod"))
    world.place("web", staged_spec())
    world.begin("one")
    ana = person("ana", "approver")

    def pending() -> dict[str, int]:
        return {
            "notifications": len(problems_of_hub(now=world.now)[ProblemKind.APPROVAL_PENDING]),
            "inbox": in_inbox(ana, InboxKind.APPROVAL),
            "list": approvals_waiting().count(),
        }

    assert set(pending().values()) == {1}
    world.set("one", "Stop")
    world.go_on()
    world.work()
    assert set(pending().values()) == {0}
