"""Workers beside each other on PostgreSQL, each with round trips of one millisecond.

`python -m tests.load.workers proxy MS HOST:PORT` delays what goes through; `… work` decides what is due.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

ROUND_TRIP_MS = 1.0
PAUSE = 0.1
"""Seconds between two edits of the fleet."""


@dataclass(frozen=True)
class Share:
    """What one worker did; in `unqueued_seconds` none of its processes waited for a processor."""

    decisions: int
    unqueued_seconds: float
    cpu_seconds: float
    database_cpu_seconds: float
    statements: int

    @property
    def free_seconds(self) -> float:
        """Return the time that it would take with a processor for each of its processes.

        At least what its statements take: on a busy machine the times of waiting are not exact.
        """
        least = self.cpu_seconds + self.database_cpu_seconds
        least += self.statements * ROUND_TRIP_MS / 1e3
        return max(self.unqueued_seconds, least)


def _scheduled(process: int) -> tuple[float, float]:
    """Return the seconds on a processor, and those of waiting for one."""
    running, queued, _slices = (
        Path(f"/proc/{process}/schedstat").read_text(encoding="ascii").split()
    )
    return int(running) / 1e9, int(queued) / 1e9


async def _delay(milliseconds: float, host: str, port: int) -> None:
    async def pass_on(
        source: asyncio.StreamReader, target: asyncio.StreamWriter
    ) -> None:
        loop = asyncio.get_running_loop()
        while data := await source.read(1 << 20):
            loop.call_later(milliseconds / 2000, target.write, data)
        target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(host, port)
        both = pass_on(reader, there[1]), pass_on(there[0], writer)
        await asyncio.gather(*both, return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


def _work() -> None:
    """Decide all that is due once a line arrives; print the share as JSON."""
    import django  # noqa: PLC0415 -- the proxy needs none of it

    django.setup()
    from django.db import connection  # noqa: PLC0415 -- as above

    from clusters.queries import current_fleet  # noqa: PLC0415 -- as above
    from fleetui.hub_scope import LOCAL_HUB, in_hub  # noqa: PLC0415 -- as above
    from placements.services.scheduling import schedule_due  # noqa: PLC0415 -- as above
    from tests.load.deciding import StatementCounter  # noqa: PLC0415 -- as above

    with in_hub(LOCAL_HUB):
        current_fleet()
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            database = cursor.fetchone()[0]
        processes = [os.getpid(), database, int(os.environ["PROXY"])]
        sys.stdout.write(f"{database}\n")
        sys.stdout.flush()
        sys.stdin.readline()
        before, started = (
            [_scheduled(process) for process in processes],
            perf_counter(),
        )
        total, statements = 0, StatementCounter()
        with connection.execute_wrapper(statements):
            while (
                count := schedule_due(now=datetime.now(UTC))
            ) or "ENDLESS" in os.environ:
                total += count
        seconds = perf_counter() - started
        after = [_scheduled(process) for process in processes]
        cpu, database_cpu, _proxy_cpu = (
            late[0] - early[0] for early, late in zip(before, after, strict=True)
        )
        queued = sum(
            late[1] - early[1] for early, late in zip(before, after, strict=True)
        )
        share = [total, seconds - queued, cpu, database_cpu, statements.count]
        sys.stdout.write(f"{json.dumps(share)}\n")


@contextmanager
def _process(*arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.load.workers", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | variables,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


Backend = tuple[int, int, int]
"""The numbers of a worker, of its server process in PostgreSQL and of what delays their messages."""


@contextmanager
def _deciding(
    workers: int, url: str, **variables: str
) -> Iterator[dict[subprocess.Popen[str], Backend]]:
    """Have so many workers decide what is due; yield them with the numbers of their processes."""
    address = url.partition("@")[2].partition("/")[0]
    with ExitStack() as stack:
        running = []
        proxies = []
        for _ in range(workers):
            proxy = stack.enter_context(_process("proxy", str(ROUND_TRIP_MS), address))
            delayed = url.replace(address, f"127.0.0.1:{_line(proxy)}")
            own = {"DATABASE_URL": delayed, "PROXY": str(proxy.pid), **variables}
            running.append(stack.enter_context(_process("work", **own)))
            proxies.append(proxy.pid)
        backends = [int(_line(worker)) for worker in running]
        for worker in running:
            assert worker.stdin is not None
            worker.stdin.write("begin\n")
            worker.stdin.flush()
        numbers = zip(
            [worker.pid for worker in running], backends, proxies, strict=True
        )
        yield dict(zip(running, numbers, strict=True))


def decide_beside(workers: int, url: str) -> list[Share]:
    """Have so many workers decide what is due in the database at `url`; return their shares."""
    with _deciding(workers, url) as running:
        return [Share(*json.loads(_line(worker))) for worker in running]


class LockTimer:
    """Adds up the waits for the lock of the fleet, without those for a processor.

    A worker that holds the lock may wait for a processor meanwhile: what the one did that waited for it the
    longest is left out, as what this process and its own server process did.
    """

    def __init__(self, holders: Collection[Backend], own: Collection[int]) -> None:
        self._holders, self._own = holders, own
        self.seconds = 0.0

    def __call__(self, execute: Callable[..., Any], sql: str, *statement: Any) -> Any:
        if "pg_advisory_xact_lock" not in sql:
            return execute(sql, *statement)
        before, started = self._queued(), perf_counter()
        result = execute(sql, *statement)
        waited = perf_counter() - started
        queued = zip(before, self._queued(), strict=True)
        own, *others = (late - early for early, late in queued)
        self.seconds += max(0.0, waited - own - max(others))
        return result

    def _queued(self) -> list[float]:
        groups = (self._own, *self._holders)
        return [sum(_scheduled(one)[1] for one in group) for group in groups]


def edit_beside(
    workers: int, url: str, edits: Iterable[Callable[[], object]]
) -> list[float]:
    """Make edits of the fleet while workers decide; return the seconds that each waited for its lock."""
    from django.db import connection  # noqa: PLC0415 -- the proxy needs none of it

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        own = os.getpid(), cursor.fetchone()[0]
    waits = []
    with _deciding(workers, url, ENDLESS="") as running:
        for edit in edits:
            timer = LockTimer(running.values(), own)
            with connection.execute_wrapper(timer):
                edit()
            waits.append(timer.seconds)
            sleep(PAUSE)
        assert all(worker.poll() is None for worker in running)
    return waits


def rate(shares: list[Share]) -> float:
    """Return the decisions a second of all workers together, were there a processor for each."""
    return sum(share.decisions / share.free_seconds for share in shares)


def main(what: str, *arguments: Any) -> None:
    """Run one of the processes."""
    if what == "work":
        _work()
    else:
        host, _, port = arguments[1].partition(":")
        asyncio.run(_delay(float(arguments[0]), host, int(port)))


if __name__ == "__main__":
    main(*sys.argv[1:])
