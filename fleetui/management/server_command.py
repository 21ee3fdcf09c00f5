"""The base of commands that work on the database or, with `--server`, on a console over REST."""

from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from fleetui.errors import BAD_INPUT
from fleetui.management.hub_command import HubCommand
from fleetui.remote import (
    SERVER,
    TOKEN,
    RemoteClient,
    RemoteError,
    ServerRefused,
    parse_server,
)


class ServerCommand(HubCommand):
    """A command whose option `client` is a console elsewhere; it is None for the database of this machine."""

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument_group("console over REST").add_argument
        add(
            "--server",
            metavar="URL",
            help=f"address of a console (default: {SERVER}, else the database)",
        )
        add(
            "--token",
            help=f"visible to all users of this machine: better --token-file, or {TOKEN}",
        )
        add("--token-file", metavar="FILE", help="file with the token")
        add(
            "--ca-file",
            metavar="FILE",
            help="certificates to trust (default: those of the system)",
        )
        add(
            "--insecure-skip-tls-verify",
            action="store_true",
            help="accept any certificate",
        )
        add(
            "--allow-http",
            action="store_true",
            help="send the token unencrypted to another machine",
        )
        add(
            "--request-timeout",
            type=seconds,
            metavar="TIME",
            help="of one request (default 60s)",
        )

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run on the console that the options name. Errors of the connection have an exit status."""
        try:
            server = parse_server(options)
            if server is None:
                return super().execute(*args, **options, client=None)
            hub = options.pop("hub")
            # Without the scope of a hub, which would look it up in the database.
            return BaseCommand.execute(
                self, *args, **options, client=RemoteClient(server, hub=hub)
            )
        except ServerRefused as refusal:
            raise CommandError(str(refusal), returncode=BAD_INPUT) from refusal
        except RemoteError as error:
            raise CommandError(str(error), returncode=error.returncode) from error


_UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> float:
    """Parse a time such as 90s, 5m or 1h."""
    number, unit = text[:-1], text[-1:]
    try:
        total = float(number) * _UNITS[unit]
    except (KeyError, ValueError) as error:
        raise ArgumentTypeError("write a number and s, m or h, such as 5m") from error
    if not 0 < total <= 7 * 86400:
        raise ArgumentTypeError("write more than 0s, and at most 168h")
    return total
