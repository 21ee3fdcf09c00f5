"""A task that leaves a trace: the time, written into a file."""

import time
from pathlib import Path

from celery import shared_task
from django.conf import settings


@shared_task(name="tests.tick")
def tick() -> None:
    """Note that a worker is at work."""
    Path(settings.VAR_DIR, "ticked").write_text(str(time.time()))
