"""The hub of a request: `/hubs/<name>/…` serves a live hub, all other addresses the local one."""

import re
from collections.abc import Callable
from typing import Any

from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponsePermanentRedirect,
)
from django.urls import get_script_prefix, set_script_prefix

from clusters.hub_queries import hub_named
from clusters.models import Hub
from clusters.models.hubs import LONGEST_HUB_NAME, RESERVED_HUB_NAMES
from fleetui.hub_backend import current_backend, has_live_hubs
from fleetui.hub_scope import LOCAL_HUB, UNKNOWN_HUB, current_hub_id, in_hub
from fleetui.middleware import Middleware, show_refusal
from fleetui.permissions import may_read

# The pages about a hub are served by the local one: its connection, and not what it has.
_MOUNT = re.compile(r"/hubs/(?P<name>[^/]+)(?P<rest>/(?!about/).*)")
HUB_INDEPENDENT = (
    "/hubs/",
    "/help/",
    "/theme/",
    "/rows/",
    "/keys/",
    "/login/",
    "/logout/",
    "/account/",
    "/oidc/",
    "/static/",
    "/inbox/",
    "/metrics",
    "/tokens/",
    "/access-log/",
    "/users/",
    "/api/v1/access-log",
    "/api/v1/hubs",
    "/api/v1/inbox",
    "/api/v1/token",  # and tokens
    "/api/docs",
    "/api/schema",
    "/admin/login/",
    "/admin/logout/",
    "/admin/auth/",
    "/admin/mfa/",
    "/admin/access/",
    "/admin/clusters/hubgrant/",
)
"""Addresses that are the same for all hubs; they are served without the prefix."""


class HubMiddleware(Middleware):
    """Moves `/hubs/<name>` from the path to the script name, and sets the scope of the request.

    `reverse()` then writes the addresses of that hub, so that no view and no template knows the prefix. The
    address of an unknown or removed hub stays as it is, and no view has it. `request.hub` is the live hub,
    None for the local one, which takes no query.
    """

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.hub = None  # type: ignore[attr-defined]  # read by views and templates
        match = _MOUNT.fullmatch(request.path_info)

        hub = hub_named(match["name"]) if match and has_live_hubs() else None
        if match and hub is None and match["name"] not in RESERVED_HUB_NAMES:
            # Until a user is known, the response is that of a hub that exists and shows nothing.
            hub = Hub(pk=UNKNOWN_HUB, name=match["name"][:LONGEST_HUB_NAME])
        if match is None or hub is None or hub.pk == LOCAL_HUB:
            with in_hub(LOCAL_HUB):
                return self._get_response(request)
        if match["rest"].startswith(HUB_INDEPENDENT):
            query = request.META.get("QUERY_STRING", "")
            to = f"{match['rest']}?{query}".removesuffix("?")
            return HttpResponsePermanentRedirect(to, preserve_request=True)
        before = get_script_prefix()
        mount = f"{before.rstrip('/')}/hubs/{hub.name}"
        request.hub = None if hub.pk == UNKNOWN_HUB else hub  # type: ignore[attr-defined]  # see above
        request.path_info = request.META["PATH_INFO"] = match["rest"]
        request.META["SCRIPT_NAME"] = mount
        set_script_prefix(f"{mount}/")
        try:
            with in_hub(hub.pk):
                return self._get_response(request)
        finally:
            set_script_prefix(before)

    def process_view(
        self,
        request: HttpRequest,
        _view: Callable[..., Any],
        _arguments: Any,
        _options: Any,
    ) -> HttpResponse | None:
        """Refuse what the live hub decides. Raise Http404 for a user without a role there.

        Nothing of the hub is to be known without a role; the page of a view that could only refuse is not
        shown at all. Without a user an unknown hub is like any other: the response is the login page.
        """
        if current_hub_id() == LOCAL_HUB or not request.user.is_authenticated:
            return None
        if current_hub_id() == UNKNOWN_HUB:
            set_script_prefix(
                get_script_prefix().partition("hubs/")[0]
            )  # the links of the 404 page
            raise Http404
        if not may_read(request.user):
            raise Http404
        address = request.resolver_match.view_name if request.resolver_match else ""
        refusal = current_backend().refusal(
            address, is_form=request.method not in ("GET", "HEAD", "OPTIONS")
        )
        return show_refusal(request, refusal) if refusal else None
