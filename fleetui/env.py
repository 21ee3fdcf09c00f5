"""Typed settings from environment variables; an invalid one is rejected with the allowed values.

The model is also the reference of the settings: `python -m tests.settings_reference` writes its table.
"""

import base64
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

import dj_database_url
from django.core.exceptions import ImproperlyConfigured
from pydantic import (
    AfterValidator,
    BeforeValidator,
    DirectoryPath,
    Field,
    StringConstraints,
    ValidationError,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from fleetui.locations import data_folder
from fleetui.role_names import ROLE_NAMES

PREFIX = "FLEETUI_"
TOKEN_COMMAND, HUB_SERVER = "FLEETUI_HUB_TOKEN_COMMAND_", "FLEETUI_HUB_SERVER_"
_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})
_MAIL_PORTS = {"smtps": 465}
_FERNET_KEY = r"^[A-Za-z0-9_-]{43}=$"
_PERIOD = re.compile("0*([1-9][0-9]{0,4})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_SQLITE: dict[str, Any] = {
    "ENGINE": "django.db.backends.sqlite3",
    # Opening the file for every request takes as long as a response "not modified".
    "CONN_MAX_AGE": 60,
    "OPTIONS": {
        # Without these two more than half of the writes fail while a worker writes as well.
        "transaction_mode": "IMMEDIATE",
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA secure_delete=ON;",
        "timeout": 20,
    },
}
# A request fails after 10 s without a server; longer attempts would delay the first one after its return.
_POOL = {"min_size": 0, "max_size": 8, "timeout": 10.0, "reconnect_timeout": 10.0}


class SettingRefused(ImproperlyConfigured):
    def __init__(self, name: str, value: str, allowed: str) -> None:
        super().__init__(f"{name}={value!r} is refused: {allowed}.")


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a refusal says is accepted; it does not repeat a value that may contain a"
    " secret."""

    text: str
    is_secret: bool = False


def parse_period(text: str) -> timedelta:
    match = _PERIOD.fullmatch(text.strip())
    if not match:
        raise ValueError
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def split_pairs(text: str) -> dict[str, str]:
    """Return pairs such as `fleet-ops=operator`; a group may be any text, for "
    "example a name in LDAP."""
    pairs = [pair.rpartition("=") for pair in text.split(";")]
    return {group.strip(): role.strip() for group, _, role in pairs}


def require_absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError
    return path


def _without_slash(address: str) -> str:
    return address.rstrip("/")


def sqlite_database(path: Path) -> dict[str, Any]:
    return {**_SQLITE, "NAME": path}


def parse_database(url: str) -> dict[str, Any]:
    """Return the database for a URL such as postgres://user@host/name. Raise "
    "ValueError for another sort."""
    config: dict[str, Any] = dict(dj_database_url.parse(url))
    if config["ENGINE"] == _SQLITE["ENGINE"]:
        return {**config, **_SQLITE}
    if config["ENGINE"] != "django.db.backends.postgresql":
        raise ValueError(config["ENGINE"])
    return {
        **config,
        # Connections of a server that was restarted are replaced before a request gets them.
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {**config.get("OPTIONS", {}), "pool": dict(_POOL)},
    }


def parse_mail_server(url: str) -> dict[str, Any]:
    """Return the settings of an SMTP server, without a host for an empty URL. Raise ValueError.

    Only a server on this machine is used without TLS.
    """
    parts = urlsplit(url)
    is_whole = (
        parts.scheme in ("smtp", "smtps")
        and parts.hostname
        and not (parts.path or parts.query)
    )
    if url and not is_whole:
        raise ValueError
    return {
        "EMAIL_HOST": parts.hostname or "",
        "EMAIL_PORT": parts.port or _MAIL_PORTS.get(parts.scheme, 587),
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_SSL": parts.scheme == "smtps",
        "EMAIL_USE_TLS": parts.scheme == "smtp" and parts.hostname not in _THIS_MACHINE,
        "EMAIL_TIMEOUT": 5,
    }


Flag = Annotated[
    bool,
    BeforeValidator(str.strip),
    Allowed("write 1, true, yes or on, or else 0, false, no or off"),
]
Period = Annotated[
    timedelta,
    BeforeValidator(parse_period),
    Allowed("write a number from 1 to 99999 and s, m, h or d, such as 90d"),
]
Text = Annotated[
    str, StringConstraints(pattern=r"\S"), Allowed("write something, or leave it unset")
]
LogFormat = Annotated[Literal["plain", "json"], Allowed("write plain or json")]
# Creating a folder for a typing error would hide the data of the right one.
_EXISTING_FOLDER = Allowed("name an existing folder by its absolute path")
Folder = Annotated[DirectoryPath, AfterValidator(require_absolute), _EXISTING_FOLDER]
OptionalFolder = Annotated[
    DirectoryPath | None, AfterValidator(require_absolute), _EXISTING_FOLDER
]
Secret = Annotated[
    str | None,
    StringConstraints(min_length=32),
    Allowed("use 32 characters or more, or leave it unset", is_secret=True),
]
Password = Annotated[
    str | None,
    StringConstraints(min_length=1),
    # Its strength is checked where it is used.
    Allowed("write a password, or leave it unset to get one made", is_secret=True),
]
Host = Annotated[
    str,
    StringConstraints(
        pattern=r"(?i)^(\*|\.?[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])$"
    ),
]
Hosts = Annotated[
    list[Host],
    BeforeValidator(_split),
    # Anything else would never match.
    Allowed("list host names divided by commas, without scheme, port or path"),
]
Networks = Annotated[
    tuple[IPv4Network | IPv6Network, ...],
    BeforeValidator(_split),
    Allowed(
        "list networks such as 10.0.0.0/8 or fd00::/8 separated by commas, without host bits"
    ),
]
ProxyUrl = Annotated[
    str,
    StringConstraints(
        pattern=r"^http://([a-z0-9]([-a-z0-9.]*[a-z0-9])?|\[[0-9a-f:.]+\]):[1-9][0-9]{0,4}$"
    ),
]
ProxyUrls = Annotated[
    frozenset[ProxyUrl],
    BeforeValidator(_split),
    Allowed("list URLs such as http://proxy.example.com:3128 separated by commas"),
]
EncryptionKeys = Annotated[
    tuple[Annotated[str, StringConstraints(pattern=_FERNET_KEY)], ...],
    BeforeValidator(_split),
    Allowed(
        "list Fernet keys separated by commas; each is 32 bytes in URL-safe base64, 44 characters",
        is_secret=True,
    ),
]
RoleName = Annotated[str, StringConstraints(pattern=f"^({'|'.join(ROLE_NAMES)})$")]
Roles = Annotated[
    frozenset[RoleName],
    BeforeValidator(_split),
    Allowed(f"list some of {', '.join(ROLE_NAMES)}, separated by commas"),
]
RolesOfGroups = Annotated[
    dict[Annotated[str, StringConstraints(min_length=1)], RoleName],
    BeforeValidator(split_pairs),
    Allowed(
        "write pairs such as fleet-ops=operator separated by semicolons; "
        f"the roles are {', '.join(ROLE_NAMES)}"
    ),
]
Issuer = Annotated[
    str,
    # http:// only for this machine.
    StringConstraints(
        pattern=r"^(https://|http://(localhost|127\.0\.0\.1)[:/])[^\s?#@]+$"
    ),
    AfterValidator(_without_slash),
    Allowed("write an address such as https://id.example.com/realms/fleet"),
]
PublicUrl = Annotated[
    str,
    StringConstraints(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$"),
    AfterValidator(_without_slash),
    Allowed("write an address such as https://fleet.example.com"),
]
Header = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,63}$"),
    AfterValidator(lambda header: "HTTP_" + header.upper().replace("-", "_")),
    Allowed("write the name of a header such as X-Remote-User"),
]
Broker = Annotated[
    str,
    StringConstraints(pattern=r"^(atomicfs|rediss?|redis\+socket|amqps?)://"),
    Allowed(
        "write atomicfs://, redis://…, rediss://…, redis+socket://…, amqp://… or amqps://…",
        is_secret=True,
    ),
]
Database = Annotated[
    dict[str, Any] | None,
    BeforeValidator(parse_database),
    Allowed(
        "write postgres://user:password@host:port/name or sqlite:///path",
        is_secret=True,
    ),
]
MailServer = Annotated[
    dict[str, Any],
    BeforeValidator(parse_mail_server),
    Allowed(
        "write smtps://user:password@mail.example.com, or smtp://…", is_secret=True
    ),
]


def variable(default: Any, meaning: str, *, shown: str = "", **constraints: Any) -> Any:
    """Return a field with its row in the reference; `shown` describes a default that"
    " is not written as such."""
    return Field(
        default, description=meaning, json_schema_extra={"shown": shown}, **constraints
    )


class Variables(BaseSettings):
    """The environment variables of the console, named by the prefix and their field."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        case_sensitive=True,
        enable_decoding=False,
        hide_input_in_errors=True,
        validate_default=False,
    )

    DATABASE_URL: Database = variable(
        None,
        "`postgres://user:password@host:port/name`, or `sqlite:///path`",
        shown="SQLite in `var/`",
        repr=False,
        validation_alias="DATABASE_URL",
    )
    CELERY_BROKER_URL: Broker = variable(
        "atomicfs://",
        "`redis://…`, `rediss://…`, `redis+socket://…`, `amqp://…` or `amqps://…`",
        shown="the folder `var/queue/`",
        repr=False,
        validation_alias="CELERY_BROKER_URL",
    )
    SECRET_KEY: Secret = variable(
        None,
        "signs sessions and forms; 32 characters or more",
        shown="generated and kept in `var/secret-key`",
        repr=False,
    )
    ALLOWED_HOSTS: Hosts = variable(
        ["localhost", ".localhost", "127.0.0.1", "[::1]"],
        "host names of the console, separated by commas",
        shown="this machine only",
    )
    HTTPS: Flag = variable(
        False,
        "`1` behind a proxy with TLS that sends `X-Forwarded-Proto`: redirect to "
        "`https://`, secure cookies, HSTS, forms from `https://` only",
    )
    HSTS_SUBDOMAINS: Flag = variable(
        False,
        "`1` extends HSTS to all subdomains of the console's host, for one year; only with `FLEETUI_HTTPS`",
    )
    TRUSTED_PROXIES: Networks = variable(
        (),
        "addresses or networks of proxies, separated by commas: their `X-Forwarded-For` names the client",
        shown="none: the address of the connection counts",
    )
    VAR_DIR: Folder = variable(
        data_folder(os.environ),
        "folder for database, queue, secret and static files; absolute, must exist",
        shown="`var/` of the source tree; installed: `$XDG_DATA_HOME/fleetui`, `~/.local/share/fleetui`",
    )
    ADMIN_USER: Text = variable(
        "admin", "name of the administrator that the first start creates"
    )
    ADMIN_PASSWORD: Password = variable(
        None,
        "password of that administrator, 12 characters or more",
        shown="generated, in `var/first-admin-password`",
        repr=False,
    )
    PASSWORD_WORDS: Text = variable(
        "",
        "words of the organization that [make a password easy to "
        "guess](../guides/users.md#passwords), separated by spaces",
    )
    SESSION_IDLE: Period = variable(
        timedelta(hours=1),
        "a session ends so long after the last request of a person; live pages that poll do not count",
    )
    SESSION_LONGEST: Period = variable(
        timedelta(hours=12), "a session ends so long after the login"
    )
    SECOND_FACTOR_ROLES: Roles = variable(
        frozenset(),
        "roles that [require a second factor](../guides/users.md#second-factors), "
        "separated by commas: the roles, and `administrator`",
    )
    OIDC_ISSUER: Issuer = variable(
        "", "address of an [identity provider](../guides/users.md#openid-connect)"
    )
    OIDC_NAME: Text = variable("single sign-on", "its name on the login page")
    OIDC_CLIENT_ID: Text = variable("fleetui", "the console's name at the provider")
    OIDC_CLIENT_SECRET: Password = variable(
        None, "the console's secret at the provider", repr=False
    )
    OIDC_SCOPES: Text = variable(
        "openid profile email", "scopes to request, separated by spaces"
    )
    OIDC_NAME_CLAIM: Text = variable(
        "preferred_username", "claim that becomes the user name"
    )
    OIDC_ROLE_CLAIM: Text = variable(
        "groups",
        "claim with the groups; `realm_access.roles` is a claim inside a claim",
    )
    OIDC_ROLES: RolesOfGroups = variable(
        {},
        "pairs of group and role, separated by semicolons, such as "
        "`fleet-ops=operator;fleet-admins=administrator`",
        shown="none: roles are assigned here",
    )
    PROXY_USER_HEADER: Header = variable(
        "",
        "header in which a [trusted proxy](../guides/users.md#trusted-proxy) names "
        "the user, such as `X-Remote-User`",
    )
    PROXY_GROUPS_HEADER: Header = variable(
        "", "header with the groups, separated by commas"
    )
    PROXY_ROLES: RolesOfGroups = variable(
        {},
        "pairs of group and role, as in `FLEETUI_OIDC_ROLES`",
        shown="none: roles are assigned here",
    )
    MAIL_SERVER: MailServer = variable(
        parse_mail_server(""),
        "SMTP server for [notices](../guides/users.md#notices-to-users): "
        "`smtps://user:password@mail.example.com`, or `smtp://…` with STARTTLS",
        shown="none: in the log",
        repr=False,
    )
    MAIL_FROM: Text = variable("fleetui@localhost", "sender of the notices")
    DEBUG: Flag = variable(
        False, "`1` shows errors in the browser; for development only"
    )
    KEEP_EVENTS: Period = variable(timedelta(days=90), "how long events are kept")
    KEEP_DECISIONS: Period = variable(
        timedelta(days=90), "decisions with their records and fleets"
    )
    KEEP_ROLLOUTS: Period = variable(
        timedelta(days=90),
        "rollouts and staged update runs that ended, with their updates and samples",
    )
    KEEP_EVICTIONS: Period = variable(
        timedelta(days=90), "evictions, and drains that ended"
    )
    KEEP_DRAFTS: Period = variable(timedelta(days=90), "drafts since their last change")
    KEEP_ACCESS_LOG: Period = variable(
        timedelta(days=365), "lines of the [access log](../guides/users.md#access-log)"
    )
    LIVE_HUBS: Flag = variable(
        True,
        "`0` leaves out live hubs: their pages, REST and commands, and the watcher",
    )
    HUB_HISTORY: Period = variable(
        timedelta(days=30),
        "of live hubs: events, observed rollouts that ended, and versions of fleets "
        "and changes of bindings that no decision cites",
    )
    KEEP_NOTIFICATIONS: Period = variable(
        timedelta(days=30), "messages of notifications, and problems that ended"
    )
    PUBLIC_URL: PublicUrl = variable(
        "http://127.0.0.1:8000",
        "where people open the console, such as `https://fleet.example.com`: links in"
        " notifications start with it",
    )
    KEEP_MESSAGES: Period = variable(
        timedelta(hours=1), "messages in the folder `var/queue/`"
    )
    KEEP_TOMBSTONES: Period = variable(
        timedelta(hours=1),
        "names of clusters that left; a process with an older fleet loads all clusters again",
    )
    CHECKS_MUTED: Text = variable(
        "", "rules of the checks that are never reported, such as `S07,N04`"
    )
    FLEET_PATCH_PERCENT: int = variable(
        5,
        "up to this share of changed clusters a process reads only these, otherwise the whole fleet",
        ge=0,
        le=100,
    )
    CREDENTIAL_KEYS: EncryptionKeys = variable(
        (),
        "Fernet keys that encrypt the credentials of clusters, separated by commas; "
        "the first encrypts, all decrypt",
        shown="generated and kept in `var/credential.keys`",
        repr=False,
    )
    ALLOW_INSECURE_TLS: Flag = variable(
        False, "`1` allows connections to clusters without TLS verification"
    )
    IN_CLUSTER: Flag = variable(
        False,
        "`1` allows a connection with the service account of the console's own pod",
    )
    MEMBER_NETWORKS: Networks = variable(
        (),
        "networks such as `10.0.0.0/8`, separated by commas: connections go only there",
        shown="all but loopback, link-local and reserved addresses",
    )
    MEMBER_LOOPBACK: Flag = variable(
        False, "`1` allows clusters on loopback addresses, for tests"
    )
    MEMBER_PROXIES: ProxyUrls = variable(
        frozenset(),
        "URLs such as `http://proxy.example.com:3128`, separated by commas, that connections may name",
    )
    TOKEN_MOST_DAYS: int = variable(
        365, "for how many days an API token may be valid, 1 to 3650", ge=1, le=3650
    )
    REQUEST_SECONDS: int = variable(
        120,
        "longest time of a request, 5 to 3600; see [Limits](../guides/rest.md#limits)",
        ge=5,
        le=3600,
    )
    COMPUTE_SECONDS: int = variable(
        60,
        "seconds of a processor for previews, simulations and exports of a user "
        "within two minutes, in each web process, 1 to 3600; one request computes no "
        "longer",
        ge=1,
        le=3600,
    )
    METRICS_TOKEN: Secret = variable(
        None,
        "a client that sends it as a bearer token reads `/metrics`; 32 characters or "
        "more, see [Monitor](../guides/monitor.md#metrics)",
        shown="none: superusers only",
        repr=False,
    )
    LOG_FORMAT: LogFormat = variable(
        "plain",
        "`plain`, or `json` for [one JSON object a line](../guides/monitor.md#logs)",
    )
    STATIC_DIR: OptionalFolder = variable(
        None,
        "folder with the collected static files, as in the image; absolute, must exist",
        shown="collected into `static/` of the data folder",
    )
    TRACES: Flag = variable(
        False,
        "`1` sends [traces](../guides/monitor.md#traces) of requests and tasks; needs the extra `tracing`",
    )
    LONGEST_OBSERVATION_MINUTES: int = variable(
        15,
        "longest time between two observations of an unchanged placement on a "
        "Kubernetes cluster, 1 to 1440; see "
        "[Observation](../guides/connect-clusters.md#observation)",
        ge=1,
        le=24 * 60,
    )


def variable_name(field_name: str) -> str:
    return str(
        Variables.model_fields[field_name].validation_alias or f"{PREFIX}{field_name}"
    )


def read_variables() -> Variables:
    """Return the variables of this process. Raise SettingRefused for the first one that is not accepted."""
    try:
        return Variables()
    except ValidationError as error:
        field_name = str(error.errors()[0]["loc"][0])
    name = variable_name(field_name)
    facts = {
        type(fact).__name__: fact
        for fact in Variables.model_fields[field_name].metadata
    }
    allowed = facts.get("Allowed")
    if allowed is None:
        allowed = Allowed(
            f"write a whole number from {facts['Ge'].ge} to {facts['Le'].le}"
        )
    value = os.environ[name]
    if allowed.is_secret or re.search("://.*@", value):  # a URL with a password
        value = "…"
    raise SettingRefused(name, value, allowed.text)


def check_hub_servers(environ: Mapping[str, str]) -> None:
    """Raise SettingRefused for a token command of a hub without the server that its "
    "token is for."""
    hubs = [
        name.removeprefix(TOKEN_COMMAND)
        for name in environ
        if name.startswith(TOKEN_COMMAND)
    ]
    for hub in hubs:
        name = f"{HUB_SERVER}{hub}"
        value = environ.get(name, "")
        if not re.fullmatch(
            r"https://([^\s/?#@:]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?(/[^\s?#]*)?",
            value.strip(),
        ):
            allowed = f"write the server that the token of {TOKEN_COMMAND}{hub} is for, such as https://"
            raise SettingRefused(name, value, f"{allowed}hub.example.com:6443")


def is_encryption_key(text: str) -> bool:
    """Return whether a text is a Fernet key: 32 bytes in URL-safe base64."""
    return bool(re.fullmatch(_FERNET_KEY, text))


def new_encryption_key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


def keep_secret(
    path: Path, create: Callable[[], str] = lambda: secrets.token_urlsafe(50)
) -> str:
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
