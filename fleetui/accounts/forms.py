"""The forms of logging in: name and password, and the second factor with its limits."""

from functools import partialmethod
from typing import Any

from allauth.account import forms as account_forms
from allauth.account.adapter import get_adapter
from allauth.core import context
from allauth.mfa.base.forms import AuthenticateForm, ReauthenticateForm
from allauth.mfa.webauthn.forms import (
    AuthenticateWebAuthnForm,
    ReauthenticateWebAuthnForm,
)
from django import forms
from django.contrib.auth.models import User

from fleetui.accounts.attempts import count_attempt, report_failure


class LoginForm(account_forms.LoginForm):
    """Name and password; the fields of the page have the names that they always had."""

    password = forms.CharField(max_length=4096, strip=False)

    def add_prefix(self, field_name: str) -> str:
        if field_name == "login":
            return "username"
        return field_name


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
    clean_code = partialmethod(LimitedFactor.check_factor, "code")


class FactorCodeAgainForm(LimitedFactor, ReauthenticateForm):
    """A code before the second factors of an account change."""

    clean_code = partialmethod(LimitedFactor.check_factor, "code")


class SecurityKeyForm(LimitedFactor, AuthenticateWebAuthnForm):
    clean_credential = partialmethod(LimitedFactor.check_factor, "credential")


class SecurityKeyAgainForm(LimitedFactor, ReauthenticateWebAuthnForm):
    """A security key before the second factors of an account change."""

    clean_credential = partialmethod(LimitedFactor.check_factor, "credential")
