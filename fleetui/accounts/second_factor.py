"""Second factors: who needs one, who has one, and how its key is kept.

What is asked with each request of a session or an API token is here, and nowhere else: a role may be granted,
and a factor removed, long after the login.
"""

from collections.abc import Callable
from http import HTTPStatus

from allauth.account.authentication import get_authentication_records
from allauth.mfa.models import Authenticator
from cryptography.fernet import InvalidToken
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import MiddlewareNotUsed, PermissionDenied
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from fleetui.access.models import ServiceAccount
from fleetui.accounts.proxy import BY_PROXY
from fleetui.encryption import cipher
from fleetui.errors import FleetError
from fleetui.htmx import redirect_page
from fleetui.middleware import Middleware, refusal
from fleetui.role_names import ADMINISTRATOR

MAIN_TYPES = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)
"""What a login requires; recovery codes are of use only beside one of them."""
FACTOR_MISSING = (
    "Your role requires a second factor. Log in with a browser and add one."
)
_WITHOUT_FACTOR = (
    "/account/",
    "/login/",
    "/logout/",
    "/theme/",
    "/rows/",
    "/keys/",
    "/help/",
)


class SecondFactorDueError(FleetError, PermissionDenied):
    """A role of the user requires a second factor, and there is none."""

    status = HTTPStatus.FORBIDDEN
    problem_type = "second-factor-required"


def requires_second_factor(user: User) -> bool:
    """Return whether a role of the user requires a second factor, on any hub and for any team."""
    roles = settings.SECOND_FACTOR_ROLES
    if not roles:
        return False
    if user.is_superuser and ADMINISTRATOR in roles:
        return True
    has_role = (
        Q(name__in=roles)
        | Q(hub_grants__role__in=roles)
        | Q(team_grants__role__in=roles)
    )
    return user.groups.filter(has_role).exists()


def has_second_factor(user: User) -> bool:
    return Authenticator.objects.filter(user=user, type__in=MAIN_TYPES).exists()


def lacks_second_factor(user: User) -> bool:
    return requires_second_factor(user) and not has_second_factor(user)


def check_second_factor_of_token(user: User) -> None:
    """Raise SecondFactorDueError if the user of an API token lacks a second factor.

    Service accounts have none, nor have accounts without a password here: whose identity provider or proxy
    logs them in has their factors.
    """
    if not lacks_second_factor(user) or not user.has_usable_password():
        return
    if not ServiceAccount.objects.filter(user=user).exists():
        raise SecondFactorDueError(FACTOR_MISSING)


class SecondFactorMiddleware(Middleware):
    """Restricts sessions without a required second factor to the pages that add one.

    After the login by a proxy: who comes from there, or from an identity provider, has factors there.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        super().__init__(get_response)
        if not settings.SECOND_FACTOR_ROLES:
            raise MiddlewareNotUsed

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path_info.startswith(_WITHOUT_FACTOR) or not is_due_in_session(
            request
        ):
            return self._get_response(request)
        if request.path_info.startswith("/api/"):
            return refusal(
                request, HTTPStatus.FORBIDDEN, FACTOR_MISSING, "second-factor-required"
            )
        return redirect_page(request, reverse("mfa_index"))


def is_due_in_session(request: HttpRequest) -> bool:
    """Return whether a session may do nothing before a second factor is added."""
    user = request.user
    if (
        not settings.SECOND_FACTOR_ROLES
        or not isinstance(user, User)
        or not lacks_second_factor(user)
    ):
        return False
    methods = {record["method"] for record in get_authentication_records(request, user)}
    return "socialaccount" not in methods and not request.session.get(BY_PROXY)


def unreadable_keys(*, reencrypt: bool) -> list[str]:
    """Return the users whose keys cannot be decrypted; encrypt all others with the first key, if wanted."""
    keys, names = cipher(), set()
    rows = Authenticator.objects.exclude(
        type=Authenticator.Type.WEBAUTHN
    ).select_related("user")
    for row in rows.order_by("pk").iterator():
        name = "secret" if row.type == Authenticator.Type.TOTP else "seed"
        try:
            ciphertext = keys.rotate(row.data[name].encode()).decode()
        except InvalidToken:
            names.add(row.user.get_username())
            continue
        if reencrypt:
            row.data[name] = ciphertext
            row.save(update_fields=["data"])
    return sorted(names)
