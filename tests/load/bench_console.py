"""`make bench`, the running console on a database of its own, in the folder of a process."""

import sys

from tests.load.own_console import own_console


def main() -> None:
    """Measure, and print what was measured."""
    with own_console():
        _measure()


def _measure() -> None:
    from django.core.management import call_command  # noqa: PLC0415 -- only after the folder is set

    from tests.database import forget_caches, restore_migrated_rows  # noqa: PLC0415 -- as above
    from tests.load.deciding import fill, redecide  # noqa: PLC0415 -- as above
    from tests.load.observing import ROUND, join, watch  # noqa: PLC0415 -- as above
    from tests.load.rolling_out import (  # noqa: PLC0415 -- as above
        HEADING,
        clusters_with_differences,
        placed,
        placed_at_once,
        updated,
    )
    from tests.rows import NOW  # noqa: PLC0415 -- as above
    from tests.services.rollouts.world import World  # noqa: PLC0415 -- as above

    def forget_everything() -> None:
        call_command("flush", interactive=False, verbosity=0)
        restore_migrated_rows()
        forget_caches()

    print("A label change that concerns every placement, re-decided by one worker:")
    print(
        f"{'clusters':>9} {'placements':>11} {'seconds':>8} {'placements/s':>13} {'queries/placement':>18}"
    )
    fill(1000, 1000)
    for cluster in ("c00010", "c00011", "c00012"):
        found = redecide(cluster)
        if found.placements != 1000:
            sys.exit(f"{found.placements} placements were decided, not 1000")
        print(
            f"{1000:>9,} {found.placements:>11,} {found.seconds:>8.2f} {found.placements_a_second:>13.0f} "
            f"{found.queries_a_placement:>18.1f}"
        )
    print("5,000 simulated clusters, watched by one worker:")
    join(5000)
    for name, now in (("first round", NOW), ("steady round", NOW + ROUND)):
        watched = watch(now)
        print(f"{name:>21} {watched.seconds:>8.2f} s {watched.queries:>6} queries")
    print(
        "A rollout over simulated clusters, by one worker: placed everywhere, then a new version:"
    )
    print(f"{'clusters':>9} {'what':>8} {HEADING}")
    for clusters in (1000, 5000):
        forget_everything()
        world = World(clusters)
        for what, measure in (("placed", placed), ("updated", updated)):
            print(f"{clusters:>9,} {what:>8} {measure(world)}", flush=True)

    print(
        "100 rollouts at a time over 50 simulated clusters, by one worker; then a new version:"
    )
    print(f"{'clusters':>9} {'what':>8} {HEADING}")
    forget_everything()
    world = World(50)
    for what in ("placed", "updated"):
        went = updated(world) if what == "updated" else placed_at_once(world, 100)
        print(f"{50:>9,} {what:>8} {went}", flush=True)
        if wrong := clusters_with_differences():
            sys.exit(f"clusters differ from the last rollout: {wrong[:5]}")


if __name__ == "__main__":
    main()
