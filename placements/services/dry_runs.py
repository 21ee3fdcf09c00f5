"""Dry runs on the clusters: an edit is rendered as saving it would, and the API servers try it.

The edit is applied in a transaction that is rolled back; no transaction is open while clusters are called.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from clusters.driver_factory import driver_for, wall_clock
from clusters.drivers.base import DiffResult, DriverError, DriverRejected, DriverUnavailable, Refusal, Version
from clusters.drivers.concurrency import NotCalled, call_all
from clusters.drivers.registry import ACTING_DRIVERS, REPORTED
from clusters.hubs.dispatch import on_live_hub, refuse_local
from clusters.models import MemberCluster
from clusters.queries import cluster_of, load_fleet
from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.audit import SYSTEM, actor_name
from fleetui.permissions import may_change
from fleetui.task_queue import enqueue
from fleetui.threads import close_connections
from fleetui.transactions import try_out
from placements.engine.envelopes import unwrapped
from placements.engine.overrides import OverrideFailed
from placements.engine.scheduling.scheduler import schedule
from placements.explain.cluster_objects import with_reason
from placements.explain.dry_runs import DryRunAnswer, DryRunOutcome
from placements.explain.staged_updates import override_sentence
from placements.manifests.placement import parse_placement
from placements.models import DryRun, Placement, ResourceSnapshot, ResourceSnapshotPart
from placements.services.apply import apply_documents
from placements.services.fleet.forms import read_documents
from placements.services.fleet_events import enqueue_affected_placements
from placements.services.overrides.queries import Manifests, applying_to, frozen_of, overridden
from placements.services.resources.queries import plain_objects, selection_for
from placements.services.resources.snapshots import take_resource_snapshot
from placements.services.results import PLACEMENT
from placements.services.rollout_state import Versions, target_of
from placements.services.rollouts.call_results import MOST_OBJECTS, difference_rows
from placements.services.rollouts.worker import apply_options
from placements.services.snapshots import cycles_of
from placements.services.teams import check_placement

DRY_RUNS = "placements.tasks.run_dry_runs"
LEASE = timedelta(seconds=60)
"""The dry run of a killed worker is due again after this time."""
MOST_CLUSTERS = 50
THREADS = 8
CALL_SECONDS = 10.0
ROUND_SECONDS = 30.0
KEPT = 100
"""Number of dry runs to keep."""
_MOST_PLACEMENTS = 50


@on_live_hub(refuse_local)
def start_dry_run(
    *, manifests: str = "", placement: str = "", clusters: Sequence[str] = (), by: User | None, now: datetime
) -> DryRun:
    """Start a check by a worker of what saving these manifests would change on the clusters.

    Without manifests the placement is tried as is; `clusters`: those to check, by default all that would be
    selected. Raise InvalidManifest for text that is no YAML and for unknown clusters.
    """
    documents = read_documents(manifests) if manifests else []
    if documents and not may_change(by):
        # Whether the user may apply them; what is invalid is reported by the worker.
        with suppress(InvalidManifest):
            try_out(partial(apply_documents, documents, by=by, now=now, confirmed=True))
    if placement or not documents:
        check_placement(by, placement)
    names = list(dict.fromkeys(clusters))
    known = set(MemberCluster.objects.filter(name__in=names).values_list("name", flat=True))
    faults = [
        FieldError(f"clusters[{at}]", "bad-reference", f"Not found: {name[:63]!r}", "a member cluster")
        for at, name in enumerate(names)
        if name not in known
    ]
    if faults:
        raise InvalidManifest(faults)
    with transaction.atomic():
        row = DryRun.objects.create(
            placement_name=placement,
            manifests=manifests,
            clusters=names,
            created_at=now,
            created_by=actor_name(by),
            run_at=now,
        )
        DryRun.objects.filter(pk__lte=row.pk - KEPT).delete()
        enqueue(DRY_RUNS)
    return row


def is_due(*, now: datetime) -> bool:
    return DryRun.objects.filter(run_at__lte=now).exists()


def run_due(*, now: datetime, threads: int = THREADS, clock: Callable[[], datetime] = wall_clock) -> int:
    """Run the oldest dry run that is due and that no other worker has claimed; return 0 or 1."""
    row = DryRun.objects.filter(run_at__lte=now).order_by("run_at", "pk").first()
    if row is None or not DryRun.objects.filter(pk=row.pk, run_at=row.run_at).update(run_at=now + LEASE):
        return 0
    results: list[dict[str, Any]] = []
    faults: list[str] = []
    plan = Plan()
    try:
        plan = plan_dry_run(row, now=now)
    except InvalidManifest as invalid:
        faults = list(map(str, invalid.errors))
    functions = {
        one: partial(_diff, one, clock) for one in plan.calls if not isinstance(one.manifests, OverrideFailed)
    }
    answers = dict(
        call_all(
            functions,
            threads=threads,
            seconds=ROUND_SECONDS,
            patience=CALL_SECONDS,
            at_end=close_connections,
        )
    )
    for one in plan.calls:
        answer = one.manifests if isinstance(one.manifests, OverrideFailed) else answers[one]
        results.append(answer_row(one, answer, now=clock()))
    order = list(DryRunOutcome)
    results.sort(key=lambda each: (order.index(each["outcome"]), each["placement"], each["cluster"]))
    DryRun.objects.filter(pk=row.pk).update(
        run_at=None,
        ended_at=clock(),
        manifests="",
        results=results,
        faults=faults,
        not_checked=plan.not_checked,
        left_out=plan.left_out,
    )
    return 1


@dataclass(frozen=True, eq=False)
class DryRunCall:
    """One cluster, and what a placement would be there."""

    number: int
    placement: str
    cluster: MemberCluster
    manifests: Manifests | OverrideFailed
    strategy: Mapping[str, Any] | None


@dataclass
class Plan:
    """The calls of a dry run, at most 50; other clusters are counted, by driver and beyond the limit."""

    calls: list[DryRunCall] = field(default_factory=list)
    not_checked: Counter[str] = field(default_factory=Counter)
    left_out: int = 0


def plan_dry_run(row: DryRun, *, now: datetime) -> Plan:
    """Render an edit for its clusters; nothing of it is saved. Raise InvalidManifest."""

    def planned() -> Plan:
        plan = Plan()
        for placement, names in _placed_by(row, now=now):
            _add_calls(plan, row, placement, row.clusters or names, now=now)
        return plan

    return try_out(planned)


def _placed_by(row: DryRun, *, now: datetime) -> Iterator[tuple[Placement, list[str]]]:
    """Save the edit, and yield the placements that it concerns with the clusters that they would be on."""
    columns = ("pk", "generation", "rollout_generation")
    before = set(Placement.objects.values_list(*columns))
    named = {row.placement_name}
    if row.manifests:
        documents = read_documents(plain_manifest(row.manifests))
        results = apply_documents(documents, by=None, now=now, confirmed=True)
        enqueue_affected_placements()
        named |= {one.name for one in results if one.kind == PLACEMENT}
    changed = {pk for pk, *_ in set(Placement.objects.values_list(*columns)) - before}
    rows = Placement.objects.filter(deleting_since=None).order_by("full_name")
    concerned = [one for one in rows if one.pk in changed or one.full_name in named][:_MOST_PLACEMENTS]
    for placement, cycle in cycles_of(concerned, load_fleet()):
        decision = schedule(cycle)
        bindings = cycle.live_bindings if decision.is_failed else decision.bindings_after
        yield placement, sorted(one.cluster for one in bindings if one.is_active)


def _add_calls(plan: Plan, row: DryRun, placement: Placement, names: Sequence[str], *, now: datetime) -> None:
    target = _target(placement, now=now)
    if target is None or not target.objects_count:
        return
    overrides = applying_to(placement.full_name, target)
    versions = Versions.of(target, parse_placement(placement.document), overrides)
    parts = ResourceSnapshotPart.objects.filter(snapshot=target).order_by("position")
    plain = map(plain_manifest, parts.values_list("manifests", flat=True))
    manifests = tuple(one for several in plain for one in several)
    members = MemberCluster.objects.filter(name__in=names).select_related("credential").order_by("name")
    for member in members:
        if member.driver not in ACTING_DRIVERS:
            plan.not_checked[member.driver or REPORTED] += 1
        elif len(plan.calls) >= MOST_CLUSTERS:
            plan.left_out += 1
        else:
            several = tuple(map(frozen_of, overrides.get(member.name, ())))
            rendered = overridden(manifests, several, cluster_of(member)) if several else manifests
            if not isinstance(rendered, OverrideFailed):
                rendered = unwrapped(rendered)
            strategy = versions.strategy_on(member.name)
            plan.calls.append(DryRunCall(row.pk, placement.full_name, member, rendered, strategy))


def _target(placement: Placement, *, now: datetime) -> ResourceSnapshot | None:
    if placement.pinned_snapshot is not None:
        return target_of(placement)
    objects = plain_objects(selection_for(placement).objects)
    return take_resource_snapshot(placement, objects, by=SYSTEM, now=now)


def _diff(call: DryRunCall, clock: Callable[[], datetime]) -> DiffResult:
    manifests = () if isinstance(call.manifests, OverrideFailed) else call.manifests
    version = Version(
        f"dry-run-{call.number}", call.placement, manifests, options=apply_options(call.strategy)
    )
    return driver_for(call.cluster, clock=clock).diff(version, as_apply=True, timeout=CALL_SECONDS)


def answer_row(
    call: DryRunCall, answer: DiffResult | DriverError | NotCalled | OverrideFailed, *, now: datetime
) -> dict[str, Any]:
    """Return what is stored of an answer, for `DryRunAnswer`."""
    name = call.cluster.name
    outcome, message, columns = DryRunOutcome.NOT_REACHED, str(answer), dict[str, list[Any]]()
    match answer:
        case DiffResult():
            columns = {
                "refusals": list(map(refusal_row, answer.failures[:MOST_OBJECTS])),
                "changes": json.loads(difference_rows((), answer.diffs, now=now) or "[]"),
                "removed": list(map(str, answer.removed[:MOST_OBJECTS])),
                "unchecked": list(map(str, answer.unchecked[:MOST_OBJECTS])),
                "warnings": [
                    f"{one.object}: {'; '.join(one.messages)}" for one in answer.warnings if one.messages
                ][:MOST_OBJECTS],
            }
            outcome = DryRunOutcome.CHANGED if answer.diffs or answer.removed else DryRunOutcome.UNCHANGED
            outcome, message = DryRunOutcome.REFUSED if answer.failures else outcome, ""
        case OverrideFailed():
            outcome, message = DryRunOutcome.REFUSED, override_sentence(answer, name)
        case DriverRejected():
            columns = {"refusals": list(map(refusal_row, answer.refusals[:MOST_OBJECTS]))}
            outcome, message = DryRunOutcome.REFUSED, "" if answer.refusals else message
        case DriverUnavailable():
            message = with_reason(answer.code, message)
        case NotCalled():
            message = str(answer.value)
    lists: dict[str, list[Any]] = {
        key: [] for key in ("refusals", "changes", "removed", "unchecked", "warnings")
    }
    row = {"placement": call.placement, "cluster": name, "outcome": outcome, "message": message}
    return {**row, **lists, **columns}


def refusal_row(refusal: Refusal) -> list[str]:
    return [*astuple(refusal.object), refusal.code, refusal.message]


def answers_of(row: DryRun) -> list[DryRunAnswer]:
    return [DryRunAnswer.of(one) for one in row.results]
