"""A search in a separate process: native code that hangs, crashes or fills the memory ends alone."""

import os
import pickle
import resource
import subprocess
import sys

from placements.engine.exact.record import (
    ExactRecord,
    OpenReason,
    SearchOptions,
    exact_search,
    open_record,
)
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.record import pack, pack_fleet, unpack, unpack_fleet

MOST_BYTES = 2 * 1024**3
GRACE_SECONDS = 5
"""For what the limit of the solver does not count: reading the fleet, forming classes, ordering the set."""


def search_in_child(decision: Decision, options: SearchOptions) -> ExactRecord:
    """Search in a child process; one that does not respond in time is killed and leaves an open record."""
    child_input = pickle.dumps(
        (pack_fleet(decision.cycle.fleet), pack(decision), options, MOST_BYTES)
    )
    # It has no use for the secrets of this environment.
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        process = subprocess.run(  # noqa: S603 -- this interpreter with this module
            [sys.executable, "-m", __name__],
            input=child_input,
            capture_output=True,
            check=True,
            env=environment,
            timeout=options.limit_seconds + GRACE_SECONDS,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return open_record(decision, OpenReason.SOLVER_ENDED, options)
    record: ExactRecord = pickle.loads(process.stdout)  # noqa: S301 -- written by the process started above
    return record


def main() -> None:
    """Read a decision from the standard input, and write its record to the standard output."""
    output = os.dup(1)
    os.dup2(2, 1)  # whatever else is printed is no part of the record
    fleet, content, options, most_bytes = pickle.load(sys.stdin.buffer)  # noqa: S301 -- of the parent process
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    seconds = int(options.limit_seconds + GRACE_SECONDS) + 1
    resource.setrlimit(
        resource.RLIMIT_CPU, (seconds, seconds)
    )  # ends it, too, if the parent was killed
    record = exact_search(unpack(content, unpack_fleet(fleet)), options)
    with os.fdopen(output, "wb") as file:
        pickle.dump(record, file)


if __name__ == "__main__":
    main()
