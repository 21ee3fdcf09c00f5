"""`kubectl fleetui` without a console: the hub of a kubeconfig is read once into a database of this call.

The database, its keys and the credentials are in a folder that only this user can read, and that is
deleted at the end. Nothing is written to the hub.
"""

import os
import shutil
from argparse import Namespace
from importlib import import_module
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fleetui import __version__
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.yaml import load_documents
from fleetui.errors import BAD_INPUT, REFUSED
from fleetui.remote import RemoteError

HUB = "hub"
_EMPTY = f"empty-{__version__}.sqlite3"
_ENVIRONMENT = {
    # Hubs on this machine, such as those of kind, are ordinary for a command.
    "FLEETUI_MEMBER_LOOPBACK": "1",
    "DJANGO_SETTINGS_MODULE": "fleetui.settings",
    "DJANGO_LOG_LEVEL": "ERROR",
}
_kept: list[TemporaryDirectory[str]] = []


def client_of(options: Namespace) -> Any:
    """Return the client of a console that has read the hub. Raise RemoteError."""
    path = kubeconfig_path(options.hub_kubeconfig)
    context = options.hub_context or current_context(path)
    folder = TemporaryDirectory(prefix="fleetui-kubectl-")
    _kept.append(folder)  # removed when the process ends
    os.environ.pop("DATABASE_URL", None)
    os.environ |= {**_ENVIRONMENT, "FLEETUI_VAR_DIR": folder.name}
    import_module("django").setup()
    management = import_module("django.core.management")
    _prepare(management, Path(folder.name))
    words = ["--kubeconfig", str(path), "--context", context, "--confirm"]
    try:
        out = StringIO()
        management.call_command("connect_hub", HUB, *words, stdout=out, stderr=out)
        management.call_command("watch_hubs", once=True, project=True, stdout=out)
    except management.CommandError as error:
        raise RemoteError(
            f"context {context}: {error}", returncode=error.returncode or REFUSED
        ) from error
    local: Any = import_module("placements.client.local")
    return local.LocalClient(hub=HUB)


def kubeconfig_path(chosen: str | None) -> Path:
    """Return the kubeconfig that kubectl would read: the first that exists. Raise RemoteError."""
    names = [chosen] if chosen else os.environ.get("KUBECONFIG", "").split(os.pathsep)
    paths = [Path(name) for name in names if name]
    paths = paths or [Path.home() / ".kube" / "config"]
    for path in paths:
        if path.is_file():
            return path
    raise RemoteError(
        f"no kubeconfig: {', '.join(map(str, paths))}; or name a console with --server",
        returncode=BAD_INPUT,
    )


def current_context(path: Path) -> str:
    """Return the current context of a kubeconfig. Raise RemoteError."""
    try:
        documents = load_documents(path.read_bytes())
    except (OSError, InvalidManifest) as error:
        raise RemoteError(f"{path}: {error}", returncode=BAD_INPUT) from error
    content = documents[0].data if documents else None
    context = content.get("current-context") if isinstance(content, dict) else None
    if not context:
        raise RemoteError(
            f"{path}: no current context; name one with --context", returncode=BAD_INPUT
        )
    return str(context)


def _prepare(management: Any, folder: Path) -> None:
    """Make the tables, from a copy of empty ones where this version has made them before."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fleetui"
    file, empty = folder / "fleetui.sqlite3", cache / _EMPTY
    if empty.is_file():
        shutil.copyfile(empty, file)
    management.call_command("migrate", verbosity=0)
    if not empty.is_file():
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = cache / f"{_EMPTY}.{os.getpid()}"
        # Not a copy of the file: what was written last is in the one beside it.
        cursor = import_module("django.db").connection.cursor()
        cursor.execute("VACUUM INTO %s", [str(made)])
        made.rename(empty)
