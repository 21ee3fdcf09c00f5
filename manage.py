"""The command line of FleetUI: `python manage.py <command>`."""

import os
import sys

from django.core.management import execute_from_command_line

from fleetui.env import SettingRefused

#!/usr/bin/env python


def main() -> None:
    """Run one command; a refused setting is one readable line, not a traceback."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleetui.settings")
    try:
        execute_from_command_line(sys.argv)
    except SettingRefused as refusal:
        sys.exit(f"manage.py: {refusal}")


if __name__ == "__main__":
    main()
