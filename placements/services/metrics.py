"""Prometheus metrics of the fleet, its placements and its work, from the database.

The rows of all hubs are counted, each with the name of its hub. The number of decisions is the key of the
newest: pruning removes only older ones.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Max, Min, Q, QuerySet
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from clusters.hub_queries import across_hubs, live_hubs
from clusters.hub_state import HubState
from clusters.models import MemberCluster
from clusters.observation import not_observed, unhealthy
from fleetui import __version__
from fleetui.broker import PERIODIC
from fleetui.hub_scope import LOCAL_HUB, in_hub
from fleetui.models import WorkerHeartbeat
from fleetui.task_queue import periodic_ages
from placements.engine.rollout.staged_run import RunStatus
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
        "Unfulfilled placements after the worst loss of each level, by the latest resilience report.",
        ("level", "variant"),
    ),
    ("hub_state", "1 for the state that a live hub is in.", ("state",)),
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
        families = {
            name: GaugeMetricFamily(f"fleetui_{name}", text, labels=("hub", *labels))
            for name, text, labels in FAMILIES
        }
        with in_hub(LOCAL_HUB):
            self._count_hub(LOCAL, families)
        for hub in live_hubs():
            with in_hub(hub.pk):
                self._count_hub(hub.name, families)
            for state in HubState:
                families["hub_state"].add_metric(
                    [hub.name, state.value], float(hub.state == state.value)
                )
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
        workers = list(
            WorkerHeartbeat.objects.order_by("queue").values_list(
                "queue", "at", "waiting"
            )
        )
        ages = [(queue, self._seconds_since(at)) for queue, at, _ in workers]
        text = "Since the last heartbeat of a worker."
        yield _gauge("worker_heartbeat_age_seconds", text, "queue", ages)
        periodic = periodic_ages(
            WorkerHeartbeat.objects.filter(queue=PERIODIC).first(), now=self._now
        )
        both = (("sweep", periodic.sweep), ("observation", periodic.observation))
        ended = [(name, age.total_seconds()) for name, age in both if age is not None]
        text = "Since the last sweep and the last round of observation ended; missing before the first one."
        yield _gauge("periodic_age_seconds", text, "task", ended)
        text = "Updates that were due and not started at that time."
        yield _gauge(
            "worker_waiting",
            text,
            "queue",
            [(queue, waiting) for queue, _, waiting in workers],
        )
        messages = _with_counts(NotificationDelivery.objects.values_list("state"))
        yield _gauge(
            "notifications",
            "Kept messages of notifications, by state.",
            "state",
            messages,
        )
        channels = channels_with_failures().values_list("name", "failing_since")
        failing = [(name, self._seconds_since(since)) for name, since in channels]
        text = "Since a channel does not get its messages, 0 while it does."
        yield _gauge("notification_failing_seconds", text, "channel", failing)

    def _seconds_since(self, moment: datetime | None) -> float:
        return max(0.0, (self._now - moment).total_seconds()) if moment else 0.0

    def _count_hub(self, hub: str, families: dict[str, GaugeMetricFamily]) -> None:
        bring_up_to_date(now=self._now)
        verdicts = MemberCluster.objects.values_list("verdict", "driver")
        for verdict, driver, count in _with_counts(verdicts):
            families["clusters"].add_metric(
                [hub, verdict or "eligible", driver or "none"], count
            )

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

        for phase, failure, count in _with_counts(
            Binding.objects.values_list("phase", "failure")
        ):
            families["bindings"].add_metric([hub, phase, failure], count)
        codes = Binding.objects.exclude(unavailable_code="").values_list(
            "unavailable_code"
        )
        for code, count in _with_counts(codes):
            families["driver_errors"].add_metric([hub, code], count)

        running = Rollout.objects.filter(state=Rollout.State.RUNNING)
        for verdict, count in _with_counts(running.values_list("verdict")):
            families["rollouts"].add_metric(
                [hub, "rolling", verdict or "starts"], count
            )
        for status, count in _with_counts(
            StagedRun.objects.filter(ended_at=None).values_list("status")
        ):
            families["rollouts"].add_metric(
                [hub, "staged", status or RunStatus.INITIALISED], count
            )
        oldest = running.aggregate(at=Min("started_at"))["at"]
        families["oldest_rollout_seconds"].add_metric(
            [hub], self._seconds_since(oldest)
        )

        report = (
            ResilienceReport.objects.filter(completed_at__isnull=False)
            .order_by("-pk")
            .first()
        )
        for level, variants in (report.totals if report else {}).items():
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
        places = [
            (one, min(len(times) - 1, int(one * len(times))))
            for one in QUANTILES
            if times
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


def _with_counts(rows: QuerySet[Any, tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield each combination of the selected columns with its count."""
    yield from rows.annotate(count=Count("pk")).order_by()


def metrics_registry(*, now: datetime) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FleetCollector(now=now))
    return registry
