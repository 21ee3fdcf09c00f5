"""The schema is valid, complete, and what the API really does."""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
import schemathesis
from django.core.handlers.wsgi import WSGIHandler
from django.core.management import call_command
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, settings
from rest_framework.authtoken.models import Token
from rest_framework.test import APIClient
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fleetui.models import Event
from placements.explain.staged_document import answer_facts
from placements.models import ApprovalRequest, Binding, DecisionRecord, Placement, StagedRun
from placements.operations.budgets import save_budget
from placements.operations.overrides import save_override
from placements.operations.resources import apply_resources
from placements.operations.rollouts.advancing import advance_due
from placements.operations.rollouts.draining import drain
from placements.operations.scenarios import ask_what_if
from placements.operations.staged.runs import save_run
from placements.operations.staged.strategies import save_strategy
from placements.rollout.staged import DELETE_STAGE
from placements.rollout.staged_facts import Answer, RunStatus, Wait, WaitFor
from placements.rollout.stages import ClusterStep, Stage
from placements.rollout.stages import StagedRun as Plan
from placements.rollout.state import Phase
from placements.scheduling.bindings import BindingState
from tests.rollouts.overrides import annotate, for_clusters, rule
from tests.rollouts.staged import run_document, stage, staged_spec, strategy_document
from tests.rows import (
    NOW,
    decided,
    joined,
    member_document,
    namespace,
    person,
    pick_n_spec,
    placement_document,
    run_due,
    saved,
    simulated,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# Not from a fixture: schemathesis 4.32 and pytest 9.2 do not go together there.
SCHEMA = schemathesis.openapi.from_dict(SchemaGenerator().get_schema(request=None, public=True))


def _application(environ: dict[str, Any], start_response: Any) -> Any:
    """Answer; the handler is made by the first call, when its static files have their folder."""
    return _handler()(environ, start_response)


_handler = cache(WSGIHandler)
SCHEMA.app = _application
SCHEMA.config.phases.coverage.enabled = False  # it would take a minute


BUDGET = {
    "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
    "kind": "ClusterResourcePlacementDisruptionBudget",
    "metadata": {"name": "web"},
    "spec": {"maxUnavailable": 1},
}
REFUSED = {"POST /api/v1/placements/{name}/forget": 409}
"""What is refused even where everything is there: nothing is being deleted."""
BODIES = {
    "POST /api/v1/apply": {"items": [namespace("shop"), member_document("a")], "kind": "List"},
    "PUT /api/v1/clusters/{name}": member_document("a"),
    "PUT /api/v1/clusters/{name}/labels": {"region": "west"},
    "PATCH /api/v1/clusters/{name}/labels": {"region": None},
    "PUT /api/v1/clusters/{name}/taints": [{"key": "gpu", "effect": "NoSchedule"}],
    "POST /api/v1/clusters/{name}/heartbeat": {"healthy": True, "usage": {"capacity": {"cpu": "4"}}},
    "PUT /api/v1/placements/{name}": placement_document("web", pick_n_spec(2)),
    "POST /api/v1/placements/preview": placement_document("web", pick_n_spec(2)),
    "POST /api/v1/clusters/{name}/drain": {"atOnce": 2, "order": ["web"], "deadlineSeconds": 60},
    "POST /api/v1/placements/preview/semantics": placement_document("web", pick_n_spec(2)),
    "POST /api/v1/placements/{name}/evict": {"cluster": "a"},
    "POST /api/v1/placements/{name}/forget": {"cluster": "a"},
    "PUT /api/v1/placements/{name}/budget": BUDGET,
    "PUT /api/v1/clusters/{name}/faults": [{"kind": "silent"}],
    "POST /api/v1/placements/{name}/plan": placement_document("web", pick_n_spec(2)),
    "POST /api/v1/placements/{name}/retry": {"cluster": "a"},
    "POST /api/v1/placements/{name}/rollback": {"resourceSnapshot": 0},
    "PUT /api/v1/resources/{group}/{kind}/{namespace}/{name}": namespace("a"),
    "POST /api/v1/simulate": {
        "clusters": [{"name": "a"}],
        "placement": placement_document("web", pick_n_spec(1)),
    },
    "PUT /api/v1/overrides/{kind}/{namespace}/{name}": for_clusters("tier", rule(annotate(tier="2"))),
    "PUT /api/v1/staged-strategies/{name}": strategy_document(stage("other")),
    "PUT /api/v1/staged-runs/{name}": run_document("one", state="Stop", placementName="slow"),
    "POST /api/v1/staged-runs/{name}/state": {"state": "Stop"},
    "POST /api/v1/staged-runs/{name}/approve": {"stage": "prod"},
    "POST /api/v1/staged-runs/{name}/skip-wait": {"stage": "prod"},
    "POST /api/v1/staged-runs/{name}/retry": {"cluster": "a"},
    "POST /api/v1/what-if": {"clusters": ["a"], "labels": ["region:east"], "variant": "cordon"},
    "POST /api/v1/token": {"username": "ann", "password": "a long enough password"},
}

QUERIES = {"POST /api/v1/placements/{name}/reschedule": {"confirm": "unschedule-everything"}}

pytestmark = pytest.mark.django_db


@SCHEMA.parametrize()
@settings(
    max_examples=10, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
def test_every_answer_is_as_the_schema_says(case: Any, hub: dict[str, str]) -> None:
    headers = {"Authorization": f"Token {hub['token']}"}

    case.call_and_validate(headers=headers, checks=CHECKS)

    if hub.pop("is fresh", None):
        answer = _on_what_is_there(case, hub).call_and_validate(headers=headers, checks=CHECKS)
        assert answer.status_code < 300 or answer.status_code == REFUSED.get(case.operation.label), (
            answer.text
        )


def _on_what_is_there(case: Any, hub: dict[str, str]) -> Any:
    """Make the call that works: on the objects of the hub, with a good body."""
    names = {name: hub[name] for name in case.path_parameters}
    if "/placements/{name}" in case.path or "/rollouts/{name}" in case.path:
        names["name"] = "web"
    if case.path.endswith("/faults"):
        names["name"] = "s"
    if "/rollouts/" in case.path:
        names["number"] = "1"
    if "/staged-" in case.path:
        names["name"] = "one" if "/staged-runs" in case.path else "careful"
    if "/overrides/" in case.path:
        names |= {"kind": "ClusterResourceOverride", "name": "tier"}
    if "/rounds/{number}" in case.path or "/events/{number}" in case.path:
        names["number"] = hub["event" if "/events/" in case.path else "round"]
    if "/what-if/" in case.path:
        names["number"] = hub["scenario"]
    body = BODIES.get(case.operation.label)
    given = {} if body is None else {"body": body, "media_type": "application/json"}
    query = QUERIES.get(case.operation.label, {})
    return case.operation.Case(path_parameters=names, query=query, **given)


@pytest.fixture
def _kept_connection() -> Iterator[None]:
    """Keep the application from closing the connection that holds the test's transaction."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def hub(_kept_connection: None) -> dict[str, str]:
    """Fill a hub; give an operator's token, and what stands in addresses of objects that are there."""
    joined("a", region="east")
    simulated("s", fault="silent", now=datetime.now(UTC))
    apply_resources([namespace("shop"), namespace("a")], by=None, now=NOW)
    decided("web", pick_n_spec(1))
    save_budget(BUDGET, by=None, now=NOW)
    drain("a", by=None, now=NOW)
    _give_hands_work()
    save_override(for_clusters("tier", rule(annotate(tier="1"))), by=None, now=NOW)
    waiting_run()
    scenario = ask_what_if(names=["a"], labels=[], by=None, now=NOW)
    return {
        "scenario": str(scenario.pk),
        "token": Token.objects.create(user=person("ann", "operator", "approver")).key,
        "name": "a",
        "is fresh": "yes",
        "number": "0",
        "round": "1",
        "event": str(Event.objects.latest("pk").pk),
        "decision": DecisionRecord.objects.filter(cycles__placement_name="web").earliest("pk").decision_id,
        "group": "core",
        "kind": "Namespace",
        "namespace": "-",
        "before": "p0",
        "after": "p0",
    }


def _give_hands_work() -> None:
    """Bring a placement to where every hand can be laid on it: a run, a stop, a hold, a failure."""
    advance_due(now=NOW)
    apply_resources([namespace("shop", changed="yes")], by=None, now=NOW)
    run_due()
    Placement.objects.update(is_stopped=True, held_number=1)
    Binding.objects.update(phase=Phase.FAILED, state=BindingState.BOUND)


def waiting_run() -> None:
    """Make a run on which every hand can be laid: a cluster has failed, and a stage waits."""
    saved("slow", staged_spec())
    save_strategy(strategy_document(stage("prod", before=True)), by=None, now=NOW)
    save_run(run_document("one", placementName="slow"), by=None, now=NOW)
    step = ClusterStep("a", "v").started(NOW, "").failed(NOW)
    plan = Plan((Stage("prod", (step,)),), Stage(DELETE_STAGE, ()))
    answer = Answer(plan, RunStatus.WAITING, waits=(Wait(WaitFor.TIME, "prod", until=NOW),))
    rows = StagedRun.objects.filter(name="one")
    rows.update(plan=plan.to_plain(), answer=answer_facts(answer), status=answer.status)
    ApprovalRequest.objects.create(run=rows.get(), stage="prod", side="before", asked_at=NOW)


def test_the_schema_is_valid_without_a_warning(tmp_path) -> None:
    call_command("spectacular", validate=True, fail_on_warn=True, file=str(tmp_path / "schema.yaml"))


def test_the_schema_is_served_to_everybody() -> None:
    answer = APIClient().get("/api/schema", {"format": "json"})

    assert answer.json()["openapi"].startswith("3.")
    assert "/api/v1/placements/{name}" in answer.json()["paths"]


def test_every_operation_is_told_in_words() -> None:
    schema = SchemaGenerator().get_schema(request=None, public=True)
    operations = [one for path in schema["paths"].values() for one in path.values()]

    assert len(operations) == 95
    assert [one["operationId"] for one in operations if not one.get("description")] == []
