"""Notices to users about the security of their account: by e-mail, or in the log of the process.

An intruder changes the password, the factors or the tokens of an account; its owner learns of it here.
"""

import logging
from datetime import UTC, datetime
from functools import partial
from smtplib import SMTPException

from django.conf import settings
from django.contrib.auth.models import User
from django.core.mail import send_mail
from django.db import transaction
from django.http import HttpRequest

from fleetui.access.audit import record_access
from fleetui.middleware import current_request

log = logging.getLogger("django.security.notices")

CHANGES = {
    "account/email/password_changed": "The password was changed",
    "account/email/password_set": "The password was changed",
    "mfa/email/totp_activated": "An authenticator app was added",
    "mfa/email/totp_deactivated": "The authenticator app was removed",
    "mfa/email/webauthn_added": "A security key was added",
    "mfa/email/webauthn_removed": "A security key was removed",
    "mfa/email/recovery_codes_generated": "New recovery codes were generated",
    "socialaccount/email/account_connected": "The account was connected to the identity provider",
    "socialaccount/email/account_disconnected": "The account was disconnected from the identity provider",
}
"""What changed, by the template that allauth would send."""
_MESSAGE = """{change}.

Account: {user}
Time: {at} UTC
Address: {address}

If this was not you, change the password and end the other sessions on the page of your account, and ask an
administrator of FleetUI.
"""


def record_change(user: User, template: str) -> None:
    change = CHANGES[template]
    verb = "password changed" if "password" in template else "account changed"
    record_access(verb, user.get_username(), details={"change": change})
    send_notice(user, change)


def send_notice(user: User, change: str) -> None:
    """Send a change to the owner of an account once it is saved; a server that fails is in the log."""
    transaction.on_commit(partial(_deliver, user, change, current_request.get()))


def _deliver(user: User, change: str, request: HttpRequest | None) -> None:
    address = request.META.get("REMOTE_ADDR", "") if request else "this machine"
    context = {"request": request}
    if not (settings.EMAIL_HOST and user.email):
        log.info("notice to %s: %s", user.get_username(), change, extra=context)
        return
    message = _MESSAGE.format(
        change=change,
        user=user.get_username(),
        at=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}",
        address=address,
    )
    try:
        send_mail(
            f"FleetUI: {change}", message, settings.DEFAULT_FROM_EMAIL, [user.email]
        )
    except (OSError, SMTPException) as error:
        log.error(
            "notice to %s not sent (%s): %s",
            user.get_username(),
            type(error).__name__,
            change,
            extra=context,
        )
