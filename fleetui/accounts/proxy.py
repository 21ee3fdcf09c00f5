"""Proxies in front of the console: the addresses of clients and the users that they name.

`FLEETUI_TRUSTED_PROXIES` lists their networks. What any other client sends in these headers is removed or
refused, so that a client cannot choose an address to count attempts for, or a user to be.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY, login, logout
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from fleetui.accounts.attempts import report_failure
from fleetui.accounts.roles import apply_roles
from fleetui.middleware import Middleware

BY_PROXY = "logged_in_by_proxy"
"""The key in a session that a proxy started; without its header the session ends."""
_FROM_PROXY = "fleetui.from_proxy"
_FORWARDED = (
    "HTTP_X_FORWARDED_FOR",
    "HTTP_X_FORWARDED_PROTO",
    "HTTP_X_FORWARDED_HOST",
    "HTTP_FORWARDED",
)


def client_address(peer: str, forwarded: str) -> str:
    """Return the address of the client: the last one in X-Forwarded-For that is no trusted proxy.

    What is to the left of it was written by the client and proves nothing.
    """
    address = peer
    for text in reversed([part.strip() for part in forwarded.split(",")]):
        if not _is_trusted(address) or _parsed(text) is None:
            break
        address = str(_parsed(text))
    return address


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (
        (address.ipv4_mapped or address)
        if isinstance(address, IPv6Address)
        else address
    )


def _is_trusted(text: str) -> bool:
    address = _parsed(text)
    return address is not None and any(
        address in network for network in settings.TRUSTED_PROXIES
    )


class TrustedProxyMiddleware(Middleware):
    """Sets REMOTE_ADDR to the address of the client; removes what only a trusted proxy may say."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        peer = request.META.get("REMOTE_ADDR", "")
        request.META[_FROM_PROXY] = _is_trusted(peer)
        if request.META[_FROM_PROXY]:
            request.META["REMOTE_ADDR"] = client_address(
                peer, request.META.get("HTTP_X_FORWARDED_FOR", "")
            )
        else:
            for name in _FORWARDED:
                request.META.pop(name, None)
        return self._get_response(request)


class ProxyLoginMiddleware(Middleware):
    """Logs in the user that a trusted proxy names; the header of anyone else is refused with status 403."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        name = request.META.get(settings.PROXY_USER_HEADER)
        if name is None:
            if request.session.get(BY_PROXY):
                logout(request)
            return self._get_response(request)
        if not request.META.get(_FROM_PROXY, False):
            report_failure(
                request, name, "the header of the proxy came from an untrusted address"
            )
            return _refuse(
                request,
                "The header that names the user is accepted from trusted proxies only.",
            )
        if (
            "Authorization" in request.headers
        ):  # a token names the user; a session would be left behind
            return self._get_response(request)
        user = request.user
        if not user.is_authenticated or user.get_username() != name:
            problem = _log_in(request, name)
            if problem:
                report_failure(request, name, problem)
                return _refuse(request, problem)
        return self._get_response(request)


def _log_in(request: HttpRequest, name: str) -> str:
    """Log a user in, who is created at the first time; return what is wrong, if anything."""
    user = User.objects.filter(username=name).first()
    if user is None:
        user = User(username=name)
        user.set_unusable_password()
        try:
            user.full_clean()
        except ValidationError:
            return "The proxy sends a name that no user can have."
        user.save()
    if not user.is_active:
        return "An administrator of FleetUI disabled this account."
    groups = request.META.get(settings.PROXY_GROUPS_HEADER, "")
    apply_roles(
        user, [part.strip() for part in groups.split(",")], settings.PROXY_ROLES
    )
    if SESSION_KEY in request.session:
        logout(request)
    login(request, user, backend=settings.AUTHENTICATION_BACKENDS[0])
    request.session[BY_PROXY] = True
    return ""


def _refuse(request: HttpRequest, message: str) -> HttpResponse:
    context: dict[str, Any] = {"message": message}
    return render(request, "accounts/provider_failed.html", context, status=403)
