"""`wait NAME`: until the conditions of a placement are met, or a time is over."""

import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetui.errors import BAD_INPUT, ENVIRONMENT, REFUSED
from fleetui.remote import RemoteError
from placements.client.operations import path_to
from placements.client.output import Console

TIMED_OUT = 5
DELETED = "deleted"
TRUTHS = ("True", "False", "Unknown")
CONDITIONS = (
    "Scheduled",
    "RolloutStarted",
    "Overridden",
    "WorkSynchronized",
    "Applied",
    "Available",
    "DiffReported",
)
_PAUSE = 1.0
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Awaited:
    """A condition without the kind of the placement in its name, and the value to wait for."""

    sort: str
    value: str = "True"


def run(console: Console, options: Namespace) -> int:
    """Read the placement once a second until nothing is unmet. Raise RemoteError."""
    name, timeout = options.name, options.timeout
    conditions = options.conditions or ("Scheduled", "Available")
    path = path_to("placements/{name}", name)
    awaited = [parse_condition(text) for text in conditions]
    deadline = time.monotonic() + timeout
    printed = ""
    was_there = False
    while True:
        try:
            manifest = console.client.request("GET", path)
            was_there = True
            unmet = unmet_conditions(manifest, awaited, name=name)
        except RemoteError as error:
            # A console that responded a moment ago may be restarting.
            is_late = time.monotonic() >= deadline
            is_restarting = was_there and error.returncode == ENVIRONMENT
            if error.status == _NOT_FOUND:
                unmet = unmet_conditions(None, awaited, name=name)
            elif is_restarting and not is_late:
                unmet = [str(error)]
            else:
                raise
        if not unmet:
            console.line(f"{name}: {', '.join(conditions)}")
            return 0
        if (text := "; ".join(unmet)) != printed:
            console.err.write(f"{name}: {text}\n")
            printed = text
        left = deadline - time.monotonic()
        if left <= 0:
            raise RemoteError(
                f"{name}: not met within {timeout:g} s: {text}", returncode=TIMED_OUT
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
        raise RemoteError(
            f'--for: Unsupported value: "{sort}": supported values: {allowed}',
            returncode=BAD_INPUT,
        )
    if not equals:
        return Awaited(short)
    if value.capitalize() not in TRUTHS:
        allowed = ", ".join(f'"{truth}"' for truth in TRUTHS)
        raise RemoteError(
            f'--for {sort}: Unsupported value: "{value}": supported values: {allowed}',
            returncode=BAD_INPUT,
        )
    return Awaited(short, value.capitalize())


def unmet_conditions(
    manifest: Mapping[str, Any] | None, awaited: Sequence[Awaited], *, name: str
) -> list[str]:
    """Return what is not met, in words. Raise RemoteError."""
    if manifest is None:
        if Awaited(DELETED) in awaited:
            return []
        message = f"no placement is named {name!r}"
        raise RemoteError(message, returncode=REFUSED)
    status = manifest.get("status", {})
    stated = {
        one["type"].removeprefix(manifest["kind"]): one
        for one in status.get("conditions", ())
        if one.get("observedGeneration") == manifest["metadata"].get("generation")
    }
    unmet = []
    for one in awaited:
        condition = stated.get(one.sort, {})
        value = condition.get("status", "Unknown")
        message = condition.get("message") or "not stated yet"
        if one.sort == DELETED:
            unmet.append("it is not deleted")
        elif value != one.value:
            unmet.append(f"{one.sort} is {value}, not {one.value}: {message}")
    if not unmet and status.get("pending"):
        unmet.append("the workers have not seen the last change yet")
    return unmet
