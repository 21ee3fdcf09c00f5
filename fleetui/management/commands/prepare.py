"""`manage.py prepare`: the database and the first administrator, without starting anything."""

from argparse import ArgumentParser
from typing import Any

from fleetui.management.commands import up


class Command(up.Command):
    """Prepares the database as `up` does, for parts that start with `up --prepared`."""

    help = (
        "Migrate the database and create the first administrator, for parts that start with `up --prepared`: "
        "they need no right to change tables. Exit status: 0 prepared, 1 refused, 4 no database."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add none: those of `up` are about processes."""

    def handle(self, *_arguments: Any, **_options: Any) -> None:
        """Prepare; several at once wait for each other."""
        self.prepare(())
