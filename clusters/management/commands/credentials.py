"""manage.py credentials: check what the keys encrypt, and encrypt it with another key."""

from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from clusters.credentials import add_key, check_credentials
from fleetui.accounts.second_factor import unreadable_keys
from fleetui.errors import BAD_INPUT, REFUSED
from fleetui.management.hub_command import HubCommand
from fleetui.sealed_rows import check_manifests


class Command(HubCommand):
    help = "Check stored credentials, second factors and values of Secrets, or encrypt them again."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
        actions.add_parser(
            "check",
            help="decrypt all credentials and name the clusters and hubs that fail",
        )
        rotate = actions.add_parser(
            "rotate", help="encrypt all credentials with the first key; repeatable"
        )
        rotate.add_argument(
            "--new-key",
            action="store_true",
            help="add a new key to the key file first, ahead of the others",
        )

    def handle(self, *, action: str, new_key: bool = False, **_options: Any) -> None:
        """Report the credentials by key; exit status 1 if some cannot be read."""
        if new_key:
            if settings.CREDENTIAL_KEYS:
                raise CommandError(
                    "--new-key: the keys come from FLEETUI_CREDENTIAL_KEYS; put a new one first there",
                    returncode=BAD_INPUT,
                )
            add_key()
        report = check_credentials(reencrypt=action == "rotate")
        self.stdout.write(
            f"{report.first_key} with the first key, {report.other_keys} with another key"
        )
        users = unreadable_keys(reencrypt=action == "rotate")
        factors = [f"second factor of {user}" for user in users]
        manifests = check_manifests(reencrypt=action == "rotate")
        if unreadable := (*report.unreadable, *factors, *manifests):
            raise CommandError(
                f"{len(unreadable)} cannot be read: {', '.join(unreadable)}. "
                "Add the key that encrypted them, or set them again.",
                returncode=REFUSED,
            )
