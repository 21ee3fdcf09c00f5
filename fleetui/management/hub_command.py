"""The base of commands that need the console's database: common exit codes, a message without the tables."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connection

from fleetui.environment import ENVIRONMENT, ENVIRONMENT_ERRORS, environment_problem
from fleetui.models import Event

REFUSED, BAD_INPUT, UNCONFIRMED = 1, 2, 3
NOT_PREPARED = 3


class HubCommand(BaseCommand):
    """A command on the hub; it ends with an exit code for each of these errors."""

    # They import every page and every resource of the API, which takes longer than most commands.
    requires_system_checks = ()
    exit_codes: ClassVar[Mapping[type[Exception], int]] = {}

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run, and turn expected errors, those of the environment and a missing database into messages."""
        try:
            return super().execute(*args, **options)
        except tuple(self.exit_codes) as error:
            code = next(code for kind, code in self.exit_codes.items() if isinstance(error, kind))
            raise CommandError(
                "\n".join(map(str, getattr(error, "faults", [error]))), returncode=code
            ) from error
        except ENVIRONMENT_ERRORS as error:
            if problem := environment_problem(error):
                raise CommandError(str(problem), returncode=ENVIRONMENT) from error
            if not isinstance(error, DatabaseError) or is_prepared():
                raise
            message = "the database is not prepared: run `make up` once, or `manage.py migrate`"
            raise CommandError(message, returncode=NOT_PREPARED) from error


def is_prepared() -> bool:
    try:
        return Event._meta.db_table in connection.introspection.table_names()
    except DatabaseError:
        return False
