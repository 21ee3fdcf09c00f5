"""Which modules and functions of this project one request enters."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = tuple(f"{ROOT / name}/" for name in ("clusters", "fleetui", "placements"))


@dataclass
class EnteredCode:
    """The code entered so far: functions with their calls, and calls from one module into another."""

    calls: Counter[CodeType] = field(default_factory=Counter)
    switches: int = 0

    @property
    def functions(self) -> list[str]:
        """Named functions; a lambda or a comprehension belongs to the function that holds it."""
        return sorted(
            f"{_module(call)}:{call.co_qualname}"
            for call in self.calls
            if not call.co_name.startswith("<")
        )

    @property
    def modules(self) -> list[str]:
        return sorted({_module(call) for call in self.calls})

    def count(self, name: str) -> int:
        """Return how often functions of this qualified name were called."""
        return sum(
            calls for code, calls in self.calls.items() if code.co_qualname == name
        )


@contextmanager
def record_entered_code() -> Iterator[EnteredCode]:
    """Count the calls of project code while the block runs, in this thread only."""
    entered = EnteredCode()

    def on_event(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(PACKAGES):
            return
        entered.calls[frame.f_code] += 1
        caller = frame.f_back
        if caller is not None and caller.f_code.co_filename != frame.f_code.co_filename:
            entered.switches += caller.f_code.co_filename.startswith(PACKAGES)

    previous = sys.getprofile()
    sys.setprofile(on_event)
    try:
        yield entered
    finally:
        sys.setprofile(previous)


def _module(code: CodeType) -> str:
    return (
        Path(code.co_filename)
        .relative_to(ROOT)
        .with_suffix("")
        .as_posix()
        .replace("/", ".")
    )
