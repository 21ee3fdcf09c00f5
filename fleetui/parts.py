"""What the console consists of while it runs: the command lines of web server, worker and beat."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fleetui import broker
from fleetui.supervisor import Part


@dataclass(frozen=True, slots=True)
class Wishes:
    """How large the parts are and how much they tell."""

    web_processes: int
    web_threads: int
    worker_slots: int
    log_level: str
    broker_url: str
    beat_file: Path
    listener: int | None


def web(wishes: Wishes) -> Part:
    """Describe the web server, which takes its open port over from the supervisor.

    So the port stays ours while it is started again, and browsers wait instead of failing.
    """
    if wishes.listener is None:
        raise ValueError("a web server needs an open port")
    command = (
        *(sys.executable, "-m", "gunicorn", "fleetui.wsgi", "--bind", f"fd://{wishes.listener}"),
        # Longer than the calm tick of a page: a tab that asks again and again keeps its connection.
        *("--keep-alive", "20"),
        *("--worker-class", "gthread", "--no-control-socket", "--graceful-timeout", "5"),
        *("--workers", str(wishes.web_processes), "--threads", str(wishes.web_threads)),
        *("--log-level", wishes.log_level),
    )
    return Part("web", command, (wishes.listener,))


def worker(wishes: Wishes) -> Part:
    """Describe the worker: threads on the folder, where a killed process of a pool would stop the others."""
    pool = "threads" if broker.is_folder(wishes.broker_url) else "prefork"
    command = (
        *(sys.executable, "-m", "celery", "--app", "fleetui", "--quiet", "worker"),
        *("--pool", pool, "--concurrency", str(wishes.worker_slots)),
        *("--without-gossip", "--without-mingle", "--hostname", f"worker-{os.getpid()}@%h"),
        *("--loglevel", wishes.log_level),
    )
    return Part("worker", command)


def beat(wishes: Wishes) -> Part:
    """Describe the clock."""
    command = (
        *(sys.executable, "-m", "celery", "--app", "fleetui", "--quiet", "beat"),
        *("--pidfile=", "--schedule", str(wishes.beat_file)),
        *("--loglevel", wishes.log_level),
    )
    return Part("beat", command)


PARTS: dict[str, Callable[[Wishes], Part]] = {"web": web, "worker": worker, "beat": beat}
