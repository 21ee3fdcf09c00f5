"""Counting what Python does: growth that no other work on the machine disturbs."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_of(action: Callable[[], object]) -> int:
    """Return how many lines of Python an action executes, a pass of a loop or comprehension counted as one.

    What a library does in C counts as the line that calls it.
    """
    action()  # what is kept after the first time is not counted
    count = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count
