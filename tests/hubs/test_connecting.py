"""Connect, check, change, pause and remove a hub, by operations and commands.

See `rules/live-hub.md#connection-of-a-hub`.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management.base import CommandError
from django.test import override_settings

from clusters.connection_input import ConnectionInput
from clusters.drivers.kubernetes.check import ConnectionCheckFailed
from clusters.hub_queries import live_hub
from clusters.kubeconfig import Secret
from clusters.models import Hub, HubCredential, MirroredObject
from clusters.operations.credentials import HUB, notify_expiring, save_secret
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.yaml import dump_yaml, load_documents
from fleetui.hub_scope import in_hub
from fleetui.models import Event
from placements.hubs.connections.discovery import (
    HubCheckReport,
    check_hub,
    permissions_in,
)
from placements.hubs.connections.operations import (
    HubExists,
    HubSpec,
    change_hub,
    delete_rows,
    save_hub,
    spec_of,
)
from placements.hubs.kinds.kubefleet import KUBEFLEET
from placements.hubs.queries import state_of
from placements.hubs.write_requests import KINDS
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.servers import LocalServer, always, answer, serve
from tests.commands import call_command
from tests.hubs.fake_hub import TOKEN, FakeHub, serve_hub
from tests.hubs.test_watcher import hub_with_content
from tests.hubs.watching import connected_hub, watching

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _loopback() -> Iterator[None]:
    with override_settings(MEMBER_LOOPBACK=True):
        yield


@pytest.fixture
def served() -> Iterator[tuple[FakeHub, LocalServer]]:
    with serve_hub(hub_with_content()) as found:
        yield found


def kubeconfig(url: str, **user: Any) -> dict[str, Any]:
    ca = base64.b64encode(authority().pem.encode()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "hub",
        "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": "reader"}}],
        "clusters": [
            {
                "name": "hub",
                "cluster": {"server": url, "certificate-authority-data": ca},
            }
        ],
        "users": [{"name": "reader", "user": user or {"token": TOKEN}}],
    }


def save(url: str, name: str = "prod-eu", *, token: str = TOKEN, **options: Any) -> Any:
    text = dump_yaml(kubeconfig(url, token=token))
    spec = options.pop("spec", HubSpec(name))
    return save_hub(spec, ConnectionInput(text), by=None, now=NOW, **options)


def report_of(server: LocalServer, token: str = TOKEN) -> HubCheckReport:
    connection = {"server": server.url, "ca": authority().pem}
    return check_hub(KUBEFLEET, connection, {"token": token})


def results(report: HubCheckReport) -> dict[str, bool | None]:
    return {step.step: step.ok for step in report.steps}


STEPS = (
    "address",
    "TCP",
    "TLS",
    "version",
    "authentication",
    "discovery",
    "permissions",
    "list",
)


def test_a_check_passes_with_few_requests(served: tuple[FakeHub, LocalServer]) -> None:
    fake, server = served

    report = report_of(server)

    assert results(report) == dict.fromkeys(STEPS, True)
    assert report.server_version == "v1.30.1"
    discovery = next(step.message for step in report.steps if step.step == "discovery")
    kinds = len(report.permissions)
    assert discovery.startswith(f"{kinds} of {kinds} kinds of KubeFleet")
    assert {
        permission.resource: permission.verbs["watch"]
        for permission in report.permissions
    }["memberclusters.cluster.kubernetes-fleet.io"]
    assert len(fake.seen) <= 20


def test_incomplete_rules_are_replaced_by_reviews_of_the_required_kinds(
    served: tuple[FakeHub, LocalServer],
) -> None:
    fake, server = served
    fake.incomplete_rules = True
    fake.denied = {"watch memberclusters"}

    report = report_of(server)

    failed = [step for step in report.steps if not step.ok]
    assert [(step.step, step.message) for step in failed] == [
        ("permissions", "not allowed: watch memberclusters.cluster.kubernetes-fleet.io")
    ]
    assert "--rbac viewer" in failed[0].hint
    assert len(fake.seen) <= 20


@pytest.mark.parametrize(
    ("change", "step", "message"),
    [
        (
            {"groups": set()},
            "discovery",
            "looked for placement.kubernetes-fleet.io, cluster",
        ),
        (
            {"absent": {"clusterresourcebindings"}},
            "discovery",
            "not served: clusterresourcebindings",
        ),
        (
            {"denied": {"list clusterresourcebindings"}},
            "permissions",
            "not allowed: list clusterresource",
        ),
        ({"token": "another"}, "authentication", "credentials rejected"),
        ({"version": "v1.19.0"}, "version", "1.20 or newer"),
    ],
)
def test_a_check_names_the_step_that_failed(
    change: dict[str, Any], step: str, message: str
) -> None:
    with serve_hub(FakeHub(**change)) as (_, server):
        report = report_of(server)

    failed = next(check_step for check_step in report.steps if check_step.ok is False)
    assert (failed.step, message in failed.message) == (step, True)
    later = STEPS[STEPS.index(step) + 1 :]
    skipped = [check_step.ok for check_step in report.steps if check_step.step in later]
    assert not report.is_passed
    assert step in ("permissions", "list") or set(skipped) <= {None}


@pytest.mark.parametrize(
    "content", [answer(200, raw=b"<html>"), answer(404, raw=b"not found")]
)
def test_a_web_server_is_not_a_hub(content: bytes) -> None:
    with serve(always(content)) as server:
        report = report_of(server)

    failed = next(step for step in report.steps if step.ok is False)
    assert failed.step == "version"
    assert "not as a Kubernetes API server" in failed.message


def test_an_optional_kind_that_may_not_be_read_passes(
    served: tuple[FakeHub, LocalServer],
) -> None:
    fake, server = served
    fake.denied = {"list resourceoverrides", "watch resourceoverrides"}

    report = report_of(server)

    assert report.is_passed
    assert "resourceoverrides" in next(
        step.message for step in report.steps if step.step == "permissions"
    )


def test_a_saved_hub_has_its_secret_encrypted_and_events(
    served: tuple[FakeHub, LocalServer],
) -> None:
    saved = save(served[1].url, spec=HubSpec("prod-eu", title="Production"))

    hub = live_hub("prod-eu")
    credential = HubCredential.objects.get(hub=hub)
    assert (hub.title, hub.mode, hub.state, hub.connection["server"]) == (
        "Production",
        "read",
        "new",
        served[1].url,
    )
    assert saved.is_new
    assert TOKEN not in credential.ciphertext
    assert len(hub.found["permissions"]) == 22
    verbs = (
        Event.objects.filter(kind="hub", name="prod-eu")
        .order_by("id")
        .values_list("verb", flat=True)
    )
    assert list(verbs) == ["added", "credentials set"]
    assert TOKEN not in json.dumps(list(Event.objects.values_list("before", "after")))


def test_a_name_that_is_taken_is_refused(served: tuple[FakeHub, LocalServer]) -> None:
    save(served[1].url)

    with pytest.raises(HubExists):
        save(served[1].url)
    assert save(served[1].url, replaces=True).is_new is False


@pytest.mark.parametrize(
    "name", ["Prod EU", "local", "new", "api", "x" * 64, "", "-a", "a_b", "a\n"]
)
def test_a_bad_name_is_refused_with_the_pattern(name: str) -> None:
    with pytest.raises(InvalidManifest) as refused:
        save("https://127.0.0.1:1", name)

    assert refused.value.errors[0].path == "name"


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"mode": "write"}, "mode"),
        ({"identity": "me"}, "identity"),
        ({"kind": "ocm"}, "kind"),
        ({"title": "x" * 121}, "title"),
        ({"namespaces": ("Shop",)}, "namespaces[0]"),
        ({"namespaces": tuple(f"n{n}" for n in range(21))}, "namespaces"),
    ],
)
def test_a_bad_value_is_refused_with_its_path(
    change: dict[str, Any], path: str
) -> None:
    with pytest.raises(InvalidManifest) as refused:
        save("https://127.0.0.1:1", spec=HubSpec("prod-eu", **change))

    assert [error.path for error in refused.value.errors] == [path]


def _two_contexts(config: dict[str, Any]) -> None:
    config["contexts"].append(
        {"name": "other", "context": {"cluster": "hub", "user": "reader"}}
    )


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (
            lambda config: config["users"][0].update(user={"exec": {"command": "az"}}),
            "kubeconfig.users[0].user.exec",
        ),
        (
            lambda config: config["users"][0]["user"].update(password="x"),
            "kubeconfig.users[0].user.password",
        ),
        (
            lambda config: config["users"][0]["user"].update(token="a\nb"),
            "kubeconfig.users[0].user.token",
        ),
        (
            lambda config: config["clusters"][0]["cluster"].update(server="http://h"),
            "kubeconfig.clusters[0].cluster.server",
        ),
        (lambda config: config.update(contexts=[]), 'kubeconfig["current-context"]'),
        (
            lambda config: config.update({"current-context": "gone"}),
            'kubeconfig["current-context"]',
        ),
        (_two_contexts, "context"),
    ],
)
def test_a_bad_kubeconfig_is_refused_with_the_path(change: Any, path: str) -> None:
    config = kubeconfig("https://127.0.0.1:6443")
    change(config)

    with pytest.raises(InvalidManifest) as refused:
        save_hub(
            HubSpec("prod-eu"), ConnectionInput(dump_yaml(config)), by=None, now=NOW
        )

    assert [error.path for error in refused.value.errors] == [path]


@pytest.mark.parametrize(
    "server", ["https://127.0.0.1:6443", "https://169.254.169.254", "https://localhost"]
)
def test_an_address_that_is_not_allowed_is_refused(server: str) -> None:
    with (
        override_settings(MEMBER_LOOPBACK=False),
        pytest.raises(InvalidManifest) as refused,
    ):
        save(server)

    assert refused.value.errors[0].code == "address-not-allowed"


def test_a_hub_whose_check_fails_needs_a_confirmation(
    served: tuple[FakeHub, LocalServer],
) -> None:
    served[0].denied = {"list memberclusters"}

    with pytest.raises(ConnectionCheckFailed):
        save(served[1].url)
    assert not Hub.objects.filter(name="prod-eu").exists()
    assert save(served[1].url, confirmed=True).is_new


def test_changes_are_events(served: tuple[FakeHub, LocalServer]) -> None:
    save(served[1].url)

    change_hub("prod-eu", {"title": "Production", "mode": "operate"}, by=None, now=NOW)
    change_hub("prod-eu", {"paused": True}, by=None, now=NOW)
    change_hub("prod-eu", {"paused": True}, by=None, now=NOW)
    change_hub("prod-eu", {"paused": False}, by=None, now=NOW)

    hub = live_hub("prod-eu")
    assert (hub.title, hub.mode, hub.state) == ("Production", "operate", "connecting")
    verbs = (
        Event.objects.filter(kind="hub").order_by("id").values_list("verb", flat=True)
    )
    assert list(verbs)[2:] == ["changed", "paused", "resumed"]


def run(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def status(*arguments: str) -> tuple[int, str]:
    out = StringIO()
    try:
        call_command(*arguments, stdout=out)
    except CommandError as error:
        return error.returncode, f"{out.getvalue()}{error}"
    return 0, out.getvalue()


def write(folder: Path, config: dict[str, Any]) -> str:
    path = folder / "kubeconfig"
    path.write_text(dump_yaml(config))
    return str(path)


def test_connect_hub_prints_the_permissions_and_saves(
    served: tuple[FakeHub, LocalServer], tmp_path: Path
) -> None:
    path = write(tmp_path, kubeconfig(served[1].url))

    checked = run("connect_hub", "prod-eu", "--kubeconfig", path, "--check")
    assert "memberclusters.cluster.kubernetes-fleet.io" in checked
    assert not Hub.objects.filter(name="prod-eu").exists()

    assert run("connect_hub", "prod-eu", "--kubeconfig", path).endswith(
        "Hub prod-eu added\n"
    )
    assert status("connect_hub", "prod-eu", "--kubeconfig", path)[0] == 1
    assert status("connect_hub", "prod-eu", "--kubeconfig", path, "--replace")[0] == 0


def test_replacing_changes_what_is_given_and_keeps_the_rest(
    served: tuple[FakeHub, LocalServer], tmp_path: Path
) -> None:
    """The guide removes the kubeconfig after connecting; the mode is changed later."""
    path = write(tmp_path, kubeconfig(served[1].url))
    run(
        "connect_hub",
        "prod-eu",
        "--kubeconfig",
        path,
        "--title",
        "Production",
        "--namespace",
        "team-a",
    )

    assert (
        run("connect_hub", "prod-eu", "--replace", "--mode", "operate")
        == "Hub prod-eu saved\n"
    )
    assert spec_of(live_hub("prod-eu")) == HubSpec(
        "prod-eu", title="Production", mode="operate", namespaces=("team-a",)
    )
    assert HubCredential.objects.filter(hub__name="prod-eu").exists()

    run(
        "connect_hub",
        "prod-eu",
        "--replace",
        "--identity",
        "impersonate",
        "--kubeconfig",
        path,
    )
    assert spec_of(live_hub("prod-eu")) == HubSpec(
        "prod-eu",
        title="Production",
        mode="operate",
        identity="impersonate",
        namespaces=("team-a",),
    )

    assert status("connect_hub", "nowhere", "--replace", "--mode", "operate")[0] == 1
    assert status("connect_hub", "prod-eu", "--replace", "--check")[0] == 2
    assert status("connect_hub", "prod-eu", "--mode", "operate")[0] == 2


def test_connect_hub_embeds_the_files_that_a_kubeconfig_names(
    served: tuple[FakeHub, LocalServer], tmp_path: Path
) -> None:
    (tmp_path / "ca.pem").write_text(authority().pem)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    config = kubeconfig(served[1].url, tokenFile="token")
    config["clusters"][0]["cluster"] = {
        "server": served[1].url,
        "certificate-authority": "ca.pem",
    }

    assert (
        status("connect_hub", "prod-eu", "--kubeconfig", write(tmp_path, config))[0]
        == 0
    )

    config["users"][0]["user"]["tokenFile"] = "missing"
    code, message = status("connect_hub", "b", "--kubeconfig", write(tmp_path, config))
    assert (code, "missing" in message) == (2, True)


def test_connect_hub_has_exit_codes(
    served: tuple[FakeHub, LocalServer], tmp_path: Path
) -> None:
    path = write(tmp_path, kubeconfig(served[1].url, token="wrong"))

    assert status("connect_hub", "prod-eu", "--kubeconfig", path)[0] == 3
    assert status("connect_hub", "prod-eu", "--kubeconfig", path, "--check")[0] == 1
    assert not Hub.objects.filter(name="prod-eu").exists()
    assert status("connect_hub", "prod-eu", "--kubeconfig", path, "--confirm")[0] == 0
    assert status("connect_hub", "Prod EU", "--kubeconfig", path)[0] == 2
    assert status("connect_hub", "--kubeconfig", path)[0] == 2
    assert status("hubs", "nowhere", "--pause")[0] == 1


RBAC = {
    "viewer": {"fleetui-viewer"},
    "operator": {"fleetui-operator"},
    "approver": {"fleetui-approver"},
    "impersonate": {"fleetui-impersonate", "fleetui-operator", "fleetui-approver"},
}


def rbac_documents(role: str) -> list[dict[str, Any]]:
    return [
        document.data for document in load_documents(run("connect_hub", "--rbac", role))
    ]


@pytest.mark.parametrize("role", RBAC)
def test_each_manifest_for_a_hub_has_the_roles_of_its_name_alone(role: str) -> None:
    text = run("connect_hub", "--rbac", role)

    assert (
        text == (Path(settings.BASE_DIR) / "docs" / "hubs" / f"{role}.yaml").read_text()
    )
    named = {
        (document["kind"], document["metadata"]["name"])
        for document in rbac_documents(role)
    }
    account = (
        {("Namespace", "fleetui-system"), ("ServiceAccount", "fleetui")}
        if role == "viewer"
        else set()
    )
    roles = {
        (kind, name)
        for name in RBAC[role]
        for kind in ("ClusterRole", "ClusterRoleBinding")
    }
    assert named == account | roles


def test_deleting_what_writes_leaves_the_account_and_what_reads() -> None:
    def named(role: str) -> set[tuple[str, str]]:
        return {
            (document["kind"], document["metadata"]["name"])
            for document in rbac_documents(role)
        }

    for role in ("operator", "approver", "impersonate"):
        assert not named(role) & named("viewer")


def test_with_impersonation_the_account_has_none_of_the_permissions_to_write() -> None:
    """Binding and role have the names of those for the account: applying them takes its permissions back."""
    subjects = {
        document["metadata"]["name"]: [
            (subject["kind"], subject["name"]) for subject in document["subjects"]
        ]
        for document in rbac_documents("impersonate")
        if document["kind"] == "ClusterRoleBinding"
    }
    assert subjects == {
        "fleetui-impersonate": [("ServiceAccount", "fleetui")],
        "fleetui-operator": [("Group", "fleetui:operator")],
        "fleetui-approver": [("Group", "fleetui:approver")],
    }


def test_the_viewer_reads_what_the_streams_read_and_may_not_make_tokens() -> None:
    documents = rbac_documents("viewer")
    roles = {
        document["metadata"]["name"]: document["rules"]
        for document in documents
        if "rules" in document
    }
    assert {
        verb for rules in roles.values() for rule in rules for verb in rule["verbs"]
    } == {*("get", "list", "watch")}
    granted = {
        (group, resource)
        for rule in roles["fleetui-viewer"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if rule["verbs"] == ["get", "list", "watch"]
    }
    assert granted == {(stream.group, stream.plural) for stream in KUBEFLEET.streams}


def test_no_manifest_grants_what_the_console_never_writes() -> None:
    for role in RBAC:
        for document in rbac_documents(role):
            for rule in document.get("rules", ()):
                if set(rule["verbs"]) & {"create", "patch", "delete", "update"}:
                    never = {
                        "works",
                        "clusterresourcebindings",
                        "resourcebindings",
                        "*",
                    }
                    assert not never & set(rule["resources"])
                    assert not any(
                        name.endswith("snapshots") for name in rule["resources"]
                    )


def test_pause_resume_and_disconnect_by_command() -> None:
    with watching(hub_with_content()) as watched:
        watched.work_until_state("live")
        assert status("hubs")[0] == 0
        shown = json.loads(run("hubs", "prod-eu", "-o", "json"))[0]
        assert (shown["state"], shown["clusters"], shown["placements"]) == (
            "live",
            3,
            2,
        )
        assert len(shown["streams"]) == 22
        lines = run("hubs", "prod-eu").splitlines()
        assert len({line.split("  ")[1] for line in lines[1:]}) == 22, (
            "each stream can be told apart"
        )

        assert run("hubs", "prod-eu", "--pause") == "Hub prod-eu paused\n"
        watched.work_until(lambda: not watched.watcher.hubs)
        assert status("hubs")[0] == 1
        run("hubs", "prod-eu", "--resume")
        watched.work_until_state("live")

        assert status("hubs", "prod-eu", "--disconnect")[0] == 3
        assert "background" in run("hubs", "prod-eu", "--disconnect", "--yes")
        assert not HubCredential.objects.exists()
        watched.work_until(lambda: not watched.watcher.hubs)
        watched.fake.wait_until(lambda: watched.fake.watches == 0)
        assert not delete_rows(watched.hub.pk)
        with in_hub(watched.hub.pk):
            assert not MirroredObject.objects.exists()
        assert Hub.objects.get(pk=watched.hub.pk).state == "removed"


def test_a_hub_that_no_watcher_has_is_out_of_date() -> None:
    hub = Hub(name="a", state="live", created_at=NOW, state_since=NOW)
    hub.lease_expires_at = NOW
    later = NOW + timedelta(seconds=31)

    assert state_of(hub, now=NOW + timedelta(seconds=29))[0] == "live"
    assert state_of(hub, now=later)[:2] == ("stale", "the watcher is not running")
    hub.is_paused, hub.state = True, "paused"
    assert state_of(hub, now=later)[0] == "paused"


def test_a_token_command_gives_the_token(
    served: tuple[FakeHub, LocalServer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "token"
    script.write_text(
        f'#!/bin/sh\necho \'{{"kind": "ExecCredential", "status": {{"token": "{TOKEN}"}}}}\'\n'
    )
    script.chmod(0o700)
    monkeypatch.setenv("FLEETUI_HUB_TOKEN_COMMAND_PROD_EU", str(script))
    monkeypatch.setenv(
        "FLEETUI_HUB_SERVER_PROD_EU", served[1].url.replace("https", "HTTPS") + "/"
    )
    config = kubeconfig(served[1].url)
    config["users"][0]["user"] = {"username": ""}

    saved = save_hub(
        HubSpec("prod-eu"), ConnectionInput(dump_yaml(config)), by=None, now=NOW
    )

    assert saved.result.is_passed
    assert not HubCredential.objects.exists()


def test_notices_fourteen_seven_and_one_day_before_the_credentials_expire(
    served: tuple[FakeHub, LocalServer],
) -> None:
    hub = connected_hub(served[1])
    expires_at = NOW + timedelta(days=30)
    HubCredential.objects.update(expires_at=expires_at)

    found = [
        notify_expiring(HUB, now=expires_at - timedelta(days=days))
        for days in (15, 14, 13, 7, 2, 1, 0)
    ]

    assert found == [0, 1, 0, 1, 0, 1, 0]
    with in_hub(hub.pk):  # who has no role there learns nothing of it
        events = Event.objects.filter(
            kind="hub", name=hub.name, verb="credentials expiring"
        )
        assert [event.after["notice"] for event in events] == [
            f"expires on {expires_at:%Y-%m-%d}"
        ] * 3


def test_replaced_credentials_get_notices_of_their_own(
    served: tuple[FakeHub, LocalServer],
) -> None:
    hub = connected_hub(served[1])
    HubCredential.objects.update(expires_at=NOW, notified_days=1)

    save_secret(hub, Secret({"token": "another"}), before={}, by=None, now=NOW)

    assert HubCredential.objects.get(hub=hub).notified_days is None


def test_rules_allow_a_verb_on_all_objects_on_some_or_on_none() -> None:
    """A rule with names says nothing of other objects; an approval is a patch of a status."""

    def verbs(plural: str, *resources: str, **more: Any) -> Mapping[str, bool | None]:
        kind = next(
            stream_kind
            for stream_kind in KINDS.values()
            if stream_kind.plural == plural
        )
        rule = {
            "apiGroups": [kind.group],
            "resources": list(resources),
            "verbs": ["create", "patch"],
            **more,
        }
        return permissions_in([rule], [kind])[0].verbs

    assert verbs("memberclusters", "memberclusters")["patch"] is True
    named = verbs("memberclusters", "memberclusters", resourceNames=["east"])
    assert (named["patch"], named["create"], named["delete"]) == (None, False, False)
    approvals = "clusterapprovalrequests"
    assert verbs(approvals, approvals)["patch"] is False
    assert verbs(approvals, f"{approvals}/status")["patch"] is True
    assert verbs(approvals, "*")["patch"] is True
