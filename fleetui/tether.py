"""Tie a process to the one that it was forked from. Elsewhere than on Linux nothing is done."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def end_with(parent: int, *, name: str) -> None:
    """End this process with its parent, and show it under this name beside the parent's command line."""
    if sys.platform != "linux":
        return
    kernel = ctypes.CDLL(None)
    kernel.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
    kernel.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel registered the request
        sys.exit(1)
