"""Connections of member clusters and of hubs: the same input has the same answer at every door of both."""

import html
import io
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from ipaddress import ip_network
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import Client, override_settings
from rest_framework.test import APIClient

from clusters.drivers.kubernetes.check import FAILED_CHECK
from clusters.models import ClusterCredential, HubCredential
from fleetui.access.models import AccessEvent
from fleetui.apimachinery.errors import FieldError
from fleetui.models import Event
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.local_members import TOKEN
from tests.clusters.kubernetes.servers import (
    always,
    answer,
    serve,
    status_body,
)
from tests.clusters.kubernetes.test_kubeconfig import encode
from tests.commands import call_command
from tests.database import database_dump
from tests.rows import joined, person

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("local_drivers")]
CONNECTION, HUBS = "/api/v1/clusters/prod/connection", "/api/v1/hubs"
CA, SERVER = authority().pem, "https://192.0.2.7:6443"
PAIR, OLD = authority().issue("fleetui"), authority().issue("fleetui", days=-1)


@dataclass(frozen=True)
class Entered:
    """A connection as a user enters it: the entries of a kubeconfig, or separate fields."""

    cluster: Mapping[str, Any]
    user: Mapping[str, Any]
    fields: Mapping[str, Any]
    contexts: tuple[str, ...] = ("main",)
    context: str = ""
    current: str = "main"

    @property
    def kubeconfig(self) -> str:
        contexts = [
            {"name": name, "context": {"cluster": "c", "user": "u"}}
            for name in self.contexts
        ]
        return json.dumps(
            {
                "current-context": self.current,
                "contexts": contexts,
                "clusters": [{"name": "c", "cluster": self.cluster}],
                "users": [{"name": "u", "user": self.user}],
            }
        )


_KEYS = {
    "server": "server",
    "ca": "certificate-authority-data",
    "tlsServerName": "tls-server-name",
    "proxy": "proxy-url",
    "insecureTLS": "insecure-skip-tls-verify",
    "token": "token",
    "certificate": "client-certificate-data",
    "key": "client-key-data",
}


def entry(**fields: Any) -> Entered:
    """Return the same connection in both forms."""
    values = {"server": SERVER, "ca": CA, "token": TOKEN, **fields}
    fields = {key: value for key, value in values.items() if value}
    cluster: dict[str, Any] = {}
    user: dict[str, Any] = {}
    for key, value in fields.items():
        is_pem = key in ("ca", "certificate", "key")
        part = user if key in ("token", "certificate", "key") else cluster
        part[_KEYS[key]] = encode(value) if is_pem else value
    return Entered(cluster, user, fields)


def of_user(**user: Any) -> Entered:
    """Return a kubeconfig whose user has what separate fields cannot say."""
    return Entered({"server": SERVER}, user, {})


def of_context(**contexts: Any) -> Entered:
    """Return a kubeconfig whose contexts are what differs."""
    return Entered({"server": SERVER}, {"token": TOKEN}, {}, **contexts)


def of_page(browser: Client, address: str, entered: Mapping[str, str]) -> list[str]:
    """Return the errors that a form shows."""
    shown: Any = browser.post(
        address, {"name": "another", "kind": "kubernetes", "do": "check", **entered}
    )
    form = shown.context["form"]
    errors = [*form.errors, *(error for field in form.fields for error in field.errors)]
    return sorted(map(str, errors))


def faults(found: Any) -> list[str]:
    return sorted(
        str(FieldError(fault["path"], "", fault["message"], fault.get("allowed", "")))
        for fault in found.json().get("faults", ())
    )


def page_fields(entered: Entered) -> dict[str, str]:
    values = {key: value for key, value in entered.fields.items() if value is not True}
    switches = {key: "on" for key, value in entered.fields.items() if value is True}
    return {"source": "fields", **values, **switches}


def page_kubeconfig(entered: Entered) -> dict[str, str]:
    return {
        "source": "kubeconfig",
        "kubeconfig": entered.kubeconfig,
        "context": entered.context,
    }


def rest_kubeconfig(entered: Entered) -> dict[str, str]:
    return {"kubeconfig": entered.kubeconfig, "context": entered.context}


def of_command(command: str, folder: Path, entered: Entered, *options: str) -> Any:
    path = folder / "kubeconfig"
    path.write_text(entered.kubeconfig)
    context = ["--context", entered.context] if entered.context else []
    out = io.StringIO()
    try:
        call_command(
            command,
            "another",
            "--kubeconfig",
            str(path),
            *context,
            *options,
            stdout=out,
            stderr=out,
        )
    except CommandError as error:
        return error.returncode, f"{out.getvalue()}{error}"
    return 0, out.getvalue()


def answers(entered: Entered, folder: Path) -> dict[str, list[str]]:
    """Return the errors of each door, for a kubeconfig and for separate fields."""
    joined("prod")
    administrator = person("carl", "cluster-administrator")
    browser, api = Client(), APIClient()
    browser.force_login(administrator)
    api.force_authenticate(administrator)
    forms = {"kubeconfig": (page_kubeconfig(entered), rest_kubeconfig(entered))}
    if entered.fields:
        forms["fields"] = (page_fields(entered), dict(entered.fields))
    found = {}
    for form, (typed, body) in forms.items():
        for address in ("/clusters/new/", "/hubs/new/"):
            found[f"{form}: {address}"] = of_page(browser, address, typed)
        found[f"{form}: PUT"] = faults(api.put(CONNECTION, body, format="json"))
        checked = api.post(f"{CONNECTION}/check", body, format="json")
        found[f"{form}: POST check"] = faults(checked)
        new = {"name": "other", "connection": body}
        found[f"{form}: POST hubs"] = faults(api.post(HUBS, new, format="json"))
    for command in ("join", "connect_hub"):
        _, text = of_command(command, folder, entered)
        found[f"kubeconfig: {command}"] = sorted(text.splitlines())
    return found


EXAMPLES: Mapping[str, tuple[Entered, str]] = {
    "not HTTPS": (entry(server="http://192.0.2.7"), "server"),
    "no host": (entry(server="https://"), "server"),
    "a user in the address": (entry(server="https://a:b@192.0.2.7"), "server"),
    "loopback": (entry(server="https://127.0.0.1:6443"), "loopback"),
    "mapped loopback": (entry(server="https://[::ffff:127.0.0.1]"), "loopback"),
    "loopback by name": (entry(server="https://localhost"), "loopback"),
    "link-local": (entry(server="https://169.254.169.254"), "link-local"),
    "metadata service": (entry(server="https://100.100.100.200"), "metadata"),
    "multicast": (entry(server="https://224.0.0.1"), "multicast"),
    "unspecified": (entry(server="https://0.0.0.0"), "unspecified"),
    "other network": (entry(server="https://10.9.9.9"), "networks of members"),
    "no TLS verification": (entry(ca="", insecureTLS=True), "TLS verification"),
    "CA and no verification": (entry(insecureTLS=True), "insecure"),
    "CA": (entry(ca="no certificate"), "holds 0 certificates"),
    "proxy": (entry(proxy="http://192.0.2.9:3128"), "FLEETUI_MEMBER_PROXIES"),
    "token of two lines": (entry(token="a\nb"), "white space"),
    "token and certificate": (
        entry(certificate=PAIR.certificate, key=PAIR.key),
        "both a token",
    ),
    "certificate without key": (
        entry(token="", certificate=PAIR.certificate),
        "without the client key",
    ),
    "expired certificate": (
        entry(token="", certificate=OLD.certificate, key=OLD.key),
        "expired on",
    ),
    "key of another certificate": (
        entry(token="", certificate=PAIR.certificate, key=OLD.key),
        "does not match",
    ),
    "no credentials": (entry(token=""), "the credentials"),
    "exec": (of_user(exec={"command": "az"}), "run a program"),
    "password": (of_user(username="a", password="b"), "basic authentication"),
    "impersonation": (of_user(token=TOKEN, **{"as": "admin"}), "impersonation"),
    "two contexts": (of_context(contexts=("main", "other")), "several contexts"),
    "unknown context": (of_context(context="gone"), "gone"),
    "unknown current context": (of_context(current="gone"), "gone"),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_same_input_has_the_same_errors_at_every_door(
    name: str, tmp_path: Path, settings: Any
) -> None:
    settings.MEMBER_LOOPBACK = False
    settings.MEMBER_NETWORKS = ()
    if name == "other network":
        settings.MEMBER_NETWORKS = (ip_network("192.0.2.0/24"),)
    entered, words = EXAMPLES[name]

    found = answers(entered, tmp_path)

    for form in ("kubeconfig", "fields"):
        of_form = {door: text for door, text in found.items() if door.startswith(form)}
        distinct = {json.dumps(text) for text in of_form.values()}
        assert len(distinct) <= 1, json.dumps(of_form, indent=1)
        assert not distinct or words in distinct.pop()


ROWS = re.compile(r"<tr>(.*?)</tr>", re.S)
OF_BOTH = ("address", "tcp", "tls", "version", "authentication")


def of_both(lines: Iterable[str]) -> list[str]:
    """Return the lines of the steps that a cluster and a hub have, without the tags of a page."""
    texts = [
        " ".join(html.unescape(re.sub("<[^>]*>", " ", line)).split()) for line in lines
    ]
    return [text for text in texts if text.lower().startswith(OF_BOTH)]


def steps_of(answered: Any) -> list[str]:
    body = answered.json()
    steps = body["steps"] if isinstance(body, dict) else body
    return of_both(
        f"{step['step']} {step['ok']} {step['message']} {step['hint']}"
        for step in steps
    )


@contextmanager
def _refusing() -> Iterator[str]:
    with serve(always(answer(401, status_body(401)))) as server:
        yield server.url


@contextmanager
def _of_another_authority() -> Iterator[str]:
    with serve(always(b""), pair=authority("another").issue()) as server:
        yield server.url


@contextmanager
def _closed() -> Iterator[str]:
    with serve(always(b"")) as server:
        url = server.url
    yield url


@contextmanager
def _without_address() -> Iterator[str]:
    yield "https://nowhere.invalid:6443"


@pytest.mark.parametrize(
    "serving", [_refusing, _of_another_authority, _closed, _without_address]
)
def test_a_failed_check_has_the_same_steps_at_every_door(
    serving: Callable[[], AbstractContextManager[str]], tmp_path: Path
) -> None:
    joined("prod")
    administrator = person("carl", "cluster-administrator")
    browser, api = Client(), APIClient()
    browser.force_login(administrator)
    api.force_authenticate(administrator)

    pages, operations, commands = {}, {}, {}
    with serving() as url:
        entered = entry(server=url)
        body = rest_kubeconfig(entered)
        form = {"name": "another", "kind": "kubernetes", **page_kubeconfig(entered)}
        for address in ("/clusters/new/", "/hubs/new/"):
            for do in ("check", "save"):
                shown = browser.post(address, {**form, "do": do})
                rows = ROWS.findall(shown.content.decode())
                pages[f"{address} {do}"] = (of_both(rows), shown.status_code)
            assert pages[f"{address} check"][0] == pages[f"{address} save"][0]
        operations["PUT"] = api.put(CONNECTION, body, format="json")
        new = {"name": "other", "connection": body}
        operations["POST hubs"] = api.post(HUBS, new, format="json")
        for command in ("join", "connect_hub"):
            for options in ((), ("--check",)):
                code, text = of_command(command, tmp_path, entered, *options)
                steps = of_both(line[7:] for line in text.splitlines())
                commands[f"{command} {options}"] = (code, steps)
        confirmed = of_command("join", tmp_path, entered, "--confirm")
        connected = of_command("connect_hub", tmp_path, entered, "--confirm")

    for do in ("check", "save"):
        assert pages[f"/clusters/new/ {do}"] == pages[f"/hubs/new/ {do}"]
    put, post = operations.values()
    assert (put.status_code, post.status_code) == (409, 409)
    assert steps_of(put) == steps_of(post)
    assert len(steps_of(put)) == len(OF_BOTH)
    for options in ((), ("--check",)):
        assert commands[f"join {options}"] == commands[f"connect_hub {options}"]
    assert (confirmed[0], connected[0]) == (0, 0)


def test_the_same_events_and_entries_of_the_access_log() -> None:
    """Set a connection, change the secret twice, the second time without TLS verification, remove it."""
    joined("prod")
    api = APIClient()
    api.force_authenticate(person("carl", "cluster-administrator"))
    query, recorded = "?confirm=failed-check", {}

    with (
        override_settings(ALLOW_INSECURE_TLS=True),
        serve(always(answer(401, status_body(401)))) as server,
    ):
        first = {"server": server.url, "ca": CA, "token": "one"}
        changes: list[dict[str, Any]] = [
            {"server": server.url, "insecureTLS": True, "token": "two"},
            {"server": server.url, "insecureTLS": True, "token": "three"},
        ]
        answered = [
            api.put(f"{CONNECTION}{query}", document, format="json")
            for document in (first, *changes)
        ]
        answered.append(api.delete(CONNECTION))
        answered.append(
            api.post(
                f"{HUBS}{query}", {"name": "prod", "connection": first}, format="json"
            )
        )
        answered += [
            api.patch(f"{HUBS}/prod{query}", {"connection": change}, format="json")
            for change in changes
        ]
        answered.append(api.delete(f"{HUBS}/prod"))
    assert {response.status_code for response in answered} <= {200, 201, 204}

    shared = ("credentials set", "credentials removed", "TLS verification off")
    for kind, subject in (("cluster", "cluster prod"), ("hub", "hub prod")):
        events = Event.objects.filter(kind=kind, name="prod", verb__in=shared)
        verbs = list(events.order_by("pk").values_list("verb", flat=True))
        entries = AccessEvent.objects.filter(
            verb="credentials changed", subject=subject
        )
        recorded[kind] = (verbs, entries.count())

    assert recorded["cluster"] == recorded["hub"]
    assert recorded["hub"] == (
        [
            "credentials set",
            "credentials set",
            "TLS verification off",
            "credentials set",
            "credentials removed",
        ],
        4,
    )


def test_no_door_of_a_connection_shows_its_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Refuse, check, save, change and show connections, and look for what was entered everywhere."""
    caplog.set_level(logging.DEBUG)
    joined("prod")
    administrator = person("carl", "cluster-administrator")
    browser, api = Client(), APIClient()
    browser.force_login(administrator)
    api.force_authenticate(administrator)
    secrets = ("planted-token", PAIR.key.splitlines()[2])
    texts = []
    with serve(always(answer(401, status_body(401)))) as server:
        token = entry(server=server.url, token=secrets[0])
        pair = entry(
            server=server.url, token="", certificate=PAIR.certificate, key=PAIR.key
        )
        both = entry(
            server=server.url,
            token=secrets[0],
            certificate=PAIR.certificate,
            key=PAIR.key,
        )
        confirmed = {"name": "another", "kind": "kubernetes", "confirm": FAILED_CHECK}
        for entered in (both, token, pair):
            for address in (
                "/clusters/new/",
                "/clusters/prod/connection/edit/",
                "/hubs/new/",
                "/hubs/another/about/credentials/",
            ):
                for typed, do, headers in product(
                    (page_kubeconfig(entered), page_fields(entered)),
                    ("check", "save"),
                    ({}, {"HX-Request": "true"}),
                ):
                    form = {**confirmed, **typed, "do": do}
                    shown_form = browser.post(address, form, headers=headers)
                    texts.append(shown_form.content.decode())
            body = dict(entered.fields)
            query = f"?confirm={FAILED_CHECK}"
            answered = [
                api.put(f"{CONNECTION}{query}", body, format="json"),
                api.post(f"{CONNECTION}/check", body, format="json"),
                api.patch(
                    f"{HUBS}/another{query}", {"connection": body}, format="json"
                ),
                api.post(f"{HUBS}/another/check", body, format="json"),
            ]
            texts += [response.content.decode() for response in answered]
            for command in ("join", "connect_hub"):
                for option in ("--check", "--replace"):
                    _, text = of_command(command, tmp_path, entered, option)
                    texts.append(text)
    stored = {
        ClusterCredential.objects.get(cluster__name="prod").kind,
        HubCredential.objects.get(hub__name="another").kind,
    }
    assert stored == {"certificate"}, "the last of them was saved at the doors of both"
    shown = (
        "/clusters/prod/connection/",
        "/clusters/prod/connection/edit/",
        "/hubs/another/about/",
        "/hubs/another/about/credentials/",
        CONNECTION,
        f"{HUBS}/another",
        "/api/v1/events",
    )
    texts += [browser.get(address).content.decode() for address in shown]
    texts += [database_dump(), caplog.text]

    for secret in secrets:
        found = [text[:300] for text in texts if secret in text]
        assert found == []
