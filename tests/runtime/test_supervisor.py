"""The supervisor, with tiny commands as its parts."""

import os
import signal
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from fleetui.supervisor import AlreadyRunningError, hold_lock, pause_before_restart
from tests.runtime.processes import Watched, eventually, is_gone, watching

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="reads /proc and needs the kernel's parent signal"
)

SUPERVISE = """
import sys
from pathlib import Path
from fleetui.supervisor import Output, SupervisedProcess, Supervisor
shell = ("tests.runtime.shell", "-c")
parts = [SupervisedProcess(f"p{n}", (*shell, script)) for n, script in enumerate(sys.argv[1:], start=1)]
output = Output(sys.stdout, sys.stderr, width=2)
part = Supervisor(parts, folder=Path.cwd(), output=output, patience=0.5).run()
if part:
    part.become()
"""
# Says its own number and that of a child of its own, and waits for good.
FAMILY = "sleep 600 & echo pids $$ $!; wait"
STUBBORN = "trap '' TERM; echo pids $$ $$; while :; do sleep 600; done"


def _supervising(*scripts: str) -> AbstractContextManager[Watched]:
    return watching("-c", SUPERVISE, *scripts)


def _pids(watched: Watched, part: str = "p1") -> tuple[int, int]:
    match = watched.wait_for(rf"^{part} \| pids (\d+) (\d+)$")
    return int(match[1]), int(match[2])


def test_starts_again_what_was_killed_later_each_time_and_with_its_leftovers_gone() -> (
    None
):
    with _supervising(FAMILY) as up:
        leader, leftover = _pids(up)

        os.kill(leader, signal.SIGKILL)
        up.wait_for(r"^up \| p1 was ended by SIGKILL; again in 0\.5 s$")
        assert eventually(lambda: is_gone(leftover))
        again, _ = _pids(up)
        os.kill(again, signal.SIGKILL)
        up.wait_for(r"^up \| p1 was ended by SIGKILL; again in 1 s$")

        assert again != leader
        assert _pids(up)


def test_pause_doubles_up_to_a_quarter_of_a_minute() -> None:
    pauses = [pause_before_restart(count) for count in range(7)]

    assert pauses == [0.5, 1, 2, 4, 8, 15, 15]
    assert pause_before_restart(10**6) == 15


def test_a_part_that_ends_by_itself_is_started_again_alone() -> None:
    with _supervising("echo bye; exit 3", FAMILY) as up:
        steady = _pids(up, "p2")

        up.wait_for(r"^up \| p1 ended with 3; again in")
        up.wait_for(r"^p1 \| bye$")

        assert not any(map(is_gone, steady))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_takes_everything_down(number: signal.Signals) -> None:
    with _supervising(FAMILY) as up:
        everyone = _pids(up)
        up.process.send_signal(number)

        assert up.process.wait(timeout=10) == 0
        assert all(map(is_gone, everyone))


def test_what_does_not_end_by_itself_is_killed() -> None:
    with _supervising(STUBBORN) as up:
        stubborn, _ = _pids(up)
        up.process.terminate()

        up.wait_for(r"^up \| p1 did not end in time and was killed$")

        assert up.process.wait(timeout=10) == 0
        assert is_gone(stubborn)


def test_parts_end_when_the_supervisor_is_killed() -> None:
    with _supervising("echo pids $$ $$; exec sleep 600") as up:
        part, _ = _pids(up)

        up.process.kill()

        assert eventually(lambda: is_gone(part))


def test_a_lock_has_one_holder_who_is_named(tmp_path: Path) -> None:
    lock = hold_lock(tmp_path / "lock")
    with (
        lock,
        pytest.raises(AlreadyRunningError, match=rf"^{os.getpid()}$"),
        hold_lock(tmp_path / "lock"),
    ):
        pass

    with hold_lock(tmp_path / "lock"):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_a_lock_is_free_after_its_holder_was_killed(tmp_path: Path) -> None:
    holds = f"from fleetui.supervisor import *; l = hold_lock(Path({str(tmp_path / 'lock')!r})); l.__enter__()"
    with watching(
        "-c", f"{holds}; print('held', flush=True); time.sleep(600)"
    ) as holder:
        holder.wait_for("held")
        with pytest.raises(AlreadyRunningError), hold_lock(tmp_path / "lock"):
            pass

        holder.process.kill()
        holder.process.wait()

        with hold_lock(tmp_path / "lock"):
            pass


SUPERVISE_WANTED = """
import sys
from pathlib import Path
from fleetui.supervisor import Output, SupervisedProcess, Supervisor
script, sign = sys.argv[1:]
shell = ("tests.runtime.shell", "-c", script)
part = SupervisedProcess("p1", shell, is_wanted=lambda: Path(sign).exists())
output = Output(sys.stdout, sys.stderr, width=2)
part = Supervisor([part], folder=Path.cwd(), output=output, patience=0.5, wanted_seconds=0.1).run()
if part:
    part.become()
"""


def test_a_process_without_work_does_not_run(tmp_path: Path) -> None:
    sign = tmp_path / "there-is-work"
    with watching("-c", SUPERVISE_WANTED, FAMILY, str(sign)) as up:
        sign.touch()
        leader, _ = _pids(up)

        sign.unlink()
        assert eventually(lambda: is_gone(leader))

        sign.touch()
        again, _ = _pids(up)
        assert again != leader


def test_a_line_on_the_output_is_seen_while_its_process_runs(tmp_path: Path) -> None:
    """A process shares the streams of the supervisor, whose output may be a file."""
    (tmp_path / "speaking.py").write_text("print('here'); import time; time.sleep(600)")
    speaking = SUPERVISE.replace("(*shell, script)", '("speaking",)')
    speaking = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{speaking}"
    with watching("-c", speaking, "once", PYTHONUNBUFFERED="") as watched:
        watched.wait_for(r"^p1 \| here$")
