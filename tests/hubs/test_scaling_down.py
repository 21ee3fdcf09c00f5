"""A scale-down on a live hub is a decision, also where its bindings are gone when it is looked at."""

from copy import deepcopy
from datetime import timedelta

import pytest

from placements.models import HubDecision
from tests.hubs.scenarios import Document, RecordedHub, scenarios

pytestmark = pytest.mark.django_db


def scale_down() -> tuple[Document, int]:
    """Return a scenario whose policy then wants fewer clusters, and that step."""
    for scenario in scenarios():
        policies = [step.get("policy") or {} for step in scenario["steps"]]
        wanted = [policy.get("numberOfClusters") for policy in policies]
        for index in range(1, len(wanted)):
            ended = [
                binding["cluster"]
                for binding in scenario["expect"][index]["bindings"]
                if binding["state"] == "Unscheduled"
            ]
            before, after = wanted[index - 1 : index + 1]
            if (
                before
                and after
                and before > after
                and ended
                and not scenario["steps"][index].get("fleet")
            ):
                return scenario, index
    raise AssertionError("no scenario scales down")


def scaled_down() -> tuple[RecordedHub, Document, str]:
    """Return a hub that scaled down and was not observed since, what it wrote, and when it wrote before."""
    scenario, index = scale_down()
    hub = RecordedHub(deepcopy(scenario))
    steps = list(zip(scenario["steps"], scenario["expect"], strict=True))
    for step, expected in steps[:index]:
        hub.write(step, expected)
        earlier = hub._written()
        hub.observe()
    step, expected = steps[index]
    hub.write(step, expected)
    return hub, expected, earlier


@pytest.mark.parametrize("is_being_deleted", [False, True])
def test_who_was_deselected_is_in_the_decision(is_being_deleted: bool) -> None:
    hub, _, _ = scaled_down()
    ended = [
        name
        for name, binding in hub.bindings.items()
        if binding["spec"]["state"] == "Unscheduled"
    ]
    if is_being_deleted:
        for name in ended:
            binding = hub.bindings[name]
            binding["metadata"]["deletionTimestamp"] = "2026-11-01T11:00:00Z"
            hub._put_binding(binding)
        hub.live.project(now=hub.now)
    side = hub.observe()
    with hub.live.scope():
        row = HubDecision.objects.select_related("decision").get(is_latest=True)
    assert row.decision is not None
    assert row.decision.leaves == sorted(ended)
    assert side.agreement.value == "agrees"


def test_a_decision_under_a_condition_that_stays_true_has_its_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub, expected, earlier = scaled_down()
    monkeypatch.setattr(hub, "_written", lambda: earlier)
    hub.write_status(expected)
    hub.live.project(now=hub.now)
    hub.observe()
    with hub.live.scope():
        row = HubDecision.objects.select_related("decision").get(is_latest=True)
    assert row.decision is not None
    assert row.hub_at == row.decision.created_at
    assert hub.now - row.decision.created_at < timedelta(minutes=1)
