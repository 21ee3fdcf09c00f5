"""The schema is valid, complete, and what the API really does."""

import json
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
import schemathesis
from django.contrib.auth.models import Permission
from django.core.cache import caches
from django.core.handlers.wsgi import WSGIHandler
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation, BaseSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from clusters.connection_input import ConnectionInput
from clusters.models import HubStream, MirroredObject
from clusters.operations.connection import set_connection
from fleetui.access.models import ApiToken
from fleetui.hub_scope import in_hub
from fleetui.models import Event
from placements.engine.exact.record import REQUEST_OPTIONS, exact_search
from placements.engine.rollout.staged_run import (
    DELETE_STAGE,
    ClusterStep,
    RunStatus,
    Stage,
    StagedRunPlan,
    StagedUpdateResult,
    Wait,
    WaitReason,
)
from placements.engine.rollout.state import Phase
from placements.explain.staged_updates import staged_document
from placements.hubs.connections.operations import HubSpec, save_hub
from placements.manifests.binding import BindingState
from placements.models import (
    ApprovalRequest,
    Binding,
    DecisionRecord,
    Placement,
    StagedRun,
    WaitingRemoval,
)
from placements.services.decisions import exact
from placements.services.decisions.records import recorded
from placements.services.disruption.budgets import save_budget
from placements.services.disruption.drains import drain
from placements.services.disruption.evictions import evict
from placements.services.loss.report import start_report
from placements.services.notifications.operations import (
    RuleInput,
    save_channel,
    save_rule,
    send_test,
)
from placements.services.overrides.operations import save_override
from placements.services.resources.operations import apply_resources
from placements.services.rollouts.controller import sync_due_rollouts
from placements.services.rollouts.staged_runs import save_run, save_strategy
from tests.api.schema import example_problems, generated_schema
from tests.commands import call_command
from tests.database import rolled_back
from tests.rows import (
    NOW,
    api_token,
    assertion_entry,
    checks_file,
    decided,
    joined,
    member_document,
    namespace,
    person,
    pick_n_spec,
    placement_document,
    run_due,
    save_entries,
    saved,
    simulated,
)
from tests.services.rollouts.overrides import annotate, for_clusters, rule
from tests.services.rollouts.staged import (
    run_document,
    stage,
    staged_spec,
    strategy_document,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
PARTS = 6
"""The operations are tested in so many tests of about the same length, for the cores to share."""
EXAMPLES = 10
"""Generated calls of each operation, beside the one that works."""


@cache
def read_schema() -> BaseSchema:
    """Return the schema as schemathesis reads it; not at import, since it takes seconds."""
    schema = schemathesis.openapi.from_dict(generated_schema())
    schema.app = WSGIHandler()  # when its static files have their folder
    return schema


BUDGET = {
    "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
    "kind": "ClusterResourcePlacementDisruptionBudget",
    "metadata": {"name": "web"},
    "spec": {"maxUnavailable": 1},
}
REFUSED = {
    "POST /api/v1/placements/{name}/abandon-cluster": 409,
    "POST /api/v1/clusters/{name}/connection/renew": 409,
    "POST /api/v1/hubs/{name}/writes": 409,
    "POST /api/v1/placements/{name}/reapply": 422,
    "POST /api/v1/placements/{name}/bindings/{cluster}/objects/read": 409,
    "GET /api/v1/decisions/{decision}/hub": 404,
}
"""What is refused even where everything is there: nothing is being deleted or applied, no token expires.

Only a live hub has decisions of its own.
"""
BODIES = {
    "POST /api/v1/clusters/{name}/removals": {
        "placement": "ghost",
        "decision": "confirm",
    },
    "POST /api/v1/cluster-changes": {
        "action": "labels",
        "names": ["a"],
        "labels": {"tier": "edge"},
    },
    "POST /api/v1/cluster-imports": {"name": "imported"},
    "POST /api/v1/tokens": {"name": "deploy", "scopes": ["read"], "days": 1},
    "POST /api/v1/apply": {
        "items": [namespace("shop"), member_document("a")],
        "kind": "List",
    },
    "PUT /api/v1/checks-file": {
        "text": checks_file(assertion_entry("gold", {"minFree": 1}))
    },
    "PUT /api/v1/clusters/{name}": member_document("a"),
    "PUT /api/v1/clusters/{name}/labels": {"region": "west"},
    "PATCH /api/v1/clusters/{name}/labels": {"region": None},
    "PUT /api/v1/clusters/{name}/taints": [{"key": "gpu", "effect": "NoSchedule"}],
    "POST /api/v1/clusters/{name}/heartbeat": {
        "healthy": True,
        "usage": {"capacity": {"cpu": "4"}},
    },
    "PUT /api/v1/clusters/{name}/connection": {
        "server": "https://member.invalid",
        "token": "one",
    },
    "POST /api/v1/clusters/{name}/connection/check": {
        "server": "https://member.invalid",
        "token": "one",
    },
    "PUT /api/v1/placements/{name}": placement_document("web", pick_n_spec(2)),
    "PATCH /api/v1/placements/{name}": {"metadata": {"annotations": {"team": "a"}}},
    "PATCH /api/v1/overrides/{kind}/{namespace}/{name}": {
        "metadata": {"annotations": {"team": "a"}}
    },
    "PATCH /api/v1/staged-strategies/{name}": {
        "metadata": {"annotations": {"team": "a"}}
    },
    "POST /api/v1/placements/preview": placement_document("web", pick_n_spec(2)),
    "POST /api/v1/clusters/{name}/drain": {
        "atOnce": 2,
        "order": ["web"],
        "deadlineSeconds": 60,
    },
    "POST /api/v1/placements/preview/semantics": placement_document(
        "web", pick_n_spec(2)
    ),
    "POST /api/v1/placements/{name}/evict": {"cluster": "a"},
    "POST /api/v1/placements/{name}/abandon-cluster": {"cluster": "a"},
    "PUT /api/v1/placements/{name}/budget": BUDGET,
    "PUT /api/v1/clusters/{name}/fault-injection": [{"kind": "silent"}],
    "POST /api/v1/placements/{name}/plan": placement_document("web", pick_n_spec(2)),
    "POST /api/v1/placements/{name}/retry": {"cluster": "a"},
    "POST /api/v1/placements/{name}/reapply": {"clusters": ["a"]},
    "POST /api/v1/placements/{name}/rollback": {"resourceSnapshot": 0},
    "PUT /api/v1/resources/{group}/{kind}/{namespace}/{name}": namespace("a"),
    "POST /api/v1/simulate": {
        "clusters": [{"name": "a"}],
        "placement": placement_document("web", pick_n_spec(1)),
    },
    "PUT /api/v1/overrides/{kind}/{namespace}/{name}": for_clusters(
        "tier", rule(annotate(tier="2"))
    ),
    "POST /api/v1/staged-strategies/{name}/preview": {"placement": "slow"},
    "PUT /api/v1/staged-strategies/{name}": strategy_document(stage("other")),
    "PUT /api/v1/staged-runs/{name}": run_document(
        "one", state="Stop", placementName="slow"
    ),
    "POST /api/v1/staged-runs/{name}/state": {"state": "Stop"},
    "POST /api/v1/staged-runs/{name}/approve": {"stage": "prod"},
    "POST /api/v1/staged-runs/{name}/skip-wait": {"stage": "prod"},
    "POST /api/v1/staged-runs/{name}/retry": {"cluster": "a"},
    "POST /api/v1/what-if/resilience": {"keys": ["region"], "variants": ["leave"]},
    "POST /api/v1/decisions/{decision}/exact": {
        "stages": ["n", "skew"],
        "limitSeconds": 5,
    },
    "POST /api/v1/what-if": {
        "clusters": ["a"],
        "labels": ["region:east"],
        "variant": "cordon",
        "decision": "web",
    },
    "POST /api/v1/hubs": {
        "name": "b",
        "connection": {"server": "https://hub.invalid", "token": "one"},
    },
    "PATCH /api/v1/hubs/{name}": {"title": "Production"},
    "POST /api/v1/hubs/{name}/writes": {"action": "cordon", "name": "east"},
    "PUT /api/v1/notifications/channels/{name}": {
        "kind": "webhook",
        "address": "https://hooks.invalid/fleet",
        "key": "a long random text",
    },
    "PUT /api/v1/notifications/rules/{name}": {
        "channel": "chat",
        "events": ["cluster-not-ready", "drift"],
        "label": "team=payments",
        "quietFrom": "22:00",
        "quietUntil": "07:00",
        "timeZone": "Europe/Berlin",
        "reminderHours": 4,
    },
    "POST /api/v1/token": {"username": "ann", "password": "a long enough password"},
}

QUERIES = {
    "POST /api/v1/placements/{name}/reschedule": {"confirm": "unschedule-everything"},
    "PUT /api/v1/clusters/{name}/connection": {"confirm": "failed-check"},
    "POST /api/v1/hubs": {"confirm": "failed-check"},
}

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("part", range(PARTS))
def test_every_operation_answers_as_the_schema_says(
    part: int, hub: dict[str, str], subtests: pytest.Subtests
) -> None:
    for operation in _operations(part):
        with subtests.test(operation.label), rolled_back():
            _answers_what_is_there(operation, hub)


@pytest.mark.nightly
@pytest.mark.hypothesis
@pytest.mark.parametrize("part", range(PARTS))
def test_any_call_is_answered_as_the_schema_says(
    part: int, hub: dict[str, str], subtests: pytest.Subtests
) -> None:
    for operation in _operations(part):
        with subtests.test(operation.label), rolled_back():
            _answers_anything(operation, hub)


def _operations(part: int) -> Iterator[APIOperation]:
    for found in list(read_schema().get_all_operations())[part::PARTS]:
        assert isinstance(found, Ok)
        yield found.ok()


def _answers_what_is_there(operation: APIOperation, hub: dict[str, str]) -> None:
    """Make the call that works: on the objects of the hub, with a good body."""
    answer = on_what_is_there(operation, hub).call_and_validate(
        headers=_headers(hub), checks=CHECKS
    )

    assert answer.status_code < 300 or answer.status_code == REFUSED.get(
        operation.label
    ), answer.text


def _answers_anything(operation: APIOperation, hub: dict[str, str]) -> None:
    """Make calls that the schema allows, and calls that it does not."""

    @given(
        st.one_of(
            [operation.as_strategy(generation_mode=mode) for mode in GenerationMode]
        )
    )
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def answers(case: Any) -> None:
        case.call_and_validate(headers=_headers(hub), checks=CHECKS)

    answers()


def _headers(hub: dict[str, str]) -> dict[str, str]:
    # The transport in this process does not decompress.
    return {"Authorization": f"Token {hub['token']}", "Accept-Encoding": "identity"}


def on_what_is_there(operation: APIOperation, hub: dict[str, str]) -> Any:
    names = {
        parameter.name: hub[parameter.name] for parameter in operation.path_parameters
    }
    for part, there in (
        ("/placements/{name}", {"name": "web"}),
        ("/rollouts/{name}", {"name": "web", "number": "1"}),
        ("/fault-injection", {"name": "s"}),
        ("/connection", {"name": "real"}),
        ("/hubs/", {"name": "prod-eu", "group": "-"}),
        ("/staged-strategies", {"name": "careful"}),
        ("/staged-runs", {"name": "one"}),
        ("/approvals", {"name": "one-before-prod"}),
        ("/notifications/channels", {"name": "chat"}),
        ("/notifications/rules", {"name": "payments"}),
        ("/budgets/", {"name": "web"}),
        ("/exact/{name}", {"name": hub["search"]}),
        ("/evictions/", {"number": hub["eviction"]}),
        ("/overrides/", {"kind": "ClusterResourceOverride", "name": "tier"}),
    ):
        if part in operation.path:
            names |= {key: value for key, value in there.items() if key in names}
    if "/rounds/{number}" in operation.path or "/events/{number}" in operation.path:
        names["number"] = hub["event" if "/events/" in operation.path else "round"]
    if "/tokens/" in operation.path:
        names["number"] = hub["token_number"]
    body = BODIES.get(operation.label)
    sent: dict[str, Any] = (
        {} if body is None else {"body": body, "media_type": "application/json"}
    )
    query = QUERIES.get(operation.label, {})
    return operation.Case(path_parameters=names, query=query, **sent)


@pytest.fixture
def hub(kept_connection: None) -> dict[str, str]:  # noqa: ARG001 -- for what it does
    """Fill a hub; return an operator's token, and the parts of the addresses of its objects."""
    return filled_hub()


def filled_hub() -> dict[str, str]:
    joined("a", region="east")
    simulated("s", fault="silent", now=datetime.now(UTC))
    fields = {"server": "https://member.invalid", "token": "one"}
    set_connection(
        "real",
        ConnectionInput(fields=fields),
        by=None,
        now=NOW,
        joins=True,
        confirmed=True,
    )
    mirrored_namespace("prod-eu", "shop")
    WaitingRemoval.objects.create(
        placement_name="ghost",
        cluster_name="a",
        objects_count=3,
        of_objects=20,
        reason="This console has never had a placement of this name, as after a restored backup.",
        noted_at=NOW,
    )
    apply_resources([namespace("shop"), namespace("a")], by=None, now=NOW)
    decided("web", pick_n_spec(1))
    save_budget(BUDGET, by=None, now=NOW)
    save_entries(assertion_entry("gold", {"minFree": 1}, placements=["web"]))
    drain(["a"], by=None, now=NOW)
    _allow_every_action()
    save_override(for_clusters("tier", rule(annotate(tier="1"))), by=None, now=NOW)
    waiting_run()
    webhook = {"address": "https://hooks.invalid/fleet", "key": "a long random text"}
    save_channel("chat", "webhook", webhook, by=None, now=NOW)
    save_rule(RuleInput("payments", "chat", ("drift",)), by=None, now=NOW)
    ann = person("ann", "operator", "approver", "cluster-administrator")
    permissions = ("change_notificationchannel", "view_access_log")
    ann.user_permissions.add(*Permission.objects.filter(codename__in=permissions))
    send_test("chat", by=ann, now=NOW)
    start_report(by=None, now=NOW)
    decision = (
        DecisionRecord.objects.filter(cycles__placement_name="web")
        .earliest("pk")
        .decision_id
    )
    search = exact_search(recorded(decision)[1])
    caches["default"].set_many(
        {search.id: search, exact._request(search.id): (decision, REQUEST_OPTIONS)}
    )
    return {
        "token": api_token(ann),
        "token_number": str(ApiToken.objects.get().pk),
        "name": "a",
        "cluster": "a",
        "number": "0",
        "round": "1",
        "eviction": str(evict("missing", "nowhere", by=None, now=NOW).pk),
        "event": str(Event.objects.latest("pk").pk),
        "decision": decision,
        "search": search.id,
        "group": "core",
        "kind": "Namespace",
        "namespace": "-",
        "object_name": "shop",
        "before": "p0",
        "after": "p0",
    }


def mirrored_namespace(hub: str, name: str) -> None:
    """Add a live hub with one object in its mirror."""
    wanted = ConnectionInput(fields={"server": "https://hub.invalid", "token": "one"})
    saved = save_hub(HubSpec(hub), wanted, by=None, now=NOW, confirmed=True)
    with in_hub(saved.owner.pk):
        stream = HubStream.objects.create(
            version="v1", plural="namespaces", kind="Namespace", form="metadata"
        )
        content = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        MirroredObject.objects.create(
            stream=stream,
            kind="Namespace",
            name=name,
            uid="u1",
            resource_version="1",
            manifest=zlib.compress(json.dumps(content).encode()),
            size=100,
            seen_at=NOW,
            changed_at=NOW,
        )


def _allow_every_action() -> None:
    """Bring a placement into a state that allows every action: a run, stopped, pinned, with a failure."""
    sync_due_rollouts(now=NOW)
    apply_resources([namespace("shop", changed="yes")], by=None, now=NOW)
    run_due()
    Placement.objects.update(is_stopped=True, pinned_snapshot=1)
    Binding.objects.update(phase=Phase.FAILED, state=BindingState.BOUND)


def waiting_run() -> None:
    """Make a run that allows every action: a cluster has failed, and a stage waits."""
    saved("slow", staged_spec())
    save_strategy(strategy_document(stage("prod", before=True)), by=None, now=NOW)
    save_run(run_document("one", placementName="slow"), by=None, now=NOW)
    step = ClusterStep("a", "v").start(NOW, "", 1).fail(NOW)
    plan = StagedRunPlan(
        (Stage("prod", (step,), updated_at=NOW),), Stage(DELETE_STAGE, ())
    )
    answer = StagedUpdateResult(
        plan, RunStatus.WAITING, waits=(Wait(WaitReason.TIME, "prod", until=NOW),)
    )
    rows = StagedRun.objects.filter(name="one")
    rows.update(
        plan=plan.to_plain(), sync_result=staged_document(answer), status=answer.status
    )
    ApprovalRequest.objects.create(
        run=rows.get(), stage="prod", side="before", requested_at=NOW
    )


@pytest.mark.nightly
def test_the_schema_is_valid_without_a_warning(tmp_path) -> None:
    call_command(
        "spectacular",
        validate=True,
        fail_on_warn=True,
        file=str(tmp_path / "schema.yaml"),
    )


def test_every_operation_has_a_description() -> None:
    operations = [
        one for path in generated_schema()["paths"].values() for one in path.values()
    ]

    assert len(operations) == 155
    assert [
        operation["operationId"]
        for operation in operations
        if not operation.get("description")
    ] == []


def test_every_operation_has_an_example_that_was_accepted_and_is_valid() -> None:
    """The requests are those that `_answers_what_is_there` sends; `write_examples` records the responses."""
    faults = []
    for path, operations in generated_schema()["paths"].items():
        for method, one in operations.items():
            faults += [
                f"{method.upper()} {path}: {fault}"
                for fault in _example_faults(method, path, one)
            ]

    assert faults == [], (
        "Run python -m tests.api.write_examples if responses have changed"
    )


def _example_faults(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    sent = BODIES.get(f"{method.upper()} {path}")
    requests = list(operation.get("requestBody", {}).get("content", {}).values())
    if sent is not None and any(request.get("example") != sent for request in requests):
        yield "the request is not what the tests send"
    answers = [
        response.get("content", {}) for response in operation["responses"].values()
    ]
    examples = [
        each for answer in answers for each in answer.values() if "example" in each
    ]
    is_empty = "content" not in operation["responses"].get("204", {"content": {}})
    if not examples and not is_empty:
        yield "no example of a response"
    for content in (
        *(request for request in requests if "example" in request),
        *examples,
    ):
        yield from example_problems(content)


def test_every_list_has_a_cursor_apart_from_those_that_are_bounded() -> None:
    """A cluster has at most 100 taints and lists 500 removals, a hub one stream of each kind.

    The inbox has the first items of each kind, and their number; the checks have a few findings by placement.
    """
    schemas = generated_schema()["components"]["schemas"]
    without = set()
    for path, operations in generated_schema()["paths"].items():
        for answer in [operations.get("get", {}).get("responses", {}).get("200", {})]:
            found = (
                answer.get("content", {}).get("application/json", {}).get("schema", {})
            )
            found = (
                schemas[found["$ref"].rpartition("/")[2]] if "$ref" in found else found
            )
            fields = found.get("properties", {})
            if found.get("type") == "array" or (
                "items" in fields and "next" not in fields
            ):
                without.add(path.removeprefix("/api/v1/"))

    assert without == {
        *(
            f"clusters/{{name}}/{one}"
            for one in ("taints", "fault-injection", "removals")
        ),
        *(
            "hubs/{name}/actions",
            "hubs/{name}/permissions",
            "hubs/{name}/streams",
            "inbox",
            "checks",
        ),
    }


FREE = {
    *(
        "AccessEvent.details",
        "Candidate.constraints",
        "Comparison.semantics",
        "Decision.exact",
    ),
    "FleetSnapshot.clusters",
    *(
        "HubDecision.decisions",
        "HubDecision.differences",
        "ManifestPair.after",
        "ManifestPair.before",
    ),
    *("Plan.rest", "PolicyChange.facts", "PolicySnapshot.options", "Reason.facts"),
    *(
        "ResourceSnapshot.manifests",
        "Simulate.placement",
        "Wave.actions",
        "Wave.budgets",
    ),
}
"""Where an object has any structure: what people wrote, facts of many kinds, and documents of others."""


def test_objects_without_a_known_structure_are_listed() -> None:
    free = {
        f"{name}.{field}"
        for name, component in generated_schema()["components"]["schemas"].items()
        for field, schema in component.get("properties", {}).items()
        if "/AnyObject" in json.dumps(schema)
    }

    assert free == FREE
