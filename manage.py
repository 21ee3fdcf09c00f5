#!/usr/bin/env python
"""The command line of FleetUI: `python manage.py <command>`."""

from fleetui.command_line import main

if __name__ == "__main__":
    main()
