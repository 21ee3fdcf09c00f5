"""Replays of what a hub decided agree with it, and find what differs (`rules/live-hub.md#agreement`)."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clusters.models import Hub, HubStream
from placements import tasks
from placements.hubs import tasks as hub_tasks
from placements.hubs.explain.agreements import Agreement
from placements.hubs.replay.observed_decisions import HubSide, observe_due
from placements.models import (
    Decision,
    DueJudgement,
    HubDecision,
    Placement,
)
from tests.database import forget_caches, rolled_back
from tests.hubs.scenarios import START, RecordedHub, scenarios

pytestmark = pytest.mark.django_db
AGREED = {Agreement.AGREES, Agreement.FORGOTTEN}
PLANTED = 10
Document = dict[str, Any]


def disagreeing_steps(scenario: Document) -> list[Any]:
    """Return what does not agree, step by step; a step without a status is not decided."""
    found = []
    hub = RecordedHub(scenario)
    for number, expected in enumerate(hub.steps()):
        if not expected["condition"]:
            assert hub.pending()
            continue
        side = hub.observe()
        agreement = side.agreement.value
        if agreement not in AGREED:
            facts = (agreement, side.row.inputs, side.row.note, side.differences[:3])
            found.append((scenario["id"], number, *facts))
    return found


@pytest.mark.nightly
def test_every_decided_step_of_all_scenarios_agrees() -> None:
    steps = [
        step["condition"] for scenario in scenarios() for step in scenario["expect"]
    ]
    assert (len(scenarios()), len(list(filter(None, steps)))) == (400, 1_263)
    found = []
    for scenario in scenarios():
        with rolled_back():
            found += disagreeing_steps(scenario)

    assert found == []


def _score(expected: Document) -> None:
    one = next(
        decision
        for decision in expected["decisions"]
        if decision["affinityScore"] is not None
    )
    one["affinityScore"] += 1


def _swap(expected: Document) -> None:
    chosen = next(
        decision for decision in expected["decisions"] if decision["selected"]
    )
    other = next(
        decision for decision in expected["decisions"] if not decision["selected"]
    )
    chosen["cluster"], other["cluster"] = other["cluster"], chosen["cluster"]


def _reason(expected: Document) -> None:
    expected["decisions"][-1]["reason"] += " today"


def _condition(expected: Document) -> None:
    words = expected["condition"]["message"].split("found ")
    expected["condition"]["message"] = "found ".join([*words[:-1], f"1{words[-1]}"])


def _missing(expected: Document) -> None:
    expected["decisions"] = expected["decisions"][1:]


def _forgotten(expected: Document) -> None:
    expected["decisions"].remove(
        next(decision for decision in expected["decisions"] if not decision["selected"])
    )


def _dropped(expected: Document) -> None:
    expected["decisions"] = [
        decision for decision in expected["decisions"] if decision["selected"]
    ]


def _reversed(expected: Document) -> None:
    expected["decisions"] = expected["decisions"][::-1]


PLANTS: list[Callable[[Document], None]] = [
    _score,
    _swap,
    _reason,
    _condition,
    _missing,
]


def planted() -> list[Document]:
    """Return scenarios whose first step selects with scores, and lists a cluster that was not selected."""
    found = []
    for scenario in scenarios():
        first = scenario["expect"][0]
        has_scores = any(
            decision["affinityScore"] is not None for decision in first["decisions"]
        )
        sides = {decision["selected"] for decision in first["decisions"]}
        if (
            len(scenario["clusters"]) < 20
            and first["condition"]
            and has_scores
            and len(sides) == 2
        ):
            found.append(
                {**scenario, "steps": scenario["steps"][:1], "expect": [first]}
            )
    return found[:: len(found) // PLANTED][:PLANTED]


def replay_of(
    scenario: Document, plant: Callable[[Document], None] | None = None
) -> HubSide:
    changed = deepcopy(scenario)
    if plant is not None:
        plant(changed["expect"][0])
    with rolled_back():
        hub = RecordedHub(changed)
        list(hub.steps())
        return hub.observe()


@pytest.mark.parametrize(
    "number", [3, pytest.param(PLANTED, marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda one: one.__name__.strip("_"))
def test_planted_differences_are_found(
    plant: Callable[[Document], None], number: int
) -> None:
    sides = [replay_of(scenario, plant) for scenario in planted()[:number]]

    assert len(sides) == number
    assert {side.agreement.value for side in sides} == {Agreement.DIFFERS}
    for side in sides:
        assert side.row.inputs == "observed"
        assert side.differences_count == len(side.differences) >= 1
        assert side.row.decision is not None


@pytest.mark.nightly
def test_what_was_not_planted_is_no_difference() -> None:
    scenario = planted()[0]
    found = {
        "": replay_of(scenario).agreement.value,
        "order": replay_of(scenario, _reversed).agreement.value,
        "one reason less": replay_of(scenario, _forgotten).agreement.value,
        "no reasons": replay_of(scenario, _dropped).agreement.value,
    }

    assert found == {
        "": "agrees",
        "order": "agrees",
        "one reason less": "forgotten",
        "no reasons": "forgotten",
    }


@pytest.fixture
def differing() -> Iterator[RecordedHub]:
    """Return a hub on which one score was recorded wrongly."""
    scenario = deepcopy(planted()[0])
    _score(scenario["expect"][0])
    hub = RecordedHub(scenario)
    list(hub.steps())
    yield hub
    forget_caches()


@pytest.mark.nightly
def test_a_difference_that_the_hub_corrects_is_withdrawn(
    differing: RecordedHub,
) -> None:
    hub = differing
    assert hub.observe().agreement.value == "differs"
    original = planted()[0]["expect"][0]
    hub.write_status(original)
    hub.live.project(now=hub.now)

    assert hub.observe().agreement.value == "agrees"
    with hub.live.scope():
        assert [decision.number for decision in Decision.objects.order_by("pk")] == [
            1,
            2,
        ]


def test_nothing_is_recorded_while_the_hub_changes_or_is_out_of_date(
    differing: RecordedHub,
) -> None:
    hub = differing
    with hub.live.scope():
        assert observe_due(now=hub.now + timedelta(seconds=2)) == 0
        hub.live.hub.lease_expires_at = hub.now - timedelta(minutes=1)
        hub.live.hub.state_since = hub.now - timedelta(minutes=2)
        hub.live.hub.save()
        assert observe_due(now=hub.now + timedelta(seconds=4)) == 0
        assert HubDecision.objects.count() == 0
        assert DueJudgement.objects.count() == 1


@pytest.mark.servers_only
@pytest.mark.servers
def test_a_worker_that_is_killed_leaves_its_decision_due(
    differing: RecordedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = differing

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with hub.live.scope(), monkeypatch.context() as patched:
        patched.setattr(
            "placements.hubs.replay.observed_decisions.observe_decision", killed
        )
        with pytest.raises(KeyboardInterrupt):
            observe_due(now=hub.now + timedelta(seconds=4))
        assert DueJudgement.objects.count() == 1

    side = hub.observe(after=timedelta(seconds=5))
    assert side.agreement.value == "differs"
    with hub.live.scope():
        assert DueJudgement.objects.count() == 0


def test_the_hub_has_not_decided_yet() -> None:
    scenario = {
        **planted()[0],
        "expect": [{**planted()[0]["expect"][0], "condition": None}],
    }
    hub = RecordedHub(scenario)
    list(hub.steps())

    assert hub.pending()
    hub.write_status(planted()[0]["expect"][0])
    hub.live.project(now=hub.now)

    assert hub.observe().agreement.value == "agrees"
    assert not hub.pending()
    forget_caches()


@pytest.mark.servers
def test_reasons_that_the_hub_drops_later_are_kept() -> None:
    scenario = planted()[0]
    hub = RecordedHub(scenario)
    list(hub.steps())
    before = hub.observe()
    shorter = deepcopy(scenario["expect"][0])
    _dropped(shorter)
    hub.write_status(shorter)
    hub.live.project(now=hub.now)

    side = hub.observe()

    assert (before.agreement.value, side.agreement.value) == ("agrees", "agrees")
    assert side.row == before.row
    assert side.row.decisions == before.row.decisions
    assert side.row.decision == before.row.decision
    forget_caches()


def picking_again() -> Document:
    """Return two steps of a scenario, the second of which selects further clusters with scores."""
    for scenario in scenarios():
        second = scenario["expect"][1] if len(scenario["expect"]) > 1 else None
        if (
            not second
            or not second["pickedOrder"]
            or not second["condition"]
            or "bind" in scenario["steps"][1]
        ):
            continue
        if any(decision["affinityScore"] for decision in second["decisions"]):
            return {
                **scenario,
                "steps": scenario["steps"][:2],
                "expect": scenario["expect"][:2],
            }
    raise LookupError


@pytest.mark.parametrize(
    ("plant", "agreement"),
    [
        (None, "agrees"),
        (_score, "agrees-on-picks"),
        (_reason, "agrees-on-picks"),
        (_swap, "uncertain"),
        (_condition, "uncertain"),
        (_missing, "uncertain"),
    ],
)
@pytest.mark.parametrize("has_history", [True, False])
def test_a_decision_that_was_not_observed_never_differs(
    plant: Callable[[Document], None] | None, agreement: str, has_history: bool
) -> None:
    scenario = deepcopy(picking_again() if has_history else planted()[0])
    if plant is not None:
        plant(scenario["expect"][-1])
    hub = RecordedHub(scenario)
    for number, _ in enumerate(hub.steps()):
        if number + 1 < len(scenario["steps"]):
            assert hub.observe().agreement.value in AGREED
    with (
        hub.live.scope()
    ):  # the watches were interrupted, and everything was listed again
        HubStream.objects.update(listed_at=hub.now + timedelta(seconds=1))
        Placement.objects.update(created_at=START)

    side = hub.observe()

    assert side.row.inputs in ("present", "assumed")
    if not has_history and plant is _reason:  # an earlier cycle may have written them
        agreement = "agrees"
    assert side.agreement.value == agreement
    forget_caches()


@pytest.mark.servers
def test_the_sweep_finds_what_is_due(
    differing: RecordedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, Document]] = []
    monkeypatch.setattr(
        tasks, "send_now", lambda task, arguments: sent.append((task, arguments))
    )
    hub = differing.live.hub
    Hub.objects.filter(pk=hub.pk).update(
        lease_expires_at=datetime.now(UTC) + timedelta(minutes=5)
    )

    tasks.sweep()

    assert (hub_tasks.observe_decisions.name, {"hub": hub.pk}) in sent
    hub_tasks.observe_decisions(hub=hub.pk)
    with differing.live.scope():
        assert HubDecision.objects.get().is_latest
        assert DueJudgement.objects.count() == 0
