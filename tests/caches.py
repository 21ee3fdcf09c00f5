"""What a process remembers, forgotten: a test removes rows and rolls back, as a running one never does."""

from clusters import queries as cluster_queries
from fleetui import changes, environment, middleware, polling
from placements.services.decisions import records


def forget_cached_fleet() -> None:
    cluster_queries._latest.clear()


def forget_problems() -> None:
    environment._met_at.clear()


def forget_budgets() -> None:
    middleware._buckets.clear()


def forget_versions() -> None:
    changes._versions.clear()


def forget_polls() -> None:
    polling._known.clear()
    polling._fragments.clear()
    forget_versions()


def forget_cached_records() -> None:
    records._latest.clear()
    for cached in (
        records.fleet_of,
        records._decision,
        records._outcomes,
        records._summary,
        records._panels,
        records._last_steps,
        records.exact_of,
        records._problems,
        records._fixes,
        records._advice,
    ):
        cached.cache_clear()
