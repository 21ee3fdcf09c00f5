"""A token for the name and password of a user."""

from django.contrib.auth import authenticate
from rest_framework import serializers
from rest_framework.authentication import TokenAuthentication
from rest_framework.authtoken.models import Token
from rest_framework.exceptions import AuthenticationFailed, ValidationError
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import SimpleRateThrottle
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from placements.api.parsers import document_of, object_in
from placements.api.schema import Schema, documented
from placements.api.serializers import CamelCaseSerializer


class TokenThrottle(SimpleRateThrottle):
    """Limits the attempts from one address, for all users together."""

    scope = "token"

    def get_cache_key(self, request: Request, view: APIView) -> str:
        return self.cache_format % {"scope": self.scope, "ident": self.get_ident(request)}


class CredentialsSerializer(CamelCaseSerializer):
    """Name and password of a user."""

    username = serializers.CharField(max_length=150)
    password = serializers.CharField(max_length=4096, trim_whitespace=False)


class TokenSerializer(CamelCaseSerializer):
    """A token, to send as `Authorization: Token …`."""

    token = serializers.CharField()


class TokenViewSet(ViewSet):
    """Logging in without a browser."""

    schema = Schema()
    authentication_classes = (TokenAuthentication,)
    permission_classes = (AllowAny,)
    throttle_classes = (TokenThrottle,)
    largest_body = 64 * 1024

    @documented("create_token", TokenSerializer, body=CredentialsSerializer, problems=(429,), auth=[])
    def create(self, request: Request) -> Response:
        """Create a token for a user, or return the one that exists."""
        given = object_in(document_of(request).data, what="a name and a password")
        reader = CredentialsSerializer(data=given)
        if not reader.is_valid():
            raise ValidationError(reader.errors)
        user = authenticate(request, **reader.validated_data)
        if user is None:
            raise AuthenticationFailed("There is no active user with this name and password.")
        token, _ = Token.objects.get_or_create(user=user)
        return Response({"token": token.key})
