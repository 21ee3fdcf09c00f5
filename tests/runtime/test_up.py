"""`manage.py up`, from an empty folder to the last process."""

import json
import os
import signal
import socket
import sys
import time
import urllib.request
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from pytest_django import Settings

from fleetui.private_files import open_to_others
from fleetui.supervisor import ProcessOptions, hold_lock, workers
from tests.commands import call_command
from tests.runtime.processes import (
    PATIENCE,
    Watched,
    eventually,
    is_gone,
    living_with,
    watching,
)

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
WORKERS = ("worker", "worker-2") if (os.cpu_count() or 1) > 1 else ("worker",)
EVERY_PART = ("web", *WORKERS, "observer", "beat")
OURS = {"DJANGO_SETTINGS_MODULE": "tests.runtime.up_settings"}


NOTHING = {"threads": ["MainThread"], "tasks": 1, "files": ["up.lock"], "peers": []}
"""What crosses a fork: a lock that a thread holds is never released in it, and two processes would write
one connection. The supervisor itself queries the database before it forks, for live hubs, and closes all.
"""


def _up(folder: Path) -> AbstractContextManager[Watched]:
    return watching(
        *("manage.py", "up", "--port", "0"),
        FLEETUI_VAR_DIR=str(folder),
        **OURS,
    )


def parts_of(up: Watched) -> dict[str, int]:
    """Find the leading process of each part: a fork of the supervisor with the name of the part."""
    children = (
        Path(f"/proc/{up.process.pid}/task/{up.process.pid}/children")
        .read_text()
        .split()
    )
    names = {}
    for child in children:
        with suppress(OSError):  # it has ended by now, as the fork that prepares does
            names[Path(f"/proc/{child}/comm").read_text().strip()] = child
    return {name: int(child) for name, child in names.items() if name in EVERY_PART}


def _status(address: str) -> int:
    with urllib.request.urlopen(f"{address}admin/login/", timeout=PATIENCE) as answer:
        return int(answer.status)


def _forks_of(up: Watched, folder: Path) -> list[dict[str, Any]]:
    """Return what the supervisor had at each of its forks: for the preparation and for each part."""
    forks = [json.loads(line) for line in (folder / "forks").read_text().splitlines()]
    return [fork for fork in forks if fork.pop("process") == up.process.pid]


def _has_ticked_since(moment: float, folder: Path) -> bool:
    ticked = folder / "ticked"
    return ticked.exists() and float(ticked.read_text() or 0) > moment


@linux
@pytest.mark.parametrize(
    "victims", [("web",), pytest.param(EVERY_PART, marks=pytest.mark.nightly)]
)
def test_runs_comes_back_after_every_kill_and_leaves_nothing(
    victims: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path
    with _up(folder) as up:
        address = up.wait_for(r"^up +\| FleetUI: (http://127\.0\.0\.1:\d+/)")[1]
        seconds = up.wait_for(r"^up +\| ready in ([\d.]+) s$")[1]
        with capsys.disabled():
            sys.stdout.write(f" [up: ready in {seconds} s] ")
        assert _status(address) == 200
        eventually(lambda: _has_ticked_since(0, folder))
        assert (folder / "credential.keys").exists()
        assert open_to_others(folder) == []
        before = parts_of(up)
        assert sorted(before) == sorted(EVERY_PART)
        children = (
            Path(f"/proc/{before['web']}/task/{before['web']}/children")
            .read_text()
            .split()
        )

        for name in victims:
            os.kill(before[name], signal.SIGKILL)
        # With their children: one of the old web server may still take a connection, and ends with it.
        gone = [before[name] for name in victims] + [int(child) for child in children]
        eventually(lambda: all(map(is_gone, gone)))
        killed = time.time()

        assert (
            _status(address) == 200
        )  # waits for the new web server: the port stayed open
        eventually(lambda: _has_ticked_since(killed, folder))
        after = eventually(
            lambda: parts_of(up) if parts_of(up).keys() == before.keys() else {}
        )
        assert {name for name in before if after[name] != before[name]} == set(victims)

        up.process.terminate()
        assert up.process.wait(timeout=PATIENCE) == 0
        assert living_with(f"FLEETUI_VAR_DIR={folder}") == {}
        forks = _forks_of(up, folder)
        assert len(forks) > len(EVERY_PART) + len(victims)
        assert forks == [NOTHING] * len(forks)


def test_a_second_one_on_the_same_folder_is_refused(
    tmp_path: Path, settings: Settings
) -> None:
    settings.VAR_DIR = tmp_path

    with (
        hold_lock(tmp_path / "up.lock"),
        pytest.raises(
            CommandError,
            match=rf"runs on {tmp_path} already, as process {os.getpid()}; stop it",
        ),
    ):
        call_command("up", "--port", "0")


def test_a_port_in_use_is_reported_before_anything_is_done(
    tmp_path: Path, settings: Settings
) -> None:
    settings.VAR_DIR = tmp_path
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(CommandError) as refused:
            call_command("up", "--port", str(port))

    assert refused.value.returncode == 1
    assert (
        str(refused.value)
        == f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another --port"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("port", ["x", "-1", "65536"])
def test_what_is_no_port_is_refused(port: str) -> None:
    with pytest.raises(CommandError, match="write a number, 0 to 65535"):
        call_command("up", f"--port={port}")


@pytest.mark.parametrize(
    ("broker_url", "pool"),
    [("atomicfs://", "threads"), ("redis://h", "prefork"), ("amqp://h", "prefork")],
)
def test_workers_are_several_processes_with_every_broker(
    broker_url: str, pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    options = ProcessOptions(
        web_processes=1,
        web_threads=8,
        worker_slots=3,
        log_level="warning",
        broker_url=broker_url,
        beat_file=Path("beat"),
        listener=None,
    )

    *several, observer = workers(options)

    for worker in several:
        assert worker.command[worker.command.index("--pool") + 1] == pool
    slots = [
        int(process.command[process.command.index("--concurrency") + 1])
        for process in several
    ]
    assert (sum(slots), len(slots)) == ((4, 2) if pool == "threads" else (3, 1))
    assert "periodic" in observer.command


@pytest.mark.parametrize("option", ["--workers", "--threads", "--concurrency"])
def test_none_is_no_number_of_processes(option: str) -> None:
    with pytest.raises(CommandError, match="1 or more"):
        call_command("up", option, "0")
