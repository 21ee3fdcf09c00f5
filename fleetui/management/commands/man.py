"""`fleetui man`: the manual page, generated from the parsers of the commands."""

from typing import Any

from argparse_manpage.manpage import Manpage
from django.core.management.base import BaseCommand

from fleetui import __version__
from fleetui.command_line import PROGRAM
from fleetui.management.command_tree import DESCRIPTION, command_tree


class Command(BaseCommand):
    """Print the manual page."""

    help = "Print the manual page with every command and option, such as for `fleetui man > fleetui.1`."
    requires_system_checks = ()

    def handle(self, **_options: Any) -> None:
        """Print it in the format of man."""
        data = {
            "prog": PROGRAM,
            "project_name": "FleetUI",
            "description": DESCRIPTION,
            "version": __version__,
            "manual_section": 1,
        }
        self.stdout.write(str(Manpage(command_tree(), _data=data)))
