"""Typed settings from environment variables; an invalid one is rejected with the allowed values."""

import base64
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import dj_database_url
from django.core.exceptions import ImproperlyConfigured

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_HOST = re.compile(r"\*|\.?[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]", re.IGNORECASE)
_SHORTEST_SECRET = 32
_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})


class SettingRefused(ImproperlyConfigured):
    """An environment variable has a value that FleetUI does not accept."""

    def __init__(self, name: str, value: str, allowed: str) -> None:
        super().__init__(f"{name}={value!r} is refused: {allowed}.")


def read_flag(environ: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return a boolean; absent is the default. Raises SettingRefused."""
    value = environ.get(name)
    if value is None:
        return default
    word = value.strip().lower()
    if word not in _TRUE | _FALSE:
        raise SettingRefused(name, value, "write 1, true, yes or on, or else 0, false, no or off")
    return word in _TRUE


def read_hosts(environ: Mapping[str, str], name: str, *, default: tuple[str, ...]) -> list[str]:
    """Return comma-separated host names; a scheme, port or path would never match and is rejected."""
    value = environ.get(name)
    if value is None:
        return list(default)
    hosts = [host.strip() for host in value.split(",")]
    if not all(_HOST.fullmatch(host) for host in hosts):
        raise SettingRefused(name, value, "list host names divided by commas, without scheme, port or path")
    return hosts


def read_folder(environ: Mapping[str, str], name: str, *, default: Path) -> Path:
    """Return an existing folder; creating one for a typing error would hide the data of the right one."""
    value = environ.get(name)
    if value is None:
        return default
    folder = Path(value)
    if not (folder.is_absolute() and folder.is_dir()):
        raise SettingRefused(name, value, "name an existing folder by its absolute path")
    return folder


_PERIOD = re.compile("0*([1-9][0-9]{0,4})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def read_period(environ: Mapping[str, str], name: str, *, default: timedelta) -> timedelta:
    """Return a period such as 90d, longer than zero; absent is the default. Raises SettingRefused."""
    value = environ.get(name)
    if value is None:
        return default
    match = _PERIOD.fullmatch(value.strip())
    if not match:
        allowed = "write a number from 1 to 99999 and s, m, h or d, such as 90d"
        raise SettingRefused(name, value, allowed)
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


_SQLITE_OPTIONS = {
    # Without these two more than half of the writes fail while a worker writes as well.
    "transaction_mode": "IMMEDIATE",
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA secure_delete=ON;",
    "timeout": 20,
}
# Opening the file for every request takes as long as a response "not modified".
_SQLITE: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "CONN_MAX_AGE": 60}


def read_database(environ: Mapping[str, str], name: str, *, default: Path) -> dict[str, Any]:
    """Return the database for a URL such as postgres://user@host/name; absent is the SQLite file `default`.

    Raises SettingRefused for a URL of another sort, without repeating it: it may hold a password.
    """
    url = environ.get(name)
    if url is None:
        return {**_SQLITE, "NAME": default, "OPTIONS": dict(_SQLITE_OPTIONS)}
    try:
        config: dict[str, Any] = dict(dj_database_url.parse(url))
    except ValueError as error:
        raise SettingRefused(name, "…", "write postgres://user:password@host:port/name") from error
    if config["ENGINE"] == "django.db.backends.sqlite3":
        return {**config, **_SQLITE, "OPTIONS": dict(_SQLITE_OPTIONS)}
    if config["ENGINE"] != "django.db.backends.postgresql":
        raise SettingRefused(name, "…", "write postgres://… or sqlite:///…")
    return {
        **config,
        # Connections of a server that was restarted are replaced before a request gets them.
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {**config.get("OPTIONS", {}), "pool": dict(_POOL)},
    }


# A request fails after 10 s without a server; longer attempts would delay the first one after its return.
_POOL = {"min_size": 0, "max_size": 8, "timeout": 10.0, "reconnect_timeout": 10.0}
_BROKERS = frozenset({"atomicfs", "redis", "rediss", "redis+socket", "amqp", "amqps"})


def read_broker(environ: Mapping[str, str], name: str, *, default: str) -> str:
    """Return the URL of the broker; the error does not repeat it, as it may contain a password."""
    url = environ.get(name, default)
    scheme, slashes, _ = url.partition("://")
    if not slashes or scheme not in _BROKERS:
        raise SettingRefused(
            name, "…", "write atomicfs://, redis://…, rediss://…, redis+socket://…, amqp://… or amqps://…"
        )
    return url


_FERNET_KEY = re.compile(r"[A-Za-z0-9_-]{43}=")
_PROXY = re.compile(r"http://([a-z0-9]([-a-z0-9.]*[a-z0-9])?|\[[0-9a-f:.]+\]):([1-9][0-9]{0,4})")


def read_encryption_keys(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Return comma-separated Fernet keys, none when absent; the error does not repeat them."""
    value = environ.get(name)
    if value is None:
        return ()
    keys = tuple(key.strip() for key in value.split(","))
    if not all(map(is_encryption_key, keys)):
        allowed = "list Fernet keys separated by commas; each is 32 bytes in URL-safe base64, 44 characters"
        raise SettingRefused(name, "…", allowed)
    return keys


def is_encryption_key(text: str) -> bool:
    """Return whether a text is a Fernet key: 32 bytes in URL-safe base64."""
    return bool(_FERNET_KEY.fullmatch(text))


def new_encryption_key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


def read_networks(environ: Mapping[str, str], name: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Return comma-separated networks, none when absent. Raises SettingRefused."""
    value = environ.get(name)
    if value is None:
        return ()
    try:
        return tuple(ip_network(text.strip()) for text in value.split(","))
    except ValueError as error:
        allowed = "list networks such as 10.0.0.0/8 or fd00::/8 separated by commas, without host bits"
        raise SettingRefused(name, value, allowed) from error


def read_proxies(environ: Mapping[str, str], name: str) -> frozenset[str]:
    """Return comma-separated URLs of HTTP proxies, none when absent; a user name is not accepted."""
    value = environ.get(name)
    if value is None:
        return frozenset()
    proxies = [text.strip() for text in value.split(",")]
    if not all(_PROXY.fullmatch(proxy) for proxy in proxies):
        text = "…" if "@" in value else value  # it may hold a password
        raise SettingRefused(
            name, text, "list URLs such as http://proxy.example.com:3128 separated by commas"
        )
    return frozenset(proxies)


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
TOKEN_COMMAND, HUB_SERVER = "FLEETUI_HUB_TOKEN_COMMAND_", "FLEETUI_HUB_SERVER_"
_ADDRESS = re.compile(r"(https://|http://(localhost|127\.0\.0\.1)[:/])[^\s?#@]+")


def read_choices(environ: Mapping[str, str], name: str, *, allowed: Collection[str]) -> frozenset[str]:
    """Return comma-separated words of a closed set, none when absent. Raises SettingRefused."""
    value = environ.get(name)
    if value is None:
        return frozenset()
    words = frozenset(word.strip() for word in value.split(","))
    if not words <= set(allowed):
        raise SettingRefused(name, value, f"list some of {', '.join(allowed)}, separated by commas")
    return words


def read_pairs(environ: Mapping[str, str], name: str, *, allowed: Collection[str]) -> dict[str, str]:
    """Return pairs such as `fleet-ops=operator`, separated by `;`; none when absent. Raises SettingRefused.

    The part before the last `=` may be any text, for example the name of a group in LDAP.
    """
    value = environ.get(name)
    if value is None:
        return {}
    pairs = [text.strip().rpartition("=") for text in value.split(";")]
    if not all(group.strip() and role.strip() in allowed for group, _, role in pairs):
        example = "write pairs such as fleet-ops=operator separated by semicolons"
        raise SettingRefused(name, value, f"{example}; the roles are {', '.join(allowed)}")
    return {group.strip(): role.strip() for group, _, role in pairs}


def _matching(environ: Mapping[str, str], name: str, syntax: re.Pattern[str], example: str) -> str:
    value = environ.get(name)
    if value is not None and not syntax.fullmatch(value):
        raise SettingRefused(name, value, f"write {example}")
    return value or ""


def read_address(environ: Mapping[str, str], name: str) -> str:
    """Return the https:// address of a server, empty when absent; http:// only for this machine."""
    example = "an address such as https://id.example.com/realms/fleet"
    return _matching(environ, name, _ADDRESS, example).rstrip("/")


def check_hub_servers(environ: Mapping[str, str]) -> None:
    """Raise SettingRefused for a token command of a hub without the server that its token is for."""
    hubs = [name.removeprefix(TOKEN_COMMAND) for name in environ if name.startswith(TOKEN_COMMAND)]
    for hub in hubs:
        name = f"{HUB_SERVER}{hub}"
        value = environ.get(name, "")
        if not re.fullmatch(
            r"https://([^\s/?#@:]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?(/[^\s?#]*)?", value.strip()
        ):
            allowed = f"write the server that the token of {TOKEN_COMMAND}{hub} is for, such as https://"
            raise SettingRefused(name, value, f"{allowed}hub.example.com:6443")


def read_mail_server(environ: Mapping[str, str], name: str) -> dict[str, Any]:
    """Return the settings of an SMTP server, without a host when absent. Raises SettingRefused.

    Only a server on this machine is used without TLS. The error does not repeat a password.
    """
    value = environ.get(name, "")
    try:
        parts = urlsplit(value)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port, parts = "", None, urlsplit("")
    is_whole = parts.scheme in ("smtp", "smtps") and host and not (parts.path or parts.query)
    if value and not is_whole:
        raise SettingRefused(name, "…", "write smtps://user:password@mail.example.com, or smtp://…")
    return {
        "EMAIL_HOST": host,
        "EMAIL_PORT": port or (465 if parts.scheme == "smtps" else 587),
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_SSL": parts.scheme == "smtps",
        "EMAIL_USE_TLS": parts.scheme == "smtp" and host not in _THIS_MACHINE,
        "EMAIL_TIMEOUT": 5,
    }


def read_header(environ: Mapping[str, str], name: str) -> str:
    """Return the key in `request.META` of a header such as X-Remote-User, empty when absent."""
    value = _matching(environ, name, _NAME, "the name of a header such as X-Remote-User")
    return value and "HTTP_" + value.upper().replace("-", "_")


def read_minutes(environ: Mapping[str, str], name: str, *, default: int, most: int) -> timedelta:
    """Return a number of minutes, 1 to `most`; absent is the default. Raises SettingRefused."""
    value = environ.get(name, str(default)).strip()
    if not re.fullmatch("[0-9]{1,6}", value) or not 1 <= int(value) <= most:
        raise SettingRefused(name, environ.get(name, ""), f"write a number of minutes, 1 to {most}")
    return timedelta(minutes=int(value))


def read_integer(environ: Mapping[str, str], name: str, *, default: int, low: int, high: int) -> int:
    """Return a whole number from low to high; absent is the default. Raises SettingRefused."""
    value = environ.get(name)
    if value is None:
        return default
    if not re.fullmatch("[0-9]{1,9}", value) or not low <= int(value) <= high:
        raise SettingRefused(name, value, f"write a whole number from {low} to {high}")
    return int(value)


def read_url(environ: Mapping[str, str], name: str, *, default: str) -> str:
    """Return an address without a slash at its end; absent is the default. Raises SettingRefused."""
    value = environ.get(name, default)
    if not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", value):
        raise SettingRefused(name, value, "write an address such as https://fleet.example.com")
    return value.rstrip("/")


def read_word(environ: Mapping[str, str], name: str, *, allowed: tuple[str, ...]) -> str:
    """Return one of a few words; absent is the first. Raises SettingRefused."""
    value = environ.get(name, allowed[0])
    if value not in allowed:
        raise SettingRefused(name, value, f"write {' or '.join(allowed)}")
    return value


def read_text(environ: Mapping[str, str], name: str, *, default: str) -> str:
    """Return a text; an empty variable is rejected."""
    value = environ.get(name, default)
    if name in environ and not value.strip():
        raise SettingRefused(name, value, "write something, or leave it unset")
    return value


def read_password(environ: Mapping[str, str], name: str) -> str | None:
    """Return a password; its strength is checked where it is used."""
    value = environ.get(name)
    if value is not None and not value:
        raise SettingRefused(name, "", "write a password, or leave it unset to get one made")
    return value


def read_secret(environ: Mapping[str, str], name: str) -> str | None:
    """Return a secret long enough to sign with; the error does not repeat it."""
    value = environ.get(name)
    if value is not None and len(value) < _SHORTEST_SECRET:
        raise SettingRefused(name, "…", f"use {_SHORTEST_SECRET} characters or more, or leave it unset")
    return value


def keep_secret(path: Path, create: Callable[[], str] = lambda: secrets.token_urlsafe(50)) -> str:
    """Return the secret in `path`, created with mode 0600 if it does not exist.

    It is written to a temporary file and linked, so that two processes that start at the same time use the
    same complete secret.
    """
    if not path.exists():
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(create())
        with suppress(FileExistsError):
            os.link(aside, path)
        Path(aside).unlink()
    return path.read_text(encoding="ascii")
