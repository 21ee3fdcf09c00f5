"""What monitoring reads of a web process: `/healthz`, `/readyz`, `/version`, and the metrics of requests.

The addresses need no account, and are answered before the host is checked: a kubelet sends the address of the
pod. Their form is that of a Kubernetes API server: plain text, one line for each check, `?exclude=NAME` for
checks that do not count. Web processes share their metrics, in the form of Prometheus, through files in one
folder, which `manage.py up` names by PROMETHEUS_MULTIPROC_DIR; without it they are those of this process.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

from celery import current_app
from django.apps import apps
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from kombu.exceptions import OperationalError
from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.multiprocess import MultiProcessCollector

from fleetui import __version__
from fleetui.broker import PERIODIC, UPDATES
from fleetui.environment import disk_problem
from fleetui.middleware import METHODS, Middleware
from fleetui.models import WorkerHeartbeat
from fleetui.task_queue import LONGEST_PAUSE, SILENT_AFTER

BROKER_SECONDS = 2
_migrated: set[str] = set()
"""The databases that had all migrations: a database does not lose them while this process runs."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of one check: its name and, if it failed, why; `fact` is what it read."""

    name: str
    problem: str = ""
    fact: str = ""

    def __str__(self) -> str:
        if self.problem:
            return f"[-]{self.name} failed: {self.problem}"
        return f"[+]{self.name} ok{self.fact and f': {self.fact}'}"


def check_database() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return ""


_UNRELEASED = (
    ": the database is of an unreleased version; create it again, "
    "or restore a backup of a release"
)


def check_migrations() -> str:
    if connection.alias in _migrated:
        return ""
    executor = MigrationExecutor(connection)
    if missing := executor.migration_plan(executor.loader.graph.leaf_nodes()):
        return f"{len(missing)} migrations are not applied; run: manage.py migrate"
    if problem := schema_problem():
        return problem
    _migrated.add(connection.alias)
    return ""


def schema_problem() -> str:
    """Return how the tables differ from the models although all migrations are applied; "" if they do not.

    A database of an unreleased version has migrations of the same names with another content.
    """
    inspect = connection.introspection
    with connection.cursor() as cursor:
        tables = set(inspect.table_names(cursor))
        for model in apps.get_models(include_auto_created=True):
            table = model._meta.db_table
            if not model._meta.can_migrate(connection):
                continue
            if table not in tables:
                return f"the table {table} is missing{_UNRELEASED}"
            columns = {
                str(one.name): one
                for one in inspect.get_table_description(cursor, table)
            }
            expected = {field.column for field in model._meta.local_concrete_fields}
            if missing := sorted(map(str, expected - columns.keys())):
                return f"the table {table} has no column {missing[0]}{_UNRELEASED}"
            needed = sorted(
                str(name)
                for name in columns.keys() - expected
                if not columns[name].null_ok and columns[name].default is None
            )
            if needed:
                return f"the table {table} has the column {needed[0]}, which is not known{_UNRELEASED}"
    return ""


def check_worker() -> str:
    """Return which queue no worker has reported to read for 40 seconds."""
    heartbeats = dict(WorkerHeartbeat.objects.values_list("queue", "at"))
    now = datetime.now(UTC)
    for queue in (UPDATES, PERIODIC):
        if queue not in heartbeats:
            return f"no worker has read the queue {queue} yet"
        if (silent := now - heartbeats[queue]) > SILENT_AFTER:
            return (
                f"no heartbeat of the queue {queue} for {silent.total_seconds():.0f} s"
            )
    return ""


def _check_age(name: str, column: str) -> tuple[str, str]:
    """Return why what beat starts counts as paused, or its age."""
    at = (
        WorkerHeartbeat.objects.filter(queue=PERIODIC)
        .values_list(column, flat=True)
        .first()
    )
    if at is None:
        return f"no {name} has ended yet: it needs a beat and a worker", ""
    age = datetime.now(UTC) - at
    words = f"last {name} {age.total_seconds():.0f} s ago"
    if age > LONGEST_PAUSE:
        return f"{words}: it needs a beat and a worker", ""
    return "", words


def check_disk() -> str:
    """Return whether the disk is full or cannot be written, as of now or of a statement a moment ago."""
    return str(disk_problem() or "")


def check_broker() -> str:
    broker = current_app.connection_for_write()
    try:
        broker.ensure_connection(
            max_retries=1, interval_start=0, interval_step=0, timeout=BROKER_SECONDS
        )
    except (OperationalError, OSError):
        return "the broker does not respond"
    finally:
        broker.release()
    return ""


CHECKS: dict[str, Callable[[], str | tuple[str, str]]] = {
    "database": check_database,
    "disk": check_disk,
    "migrations": check_migrations,
    "worker": check_worker,
    "sweep": partial(_check_age, "sweep", "swept_at"),
    "observation": partial(_check_age, "observation", "observed_at"),
    "broker": check_broker,
}
_NEEDS_WORKER = ("sweep", "observation")
"""Without a worker neither ends, so a probe that excludes the worker excludes these."""


def healthz(_request: HttpRequest) -> HttpResponse:
    """Respond that this process responds; it reads nothing."""
    return HttpResponse("ok\n", content_type="text/plain")


def readyz(request: HttpRequest) -> HttpResponse:
    """Respond 200 if every check that is not excluded passes, else 503; 400 for a name that is no check."""
    excluded = request.GET.getlist("exclude")
    if unknown := sorted(set(excluded) - CHECKS.keys()):
        return HttpResponse(
            f"exclude: no check is named {unknown[0]!r}; the checks are {', '.join(CHECKS)}\n",
            status=400,
            content_type="text/plain",
        )
    if "worker" in excluded:
        excluded = [*excluded, *_NEEDS_WORKER]
    results = []
    for name, check in CHECKS.items():
        if name not in excluded:
            try:
                found = check()
            except DatabaseError:
                found = "the database does not respond"
            results.append(
                ProbeResult(name, *((found,) if isinstance(found, str) else found))
            )
    is_ready = not any(result.problem for result in results)
    lines = [
        *map(str, results),
        f"readyz check {'passed' if is_ready else 'failed'}",
        "",
    ]
    return HttpResponse(
        "\n".join(lines), status=200 if is_ready else 503, content_type="text/plain"
    )


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


FOLDER = "PROMETHEUS_MULTIPROC_DIR"
disable_created_metrics()  # twice the series, for nothing
REQUESTS = Counter(
    "fleetui_http_requests",
    "Requests by method, name of the view and status.",
    ("method", "view", "status"),
)
SECONDS = Histogram(
    "fleetui_http_request_seconds",
    "Time to the response, by method and name of the view.",
    ("method", "view"),
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
CPU_SECONDS = Histogram(
    "fleetui_http_request_cpu_seconds",
    "Seconds of a processor that a request took, by method and name of the view.",
    ("method", "view"),
    buckets=(0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1, 2.5),
)


class HttpMetricsMiddleware(Middleware):
    """Counts requests; a view has its URL name, so that the number of series is bounded."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        super().__init__(get_response)
        # A rate begins at the second value of a series: without these the first errors would not count.
        SECONDS.labels("GET", "")
        CPU_SECONDS.labels("GET", "")
        for status in ("200", "500"):
            REQUESTS.labels("GET", "", status)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        started, computed = perf_counter(), thread_time()
        response: HttpResponse = self._get_response(request)
        match = request.resolver_match
        method = request.method if request.method in METHODS else "other"
        view = (match.view_name or match.route) if match else ""
        REQUESTS.labels(method, view, str(response.status_code)).inc()
        SECONDS.labels(method, view).observe(perf_counter() - started)
        CPU_SECONDS.labels(method, view).observe(thread_time() - computed)
        return response


def shared_metrics(folder: Path) -> dict[str, str]:
    """Empty the folder in which web processes share their metrics; return the environment that names it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in folder.glob("*.db"):
        file.unlink()
    return {FOLDER: str(folder)}


def http_registry() -> CollectorRegistry:
    """Return the registry of what was counted, of all web processes where they share it."""
    if FOLDER not in os.environ:
        return REGISTRY
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    return registry
