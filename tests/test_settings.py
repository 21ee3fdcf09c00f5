"""Settings come from the environment, typed, and odd ones are refused in words that help."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.db.utils import ConnectionHandler

from fleetui.env import PREFIX, SettingRefused, Variables, keep_secret, read_variables

ROOT = Path(__file__).resolve().parent.parent
Read = Callable[[str, str], Any]


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [name for name in os.environ if name.startswith(PREFIX)]
    for name in (*names, "DATABASE_URL", "CELERY_BROKER_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    """Return a function that sets a variable and reads all of them."""

    def read_one(name: str, text: str) -> Any:
        monkeypatch.setenv(name, text)
        return getattr(read_variables(), name.removeprefix(PREFIX))

    return read_one


@pytest.mark.parametrize(
    ("text", "meant"), [("1", True), ("Yes", True), ("off", False), ("FALSE", False)]
)
def test_flag_reads_the_usual_spellings(read: Read, text: str, meant: bool) -> None:
    assert read("FLEETUI_DEBUG", text) is meant


@pytest.mark.parametrize("text", ["", "maybe", "2", "tru"])
def test_flag_refuses_what_is_unclear_and_says_what_is_allowed(
    read: Read, text: str
) -> None:
    with pytest.raises(SettingRefused) as refusal:
        read("FLEETUI_DEBUG", text)

    assert str(refusal.value) == (
        f"FLEETUI_DEBUG={text!r} is refused: write 1, true, yes or on, or else 0, false, no or off."
    )


def test_periods_have_a_unit(read: Read) -> None:
    periods = [read("FLEETUI_KEEP_EVENTS", text) for text in ("90d", "30s", "36h")]

    assert periods == [timedelta(days=90), timedelta(seconds=30), timedelta(hours=36)]


@pytest.mark.parametrize(
    "text", ["", "0d", "90", "-1d", "1.5d", "1w", "100000d", "forever"]
)
def test_periods_refuse_what_is_unclear(read: Read, text: str) -> None:
    with pytest.raises(SettingRefused) as refusal:
        read("FLEETUI_KEEP_EVENTS", text)

    assert str(refusal.value) == (
        f"FLEETUI_KEEP_EVENTS={text!r} is refused: "
        "write a number from 1 to 99999 and s, m, h or d, such as 90d."
    )


def test_hosts_are_divided_by_commas(read: Read) -> None:
    text = "console.example.org, .example.net,10.0.0.7,[::1]"

    assert read("FLEETUI_ALLOWED_HOSTS", text) == [
        "console.example.org",
        ".example.net",
        "10.0.0.7",
        "[::1]",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,,b",
        "https://a.example",
        "a.example:8000",
        "a.example/x",
        "a b",
        "a.example;b",
    ],
)
def test_hosts_refuse_what_could_never_match(read: Read, text: str) -> None:
    with pytest.raises(
        SettingRefused,
        match=r"^FLEETUI_ALLOWED_HOSTS=.* without scheme, port or path\.$",
    ):
        read("FLEETUI_ALLOWED_HOSTS", text)


def test_folder_has_to_exist_and_to_be_absolute(read: Read, tmp_path: Path) -> None:
    for name in ("FLEETUI_VAR_DIR", "FLEETUI_STATIC_DIR"):
        assert read(name, str(tmp_path)) == tmp_path
        for text in ("", "var", str(tmp_path / "missing")):
            with pytest.raises(
                SettingRefused, match="existing folder by its absolute path"
            ):
                read(name, text)
        read(name, str(tmp_path))


def test_short_secret_is_refused_without_being_repeated(read: Read) -> None:
    with pytest.raises(SettingRefused, match="32 characters or more") as refusal:
        read("FLEETUI_SECRET_KEY", "hunter2")

    assert "hunter2" not in str(refusal.value)
    assert (
        refusal.value.__context__ is None
    )  # a traceback would show what pydantic says


def test_no_secret_is_shown_with_the_variables(read: Read) -> None:
    read("FLEETUI_SECRET_KEY", "hunter2-" * 5)
    read("FLEETUI_MAIL_SERVER", "smtps://user:hunter2@mail.example.com")
    read("CELERY_BROKER_URL", "redis://user:hunter2@queue.example.com")
    read("DATABASE_URL", "postgres://user:hunter2@data.example.com/fleet")

    assert "hunter2" not in repr(read_variables())


@pytest.mark.parametrize(
    "url", ["mysql://u:hunter2@h/name", "u:hunter2@h", "postgres://u:hunter2@h:x/name"]
)
def test_another_database_is_refused_without_repeating_its_password(
    read: Read, url: str
) -> None:
    with pytest.raises(
        SettingRefused, match=r"^DATABASE_URL='…' is refused: write postgres://"
    ) as refusal:
        read("DATABASE_URL", url)

    assert "hunter2" not in str(refusal.value)
    assert refusal.value.__context__ is None


@pytest.mark.parametrize(
    "url",
    [
        "atomicfs://",
        "redis://:secret@h:6379/0",
        "rediss://h",
        "redis+socket:///run/r.sock",
        "amqps://u:p@h//",
    ],
)
def test_broker_is_a_folder_redis_or_rabbitmq(read: Read, url: str) -> None:
    assert read("CELERY_BROKER_URL", url) == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "redis",
        "memory://",
        "filesystem://",
        "http://u:hunter2@h",
        "redis:hunter2@h",
    ],
)
def test_another_broker_is_refused_without_repeating_its_password(
    read: Read, url: str
) -> None:
    with pytest.raises(
        SettingRefused,
        match=r"^CELERY_BROKER_URL='…' is refused: write atomicfs://, redis://….*\.$",
    ) as refusal:
        read("CELERY_BROKER_URL", url)

    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize("text", ["", "  "])
def test_text_that_is_set_but_empty_is_refused(read: Read, text: str) -> None:
    with pytest.raises(SettingRefused, match="leave it unset"):
        read("FLEETUI_ADMIN_USER", text)


@pytest.mark.parametrize("text", ["", "0", "3651", "-1", "1.5", "ten", "9" * 30])
def test_numbers_have_bounds(read: Read, text: str) -> None:
    assert read("FLEETUI_TOKEN_MOST_DAYS", "3650") == 3650
    with pytest.raises(SettingRefused) as refusal:
        read("FLEETUI_TOKEN_MOST_DAYS", text)

    assert str(refusal.value) == (
        f"FLEETUI_TOKEN_MOST_DAYS={text!r} is refused: write a whole number from 1 to 3650."
    )


def test_every_number_says_its_bounds(read: Read) -> None:
    numbers = [
        name
        for name, field in Variables.model_fields.items()
        if field.annotation is int
    ]

    assert len(numbers) >= 5
    for name in numbers:
        with pytest.raises(
            SettingRefused, match=r"write a whole number from \d+ to \d+\."
        ):
            read(f"{PREFIX}{name}", "-1")
        os.environ.pop(f"{PREFIX}{name}")


def test_a_word_is_one_of_a_few(read: Read) -> None:
    with pytest.raises(SettingRefused, match="write plain or json"):
        read("FLEETUI_LOG_FORMAT", "xml")


def test_what_is_no_setting_is_ignored(read: Read) -> None:
    with pytest.raises(AttributeError):
        read("FLEETUI_UNKNOWN", "1")
    with pytest.raises(AttributeError):
        read("FLEETUI_debug", "1")

    assert read_variables().DEBUG is False


def test_absent_variables_give_the_defaults() -> None:
    variables = read_variables()

    assert variables.DEBUG is False
    assert variables.VAR_DIR == ROOT / "var"
    assert (variables.SECRET_KEY, variables.STATIC_DIR, variables.DATABASE_URL) == (
        None,
        None,
        None,
    )
    assert variables.CELERY_BROKER_URL == "atomicfs://"
    assert variables.ADMIN_USER == "admin"
    assert (
        variables.CREDENTIAL_KEYS,
        variables.TRUSTED_PROXIES,
        variables.OIDC_ROLES,
    ) == ((), (), {})
    assert variables.MAIL_SERVER["EMAIL_HOST"] == ""


def test_secret_is_made_once_kept_and_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "secret-key"

    made = keep_secret(path)

    assert len(made) >= 50
    assert keep_secret(path) == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["secret-key"]


def test_processes_that_start_at_once_share_one_secret(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        secrets = set(pool.map(keep_secret, [tmp_path / "secret-key"] * 8))

    assert len(secrets) == 1


@pytest.mark.nightly
def test_console_is_closed_by_default() -> None:
    probe = "from fleetui import settings as s; print(s.DEBUG, s.ALLOWED_HOSTS)"

    answer = _python("-c", probe)

    assert answer.stdout == "False ['localhost', '.localhost', '127.0.0.1', '[::1]']\n"


@pytest.mark.nightly
def test_loading_the_settings_writes_nothing(tmp_path: Path) -> None:
    answer = _python(
        "-c", "import django; django.setup()", FLEETUI_VAR_DIR=str(tmp_path)
    )

    assert answer.returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_command_line_says_in_one_line_what_it_refuses() -> None:
    answer = _python("manage.py", "check", FLEETUI_DEBUG="maybe")

    assert answer.returncode == 1
    assert answer.stderr.startswith("manage.py: FLEETUI_DEBUG='maybe' is refused: ")
    assert answer.stderr.count("\n") == 1


@pytest.mark.django_db
def test_database_lets_pages_read_while_a_worker_writes(tmp_path: Path) -> None:
    configured = connections.settings["default"] | {"NAME": tmp_path / "fleet.sqlite3"}
    connection = ConnectionHandler({"default": configured})["default"]

    with connection.cursor() as cursor:
        mode = cursor.execute("PRAGMA journal_mode").fetchone()
    connection.close()

    assert mode == ("wal",)
    assert configured["OPTIONS"]["transaction_mode"] == "IMMEDIATE"


def _python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("FLEETUI_")
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment | {"DJANGO_SETTINGS_MODULE": "fleetui.settings"} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


KEY = "A" * 43 + "="


def test_encryption_keys(read: Read) -> None:
    assert read("FLEETUI_CREDENTIAL_KEYS", f"{KEY}, {KEY}") == (KEY, KEY)


@pytest.mark.parametrize("text", ["", "secret", KEY[1:], f"{KEY},", f"{KEY};{KEY}"])
def test_encryption_keys_are_refused_without_repeating_them(
    read: Read, text: str
) -> None:
    with pytest.raises(SettingRefused) as refusal:
        read("FLEETUI_CREDENTIAL_KEYS", text)

    assert str(refusal.value).startswith(
        "FLEETUI_CREDENTIAL_KEYS='…' is refused: list Fernet keys"
    )


def test_networks(read: Read) -> None:
    found = read("FLEETUI_MEMBER_NETWORKS", "10.0.0.0/8, fd00::/8,10.1.2.3")

    assert [str(one) for one in found] == ["10.0.0.0/8", "fd00::/8", "10.1.2.3/32"]


@pytest.mark.parametrize(
    "text", ["", "10.0.0.1/8", "ten", "10.0.0.0/8,", "10.0.0.0/33"]
)
def test_networks_refuse_what_is_unclear(read: Read, text: str) -> None:
    with pytest.raises(SettingRefused, match="list networks such as"):
        read("FLEETUI_MEMBER_NETWORKS", text)


def test_proxies(read: Read) -> None:
    urls = "http://proxy.example.com:3128, http://[fd00::1]:80"

    found = read("FLEETUI_MEMBER_PROXIES", urls)

    assert found == {"http://proxy.example.com:3128", "http://[fd00::1]:80"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "proxy:3128",
        "https://a:1",
        "http://a",
        "http://a:1/",
        "http://u:hidden@a:1",
        "socks5://a:1",
    ],
)
def test_proxies_refuse_what_is_unclear(read: Read, text: str) -> None:
    with pytest.raises(SettingRefused, match="list URLs such as") as refusal:
        read("FLEETUI_MEMBER_PROXIES", text)

    shown = "…" if "hidden" in text else text
    assert str(refusal.value).startswith(f"FLEETUI_MEMBER_PROXIES={shown!r} is refused")


def test_choices_and_pairs_are_of_a_closed_set(read: Read) -> None:
    group = "cn=ops,dc=example=operator"

    assert read("FLEETUI_SECOND_FACTOR_ROLES", "viewer, administrator") == {
        "viewer",
        "administrator",
    }
    assert read("FLEETUI_OIDC_ROLES", f"{group}; readers=viewer") == {
        "cn=ops,dc=example": "operator",
        "readers": "viewer",
    }
    for text in ("", "ops", "ops=boss", "=viewer", "ops=operator;"):
        with pytest.raises(SettingRefused, match="the roles are viewer, operator"):
            read("FLEETUI_OIDC_ROLES", text)
    read("FLEETUI_OIDC_ROLES", group)
    for text in ("", "boss", "viewer,", "viewer;operator"):
        with pytest.raises(SettingRefused, match="list some of viewer, operator"):
            read("FLEETUI_SECOND_FACTOR_ROLES", text)


def test_servers_of_logins_have_tls(read: Read) -> None:
    for text in (
        "https://id.example.com/realms/fleet/",
        "http://127.0.0.1:9000/x",
        "http://localhost:9000",
    ):
        assert read("FLEETUI_OIDC_ISSUER", text) == text.rstrip("/")
    for text in (
        "",
        "http://id.example.com",
        "https://",
        "ftp://a",
        "https://u:p@a",
        "http://localhost.evil",
    ):
        with pytest.raises(SettingRefused, match="write an address such as https://"):
            read("FLEETUI_OIDC_ISSUER", text)


def test_the_public_address_has_no_slash_at_its_end(read: Read) -> None:
    assert (
        read("FLEETUI_PUBLIC_URL", "https://fleet.example.com/")
        == "https://fleet.example.com"
    )
    for text in (
        "",
        "fleet.example.com",
        "https://u@fleet.example.com",
        "https://a/?b",
    ):
        with pytest.raises(
            SettingRefused, match="write an address such as https://fleet"
        ):
            read("FLEETUI_PUBLIC_URL", text)


def test_headers_are_read_by_their_name(read: Read) -> None:
    assert read("FLEETUI_PROXY_USER_HEADER", "X-Remote-User") == "HTTP_X_REMOTE_USER"
    for text in ("", "X Remote", "X_Remote", "1", "X-Remote:"):
        with pytest.raises(SettingRefused, match="write the name of a header"):
            read("FLEETUI_PROXY_USER_HEADER", text)


@pytest.mark.nightly
def test_a_proxy_that_logs_in_has_to_be_trusted() -> None:
    answer = _python("manage.py", "check", FLEETUI_PROXY_USER_HEADER="X-Remote-User")

    assert answer.returncode == 1
    assert (
        "list the addresses of the proxies in FLEETUI_TRUSTED_PROXIES as well"
        in answer.stderr
    )
