"""Headers for browsers, and what changes behind a proxy with HTTPS."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from allauth.mfa import app_settings as mfa_settings
from django.conf import global_settings, settings
from django.http import HttpRequest, HttpResponse

from fleetui import settings as our_settings
from fleetui.middleware import (
    LARGEST_FORM,
    ContentSecurityPolicyMiddleware,
    https_origins,
)
from tests.runtime.processes import ROOT


def _policy(path: str, answer: HttpResponse | None = None) -> dict[str, str]:
    request = HttpRequest()
    request.path_info = path
    response = ContentSecurityPolicyMiddleware(
        lambda _request: answer or HttpResponse()
    )(request)
    parts = response.headers["Content-Security-Policy"].split("; ")
    return {
        name: sources for name, _, sources in (part.partition(" ") for part in parts)
    }


@pytest.mark.parametrize(
    "path", ["/", "/api/placements/", "/api/do", "/administration", "/admin/clusters/"]
)
def test_no_script_inside_a_page_runs(path: str) -> None:
    assert _policy(path)["script-src"] == "'self'"


def test_admin_and_api_pages_get_what_they_need_and_no_more() -> None:
    pages, admin, docs = _policy("/"), _policy("/admin/"), _policy("/api/docs/")

    assert {name for name in pages if admin[name] != pages[name]} == {"style-src"}
    assert {name for name in docs if docs[name] != pages.get(name)} == {"style-src"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CELERY_ACCEPT_CONTENT", ["json"]),
        ("CELERY_TASK_SERIALIZER", "json"),
        (
            "FILE_UPLOAD_HANDLERS",
            ["django.core.files.uploadhandler.MemoryFileUploadHandler"],
        ),
        ("FILE_UPLOAD_MAX_MEMORY_SIZE", LARGEST_FORM),
        ("MFA_RECOVERY_CODE_DIGITS", 10),
        ("SECURE_CONTENT_TYPE_NOSNIFF", True),
        ("SECURE_REFERRER_POLICY", "same-origin"),
        ("SESSION_COOKIE_HTTPONLY", True),
        ("SESSION_COOKIE_SAMESITE", "Lax"),
        ("CSRF_COOKIE_SAMESITE", "Lax"),
        ("SESSION_ENGINE", "django.contrib.sessions.backends.db"),
        ("SOCIALACCOUNT_STORE_TOKENS", False),
        ("TIME_ZONE", "UTC"),
        ("USE_TZ", True),
    ],
)
def test_settings_of_libraries_are_those_of_the_statement(
    name: str, value: object
) -> None:
    assert getattr(settings, name) == value


def test_passwords_are_hashed_slowly_and_codes_count_in_their_period() -> None:
    hashers = getattr(
        our_settings, "PASSWORD_HASHERS", global_settings.PASSWORD_HASHERS
    )

    assert hashers[0] == "django.contrib.auth.hashers.PBKDF2PasswordHasher"
    assert (mfa_settings.TOTP_TOLERANCE, mfa_settings.TOTP_PERIOD) == (0, 30)


def test_no_plugin_runs_and_no_page_changes_its_base() -> None:
    for path in ("/", "/admin/", "/api/docs/"):
        policy = _policy(path)
        assert (
            policy["object-src"],
            policy["base-uri"],
            policy["frame-ancestors"],
        ) == ("'none'",) * 3


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
                *(
                    True,
                    True,
                    31_536_000,
                    ["HTTP_X_FORWARDED_PROTO", "https"],
                    ["https://fleet.example"],
                ),
                *(True, True, "__Host-sessionid", "__Host-csrftoken"),
            ],
        ),
    ],
)
def test_https_is_one_switch(
    https: str, expected: list[object], tmp_path: Path
) -> None:
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
    probe = f"import json; from fleetui import settings as s; print(json.dumps([getattr(s, n) for n in {names}]))"

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
