"""`manage.py up`: the whole console, or some of its parts, under one supervisor."""

import gc
import os
import socket
import sys
import time
import warnings
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connections
from django.utils.module_loading import import_string

from fleetui import bootstrap
from fleetui.accounts.first_password import keep_first_password
from fleetui.bootstrap import FirstRunError, make_first_administrator
from fleetui.celery import app as celery_app
from fleetui.encryption import keep_keys
from fleetui.errors import ENVIRONMENT
from fleetui.hub_backend import has_live_hubs
from fleetui.monitoring import FOLDER, shared_metrics
from fleetui.private_files import PRIVATE, close_to_others
from fleetui.settings import variables
from fleetui.supervisor import (
    PARTS,
    AlreadyRunningError,
    Output,
    ProcessOptions,
    SupervisedProcess,
    Supervisor,
    hold_lock,
    run_in_fork,
)
from fleetui.threads import close_pools

_LAST_PORT = 65535
_BACKLOG = 2048
_COLLECTOR = (700, 10, 10)
_PROGRAMS = (
    "celery.apps.beat",
    "celery.bin.celery",
    "celery.concurrency.thread",
    "celery.worker.consumer",
    "gunicorn.app.wsgiapp",
    "gunicorn.workers.gthread",
    settings.ROOT_URLCONF,
)
"""What each process imports, besides the tasks."""


def port(text: str) -> int:
    if not text.isdecimal() or int(text) > _LAST_PORT:
        raise ArgumentTypeError(f"write a number, 0 to {_LAST_PORT}")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError("write a number, 1 or more")
    return int(text)


_OPTIONS: dict[str, dict[str, Any]] = {
    "--host": {
        "default": "127.0.0.1",
        "help": "where to listen (default 127.0.0.1)",
    },
    "--port": {
        "type": port,
        "default": 8000,
        "help": "default 8000; 0 takes a free one",
    },
    "--only": {
        "action": "append",
        "choices": list(PARTS),
        "help": "only this part; repeatable",
    },
    "--workers": {
        "type": _count,
        "default": 1,
        "help": "processes of the web server (default 1)",
    },
    "--threads": {
        "type": _count,
        "default": 8,
        "help": "threads in each of them (default 8)",
    },
    "--concurrency": {
        "type": _count,
        "default": 4,
        "help": "tasks at once (default 4)",
    },
    "--prepared": {
        "action": "store_true",
        "help": "wait until `prepare` has run, and change no table",
    },
}


class Command(BaseCommand):
    help = "Run web server, worker, observer and beat, started again when they end. Ctrl-C stops all."

    def add_arguments(self, parser: ArgumentParser) -> None:
        for flag, options in _OPTIONS.items():
            parser.add_argument(flag, **options)

    def handle(self, *_arguments: Any, **options: Any) -> None:
        started = time.monotonic()
        if options["workers"] > 1 and FOLDER not in os.environ:
            # Read when the library of the metrics is imported.
            os.environ.update(shared_metrics(settings.VAR_DIR / "metrics"))
            os.execv(sys.executable, sys.orig_argv)  # noqa: S606  # this command again
        os.umask(PRIVATE)  # inherited by every process that is started below
        names = [name for name in PARTS if name in (options["only"] or PARTS)]
        with ExitStack() as stack:
            listener = None
            if "web" in names:
                listener = stack.enter_context(
                    open_listener(options["host"], options["port"])
                )
            if "beat" in names:  # two clocks would tick twice
                stack.enter_context(_only_clock(settings.VAR_DIR))
            run_in_fork(partial(self.prepare, names, is_prepared=options["prepared"]))
            as_json = settings.LOG_FORMAT == "json"
            width = len("observer")
            output = Output(self.stdout, self.stderr, width=width, as_json=as_json)  # type: ignore[arg-type]  # writes
            process_options = ProcessOptions(
                web_processes=options["workers"],
                web_threads=options["threads"],
                worker_slots=options["concurrency"],
                log_level="info" if options["verbosity"] > 1 else "warning",
                broker_url=settings.CELERY_BROKER_URL,
                beat_file=settings.VAR_DIR / "beat-schedule",
                # Not closed with the listener: the web server is started in the frame of this command.
                listener=os.dup(listener.fileno()) if listener else None,
                has_live_hub=has_live_hub,
                logs_as_json=as_json,
            )
            parts = [
                process for name in names for process in PARTS[name](process_options)
            ]
            if listener:
                parts.append(announcement(listener, options["host"], started=started))
            share_imports()
            part = Supervisor(parts, folder=settings.BASE_DIR, output=output).run()
        if part:
            part.become()

    def close_files(self) -> None:
        if open_files := close_to_others(settings.VAR_DIR):
            self.stderr.write(
                f"Other users of this machine can read {len(open_files)} files in {settings.VAR_DIR}, "
                f"such as {open_files[0]}; set the mode 0600, and 0700 of folders, as their owner"
            )

    def prepare(self, names: Collection[str], *, is_prepared: bool = False) -> None:
        """Prepare the database and the files of these parts; `is_prepared`: wait until `prepare` has run."""
        try:
            if is_prepared:
                bootstrap.wait_for_migrations(
                    connections.settings["default"], say=self.stdout.write
                )
            else:
                bootstrap.wait_for_database(
                    connections.settings["default"], say=self.stdout.write
                )
            with bootstrap.one_at_a_time(settings.VAR_DIR):
                if not is_prepared:
                    bootstrap.migrate()
                self.close_files()
                keep_keys()
                if "web" in names and not settings.STATIC_IS_BUILT:
                    bootstrap.collect_static_files(
                        root=settings.STATIC_ROOT,
                        stamp=settings.VAR_DIR / "static.stamp",
                    )
                if not is_prepared:
                    self.make_administrator()
        except (bootstrap.DatabaseMissingError, bootstrap.UnknownSchemaError) as error:
            raise CommandError(str(error), returncode=ENVIRONMENT) from error
        except FirstRunError as error:
            raise CommandError(str(error)) from error

    def make_administrator(self) -> None:
        made = make_first_administrator(
            username=settings.FIRST_ADMIN_USER, password=settings.FIRST_ADMIN_PASSWORD
        )
        if made and made.generated_password:
            path = keep_first_password(made.generated_password)
            where = f"{path} (readable by its owner only)"
            self.stdout.write(f"Administrator {made.username}, password in {where}")
        elif made:
            self.stdout.write(
                f"Administrator {made.username}, with the password of FLEETUI_ADMIN_PASSWORD"
            )


def has_live_hub() -> bool:
    """Return whether a live hub is to be watched; while the database does not answer, none is."""
    if not has_live_hubs():
        return False
    try:
        return bool(import_string(settings.WATCHED_HUBS)())
    except DatabaseError:
        return False
    finally:
        close_pools()


def open_listener(host: str, port: int) -> socket.socket:
    """Open the port first, so that a port in use is reported immediately."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        is_unknown = isinstance(error, socket.gaierror)
        reason = (
            os.strerror(error.errno)
            if error.errno and not is_unknown
            else str(error.strerror or error)
        )
        raise CommandError(
            f"cannot listen on {host}:{port}: {reason}; choose another --port"
        ) from error


@contextmanager
def _only_clock(folder: Path) -> Iterator[None]:
    try:
        with hold_lock(folder / "up.lock"):
            yield
    except AlreadyRunningError as error:
        raise CommandError(
            f"`manage.py up` runs on {folder} already, as process {error}; stop it first"
        ) from error


def announcement(
    listener: socket.socket, host: str, *, started: float
) -> SupervisedProcess:
    """Return the process that waits for the first page and says where it is."""
    address, port = listener.getsockname()[:2]
    nearby = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104  # compared, not bound
    address_host = f"[{host}]" if ":" in host else host
    url = f"http://{address_host}:{port}/"
    return SupervisedProcess(
        "up",
        ("fleetui.announcement", nearby, str(port), url, str(started)),
        runs_once=True,
    )


def share_imports() -> None:
    """Import what the processes need, once for all of them, and leave it alone from now on.

    The memory stays shared until it is written to, which the garbage collector would do.
    """
    os.environ.pop("FLEETUI_ADMIN_PASSWORD", None)
    settings.FIRST_ADMIN_PASSWORD = variables.ADMIN_PASSWORD = ""
    # This command has run the checks.
    os.environ["CELERY_SKIP_CHECKS"] = "1"
    if not sys.warnoptions:
        # Eight lines of each worker that runs as root, as in a container.
        warnings.filterwarnings("ignore", module="celery.platforms")
    celery_app.loader.import_default_modules()
    for module in _PROGRAMS:
        import_module(module)
    # The command line raises it, for commands that end soon.
    gc.set_threshold(*_COLLECTOR)
    gc.collect()
    gc.freeze()
