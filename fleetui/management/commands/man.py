"""`fleetui man`: the manual page, generated from the parsers of the commands."""

from argparse import Action, ArgumentParser, HelpFormatter, _SubParsersAction
from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand

from fleetui import __version__
from fleetui.command_line import PROGRAM
from fleetui.management.command_tree import DESCRIPTION, command_tree

_END = r"""
.SH EXIT STATUS
Unless the command says otherwise: 0 success, 1 refused or not found, 2 invalid input, 3 confirmation missing,
4 the database, the disk or the console does not respond.
.SH ENVIRONMENT
.TP
.B FLEETUI_SERVER, FLEETUI_TOKEN
address of a console and token, for commands that have the option \-\-server
.TP
.B FLEETUI_VAR_DIR, DATABASE_URL, CELERY_BROKER_URL, ...
settings of the console; its documentation lists all of them
.SH FILES
.TP
.B $XDG_DATA_HOME/fleetui, ~/.local/share/fleetui
data of an installed console without FLEETUI_VAR_DIR
"""


class Command(BaseCommand):
    """Print the manual page."""

    help = "Print the manual page with every command and option, such as for `fleetui man > fleetui.1`."
    requires_system_checks = ()

    def handle(self, **_options: Any) -> None:
        head = [
            f'.TH FLEETUI 1 "" "FleetUI {__version__}" "FleetUI"',
            ".SH NAME",
            rf"{PROGRAM} \- console for a fleet of Kubernetes clusters",
            ".SH SYNOPSIS",
            rf".B {PROGRAM}",
            r"\fICOMMAND\fR [\fIOPTION\fR ...]",
            ".SH DESCRIPTION",
            _escaped(DESCRIPTION),
            ".SH COMMANDS",
        ]
        lines = (line for _, parser in _below(command_tree()) for line in page_of(parser))
        self.stdout.write("\n".join([*head, *lines]) + _END)


def page_of(parser: ArgumentParser) -> Iterator[str]:
    """Yield the part about one command: its usage, what it does, its arguments; then those below it."""
    usage = parser.format_usage().partition(" ")[2]
    yield from (f'.SS "{parser.prog}"', rf"\fB{_escaped(' '.join(usage.split()))}\fR")
    if parser.description:
        yield from (".PP", _escaped(parser.description))
    formatter = HelpFormatter(parser.prog)
    for action in parser._actions:
        if not isinstance(action, _SubParsersAction) and action.dest != "help":
            yield from (".TP", rf"\fB{_escaped(_invocation(action))}\fR")
            yield _escaped(formatter._expand_help(action) if action.help else "")
    for name, below in _below(parser):
        below.prog = f"{parser.prog} {name}"
        yield from page_of(below)


def _below(parser: ArgumentParser) -> Iterator[tuple[str, ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            yield from action.choices.items()


def _invocation(action: Action) -> str:
    """Return how an argument is written: `-f, --filename FILE`."""
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    value = "" if action.nargs == 0 else str(action.metavar or choices)
    return " ".join(filter(None, (", ".join(action.option_strings), value)))


def _escaped(text: str) -> str:
    """Return a text in which nothing is a request of roff."""
    plain = " ".join(text.split()).replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{plain}" if plain.startswith((".", "'")) else plain
