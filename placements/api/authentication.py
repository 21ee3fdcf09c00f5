"""Who a request comes from: its API token."""

from datetime import UTC, datetime

from django.contrib.auth.models import User
from rest_framework.authentication import TokenAuthentication
from rest_framework.exceptions import AuthenticationFailed

from fleetui.access.models import ApiToken
from fleetui.access.tokens import user_of_token


class ApiTokenAuthentication(TokenAuthentication):
    """Reads `Authorization: Token …`; the token restricts what the user may do."""

    def authenticate_credentials(self, key: str) -> tuple[User, ApiToken]:
        """Return the user and the token. Raise AuthenticationFailed."""
        login = user_of_token(key, now=datetime.now(UTC))
        if login is None:
            raise AuthenticationFailed("The token is not valid: it is unknown, expired or revoked.")
        return login
