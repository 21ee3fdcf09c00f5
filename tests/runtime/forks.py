"""What a process has at each of its forks, written into a file: a line of JSON for each fork."""

import json
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path


def record_forks(folder: Path) -> None:
    """Write, from now on, what a fork of this process or of its children takes along or leaves behind.

    Threads are counted when the fork is over: those that numpy has for linear algebra exist before it, and
    their library ends them for each fork and starts them again when it needs them.
    """

    def record() -> None:
        facts = {
            "process": os.getpid(),
            "threads": [thread.name for thread in threading.enumerate()],
            "tasks": len([*Path("/proc/self/task").iterdir()]),
            "files": _open_files(folder),
            "peers": _connected_peers(),
        }
        with (folder / "forks").open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(facts)}\n")

    os.register_at_fork(after_in_parent=record)


def _targets() -> dict[int, Path]:
    """Return the path, or the kind, of each open file by its number."""
    targets = {}
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the listing itself
            targets[int(link.name)] = link.readlink()
    return targets


def _open_files(folder: Path) -> list[str]:
    return sorted(
        path.name for path in _targets().values() if path.is_relative_to(folder)
    )


def _connected_peers() -> list[str]:
    """Return the other ends of connections; a pair of sockets inside this process has no address."""
    peers = []
    for number, target in _targets().items():
        if target.name.startswith("socket:"):
            with socket.socket(fileno=os.dup(number)) as one, suppress(OSError):
                peers.append(one.getpeername())  # OSError: it listens
    return [str(peer) for peer in peers if peer]
