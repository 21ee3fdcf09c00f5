"""The token of a hub's command goes to the server that the operator named, at no door to another one."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management.base import CommandError
from django.test import Client

from clusters.connection_input import ConnectionInput
from clusters.drivers.base import DriverUnavailable
from clusters.kubeconfig import ParsedConnection
from clusters.models import Hub
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.env import SettingRefused, check_hub_servers
from placements.hubs.connections.connection import HubAccess, HubTarget
from placements.hubs.connections.operations import (
    HubSpec,
    check_parsed,
    check_stored_hub,
    save_hub,
)
from placements.hubs.writing.sending import open_writer
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.servers import LocalServer
from tests.commands import call_command
from tests.hubs.fake_hub import serve_hub
from tests.hubs.test_connecting import kubeconfig
from tests.hubs.test_watcher import hub_with_content
from tests.hubs.watching import connected_hub
from tests.rows import person

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
ALLOWED = "https://prod-eu.hub.example.com:6443"
SERVER = "FLEETUI_HUB_SERVER_PROD_EU"


@pytest.fixture
def other(
    settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[LocalServer]:
    """Serve a hub that is not the one of the token command; the command must not even run."""
    settings.MEMBER_LOOPBACK = True
    ran = tmp_path / "ran"
    script = tmp_path / "token"
    script.write_text(f"#!/bin/sh\ntouch {ran}\necho PRODTOKEN-SECRET\n")
    script.chmod(0o700)
    monkeypatch.setenv("FLEETUI_HUB_TOKEN_COMMAND_PROD_EU", str(script))
    monkeypatch.setenv(SERVER, ALLOWED)
    with serve_hub(hub_with_content()) as (_, server):
        yield server
        assert server.requests == []
        assert not ran.exists()


def without_credentials(server: LocalServer) -> dict[str, Any]:
    config = kubeconfig(server.url)
    config["users"][0]["user"] = {"username": ""}
    return config


def administrator() -> Client:
    client = Client()
    client.force_login(person("clara", "cluster-administrator"))
    return client


@pytest.mark.parametrize("do", ["check", "save"])
def test_the_page_refuses_another_server(other: LocalServer, do: str) -> None:
    form = {
        "name": "prod-eu",
        "kubeconfig": dump_yaml(without_credentials(other)),
        "do": do,
    }

    answer = administrator().post("/hubs/new/", form)

    assert answer.status_code == 422
    assert "is for another server" in answer.content.decode()
    assert ALLOWED in answer.content.decode()
    assert not Hub.objects.filter(name="prod-eu").exists()


@pytest.mark.parametrize("query", ["", "?confirm"])
@pytest.mark.parametrize("secret", [{}, {"token": "one"}])
def test_rest_refuses_another_server_for_a_new_hub(
    other: LocalServer, query: str, secret: dict[str, str]
) -> None:
    body = {
        "name": "prod-eu",
        "connection": {"server": other.url, "ca": authority().pem, **secret},
    }

    answer = administrator().post(
        f"/api/v1/hubs{query}", json.dumps(body), content_type="application/json"
    )

    assert answer.status_code in (400, 422), answer.json()
    assert ALLOWED in answer.content.decode()
    assert not Hub.objects.filter(name="prod-eu").exists()


@pytest.mark.parametrize("option", ["--check", "--confirm"])
def test_the_command_refuses_another_server(
    other: LocalServer, tmp_path: Path, option: str
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(dump_yaml(without_credentials(other)))

    with pytest.raises((CommandError, InvalidManifest), match="for another server"):
        call_command("connect_hub", "prod-eu", "--kubeconfig", str(path), option)

    assert not Hub.objects.filter(name="prod-eu").exists()


def test_a_hub_that_exists_is_not_moved_to_another_server(other: LocalServer) -> None:
    connected_hub(SimpleNamespace(url=ALLOWED))  # type: ignore[arg-type]  # its address is enough
    wanted = ConnectionInput(dump_yaml(without_credentials(other)))

    with pytest.raises(InvalidManifest, match="for another server"):
        save_hub(
            HubSpec("prod-eu"), wanted, by=None, now=NOW, confirmed=True, replaces=True
        )

    assert Hub.objects.get(name="prod-eu").connection["server"] == ALLOWED


def _open_writer(hub: Hub) -> None:
    with open_writer(hub):
        pass


def _watch(hub: Hub) -> None:
    access = HubAccess(wants_reading=lambda: None, wants_discovery=lambda: None)
    assert access.use(HubTarget.of(hub), is_changed=True) is None
    raise DriverUnavailable(access.problem, code="")


def _check(hub: Hub) -> None:
    raise DriverUnavailable(check_stored_hub(hub.name).steps[0].message, code="")


def _check_parsed(hub: Hub) -> None:
    report = check_parsed(HubSpec(hub.name), ParsedConnection(hub.connection))
    raise DriverUnavailable(report.steps[0].message, code="")


@pytest.mark.parametrize("connect", [_open_writer, _watch, _check, _check_parsed])
@pytest.mark.parametrize("server", [ALLOWED, ""])
def test_no_connection_of_a_hub_that_is_elsewhere_gets_the_token(
    other: LocalServer,
    monkeypatch: pytest.MonkeyPatch,
    connect: Callable[[Hub], None],
    server: str,
) -> None:
    """A hub that was connected before the command was set, or whose server is not named at all."""
    monkeypatch.setenv(SERVER, server)
    hub = connected_hub(other)

    with pytest.raises(DriverUnavailable, match="for another server"):
        connect(hub)


@pytest.mark.parametrize(
    "server",
    ["", "http://hub.example.com", "https://a@hub.example.com", "hub.example.com"],
)
def test_a_command_without_its_server_stops_the_start(server: str) -> None:
    environ = {"FLEETUI_HUB_TOKEN_COMMAND_PROD_EU": "/bin/echo x", SERVER: server}

    with pytest.raises(SettingRefused, match=SERVER):
        check_hub_servers(environ)

    check_hub_servers({**environ, SERVER: ALLOWED})
