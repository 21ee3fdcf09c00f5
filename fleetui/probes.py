"""The addresses that monitoring requests: `/healthz`, `/readyz` and `/version`; they need no account.

The form is that of a Kubernetes API server: plain text, one line for each check, `?exclude=NAME` for checks
that do not count. The middleware answers them before the host is checked: a kubelet sends the address of the
pod.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from celery import current_app
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from kombu.exceptions import OperationalError

from fleetui import __version__
from fleetui.broker import PERIODIC, UPDATES
from fleetui.middleware import Middleware
from fleetui.models import WorkerHeartbeat
from fleetui.task_queue import SILENT_AFTER

BROKER_SECONDS = 2
_migrated: set[str] = set()
"""The databases that had all migrations: a database does not lose them while this process runs."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of one check: its name and, if it failed, why."""

    name: str
    problem: str = ""

    def __str__(self) -> str:
        return f"[-]{self.name} failed: {self.problem}" if self.problem else f"[+]{self.name} ok"


def check_database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return "the database does not respond"
    return ""


def check_migrations() -> str:
    if connection.alias in _migrated:
        return ""
    try:
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        return "the database does not respond"
    if missing:
        return f"{len(missing)} migrations are not applied; run: manage.py migrate"
    _migrated.add(connection.alias)
    return ""


def check_worker() -> str:
    """Return which queue no worker has reported to read for 40 seconds."""
    try:
        heartbeats = dict(WorkerHeartbeat.objects.values_list("queue", "at"))
    except DatabaseError:
        return "the database does not respond"
    now = datetime.now(UTC)
    for queue in (UPDATES, PERIODIC):
        if queue not in heartbeats:
            return f"no worker has read the queue {queue} yet"
        if (silent := now - heartbeats[queue]) > SILENT_AFTER:
            return f"no heartbeat of the queue {queue} for {silent.total_seconds():.0f} s"
    return ""


def check_broker() -> str:
    broker = current_app.connection_for_write()
    try:
        broker.ensure_connection(max_retries=1, interval_start=0, interval_step=0, timeout=BROKER_SECONDS)
    except (OperationalError, OSError):
        return "the broker does not respond"
    finally:
        broker.release()
    return ""


CHECKS: dict[str, Callable[[], str]] = {
    "database": check_database,
    "migrations": check_migrations,
    "worker": check_worker,
    "broker": check_broker,
}


def healthz(_request: HttpRequest) -> HttpResponse:
    """Respond that this process responds; it reads nothing."""
    return HttpResponse("ok\n", content_type="text/plain")


def readyz(request: HttpRequest) -> HttpResponse:
    """Respond 200 if every check that is not excluded passes, else 503; 400 for a name that is no check."""
    excluded = request.GET.getlist("exclude")
    if unknown := sorted(set(excluded) - CHECKS.keys()):
        text = f"exclude: no check is named {unknown[0]!r}; the checks are {', '.join(CHECKS)}\n"
        return HttpResponse(text, status=400, content_type="text/plain")
    results = [ProbeResult(name, check()) for name, check in CHECKS.items() if name not in excluded]
    is_ready = not any(one.problem for one in results)
    lines = [*map(str, results), f"readyz check {'passed' if is_ready else 'failed'}", ""]
    return HttpResponse("\n".join(lines), status=200 if is_ready else 503, content_type="text/plain")


def show_version(_request: HttpRequest) -> JsonResponse:
    return JsonResponse({"name": "fleetui", "version": __version__})


PROBES: dict[str, Callable[[HttpRequest], HttpResponse]] = {
    "/healthz": healthz,
    "/readyz": readyz,
    "/version": show_version,
}


class ProbesMiddleware(Middleware):
    """Answers the probes; everything else is passed to the pages."""

    def __call__(self, request: HttpRequest) -> Any:
        probe = PROBES.get(request.path_info)
        if probe is None:
            return self._get_response(request)
        if request.method not in ("GET", "HEAD"):
            return HttpResponse(status=405, headers={"Allow": "GET, HEAD"})
        response = probe(request)
        response.headers["Cache-Control"] = "no-store"
        return response
