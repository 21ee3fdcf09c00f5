"""`fleetui --help`: every command with what it does."""

from textwrap import fill
from typing import Any

from django.core.management import get_commands
from django.core.management.base import BaseCommand

from fleetui.command_line import PROGRAM
from fleetui.management.command_tree import APPS, DESCRIPTION, own_commands

_WIDTH = 18
_EXAMPLES = """\
Examples:
  fleetui up                                          run the console on this machine
  fleetui simulate --clusters FILE --placement FILE   decide from files, without a database
  fleetui apply -f FILE --server URL                  apply manifests to a console, over REST
  fleetui wait NAME --server URL --timeout 10m        wait for a placement

`fleetui COMMAND --help` lists the options of a command, `fleetui man` prints a manual page with all of
them, and `fleetui completion SHELL` the completion for a shell.
"""


class Command(BaseCommand):
    """List the commands."""

    help = "List every command with what it does."
    requires_system_checks = ()

    def handle(self, **_options: Any) -> None:
        self.stdout.write(f"usage: {PROGRAM} COMMAND [OPTION ...]\n\n{DESCRIPTION}\n\nCommands:")
        for name, command in own_commands().items():
            first = " ".join(command.help.split()).partition(". ")[0].rstrip(".")
            self.stdout.write(f"  {name:<{_WIDTH}} {first}")
        others = ", ".join(sorted(name for name, app in get_commands().items() if app not in APPS))
        names = fill(others, 110, initial_indent="  ", subsequent_indent="  ")
        self.stdout.write(f"\nCommands of Django:\n{names}\n\n{_EXAMPLES}")
