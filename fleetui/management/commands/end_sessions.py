"""manage.py end_sessions: end the sessions of users, or of everyone."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.management.base import BaseCommand, CommandError

from fleetui.accounts.sessions import end_sessions


class Command(BaseCommand):
    help = "End the sessions of the named users, or with --all of everyone. Tokens of the REST API stay."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("users", nargs="*", metavar="USER", help="name of a user")
        parser.add_argument(
            "--all", action="store_true", help="the sessions of everyone"
        )

    def handle(self, *_arguments: Any, users: list[str], **options: Any) -> None:
        if bool(users) == options["all"]:
            raise CommandError("name users, or else write --all", returncode=2)
        if options["all"]:
            count = Session.objects.count()
            Session.objects.all().delete()
        else:
            accounts = {
                user.get_username(): user
                for user in User.objects.filter(username__in=users)
            }
            if missing := sorted(set(users) - accounts.keys()):
                raise CommandError(
                    f"no user is named {missing[0]!r}; no session was ended",
                    returncode=2,
                )
            count = sum(end_sessions(user) for user in accounts.values())
        self.stdout.write(f"{count} sessions ended")
