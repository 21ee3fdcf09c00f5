"""The console of this machine: the same requests to the views of its REST API, in this process.

The caller is the system, as in every command of this machine, or the user whose name is given. What only
matters to strangers is left out: tokens, limits and the other middleware. Django is set up before.
"""

from collections.abc import Mapping
from io import BytesIO
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth.models import User
from django.core.handlers.wsgi import WSGIRequest
from django.urls import resolve

from fleetui.changes import noticed_changes
from fleetui.errors import BAD_INPUT
from fleetui.hub_scope import in_hub
from fleetui.management.hub_command import environment_errors_as, hub_named
from fleetui.remote import RemoteError, content_of


class LocalClient:
    """Requests to the REST API of this process, on one hub."""

    def __init__(self, *, hub: str, user: str = "") -> None:
        self._hub_name, self._user_name = hub, user
        hosts = [host.lstrip(".") for host in settings.ALLOWED_HOSTS if host != "*"]
        self._host = next(iter(hosts), "localhost")

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
        """Return the JSON of the response, as `RemoteClient` does. Raise RemoteError, RemoteErrors."""
        environ = {
            "HTTP_ACCEPT": "application/json",
            "HTTP_HOST": self._host,
            "PATH_INFO": f"/api/v1/{path}",
            "QUERY_STRING": urlencode(query or {}, doseq=True),
            "REQUEST_METHOD": method,
            "SERVER_NAME": self._host,
            "SERVER_PORT": "443",
            "wsgi.input": BytesIO(body or b""),
            "wsgi.url_scheme": "https",
        }
        if body is not None:
            environ |= {"CONTENT_TYPE": content_type, "CONTENT_LENGTH": str(len(body))}
        if is_new:
            environ["HTTP_IF_NONE_MATCH"] = "*"
        request = WSGIRequest(environ)
        match = resolve(f"/v1/{path}", "placements.api.urls")
        with (
            environment_errors_as(RemoteError),
            in_hub(hub_named(self._hub_name)),
            noticed_changes(),
        ):
            user: User | None = User(username="system", is_superuser=True)
            if self._user_name:
                user = User.objects.filter(
                    username=self._user_name, is_active=True
                ).first()
            if user is None:
                raise RemoteError(
                    f"no user is named {self._user_name!r}", returncode=BAD_INPUT
                )
            request.user = request._force_auth_user = user  # type: ignore[attr-defined]  # where REST framework looks
            request._dont_enforce_csrf_checks = True  # type: ignore[attr-defined]
            response = match.func(request, *match.args, **match.kwargs)
            if hasattr(response, "render"):
                response.render()
        return content_of(
            response.status_code, response.content, console="this console"
        )
