"""Connections over REST and by commands: what is shown, and that no secret is."""

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import override_settings
from rest_framework.test import APIClient

from clusters import kubernetes_drivers
from clusters.credentials import decrypt
from clusters.driver_factory import driver_for
from clusters.models import ClusterCredential, MemberCluster
from fleetui.models import Event
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.local_members import TOKEN, kubeconfig
from tests.clusters.kubernetes.servers import LocalServer, Member, serve
from tests.commands import call_command
from tests.database import database_dump
from tests.rows import joined

PATH = "/api/v1/clusters/member/connection"
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("local_drivers")]


@pytest.fixture
def admin(caller) -> APIClient:
    return caller("cluster-administrator")


def test_put_get_check_and_delete(
    admin: APIClient, server: LocalServer, member: Member
) -> None:
    joined("member")
    assert admin.get(PATH).status_code == 404

    put = admin.put(PATH, {"kubeconfig": kubeconfig(server)})
    assert put.status_code == 200, put.content
    assert {step["ok"] for step in put.json()["steps"]} == {True}

    found = admin.get(PATH)
    body = found.json()
    assert (body["server"], body["ca"], body["insecureTLS"]) == (
        server.url,
        authority().pem,
        False,
    )
    credential = ClusterCredential.objects.get()
    assert body["credential"]["fingerprint"] == credential.fingerprint
    assert body["credential"]["setBy"] == "cluster-administrator"
    assert found.headers["ETag"] == put.headers["ETag"]

    member.denied = {"list nodes"}
    checked = admin.post(f"{PATH}/check").json()
    assert not checked["passed"]
    assert {
        "step": "list nodes",
        "ok": False,
        "message": "not allowed",
    }.items() <= next(step for step in checked["steps"] if not step["ok"]).items()
    assert admin.post(f"{PATH}/renew").status_code == 409

    assert admin.delete(PATH).status_code == 204
    assert admin.get(PATH).status_code == 404


@pytest.mark.nightly
def test_a_failed_check_needs_confirmation(
    admin: APIClient, server: LocalServer, member: Member
) -> None:
    joined("member")
    member.denied = {"list nodes"}
    fields = {"server": server.url, "ca": authority().pem, "token": TOKEN}

    refused = admin.put(PATH, fields)
    assert (refused.status_code, refused.json()["confirm"]) == (409, "failed-check")
    assert [step["step"] for step in refused.json()["steps"] if not step["ok"]] == [
        "list nodes"
    ]
    assert admin.put(f"{PATH}?confirm=failed-check", fields).status_code == 200


def test_errors_have_paths(admin: APIClient) -> None:
    joined("member")
    answer = admin.put(
        PATH, {"server": "http://member.test", "certificate": "x", "tokn": "x"}
    )
    assert [fault["path"] for fault in answer.json()["faults"]] == ["tokn"]

    answer = admin.put(PATH, {"server": "http://member.test", "certificate": "x"})
    assert answer.status_code == 422
    assert [fault["path"] for fault in answer.json()["faults"]] == [
        "server",
        "certificate",
    ]


@pytest.mark.nightly
def test_insecure_tls_is_shown(admin: APIClient) -> None:
    joined("member")
    with override_settings(ALLOW_INSECURE_TLS=True), serve(Member()) as server:
        fields = {"server": server.url, "token": TOKEN, "insecureTLS": True}
        assert admin.put(PATH, fields).status_code == 200
        assert admin.get(PATH).json()["insecureTLS"] is True
        (row,) = admin.get("/api/v1/clusters").json()["items"]
        assert row["insecureTLS"] is True
        assert admin.get(PATH).json()["warning"].startswith("TLS verification is off.")


def test_prepare(admin: APIClient) -> None:
    answer = admin.get("/api/v1/clusters/member/prepare", {"group": "example.com"})

    assert answer.headers["Content-Type"].startswith("application/yaml")
    body = admin.get(
        "/api/v1/clusters/member/prepare", {"group": "example.com", "format": "json"}
    ).json()
    kinds = [(item["kind"], item["metadata"]["name"]) for item in body["items"]]
    assert kinds[:2] == [("Namespace", "fleetui-system"), ("ServiceAccount", "fleetui")]
    placer = next(
        item for item in body["items"] if item["metadata"]["name"] == "fleetui-placer"
    )
    assert {
        "apiGroups": ["example.com"],
        "resources": ["*"],
        "verbs": ["get", "create", "patch", "delete"],
    } in placer["rules"]
    wrong = admin.get(
        "/api/v1/clusters/member/prepare", {"group": "No Group", "format": "json"}
    )
    assert (wrong.status_code, wrong.json()["faults"][0]["path"]) == (422, "groups[0]")


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out, stderr=out)
    return out.getvalue()


def test_join(server: LocalServer, member: Member, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig(server))
    member.denied = {"list nodes"}

    with pytest.raises(CommandError) as error:
        run("join", "member", "--kubeconfig", str(path))
    assert error.value.returncode == 3
    assert not MemberCluster.objects.exists()

    member.denied = set()
    placed = ("--label", "region=east", "--taint", "gpu:NoSchedule")
    out = run("join", "member", "--kubeconfig", str(path), "--context", "main", *placed)
    assert "ok     version: Kubernetes v1.30.1" in out
    assert out.endswith("Member cluster member added\n")
    assert MemberCluster.objects.get().document["metadata"]["labels"] == {
        "region": "east"
    }
    with pytest.raises(CommandError, match="in the fleet already"):
        run("join", "member", "--kubeconfig", str(path))
    assert run("join", "member", "--kubeconfig", str(path), "--replace").endswith(
        "member saved\n"
    )
    for arguments in (
        ("--kubeconfig", "/nowhere"),
        ("--kubeconfig", str(path), "--context", "none"),
    ):
        with pytest.raises(CommandError) as error:
            run("join", "other", *arguments)
        assert error.value.returncode == 2


def test_credentials_check_and_rotate(
    admin: APIClient, server: LocalServer, tmp_path: Path, settings: Any
) -> None:
    settings.CREDENTIAL_KEYS, settings.CREDENTIAL_KEY_FILE = (
        (),
        tmp_path / "credential.keys",
    )
    joined("member")
    admin.put(PATH, {"kubeconfig": kubeconfig(server)})

    assert run("credentials", "check") == "1 with the first key, 0 with another key\n"
    assert (
        run("credentials", "rotate", "--new-key")
        == "1 with the first key, 0 with another key\n"
    )
    first, _ = (tmp_path / "credential.keys").read_text().split()
    (tmp_path / "credential.keys").write_text(first)
    row = ClusterCredential.objects.select_related("cluster").get()
    assert decrypt(row.cluster.uid, row.ciphertext).values == {"token": TOKEN}

    settings.CREDENTIAL_KEYS = ("C" * 43 + "=",)
    with pytest.raises(CommandError, match="1 cannot be read: member") as error:
        run("credentials", "check")
    assert error.value.returncode == 1
    with pytest.raises(CommandError, match="FLEETUI_CREDENTIAL_KEYS"):
        run("credentials", "rotate", "--new-key")


@pytest.mark.nightly
def test_no_secret_leaves(
    admin: APIClient,
    server: LocalServer,
    member: Member,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Save, change, use, fail and remove a connection, and look for the secrets everywhere."""
    caplog.set_level(logging.DEBUG)
    pair = authority().issue("admin")
    secrets = [TOKEN, "marker-second", pair.key.splitlines()[2]]
    joined("member")
    answers = [admin.put(PATH, {"kubeconfig": kubeconfig(server)})]
    fields = {
        "server": server.url,
        "ca": authority().pem,
        "certificate": pair.certificate,
        "key": pair.key,
    }
    answers += [
        admin.put(f"{PATH}?confirm=failed-check", fields),
        admin.get(PATH),
        admin.post(f"{PATH}/check"),
    ]
    member.tokens.add("marker-second")
    answers += [
        admin.put(
            PATH, {**fields, "certificate": "", "key": "", "token": "marker-second"}
        ),
        admin.get(PATH),
    ]
    answers += [admin.put(PATH, {**fields, "token": "marker-second"})]  # both: refused
    answers += [admin.put(PATH, {"kubeconfig": kubeconfig(server, "marker-second x")})]
    answers += [
        admin.put(PATH, {"kubeconfig": kubeconfig(server) + "}"}),
        admin.put(PATH, {"token": [TOKEN]}),
    ]
    row = MemberCluster.objects.select_related("credential").get()
    driver = driver_for(row)
    driver.observe(timeout=2)
    member.tokens.clear()
    answers += [
        admin.post(f"{PATH}/check"),
        admin.get("/api/v1/events"),
        admin.get("/api/v1/clusters/member"),
    ]

    texts = [
        *(answer.content.decode() for answer in answers),
        caplog.text,
        repr([row, row.credential, driver, vars(driver)]),
        repr(list(kubernetes_drivers.drivers._cached.values())),
        json.dumps(list(Event.objects.values("verb", "before", "after"))),
        run("export", "clusters"),
        database_dump(),
    ]
    for secret in secrets:
        assert [text[:200] for text in texts if secret in text] == []
    assert ClusterCredential.objects.get().ciphertext in database_dump()
