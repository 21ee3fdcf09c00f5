"""A fleet of simulated clusters is watched for some rounds: how long, how many queries."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import perf_counter
from typing import Any

from django.db import connection

from clusters.drivers.base import SIMULATED
from clusters.operations.heartbeat import ObservationResult, observe
from clusters.operations.join import ClusterSpec, upsert_clusters
from tests.rows import NOW, member_document

ROUND = timedelta(seconds=60)


@dataclass(frozen=True)
class Watched:
    """How one round went."""

    look: ObservationResult
    seconds: float
    queries: int


def join(clusters: int, **connection: Any) -> None:
    """Add simulated clusters."""
    names = [f"sim{number:05}" for number in range(clusters)]
    wanted = [
        ClusterSpec(member_document(name), driver=SIMULATED, connection=connection)
        for name in names
    ]
    upsert_clusters(wanted, by=None, now=NOW)


def watch(now: datetime) -> Watched:
    """Observe all due clusters once."""
    statements = _Counter()
    with connection.execute_wrapper(statements):
        started = perf_counter()
        look = observe(now=now)
        seconds = perf_counter() - started
    return Watched(look, seconds, statements.count)


class _Counter:
    """Counts statements: Django's own log of them ends at 9,000."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, execute: Callable[..., Any], *statement: Any) -> Any:
        self.count += 1
        return execute(*statement)
