"""A token for a user's name and password."""

from django.contrib.auth import authenticate
from rest_framework import serializers
from rest_framework.authentication import TokenAuthentication
from rest_framework.authtoken.models import Token as Row
from rest_framework.exceptions import AuthenticationFailed, ValidationError
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import SimpleRateThrottle
from rest_framework.views import APIView

from placements.api.bodies import document_of, object_in
from placements.api.describing import described


class TokenThrottle(SimpleRateThrottle):
    """So many attempts from one address, whoever it claims to be."""

    scope = "token"

    def get_cache_key(self, request: Request, view: APIView) -> str:  # noqa: ARG002 -- the framework's
        """Tell callers apart by their address."""
        return self.cache_format % {"scope": self.scope, "ident": self.get_ident(request)}


class Credentials(serializers.Serializer[object]):
    """Who asks for a token."""

    username = serializers.CharField(max_length=150)
    password = serializers.CharField(max_length=4096, trim_whitespace=False)


class TokenShape(serializers.Serializer[object]):
    """What to send as `Authorization: Token …`."""

    token = serializers.CharField()


class Token(APIView):
    """Logging in without a browser."""

    authentication_classes = (TokenAuthentication,)
    permission_classes = (AllowAny,)
    throttle_classes = (TokenThrottle,)
    largest_body = 64 * 1024

    @described("create_token", {200: TokenShape}, body=Credentials, problems=(429,), auth=[])
    def post(self, request: Request) -> Response:
        """Give the token of a user, the same as long as it is not deleted."""
        reader = Credentials(data=object_in(document_of(request), what="a name and a password"))
        if not reader.is_valid():
            raise ValidationError(reader.errors)
        user = authenticate(request, **reader.validated_data)
        if user is None:
            raise AuthenticationFailed("There is no active user with this name and password.")
        token, _ = Row.objects.get_or_create(user=user)
        return Response({"token": token.key})
