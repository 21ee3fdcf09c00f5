"""Logging in with an identity provider (OpenID Connect), and the roles that its claims mean.

An account is found by the provider's `sub` and by nothing else: neither an e-mail address nor a name leads to
an account that was created here, so that no provider takes one over.
"""

from collections.abc import Mapping
from typing import Any

from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialApp, SocialLogin, SocialToken
from allauth.socialaccount.providers.base import AuthError, AuthProcess
from allauth.socialaccount.providers.oauth2.views import (
    OAuth2CallbackView,
    OAuth2LoginView,
)
from allauth.socialaccount.providers.openid_connect.provider import (
    OpenIDConnectProvider,
)
from allauth.socialaccount.providers.openid_connect.views import (
    OpenIDConnectOAuth2Adapter,
)
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from fleetui.accounts.attempts import report_failure
from fleetui.accounts.roles import apply_roles, groups_in

PROVIDER = "oidc"
"""The name of the provider in addresses and in the table of connections."""


class VerifyingAdapter(OpenIDConnectOAuth2Adapter):
    """Checks the issuer, and the signature of every ID token, also of one that came by TLS."""

    @property
    def openid_config(self) -> dict[str, Any]:
        """Return the metadata of the provider. Raise ImmediateHttpResponse if they are of another issuer."""
        config: dict[str, Any] = super().openid_config
        expected = self.get_provider().app.settings["server_url"]
        if str(config.get("issuer")).rstrip("/") != expected.rstrip("/"):
            _refuse(
                self.request,
                "",
                "The login at the identity provider failed.",
                reason=f"the metadata of {expected} names another issuer",
            )
        return config

    def complete_login(
        self, request: HttpRequest, app: SocialApp, token: SocialToken, **kwargs: Any
    ) -> SocialLogin:
        # allauth reads the signature of an ID token only where it did not get the token itself.
        self.did_fetch_access_token = False
        return super().complete_login(request, app, token, **kwargs)


# Not a setting: the provider makes an adapter of its own for the way to the identity provider.
OpenIDConnectProvider.oauth2_adapter_class = VerifyingAdapter


def login(request: HttpRequest, provider_id: str) -> HttpResponse:
    return _run(OAuth2LoginView, request, provider_id)


def callback(request: HttpRequest, provider_id: str) -> HttpResponse:
    return _run(OAuth2CallbackView, request, provider_id)


def _run(view: Any, request: HttpRequest, provider_id: str) -> HttpResponse:
    try:
        response: HttpResponse = view.adapter_view(
            VerifyingAdapter(request, provider_id)
        )(request)
    except SocialApp.DoesNotExist as error:
        raise Http404 from error
    return response


class ProviderAdapter(DefaultSocialAccountAdapter):
    """Users of the provider: who gets an account, and with which roles."""

    def is_open_for_signup(
        self,
        request: HttpRequest,  # noqa: ARG002
        sociallogin: SocialLogin,  # noqa: ARG002
    ) -> bool:
        return True

    def list_apps(
        self,
        request: HttpRequest,
        provider: str | None = None,
        client_id: str | None = None,
    ) -> list[SocialApp]:
        """Return the providers of the settings; those in the table of allauth have no page here."""
        return [
            app
            for app in super().list_apps(request, provider, client_id)
            if app.pk is None
        ]

    def get_connect_redirect_url(
        self,
        request: HttpRequest,  # noqa: ARG002
        socialaccount: object,  # noqa: ARG002
    ) -> str:
        return reverse("account")

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Refuse who may not have an account; set the roles of who has one."""
        claims = claims_of(sociallogin)
        sociallogin.email_addresses = []
        if claims is None:
            _refuse(
                request,
                "",
                "The answers of the identity provider are about two different users.",
            )
        elif sociallogin.is_existing:
            apply_claims(sociallogin.user, claims)
        elif sociallogin.state.get("process") != AuthProcess.CONNECT:
            username = sociallogin.user.username = str(
                claims.get(settings.OIDC_NAME_CLAIM) or ""
            )
            try:
                User.username_validator(username)
            except ValidationError:
                _refuse(
                    request, username, "The identity provider sends no usable name."
                )
            if User.objects.filter(username__iexact=username).exists():
                _refuse(
                    request,
                    username,
                    f"There is an account {username} already. Log in with its password, "
                    "then connect it on the page of the account.",
                )

    def save_user(
        self,
        request: HttpRequest,
        sociallogin: SocialLogin,
        form: object = None,  # noqa: ARG002
    ) -> User:
        user: User = sociallogin.user
        user.set_unusable_password()
        sociallogin.save(request)
        apply_claims(user, claims_of(sociallogin) or {})
        return user

    def on_authentication_error(
        self,
        request: HttpRequest,
        provider: object,  # noqa: ARG002
        error: object = None,
        exception: Exception | None = None,
        extra_context: Mapping[str, Any] | None = None,  # noqa: ARG002
    ) -> None:
        """Respond with a page that names no detail of the exchange; the log has the reason."""
        if error == AuthError.CANCELLED:
            return
        _refuse(
            request,
            "",
            "The login at the identity provider failed.",
            reason=f"{error or ''} {exception or ''}".strip(),
        )


def claims_of(sociallogin: SocialLogin) -> dict[str, Any] | None:
    """Return the claims of the ID token and of the user information; None if they are of different users."""
    data = sociallogin.account.extra_data
    token, info = data.get("id_token") or {}, data.get("userinfo") or {}
    if token and info and token.get("sub") != info.get("sub"):
        return None
    return {**token, **info}


def apply_claims(user: User, claims: Mapping[str, Any]) -> None:
    apply_roles(user, groups_in(claims, settings.OIDC_ROLE_CLAIM), settings.OIDC_ROLES)


def _refuse(
    request: HttpRequest, username: str, message: str, *, reason: str = ""
) -> None:
    report_failure(request, username, reason or message)
    page = render(
        request, "accounts/provider_failed.html", {"message": message}, status=403
    )
    raise ImmediateHttpResponse(page)
