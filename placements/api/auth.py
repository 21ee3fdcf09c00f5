"""A token for the name and password of a user."""

from rest_framework import serializers
from rest_framework.authentication import TokenAuthentication
from rest_framework.authtoken.models import Token
from rest_framework.exceptions import AuthenticationFailed, Throttled, ValidationError
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from fleetui.accounts.attempts import WAIT_SECONDS
from fleetui.accounts.tokens import LoginRefusedError, TooManyAttemptsError, log_in_for_token
from placements.api.parsers import document_of, object_in
from placements.api.schema import Schema, documented
from placements.api.serializers import CamelCaseSerializer


class CredentialsSerializer(CamelCaseSerializer):
    """Name and password of a user."""

    username = serializers.CharField(max_length=150)
    password = serializers.CharField(max_length=4096, trim_whitespace=False)
    code = serializers.CharField(
        max_length=20,
        required=False,
        default="",
        help_text="The code of the second factor, or a recovery code, if the account has one.",
    )


class TokenSerializer(CamelCaseSerializer):
    """A token, to send as `Authorization: Token …`."""

    token = serializers.CharField()


class TokenViewSet(ViewSet):
    """Logging in without a browser."""

    schema = Schema()
    authentication_classes = (TokenAuthentication,)
    permission_classes = (AllowAny,)
    largest_body = 64 * 1024

    @documented("create_token", TokenSerializer, body=CredentialsSerializer, problems=(429,), auth=[])
    def create(self, request: Request) -> Response:
        """Create a token for a user, or return the one that exists."""
        given = object_in(document_of(request).data, what="a name and a password")
        reader = CredentialsSerializer(data=given)
        if not reader.is_valid():
            raise ValidationError(reader.errors)
        try:
            user = log_in_for_token(request._request, **reader.validated_data)
        except TooManyAttemptsError as error:
            raise Throttled(wait=WAIT_SECONDS) from error
        except LoginRefusedError as error:
            raise AuthenticationFailed(str(error)) from error
        token, _ = Token.objects.get_or_create(user=user)
        return Response({"token": token.key})
