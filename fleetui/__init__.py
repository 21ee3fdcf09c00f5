"""The project: settings, addresses and servers. Wiring only, nothing about fleets."""

# Here, so that every process knows the application before it meets the first task.
from fleetui.celery import app as celery_app

__all__ = ["celery_app"]
