"""One write to a hub: dry run, record, request, answer, read back (`rules/live-hub.md#bodies`)."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from clusters.drivers.kubernetes.client import Response
from clusters.models import HubWriteState
from placements.hubs.write_requests import (
    KINDS,
    ChangedSincePreviewError,
    Verb,
    WriteRequest,
)
from placements.hubs.writing import operations
from placements.hubs.writing.answers import WriteAnswer, WriteOutcome, answer_of
from placements.hubs.writing.catalogue import ACTIONS
from placements.hubs.writing.operations import (
    HubRefusedError,
    PreviewRequiredError,
    WritePreview,
)
from placements.hubs.writing.planning import (
    Planner,
    UnknownObjectError,
    WriteRefusedError,
    gitops_marks,
)
from placements.hubs.writing.sending import (
    NEVER_SENT,
    IdentityRefusedError,
    NotWritableError,
    finish,
    move,
    requester_on,
    resolve_writes,
)
from tests.hubs.hub_documents import placement
from tests.hubs.writable import WritableHub, operator, writable_hub
from tests.rows import person

pytestmark = pytest.mark.django_db
SCALE = {"name": "web", "numberOfClusters": 5}


@pytest.fixture
def hub() -> Iterator[WritableHub]:
    with writable_hub() as found:
        yield found


def answered(preview: WritePreview) -> WriteAnswer:
    assert preview.answer
    return preview.answer


def states(hub: WritableHub) -> list[str]:
    return [write.state for write in hub.writes()]


def number(hub: WritableHub) -> int:
    found: int = hub.fake.get("clusterresourceplacements", "web")["spec"]["policy"][
        "numberOfClusters"
    ]
    return found


def owns_number(hub: WritableHub, manager: str) -> None:
    """Change the number as a manager, which then alone owns it."""
    web = hub.fake.get("clusterresourceplacements", "web")
    web["spec"]["policy"]["numberOfClusters"] = 3
    hub.put("ClusterResourcePlacement", web, manager=manager)


@pytest.mark.nightly
def test_a_dry_run_shows_the_result_and_stores_nothing(hub: WritableHub) -> None:
    owns_number(hub, "fleetui")  # no conflict with oneself
    preview = hub.preview("scale", SCALE)

    assert answered(preview).is_accepted
    changed = {
        difference.path: (difference.before, difference.after, difference.by_hub)
        for difference in preview.differences
    }
    assert changed["/spec/policy/numberOfClusters"] == ("3", "5", False)
    assert changed["/spec/revisionHistoryLimit"] == ("", "10", True)
    assert preview.token
    assert number(hub) == 3
    assert (hub.writes(), hub.sent()) == ([], [])


@pytest.mark.nightly
def test_exactly_the_previewed_body_is_sent_once_and_recorded(hub: WritableHub) -> None:
    preview = hub.preview("labels", {"name": "east", "labels": {"tier": "gold"}})
    done = hub.apply("labels", preview.plan.fields, token=preview.token)

    assert done
    assert done.answer.is_accepted
    [row] = hub.writes()
    assert (row.state, row.status, row.verb, row.kind, row.name) == (
        *("accepted", 200, "patch", "MemberCluster", "east"),
    )
    assert row.requested_by == "ana"
    assert preview.request
    assert row.dry_run_digest == preview.request.digest
    assert row.body
    assert row.body["metadata"]["labels"] == {"tier": "gold"}
    east = hub.fake.get("memberclusters", "east")
    assert row.resource_version_after == east["metadata"]["resourceVersion"]
    assert east["metadata"]["labels"] == {"region": "eu", "tier": "gold"}
    assert len(hub.sent("patch")) == 1


@pytest.mark.nightly
def test_another_body_or_an_old_preview_is_not_sent(hub: WritableHub) -> None:
    preview = hub.preview("labels", {"name": "east", "labels": {"tier": "gold"}})
    for fields, token, by in (
        ({"name": "east", "labels": {"tier": "silver"}}, preview.token, None),
        (preview.plan.fields, "x", None),
        (preview.plan.fields, preview.token, operator("ben")),
    ):
        with pytest.raises(PreviewRequiredError):
            hub.apply("labels", fields, token=token, by=by)
    east = hub.fake.get("memberclusters", "east")
    hub.put(
        "MemberCluster",
        {**east, "spec": {**east["spec"], "heartbeatPeriodSeconds": 30}},
    )
    with pytest.raises(ChangedSincePreviewError):
        hub.apply("labels", preview.plan.fields, token=preview.token)
    assert (hub.writes(), hub.sent()) == ([], [])


def test_a_preview_counts_for_five_minutes(
    hub: WritableHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    preview = hub.preview("cordon", {"name": "east"})
    monkeypatch.setattr(operations, "PREVIEW_SECONDS", -1)
    with pytest.raises(PreviewRequiredError):
        hub.apply("cordon", preview.plan.fields, token=preview.token)
    monkeypatch.undo()
    hub.apply("cordon", preview.plan.fields, token=preview.token)
    assert len(hub.sent()) == 1


def test_of_two_people_who_approve_at_once_one_is_accepted(hub: WritableHub) -> None:
    spec = {"parentStageRollout": "run", "targetStage": "canary"}
    labels = {"kubernetes-fleet.io/isLatestUpdateRunApproval": "true"}
    hub.put(
        "ClusterApprovalRequest",
        {"metadata": {"name": "wait", "labels": labels}, "spec": spec},
    )
    people = [person(name, "approver") for name in ("ana", "ben")]
    previews = [hub.preview("approve", {"name": "wait"}, by=user) for user in people]
    hub.apply("approve", previews[0].plan.fields, by=people[0], token=previews[0].token)
    with pytest.raises(WriteRefusedError, match="approved already"):
        hub.apply(
            "approve", previews[1].plan.fields, by=people[1], token=previews[1].token
        )
    [condition] = hub.fake.get("clusterapprovalrequests", "wait")["status"][
        "conditions"
    ]
    assert condition["message"] == "approved by ana"
    assert len(hub.sent()) == 1

    replaced = {
        "metadata": {"name": "old", "labels": {**labels, next(iter(labels)): "false"}},
        "spec": spec,
    }
    hub.put("ClusterApprovalRequest", replaced)
    with pytest.raises(WriteRefusedError, match="newer request"):
        hub.preview("approve", {"name": "old"}, by=people[0])


@pytest.mark.nightly
@pytest.mark.django_db(transaction=True)
def test_nothing_is_sent_inside_of_a_transaction(hub: WritableHub) -> None:
    person_of_the_request = operator()
    with pytest.raises(RuntimeError, match="durable"), transaction.atomic():
        hub.apply("cordon", {"name": "east"}, by=person_of_the_request)
    assert (hub.writes(), hub.sent()) == ([], [])
    hub.apply("cordon", {"name": "east"})
    assert states(hub) == ["accepted"]


@pytest.mark.nightly
def test_conflicts_name_path_owner_and_values_and_are_forced_path_by_path(
    hub: WritableHub,
) -> None:
    owns_number(hub, "argocd-controller")
    web = hub.fake.get("clusterresourceplacements", "web")
    draft = {
        **web,
        "spec": {
            **web["spec"],
            "policy": {"placementType": "PickN", "numberOfClusters": 5},
        },
    }
    draft["metadata"] = {**web["metadata"], "labels": {"team": "shop"}}
    fields = {"manifest": draft, "base": web}

    preview = hub.preview("save", fields)
    assert answered(preview).outcome is WriteOutcome.CONFLICT
    [conflict] = answered(preview).conflicts
    assert (conflict.name, conflict.manager, conflict.operation) == (
        *("spec.policy.numberOfClusters", "argocd-controller", "Update"),
    )
    assert (conflict.ours, conflict.theirs) == (5, 3)
    assert conflict.at
    assert preview.gitops == ("field manager argocd-controller",)
    assert not preview.token

    forced = hub.preview("save", fields, overwrite=[conflict.name])
    assert answered(forced).is_accepted
    hub.apply("save", fields, overwrite=[conflict.name], token=forced.token)
    assert number(hub) == 5
    assert hub.fake.get("clusterresourceplacements", "web")["metadata"]["labels"] == {
        "team": "shop"
    }
    assert [document.get("force") for document in hub.sent("patch")] == ["true"]
    owns_number(hub, "kubectl")
    with pytest.raises(HubRefusedError) as found:
        hub.apply("scale", SCALE, overwrite=["metadata.labels.team"])
    assert found.value.answer.outcome is WriteOutcome.CONFLICT


@pytest.mark.nightly
def test_each_refusal_is_in_the_words_of_the_hub(hub: WritableHub) -> None:
    hub.fake.webhooks.append(
        lambda verb, plural, _: "no" if (verb, plural) == ("create", PLURAL) else ""
    )
    new = {**placement("new"), "apiVersion": "placement.kubernetes-fleet.io/v1beta1"}
    new["kind"] = "ClusterResourcePlacement"
    with pytest.raises(HubRefusedError) as found:
        hub.apply("save", {"manifest": new})
    assert (found.value.answer.outcome, found.value.answer.webhook) == (
        WriteOutcome.WEBHOOK,
        "vcrp.kb.io",
    )

    hub.fake.denied.add("patch memberclusters")
    preview = hub.preview("cordon", {"name": "east"})
    assert answered(preview).outcome is WriteOutcome.FORBIDDEN
    assert "memberclusters is forbidden" in answered(preview).message
    assert (hub.writes(), hub.sent()) == ([], [])


PLURAL = "clusterresourceplacements"


def test_preconditions_tell_stale_replaced_deleted_and_existing_apart(
    hub: WritableHub,
) -> None:
    with hub.writer() as writer:
        live = writer.read(f"{KINDS['ClusterResourcePlacement'].path('v1beta1')}/web")
        assert live

        def outcome(**changes: str) -> WriteOutcome:
            metadata = {
                "name": "web",
                "uid": "uid-1",
                "resourceVersion": "1",
                **changes,
            }
            body = {"metadata": metadata, "spec": {"revisionHistoryLimit": 3}}
            request = WriteRequest(
                *(
                    Verb.APPLY,
                    KINDS["ClusterResourcePlacement"],
                    "v1beta1",
                    metadata["name"],
                    body,
                ),
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
            )
            return writer.dry_run(request, live).outcome

        uid, version = live["metadata"]["uid"], live["metadata"]["resourceVersion"]
        assert outcome(uid=uid, resourceVersion=version) is WriteOutcome.ACCEPTED
        assert (
            outcome(uid=uid) is WriteOutcome.ACCEPTED
        )  # at the present version: nothing else differs
        hub.fake.put(
            PLURAL,
            {**live, "metadata": {**live["metadata"], "labels": {"team": "other"}}},
        )
        assert outcome(uid=uid, resourceVersion=version) is WriteOutcome.STALE
        assert outcome(resourceVersion=version) is WriteOutcome.REPLACED
        assert outcome(name="gone") is WriteOutcome.DELETED
        body = {"metadata": {"name": "web"}, "spec": {}}
        request = WriteRequest(
            Verb.CREATE, KINDS["ClusterResourcePlacement"], "v1beta1", "web", body
        )
        assert writer.dry_run(request, None).outcome is WriteOutcome.EXISTS


@pytest.mark.parametrize(
    ("status", "message", "outcome"),
    [
        (
            500,
            "failed to create typed patch object: .spec.polcy: field not declared in schema",
            "invalid",
        ),
        (500, "etcdserver: request timed out", "unknown"),
        (400, "strict decoding error", "invalid"),
        (413, "request entity too large", "too-large"),
        (404, "not found", "deleted"),
        (418, "teapot", "refused"),
        (422, 'admission webhook "a.b" denied the request: no', "webhook"),
    ],
)
def test_each_status_has_its_meaning(status: int, message: str, outcome: str) -> None:
    causes = [{"field": ".spec.x", "message": "m"}]
    body = {"kind": "Status", "message": message, "details": {"causes": causes}}
    metadata = {"name": "x", "uid": "u", "resourceVersion": "1"}
    request = WriteRequest(
        *(Verb.PATCH, KINDS["MemberCluster"], "v1beta1", "x", {"metadata": metadata}),
        uid="u",
        resource_version="1",
    )

    found = answer_of(request, Response(status, body), None)

    assert (str(found.outcome), found.message, found.causes[0].path) == (
        outcome,
        message,
        "spec.x",
    )


@pytest.mark.nightly
def test_a_dry_run_of_a_deletion_deletes_nothing(hub: WritableHub) -> None:
    fields = {"kind": "ClusterResourcePlacement", "name": "web"}
    preview = hub.preview("delete", fields)
    assert answered(preview).is_accepted
    assert "removed from east, west" in preview.plan.notes[0]
    assert hub.fake.get("clusterresourceplacements", "web")

    hub.apply("delete", fields, token=preview.token)
    assert ("", "web") not in hub.fake.objects[
        "placement.kubernetes-fleet.io", "clusterresourceplacements"
    ]


def test_an_answer_that_is_lost_is_resolved_by_reading_the_object(
    hub: WritableHub,
) -> None:
    hub.fake.fault("cut-after", "patch")
    with hub.writer() as writer:
        request = labels_request(hub, writer, {"tier": "gold"})
        row, answer = writer.send(request, None)

    assert answer.outcome is WriteOutcome.ACCEPTED
    [row] = hub.writes()
    assert (row.state, "has this write" in row.answer) == ("accepted", True)
    assert len(hub.sent("patch")) == 1


def labels_request(
    hub: WritableHub, writer: Any, labels: dict[str, Any]
) -> WriteRequest:
    plan = ACTIONS["labels"].plan(
        Planner(hub.hub, "ana", datetime.now(UTC), writer),
        {"name": "east", "labels": labels},
    )
    assert plan.request
    return plan.request


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("fault", "outcome", "requests"),
    [
        ("503", WriteOutcome.BUSY, 2),
        ("429", WriteOutcome.BUSY, 2),
        ("502", WriteOutcome.UNKNOWN, 1),
        ("401", WriteOutcome.UNAUTHORIZED, 1),
        ("cut", WriteOutcome.UNKNOWN, 1),
        ("html", WriteOutcome.UNKNOWN, 1),
    ],
)
def test_nothing_is_sent_twice_except_to_a_busy_hub(
    hub: WritableHub, fault: str, outcome: WriteOutcome, requests: int
) -> None:
    waits: list[float] = []
    clock = [0.0]

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock[0] += seconds

    with hub.writer() as writer:
        request = labels_request(hub, writer, {"tier": "gold"})
        writer._sleep = sleep
        writer._client._monotonic = lambda: time.monotonic() + clock[0]
        writer._monotonic = writer._client._monotonic
        hub.fake.fault(fault, "patch")
        _, answer = writer.send(request, None)

    assert answer.outcome is outcome
    assert len(hub.sent("patch")) == requests
    assert waits == [1.0] * (requests - 1)
    assert hub.fake.get("memberclusters", "east")["metadata"]["labels"] == {
        "region": "eu"
    }


def test_a_hub_that_cannot_be_reached_gets_nothing(hub: WritableHub) -> None:
    with hub.writer() as writer:
        request = labels_request(hub, writer, {"tier": "gold"})
    hub.change(connection={**hub.hub.connection, "server": "https://127.0.0.1:9"})
    with hub.writer() as writer:
        row, answer = writer.send(request, None)
    assert (answer.outcome, row.state) == (
        WriteOutcome.UNREACHABLE,
        "unreachable",
    )
    assert answer.message.startswith("Nothing was sent")


def test_a_write_without_an_answer_is_resolved_later_and_never_sent_again(
    hub: WritableHub,
) -> None:
    """The process was killed between the record and the answer; the request had arrived or not."""
    now = datetime.now(UTC)
    with hub.writer() as writer:
        arrived = labels_request(hub, writer, {"tier": "gold"})
        row = writer.record(arrived, "")
        move(row, HubWriteState.PLANNED, state=HubWriteState.SENT)
        writer._request(
            arrived, None, is_dry_run=False
        )  # and then the answer was not recorded
        late = labels_request(hub, writer, {"tier": "silver"})
        lost = writer.record(late, "")
        move(lost, HubWriteState.PLANNED, state=HubWriteState.SENT)
        writer.record(late, "")  # planned, and never sent
    patches = len(hub.sent("patch"))

    assert resolve_writes(now=now) == 0  # their senders may still be waiting
    assert resolve_writes(now=now + timedelta(seconds=30)) == 2
    assert states(hub) == ["accepted", "unknown", "unreachable"]
    assert hub.writes()[2].answer == NEVER_SENT
    assert resolve_writes(now=now + timedelta(seconds=120)) == 1
    assert states(hub) == ["accepted", "not-applied", "unreachable"]
    assert len(hub.sent("patch")) == patches
    assert not finish(hub.writes()[0], WriteAnswer(WriteOutcome.REFUSED))
    assert states(hub)[0] == "accepted"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("columns", "words"),
    [({"mode": "read"}, "read only"), ({"is_paused": True}, "paused")],
)
def test_nothing_is_sent_in_mode_read_or_while_paused(
    hub: WritableHub, columns: dict[str, Any], words: str
) -> None:
    root = User.objects.create_superuser("root")
    with hub.writer() as writer:
        request = labels_request(hub, writer, {"tier": "gold"})
        hub.change(**columns)
        for attempt in (writer.dry_run, writer.send):
            with pytest.raises(NotWritableError, match=words):
                attempt(request, None)
    with pytest.raises(NotWritableError, match=words):
        hub.preview("cordon", {"name": "east"}, by=root)
    assert (hub.writes(), hub.sent()) == ([], [])


def test_a_person_is_impersonated_with_a_prefix_and_refused_as_a_part_of_the_hub(
    hub: WritableHub,
) -> None:
    hub.change(identity="impersonate", extra_groups=["sre"])
    hub.preview("cordon", {"name": "east"})
    patch = next(seen for seen in hub.fake.seen if seen.verb == "patch")
    assert patch.headers["impersonate-user"] == "fleetui:ana"
    raw = next(request for request in hub.server.requests if request.method == "PATCH")
    assert raw.headers["impersonate-group"] in ("sre", "fleetui:operator, sre")
    reads = [seen for seen in hub.fake.seen if seen.verb == "get"]
    assert not any("impersonate-user" in read.headers for read in reads)

    hub.fake.strangers.add("fleetui:ana")
    refused = hub.preview("uncordon", {"name": "east"})
    assert refused.is_unchanged  # the dry run cordoned nothing
    again = hub.preview("labels", {"name": "east", "labels": {"a": "b"}})
    assert answered(again).outcome is WriteOutcome.FORBIDDEN

    found = hub.hub
    for prefix, groups, user in (
        ("", [], "ana"),
        ("system:", [], "ana"),
        ("sys", [], "tem:masters"),
        ("fleetui:", ["system:masters"], "ana"),
        ("fleetui:", [], "jürgen"),
        ("fleetui:", [], "a\r\nImpersonate-User: root"),
    ):
        found.user_prefix, found.extra_groups = prefix, groups
        with pytest.raises(IdentityRefusedError):
            requester_on(found, user, "operator")


def test_secrets_are_neither_recorded_nor_in_messages(hub: WritableHub) -> None:
    hub.fake.webhooks.append(lambda *_: "value c2VjcmV0LXRleHQ= is wrong")
    override = {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": "ClusterResourceOverride",
        "metadata": {"name": "keys"},
        "spec": {
            "clusterResourceSelectors": [
                {"group": "", "version": "v1", "kind": "Namespace", "name": "web"}
            ],
            "policy": {
                "overrideRules": [
                    {
                        "clusterSelector": {"clusterSelectorTerms": []},
                        "jsonPatchOverrides": [
                            {
                                "op": "add",
                                "path": "/data/key",
                                "value": "c2VjcmV0LXRleHQ=",
                            }
                        ],
                    }
                ]
            },
        },
    }
    with pytest.raises(HubRefusedError) as found:
        hub.apply("save", {"manifest": override})
    assert "c2VjcmV0" not in found.value.answer.message
    hub.fake.webhooks.clear()
    hub.apply("save", {"manifest": override})
    [row] = hub.writes()
    assert "c2VjcmV0" not in str(row.body) + row.answer
    stored = hub.fake.get("clusterresourceoverrides", "keys")
    assert "c2VjcmV0" in str(stored["spec"])
    assert stored["metadata"]["annotations"] == {"fleetui.io/requested-by": "ana"}


def test_what_the_hub_could_not_carry_out_is_refused_here(hub: WritableHub) -> None:
    with pytest.raises(UnknownObjectError):
        hub.preview("cordon", {"name": "nowhere"})
    with pytest.raises(WriteRefusedError, match="no binding"):
        hub.preview("evict", {"placement": "web", "cluster": "north"})
    hub.fake.put(
        "clusterresourceplacements",
        {**placement("all"), "spec": {"resourceSelectors": []}},
    )
    with pytest.raises(WriteRefusedError, match="PickAll"):
        hub.preview("scale", {**SCALE, "name": "all"})
    assert hub.sent() == []


def test_gitops_tools_are_recognised_by_managers_labels_and_annotations() -> None:
    def marks(manager: str, **metadata: Any) -> tuple[str, ...]:
        return gitops_marks(
            {"metadata": {"managedFields": [{"manager": manager}], **metadata}}
        )

    assert marks("kubectl") == marks("Go-http-client") == ()
    assert marks("flux-client-side-apply") == ("field manager flux-client-side-apply",)
    tracked = {"annotations": {"argocd.argoproj.io/tracking-id": "x"}}
    assert "field manager Go-http-client" in marks("Go-http-client", **tracked)
    assert marks("kubectl", labels={"app.kubernetes.io/managed-by": "Helm"}) == (
        "label app.kubernetes.io/managed-by=Helm",
    )
