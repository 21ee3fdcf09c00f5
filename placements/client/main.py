"""The entry points `fleetui` and `kubectl-fleetui`: a request of the API, or a command of Django."""

import os
import sys
from argparse import Namespace
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from fleetui import __version__
from fleetui.errors import BAD_INPUT
from fleetui.remote import RemoteClient, RemoteError, ServerRefused, parse_server
from placements.client.arguments import new_parser
from placements.client.output import Console

PROGRAM = "fleetui"
_ROOT = Path(__file__).resolve().parents[2]
_HELP = (["-h"], ["--help"], ["help"], [])
_OTHERS = (
    "Commands of the machine on which the console runs, each with a --help of its own: {names}; "
    "and those of Django."
)


def main(arguments: list[str] | None = None) -> None:
    """Run one command, and exit with its status."""
    program, *words = arguments or sys.argv
    name = Path(program).name
    if name != "manage.py":
        name = PROGRAM
    parser = new_parser(
        name, others=_OTHERS.format(names=", ".join(_machine_commands()))
    )
    if words in _HELP:
        parser.print_help()
        return
    if words in (["--version"], ["version"]):
        sys.stdout.write(f"{PROGRAM} {__version__}\n")
        return
    if words[0] not in verbs_of(parser):
        import_module("fleetui.command_line").main([program, *words])
        return
    status = run(parser.parse_args(words), sys.stdout, sys.stderr, program=name)
    if status:
        sys.exit(status)


def verbs_of(parser: Any) -> dict[str, Any]:
    """Return the parsers of the commands that are requests, by name."""
    verbs: dict[str, Any] = parser._actions[-1].choices
    return verbs


def _machine_commands() -> list[str]:
    """Return the names of the commands of Django that this repository has; Django itself is not loaded."""
    folders = ("*/management/commands", "placements/hubs/management/commands")
    return sorted(
        {
            file.stem
            for folder in folders
            for file in _ROOT.glob(f"{folder}/*.py")
            if file.stem != "__init__"
        }
    )


def run(options: Namespace, out: TextIO, err: TextIO, *, program: str = PROGRAM) -> int:
    """Run a command; return its exit status. What it refuses is a line on `err`."""
    try:
        console = Console(client_of(options), out, err)
        command = import_module(f"placements.client.{options.run}")
        status: int = command.run(console, options)
        out.flush()
    except ServerRefused as refusal:
        err.write(f"{program}: {refusal}\n")
        return BAD_INPUT
    except RemoteError as error:
        err.write(f"{program}: {error}\n")
        return error.returncode
    except BrokenPipeError:  # the reader of the output ended, as `head` does
        os._exit(141)
    return status


def client_of(options: Namespace) -> Any:
    """Return the console that the options name, or that of this machine. Raise ServerRefused."""
    server = parse_server(vars(options))
    if server is None or getattr(options, "needs_apps", False):
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleetui.settings")
        import_module("django").setup()
    if server is not None:
        if options.user:
            message = "--as is for this machine: a token has its user"
            raise ServerRefused(message)
        return RemoteClient(server, hub=options.hub)
    local: Any = import_module("placements.client.local")
    return local.LocalClient(hub=options.hub, user=options.user)


if __name__ == "__main__":
    main()
