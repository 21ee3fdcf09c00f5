"""The command line: `fleetui <command>` where it is installed, `python manage.py <command>` otherwise."""

import os
import sys
from pathlib import Path

from django.conf import settings
from django.core.management import ManagementUtility, load_command_class

from fleetui import __version__
from fleetui.env import SettingRefused
from fleetui.environment import ENVIRONMENT_ERRORS, environment_problem
from fleetui.errors import ENVIRONMENT
from fleetui.hub_scope import LOCAL_HUB, in_hub

PROGRAM = "fleetui"
_MAKES_DATA = frozenset({"up", "prepare", "migrate", "restore"})
"""Commands of a first start: of an installed console, the folder for data is not there then."""
_DATABASE_OPTIONS = frozenset({"--diff", "--settings", "--pythonpath"})
"""Options of a command of files with which it needs all apps."""


def main(arguments: list[str] | None = None) -> None:
    """Run one command; a refused setting or an error of the environment is one line, not a traceback."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleetui.settings")
    program, *words = arguments or sys.argv
    name = Path(program).name
    if name != "manage.py":
        name = PROGRAM
        if words in (["--version"], ["version"]):
            sys.stdout.write(f"{PROGRAM} {__version__}\n")
            return
    try:
        if words and words[0] in _MAKES_DATA:
            settings.VAR_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
        app = settings.APPS_OF_FILE_COMMANDS.get(words[0]) if words else None
        with in_hub(LOCAL_HUB):
            if app and _DATABASE_OPTIONS.isdisjoint(words):
                # Loading the apps takes longer than such a command.
                load_command_class(app, words[0]).run_from_argv([name, *words])
            else:
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
