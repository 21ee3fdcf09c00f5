"""The Celery application: `celery -A fleetui …`."""

import os
from logging import Logger
from typing import Any

from celery import Celery, Task
from celery.signals import after_setup_logger, after_setup_task_logger

from fleetui import broker
from fleetui.changes import noticed_changes
from fleetui.environment import EnvironmentFilter
from fleetui.hub_scope import LOCAL_HUB, in_hub

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleetui.settings")
broker.register()


class HubTask(Task[..., Any]):
    """A task works on the local hub, unless its argument `hub` is the primary key of another one."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        with in_hub(options.get("hub", LOCAL_HUB)), noticed_changes(by_request=False):
            return self.run(*arguments, **options)


@after_setup_logger.connect
@after_setup_task_logger.connect
def write_problems_once(logger: Logger, **_signal: Any) -> None:
    """Make the handlers of Celery write one line for a stopped database, and not one for each task."""
    for handler in logger.handlers:
        if not any(
            isinstance(filter_, EnvironmentFilter) for filter_ in handler.filters
        ):
            handler.addFilter(_filter)


_filter = EnvironmentFilter()
app: Celery[Any] = Celery("fleetui", task_cls=HubTask)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
