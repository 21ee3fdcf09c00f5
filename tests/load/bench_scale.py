"""`make bench`, deciding at scale: processor time of decisions, workers beside each other, a large fleet.

`python -m tests.load.bench_scale 10000 100` measures the large fleet of this size, which takes minutes. With
DATABASE_URL of an empty PostgreSQL it is measured there, and the workers beside each other are.
"""

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from time import process_time

from tests.load.goals import Goal, print_goals
from tests.load.own_console import own_console

_SIZE = (1_000, 20)
"""The clusters and placements of the large fleet in `make bench`."""
_DECISION_MS, _REDECISIONS = 15.0, 400.0
_SPEEDUPS = {2: 1.9, 4: 3.5}
_WAIT_MS = 50.0


def main(arguments: Sequence[str]) -> None:
    """Measure, and print what was measured and whether it is enough."""
    with own_console():
        from tests.load import large_fleet  # noqa: PLC0415 -- only after the folder is set

        goals = [_new_decisions(), _decided_again()]
        if url := os.environ.get("DATABASE_URL", ""):
            goals += _beside_each_other(url)
            goals += [_longest_wait(url, workers) for workers in _SPEEDUPS]
        _empty()
        large_fleet.main(*map(int, arguments or _SIZE))
        print_goals(goals)


def _empty() -> None:
    from django.core.management import call_command  # noqa: PLC0415 -- as above

    from tests.database import forget_caches, restore_migrated_rows  # noqa: PLC0415 -- as above

    call_command("flush", interactive=False, verbosity=0)
    restore_migrated_rows()
    forget_caches()


def _cpu_of(act: Callable[[], object]) -> float:
    started = process_time()
    act()
    return process_time() - started


def _new_decisions(clusters: int = 1_000, placements: int = 40) -> Goal:
    """Measure new placements with a hundred bindings each; the first batch warms up."""
    from placements.models import Binding  # noqa: PLC0415 -- as above
    from tests.load.deciding import fill  # noqa: PLC0415 -- as above
    from tests.rows import pick_n_spec, run_due, saved  # noqa: PLC0415 -- as above

    fill(clusters, 1)
    for batch in "ab":
        bindings = Binding.objects.count()
        for number in range(placements):
            saved(f"{batch}{number:03}", pick_n_spec(100))
        seconds = _cpu_of(run_due)
    if (written := Binding.objects.count() - bindings) != 100 * placements:
        sys.exit(f"{written} bindings were written, not {100 * placements}")
    each = seconds / placements * 1e3
    return Goal(
        "CPU of a new decision, 100 bindings",
        f"<= {_DECISION_MS:.0f} ms",
        f"{each:.1f} ms",
        each <= _DECISION_MS,
    )


def _decided_again(clusters: int = 1_000, placements: int = 200) -> Goal:
    from tests.load.deciding import fill, redecide  # noqa: PLC0415 -- as above

    _empty()
    fill(clusters, placements)
    redecide("c00010")
    best = min(_cpu_of(partial(redecide, name)) for name in ("c00011", "c00012"))
    found = placements / best
    return Goal(
        "decisions again a CPU-second",
        f">= {_REDECISIONS:.0f}",
        f"{found:.0f}",
        found >= _REDECISIONS,
    )


def _beside_each_other(
    url: str, clusters: int = 500, placements: int = 600
) -> list[Goal]:
    from clusters.operations.edit import change_labels  # noqa: PLC0415 -- as above
    from placements.services.fleet_events import enqueue_affected_placements  # noqa: PLC0415 -- as above
    from tests.load.deciding import fill  # noqa: PLC0415 -- as above
    from tests.load.workers import decide_beside, rate  # noqa: PLC0415 -- as above
    from tests.rows import NOW  # noqa: PLC0415 -- as above

    _empty()
    fill(clusters, placements)
    rates = {}
    for place, workers in enumerate((1, *_SPEEDUPS)):
        name = f"c{20 + place:05}"
        change_labels([name], put={"tier": "gold"}, by=None, now=NOW)
        enqueue_affected_placements()
        shares = decide_beside(workers, url)
        rates[workers] = rate(shares)
        total = sum(share.decisions for share in shares)
        cpu = sum(share.cpu_seconds for share in shares) / total * 1e3
        database = sum(share.database_cpu_seconds for share in shares) / total * 1e3
        statements = sum(share.statements for share in shares) / total
        print(
            f"{workers} workers, round trips of 1 ms: {total} decisions, {rates[workers]:.0f} a second, "
            f"{cpu:.1f} ms CPU and {database:.1f} ms of PostgreSQL each, {statements:.1f} statements",
            flush=True,
        )
    return [
        Goal(
            f"{workers} workers over one",
            f">= {least}x",
            f"{rates[workers] / rates[1]:.2f}x",
            rates[workers] >= least * rates[1],
        )
        for workers, least in _SPEEDUPS.items()
    ]


def _longest_wait(url: str, workers: int, edits: int = 40) -> Goal:
    """Measure how long labels and reports wait for decisions; each label makes all of them due again."""
    from clusters.drivers.base import Observation  # noqa: PLC0415 -- as above
    from clusters.operations.edit import change_labels  # noqa: PLC0415 -- as above
    from clusters.operations.heartbeat import report  # noqa: PLC0415 -- as above
    from placements.services.fleet_events import enqueue_affected_placements  # noqa: PLC0415 -- as above
    from tests.load.workers import edit_beside  # noqa: PLC0415 -- as above
    from tests.rows import NOW  # noqa: PLC0415 -- as above

    def edit(number: int) -> None:
        name = f"c{50 * workers + number:05}"
        change_labels([name], put={"tier": "gold"}, by=None, now=NOW)
        enqueue_affected_placements()
        observation = Observation(is_healthy=True, properties={"nodes": f"{number}"})
        report(name, observation, by=None, now=NOW)

    changes = (partial(edit, number) for number in range(edits))
    waits = sorted(edit_beside(workers, url, changes))
    longest = waits[-1] * 1e3
    print(
        f"{edits} edits beside {workers} workers: median {waits[edits // 2] * 1e3:.1f} ms, "
        f"longest {longest:.1f} ms of waiting for locks, without waiting for a processor",
        flush=True,
    )
    return Goal(
        f"wait for the lock of the fleet, {workers} workers",
        f"<= {_WAIT_MS:.0f} ms",
        f"{longest:.1f} ms",
        longest <= _WAIT_MS,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
