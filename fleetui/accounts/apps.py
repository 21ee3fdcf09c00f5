"""The app of accounts."""

from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in

from fleetui.middleware import start_session


class AccountsConfig(AppConfig):
    name = "fleetui.accounts"

    def ready(self) -> None:
        """Connect a receiver: a login has callers that are not ours, such as allauth and the test client."""
        user_logged_in.connect(start_session, dispatch_uid="fleetui-start-session")
