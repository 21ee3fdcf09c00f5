"""Settings come from the environment, typed, and odd ones are refused in words that help."""

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connections
from django.db.utils import ConnectionHandler

from fleetui.env import (
    SettingRefused,
    keep_secret,
    read_address,
    read_broker,
    read_choices,
    read_encryption_keys,
    read_flag,
    read_folder,
    read_header,
    read_hosts,
    read_minutes,
    read_networks,
    read_pairs,
    read_period,
    read_proxies,
    read_secret,
    read_text,
)

ROOT = Path(__file__).resolve().parent.parent
HERE = ("localhost",)


@pytest.mark.parametrize(("text", "meant"), [("1", True), ("Yes", True), ("off", False), ("FALSE", False)])
def test_flag_reads_the_usual_spellings(text: str, meant: bool) -> None:
    assert read_flag({"F": text}, "F", default=not meant) is meant


@pytest.mark.parametrize("text", ["", "maybe", "2", "tru"])
def test_flag_refuses_what_is_unclear_and_says_what_is_allowed(text: str) -> None:
    with pytest.raises(SettingRefused) as refusal:
        read_flag({"F": text}, "F", default=True)

    assert str(refusal.value) == (
        f"F={text!r} is refused: write 1, true, yes or on, or else 0, false, no or off."
    )


def test_periods_have_a_unit() -> None:
    given = {"A": "90d", "B": "30s", "C": "36h"}

    periods = [read_period(given, name, default=timedelta(days=1)) for name in "ABCD"]

    assert periods == [timedelta(days=90), timedelta(seconds=30), timedelta(hours=36), timedelta(days=1)]


@pytest.mark.parametrize("text", ["", "0d", "90", "-1d", "1.5d", "1w", "100000d", "forever"])
def test_periods_refuse_what_is_unclear(text: str) -> None:
    with pytest.raises(SettingRefused) as refusal:
        read_period({"K": text}, "K", default=timedelta(days=1))

    assert str(refusal.value) == (
        f"K={text!r} is refused: write a number from 1 to 99999 and s, m, h or d, such as 90d."
    )


def test_hosts_are_divided_by_commas() -> None:
    text = "console.example.org, .example.net,10.0.0.7,[::1]"

    assert read_hosts({"H": text}, "H", default=HERE) == [
        "console.example.org",
        ".example.net",
        "10.0.0.7",
        "[::1]",
    ]


@pytest.mark.parametrize(
    "text", ["", "a,,b", "https://a.example", "a.example:8000", "a.example/x", "a b", "a.example;b"]
)
def test_hosts_refuse_what_could_never_match(text: str) -> None:
    with pytest.raises(SettingRefused, match=r"^H=.* without scheme, port or path\.$"):
        read_hosts({"H": text}, "H", default=HERE)


def test_folder_has_to_exist_and_to_be_absolute(tmp_path: Path) -> None:
    assert read_folder({"D": str(tmp_path)}, "D", default=ROOT) == tmp_path
    for text in ("", "var", str(tmp_path / "missing")):
        with pytest.raises(SettingRefused, match="existing folder by its absolute path"):
            read_folder({"D": text}, "D", default=ROOT)


def test_short_secret_is_refused_without_being_repeated() -> None:
    with pytest.raises(SettingRefused, match="32 characters or more") as refusal:
        read_secret({"S": "hunter2"}, "S")

    assert "hunter2" not in str(refusal.value)


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
def test_broker_is_a_folder_redis_or_rabbitmq(url: str) -> None:
    assert read_broker({"B": url}, "B", default="atomicfs://") == url


@pytest.mark.parametrize(
    "url", ["", "redis", "memory://", "filesystem://", "http://u:hunter2@h", "redis:hunter2@h"]
)
def test_another_broker_is_refused_without_repeating_its_password(url: str) -> None:
    with pytest.raises(
        SettingRefused, match=r"^B='…' is refused: write atomicfs://, redis://….*\.$"
    ) as refusal:
        read_broker({"B": url}, "B", default="atomicfs://")

    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize("text", ["", "  "])
def test_text_that_is_set_but_empty_is_refused(text: str) -> None:
    with pytest.raises(SettingRefused, match="leave it unset"):
        read_text({"T": text}, "T", default="admin")


def test_absent_variables_give_the_defaults(tmp_path: Path) -> None:
    assert read_flag({}, "F", default=True) is True
    assert read_hosts({}, "H", default=HERE) == ["localhost"]
    assert read_folder({}, "D", default=tmp_path) == tmp_path
    assert read_secret({}, "S") is None
    assert read_broker({}, "B", default="atomicfs://") == "atomicfs://"
    assert read_text({}, "T", default="admin") == "admin"


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
    answer = _python("-c", "import django; django.setup()", FLEETUI_VAR_DIR=str(tmp_path))

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
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLEETUI_")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment | {"DJANGO_SETTINGS_MODULE": "fleetui.settings"} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


KEY = "A" * 43 + "="


def test_encryption_keys() -> None:
    assert read_encryption_keys({}, "K") == ()
    assert read_encryption_keys({"K": f"{KEY}, {KEY}"}, "K") == (KEY, KEY)


@pytest.mark.parametrize("text", ["", "secret", KEY[1:], f"{KEY},", f"{KEY};{KEY}"])
def test_encryption_keys_are_refused_without_repeating_them(text: str) -> None:
    with pytest.raises(SettingRefused) as refusal:
        read_encryption_keys({"K": text}, "K")

    assert str(refusal.value).startswith("K='…' is refused: list Fernet keys")


def test_networks() -> None:
    found = read_networks({"N": "10.0.0.0/8, fd00::/8,10.1.2.3"}, "N")

    assert [str(one) for one in found] == ["10.0.0.0/8", "fd00::/8", "10.1.2.3/32"]
    assert read_networks({}, "N") == ()


@pytest.mark.parametrize("text", ["", "10.0.0.1/8", "ten", "10.0.0.0/8,", "10.0.0.0/33"])
def test_networks_refuse_what_is_unclear(text: str) -> None:
    with pytest.raises(SettingRefused, match="list networks such as"):
        read_networks({"N": text}, "N")


def test_proxies() -> None:
    urls = "http://proxy.example.com:3128, http://[fd00::1]:80"

    assert read_proxies({"P": urls}, "P") == {"http://proxy.example.com:3128", "http://[fd00::1]:80"}
    assert read_proxies({}, "P") == frozenset()


@pytest.mark.parametrize(
    "text",
    ["", "proxy:3128", "https://a:1", "http://a", "http://a:1/", "http://u:hidden@a:1", "socks5://a:1"],
)
def test_proxies_refuse_what_is_unclear(text: str) -> None:
    with pytest.raises(SettingRefused, match="list URLs such as") as refusal:
        read_proxies({"P": text}, "P")

    assert "hidden" not in str(refusal.value)


def test_choices_and_pairs_are_of_a_closed_set() -> None:
    allowed = ("viewer", "operator")
    group = "cn=ops,dc=example=operator"

    assert read_choices({}, "C", allowed=allowed) == frozenset()
    assert read_choices({"C": "viewer, operator"}, "C", allowed=allowed) == {"viewer", "operator"}
    assert read_pairs({}, "P", allowed=allowed) == {}
    assert read_pairs({"P": f"{group}; readers=viewer"}, "P", allowed=allowed) == {
        "cn=ops,dc=example": "operator",
        "readers": "viewer",
    }
    for text in ("", "boss", "viewer,", "viewer;operator"):
        with pytest.raises(SettingRefused, match="list some of viewer, operator"):
            read_choices({"C": text}, "C", allowed=allowed)
    for text in ("", "ops", "ops=boss", "=viewer", "ops=operator;"):
        with pytest.raises(SettingRefused, match="the roles are viewer, operator"):
            read_pairs({"P": text}, "P", allowed=allowed)


def test_servers_of_logins_have_tls() -> None:
    for text in ("https://id.example.com/realms/fleet/", "http://127.0.0.1:9000/x", "http://localhost:9000"):
        assert read_address({"A": text}, "A") == text.rstrip("/")
    for text in (
        "",
        "http://id.example.com",
        "https://",
        "ftp://a",
        "https://u:p@a",
        "http://localhost.evil",
    ):
        with pytest.raises(SettingRefused, match="write an address such as https://"):
            read_address({"A": text}, "A")


def test_headers_are_read_by_their_name() -> None:
    assert read_header({"H": "X-Remote-User"}, "H") == "HTTP_X_REMOTE_USER"
    for text in ("", "X Remote", "X_Remote", "1", "X-Remote:"):
        with pytest.raises(SettingRefused, match="write the name of a header"):
            read_header({"H": text}, "H")


@pytest.mark.nightly
def test_a_proxy_that_logs_in_has_to_be_trusted() -> None:
    answer = _python("manage.py", "check", FLEETUI_PROXY_USER_HEADER="X-Remote-User")

    assert answer.returncode == 1
    assert "list the addresses of the proxies in FLEETUI_TRUSTED_PROXIES as well" in answer.stderr


def test_minutes() -> None:
    assert read_minutes({}, "M", default=15, most=60) == timedelta(minutes=15)
    assert read_minutes({"M": "30"}, "M", default=15, most=60) == timedelta(minutes=30)


@pytest.mark.parametrize("text", ["", "0", "61", "-1", "1.5", "15m", "9" * 7])
def test_minutes_refuse_what_is_unclear(text: str) -> None:
    with pytest.raises(SettingRefused, match="write a number of minutes, 1 to 60"):
        read_minutes({"M": text}, "M", default=15, most=60)
