"""Headers for browsers, and what changes behind a proxy with HTTPS."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.http import HttpRequest, HttpResponse

from fleetui.middleware import ContentSecurityPolicyMiddleware, https_origins
from tests.runtime.processes import ROOT


def _policy(path: str, answer: HttpResponse | None = None) -> dict[str, str]:
    request = HttpRequest()
    request.path_info = path
    response = ContentSecurityPolicyMiddleware(lambda _request: answer or HttpResponse())(request)
    parts = response.headers["Content-Security-Policy"].split("; ")
    return {name: sources for name, _, sources in (part.partition(" ") for part in parts)}


@pytest.mark.parametrize("path", ["/", "/api/placements/", "/api/do", "/administration", "/admin/clusters/"])
def test_no_script_inside_a_page_runs(path: str) -> None:
    assert _policy(path)["script-src"] == "'self'"


def test_admin_and_api_pages_get_what_they_need_and_no_more() -> None:
    pages, admin, docs = _policy("/"), _policy("/admin/"), _policy("/api/docs/")

    assert {name for name in pages if admin[name] != pages[name]} == {"style-src"}
    assert {name for name in docs if docs[name] != pages.get(name)} == {"style-src"}


def test_no_plugin_runs_and_no_page_changes_its_base() -> None:
    for path in ("/", "/admin/", "/api/docs/"):
        policy = _policy(path)
        assert (policy["object-src"], policy["base-uri"], policy["frame-ancestors"]) == ("'none'",) * 3


def test_a_view_may_bring_its_own_policy() -> None:
    answer = HttpResponse(headers={"Content-Security-Policy": "default-src 'none'"})

    assert _policy("/", answer) == {"default-src": "'none'"}


def test_origins_follow_the_hosts() -> None:
    assert https_origins(["fleet.example", ".example.net", "*"]) == [
        "https://fleet.example",
        "https://*.example.net",
    ]


@pytest.mark.parametrize(
    ("https", "expected"),
    [
        ("0", [False, False, 0, None, [], False, False, "sessionid", "csrftoken"]),
        (
            "1",
            [
                *(True, True, 31_536_000, ["HTTP_X_FORWARDED_PROTO", "https"], ["https://fleet.example"]),
                *(True, True, "__Host-sessionid", "__Host-csrftoken"),
            ],
        ),
    ],
)
def test_https_is_one_switch(https: str, expected: list[object], tmp_path: Path) -> None:
    names = [
        "SESSION_COOKIE_SECURE",
        "CSRF_COOKIE_SECURE",
        "SECURE_HSTS_SECONDS",
        "SECURE_PROXY_SSL_HEADER",
        "CSRF_TRUSTED_ORIGINS",
        "SECURE_SSL_REDIRECT",
        "SECURE_HSTS_INCLUDE_SUBDOMAINS",
        "SESSION_COOKIE_NAME",
        "CSRF_COOKIE_NAME",
    ]
    probe = (
        f"import json; from fleetui import settings as s; print(json.dumps([getattr(s, n) for n in {names}]))"
    )

    answer = subprocess.run(
        [sys.executable, "-c", probe],
        cwd=ROOT,
        env=os.environ
        | {
            "FLEETUI_HTTPS": https,
            "FLEETUI_HSTS_SUBDOMAINS": "1",
            "FLEETUI_ALLOWED_HOSTS": "fleet.example",
            "FLEETUI_VAR_DIR": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=True,
    )

    assert json.loads(answer.stdout) == expected
