"""The project: settings, URLs, servers, and what both apps share; no domain code."""

import gc

from fleetui.celery import app as celery_app

# Imported here, so that every process has the application before its first task.

# Collecting as often as by default takes a fifth of the time that a command needs to start.
gc.set_threshold(10_000, 10, 10)

__all__ = ["celery_app"]

__version__ = "0.1.0"
