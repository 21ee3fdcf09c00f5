"""The entry points `fleetui` and `kubectl-fleetui`: a request of the API, or a command of Django."""

import gc
import os
import sys
from argparse import Namespace
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from fleetui import __version__
from fleetui.errors import BAD_INPUT, FleetError
from fleetui.remote import (
    SERVER,
    RemoteClient,
    RemoteError,
    ServerRefused,
    parse_server,
)
from placements.client.arguments import new_parser
from placements.client.output import Console

PROGRAM = "fleetui"
# A command ends before what it no longer needs matters; collecting takes a tenth of its time.
gc.set_threshold(200_000, 50, 50)
KUBECTL = "kubectl fleetui"
_NAMES = {"manage.py": "manage.py", "kubectl-fleetui": KUBECTL}
_APPS_OPTIONS = frozenset({"--diff", "--settings", "--pythonpath"})
"""Options of `simulate` with which it needs all apps."""
_RENAMED = {"doctor": "checks", "rebalance": "reschedule", "resilience": "what_if"}
"""Commands of former versions by name, and what they are called now."""
_FOLDERS = ("*/management/commands", "placements/hubs/management/commands")
_ROOT = Path(__file__).resolve().parents[2]
_OTHERS = (
    "Commands of the machine on which the console runs, each with a --help of its own: {names}; "
    "and those of Django."
)


def main(arguments: list[str] | None = None) -> None:
    program, *words = arguments or sys.argv
    name = _NAMES.get(Path(program).name, PROGRAM)
    is_plugin = name == KUBECTL
    others = ""
    if not is_plugin:
        # Django itself is not loaded for their names.
        names = {
            file.stem for folder in _FOLDERS for file in _ROOT.glob(f"{folder}/*.py")
        }
        others = _OTHERS.format(names=", ".join(sorted(names - {"__init__"})))
    parser = new_parser(name, has_kubeconfig=is_plugin, others=others)
    if words in (["-h"], ["--help"], ["help"], []):
        parser.print_help()
        return
    if words in (["--version"], ["version"]):
        sys.stdout.write(f"{PROGRAM} {__version__}\n")
        return
    if words[0] == "simulate" and _APPS_OPTIONS.isdisjoint(words):
        _simulate(name, words[1:])
        return
    if words[0] in _RENAMED:
        sys.stderr.write(f"{name}: {words[0]} is called {_RENAMED[words[0]]} now\n")
        sys.exit(BAD_INPUT)
    if words[0] not in verbs_of(parser) and not is_plugin:
        import_module("fleetui.command_line").main([program, *words])
        return
    status = run(parser.parse_args(words), sys.stdout, sys.stderr, program=name)
    if status:
        sys.exit(status)


def _simulate(program: str, words: list[str]) -> None:
    """Run the command that reads files alone without settings and apps, which take longer than it does."""
    module = import_module("placements.management.commands.simulate")
    command = module.Command()
    options = vars(command.create_parser(program, "simulate").parse_args(words))
    try:
        command.execute(*options.pop("args", ()), **options)
    except module.CommandError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.exit(error.returncode)
    except BrokenPipeError:
        os._exit(141)


def verbs_of(parser: Any) -> dict[str, Any]:
    verbs: dict[str, Any] = parser._actions[-1].choices
    return verbs


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
    except FleetError as error:
        err.write(f"{program}: {error}\n")
        return error.exit_code
    except BrokenPipeError:  # the reader of the output ended, as `head` does
        os._exit(141)
    return status


def client_of(options: Namespace) -> Any:
    """Return the console that the options name, or that of this machine. Raise ServerRefused.

    What is read from files alone needs none.
    """
    if getattr(options, "files", ()):
        _set_up()
        return None
    server = parse_server(vars(options))
    if server is None and getattr(options, "needs_server", False):
        raise ServerRefused(f"name a console with --server, or the variable {SERVER}")
    if server is None and hasattr(options, "hub_kubeconfig"):
        hub: Any = import_module("placements.client.kubeconfig")
        return hub.client_of(options)
    if server is None or getattr(options, "needs_apps", False):
        _set_up()
    if server is not None:
        if options.user:
            raise ServerRefused("--as is for this machine: a token has its user")
        return RemoteClient(server, hub=options.hub)
    local: Any = import_module("placements.client.local")
    return local.LocalClient(hub=options.hub, user=options.user)


def _set_up() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleetui.settings")
    import_module("django").setup()


if __name__ == "__main__":
    main()
