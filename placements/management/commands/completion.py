"""`fleetui completion SHELL`: the script that completes commands, options and names in a shell."""

from argparse import Action, ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from typing import Any

import shtab
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand, CommandParser

from fleetui.command_line import PROGRAM
from placements.client.arguments import new_parser
from placements.client.operations import nouns

_NAMES = f"{PROGRAM} get {{noun}} -o name 2>/dev/null | cut -d/ -f2-"
_FUNCTIONS = {
    "bash": '_fleetui_{noun}() {{ compgen -W "$({names})" -- "$1"; }}',
    "zsh": '_fleetui_{noun}() {{ compadd -- ${{(f)"$({names})"}} }}',
}
"""Functions of a shell that print the names of a noun, which the console is asked for."""


class Command(BaseCommand):
    help = (
        "Print the completion script of a shell, such as for `source <(fleetui completion bash)`. "
        "It is generated from the parsers of the commands, and reads names from the console."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS)

    def handle(self, *, shell: str, **_options: Any) -> None:
        preamble: Any = {
            name: "\n".join(
                function.format(noun=noun, names=_NAMES.format(noun=noun))
                for noun in nouns()
                if "/" not in noun
            )
            for name, function in _FUNCTIONS.items()
        }
        parser = parser_of_all_commands()
        self.stdout.write(shtab.complete(parser, shell=shell, preamble=preamble))


def parser_of_all_commands() -> ArgumentParser:
    """Return the parser of the requests, with the commands of Django among them."""
    top = new_parser(PROGRAM)
    verbs: Any = top._actions[-1]
    for name, app in sorted(get_commands().items()):
        own = load_command_class(str(app), name).create_parser(PROGRAM, name)
        # Django's may be lazy translations.
        own.description = str(own.description or "")
        verbs.choices[name] = own
        verbs._choices_actions.append(
            verbs._ChoicesPseudoAction(name, (), own.description)
        )
    for action in _all_actions(top):
        if action.metavar in ("FILE", "FOLDER"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks for it
        elif noun := getattr(action, "noun", ""):
            action.complete = dict.fromkeys(_FUNCTIONS, f"_fleetui_{noun}")  # type: ignore[attr-defined]
    return top


def _all_actions(parser: ArgumentParser) -> Iterator[Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, _SubParsersAction):
            for below in action.choices.values():
                yield from _all_actions(below)
