"""The base of commands that need the console's database: common exit codes, a message without the tables."""

import signal
import threading
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connection
from django.utils.module_loading import import_string

from fleetui import LOCAL_HUB_NAME
from fleetui.apimachinery.fields import parse_duration
from fleetui.changes import noticed_changes
from fleetui.environment import ENVIRONMENT_ERRORS, environment_problem
from fleetui.errors import ENVIRONMENT, REFUSED, FleetError
from fleetui.hub_backend import current_backend
from fleetui.hub_scope import LOCAL_HUB, in_hub
from fleetui.models import Event

NOT_PREPARED = 3


@contextmanager
def stopped_by_signal() -> Iterator[threading.Event]:
    """Set the event on SIGTERM or SIGINT, also in a job of a script, where a shell ignores SIGINT."""
    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.set()

    before = {
        number: signal.signal(number, stop)
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def environment_errors_as(kind: Callable[..., Exception]) -> Iterator[None]:
    """Raise an error of this kind for what the environment or a missing table makes impossible."""
    try:
        yield
    except ENVIRONMENT_ERRORS as error:
        if problem := environment_problem(error):
            raise kind(str(problem), returncode=ENVIRONMENT) from error
        if not isinstance(error, DatabaseError) or is_prepared():
            raise
        raise kind(
            "the database is not prepared: "
            "run `make up`, `fleetui up` or `manage.py migrate` once",
            returncode=NOT_PREPARED,
        ) from error


class HubCommand(BaseCommand):
    """A command on one hub; it ends with the message and the exit code of an error that is expected."""

    # They import every page and every resource of the API, which takes longer than most commands.
    requires_system_checks = ()

    def create_parser(
        self, prog_name: str, subcommand: str, **options: Any
    ) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **options)
        parser.add_argument(
            "--hub", default=LOCAL_HUB_NAME, metavar="NAME", help="default: local"
        )
        return parser

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run, and turn expected errors, those of the environment and a missing database into messages."""
        try:
            with (
                environment_errors_as(CommandError),
                in_hub(hub_named(options.pop("hub", LOCAL_HUB_NAME))),
                noticed_changes(),
            ):
                name = self.__module__.rpartition(".")[2]
                if refusal := current_backend().refusal_of_command(name):
                    raise refusal
                return super().execute(*args, **options)
        except FleetError as error:
            lines = getattr(error, "errors", [error])
            raise CommandError(
                "\n".join(map(str, lines)), returncode=error.exit_code
            ) from error
        except PermissionDenied as error:
            raise CommandError(str(error), returncode=REFUSED) from error


def hub_named(name: str) -> int:
    if name == LOCAL_HUB_NAME:
        return LOCAL_HUB
    pk: int | None = import_string(settings.HUB_FINDER)(name)
    if pk is None:
        raise CommandError(f"no hub is named {name[:63]!r}", returncode=REFUSED)
    return pk


def duration(text: str) -> timedelta:
    """Parse the value of an option such as 1h30m."""
    try:
        return parse_duration(text)
    except ValueError as error:
        message = f"Invalid value: {text!r}: must be a duration, such as 5m or 1h30m"
        raise ArgumentTypeError(message) from error


def is_prepared() -> bool:
    try:
        return Event._meta.db_table in connection.introspection.table_names()
    except DatabaseError:
        return False
