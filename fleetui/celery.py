"""The Celery application: `celery -A fleetui …`."""

import os
from typing import Any

from celery import Celery, Task

from fleetui import broker, tracing
from fleetui.hub_scope import LOCAL_HUB, in_hub

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleetui.settings")
broker.register()


class HubTask(Task[..., Any]):
    """A task works on the local hub, unless its argument `hub` is the primary key of another one."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        sent_with = self.request.headers or {}
        with (
            in_hub(options.get("hub", LOCAL_HUB)),
            tracing.tracing.span(self.name, kind="CONSUMER", carrier=sent_with),
        ):
            return self.run(*arguments, **options)


app: Celery[Any] = Celery("fleetui", task_cls=HubTask)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
