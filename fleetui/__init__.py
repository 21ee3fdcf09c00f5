"""The project: settings, URLs, servers, and what both apps share; no domain code."""

from fleetui.celery import app as celery_app

# Imported here, so that every process has the application before its first task.

__all__ = ["celery_app"]

__version__ = "0.1.0"
