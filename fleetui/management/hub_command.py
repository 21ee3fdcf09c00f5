"""What commands that need the console's database share: plain words when it is not there yet."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connection

from fleetui.models import Event

NOT_PREPARED = 3


class HubCommand(BaseCommand):
    """A command on the hub; without its tables it says how to make them."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run, and turn a missing database into a message."""
        try:
            return super().execute(*args, **options)
        except DatabaseError as error:
            if _is_prepared():
                raise
            message = "the database is not prepared: run `make up` once, or `manage.py migrate`"
            raise CommandError(message, returncode=NOT_PREPARED) from error


def _is_prepared() -> bool:
    try:
        return Event._meta.db_table in connection.introspection.table_names()
    except DatabaseError:
        return False
