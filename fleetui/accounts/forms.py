"""The forms of logging in: name and password, and the second factor with its limits."""

from typing import Any

from allauth.account.adapter import get_adapter
from allauth.account.internal.flows.login import perform_password_login
from allauth.account.models import Login
from allauth.core import context
from allauth.mfa.base.forms import AuthenticateForm, ReauthenticateForm
from allauth.mfa.models import Authenticator
from allauth.mfa.webauthn.forms import AuthenticateWebAuthnForm, ReauthenticateWebAuthnForm
from django import forms
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse

from fleetui.accounts.attempts import count_attempt, report_failure


class LoginForm(forms.Form):
    """Name and password; the fields have the names that they always had."""

    username = forms.CharField(max_length=150)
    password = forms.CharField(max_length=4096, strip=False)

    def __init__(self, *args: Any, request: HttpRequest, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._request = request
        self.user: User | None = None

    def clean(self) -> dict[str, Any]:
        """Compare the password, unless there were too many attempts."""
        credentials = super().clean() or {}
        if not self.errors:
            adapter = get_adapter()
            self.user = adapter.authenticate(self._request, **credentials)
            if self.user is None:
                raise adapter.validation_error("username_password_mismatch")
        return credentials

    def login(self, request: HttpRequest, redirect_url: str | None = None) -> HttpResponse:
        login = Login(user=self.user, redirect_url=redirect_url)
        # Private in allauth: no public function records that a password was given, which the adapter reads.
        return perform_password_login(request, {"username": self.cleaned_data["username"]}, login)


class LimitedFactor(forms.Form):
    """A second factor with the limits of this console; a failure is reported like a wrong password."""

    user: User

    def check_factor(self, name: str) -> Any:
        """Return the checked value of a field. Raise ValidationError."""
        username, request = self.user.get_username(), context.request
        attempt = count_attempt(request, username, is_second_factor=True)
        if attempt is None:
            report_failure(request, username, "too many attempts at the second factor")
            raise get_adapter().validation_error("too_many_login_attempts")
        try:
            value = getattr(super(), f"clean_{name}")()
        except forms.ValidationError:
            report_failure(request, username, "wrong second factor")
            raise
        attempt.succeed()
        return value


class FactorCodeForm(LimitedFactor, AuthenticateForm):
    def clean_code(self) -> str:
        return str(self.check_factor("code"))


class FactorCodeAgainForm(LimitedFactor, ReauthenticateForm):
    """A code before the second factors of an account change."""

    def clean_code(self) -> str:
        return str(self.check_factor("code"))


class SecurityKeyForm(LimitedFactor, AuthenticateWebAuthnForm):
    def clean_credential(self) -> Authenticator:
        return self.check_factor("credential")


class SecurityKeyAgainForm(LimitedFactor, ReauthenticateWebAuthnForm):
    """A security key before the second factors of an account change."""

    def clean_credential(self) -> Authenticator:
        return self.check_factor("credential")
