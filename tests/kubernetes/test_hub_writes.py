"""Writes to a hub on a real API server: conflicts, preconditions, identity, lost answers.

See `rules/live-hub.md#sending`.
"""

import http.client
import json
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.core.cache import caches
from django.test import override_settings

from clusters.models import Hub, HubStream, HubWrite
from fleetui.hub_scope import in_hub
from placements.hubs.write_requests import KINDS, Verb, WriteRequest, merge_patch
from placements.hubs.writing.answers import WriteAnswer, WriteOutcome
from placements.hubs.writing.catalogue import ACTIONS
from placements.hubs.writing.operations import (
    HubRefusedError,
    WritePreview,
    apply_write,
    preview_write,
)
from placements.hubs.writing.planning import WriteRefusedError
from placements.hubs.writing.sending import open_writer
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.servers import LocalServer, Request, answer, serve
from tests.hubs.hub_documents import member, placement
from tests.hubs.watching import connected_hub, set_token
from tests.kubernetes.hub_server import HubServer, hub_server
from tests.kubernetes.test_hub_mirror import Console, staged_run
from tests.rows import person
from tests.runtime.processes import ROOT, eventually, watching
from tests.runtime.test_watch_hubs import manage

pytestmark = pytest.mark.django_db
CRP = "ClusterResourcePlacement"
NUMBER = "spec.policy.numberOfClusters"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    with hub_server(tmp_path_factory.mktemp("hub")) as found:
        for name in ("operator", "approver"):
            found.kubectl("apply", "-f", str(ROOT / "docs" / "hubs" / f"{name}.yaml"))
        yield found


class Hubs:
    """The hub with a console that may write; `path` is that of an object of the test."""

    def __init__(self, server: HubServer) -> None:
        self.server = server
        connection = server.member.connection
        self.hub = connected_hub(LocalServer(0), mode="operate", state="live")
        set_token(self.hub, server.token)
        self.use(connection.server, connection.ca)
        with in_hub(self.hub.pk):
            for kind in KINDS.values():
                HubStream.objects.create(
                    group=kind.group,
                    version="v1beta1",
                    plural=kind.plural,
                    kind=kind.kind,
                    form="full",
                )
        caches["process"].clear()

    def use(self, server: str, ca: str) -> None:
        Hub.objects.filter(pk=self.hub.pk).update(
            connection={"server": server, "ca": ca}
        )
        self.hub = Hub.objects.select_related("credential").get(pk=self.hub.pk)

    def change(self, **columns: Any) -> None:
        Hub.objects.filter(pk=self.hub.pk).update(**columns)
        self.hub = Hub.objects.select_related("credential").get(pk=self.hub.pk)

    def path(self, kind: str, name: str) -> str:
        return f"{KINDS[kind].path('v1beta1')}/{name}"

    def get(self, kind: str, name: str) -> dict[str, Any]:
        return self.server.admin.get(self.path(kind, name))

    def fresh_placement(self, name: str, *, by: str = "kubectl") -> dict[str, Any]:
        """Make a placement again, by a manager that owns all of it."""
        self.server.delete("clusterresourceplacements", name)
        body = {
            **placement(name),
            "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
            "kind": CRP,
        }
        done = self.server.admin.call(
            "POST", KINDS[CRP].path("v1beta1"), body=body, query={"fieldManager": by}
        )
        assert done.status == 201, done
        return dict(done.body)

    def _options(self, role: str) -> dict[str, Any]:
        return {"by": person_with(role), "now": datetime.now(UTC)}

    def preview(
        self, action: str, fields: Any, role: str = "operator", **options: Any
    ) -> WritePreview:
        return preview_write(
            self.hub, ACTIONS[action], fields, **self._options(role), **options
        )

    def apply(
        self, action: str, fields: Any, role: str = "operator", **options: Any
    ) -> Any:
        return apply_write(
            self.hub, ACTIONS[action], fields, **self._options(role), **options
        )

    def writes(self) -> list[HubWrite]:
        with in_hub(self.hub.pk):
            return list(HubWrite.objects.order_by("pk"))


def person_with(role: str) -> Any:
    return User.objects.filter(username=f"ana-{role}").first() or person(
        f"ana-{role}", role
    )


@pytest.fixture
def hub(server: HubServer) -> Iterator[Hubs]:
    with override_settings(MEMBER_LOOPBACK=True):
        yield Hubs(server)


def answered(preview: WritePreview) -> WriteAnswer:
    assert preview.answer
    return preview.answer


def test_a_partial_apply_takes_one_field_and_a_dry_run_nothing(hub: Hubs) -> None:
    live = hub.fresh_placement("partial", by="fleetui")
    draft = json.loads(json.dumps(live))
    draft["spec"]["policy"]["numberOfClusters"] = 5
    draft["metadata"]["labels"] = {"team": "shop"}

    preview = hub.preview("save", {"manifest": draft, "base": live})
    assert answered(preview).is_accepted, answered(preview)
    assert {
        difference.path: difference.after for difference in preview.differences
    } == {
        "/metadata/labels": '{"team":"shop"}',
        "/spec/policy/numberOfClusters": "5",
    }
    assert (
        hub.get(CRP, "partial")["metadata"]["resourceVersion"]
        == live["metadata"]["resourceVersion"]
    )

    done = hub.apply("save", {"manifest": draft, "base": live}, token=preview.token)
    stored = hub.get(CRP, "partial")
    assert stored["spec"]["policy"] == {"placementType": "PickN", "numberOfClusters": 5}
    assert done.row.resource_version_after == stored["metadata"]["resourceVersion"]
    ours = [
        field
        for field in stored["metadata"]["managedFields"]
        if (field["manager"], field["operation"]) == ("fleetui", "Apply")
    ]
    assert ours[0]["fieldsV1"]["f:spec"] == {"f:policy": {"f:numberOfClusters": {}}}

    # The next edit keeps what this one owns.
    draft["spec"]["revisionHistoryLimit"] = 4
    base = {**stored, "spec": {**stored["spec"]}}
    hub.apply("save", {"manifest": draft, "base": base})
    again = hub.get(CRP, "partial")
    assert (
        again["spec"]["policy"]["numberOfClusters"],
        again["metadata"]["labels"],
    ) == (5, {"team": "shop"})


def test_a_creation_adds_defaults_and_exists_once(hub: Hubs) -> None:
    hub.server.delete("clusterresourceplacements", "created")
    body = {
        **placement("created"),
        "apiVersion": "placement.kubernetes-fleet.io/v1",
        "kind": CRP,
    }

    preview = hub.preview("save", {"manifest": body})
    assert answered(preview).is_accepted, answered(preview)
    added = {difference.path for difference in preview.differences if difference.by_hub}
    assert {"/spec/revisionHistoryLimit", "/spec/statusReportingScope"} <= added
    assert not hub.server.admin.has(hub.path(CRP, "created"))

    hub.apply("save", {"manifest": body}, token=preview.token)
    stored = hub.get(CRP, "created")
    assert stored["metadata"]["annotations"] == {
        "fleetui.io/requested-by": "ana-operator"
    }
    with open_writer(hub.hub, person="ana", role="operator") as writer:
        assert preview.request
        assert writer.dry_run(preview.request, None).outcome is WriteOutcome.EXISTS

    # What the console created it may change: it owns that as another manager than what it applies.
    hub.apply("scale", {"name": "created", "numberOfClusters": 7})
    assert hub.get(CRP, "created")["spec"]["policy"]["numberOfClusters"] == 7
    hub.apply("delete", {"kind": CRP, "name": "created"})
    assert not hub.server.admin.has(hub.path(CRP, "created"))
    assert [write.verb for write in hub.writes()] == ["create", "apply", "delete"]


def test_each_conflict_has_its_path_and_its_owner(hub: Hubs) -> None:
    live = hub.fresh_placement("owned")
    hub.server.admin.merge(
        hub.path(CRP, "owned"),
        {"metadata": {"labels": {"a.b/c": "x"}}},
        manager="argocd-controller",
    )
    base = hub.get(CRP, "owned")
    draft = json.loads(json.dumps(base))
    draft["spec"]["policy"]["numberOfClusters"] = 5
    draft["metadata"]["labels"]["a.b/c"] = "y"
    draft["spec"]["resourceSelectors"][0]["name"] = "other"
    draft["spec"]["revisionHistoryLimit"] = 3

    preview = hub.preview("save", {"manifest": draft, "base": base})
    found = {
        conflict.name: (conflict.manager, conflict.ours, conflict.theirs)
        for conflict in answered(preview).conflicts
    }
    # A default has the owner of the request that it came with.
    assert found == {
        NUMBER: ("kubectl", 5, 2),
        'metadata.labels["a.b/c"]': ("argocd-controller", "y", "x"),
        "spec.resourceSelectors": (
            *(
                "kubectl",
                draft["spec"]["resourceSelectors"],
                base["spec"]["resourceSelectors"],
            ),
        ),
        **(
            {"spec.revisionHistoryLimit": found["spec.revisionHistoryLimit"]}
            if len(found) == 4
            else {}
        ),
    }
    assert all(
        conflict.at and conflict.operation == "Update"
        for conflict in answered(preview).conflicts
    )
    assert preview.gitops == ("field manager argocd-controller",)
    assert live["metadata"]["uid"] == base["metadata"]["uid"]

    with pytest.raises(HubRefusedError):
        hub.apply("save", {"manifest": draft, "base": base}, overwrite=[NUMBER])
    hub.apply("save", {"manifest": draft, "base": base}, overwrite=[*found])
    after = hub.get(CRP, "owned")
    assert after["spec"]["policy"]["numberOfClusters"] == 5
    assert after["metadata"]["labels"] == {"a.b/c": "y"}
    assert after["spec"]["resourceSelectors"] == draft["spec"]["resourceSelectors"]


def test_a_field_of_another_manager_is_removed_by_a_merge_patch(hub: Hubs) -> None:
    hub.fresh_placement("removing")
    path = hub.path(CRP, "removing")
    hub.server.admin.merge(path, {"spec": {"revisionHistoryLimit": 3}})
    base = hub.get(CRP, "removing")
    draft = json.loads(json.dumps(base))
    del draft["spec"]["revisionHistoryLimit"]

    hub.apply("save", {"manifest": draft, "base": base})
    assert hub.get(CRP, "removing")["spec"]["revisionHistoryLimit"] == 10  # the default
    assert [write.verb for write in hub.writes()] == ["patch"]


def test_each_precondition_is_distinguished(hub: Hubs) -> None:
    live = hub.fresh_placement("conditions")
    metadata = live["metadata"]
    edited_since = {**live, "spec": {**live["spec"], "revisionHistoryLimit": 3}}

    def outcome(
        verb: Verb,
        name: str = "conditions",
        previewed: dict[str, Any] = live,
        **changes: str,
    ) -> WriteOutcome:
        named = {
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            **changes,
        }
        body: dict[str, Any] = {
            "apiVersion": live["apiVersion"],
            "kind": CRP,
            "metadata": {"name": name, **named},
            "spec": {"statusReportingScope": "ClusterScopeOnly"},
        }
        if verb is Verb.DELETE:
            body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": named}
        if verb is Verb.PATCH:
            body = merge_patch(
                {**live, "metadata": named}, {("spec", "statusReportingScope"): "X"}
            )
        request = WriteRequest(
            *(verb, KINDS[CRP], "v1beta1", name, body),
            uid=named["uid"],
            resource_version=named["resourceVersion"],
        )
        with open_writer(hub.hub, person="ana", role="operator") as writer:
            return writer.dry_run(request, previewed).outcome

    for verb in (Verb.APPLY, Verb.PATCH, Verb.DELETE):
        assert outcome(verb) is WriteOutcome.ACCEPTED, verb
        assert outcome(verb, resourceVersion="1") is WriteOutcome.ACCEPTED, (
            "only the status has changed"
        )
        assert (
            outcome(verb, previewed=edited_since, resourceVersion="1")
            is WriteOutcome.STALE
        ), verb
        assert (
            outcome(verb, uid="00000000-0000-4000-8000-000000000000")
            is WriteOutcome.REPLACED
        ), verb
    assert outcome(Verb.APPLY, "gone") is WriteOutcome.DELETED
    assert outcome(Verb.PATCH, "gone") is WriteOutcome.DELETED
    assert outcome(Verb.DELETE, "gone") is WriteOutcome.DELETED
    assert not hub.server.admin.has(hub.path(CRP, "gone"))


def test_clusters_runs_and_approvals_are_written(hub: Hubs) -> None:
    for name in ("east", "west"):
        hub.server.put("memberclusters", member(name, region="eu"))
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    hub.apply("taints", {"name": "east", "taints": [taint]})
    hub.apply("cordon", {"name": "east"})
    assert [
        one["key"] for one in hub.get("MemberCluster", "east")["spec"]["taints"]
    ] == ["gpu", "cordon-key"]
    hub.apply("uncordon", {"name": "east"})
    assert hub.get("MemberCluster", "east")["spec"]["taints"] == [taint]
    assert hub.apply("uncordon", {"name": "east"}) is None
    hub.apply("labels", {"name": "east", "labels": {"region": None, "tier": "gold"}})
    assert hub.get("MemberCluster", "east")["metadata"]["labels"] == {"tier": "gold"}

    hub.fresh_placement("staged")
    staged_run(hub.server, "staged")
    hub.server.put("clusterstagedupdateruns", run_document("staged-run", "Run"))
    hub.server.put("clusterstagedupdateruns", run_document("other", "Initialize"))
    with pytest.raises(WriteRefusedError, match="cannot go"):
        hub.preview("run-state", {"name": "other", "state": "Stop"})
    hub.apply("run-state", {"name": "staged-run", "state": "Stop"})
    assert hub.get("ClusterStagedUpdateRun", "staged-run")["spec"]["state"] == "Stop"
    hub.apply("abandon-run", {"name": "staged-run"})
    assert not hub.server.admin.has(hub.path("ClusterStagedUpdateRun", "staged-run"))

    request = {
        "metadata": {"name": "wait"},
        "spec": {"parentStageRollout": "staged-run", "targetStage": "canary"},
    }
    other = {"type": "Other", "status": "True", "reason": "x", "message": ""}
    hub.server.put(
        "clusterapprovalrequests", {**request, "status": {"conditions": [other]}}
    )
    hub.apply("approve", {"name": "wait", "comment": "looks good"}, role="approver")
    found = hub.get("ClusterApprovalRequest", "wait")
    conditions = {
        condition["type"]: condition for condition in found["status"]["conditions"]
    }
    assert set(conditions) == {"Other", "Approved"}
    assert conditions["Approved"]["message"] == "approved by ana-approver: looks good"
    assert (
        conditions["Approved"]["observedGeneration"] == found["metadata"]["generation"]
    )
    with pytest.raises(WriteRefusedError, match="approved already"):
        hub.preview("approve", {"name": "wait"}, role="approver")


def run_document(name: str, state: str) -> dict[str, Any]:
    spec = {
        "placementName": "staged",
        "stagedRolloutStrategyName": "staged-stages",
        "state": state,
    }
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": []}}


def test_the_hub_decides_for_the_impersonated_person(hub: Hubs) -> None:
    hub.fresh_placement("personal")
    hub.server.kubectl("apply", "-f", str(ROOT / "docs" / "hubs" / "impersonate.yaml"))
    try:
        hub.change(identity="impersonate")
        fields = {"name": "personal", "numberOfClusters": 4}
        preview = hub.preview("scale", fields)
        assert answered(preview).outcome is WriteOutcome.CONFLICT
        hub.apply("scale", fields, overwrite=[NUMBER])
        assert hub.get(CRP, "personal")["spec"]["policy"]["numberOfClusters"] == 4

        hub.change(group_prefix="strangers:")
        refused = hub.preview("scale", {**fields, "numberOfClusters": 3})
        assert answered(refused).outcome is WriteOutcome.FORBIDDEN
        assert 'User "fleetui:ana-operator" cannot patch' in answered(refused).message
        with pytest.raises(HubRefusedError, match="cannot patch"):
            hub.apply("scale", {**fields, "numberOfClusters": 3})
    finally:
        for name in ("operator", "approver"):
            hub.server.kubectl(
                "apply", "-f", str(ROOT / "docs" / "hubs" / f"{name}.yaml")
            )


# --- lost answers ---


@contextmanager
def front(server: HubServer, *, stalls: bool = False) -> Iterator[LocalServer]:
    """Pass requests on to the hub; the answer to a write is lost, or does not come."""
    url = urlsplit(server.member.server)
    context = ssl.create_default_context(cadata=server.member.connection.ca)

    def pass_on(link: socket.socket, request: Request, here: LocalServer) -> None:
        upstream = http.client.HTTPSConnection(
            url.hostname or "", url.port, context=context, timeout=20
        )
        headers = {
            key: value
            for key, value in request.headers.items()
            if key not in ("host", "accept-encoding")
        }
        with closing(upstream):
            upstream.request(
                request.method, request.path, request.body or None, headers
            )
            found = upstream.getresponse()
            body = found.read()
        if is_write(request):
            if stalls:
                here.stopped.wait(60)
            raise OSError("the answer is lost")
        link.sendall(
            answer(found.status, raw=body, headers={"Content-Type": "application/json"})
        )

    with serve(pass_on) as here:
        yield here


def is_write(request: Request) -> bool:
    return request.method in ("PATCH", "DELETE") and "dryRun" not in request.path


def test_a_connection_cut_after_the_request_is_read_back_as_accepted(hub: Hubs) -> None:
    hub.fresh_placement("cut", by="fleetui")
    with front(hub.server) as here:
        hub.use(here.url, authority().pem)
        hub.apply("scale", {"name": "cut", "numberOfClusters": 6})
        assert sum(map(is_write, here.requests)) == 1
    [row] = hub.writes()
    assert (row.state, row.status) == ("accepted", None)
    assert (
        row.resource_version_after == hub.get(CRP, "cut")["metadata"]["resourceVersion"]
    )


SENDING = """
from datetime import UTC, datetime
from django.contrib.auth.models import Group, User
from clusters.hub_queries import live_hub
from placements.hubs.writing.catalogue import ACTIONS
from placements.hubs.writing.operations import apply_write
ana = User.objects.create_user("ana")
ana.groups.set(Group.objects.filter(name="operator"))
fields = {"name": "killed", "numberOfClusters": 6}
apply_write(live_hub("prod-eu"), ACTIONS["scale"], fields, by=ana, now=datetime.now(UTC))
"""
RESOLVING = """
from datetime import UTC, datetime, timedelta
from placements.hubs.writing.sending import resolve_writes
print("resolved", resolve_writes(now=datetime.now(UTC) + timedelta(seconds=30)))
"""


def test_a_process_killed_before_its_answer_is_resolved_and_nothing_is_sent_twice(
    hub: Hubs, tmp_path: Path
) -> None:
    hub.fresh_placement("killed", by="fleetui")
    console = Console(tmp_path, hub.server)
    console.connect("--mode", "operate")
    assert manage(console.variables, "watch_hubs", "--once").returncode == 0
    with front(hub.server, stalls=True) as here:
        point_to(console, here)
        with watching(
            "manage.py", "shell", "-c", SENDING, **console.variables
        ) as sender:
            eventually(lambda: sum(map(is_write, here.requests)) == 1, seconds=60)
            eventually(
                lambda: (
                    hub.get(CRP, "killed")["spec"]["policy"]["numberOfClusters"] == 6
                )
            )
            os.kill(sender.process.pid, signal.SIGKILL)
            sender.process.wait()
        states = "SELECT state, requested_by FROM clusters_hubwrite"
        assert console.rows(states) == [("sent", "ana")]
        # As if the hub had been live.
        done = manage(console.variables, "shell", "-c", LIVE + RESOLVING)
        assert "resolved 1" in done.stdout, done.stdout + done.stderr
        assert console.rows(states) == [("accepted", "ana")]
        assert (
            "resolved 0" in manage(console.variables, "shell", "-c", RESOLVING).stdout
        )
        assert sum(map(is_write, here.requests)) == 1


LIVE = """
from clusters.models import Hub
Hub.objects.filter(name="prod-eu").update(state="live")
"""
POINTING = """
from clusters.models import Hub
Hub.objects.filter(name="prod-eu").update(connection=CONNECTION)
"""


def point_to(console: Console, here: LocalServer) -> None:
    connection = {"server": here.url, "ca": authority().pem}
    done = manage(
        console.variables,
        "shell",
        "-c",
        POINTING.replace("CONNECTION", repr(connection)),
    )
    assert done.returncode == 0, done.stderr
