"""From the row of a hub to its client; its secret, read again after a 401 answer.

See `rules/live-hub.md#connection-of-a-hub`.
"""

import json
import os
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from clusters.credentials import (
    HUB_PURPOSE,
    CredentialsUnreadable,
    credential_of,
    decrypt,
)
from clusters.drivers.base import DriverUnavailable
from clusters.drivers.kubernetes.client import Client
from clusters.drivers.kubernetes.configuration import parse_connection, split_server
from clusters.kubeconfig import token_claims
from clusters.kubernetes_drivers import open_client
from clusters.models import Hub
from fleetui import __version__
from fleetui.env import HUB_SERVER, TOKEN_COMMAND

USER_AGENT = f"fleetui/{__version__} (hub)"
BLOCKED_SECONDS = 300.0
REREAD_SECONDS = 5.0
COMMAND_SECONDS = 10.0
RENEW_BEFORE_EXPIRY = 300.0


class ServerNotAllowedError(DriverUnavailable):
    """The token of a hub's command belongs to another server; `allowed` is what can be done."""

    def __init__(
        self,
        name: str,
        variable: str,
        server: str,
    ) -> None:
        super().__init__(
            f"the token command of hub {name} is for another server",
            code="credentials-unreadable",
        )
        self.allowed = server or f"set {variable} in the environment of the console"


@dataclass(frozen=True, slots=True)
class HubTarget:
    """How to reach a hub, read from its rows in one go: for threads that do not use the database."""

    pk: int
    name: str
    uid: UUID
    connection: Mapping[str, Any]
    ciphertext: str = ""
    revision: int = 0

    @classmethod
    def of(cls, hub: Hub) -> "HubTarget":
        credential = credential_of(hub)
        ciphertext = credential.ciphertext if credential else ""
        revision = credential.revision if credential else 0
        return cls(hub.pk, hub.name, hub.uid, hub.connection, ciphertext, revision)

    @property
    def version(self) -> tuple[int, str]:
        return self.revision, json.dumps(self.connection, sort_keys=True)


def token_command(name: str) -> tuple[str, ...]:
    """Return the command that prints the token of a hub, which only the operator of this host can set."""
    variable = f"{TOKEN_COMMAND}{name.upper().replace('-', '_')}"
    return tuple(shlex.split(os.environ.get(variable, "")))


def check_token_server(name: str, connection: Mapping[str, Any]) -> None:
    """Raise ServerNotAllowedError unless the token of a hub's command may go to the server of a connection.

    The operator of this host names both: a person who only connects hubs must not choose who gets the token.
    """
    if not token_command(name):
        return
    variable = f"{HUB_SERVER}{name.upper().replace('-', '_')}"
    allowed = os.environ.get(variable, "").strip()
    if not allowed or split_server(parse_connection(connection).server) != split_server(
        allowed
    ):
        raise ServerNotAllowedError(name, variable, allowed)


def run_token_command(command: tuple[str, ...]) -> str:
    """Return the token that a command prints, plain or as an ExecCredential. Raise DriverUnavailable."""
    try:
        done = subprocess.run(  # noqa: S603 -- set in the environment of this process, split without a shell
            command,
            capture_output=True,
            timeout=COMMAND_SECONDS,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        text = done.stdout.decode("ascii").strip()
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        raise DriverUnavailable(
            f"the token command failed ({type(error).__name__})",
            code="credentials-unreadable",
        ) from error
    if text.startswith("{"):
        try:
            text = str(json.loads(text)["status"]["token"])
        except (ValueError, KeyError, TypeError) as error:
            raise DriverUnavailable(
                "the token command printed no ExecCredential with a token",
                code="credentials-unreadable",
            ) from error
    if not text or not text.isprintable() or " " in text:
        raise DriverUnavailable(
            "the token command printed no token", code="credentials-unreadable"
        )
    return text


def secret_values(target: HubTarget) -> Mapping[str, str]:
    """Return the secret of a hub, from its token command or as it is stored. Raise DriverUnavailable."""
    if command := token_command(target.name):
        check_token_server(target.name, target.connection)
        return {"token": run_token_command(command)}
    if not target.ciphertext:
        if target.connection.get("inCluster"):
            return {}
        raise CredentialsUnreadable("the hub has none")
    return decrypt(target.uid, target.ciphertext, purpose=HUB_PURPOSE).values


def open_hub_client(
    connection: Mapping[str, Any],
    values: Mapping[str, str],
    *,
    monotonic: Callable[[], float] = time.monotonic,
) -> Client:
    """Return a client with the settings of this console. Raise DriverUnavailable outside of a pod."""
    parsed = parse_connection(connection)
    return open_client(
        parsed, lambda: values, monotonic=monotonic, user_agent=USER_AGENT
    )


class HubAccess:
    """The client of a hub for its streams, guarded by 401 answers; safe for several threads.

    After the first 401 the credential is read again, once; a second one blocks all calls for five minutes or
    until the credential changes. A new client is made for each reading, so that late answers to an old one
    do not count.
    """

    def __init__(
        self,
        *,
        wants_reading: Callable[[], None],
        wants_discovery: Callable[[], None],
        monotonic: Callable[[], float] = time.monotonic,
        blocked_seconds: float = BLOCKED_SECONDS,
    ) -> None:
        self._wants_reading = wants_reading
        self.path_missing = wants_discovery
        self._monotonic = monotonic
        self._blocked_seconds = blocked_seconds
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._is_read_again = False
        self._is_waiting = True
        self._blocked_until = 0.0
        self.expires_at: float | None = None
        self.problem = ""
        """Why there is no usable secret."""

    def use(self, target: HubTarget, *, is_changed: bool) -> Client | None:
        """Read the secret and use it from now on; `is_changed`: it is another one than before.

        Return None, and keep the reason, where it cannot be read.
        """
        try:
            values = secret_values(target)
            client = open_hub_client(
                target.connection, values, monotonic=self._monotonic
            )
        except DriverUnavailable as error:
            with self._lock:
                self.problem = str(error)
                self._is_waiting = False
                self._blocked_until = self._monotonic() + self._blocked_seconds
            return None
        claims = (
            token_claims(values.get("token", "")) if token_command(target.name) else {}
        )
        expires = claims.get("exp")
        with self._lock:
            old = self._client
            self._client = client
            self._is_read_again = not is_changed
            self._is_waiting = False
            self.problem = ""
            self._blocked_until = 0.0
            left = expires - time.time() if isinstance(expires, (int, float)) else None
            self.expires_at = None if left is None else self._monotonic() + left
        if old:
            old.close()
        return client

    def client(self) -> Client:
        with self._lock:
            if self._client is None:
                raise DriverUnavailable(
                    self.problem or "no client yet", code="credentials-unreadable"
                )
            return self._client

    def rejected(self, client: Client) -> None:
        with self._lock:
            if client is not self._client or self._is_waiting or self._blocked_until:
                return
            if self._is_read_again:
                self.problem = "credentials rejected (401)"
                self._blocked_until = self._monotonic() + self._blocked_seconds
                return
            self._is_waiting = True
        self._wants_reading()

    def accepted(self, client: Client) -> None:
        with self._lock:
            if client is self._client:
                self._is_read_again = False
                self._blocked_until = 0.0
                self.problem = ""

    @property
    def needs_reading(self) -> bool:
        """Return whether the secret has to be read again: after a 401, or before its token expires."""
        with self._lock:
            is_expiring = (
                self.expires_at is not None
                and self.expires_at - self._monotonic() < RENEW_BEFORE_EXPIRY
                and not self._blocked_until
            )
            has_none = self._client is None and self._monotonic() >= self._blocked_until
            return self._is_waiting or is_expiring or has_none

    @property
    def rejection(self) -> str:
        """Return why the hub refuses the credentials, or why there are none; "" while it does not."""
        with self._lock:
            return self.problem if self._blocked_until or self._client is None else ""

    def blocked(self) -> float:
        """Return the seconds until the next call is allowed; 0 now."""
        with self._lock:
            if self._is_waiting:
                return REREAD_SECONDS
            left = (
                self._blocked_until - self._monotonic() if self._blocked_until else 0.0
            )
            if self._blocked_until and left <= 0 and self._client is not None:
                self._blocked_until = 0.0  # one attempt; the next 401 blocks again
            return max(0.0, left) or (
                self._blocked_seconds if self._client is None else 0.0
            )

    def close(self) -> None:
        with self._lock:
            client = self._client
            self._client = None
        if client:
            client.close()
