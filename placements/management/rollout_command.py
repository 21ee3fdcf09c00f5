"""What the commands `rollout` and `staged` share: the table of actions, and its exit codes."""

from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError

from fleetui.errors import BAD_INPUT
from fleetui.management.hub_command import HubCommand
from fleetui.permissions import Role
from placements.services.actions import ACTIONS, Action, ActionKind


class RolloutCommand(HubCommand):
    """A command whose first argument is an action of one kind of rollout, or a command-specific one."""

    kind: ActionKind

    def add_actions(self, subparsers: Any, *, target: str) -> None:
        """Declare an action each with the name of its target and its argument."""
        for (kind, name), action in ACTIONS.items():
            if kind is not self.kind or action.has_form:
                continue
            words = {"name": target, "value": action.argument.upper()}
            parser: ArgumentParser = subparsers.add_parser(
                name, help=action.title.format(**words)
            )
            parser.set_defaults(name=name)
            parser.add_argument("target", metavar=target)
            if action.argument:
                parser.add_argument("value", metavar=action.argument.upper())
            if action.role is Role.APPROVER:
                parser.add_argument(
                    "--as",
                    dest="user",
                    required=True,
                    metavar="USER",
                    help="approver; recorded with the run",
                )
                parser.add_argument(
                    "--comment",
                    default="",
                    metavar="TEXT",
                    help="kept with the approval",
                )

    def run_action(
        self, name: str, target: str, value: str = "", user: str = "", **more: Any
    ) -> str:
        action: Action = ACTIONS[self.kind, name]
        by = None
        if user:
            by = User.objects.filter(username=user, is_active=True).first()
            if by is None:
                raise CommandError(f"no user is named {user!r}", returncode=BAD_INPUT)
        argument = revision_number(value) if action.argument == "number" else value
        return action.run(target, argument, by=by, now=datetime.now(UTC), **more)


def revision_number(text: str) -> int:
    """Return the number of a resource snapshot, written as 4 or r4."""
    if not text.removeprefix("r").isdecimal() or len(text) > 10:
        message = f"{text[:40]!r} is not the number of a resource snapshot (allowed: such as r4)"
        raise CommandError(message, returncode=BAD_INPUT)
    return int(text.removeprefix("r"))
