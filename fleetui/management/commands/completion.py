"""`fleetui completion SHELL`: the script that completes commands and options in a shell."""

from argparse import Action, ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from typing import Any

import shtab
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand, CommandParser

from fleetui.command_line import PROGRAM


class Command(BaseCommand):
    """Print a completion script."""

    help = (
        "Print the completion script of a shell, such as for `source <(fleetui completion bash)`. "
        "It is generated from the parsers of the commands."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS)

    def handle(self, *, shell: str, **_options: Any) -> None:
        self.stdout.write(shtab.complete(parser_of_all_commands(), shell=shell))


def parser_of_all_commands() -> ArgumentParser:
    parsers: dict[str, ArgumentParser] = {}
    for name, app in sorted(get_commands().items()):
        own = load_command_class(str(app), name).create_parser(PROGRAM, name)
        own.description = str(
            own.description or ""
        )  # Django's may be lazy translations
        parsers[name] = own

    # A subparser is made by calling this with its program name: here it is a parser that exists.
    def existing(*, prog: str, **_options: Any) -> ArgumentParser:
        return parsers[prog.rpartition(" ")[2]]

    make: Any = existing
    top = ArgumentParser(PROGRAM)
    below = top.add_subparsers(parser_class=make)
    for name, parser in parsers.items():
        for action in _all_actions(parser):
            if action.metavar == "FILE":
                action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks for it
        below.add_parser(name, help=parser.description)
    return top


def _all_actions(parser: ArgumentParser) -> Iterator[Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, _SubParsersAction):
            for below in action.choices.values():
                yield from _all_actions(below)
