"""What allauth calls: who may have an account, how attempts are limited, how secrets are kept."""

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core import context
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils.http import url_has_allowed_host_and_scheme

from fleetui.access.notices import CHANGES, record_change
from fleetui.accounts.attempts import Attempt, count_attempt, report_failure
from fleetui.accounts.second_factor import MAIN_TYPES, requires_second_factor
from fleetui.encryption import cipher

_QUIET = (
    "account/messages/logged_in.txt",
    "account/messages/logged_out.txt",
    "mfa/messages/recovery_codes_generated.txt",
)
"""What the next page shows anyway."""
WRONG = "Enter a correct username and password. Both fields may be case-sensitive."
TOO_MANY = "Too many failed attempts. Try again in 5 minutes."


class AccountAdapter(DefaultAccountAdapter):
    """Accounts are created by administrators and identity providers, never by visitors."""

    error_messages = {
        **DefaultAccountAdapter.error_messages,
        "username_password_mismatch": WRONG,
        "too_many_login_attempts": TOO_MANY,
        "rate_limited": TOO_MANY,
        "incorrect_password": "Enter your current password.",
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:  # noqa: ARG002  # the base class passes it
        return False

    def get_client_ip(self, request: HttpRequest) -> str:
        """Return the address that the middleware of trusted proxies left in the request."""
        return str(request.META.get("REMOTE_ADDR") or "unknown")

    def is_safe_url(self, url: str) -> bool:
        """Return whether a login may redirect to an address: to this host only."""
        request = context.request
        return url_has_allowed_host_and_scheme(
            url, {request.get_host()}, require_https=request.is_secure()
        )

    def send_notification_mail(
        self,
        template_prefix: str,
        user: User,
        context: dict[str, Any] | None = None,  # noqa: ARG002  # the base class has it
        email: str | None = None,  # noqa: ARG002  # as above
    ) -> None:
        if template_prefix in CHANGES:
            record_change(user, template_prefix)

    def pre_authenticate(self, request: HttpRequest, **credentials: Any) -> None:
        """Count the attempt. Raise ValidationError if there were too many."""
        username = str(credentials.get("username", ""))
        self._attempt: Attempt | None = count_attempt(request, username)
        if self._attempt is None:
            report_failure(request, username, "too many attempts")
            raise self.validation_error("too_many_login_attempts")

    def _rollback_login_failed_rl_usage(self) -> None:
        if self._attempt:
            self._attempt.succeed()

    def add_message(
        self,
        request: HttpRequest,
        level: int,
        message_template: str | None = None,
        message_context: dict[str, Any] | None = None,
        extra_tags: str = "",
        message: str | None = None,
    ) -> None:
        if message_template not in _QUIET:
            super().add_message(
                request, level, message_template, message_context, extra_tags, message
            )


class SecondFactorAdapter(DefaultMFAAdapter):
    """Keys of second factors are encrypted with the keys of credentials."""

    error_messages = {
        **DefaultMFAAdapter.error_messages,
        "incorrect_code": "The code or key was not accepted.",
        "cannot_delete_authenticator": "Your role requires a second factor: add another one first.",
    }

    def encrypt(self, text: str) -> str:
        return cipher().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        return cipher().decrypt(encrypted_text.encode()).decode()

    def get_totp_issuer(self) -> str:
        return "FleetUI"

    def generate_authenticator_name(self, user: User, type: Authenticator.Type) -> str:  # noqa: A002  # its name
        return f"Security key {Authenticator.objects.filter(user=user, type=type).count() + 1}"

    def can_delete_authenticator(self, authenticator: Authenticator) -> bool:
        """Return whether the user has another second factor, or needs none."""
        others = Authenticator.objects.filter(
            user_id=authenticator.user_id, type__in=MAIN_TYPES
        )
        if others.exclude(pk=authenticator.pk).exists():
            return True
        return not requires_second_factor(authenticator.user)
