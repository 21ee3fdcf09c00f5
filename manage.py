"""The command line of FleetUI: `python manage.py <command>`."""

import os
import sys

from django.core.management import execute_from_command_line

from fleetui.env import SettingRefused
from fleetui.environment import ENVIRONMENT, ENVIRONMENT_ERRORS, environment_problem
from fleetui.hub_scope import LOCAL_HUB, in_hub

#!/usr/bin/env python


def main() -> None:
    """Run one command; a refused setting or an error of the environment is one line, not a traceback."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleetui.settings")
    try:
        with in_hub(LOCAL_HUB):
            execute_from_command_line(sys.argv)
    except SettingRefused as refusal:
        sys.exit(f"manage.py: {refusal}")
    except ENVIRONMENT_ERRORS as error:  # of Django's own commands, and of `up`
        problem = environment_problem(error)
        if problem is None:
            raise
        sys.stderr.write(f"manage.py: {problem}\n")
        sys.exit(ENVIRONMENT)


if __name__ == "__main__":
    main()
