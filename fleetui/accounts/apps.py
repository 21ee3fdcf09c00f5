"""The app of accounts."""

from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in
from django.http import HttpRequest

from fleetui.middleware import SECOND_FACTOR_DUE, start_session


class AccountsConfig(AppConfig):
    """Logging in: pages, second factors, identity providers and sessions."""

    name = "fleetui.accounts"

    def ready(self) -> None:
        """Connect two receivers.

        A login has several callers that are not ours, such as allauth and the test client, and a second
        factor is added by views of allauth.
        """
        from allauth.mfa.signals import authenticator_added  # noqa: PLC0415  # its app is loaded by now

        user_logged_in.connect(start_session, dispatch_uid="fleetui-start-session")
        authenticator_added.connect(open_session, dispatch_uid="fleetui-open-session")


def open_session(sender: object, request: HttpRequest, **_signal: object) -> None:  # noqa: ARG001
    """Grant a session the permissions that require a second factor."""
    request.session.pop(SECOND_FACTOR_DUE, None)
