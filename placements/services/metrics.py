"""Prometheus metrics of the fleet, its placements and its work, from the database.

The rows of all hubs are counted, each with the name of its hub. The number of decisions is the key of the
newest: pruning removes only older ones.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path
from shutil import disk_usage
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import Count, Max, Min, Q, QuerySet
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from clusters.fleet import EligibilityKind
from clusters.hub_queries import across_hubs, live_hubs
from clusters.hub_state import HubState
from clusters.models import MemberCluster
from clusters.observation import not_observed, unhealthy
from fleetui import __version__
from fleetui.broker import PERIODIC, UPDATES
from fleetui.hub_scope import LOCAL_HUB, in_hub
from fleetui.models import WorkerHeartbeat
from placements.engine.rollout.actions import RunPhase
from placements.engine.rollout.staged_run import RunStatus
from placements.engine.rollout.state import Phase
from placements.models import (
    UNFULFILLED,
    Binding,
    Decision,
    NotificationDelivery,
    Placement,
    ResilienceReport,
    Rollout,
    StagedRun,
)
from placements.services.health import IS_DEGRADED
from placements.services.problems.book import bring_up_to_date
from placements.services.workqueue import IS_DUE, channels_with_failures

LOCAL = "local"
RECENT = timedelta(minutes=5)
QUANTILES = (0.5, 0.95, 1.0)
MOST_CYCLES = 10_000


FAMILIES = (
    (
        "clusters",
        "Member clusters by eligibility and driver.",
        ("eligibility", "driver"),
    ),
    ("clusters_not_observed", "Member clusters whose last observation is too old.", ()),
    (
        "clusters_unhealthy",
        "Clusters that report themselves unhealthy and can still be selected.",
        (),
    ),
    ("placements", "Placements: all, and those in a state that matters.", ("state",)),
    (
        "bindings",
        "Placements on clusters, by phase and kind of failure.",
        ("phase", "failure"),
    ),
    (
        "driver_errors",
        "Placements on clusters whose last call got no answer, by reason.",
        ("code",),
    ),
    ("rollouts", "Rollouts in progress, by kind and state.", ("kind", "state")),
    (
        "oldest_rollout_seconds",
        "Age of the oldest rollout in progress, 0 without one.",
        (),
    ),
    (
        "irreproducible_decisions",
        "Decisions that gave another result when decided again.",
        (),
    ),
    (
        "resilience_unfulfilled_placements",
        "Unfulfilled placements after the worst loss of each level, by the latest resilience report; 0 without one.",
        ("level", "variant"),
    ),
    (
        "hub_state",
        "1 for the state that a hub is in; the local hub is live.",
        ("state",),
    ),
)
"""The metrics of each hub: name, text, and labels after that of the hub."""


class FleetCollector(Collector):
    """Reads everything at each scrape; about ten statements for each hub."""

    def __init__(self, *, now: datetime) -> None:
        self._now = now

    def collect(self) -> Iterator[Metric]:
        yield _gauge(
            "info", "The version of the console.", "version", [(__version__, 1)]
        )
        yield from self._work()
        yield from _disks()
        families = {
            name: GaugeMetricFamily(f"fleetui_{name}", text, labels=("hub", *labels))
            for name, text, labels in FAMILIES
        }
        with in_hub(LOCAL_HUB):
            self._count_hub(LOCAL, HubState.LIVE, families)
        for hub in live_hubs():
            with in_hub(hub.pk):
                self._count_hub(hub.name, hub.state, families)
        yield from families.values()
        with across_hubs():
            counter = CounterMetricFamily(
                "fleetui_decisions", "Decisions made since the first start."
            )
            counter.add_metric(
                [], Decision.objects.aggregate(newest=Max("pk"))["newest"] or 0
            )
            yield counter
            yield self._cycles()

    def _work(self) -> Iterator[Metric]:
        """Yield the work of the local hub: live hubs decide and roll out elsewhere."""
        with in_hub(LOCAL_HUB):
            calls = Binding.objects.filter(
                next_call_at__lte=self._now, call_lease_expires_at=None
            )
            due = [
                ("placements", Placement.objects.filter(IS_DUE).count()),
                ("cluster calls", calls.count()),
            ]
        yield _gauge(
            "work_due", "Rows whose work is due, by kind of work.", "kind", due
        )
        # Nothing has happened since then where nothing has happened yet.
        created_at = MigrationRecorder(connection).migration_qs.aggregate(
            at=Min("applied")
        )["at"]
        heartbeats = WorkerHeartbeat.objects.in_bulk()
        ages = {queue: self._seconds_since(created_at) for queue in (UPDATES, PERIODIC)}
        ages |= {
            queue: self._seconds_since(row.at) for queue, row in heartbeats.items()
        }
        text = "Since the last heartbeat of a worker, or since the database was made."
        yield _gauge("worker_heartbeat_age_seconds", text, "queue", ages.items())
        periodic = heartbeats.get(PERIODIC, WorkerHeartbeat())
        ended = [
            ("sweep", self._seconds_since(periodic.swept_at or created_at)),
            ("observation", self._seconds_since(periodic.observed_at or created_at)),
        ]
        text = "Since the last sweep and the last round of observation ended, or since the database was made."
        yield _gauge("periodic_age_seconds", text, "task", ended)
        waiting = dict.fromkeys(ages, 0)
        waiting |= {queue: row.waiting for queue, row in heartbeats.items()}
        text = "Updates that were due and not started at that time."
        yield _gauge("worker_waiting", text, "queue", waiting.items())
        messages = _counts(
            NotificationDelivery.objects.values_list("state"),
            product(NotificationDelivery.State.values),
        )
        yield _gauge(
            "notifications",
            "Kept messages of notifications, by state.",
            "state",
            [(state, count) for (state,), count in messages.items()],
        )
        channels = channels_with_failures().values_list("name", "failing_since")
        failing = [(name, self._seconds_since(since)) for name, since in channels]
        text = "Since a channel does not get its messages, 0 while it does."
        none = [("", 0.0)]
        yield _gauge("notification_failing_seconds", text, "channel", failing or none)

    def _seconds_since(self, moment: datetime | None) -> float:
        return max(0.0, (self._now - moment).total_seconds()) if moment else 0.0

    def _count_hub(
        self, hub: str, hub_state: str, families: dict[str, GaugeMetricFamily]
    ) -> None:
        bring_up_to_date(now=self._now)
        for possible in HubState:
            is_current = float(possible == hub_state)
            families["hub_state"].add_metric([hub, possible], is_current)

        verdicts = _counts(
            MemberCluster.objects.values_list("verdict", "driver"),
            product(("eligible", *EligibilityKind), ("none",)),
            empty=("eligible", "none"),
        )
        _add(families["clusters"], [hub], verdicts)
        unobserved = MemberCluster.objects.filter(not_observed(now=self._now)).count()
        families["clusters_not_observed"].add_metric([hub], unobserved)
        ill = MemberCluster.objects.filter(unhealthy(now=self._now)).count()
        families["clusters_unhealthy"].add_metric([hub], ill)
        rows = Placement.objects.aggregate(
            all=Count("pk"),
            degraded=Count("pk", filter=IS_DEGRADED),
            unfulfilled=Count("pk", filter=UNFULFILLED),
            paused=Count("pk", filter=Q(paused_since__isnull=False)),
            deleting=Count("pk", filter=Q(deleting_since__isnull=False)),
        )
        for state, count in rows.items():
            families["placements"].add_metric([hub, state], count)

        phases = Binding.objects.values_list("phase", "failure")
        _add(families["bindings"], [hub], _counts(phases, product(Phase, ("",))))
        codes = Binding.objects.exclude(unavailable_code="").values_list(
            "unavailable_code"
        )
        known_codes = product(("refused", "timeout"))
        _add(families["driver_errors"], [hub], _counts(codes, known_codes))

        running = Rollout.objects.filter(state=Rollout.State.RUNNING)
        rolling = _counts(
            running.values_list("verdict"), product(RunPhase), empty=(RunPhase.STARTS,)
        )
        _add(families["rollouts"], [hub, "rolling"], rolling)
        staged = _counts(
            StagedRun.objects.filter(ended_at=None).values_list("status"),
            product(RunStatus),
            empty=(RunStatus.INITIALISED,),
        )
        _add(families["rollouts"], [hub, "staged"], staged)
        families["oldest_rollout_seconds"].add_metric(
            [hub], self._seconds_since(running.aggregate(at=Min("started_at"))["at"])
        )

        report = (
            ResilienceReport.objects.filter(completed_at__isnull=False)
            .order_by("-pk")
            .first()
        )
        nothing: dict[str, Any] = {"": {"": {}}}
        totals = report.totals if report else nothing
        for level, variants in totals.items():
            for variant, worst in variants.items():
                count = worst.get("unfulfilled", {}).get("count", 0)
                families["resilience_unfulfilled_placements"].add_metric(
                    [hub, level, variant], count
                )

        errors = Decision.objects.exclude(record__fault="")
        families["irreproducible_decisions"].add_metric(
            [hub], errors.values("record").distinct().count()
        )

    def _cycles(self) -> Metric:
        """Return how long the last scheduling cycles took that decided something, at most 10,000."""
        recent = Decision.objects.filter(created_at__gt=self._now - RECENT).order_by(
            "-pk"
        )
        times = sorted(recent.values_list("milliseconds", flat=True)[:MOST_CYCLES])
        times = times or [0]
        places = [
            (quantile, min(len(times) - 1, int(quantile * len(times))))
            for quantile in QUANTILES
        ]
        samples = [(f"{quantile:g}", times[at] / 1000) for quantile, at in places]
        text = "Duration of the scheduling cycles of the last five minutes; quantile 1 is the longest."
        return _gauge("scheduling_cycle_seconds", text, "quantile", samples)


def _gauge(
    name: str, text: str, label: str, values: Iterable[tuple[Any, ...]]
) -> Metric:
    """Return a metric with one label: pairs of a value of the label, and a number."""
    family = GaugeMetricFamily(f"fleetui_{name}", text, labels=[label])
    for value, number in values:
        family.add_metric([value], number)
    return family


def _counts(
    rows: QuerySet[Any, tuple[Any, ...]],
    known: Iterable[tuple[str, ...]],
    *,
    empty: tuple[str, ...] = ("", ""),
) -> dict[tuple[str, ...], int]:
    """Return the count of each combination of the selected columns, and 0 of a known one without rows.

    A series that appears with its first row has no rate, and an alert on it no value. `empty` names what an
    empty column means.
    """
    counts = dict.fromkeys(known, 0)
    for *values, count in rows.annotate(count=Count("pk")).order_by():
        key = tuple(value or word for value, word in zip(values, empty, strict=False))
        counts[key] = counts.get(key, 0) + count
    return counts


def _add(
    family: GaugeMetricFamily, first: list[str], counts: dict[tuple[str, ...], int]
) -> None:
    """Add samples whose other labels are the keys of the counts."""
    for labels, count in counts.items():
        family.add_metric([*first, *labels], count)


def _disks() -> Iterator[Metric]:
    """Yield size and free space of the disk of the data folder, and of that of a database in a file."""
    folders = {"data": settings.VAR_DIR}
    if connection.vendor == "sqlite":
        folders["database"] = Path(connection.settings_dict["NAME"]).parent
    usage = {place: disk_usage(folder) for place, folder in folders.items()}
    free = [(place, one.free) for place, one in usage.items()]
    yield _gauge("disk_free_bytes", "Free space of the disk.", "place", free)
    size = [(place, one.total) for place, one in usage.items()]
    yield _gauge("disk_size_bytes", "Size of the disk.", "place", size)


def metrics_registry(*, now: datetime) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FleetCollector(now=now))
    return registry
