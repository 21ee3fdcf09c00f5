"""The stored status of a placement is the one that its rows have: in random states, and after lost marks."""

import random
from collections.abc import Callable
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from clusters.models import MemberCluster
from fleetui.hub_scope import LOCAL_HUB
from fleetui.models import Event
from placements.engine.rollout.actions import RunPhase
from placements.engine.rollout.state import Phase
from placements.manifests.binding import BindingState
from placements.models import (
    Binding,
    Decision,
    Placement,
    PolicySnapshot,
    ProblemBook,
    ResourceSnapshot,
    Rollout,
    StagedRun,
    StalenessCheck,
)
from placements.services.filters import (
    PlacementFilter,
    PlacementFilterState,
    count_in_all,
    counts_in_all,
    placements_matching,
)
from placements.services.health import health_of
from placements.services.problems import book
from placements.services.problems.book import (
    bring_up_to_date,
    compare,
    compare_due,
    open_problems,
    outdate,
)
from placements.tasks import notify
from tests.rows import pick_n_spec
from tests.services.rollouts.world import World, one_at_a_time, settled_world

pytestmark = pytest.mark.django_db

SECOND = timedelta(seconds=1)
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
MEMBERS: tuple[dict[str, Any], ...] = (
    {"verdict": "staleHeartbeat"},
    {"verdict": "unhealthy"},
    {"verdict": "leaving", "membership": "leaving", "leaving_since": NOW},
    {"unanswered_since": NOW},
    {"observed_until": NOW - 3 * SECOND, "heartbeat_at": NOW - timedelta(minutes=4)},
    {"agent_healthy": "False", "healthy_since": NOW},
    {"driver": ""},
)
"""What is wrong with some member clusters; all others are ready."""
RUNNING = ("progressing", "waiting", "stopped", "stuck")
GATES = (
    "approval-before",
    "approval-after",
    "time",
    "resume",
    "clusters",
    "unreachable",
)


class States:
    """Placements in random states, with rows as the services could have left them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        world = World(len(MEMBERS) + 4)
        self.base = world.place("base", {**one_at_a_time(), **pick_n_spec(2)})
        self.names = sorted(MemberCluster.objects.values_list("name", flat=True))
        self.decision = Decision.objects.get()
        self.policy = PolicySnapshot.objects.get()
        self.resources = ResourceSnapshot.objects.get()
        self.result = Rollout.objects.get().sync_result
        self.shake_members()

    def happens(self, probability: float) -> bool:
        return self.random.random() < probability

    def shake_members(self) -> None:
        fine = {
            "verdict": "",
            "membership": "joined",
            "leaving_since": None,
            "driver": "simulated",
        }
        healthy = {
            "unanswered_since": None,
            "agent_healthy": "True",
            "observed_until": NOW + timedelta(days=1),
        }
        MemberCluster.objects.update(**fine, **healthy)
        for name, values in zip(
            self.random.sample(self.names, len(MEMBERS)), MEMBERS, strict=True
        ):
            if self.happens(0.6):
                MemberCluster.objects.filter(name=name).update(**values)

    def values(self, selected: int) -> dict[str, Any]:
        """Return random columns of a placement on so many clusters."""
        choice = self.random.choice
        placement_type = choice(["PickN", "PickN", "PickAll", "PickFixed"])
        wanted = selected + choice([0, 0, 0, 1, 2])
        is_fulfilled = (
            wanted <= selected if placement_type != "PickAll" else self.happens(0.75)
        )
        is_due = self.happens(0.15)
        return {
            "placement_type": placement_type,
            "number_of_clusters": wanted if placement_type == "PickN" else None,
            "named_count": wanted if placement_type == "PickFixed" else None,
            "generation": 5 if is_due else 4,
            "observed_generation": 4,
            "rollout_generation": 3,
            "rollout_observed": choice([3, 3, 3, 2]),
            "is_fulfilled": is_fulfilled,
            "scheduled": choice(["Unknown", str(is_fulfilled)])
            if is_due
            else str(is_fulfilled),
            "placed_count": selected,
            "decisions_made": 1,
            "selected_count": choice([3, 3, 3, 3, None, 0]),
            "paused_since": NOW if self.happens(0.1) else None,
            "is_stopped": self.happens(0.05),
            "deleting_since": NOW if self.happens(0.08) else None,
            "selection_faults": [{"message": "no"}] if self.happens(0.04) else [],
            "strategy_type": choice(["RollingUpdate"] * 3 + ["External"]),
            "unavailable_period": timedelta(seconds=choice([60, 60, 20])),
        }

    def add(self, name: str) -> None:
        selected = self.random.sample(
            self.names, self.random.choice([0, 1, 1, 2, 2, 3, 4])
        )
        document = {**self.base.document, "metadata": {"name": name}}
        row = Placement(
            name=name,
            semantics="fleet",
            document=document,
            trigger="x",
            triggered_by="y",
            created_at=NOW,
            updated_at=NOW,
            **self.values(len(selected)),
        )
        row.save()
        policy, decision = self.owned(self.policy, row), self.owned(self.decision, row)
        snapshot = self.owned(self.resources, row)
        others = [one for one in self.names if one not in selected]
        removed = self.random.sample(others, self.random.choice([0, 0, 0, 1]))
        for cluster in (*selected, *removed):
            Binding.objects.create(
                placement=row,
                cluster_name=cluster,
                policy_snapshot=policy,
                resource_snapshot=snapshot,
                decision=decision,
                picked_at=NOW,
                **self.binding(is_selected=cluster in selected),
            )
        self.add_runs(row)

    def owned(self, template: Any, placement: Placement) -> Any:
        """Return a copy of a row for another placement."""
        row = copy(template)
        row.pk, row._state = None, copy(template._state)
        row._state.adding, row.placement = True, placement
        if hasattr(row, "placement_name"):
            row.placement_name = placement.full_name
        row.save()
        return row

    def binding(self, *, is_selected: bool) -> dict[str, Any]:
        choice = self.random.choice
        state = choice([BindingState.BOUND, BindingState.BOUND, BindingState.SCHEDULED])
        phases = [*[Phase.AVAILABLE] * 5, Phase.APPLIED, Phase.APPLYING, Phase.FAILED]
        if not is_selected:
            state, phases = (
                BindingState.UNSCHEDULED,
                [Phase.REMOVING, Phase.REMOVE_FAILED, Phase.AVAILABLE, Phase.REMOVED],
            )
        phase = Phase.NOT_STARTED if state is BindingState.SCHEDULED else choice(phases)
        conditions = {}
        if phase in (Phase.AVAILABLE, Phase.APPLIED, Phase.APPLYING) and self.happens(
            0.8
        ):
            conditions["RolloutStarted"] = [
                choice(["True", "True", "False"]),
                NOW.isoformat(),
            ]
        if phase in (Phase.AVAILABLE, Phase.APPLIED) and self.happens(0.6):
            conditions["Available"] = [choice(["True", "False"]), NOW.isoformat()]
        return {
            "state": state,
            "phase": phase,
            "phase_changed_at": NOW - choice([10, 30, 300]) * SECOND,
            "failure": choice(["", "", "", "differs", "unreachable"]),
            "conditions": conditions,
        }

    def add_runs(self, row: Placement) -> None:
        """Add the run that may be in progress, and what the placed clusters exceed."""
        if row.strategy_type == "RollingUpdate" and self.happens(0.4):
            Rollout.objects.create(
                placement=row,
                placement_name=row.full_name,
                number=1,
                version="v",
                trigger="x",
                started_at=NOW,
                started_by="y",
                sync_result={
                    **self.result,
                    "verdict": self.random.choice(list(RunPhase)),
                },
            )
        if row.strategy_type == "External" and self.happens(0.6):
            waits = [{"reason": self.random.choice(GATES), "stage": "one", "names": []}]
            StagedRun.objects.create(
                placement=row,
                placement_name=row.full_name,
                name=f"run-{row.name}",
                document={},
                strategy={},
                status=self.random.choice(RUNNING),
                sync_result={"waits": waits},
                created_at=NOW,
                started_at=NOW,
                started_by="y",
            )
        if self.happens(0.1):
            StalenessCheck.objects.create(
                placement=row,
                fleet_version=1,
                readings=1,
                decisions_made=1,
                checked_at=NOW,
                exceeded=[["region", 1, "east", 2, "west", 0, 2]],
            )

    def change(self) -> None:
        """Change rows of some placements, and member clusters, as services do, without a mark."""
        self.shake_members()
        for row in Placement.objects.exclude(name="base"):
            if self.happens(0.3):
                count = row.bindings.exclude(state=BindingState.UNSCHEDULED).count()
                Placement.objects.filter(pk=row.pk).update(**self.values(count))
            for binding in row.bindings.all():
                if self.happens(0.2):
                    is_selected = binding.state != BindingState.UNSCHEDULED
                    Binding.objects.filter(pk=binding.pk).update(
                        **self.binding(is_selected=is_selected)
                    )
        Rollout.objects.filter(pk__in=self.some(Rollout)).update(
            state="finished", ended_at=NOW
        )
        StagedRun.objects.filter(pk__in=self.some(StagedRun)).update(status="stuck")

    def some(self, model: Any) -> list[int]:
        return [
            pk for pk in model.objects.values_list("pk", flat=True) if self.happens(0.3)
        ]


def wrongly_stored(now: datetime) -> dict[str, Any]:
    """Return the placements whose stored status is not that of their rows; compare filters and counts."""
    rows = list(Placement.objects.all())
    fresh = {
        row.pk: health_of(Placement.objects.get(pk=row.pk), now=now) for row in rows
    }
    for state, expected in (
        (
            PlacementFilterState.HEALTHY,
            {pk for pk, health in fresh.items() if health.level == "healthy"},
        ),
        (
            PlacementFilterState.DEGRADED,
            {pk for pk, health in fresh.items() if health.is_degraded},
        ),
    ):
        listed = placements_matching(PlacementFilter(state=state))
        assert set(listed.values_list("pk", flat=True)) == expected, state
        assert counts_in_all().by_state[state] == len(expected), state
    totals = ProblemBook.objects.get().totals
    assert totals == count_in_all() | {
        name: totals[name] for name in ("inbox", "namespaces")
    }
    return {
        row.name: (row.health, fresh[row.pk])
        for row in rows
        if row.health != fresh[row.pk].values or row.health_level != fresh[row.pk].level
    }


MANY = [pytest.param(seed, 500, marks=pytest.mark.nightly) for seed in range(2, 6)]


@pytest.mark.parametrize(("seed", "number"), [(1, 60), *MANY])
def test_the_stored_status_is_that_of_the_rows(seed: int, number: int) -> None:
    states = States(seed)
    for index in range(number):
        states.add(f"p{index}")

    compare(now=NOW)
    assert wrongly_stored(NOW) == {}
    levels = set(Placement.objects.values_list("health_level", flat=True))
    assert levels >= {"failed", "attention", "progress", "healthy"}

    states.change()
    wrong = differing(NOW)
    assert wrong, "no worker has marked the hub: it was killed, or its message is lost"
    compare_due(now=NOW + 14 * SECOND)
    assert differing(NOW) == wrong
    compare_due(now=NOW + 16 * SECOND)
    assert wrongly_stored(NOW + 16 * SECOND) == {}


def differing(now: datetime) -> set[str]:
    """Return the names of the placements whose rows have another status than the stored one."""
    rows = Placement.objects.all()
    return {row.name for row in rows if row.health != health_of(row, now=now).values}


def stored_world() -> None:
    """Make a world with a healthy placement, which is stored."""
    settled_world(2, one_at_a_time())
    compare(now=NOW)


def fail() -> None:
    Binding.objects.filter(cluster_name="c000").update(phase=Phase.FAILED)


def level() -> str:
    return Placement.objects.get().health_level


def test_a_reader_sees_what_a_user_did_at_once_and_what_a_worker_did_after_the_sweep() -> (
    None
):
    stored_world()
    assert level() == "healthy"

    fail()
    outdate(LOCAL_HUB, by_request=False)
    assert not bring_up_to_date(now=NOW + SECOND)
    assert (level(), open_problems(now=NOW + SECOND)) == ("healthy", [])
    compare_due(now=NOW + SECOND)
    assert level() == "failed"
    assert [problem.kind for problem in open_problems(now=NOW + SECOND)] == [
        "placement-degraded"
    ]

    Binding.objects.update(phase=Phase.AVAILABLE)
    outdate(LOCAL_HUB)
    assert bring_up_to_date(now=NOW + 2 * SECOND)
    assert not bring_up_to_date(now=NOW + 2 * SECOND)
    assert level() == "healthy"


def test_a_status_is_an_event_once_it_is_worse_and_once_it_is_healthy_again() -> None:
    stored_world()
    binding = Binding.objects.filter(cluster_name="c000")

    def compared(seconds: int, **columns: Any) -> None:
        binding.update(**columns)
        compare(now=NOW + seconds * SECOND)

    compared(1, phase=Phase.APPLIED, conditions={})
    for attempt in range(3):
        compared(2 * attempt + 2, phase=Phase.FAILED, message="web is immutable")
        compared(2 * attempt + 3, phase=Phase.APPLYING)
    Placement.objects.update(paused_since=NOW)
    compared(9, phase=Phase.APPLYING)
    Placement.objects.update(paused_since=None)
    compared(10, phase=Phase.AVAILABLE)
    compared(11, phase=Phase.FAILED)

    events = Event.objects.filter(verb__in=("degraded", "failed", "recovered"))
    assert [
        (row.name, row.verb, row.is_warning, row.after) for row in events.order_by("pk")
    ] == [
        ("web", "degraded", True, {"status": "Degraded", "reason": NOT_AVAILABLE}),
        ("web", "failed", True, {"status": "Failed", "reason": IMMUTABLE}),
        ("web", "recovered", False, {"status": "Healthy", "reason": ""}),
        ("web", "failed", True, {"status": "Failed", "reason": IMMUTABLE}),
    ]


NOT_AVAILABLE = "Not available on c000."
IMMUTABLE = "Failed on c000. On c000: web is immutable. Retrying."


def test_without_sweep_a_reader_compares_what_is_old() -> None:
    stored_world()
    fail()

    assert not bring_up_to_date(now=NOW + 29 * SECOND)
    assert bring_up_to_date(now=NOW + 31 * SECOND)
    assert level() == "failed"


def test_what_is_marked_during_a_comparison_is_compared_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored_world()

    def fail_and_mark(*_arguments: Any, **_options: Any) -> list[Any]:
        fail()
        outdate(LOCAL_HUB)
        return []

    with monkeypatch.context() as patch:
        patch.setattr(book, "of_placements", fail_and_mark)
        compare(now=NOW)
    assert level() == "healthy", "its rows were read before"
    assert bring_up_to_date(now=NOW)
    assert level() == "failed"


def test_the_version_increases_with_each_mark_and_with_what_is_stored() -> None:
    stored_world()

    def version() -> int:
        return ProblemBook.objects.get().version

    before = version()
    compare(now=NOW)
    assert version() == before
    outdate(LOCAL_HUB, by_request=False)
    assert version() == before + 1
    compare(now=NOW)
    assert version() == before + 1
    fail()
    compare(now=NOW)
    assert version() == before + 2
    compare_due(now=NOW)
    assert version() == before + 2, "a comparison marks nothing"


def test_a_placement_without_a_status_is_compared_before_it_is_read() -> None:
    stored_world()
    Placement.objects.update(health_level="", health=None)

    assert bring_up_to_date(now=NOW)
    assert level() == "healthy"


DOORS: dict[str, Callable[[Client], bool]] = {
    "overview": lambda client: "Failed (" in client.get("/").content.decode(),
    "list": lambda client: "Failed (" in client.get("/placements/").content.decode(),
    "filter": lambda client: (
        "Failed (" in client.get("/placements/?state=degraded").content.decode()
    ),
    "REST": lambda client: (
        client.get("/api/v1/placements").json()["items"][0]["health"]["level"]
        == "failed"
    ),
    "REST, filter": lambda client: bool(
        client.get("/api/v1/placements?state=degraded").json()["items"]
    ),
    "REST, overview": lambda client: bool(
        client.get("/api/v1/overview").json()["attention"]
    ),
    "inbox": lambda client: bool(client.get("/api/v1/inbox").json()["items"]),
    "search": lambda client: "Failed (" in client.get("/search/?q=e").content.decode(),
    "map": lambda client: (
        "Failed ("
        in client.get(
            "/topology/panel/?cluster=c001", headers={"HX-Request": "true"}
        ).content.decode()
    ),
    "cluster": lambda client: (
        "Failed (" in client.get("/clusters/c001/").content.decode()
    ),
    "metrics": lambda client: (
        'fleetui_placements{hub="local",state="degraded"} 1.0'
        in client.get("/metrics").content.decode()
    ),
}


@pytest.mark.usefixtures("collected_static")
@pytest.mark.parametrize("door", DOORS)
def test_each_door_shows_the_effect_of_an_own_request(
    client: Client, door: str
) -> None:
    client.force_login(User.objects.create_superuser("root"))
    stored_world()
    compare(now=datetime.now(UTC))
    assert not DOORS[door](client)

    fail()  # what the request has changed
    assert client.post("/api/v1/placements/web/pause").status_code < 300

    assert DOORS[door](client)


def test_the_sweep_stores_what_a_worker_has_marked() -> None:
    stored_world()
    compare(now=datetime.now(UTC))
    fail()
    outdate(LOCAL_HUB, by_request=False)

    notify()

    assert level() == "failed"
