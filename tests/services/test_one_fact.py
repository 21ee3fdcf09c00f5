"""One fact has one answer: every reader of what is wrong says the same at the same moment."""

from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client

from placements.engine.rollout.state import Phase
from placements.manifests.binding import BindingState
from placements.models import Binding, NotificationRule, Problem, ProblemKind
from placements.services.dashboard.causes import attention
from placements.services.dashboard.queries import counts
from placements.services.filters import (
    PlacementFilter,
    PlacementFilterState,
    placements_matching,
)
from placements.services.notifications.evaluation import evaluate, matches
from placements.services.placements import delete_placement
from placements.services.problems.book import compare
from placements.services.problems.inbox import inbox
from placements.services.problems.root_causes import AttentionSection
from placements.services.rollouts.queries import approvals_waiting
from tests.database import compare_all
from tests.rows import NOW, all_joined, decided, person, pick_n_spec
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("collected_static")]


@pytest.fixture
def reader() -> User:
    return User.objects.create_superuser("reader")


def in_inbox(reader: User, kind: ProblemKind) -> int:
    compare_all(now=NOW)
    groups = inbox(reader, now=NOW)
    return sum(group.count for group in groups if group.kind == kind)


def to_notify(kind: ProblemKind, *, now: datetime) -> int:
    rule = NotificationRule(events=[kind], active_since=now)
    evaluate(now=now)
    return sum(
        matches(rule, problem) for problem in Problem.objects.filter(ended_at=None)
    )


def numbers_of_unfulfilled(reader: User, client: Client) -> dict[str, int]:
    """Return how many placements are not fulfilled, by who says so."""
    listed = placements_matching(
        PlacementFilter(state=PlacementFilterState.UNFULFILLED)
    )
    causes = attention(reader, snoozes={}, now=NOW).items
    client.force_login(reader)
    metrics = client.get("/metrics").content.decode()
    return {
        "list": listed.count(),
        "inbox": in_inbox(reader, ProblemKind.PLACEMENT_NOT_FULFILLED),
        "notifications": to_notify(ProblemKind.PLACEMENT_NOT_FULFILLED, now=NOW),
        "counts": counts().unfulfilled,
        "overview": sum(cause.key.startswith("placement/") for cause in causes),
        "metrics": metrics.count(
            'fleetui_placements{hub="local",state="unfulfilled"} 1.0'
        ),
        "REST": len(client.get("/api/v1/placements?state=unfulfilled").json()["items"]),
    }


def test_a_placement_with_too_few_clusters_is_one_problem_for_every_reader(
    reader: User, client: Client
) -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(9))

    assert set(numbers_of_unfulfilled(reader, client).values()) == {1}


def test_a_placement_that_is_being_deleted_wants_no_clusters(
    reader: User, client: Client
) -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(9))
    Binding.objects.update(
        state=BindingState.BOUND, phase=Phase.AVAILABLE
    )  # removing takes a while
    delete_placement("web", by=reader, now=NOW)

    assert set(numbers_of_unfulfilled(reader, client).values()) == {0}
    assert [
        placement.full_name for placement in placements_matching(PlacementFilter())
    ] == ["web"]


def test_a_run_that_is_stopped_at_its_gate_waits_for_no_approval() -> None:
    world = StagedWorld(
        {"canary": ["c000"], "prod": ["c001"]},
        stage("canary", before=True),
        stage("prod"),
    )
    world.place("web", staged_spec())
    world.begin("one")
    ana = person("ana", "approver")

    def pending() -> dict[str, int]:
        return {
            "notifications": to_notify(ProblemKind.APPROVAL_PENDING, now=world.now),
            "inbox": in_inbox(ana, ProblemKind.APPROVAL_PENDING),
            "list": approvals_waiting().count(),
        }

    assert set(pending().values()) == {1}
    world.set("one", "Stop")
    world.go_on()
    world.work()
    assert set(pending().values()) == {0}


def test_a_placement_that_needs_a_staged_run_is_to_act_on() -> None:
    world = StagedWorld({"canary": ["c000"], "prod": ["c001"]}, stage("all"))
    world.place("web", staged_spec())
    ana = person("ana", "operator")

    def to_act_on() -> list[tuple[str, str]]:
        problems = compare(now=world.now)
        found = attention(ana, snoozes={}, now=world.now, problems=problems)
        items = found.in_section(AttentionSection.APPROVE)
        return [(item.title, item.details) for item in items]

    words = "The current revision is started on 0 of 2 clusters."
    assert to_act_on() == [("web: needs a staged run", words)]
    world.begin("one")
    assert to_act_on() == []
