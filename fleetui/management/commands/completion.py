"""`fleetui completion SHELL`: the script that completes commands and options in a shell."""

from typing import Any

import shtab
from django.core.management.base import BaseCommand, CommandParser

from fleetui.management.command_tree import command_tree


class Command(BaseCommand):
    """Print a completion script."""

    help = (
        "Print the completion script of a shell, such as for `source <(fleetui completion bash)`. "
        "It is generated from the parsers of the commands."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS)

    def handle(self, *, shell: str, **_options: Any) -> None:
        self.stdout.write(shtab.complete(command_tree(), shell=shell))
