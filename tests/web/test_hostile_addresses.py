"""Hostile names, numbers and parameters at every page: no error of the server, and no way to another host.

Which parameters a page reads is recorded while it answers, so that no list of them is forgotten.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pytest
from django.contrib.auth.models import User
from django.http import QueryDict
from django.test import Client
from django.urls import resolve

from tests.web.test_planted_secrets import page_world

pytestmark = [pytest.mark.django_db, pytest.mark.larger]
LONG = "x" * 3000
IN_PATHS = (
    "a%2Fb",
    "-1",
    "%00",
    "%0A",
    "%FF",
    "..",
    "%2F%2Fevil.example",
    "9" * 30,
    quote("ü ;?#&"),
    LONG,
)
IN_QUERIES = (
    "a/b",
    "-1",
    "\x00",
    "\n",
    "//evil.example",
    "https://evil.example/",
    "9" * 30,
    "ü'\";",
    LONG,
    "",
)
SAFE = (200, 204, 302, 303, 304, 400, 403, 404, 405, 409, 410, 413, 414, 422, 429)


def superuser() -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create_superuser("root", password="x"))
    return client


def faults(answer: Any) -> list[str]:
    """Return what is wrong with a response: an error of the server, or a redirect to another host."""
    found = [] if answer.status_code in SAFE else [str(answer.status_code)]
    for header in ("Location", "HX-Redirect", "HX-Location", "HX-Push-Url"):
        target = urlsplit(answer.headers.get(header, ""))
        if (
            target.netloc
            or target.scheme
            or answer.headers.get(header, "/")[:1] not in ("/", "?")
        ):
            found.append(f"{header}: {answer.headers[header][:60]}")
    return found


@contextmanager
def recorded_keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Return the parameters that are read from a query or a form meanwhile."""
    keys: set[str] = set()
    with monkeypatch.context() as patched:
        for name in ("__getitem__", "get", "getlist", "__contains__", "pop"):
            real = getattr(QueryDict, name)

            def read(
                self: Any, key: Any, *rest: Any, real: Any = real, **more: Any
            ) -> Any:
                keys.add(key)
                return real(self, key, *rest, **more)

            patched.setattr(QueryDict, name, read)
        yield keys


def hostile_paths(addresses: Iterable[str]) -> Iterator[str]:
    """Yield each address with one of its names or numbers replaced by each hostile one."""
    for address in addresses:
        match = resolve(address.partition("?")[0])
        captured: dict[str, Any] = match.captured_kwargs  # type: ignore[attr-defined]  # not in the stubs
        for part in captured:
            for value in IN_PATHS:
                parts = {
                    name: quote(str(one), safe="") for name, one in captured.items()
                } | {part: value}
                route = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", match.route)
                yield "/" + route.format(**parts)


def hostile_queries(keys: list[str]) -> Iterator[dict[str, str]]:
    """Yield all parameters with two of the values, and each alone with one of them in turn."""
    yield from (dict.fromkeys(keys, value) for value in IN_QUERIES[:2])
    for number, key in enumerate(keys):
        yield {key: IN_QUERIES[number % len(IN_QUERIES)]}


@pytest.fixture
def addresses() -> list[str]:
    world = page_world(User.objects.create_superuser("owner", password="x"))
    found: dict[str, str] = {}
    for one in world.values():
        found.setdefault(resolve(one.partition("?")[0]).route, one)
    return list(found.values())


@pytest.mark.nightly
def test_no_name_in_a_path_is_an_error_of_the_server(addresses: list[str]) -> None:
    client, found = superuser(), {}
    for path in hostile_paths(addresses):
        for headers in ({}, {"HX-Request": "true"}):
            if wrong := faults(client.get(path, headers=headers)):
                found[path[:120], *headers] = wrong
    assert found == {}


@pytest.mark.nightly
def test_no_parameter_of_a_page_is_an_error_of_the_server(
    addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, found, count = superuser(), {}, 0
    for address in addresses:
        path = address.partition("?")[0]
        with recorded_keys(monkeypatch) as keys:
            client.get(address, headers={"HX-Request": "true"})
            client.get(address)
        for query in hostile_queries(sorted(keys)):
            for headers in ({}, {"HX-Request": "true"})[: 1 + (len(query) > 1)]:
                count += 1
                if wrong := faults(
                    client.get(f"{path}?{urlencode(query)}", headers=headers)
                ):
                    found[path, str(sorted(query))[:80], str(query)[:90], *headers] = (
                        wrong
                    )
    assert count > 500
    assert found == {}


def test_the_panel_of_the_map_knows_its_clusters_only() -> None:
    client = superuser()
    for name in ("a/b", "missing", "..", LONG):
        for headers in ({}, {"HX-Request": "true"}):
            assert (
                client.get(
                    "/topology/panel/", {"cluster": name}, headers=headers
                ).status_code
                == 404
            )
