"""Run `manage.py simulate` inside a test: files in, exit status and both streams out."""

import io
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from django.core.management import CommandError

from tests.commands import call_command

EXAMPLES = Path(__file__).parent.parent.parent / "docs" / "examples"
NINE, WEB = EXAMPLES / "nine.yaml", EXAMPLES / "web.yaml"


@dataclass(frozen=True)
class Run:
    """How a run ended."""

    status: int
    output: str
    errors: str


def simulate(*arguments: object, stdin: bytes = b"") -> Run:
    """Run the command with these arguments; its exit status is what a shell would see."""
    output, errors = io.StringIO(), io.StringIO()
    standard_input = mock.Mock(buffer=io.BytesIO(stdin))
    status = 0
    with mock.patch.object(sys, "stdin", standard_input):
        try:
            call_command("simulate", *map(str, arguments), stdout=output, stderr=errors)
        except SystemExit as ended:
            status = int(ended.code or 0)
        except CommandError as error:
            status = error.returncode
            errors.write(str(error))
    return Run(status, output.getvalue(), errors.getvalue())


def simulate_demo(*arguments: object) -> Run:
    """Run the placement `web` on the nine clusters of the demo."""
    return simulate("--clusters", NINE, "--placement", WEB, *arguments)
