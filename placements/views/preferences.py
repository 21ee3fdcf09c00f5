"""How somebody likes to see the console: theme, height of rows, single-letter keys; kept in cookies."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

PREFERENCES = {
    "theme": ("system", "light", "dark"),
    "rows": ("comfortable", "dense"),
    "keys": ("on", "off"),
}
"""What can be chosen; the first of each is what holds until somebody chooses."""
_A_YEAR = 365 * 24 * 3600


def preference_of(request: HttpRequest, name: str) -> str:
    """Read a preference; what nobody offered counts as not chosen."""
    allowed = PREFERENCES[name]
    given = request.COOKIES.get(_cookie(name), "")
    return given if given in allowed else allowed[0]


@require_POST
def prefer(request: HttpRequest, name: str) -> HttpResponse:
    """Keep a preference in this browser and go back to where it was chosen; nobody has to log in for it."""
    chosen = request.POST.get(name, "")
    if chosen not in PREFERENCES[name]:
        return HttpResponseBadRequest(f"{name}: one of {', '.join(PREFERENCES[name])}", "text/plain")
    answer = redirect(_back(request))
    answer.set_cookie(
        _cookie(name), chosen, max_age=_A_YEAR, secure=settings.HTTPS, httponly=True, samesite="Lax"
    )
    return answer


def _cookie(name: str) -> str:
    return f"fleetui_{name}"


def _back(request: HttpRequest) -> str:
    """Give the address to go back to, of this console only."""
    wanted = request.POST.get("next", "")
    is_ours = url_has_allowed_host_and_scheme(
        wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return wanted if is_ours and wanted.startswith("/") else "/"
