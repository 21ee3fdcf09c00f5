"""API tokens: creating, listing and revoking them."""

from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User
from rest_framework import serializers
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied, Throttled
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from fleetui.access.models import SCOPES, ApiToken
from fleetui.access.tokens import (
    create_login_token,
    create_token,
    revoke_all_tokens,
    revoke_token,
    visible_tokens,
)
from fleetui.accounts.attempts import WAIT_SECONDS
from fleetui.accounts.tokens import (
    LoginRefusedError,
    TooManyAttemptsError,
    log_in_for_token,
)
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.permissions import scopes_of
from placements.api.authentication import WRITING, ApiTokenAuthentication
from placements.api.base import BaseViewSet, MayRead, Params, Rows, paged_list
from placements.api.parsers import parse_body
from placements.api.schema import Schema, documented
from placements.api.serializers import CamelCaseSerializer, RowSerializer, names, text


class NewLoginTokenSerializer(CamelCaseSerializer):
    """Name and password of a user; the token has all scopes and is valid for a day by default."""

    username = serializers.CharField(max_length=150)
    password = serializers.CharField(max_length=4096, trim_whitespace=False)
    code = serializers.CharField(
        max_length=20,
        required=False,
        help_text="The code of the second factor, or a recovery code, if the account has one.",
    )
    scopes = serializers.ListField(
        child=serializers.ChoiceField(SCOPES), required=False, min_length=1
    )
    days = serializers.IntegerField(required=False, min_value=1, max_value=3650)


class TokenSerializer(CamelCaseSerializer):
    """A token, to send as `Authorization: Token …`; it cannot be read again."""

    token = serializers.CharField()
    name = serializers.CharField()
    expires_at = serializers.DateTimeField()


class TokenViewSet(ViewSet):
    """Logging in without a browser."""

    schema = Schema()
    authentication_classes = (ApiTokenAuthentication,)
    permission_classes = (AllowAny,)
    largest_body = 64 * 1024

    @documented(
        "create_token",
        TokenSerializer,
        body=NewLoginTokenSerializer,
        problems=(429,),
        auth=[],
    )
    def create(self, request: Request) -> Response:
        """Create a token for a user by name and password; of such tokens a user has at most 20."""
        fields = parse_body(request, NewLoginTokenSerializer)
        credentials = {
            name: fields.get(name, "") for name in ("username", "password", "code")
        }
        try:
            user = log_in_for_token(request._request, **credentials)
        except TooManyAttemptsError as error:
            raise Throttled(wait=WAIT_SECONDS) from error
        except LoginRefusedError as error:
            raise AuthenticationFailed(str(error)) from error
        row, secret = create_login_token(
            user,
            scopes=fields.get("scopes", SCOPES),
            days=fields.get("days", 1),
            now=datetime.now(UTC),
        )
        return Response(
            TokenSerializer(
                {"token": secret, "name": row.name, "expires_at": row.expires_at}
            ).data
        )


class ApiTokenSerializer(RowSerializer):
    """An API token, without the token itself."""

    user = text("user.username")
    scopes = names(source="scope_names")

    class Meta:
        model = ApiToken
        fields: tuple[str, ...] = (
            "id",
            "user",
            "name",
            "prefix",
            "scopes",
            "created_at",
            "created_by",
            "expires_at",
            "last_used_at",
        )
        extra_kwargs = {
            "prefix": {"help_text": "The first characters of the token."},
            "last_used_at": {"help_text": "To the minute."},
        }


class NewApiTokenSerializer(CamelCaseSerializer):
    """A new API token; `user` is a service account, for superusers only."""

    name = serializers.CharField()
    scopes = names(help_text=f"Of {', '.join(SCOPES)}.")
    days = serializers.IntegerField(
        required=False, help_text="Days until it expires (default: 90)."
    )
    user = serializers.CharField(required=False, max_length=150)


class CreatedApiTokenSerializer(ApiTokenSerializer):
    """An API token with the token itself, which cannot be read again."""

    token = serializers.CharField()

    class Meta(ApiTokenSerializer.Meta):
        fields = (*ApiTokenSerializer.Meta.fields, "token")


class ApiTokenViewSet(BaseViewSet):
    """The API tokens of the caller; for superusers those of service accounts as well."""

    lookup_path = "<number:number>"
    permission_classes = (MayRead,)
    dry_run_action = ""

    @paged_list("list_tokens", ApiTokenSerializer, order="-created_at", unique="id")
    def list(self, params: Params) -> Rows:
        """List API tokens."""
        return visible_tokens(_caller(self.request))

    @documented(
        "create_named_token",
        CreatedApiTokenSerializer,
        status=201,
        body=NewApiTokenSerializer,
        scopes=WRITING,
    )
    def create(self, request: Request) -> Response:
        """Create an API token; with a token, one with no more scopes and no later expiry than its own."""
        fields, by, now = (
            parse_body(request, NewApiTokenSerializer),
            _caller(request),
            datetime.now(UTC),
        )
        days = fields.get("days", 90)
        own = request.auth if isinstance(request.auth, ApiToken) else None
        if own is not None and (
            not {*fields["scopes"]} <= {*own.scope_names}
            or days > (own.expires_at - now).days
        ):
            raise PermissionDenied(
                "A token creates only tokens with scopes of its own that expire before it."
            )
        user = (
            User.objects.filter(username=fields["user"]).first()
            if "user" in fields
            else by
        )
        if user is None:
            raise InvalidManifest.of(
                "user", "not-found", "Not found", "a service account"
            )
        row, secret = create_token(
            user,
            name=fields["name"],
            scopes=fields["scopes"],
            days=days,
            by=by,
            now=now,
        )
        document: dict[str, Any] = {**ApiTokenSerializer(row).data, "token": secret}
        return Response(document, status=201)

    @documented("revoke_token", None, status=204, scopes=WRITING)
    def destroy(self, request: Request, number: int) -> Response:
        """Revoke an API token; it is refused from the next request on."""
        own = request.auth
        if (
            isinstance(own, ApiToken)
            and own.pk != number
            and "operate" not in (scopes_of(request.user) or ())
        ):
            raise PermissionDenied(
                "A token without the scope operate revokes only itself."
            )
        revoke_token(number, by=_caller(request), now=datetime.now(UTC))
        return Response(status=204)

    @documented("revoke_all_tokens", None, status=204)
    def destroy_all(self, request: Request) -> Response:
        """Revoke all API tokens of the caller, for example after a change of the password."""
        user = _caller(request)
        revoke_all_tokens(user, by=user, now=datetime.now(UTC))
        return Response(status=204)


def _caller(request: Request) -> User:
    if not isinstance(request.user, User):
        raise PermissionDenied
    return request.user
