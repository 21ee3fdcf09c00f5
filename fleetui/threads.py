"""Connections to the database in threads that wait for a network most of the time.

Django keeps a connection for each thread until it is closed there. Dozens of threads that wait for slow
clusters would therefore hold most connections that a server allows, so such a thread uses the database inside
`brief_connection` only.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore, local
from typing import Any

from django.db import OperationalError, connection, connections

PATIENCE = 20.0
"""Seconds until a thread gives up waiting for the others."""
_place = BoundedSemaphore(1)
_thread = local()


@contextmanager
def brief_connection() -> Iterator[None]:
    """Use the database for a moment, one thread of the process at a time, and close the connection after it.

    A thread that has an open connection already, such as that of a task, keeps it. So does each thread with
    SQLite: no server counts connections, and opening the file takes longer than the statement. Raise
    OperationalError.
    """
    is_open = connection.connection is not None or getattr(_thread, "has_place", False)
    if is_open or connection.vendor == "sqlite":
        yield
        return
    if not _place.acquire(timeout=PATIENCE):
        raise OperationalError(
            "other threads of this process use the database for too long"
        )
    _thread.has_place = True
    try:
        yield
    finally:
        _thread.has_place = False
        connections.close_all()
        _place.release()


def close_connections() -> None:
    """Close what a thread may have left open: its connections do not end with it."""
    connections.close_all()


def close_pools() -> None:
    """Close the connections of this thread and the pools of the process: it waits for other processes now."""
    for wrapper in connections.all(initialized_only=True):
        wrapper.close()
        pooled: Any = wrapper  # that of PostgreSQL
        if getattr(pooled, "pool", None):
            pooled.close_pool()
