"""The command line: `fleetui <command>` where it is installed, `python manage.py <command>` otherwise."""

import os
import sys
from pathlib import Path

from django.conf import settings
from django.core.management import ManagementUtility

from fleetui.env import SettingRefused
from fleetui.environment import ENVIRONMENT_ERRORS, environment_problem
from fleetui.errors import ENVIRONMENT
from fleetui.hub_scope import LOCAL_HUB, in_hub

PROGRAM = "fleetui"
_MAKES_DATA = frozenset({"up", "prepare", "migrate", "restore"})
"""Commands of a first start: of an installed console, the folder for data is not there then."""


def main(arguments: list[str] | None = None) -> None:
    """Run one command; a refused setting or an error of the environment is one line, not a traceback."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleetui.settings")
    program, *words = arguments or sys.argv
    name = Path(program).name
    if name != "manage.py":
        name = PROGRAM
    try:
        if words and words[0] in _MAKES_DATA:
            settings.VAR_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
        with in_hub(LOCAL_HUB):
            ManagementUtility([name, *words]).execute()
    except SettingRefused as refusal:
        sys.exit(f"{name}: {refusal}")
    except BrokenPipeError:  # the reader of the output ended, as `head` does
        os._exit(141)
    except ENVIRONMENT_ERRORS as error:  # of Django's own commands, and of `up`
        problem = environment_problem(error)
        if problem is None:
            raise
        sys.stderr.write(f"{name}: {problem}\n")
        sys.exit(ENVIRONMENT)
