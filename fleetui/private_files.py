"""The folder `var/`: its files are for their owner only, as they have keys, sessions and the database."""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core import checks

PRIVATE = 0o077
"""The umask of all processes that `manage.py up` starts: files get mode 0600, folders 0700."""


def open_to_others(folder: Path) -> list[Path]:
    """Return what other users of the machine can read or write: the folder, and everything in it."""
    paths = []
    for parent, _, files in os.walk(folder):
        for path in (Path(parent), *(Path(parent) / name for name in files)):
            with suppress(FileNotFoundError):  # removed meanwhile
                mode = path.lstat().st_mode
                if (
                    not stat.S_ISLNK(mode) and mode & PRIVATE
                ):  # a link has no permissions of its own
                    paths.append(path)
    return paths


def close_to_others(folder: Path) -> list[Path]:
    """Remove the permissions of other users; return what belongs to another owner and stays open."""
    for path in open_to_others(folder):
        with suppress(
            FileNotFoundError, PermissionError
        ):  # removed meanwhile; of another owner
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~PRIVATE)
    return open_to_others(folder)


@checks.register(checks.Tags.security, deploy=True)
def check_private_files(**_options: Any) -> list[checks.CheckMessage]:
    """Warn of files that are open to others: `manage.py check --deploy`."""
    paths = open_to_others(settings.VAR_DIR)
    if not paths:
        return []
    return [
        checks.Warning(
            f"{len(paths)} files and folders are open to other users of this machine, such as {paths[0]}",
            hint="Start `manage.py up` once: it closes them.",
            id="fleetui.W001",
        )
    ]
