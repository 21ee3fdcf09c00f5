"""Dry runs on the clusters: an edit is rendered as saving it would, and the API servers try it.

The edit is applied in a transaction that is rolled back; no transaction is open while clusters are called.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from http import HTTPStatus
from threading import BoundedSemaphore
from time import monotonic
from typing import Any

from django.contrib.auth.models import User

from clusters.driver_factory import driver_for, wall_clock
from clusters.drivers.base import (
    REPORTED,
    DiffResult,
    DriverError,
    DriverRejected,
    DriverUnavailable,
    Refusal,
    Version,
)
from clusters.drivers.concurrency import NotCalled, call_all
from clusters.drivers.registry import ACTING_DRIVERS
from clusters.models import MemberCluster
from clusters.queries import cluster_of, load_fleet
from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.yaml import Document
from fleetui.audit import SYSTEM
from fleetui.errors import FleetError
from fleetui.threads import close_connections
from fleetui.transactions import try_out
from placements.engine.envelopes import unwrapped
from placements.engine.overrides import OverrideFailed
from placements.engine.scheduling.scheduler import schedule
from placements.explain.cluster_objects import Difference, DifferenceType, with_reason
from placements.explain.dry_runs import (
    DryRunAnswer,
    DryRunOutcome,
    DryRunResult,
    RefusedObject,
)
from placements.explain.staged_updates import override_sentence
from placements.manifests.placement import parse_placement
from placements.models import Placement, ResourceSnapshot, ResourceSnapshotPart
from placements.services.apply import apply_documents
from placements.services.fleet_events import enqueue_affected_placements
from placements.services.overrides.queries import (
    Manifests,
    applying_to,
    frozen_of,
    overridden,
)
from placements.services.resources.queries import plain_objects, selection_for
from placements.services.resources.snapshots import take_resource_snapshot
from placements.services.results import PLACEMENT
from placements.services.rollout_state import Versions, target_of
from placements.services.rollouts.call_results import MOST_OBJECTS, difference_rows
from placements.services.rollouts.worker import apply_options
from placements.services.snapshots import cycles_of
from placements.services.teams import check_placement

THREADS = 8
MOST_CLUSTERS = 50
SECONDS = 10.0
"""Time for the answers of all clusters together."""
_LAST_START = 1.0
"""No call starts so many seconds before the end, and one ends half of them before it."""
_PATIENCE = 2.0
"""Seconds that a dry run waits for another one of this process."""
_MOST_PLACEMENTS = 50
_place = BoundedSemaphore(1)


class DryRunsBusyError(FleetError):
    """This process waits for clusters already: its other threads are left to other requests."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    problem_type = "busy"
    wait = SECONDS

    def __init__(self) -> None:
        super().__init__(
            "Another dry run is waiting for its clusters; try again in a moment."
        )


def dry_run_on_clusters(
    *,
    documents: Sequence[Document] = (),
    placement: str = "",
    clusters: Sequence[str] = (),
    by: User | None,
    now: datetime,
    threads: int = THREADS,
    clock: Callable[[], datetime] = wall_clock,
) -> DryRunResult:
    """Return what the clusters answer to saving these documents, within 10 seconds; nothing is saved.

    Without documents the placement is tried as is; `clusters`: those to call, by default all that would be
    selected. No transaction may be open. Raise InvalidManifest for an edit that cannot be saved and for
    unknown clusters, DryRunsBusyError.
    """
    if placement or not documents:
        check_placement(by, placement)
    names = list(dict.fromkeys(clusters))
    known = set(
        MemberCluster.objects.filter(name__in=names).values_list("name", flat=True)
    )
    faults = [
        FieldError(
            f"clusters[{at}]",
            "bad-reference",
            f"Not found: {name[:63]!r}",
            "a member cluster",
        )
        for at, name in enumerate(names)
        if name not in known
    ]
    if faults:
        raise InvalidManifest(faults)

    def planned() -> Plan:
        plan = Plan()
        for row, selected in _placed_by(documents, placement, by=by, now=now):
            plan.add_calls(row, names or selected, now=now)
        return plan

    plan = try_out(planned)
    if not _place.acquire(timeout=_PATIENCE):
        raise DryRunsBusyError
    try:
        answers = plan.call_clusters(threads=threads, clock=clock)
    finally:
        _place.release()
    order = list(DryRunOutcome)
    answers.sort(
        key=lambda answer: (
            order.index(answer.outcome),
            answer.placement,
            answer.cluster,
        )
    )
    return DryRunResult(tuple(answers), dict(plan.not_checked), plan.left_out)


@dataclass(frozen=True, eq=False)
class DryRunCall:
    """One cluster, and what a placement would be there."""

    placement: str
    cluster: MemberCluster
    manifests: Manifests | OverrideFailed
    strategy: Mapping[str, Any] | None

    def compared(self, answer: DiffResult, *, now: datetime) -> DryRunAnswer:
        name, outcome = self.cluster.name, DryRunOutcome.UNCHANGED
        if answer.failures:
            outcome = DryRunOutcome.REFUSED
        elif answer.diffs or answer.removed:
            outcome = DryRunOutcome.CHANGED
        changes = json.loads(difference_rows((), answer.diffs, now=now) or "[]")
        return DryRunAnswer(
            self.placement,
            name,
            outcome,
            "",
            refusals=refused_objects(answer.failures),
            changes=tuple(
                Difference.of(name, DifferenceType.DIFF, row) for row in changes
            ),
            removed=tuple(map(str, answer.removed[:MOST_OBJECTS])),
            unchecked=tuple(map(str, answer.unchecked[:MOST_OBJECTS])),
            warnings=tuple(
                f"{warning.object}: {'; '.join(warning.messages)}"
                for warning in answer.warnings
                if warning.messages
            )[:MOST_OBJECTS],
        )


@dataclass
class Plan:
    """The calls of a dry run, at most 50; other clusters are counted, by driver and beyond the limit."""

    calls: list[DryRunCall] = field(default_factory=list)
    not_checked: Counter[str] = field(default_factory=Counter)
    left_out: int = 0

    def add_calls(
        self,
        placement: Placement,
        names: Sequence[str],
        *,
        now: datetime,
    ) -> None:
        target = _target(placement, now=now)
        if target is None or not target.objects_count:
            return
        overrides = applying_to(placement.full_name, target)
        versions = Versions.of(target, parse_placement(placement.document), overrides)
        parts = ResourceSnapshotPart.objects.filter(snapshot=target).order_by(
            "position"
        )
        plain = map(plain_manifest, parts.values_list("manifests", flat=True))
        manifests = tuple(one for several in plain for one in several)
        members = (
            MemberCluster.objects.filter(name__in=names)
            .select_related("credential")
            .order_by("name")
        )
        for member in members:
            if member.driver not in ACTING_DRIVERS:
                self.not_checked[member.driver or REPORTED] += 1
            elif len(self.calls) >= MOST_CLUSTERS:
                self.left_out += 1
            else:
                several = tuple(map(frozen_of, overrides.get(member.name, ())))
                rendered = overridden(manifests, several, cluster_of(member))
                if not isinstance(rendered, OverrideFailed):
                    rendered = unwrapped(rendered)
                strategy = versions.strategy_on(member.name)
                self.calls.append(
                    DryRunCall(placement.full_name, member, rendered, strategy)
                )

    def call_clusters(
        self, *, threads: int, clock: Callable[[], datetime]
    ) -> list[DryRunAnswer]:
        """Return the answers of all clusters; those that gave none in time are among them."""
        stop = monotonic() + SECONDS - _LAST_START / 2

        def diff(call: DryRunCall, manifests: Manifests) -> DiffResult:
            version = Version(
                "dry-run",
                call.placement,
                manifests,
                options=apply_options(call.strategy),
            )
            driver = driver_for(call.cluster, clock=clock)
            return driver.diff(version, as_apply=True, timeout=stop - monotonic())

        functions = {
            call: partial(diff, call, call.manifests)
            for call in self.calls
            if not isinstance(call.manifests, OverrideFailed)
        }
        called = call_all(
            functions,
            threads=threads,
            seconds=SECONDS - _LAST_START,
            patience=_LAST_START,
            at_end=close_connections,
        )
        answers: dict[
            DryRunCall, DiffResult | DriverError | NotCalled | OverrideFailed
        ] = dict(called)
        for call in self.calls:
            if isinstance(call.manifests, OverrideFailed):
                answers[call] = call.manifests
        return [
            answer_of(call, answer, now=clock()) for call, answer in answers.items()
        ]


def _placed_by(
    documents: Sequence[Document],
    name: str,
    *,
    by: User | None,
    now: datetime,
) -> Iterator[tuple[Placement, list[str]]]:
    """Save the edit, and yield the placements that it concerns with the clusters that they would be on."""
    columns = ("pk", "generation", "rollout_generation")
    before = set(Placement.objects.values_list(*columns))
    named = {name}
    if documents:
        results = apply_documents(documents, by=by, now=now, confirmed=True)
        enqueue_affected_placements()
        named |= {result.name for result in results if result.kind == PLACEMENT}
    changed = {pk for pk, *_ in set(Placement.objects.values_list(*columns)) - before}
    rows = Placement.objects.filter(deleting_since=None).order_by("full_name")
    concerned = [row for row in rows if row.pk in changed or row.full_name in named][
        :_MOST_PLACEMENTS
    ]
    for placement, cycle in cycles_of(concerned, load_fleet()):
        decision = schedule(cycle)
        bindings = (
            cycle.live_bindings if decision.is_failed else decision.bindings_after
        )
        yield (
            placement,
            sorted(binding.cluster for binding in bindings if binding.is_active),
        )


def _target(placement: Placement, *, now: datetime) -> ResourceSnapshot | None:
    if placement.pinned_snapshot is not None:
        return target_of(placement)
    objects = plain_objects(selection_for(placement).objects)
    return take_resource_snapshot(placement, objects, by=SYSTEM, now=now)


def answer_of(
    call: DryRunCall,
    answer: DiffResult | DriverError | NotCalled | OverrideFailed,
    *,
    now: datetime,
) -> DryRunAnswer:
    name = call.cluster.name
    outcome, message, columns = (
        DryRunOutcome.NOT_REACHED,
        str(answer),
        dict[str, tuple[Any, ...]](),
    )
    match answer:
        case DiffResult():
            return call.compared(answer, now=now)
        case OverrideFailed():
            outcome, message = DryRunOutcome.REFUSED, override_sentence(answer, name)
        case DriverRejected():
            columns = {"refusals": refused_objects(answer.refusals)}
            outcome = DryRunOutcome.REFUSED
            if answer.refusals:
                message = ""
        case NotCalled() | DriverUnavailable(code="timeout"):
            message = f"No answer within {SECONDS:g}s"
        case DriverUnavailable():
            message = with_reason(answer.code, message)
    return DryRunAnswer(call.placement, name, outcome, message, **columns)


def refused_objects(refusals: Sequence[Refusal]) -> tuple[RefusedObject, ...]:
    objects = []
    for refusal in refusals[:MOST_OBJECTS]:
        ref = refusal.object
        objects.append(
            RefusedObject(
                ref.group,
                ref.kind,
                ref.namespace,
                ref.name,
                refusal.code,
                refusal.message,
            )
        )
    return tuple(objects)
