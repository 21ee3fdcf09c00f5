"""A console elsewhere, over its REST API: what `apply`, `diff`, `wait` and `simulate --fleet URL` use."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from fleetui import LOCAL_HUB_NAME, __version__
from fleetui.apimachinery.errors import FieldError
from fleetui.apimachinery.words import is_token
from fleetui.errors import BAD_INPUT, ENVIRONMENT, UNCONFIRMED, exit_code_of

if TYPE_CHECKING:
    import urllib3

SERVER, TOKEN = "FLEETUI_SERVER", "FLEETUI_TOKEN"
LARGEST_ANSWER = 64 * 1024 * 1024
_NO_CONTENT = 204
_LOOPBACK = re.compile(r"127(\.\d{1,3}){3}|::1|(.+\.)?localhost")


class RemoteError(Exception):
    """A request that did not succeed: what the console or the connection says, and the exit status for it.

    `problem` has the problem details of the response.
    """

    def __init__(
        self,
        message: str,
        *,
        returncode: int,
        status: int = 0,
        problem: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__(message)
        self.returncode = returncode
        self.status = status
        self.problem = problem


class RemoteErrors(RemoteError):
    """Errors in the manifests, as the console lists them: path, message, line."""

    @property
    def errors(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.problem["faults"]
        return found

    def __str__(self) -> str:
        return "\n".join(
            str(field_error({**error, "line": None})) for error in self.errors
        )


class ServerRefused(ValueError):
    """Options or variables for a connection that are not accepted."""


@dataclass(frozen=True, slots=True)
class Server:
    """Address and access of a console; the token goes nowhere else."""

    url: str
    token: str
    ca_file: str | None = None
    skip_verification: bool = False
    allow_http: bool = False
    seconds: float = 60.0


def parse_server(
    options: Mapping[str, Any], environ: Mapping[str, str] = os.environ
) -> Server | None:
    """Return the console that options or variables name; None for the local database. Raise ServerRefused."""
    url = options.get("server") or environ.get(SERVER, "")
    if not url:
        names = [
            name for name in ("token", "token_file", "ca_file") if options.get(name)
        ]
        if names:
            raise ServerRefused(
                f"--{names[0].replace('_', '-')} needs --server, or the variable {SERVER}"
            )
        return None
    server = Server(
        url.rstrip("/"),
        _token(options, environ),
        options.get("ca_file"),
        bool(options.get("insecure_skip_tls_verify")),
        bool(options.get("allow_http")),
        float(options.get("request_timeout") or 60.0),
    )
    check_url(server)
    return server


def server_at(url: str, *, option: str) -> Server:
    """Return the console at the address that an option names. Raise ServerRefused."""
    server = Server(url, _token({}, os.environ))
    check_url(server, option)
    return server


def check_url(server: Server, option: str = "--server") -> None:
    """Raise ServerRefused for what is no address, or one over which the token would be readable."""
    parts = urlsplit(server.url)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.query
        or parts.fragment
    ):
        raise ServerRefused(
            f"{option}: write an address such as https://fleet.example.com"
        )
    if parts.username is not None:
        raise ServerRefused(
            f"{option}: an address with a user name is refused; use a token"
        )
    if (
        parts.scheme == "http"
        and not server.allow_http
        and not _LOOPBACK.fullmatch(parts.hostname)
    ):
        message = "the token would be readable on the network; use https://"
        raise ServerRefused(
            f"{option}: {message}{', or add --allow-http' * (option == '--server')}"
        )


def _token(options: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    if options.get("token") and options.get("token_file"):
        raise ServerRefused("--token and --token-file are two tokens: give one")
    if name := options.get("token_file"):
        try:
            token = Path(name).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not a token"
            raise ServerRefused(f"--token-file {name}: {reason}") from error
    else:
        token = str(options.get("token") or environ.get(TOKEN, "")).strip()
    if not token:
        file = "--token-file FILE, or " if "token_file" in options else ""
        raise ServerRefused(f"a token is needed: {file}the variable {TOKEN}")
    if not is_token(token):
        raise ServerRefused("the token has characters that no token has")
    return token


class RemoteClient:
    """Requests to the REST API of one console; it follows no redirect, which could take the token along."""

    def __init__(self, server: Server, *, hub: str = LOCAL_HUB_NAME) -> None:
        self._server = server
        mount = "" if hub == LOCAL_HUB_NAME else f"/hubs/{quote(hub, safe='')}"
        self._base = f"{server.url}{mount}/api/v1/"
        self._pool = _pool_of(server)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        content_type: str = "application/yaml",
        is_new: bool = False,
    ) -> Any:
        """Return the JSON of the response; `is_new`: of an object that must not exist.

        Raise RemoteError, RemoteErrors.
        """
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 -- as in _pool_of

        parameters = f"?{urlencode(query, doseq=True)}" if query else ""
        address = self._base + path + parameters
        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
            "Authorization": f"Token {self._server.token}",
            "User-Agent": f"fleetui/{__version__}",
        }
        if body is not None:
            headers["Content-Type"] = content_type
        if is_new:
            headers["If-None-Match"] = "*"
        try:
            response = self._pool.request(
                method,
                address,
                body=body,
                headers=headers,
                redirect=False,
                preload_content=False,
            )
            with response:
                content = response.read(LARGEST_ANSWER + 1)
        except (HTTPError, OSError) as error:
            raise RemoteError(
                f"{self._server.url}: {_reason(error)}", returncode=ENVIRONMENT
            ) from error
        if len(content) > LARGEST_ANSWER:
            message = (
                f"{self._server.url}: the response has more than {LARGEST_ANSWER} bytes"
            )
            raise RemoteError(message, returncode=ENVIRONMENT)
        status = response.status
        if 300 <= status < 400:
            location = response.headers.get("Location", "")
            message = f"{self._server.url}: redirected to {location}; give that address as --server"
            raise RemoteError(message, returncode=ENVIRONMENT, status=status)
        return content_of(status, content, console=self._server.url)


def content_of(status: int, content: bytes, *, console: str) -> Any:
    """Return the JSON of a response, None for an empty one. Raise RemoteError, RemoteErrors."""
    if status == _NO_CONTENT:
        return None
    try:
        document = json.loads(content)
    except ValueError as error:
        raise RemoteError(
            f"{console}: status {status} and no JSON: is this the address of FleetUI?",
            returncode=ENVIRONMENT,
            status=status,
        ) from error
    if status < 300:
        return document
    problem = document if isinstance(document, dict) else {}
    detail = str(problem.get("detail") or problem.get("title") or f"status {status}")
    facts: dict[str, Any] = {"status": status, "problem": problem}
    if problem.get("faults"):
        raise RemoteErrors(detail, returncode=BAD_INPUT, **facts)
    if confirmation := problem.get("confirm"):
        detail = f"{detail} (--confirm {confirmation})"
        raise RemoteError(detail, returncode=UNCONFIRMED, **facts)
    raise RemoteError(detail, returncode=exit_code_of(status), **facts)


def field_error(plain: Mapping[str, Any]) -> FieldError:
    """Return an error in a manifest that a console has sent."""
    path, code, message, allowed = (
        str(plain.get(key) or "") for key in ("path", "code", "message", "allowed")
    )
    return FieldError(path, code, message, allowed, plain.get("line"))


def _pool_of(server: Server) -> "urllib3.PoolManager":
    """Return a pool that verifies TLS, through the proxy of the environment if there is one."""
    # Their import takes longer than a command of this machine needs for all else.
    import ssl  # noqa: PLC0415
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415

    import urllib3  # noqa: PLC0415

    options: dict[str, Any] = {
        "retries": False,
        "timeout": urllib3.Timeout(
            connect=min(10.0, server.seconds), read=server.seconds
        ),
    }
    parts = urlsplit(server.url)
    if parts.scheme == "https":
        try:
            context = ssl.create_default_context(cafile=server.ca_file)
        except OSError as error:
            reason = error.strerror or "no certificate is in it"
            raise ServerRefused(f"--ca-file {server.ca_file}: {reason}") from error
        if server.skip_verification:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        options["ssl_context"] = context
    proxy = getproxies().get(parts.scheme)
    if proxy and parts.hostname and not proxy_bypass(parts.hostname):
        return urllib3.ProxyManager(proxy, **options)
    return urllib3.PoolManager(**options)


def _reason(error: BaseException) -> str:
    """Return what the connection failed of, without the objects of the library."""
    inner: Any = getattr(error, "reason", None) or error
    text = str(
        inner.args[-1] if isinstance(inner, BaseException) and inner.args else inner
    )
    # urllib3 writes its connection in front: `HTTPConnection(host=…): …`.
    return text.rpartition("): ")[2] or type(inner).__name__
