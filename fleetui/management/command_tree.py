"""All commands of the console as one parser: what help, shell completion and the manual page are made of."""

from argparse import Action, ArgumentParser, _SubParsersAction
from typing import Any

import shtab
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand

from fleetui.command_line import PROGRAM

APPS = ("fleetui", "clusters", "placements")
DESCRIPTION = "Schedule and roll out Kubernetes resources across a fleet of clusters, and explain why."
DJANGO_OPTIONS = frozenset(
    {"version", "verbosity", "settings", "pythonpath", "traceback", "no_color", "force_color", "skip_checks"}
)
"""What every command has from Django; only `--help` of the command lists it."""


def own_commands() -> dict[str, BaseCommand]:
    """Return the commands of the console by name; those of Django are left out."""
    names = sorted((name, app) for name, app in get_commands().items() if app in APPS)
    return {name: load_command_class(str(app), name) for name, app in names}


def command_tree() -> ArgumentParser:
    parsers = {name: one.create_parser(PROGRAM, name) for name, one in own_commands().items()}
    top = ArgumentParser(PROGRAM, description=DESCRIPTION)
    top.add_argument("--version", action="store_true", help="show the version")

    # A subparser is made by calling this with its program name: here it is a parser that exists.
    def existing(*, prog: str, **_options: Any) -> ArgumentParser:
        return parsers[prog.rpartition(" ")[2]]

    make: Any = existing
    below = top.add_subparsers(metavar="COMMAND", parser_class=make)
    for name, parser in parsers.items():
        for action in _all_actions(parser):
            if action.metavar == "FILE":
                action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks for it
        below.add_parser(name, help=parser.description)
        parser.prog = f"{PROGRAM} {name}"
        hide_django_options(parser)
    return top


def _all_actions(parser: ArgumentParser) -> list[Action]:
    actions = list(parser._actions)
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            actions += [one for below in action.choices.values() for one in _all_actions(below)]
    return actions


def hide_django_options(parser: ArgumentParser) -> None:
    """Remove what every command has from Django, and what no option group needs then."""
    for container in (parser, *parser._action_groups):
        container._actions[:] = [one for one in container._actions if one.dest not in DJANGO_OPTIONS]
    for group in parser._action_groups:
        group._group_actions[:] = [one for one in group._group_actions if one.dest not in DJANGO_OPTIONS]
    for option, action in list(parser._option_string_actions.items()):
        if action.dest in DJANGO_OPTIONS:
            del parser._option_string_actions[option]
