"""Who a request comes from: its API token, and whether the scopes of the token include the operation."""

from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User
from rest_framework.authentication import TokenAuthentication
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request

from fleetui.access.models import SCOPES, ApiToken
from fleetui.access.tokens import user_of_token
from fleetui.accounts.second_factor import check_second_factor_of_token

OPERATING = frozenset({"operate"})
"""The scopes of which a token needs one to change something, unless the operation names others."""
APPROVING = frozenset({"approve"})
WRITING = OPERATING | APPROVING
"""For operations whose body decides about the role, and for the tokens of the caller."""
COMPUTING = frozenset(SCOPES)
"""For operations that read by POST: they compute from their body, and store nothing."""


class ApiTokenAuthentication(TokenAuthentication):
    """Reads `Authorization: Token …`; the token restricts what the user may do."""

    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        """Return the user and the token, before any view.

        Raise AuthenticationFailed, PermissionDenied, SecondFactorDueError.
        """
        login: tuple[User, ApiToken] | None = super().authenticate(request)
        if login is None:
            return None
        user, token = login
        request._request._cached_user = user  # type: ignore[attr-defined]  # for log lines and the access log
        check_second_factor_of_token(user)
        view = request.parser_context["view"]
        needed = getattr(
            getattr(view, getattr(view, "action", None) or "", None),
            "scopes",
            OPERATING,
        )
        if request.method not in SAFE_METHODS and needed.isdisjoint(token.scope_names):
            raise PermissionDenied(
                f"This operation requires a token with the scope {' or '.join(sorted(needed))}."
                f" Scopes of this token: {', '.join(token.scope_names)}."
            )
        return login

    def authenticate_credentials(self, key: str) -> tuple[User, ApiToken]:
        login = user_of_token(key, now=datetime.now(UTC))
        if login is None:
            raise AuthenticationFailed(
                "The token is not valid: it is unknown, expired or revoked."
            )
        return login
