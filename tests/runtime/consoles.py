"""A console kept running as an init system would: whatever is killed, its `up` is there again."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.runtime.processes import Watched, eventually, living_with, watching
from tests.runtime.test_survives import Stage
from tests.runtime.test_up import EVERY_PART, parts_of

SUPERVISOR = "supervisor"


@dataclass(frozen=True)
class Command:
    """One `up`: the parts that it keeps running, and the folder that it writes into."""

    parts: tuple[str, ...]
    folder: Path
    only: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the words of the command line."""
        return (
            "manage.py",
            "up",
            "--port",
            "0",
            *(word for part in self.only for word in ("--only", part)),
        )


def commands_for(stage: Stage) -> list[Command]:
    """Return one `up` for everything; with servers three workers and two clocks, each under its own `up`.

    A second clock has a folder of its own, as on another machine.
    """
    if stage.server is None:
        return [Command(EVERY_PART, stage.folder)]
    second = stage.folder / "second"
    second.mkdir()
    alone = [
        ("web", stage.folder),
        *[("worker", stage.folder)] * 3,
        ("beat", stage.folder),
        ("beat", second),
    ]
    processes = {"worker": ("worker", "observer")}
    return [
        Command(processes.get(part, (part,)), folder, only=(part,))
        for part, folder in alone
    ]


@dataclass
class Console:
    """Running commands; what is killed here is waited for and, where nothing else does, started again."""

    stage: Stage
    commands: Sequence[Command]
    stack: ExitStack
    running: dict[int, Watched] = field(default_factory=dict)

    def start(self, number: int) -> None:
        """Start a command, again or for the first time."""
        command = self.commands[number]
        variables = self.stage.variables | {"FLEETUI_VAR_DIR": str(command.folder)}
        self.running[number] = self.stack.enter_context(
            watching(*command.arguments, **variables)
        )

    def kill(self, what: str, chance: Random) -> None:
        """Kill one part, for its supervisor to start again, or one supervisor, to be started again here."""
        having = [
            number
            for number, command in enumerate(self.commands)
            if what in (*command.parts, SUPERVISOR)
        ]
        number = chance.choice(having)
        if what == SUPERVISOR:
            self._kill_supervisor(number)
            self.start(number)
        else:
            _kill_group(
                eventually(lambda: self._parts(number).get(what, 0), seconds=90)
            )

    def kill_everything(self, meanwhile: Callable[[], None]) -> None:
        """Kill all processes at once, let something happen, and start the commands again."""
        for number in self.running:
            parts = self._parts(number)
            self._kill_supervisor(number)
            for process_id in parts.values():
                _kill_group(process_id)
        meanwhile()
        for number in list(self.running):
            self.start(number)

    def stop(self) -> None:
        """Stop every command, and check that no process is left."""
        for up in self.running.values():
            up.process.terminate()
        for up in self.running.values():
            assert up.process.wait(timeout=60) == 0
        eventually(lambda: not self._left(), seconds=60)

    def _left(self) -> list[int]:
        folders = {command.folder for command in self.commands}
        return [
            one
            for folder in folders
            for one in living_with(f"FLEETUI_VAR_DIR={folder}")
        ]

    def _parts(self, number: int) -> dict[str, int]:
        with suppress(
            FileNotFoundError, ProcessLookupError
        ):  # one of them ends at this moment
            return parts_of(self.running[number])
        return {}

    def _kill_supervisor(self, number: int) -> None:
        self.running[number].process.kill()
        self.running[number].process.wait()


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


@contextmanager
def kept_running(stage: Stage) -> Iterator[Console]:
    """Run a console on a stage, and leave nothing of it behind."""
    with ExitStack() as stack:
        console = Console(stage, commands_for(stage), stack)
        for number in range(len(console.commands)):
            console.start(number)
        yield console
        console.stop()
