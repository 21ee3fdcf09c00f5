"""`manage.py prepare`: the database and the first administrator, without starting anything."""

import os
from argparse import ArgumentParser
from typing import Any

from fleetui.management.commands import up
from fleetui.private_files import PRIVATE


class Command(up.Command):
    help = (
        "Migrate the database and create the first administrator, for parts that start with `up --prepared`: "
        "they need no right to change tables. Exit status: 0 prepared, 1 refused, 4 no database."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add none: those of `up` are about processes."""

    def handle(self, *_arguments: Any, **_options: Any) -> None:
        """Prepare; several at once wait for each other."""
        os.umask(PRIVATE)
        self.prepare(())
