"""Measure 1,000 Kubernetes clusters in one process: `python -m tests.load.bench_members [CLUSTERS]`.

A process of its own answers for them, and its processor time does not count. The clock is turned from tick to
tick, so that a minute takes as long as its work.
"""

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tests.load.own_console import own_console

CLUSTERS, CONFIG_MAPS, THREADS, GOAL = 1_000, 9, 16, 0.25
TICKS = 12
"""In a minute."""


def main() -> None:
    """Measure, and print what was measured; fail where it is too much."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else CLUSTERS
    with own_console(FLEETUI_MEMBER_LOOPBACK="1"):
        missed = _measure(count)
    if missed:
        sys.exit(f"{count:,} clusters cost more than {GOAL:.0%} of a core")


def _measure(count: int) -> bool:
    import pytest  # noqa: PLC0415 -- only after the folder is set

    from clusters import kubernetes_drivers  # noqa: PLC0415 -- as above
    from fleetui.encryption import keep_keys  # noqa: PLC0415 -- as above
    from tests.clusters.kubernetes.member_fleet import separate_fleet  # noqa: PLC0415 -- as above
    from tests.services.rollouts.many_members import ManyMembers, tokens_of  # noqa: PLC0415 -- as above

    keep_keys()
    shares = []
    with separate_fleet() as fleet, pytest.MonkeyPatch.context() as patch:
        world = ManyMembers(fleet.url, fleet.ca, tokens_of(count), patch)
        print(
            f"{count:,} Kubernetes clusters in one process, {CONFIG_MAPS + 1} objects on each:"
        )
        print(f"{'':44} {'CPU':>7} {'of a core':>10} {'goal':>6}")
        _report("first heartbeat of all", lambda: world.tick(threads=THREADS))
        place = _report(
            "rollout to all",
            lambda: world.place_everywhere(config_maps=CONFIG_MAPS, threads=THREADS),
        )
        print(f"{'':4}{1_000 * place / count:.1f} ms for each cluster")
        for name, rested, warm_up in (
            ("a minute, observed every 2 minutes", timedelta(), 3),
            ("a minute at rest, observed every 15 minutes", timedelta(hours=1), 16),
        ):
            world.rest(rested)
            _minutes(world, warm_up, ticks=1)
            world.rest(rested)
            minutes = 2
            spent = _report(
                name, lambda: _minutes(world, 2, ticks=TICKS), seconds=60 * minutes
            )
            shares.append(spent / (60 * minutes))
            silent = world.silent()
            if silent:
                sys.exit(f"{silent} clusters gave no answer")
        kubernetes_drivers.drivers.clear()
    return max(shares) > GOAL


def _minutes(world: Any, minutes: int, *, ticks: int) -> None:
    for _ in range(minutes * ticks):
        world.tick(seconds=60 // ticks, threads=THREADS)


def _report(name: str, call: Callable[[], object], *, seconds: int = 0) -> float:
    """Print the processor time of a call, and its share of so many seconds."""
    before = time.process_time()
    call()
    spent = time.process_time() - before
    share = f"{spent / seconds:>10.1%} {GOAL:>6.0%}" if seconds else ""
    print(f"{name:44} {spent:>5.1f} s {share}", flush=True)
    return spent


if __name__ == "__main__":
    main()
