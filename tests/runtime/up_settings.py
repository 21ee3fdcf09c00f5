"""The console's settings with a task of our own, to see whether beat, queue and worker do their work."""

from fleetui.settings import *  # noqa: F403  # all of them, and two beside
from fleetui.settings import VAR_DIR
from tests.runtime.forks import record_forks

CELERY_IMPORTS = ["tests.runtime.ticking"]
CELERY_BEAT_SCHEDULE = {
    "tick": {"task": "tests.tick", "schedule": 0.2, "options": {"expires": 1.0}}
}
record_forks(VAR_DIR)
