"""The generated password of the first administrator, in a file for its owner only and in no log."""

import os
from pathlib import Path

from django.conf import settings


def keep_first_password(password: str) -> Path:
    """Write the password into a new file with mode 0600; return where it is."""
    path = _path()
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(f"{password}\n")
    return path


def forget_first_password(username: str) -> None:
    """Remove the file after that administrator has changed the password."""
    if username == settings.FIRST_ADMIN_USER:
        _path().unlink(missing_ok=True)


def first_password_file() -> Path | None:
    """Return where the password is; None after it was changed, or if it was not generated."""
    path = _path()
    return path if path.exists() else None


def _path() -> Path:
    folder: Path = settings.VAR_DIR
    return folder / "first-admin-password"
