"""The Celery application: `celery -A fleetui …`."""

import os

from celery import Celery

from fleetui import broker

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleetui.settings")
broker.register()

app = Celery("fleetui")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
