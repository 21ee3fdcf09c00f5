#!/usr/bin/env python
"""The command line of FleetUI: `python manage.py <command>`."""

from placements.client.main import main

if __name__ == "__main__":
    main()
