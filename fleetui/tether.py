"""Become a command that ends with its parent: `python tether.py PARENT-ID COMMAND…`.

A program of its own, since asking the kernel between fork and exec is not safe in a process with threads.
Elsewhere than on Linux it becomes the command and does nothing else.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, then replace it by the command."""
    parent, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != int(
            parent
        ):  # it ended before the kernel registered the request
            sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606  # the command comes from the supervisor, and no shell reads it


if __name__ == "__main__":
    main()
