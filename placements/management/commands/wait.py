"""manage.py wait NAME: until the conditions of a placement are met, or a time is over."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from django.core.management.base import CommandError, CommandParser

from fleetui.errors import BAD_INPUT, ENVIRONMENT, REFUSED
from fleetui.management.server_command import ServerCommand, seconds
from fleetui.remote import RemoteClient, RemoteError
from placements.explain.hub_conditions import SORTS, Truth
from placements.services.results import UnknownPlacementError, get_placement
from placements.services.status import manifest_of

TIMED_OUT = 5
DELETED = "deleted"
CONDITIONS = ("Scheduled", *SORTS)
_DEFAULT = ("Scheduled", "Available")
_PAUSE = 1.0
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Awaited:
    """A condition without the kind of the placement in its name, and the value to wait for."""

    sort: str
    value: Truth = Truth.TRUE


class Command(ServerCommand):
    """Wait for conditions of a placement."""

    help = (
        "Wait for conditions of a placement, on the database or over REST. Exit status: 0 all conditions are "
        "met, 1 the placement does not exist, 2 invalid input, 4 the database or the console does not "
        "respond, 5 the time is over."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "name",
            metavar="NAME",
            help="NAME, or NAMESPACE/NAME of a ResourcePlacement",
        )
        parser.add_argument(
            "--for",
            action="append",
            dest="conditions",
            metavar="CONDITION[=VALUE]",
            help=f"{', '.join(CONDITIONS)}, or {DELETED}; values True (default), False, Unknown; repeatable "
            f"(default: {' and '.join(_DEFAULT)})",
        )
        parser.add_argument(
            "--timeout",
            type=seconds,
            default=300.0,
            metavar="TIME",
            help="such as 30s, 10m or 1h (default 5m)",
        )
        super().add_arguments(parser)

    def handle(
        self,
        *,
        name: str,
        conditions: Sequence[str] | None = None,
        timeout: float = 300.0,
        client: RemoteClient | None = None,
        **_options: Any,
    ) -> None:
        awaited = [parse_condition(text) for text in conditions or _DEFAULT]
        reader = reader_of(client, name)
        deadline, printed, was_there = time.monotonic() + timeout, "", False
        while True:
            try:
                manifest = reader()
                was_there = was_there or manifest is not None
                unmet = unmet_conditions(manifest, awaited, name=name)
            except RemoteError as error:
                # A console that responded a moment ago may be restarting.
                if (
                    not was_there
                    or error.returncode != ENVIRONMENT
                    or time.monotonic() >= deadline
                ):
                    raise
                unmet = [str(error)]
            if not unmet:
                self.stdout.write(f"{name}: {', '.join(conditions or _DEFAULT)}")
                return
            if (text := "; ".join(unmet)) != printed:
                self.stderr.write(f"{name}: {text}")
                printed = text
            left = deadline - time.monotonic()
            if left <= 0:
                raise CommandError(
                    f"{name}: not met within {timeout:g} s: {text}",
                    returncode=TIMED_OUT,
                )
            time.sleep(min(_PAUSE, left))


def parse_condition(text: str) -> Awaited:
    """Parse `Available`, `Applied=False` or a full name such as `ResourcePlacementAvailable`."""
    sort, equals, value = text.partition("=")
    if text.lower() == DELETED:
        return Awaited(DELETED)
    short = sort.removeprefix("Cluster").removeprefix("ResourcePlacement")
    if short not in CONDITIONS:
        allowed = ", ".join(f'"{one}"' for one in (*CONDITIONS, DELETED))
        message = f'--for: Unsupported value: "{sort}": supported values: {allowed}'
        raise CommandError(message, returncode=BAD_INPUT)
    try:
        return Awaited(short, Truth(value.capitalize()) if equals else Truth.TRUE)
    except ValueError as error:
        message = f'--for {sort}: Unsupported value: "{value}": supported values: "True", "False", "Unknown"'
        raise CommandError(message, returncode=BAD_INPUT) from error


def unmet_conditions(
    manifest: Mapping[str, Any] | None, awaited: Sequence[Awaited], *, name: str
) -> list[str]:
    """Return what is not met, in words. Raise CommandError."""
    if manifest is None:
        if any(one.sort == DELETED for one in awaited):
            return []
        raise CommandError(str(UnknownPlacementError(name)), returncode=REFUSED)
    status = manifest.get("status", {})
    stated = {
        one["type"].removeprefix(manifest["kind"]): one
        for one in status.get("conditions", ())
        if one.get("observedGeneration") == manifest["metadata"].get("generation")
    }
    unmet = []
    for one in awaited:
        condition = stated.get(one.sort, {})
        value, message = (
            condition.get("status", Truth.UNKNOWN),
            condition.get("message") or "not stated yet",
        )
        if one.sort == DELETED:
            unmet.append("it is not deleted")
        elif value != one.value:
            unmet.append(f"{one.sort} is {value}, not {one.value}: {message}")
    if not unmet and status.get("pending"):
        unmet.append("the workers have not seen the last change yet")
    return unmet


def reader_of(
    client: RemoteClient | None, name: str
) -> Callable[[], dict[str, Any] | None]:
    """Return what reads the placement, from a console or the database; None: there is none of this name."""
    path = f"placements/{quote(name.replace('/', ':'), safe=':')}"

    def read_there() -> dict[str, Any] | None:
        try:
            manifest: dict[str, Any] | None = (
                client.request("GET", path) if client else None
            )
        except RemoteError as error:
            if error.status != _NOT_FOUND:
                raise
            return None
        return manifest

    def read_here() -> dict[str, Any] | None:
        try:
            return manifest_of(get_placement(name))
        except UnknownPlacementError:
            return None

    return read_there if client else read_here
