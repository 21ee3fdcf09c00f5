"""A task that queries the database and leaves a trace: the time, written into a file."""

import time
from pathlib import Path

from celery import shared_task
from django.conf import settings
from django.contrib.auth.models import User


@shared_task(name="tests.tick")
def tick() -> None:
    """Note that a worker is at work, and that its database answers."""
    User.objects.exists()
    Path(settings.VAR_DIR, "ticked").write_text(str(time.time()))
