"""Commands as a shell runs them, in the process of a test: requests of the API, and those of Django."""

import io
import sys
from typing import Any

from django.core import management
from django.core.management import CommandError

from placements.client.arguments import new_parser
from placements.client.main import run, verbs_of

PARSER = new_parser("fleetui")


def call_command(name: str, *words: Any, **options: Any) -> Any:
    """Run a command. Raise CommandError with what it refuses, SystemExit for another status."""
    if name not in verbs_of(PARSER):
        return management.call_command(name, *words, **options)
    out = options.pop("stdout", None) or sys.stdout
    wanted = options.pop("stderr", None)
    given = [f"--{key}={value}" for key, value in options.items()]
    parsed = PARSER.parse_args([name, *map(str, words), *given])
    err = io.StringIO()
    status = run(parsed, out, err)
    text = err.getvalue()
    if status and text:
        lines = text.removesuffix("\n").split("fleetui: ", 1)
        (wanted or sys.stderr).write("".join(lines[:-1]))
        raise CommandError(lines[-1], returncode=status)
    (wanted or sys.stderr).write(text)
    if status:
        raise SystemExit(status)
    return None
