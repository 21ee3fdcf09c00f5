"""manage.py staged: list, start, stop, approve staged runs from the command line, and say how one stands."""

import json
from argparse import Namespace
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.core.management.base import CommandError, CommandParser

from fleetui.management.hub_command import HubCommand
from placements.models import Placement, StagedRun, StagedStrategy
from placements.operations.rollouts.hands import HandRefusedError
from placements.operations.staged import hands
from placements.operations.staged.hands import UnknownRunError
from placements.operations.staged.starting import start_run
from placements.queries.staged import progress_of, runs_matching
from placements.queries.staged_preview import RunPreview, preview_of
from placements.scheduling.door.staged_documents import RunState
from placements.scheduling.faults import Faults

REFUSED, BAD_INPUT = 1, 2


class Command(HubCommand):
    """Work with staged runs."""

    help = "List, preview and start staged runs, lay hands on them, approve their stages, say how one stands."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the wishes, each with what it takes."""
        wishes = parser.add_subparsers(dest="wish", required=True, metavar="WISH")
        listed = wishes.add_parser("list", help="runs, the newest first")
        listed.add_argument("--placement", default="", metavar="NAME", help="only those of this placement")
        listed.add_argument("--active", action="store_true", help="only those that have not ended")
        for wish, words in (("preview", "the stages with their clusters"), ("start", "make a run")):
            made = wishes.add_parser(wish, help=words)
            if wish == "start":
                made.add_argument("run", metavar="RUN", help="what to call it")
                made.add_argument("--prepare", action="store_true", help="it begins with `staged resume RUN`")
            made.add_argument("placement", metavar="PLACEMENT")
            made.add_argument("strategy", metavar="STRATEGY")
            made.add_argument("--snapshot", metavar="NUMBER", help="older resources, such as 4, or r4")
        for wish, (words, what) in _ON_A_RUN.items():
            laid = wishes.add_parser(wish, help=words)
            laid.add_argument("run", metavar="RUN")
            if what:
                laid.add_argument("what", metavar=what)
        wishes.choices["approve"].add_argument(
            "--as", dest="user", required=True, metavar="USER", help="an approver; who approved is kept"
        )

    def handle(self, *, wish: str, **options: Any) -> None:
        """Do what is wished, and say what became of it."""
        try:
            said = _WISHES[wish](Namespace(**options), datetime.now(UTC))
        except (UnknownRunError, Faults) as error:
            raise CommandError(_told(error), returncode=BAD_INPUT) from error
        except (HandRefusedError, PermissionDenied) as error:
            raise CommandError(str(error), returncode=REFUSED) from error
        self.stdout.write(said)


_ON_A_RUN = {
    "status": ("how it stands, as JSON", ""),
    "resume": ("let a prepared or stopped run go", ""),
    "stop": ("start nothing more; what is under way is seen to its end", ""),
    "abandon": ("end it for good", ""),
    "approve": ("let a stage go on that waits for it", "STAGE"),
    "skip": ("end the timed wait of a stage", "STAGE"),
    "retry": ("try a failed cluster again at once", "CLUSTER"),
}


def _told(error: UnknownRunError | Faults) -> str:
    return "\n".join(map(str, error.faults)) if isinstance(error, Faults) else str(error)


def _list(given: Namespace, _now: datetime) -> str:
    rows = runs_matching(placement=given.placement, active=True if given.active else None)
    lines = [f"{run.name} of {run.placement_name}: {run.status}" for run in rows.order_by("-id")]
    return "\n".join(lines) or "no staged run is there"


def _preview(given: Namespace, now: datetime) -> str:
    placement = Placement.objects.filter(name=given.placement).first()
    strategy = StagedStrategy.objects.filter(name=given.strategy).first()
    if placement is None or strategy is None:
        missing = (
            f"placement is named {given.placement!r}"
            if placement is None
            else f"strategy is named {given.strategy!r}"
        )
        raise CommandError(f"no {missing}", returncode=BAD_INPUT)
    found = preview_of(placement, strategy, _number(given.snapshot), now=now)
    if found.problems:
        raise CommandError("\n".join(found.problems), returncode=REFUSED)
    return "\n".join(_preview_lines(found))


def _preview_lines(found: RunPreview) -> list[str]:
    lines = [
        f"{number}. {one.words.name} (at once: {one.words.at_once}): {', '.join(one.clusters) or 'none'}"
        for number, one in enumerate(found.stages, 1)
    ]
    gone = [f"{len(lines) + 1}. removals: {', '.join(found.deletions)}"] if found.deletions else []
    return lines + gone


def _start(given: Namespace, now: datetime) -> str:
    run = start_run(
        given.run,
        placement=given.placement,
        strategy=given.strategy,
        snapshot=_number(given.snapshot),
        is_prepared=given.prepare,
        by=None,
        now=now,
    )
    return f"{run.name} is prepared; `staged resume` lets it go" if given.prepare else f"{run.name} begins"


def _number(written: str | None) -> int | None:
    if written is None:
        return None
    if not written.removeprefix("r").isdecimal() or len(written) > 10:
        message = f"{written[:40]!r} is no number of a resource snapshot (allowed: such as 4, or r4)"
        raise CommandError(message, returncode=BAD_INPUT)
    return int(written.removeprefix("r"))


def _resume(given: Namespace, now: datetime) -> str:
    hands.set_state(given.run, RunState.RUN, by=None, now=now)
    return f"{given.run} goes on"


def _stop(given: Namespace, now: datetime) -> str:
    hands.set_state(given.run, RunState.STOP, by=None, now=now)
    return f"{given.run} is told to stop; `staged resume` lets it go on"


def _abandon(given: Namespace, now: datetime) -> str:
    hands.abandon(given.run, by=None, now=now)
    return f"{given.run} is abandoned"


def _approve(given: Namespace, now: datetime) -> str:
    user = User.objects.filter(username=given.user, is_active=True).first()
    if user is None:
        raise CommandError(f"no user is named {given.user!r}", returncode=BAD_INPUT)
    hands.approve(given.run, given.what, by=user, now=now)
    return f"stage {given.what} of {given.run} is approved by {given.user}"


def _skip(given: Namespace, now: datetime) -> str:
    hands.skip_wait(given.run, given.what, by=None, now=now)
    return f"{given.run} does not wait any longer after stage {given.what}"


def _retry(given: Namespace, now: datetime) -> str:
    hands.retry(given.run, given.what, by=None, now=now)
    return f"{given.run} is tried again on {given.what}"


def _status(given: Namespace, _now: datetime) -> str:
    run = StagedRun.objects.filter(name=given.run).first()
    if run is None:
        raise UnknownRunError(given.run)
    return json.dumps(progress_of(run), ensure_ascii=False, indent=2)


_WISHES: dict[str, Callable[[Namespace, datetime], str]] = {
    "list": _list,
    "preview": _preview,
    "start": _start,
    "status": _status,
    "resume": _resume,
    "stop": _stop,
    "abandon": _abandon,
    "approve": _approve,
    "skip": _skip,
    "retry": _retry,
}
