"""`apply`, `diff` and `wait` on a console elsewhere: the same output and exit status as on its database."""

import io
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core.management import CommandError
from rest_framework.test import APIClient

from fleetui import remote
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.remote import (
    RemoteClient,
    RemoteError,
    Server,
    ServerRefused,
    parse_server,
)
from placements.client import waiting
from placements.models import Placement
from placements.services.resources.operations import apply_resource
from placements.services.rollouts.controller import sync_due_rollouts
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.servers import LocalServer, Request, answer, serve
from tests.commands import call_command
from tests.rows import (
    NOW,
    all_joined,
    deployment,
    namespace,
    placement_document,
    run_due,
    spec,
)

TOKEN = "0123456789abcdef0123456789abcdef01234567"
ADDRESS = "https://fleet.example.com"
ELSEWHERE = {
    "placementType": "PickAll",
    "affinity": {
        "clusterAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "clusterSelectorTerms": [
                    {"labelSelector": {"matchLabels": {"region": "moon"}}}
                ]
            }
        }
    },
}


class InProcess:
    """A pool of connections that passes each request to the console of the test."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def request(
        self,
        method: str,
        address: str,
        *,
        body: bytes | None,
        headers: Mapping[str, str],
        **_: Any,
    ) -> Any:
        parts = urlsplit(address)
        assert headers["Authorization"] == f"Token {TOKEN}"
        path = f"{parts.path}?{parts.query}"
        response = self.client.generic(
            method, path, body or b"", content_type=headers.get("Content-Type", "")
        )
        return Answer(response.status_code, response.headers, response.content)


class Answer(io.BytesIO):
    """The response of a library for HTTP."""

    def __init__(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
        super().__init__(content)
        self.status, self.headers = status, headers


@pytest.fixture
def _elsewhere(api: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect `--server` to the console of the test."""
    monkeypatch.setattr(remote, "_pool_of", lambda _server: InProcess(api))
    monkeypatch.setenv(remote.TOKEN, TOKEN)
    monkeypatch.setenv(remote.SERVER, ADDRESS)


def run(*arguments: str) -> tuple[int, str, str]:
    """Run a command; return its exit status and what it wrote to both of its outputs."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    try:
        call_command(*arguments, stdout=out, stderr=err)
    except CommandError as error:
        code = error.returncode
        err.write(str(error))
    except SystemExit as end:
        code = int(str(end.code))
    return code, out.getvalue(), err.getvalue()


def written(path: Path, *documents: Mapping[str, Any]) -> str:
    path.write_text("---\n".join(map(dump_yaml, documents)))
    return str(path)


@pytest.mark.usefixtures("_elsewhere")
def test_both_ways_print_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    all_joined("bravelion", "smartfish")
    first = written(tmp_path / "first.yaml", namespace("shop"))
    second = written(tmp_path / "second.yaml", placement_document("web", spec()))
    files = ("-f", first, "-f", second)

    for command in (
        ("diff", *files),
        ("apply", *files, "--dry-run"),
        ("apply", *files),
        ("diff", *files),
    ):
        if command == (
            "apply",
            *files,
        ):  # only once: the second one would find everything there
            continue
        over_rest = run(*command)
        monkeypatch.delenv(remote.SERVER)
        here = run(*command)
        monkeypatch.setenv(remote.SERVER, ADDRESS)
        assert over_rest == here, command
    assert Placement.objects.count() == 0

    code, out, _ = run("apply", *files)

    assert (code, out) == (
        0,
        "resource /Namespace//shop created\nplacement web created\n",
    )
    assert Placement.objects.get().triggered_by == "operator"
    assert run("diff", *files) == (0, "", "")


@pytest.mark.usefixtures("_elsewhere")
def test_errors_name_the_file_and_its_line(tmp_path: Path) -> None:
    good = written(tmp_path / "good.yaml", namespace("shop"), namespace("till"))
    bad = tmp_path / "bad.yaml"
    bad.write_text(
        f"---\n# a comment\n{dump_yaml(placement_document('web', spec({'numberOfClusters': 2})))}"
    )
    number = next(
        i
        for i, line in enumerate(bad.read_text().splitlines(), 1)
        if "numberOfClusters" in line
    )

    code, _, err = run("apply", "-f", good, "-f", str(bad))

    assert code == 2
    assert err.startswith(f"{bad}: ")
    assert f"(line {number})" in err
    assert f"(line {number})" in run("apply", "-f", str(bad))[2]


@pytest.mark.usefixtures("_elsewhere")
def test_a_placement_that_would_run_nowhere_needs_a_confirmation(
    tmp_path: Path,
) -> None:
    all_joined("bravelion")
    file = written(
        tmp_path / "web.yaml", namespace("shop"), placement_document("web", spec())
    )
    run("apply", "-f", file)
    run_due()
    changed = written(
        tmp_path / "changed.yaml", placement_document("web", spec(ELSEWHERE))
    )

    code, _, err = run("apply", "-f", changed)

    assert code == 3
    assert "--confirm unschedule-everything" in err
    assert run("apply", "-f", changed, "--confirm", "unschedule-everything")[0] == 0


@pytest.mark.usefixtures("_elsewhere")
def test_wait_ends_when_the_conditions_of_the_last_change_are_met(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    all_joined("bravelion")
    run(
        "apply",
        "-f",
        written(
            tmp_path / "web.yaml", namespace("shop"), placement_document("web", spec())
        ),
    )
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        assert len(pauses) < 5
        if len(pauses) == 2:
            run_due()
            sync_due_rollouts(now=NOW)

    monkeypatch.setattr(waiting.time, "sleep", pause)

    code, out, err = run("wait", "web", "--for", "Scheduled", "--timeout", "1h")

    assert (code, out) == (0, "web: Scheduled\n")
    assert "web: Scheduled is Unknown, not True" in err
    assert pauses == [1.0, 1.0]
    # The condition is true, of the resources before this change.
    apply_resource(deployment("web", "web:1"), by=None, now=NOW)
    monkeypatch.delenv(remote.SERVER)
    assert (
        run("wait", "web", "--for", "Scheduled", "--timeout", "0.01s")[0]
        == waiting.TIMED_OUT
    )


@pytest.mark.usefixtures("_elsewhere")
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (
            ("web", "--for", "Available", "--timeout", "0.01s"),
            5,
            "not met within 0.01 s: Available is",
        ),
        (
            ("web", "--for", "Ready"),
            2,
            'Unsupported value: "Ready": supported values: "Scheduled"',
        ),
        (
            ("web", "--for", "Applied=yes"),
            2,
            'supported values: "True", "False", "Unknown"',
        ),
        (("shop/web",), 1, "no placement is named 'shop/web'"),
        (("shop/web", "--for", "deleted"), 0, ""),
    ],
)
def test_wait_has_a_status_for_each_end(
    tmp_path: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    run(
        "apply", "-f", written(tmp_path / "web.yaml", placement_document("web", spec()))
    )

    found = run("wait", *arguments)

    assert found[0] == code
    assert words in found[2]


def test_a_token_is_refused_where_it_would_be_seen_or_none_is(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    given = {"server": ADDRESS, "token_file": str(file)}

    found = parse_server(given, {})

    assert found == Server(ADDRESS, TOKEN)
    assert parse_server({}, {}) is None
    assert (
        parse_server({}, {remote.SERVER: f"{ADDRESS}/", remote.TOKEN: TOKEN}) == found
    )
    for options, words in (
        ({**given, "server": "http://fleet.example.com"}, "readable on the network"),
        ({**given, "server": "fleet.example.com"}, "write an address such as"),
        ({**given, "server": "https://ana:secret@fleet.example.com"}, "use a token"),
        ({**given, "token": "x"}, "two tokens"),
        ({**given, "token_file": "/missing"}, "No such file"),
        ({"server": ADDRESS}, "a token is needed"),
        ({"server": ADDRESS, "token": "a\nb"}, "characters that no token has"),
        ({"token": "x"}, "--token needs --server"),
    ):
        with pytest.raises(ServerRefused, match=words):
            parse_server(options, {})


def respond(status: int, content: bytes, **headers: str) -> Any:
    """Return a behaviour that answers each request so."""
    return lambda link, _request, _server: link.sendall(
        answer(status, headers=headers, raw=content)
    )


def get(server: LocalServer, url: str = "", **options: Any) -> Any:
    return RemoteClient(Server(url or server.url, TOKEN, **options)).request(
        "GET", "placements/web"
    )


def test_tls_is_verified_with_the_authorities_that_are_given(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(authority().pem)
    with serve(respond(200, b'{"a": 1}')) as server:
        with pytest.raises(RemoteError, match="certificate verify failed") as unknown:
            get(server)
        assert unknown.value.returncode == 4
        assert server.requests == []  # no token was sent

        assert get(server, ca_file=str(file)) == {"a": 1}
        assert get(server, skip_verification=True) == {"a": 1}
        with pytest.raises(ServerRefused, match="--ca-file"):
            get(server, ca_file=str(tmp_path / "missing"))

    request: Request = server.requests[0]
    assert request.path == "/api/v1/placements/web"
    assert request.headers["authorization"] == f"Token {TOKEN}"
    assert ssl.OPENSSL_VERSION  # the context is Python's own


def test_answers_that_are_none_of_a_console() -> None:
    cases: tuple[tuple[int, bytes, dict[str, str], int, str], ...] = (
        (
            302,
            b"",
            {"Location": "https://elsewhere.example.com/"},
            4,
            "redirected to https://elsewhere",
        ),
        (200, b"<html>", {}, 4, "no JSON: is this the address of FleetUI"),
        (401, b'{"detail": "Invalid token."}', {}, 1, "Invalid token."),
        (503, b'{"detail": "The disk is full."}', {}, 4, "The disk is full."),
        (429, b'{"detail": "Later."}', {}, 4, "Later."),
        (400, b"[]", {}, 2, "status 400"),
    )
    for status, content, headers, code, words in cases:
        with (
            serve(respond(status, content, **headers), plain=True) as server,
            pytest.raises(RemoteError, match=words) as found,
        ):
            get(server, f"http://127.0.0.1:{server.port}")
        assert found.value.returncode == code
        assert len(server.requests) == 1  # nothing was followed or tried again
    with pytest.raises(RemoteError, match="Failed to establish a new connection"):
        get(server, f"http://127.0.0.1:{server.port}")
