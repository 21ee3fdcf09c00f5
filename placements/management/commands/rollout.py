"""manage.py rollout: pause, stop, retry, roll back from the command line, and say how a rollout stands."""

import json
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from fleetui.management.hub_command import HubCommand
from placements.explain.run_wording import answer_sentences, progress_sentence
from placements.explain.wording import joined
from placements.models import Placement
from placements.operations.emptying import CONFIRMATION, EmptiesPlacementError
from placements.operations.placements import UnknownPlacementError
from placements.operations.rescheduling import reschedule
from placements.operations.rollouts import hands
from placements.operations.rollouts.hands import HandRefusedError
from placements.queries.fresh import fresh_schedule
from placements.queries.run_clusters import progress_of
from placements.queries.runs import latest_run, said_of

REFUSED, BAD_INPUT, UNCONFIRMED = 1, 2, 3
_PLAIN = {
    "pause": hands.pause,
    "resume": hands.resume,
    "stop": hands.stop,
    "start": hands.begin_anew,
    "release": hands.release,
}
_DONE = {
    "pause": "is paused",
    "resume": "goes on",
    "stop": "is stopped; `rollout start` begins a new run",
    "start": "begins a new run",
    "release": "follows the hub again",
}


class Command(HubCommand):
    """Lay hands on a rollout."""

    help = (
        "Pause, resume, stop or start a placement's rollout, retry a cluster, roll back, "
        "choose clusters afresh, say how it stands."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("wish", choices=[*_PLAIN, "retry", "rollback", "reschedule", "status"])
        parser.add_argument("placement", metavar="NAME")
        parser.add_argument(
            "--confirm", choices=[CONFIRMATION], help="reschedule even if nothing would be left"
        )
        parser.add_argument(
            "what",
            metavar="CLUSTER|NUMBER",
            nargs="?",
            help="what to retry; the resource snapshot whose content to carry out again",
        )

    def handle(
        self, *, wish: str, placement: str, what: str | None, confirm: str | None = None, **_options: Any
    ) -> None:
        """Do what is wished, and say what became of it."""
        if (what is None) == (wish in ("retry", "rollback")):
            wanted = {"retry": "the name of a cluster", "rollback": "the number of a resource snapshot"}
            raise CommandError(f"{wish} takes {wanted.get(wish, 'a placement alone')}", returncode=BAD_INPUT)
        try:
            now = datetime.now(UTC)
            if wish == "reschedule":
                said = _reschedule(placement, confirmed=confirm is not None, now=now)
            else:
                said = _do(wish, placement, what or "", now=now)
        except UnknownPlacementError as error:
            raise CommandError(str(error), returncode=BAD_INPUT) from error
        except HandRefusedError as error:
            raise CommandError(str(error), returncode=REFUSED) from error
        except EmptiesPlacementError as error:
            raise CommandError(f"{error} (--confirm {CONFIRMATION})", returncode=UNCONFIRMED) from error
        self.stdout.write(said)


def _do(wish: str, name: str, what: str, *, now: datetime) -> str:
    if wish == "status":
        return _status(name, now=now)
    if wish == "retry":
        hands.retry(name, what, by=None, now=now)
        return f"{name} is tried again on {what}"
    if wish == "rollback":
        older = _number(what)
        restored = hands.roll_back(name, older, by=None, now=now)
        return (
            f"{name} is rolled back to the content of r{older}, as r{restored.number}, and held there;"
            f" `rollout release {name}` ends that"
        )
    _PLAIN[wish](name, by=None, now=now)
    return f"{name} {_DONE[wish]}"


def _reschedule(name: str, *, confirmed: bool, now: datetime) -> str:
    """Choose clusters afresh, and say what a look beforehand found that this would change."""
    row = Placement.objects.filter(name=name).first()
    if row is None:
        raise UnknownPlacementError(name)
    fresh = fresh_schedule(row)
    reschedule(name, by=None, now=now, confirmed=confirmed)
    moves = (("joins", fresh.joins), ("leaves", fresh.leaves))
    told = [f"{word} {joined(names)}" for word, names in moves if names]
    return f"{name} is rescheduled from scratch: {'; '.join(told) or 'nothing would change'}"


def _number(written: str) -> int:
    if not written.removeprefix("r").isdecimal() or len(written) > 10:
        message = f"{written[:40]!r} is no number of a resource snapshot (allowed: such as 4, or r4)"
        raise CommandError(message, returncode=BAD_INPUT)
    return int(written.removeprefix("r"))


def _status(name: str, *, now: datetime) -> str:
    row = Placement.objects.filter(name=name).first()
    if row is None:
        raise UnknownPlacementError(name)
    run = latest_run(row)
    if run is None:
        return f"{name} has no run yet"
    said, progress = said_of(run), progress_of(run, now=now)
    facts = {
        "run": run.number,
        "state": run.state,
        "progress": progress_sentence(progress, said.answer.budgets if said.answer else None)
        if progress
        else None,
        "pausedBy": row.paused_by or None,
        "stopped": row.is_stopped,
        "heldAt": row.held_number,
        "endedBecause": run.ended_because or None,
        **(answer_sentences(said.answer) if said.answer else {}),
    }
    return json.dumps(facts, ensure_ascii=False, indent=2)
