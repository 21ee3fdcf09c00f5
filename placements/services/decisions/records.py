"""Stored decisions, read back with the fleets that they were made on."""

import hashlib
import re
import threading
import zlib
from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime
from functools import cached_property, lru_cache
from operator import attrgetter
from string import hexdigits
from typing import Any

from django.db.models import Exists, F, Max, OuterRef, Q, QuerySet

from clusters.filters import withdrawn_names
from clusters.fleet import Fleet
from clusters.queries import FleetSnapshot
from fleetui.errors import FleetError, UnknownObject
from fleetui.hub_scope import LatestByHub
from placements.engine.advice.search import Advice, Suggestion, how_to_fulfil, why_not
from placements.engine.exact.record import ExactRecord, inline_search
from placements.engine.scheduling.decision import ENGINE_VERSION
from placements.engine.scheduling.decision import Decision as DecisionValue
from placements.engine.scheduling.outcome import ClusterOutcome, Outcome, Outcomes
from placements.engine.scheduling.record import (
    UnreadableRecordError,
    difference,
    pack,
    pack_fleet,
    unpack,
    unpack_fleet,
)
from placements.engine.scheduling.replay import Replay
from placements.engine.scheduling.scheduler import schedule
from placements.explain.advice import plausible, trap_sentences
from placements.explain.exact import ComparedNumber, compared_numbers
from placements.explain.lanes import LanePanel, placed_panels
from placements.explain.steps import Strip, strip_of
from placements.models import (
    CHANGES_CLUSTERS,
    Decision,
    DecisionRecord,
    FleetRecord,
    Placement,
    Rollout,
    StagedRun,
)

_ID_PREFIX = re.compile("d-[0-9a-f]{4,32}")
_MOST_ALIKE = 20
_SHORTEST_PREFIX = 4
_lock = threading.Lock()
_latest: LatestByHub[tuple[FleetSnapshot, FleetRecord]] = LatestByHub()


class UnknownDecisionError(UnknownObject):
    problem_type = "unknown-decision"

    def __init__(self, prefix: str) -> None:
        allowed = "an id, or its beginning with 4 hex digits or more, such as d-26de"
        super().__init__(f"no decision has the id {prefix[:40]!r} (allowed: {allowed})")


class UnknownInDecisionError(UnknownObject):
    problem_type = "unknown-cluster"


class AmbiguousDecisionError(FleetError):
    """Several records have ids that start like this; `ids` has the first of them."""

    problem_type = "ambiguous-id"

    def __init__(self, prefix: str, ids: tuple[str, ...]) -> None:
        super().__init__(f"several decisions start with {prefix}: write more of the id")
        self.ids = ids

    def problem_facts(self) -> dict[str, Any]:
        return {"decisions": list(self.ids)}


def fleet_record_of(view: FleetSnapshot) -> FleetRecord:
    """Return the record of a fleet, stored first if it is new or was pruned as no decision cited it."""
    with _lock:
        latest = _latest.get()
        known = latest[1] if latest is not None and latest[0] is view else None
        if known is None or not FleetRecord.objects.filter(pk=known.pk).exists():
            known = stored_fleet(view.fleet)
            _latest.put((view, known))
        return known


def stored_fleet(fleet: Fleet) -> FleetRecord:
    content = pack_fleet(fleet)
    return FleetRecord.objects.get_or_create(
        digest=hashlib.sha256(content).hexdigest(),
        defaults={"content": content, "clusters_count": len(fleet)},
    )[0]


def stored_decisions(
    decisions: Collection[DecisionValue], fleet: FleetRecord, *, now: datetime
) -> dict[str, DecisionRecord]:
    """Return the records of decisions on a stored fleet by id; those that are new are stored first."""
    ids = {decision.id for decision in decisions}
    rows = DecisionRecord.objects.defer("content")
    found = {row.decision_id: row for row in rows.filter(decision_id__in=ids)}
    new = {decision.id: decision for decision in decisions if decision.id not in found}
    if new:
        DecisionRecord.objects.bulk_create(
            [
                DecisionRecord(
                    decision_id=decision_id,
                    content=pack(decision),
                    engine=ENGINE_VERSION,
                    fleet=fleet,
                    verified_at=now,
                )
                for decision_id, decision in new.items()
            ],
            ignore_conflicts=True,  # another worker may store an equal one
        )
        found |= {row.decision_id: row for row in rows.filter(decision_id__in=new)}
    return found


@lru_cache(maxsize=4)
def fleet_of(record_id: int) -> Fleet:
    """Return a stored fleet; this process keeps the latest four."""
    return unpack_fleet(bytes(FleetRecord.objects.get(pk=record_id).content))


@lru_cache(maxsize=64)
def _decision(record_id: int) -> DecisionValue:
    record = DecisionRecord.objects.get(pk=record_id)
    return unpack(bytes(record.content), fleet_of(record.fleet_id))


def decision_of(row: Decision) -> DecisionValue:
    """Return what a cycle decided, with everything needed to replay it.

    Raise UnreadableRecordError if another engine wrote the record.
    """
    return _decision(row.record_id)


def is_readable(row: Decision) -> bool:
    return row.record.engine == ENGINE_VERSION


def reachable_records() -> QuerySet[DecisionRecord]:
    """Return the records that a decision of this hub cites: all hubs share the table."""
    is_made = Exists(Decision.objects.filter(record=OuterRef("pk")))
    return DecisionRecord.objects.filter(is_made)


def recorded(prefix: str) -> tuple[int, DecisionValue]:
    """Return the key and the content of the record with this id, or of the only one whose id starts so.

    Raise UnknownDecisionError, AmbiguousDecisionError, UnreadableRecordError.
    """
    if not _ID_PREFIX.fullmatch(prefix):
        raise UnknownDecisionError(prefix)
    alike = list(
        reachable_records()
        .filter(decision_id__startswith=prefix)
        .order_by("decision_id")
        .values_list("pk", "decision_id")[:_MOST_ALIKE]
    )
    if not alike:
        raise UnknownDecisionError(prefix)
    if len(alike) > 1:
        raise AmbiguousDecisionError(
            prefix, tuple(decision_id for _, decision_id in alike)
        )
    return alike[0][0], _decision(alike[0][0])


def fault_of(row: DecisionRecord) -> str:
    """Replay a record and return how the result differs; empty if it does not.

    Reads past the caches of this process, since the stored bytes are what is verified.
    """
    try:
        stored = unpack(bytes(row.content), unpack_fleet(bytes(row.fleet.content)))
    except (
        UnreadableRecordError,
        ValueError,
        KeyError,
        IndexError,
        zlib.error,
    ) as error:
        return f"it cannot be read: {error}"
    return difference(stored, schedule(stored.cycle))


def of_another_engine() -> list[int]:
    return sorted(
        Decision.objects.filter(
            number=F("placement__decisions_made"), placement__deleting_since=None
        )
        .exclude(record__engine=ENGINE_VERSION)
        .values_list("placement_id", flat=True)
    )


def cycles_of(record: int) -> QuerySet[Decision]:
    return (
        Decision.objects.filter(record_id=record)
        .select_related("record")
        .defer("record__content")
        .order_by("-pk")
    )


@lru_cache(maxsize=8)
def _outcomes(record_id: int) -> tuple[ClusterOutcome, ...]:
    return tuple(Outcomes(_decision(record_id)))


def outcomes_of(row: Decision) -> tuple[ClusterOutcome, ...]:
    """Return the outcome of every cluster in a cycle, by name; cached, as pages show it in pieces."""
    return _outcomes(row.record_id)


@lru_cache(maxsize=256)
def _summary(record_id: int) -> tuple[tuple[Outcome, int], ...]:
    return tuple(Outcomes(_decision(record_id)).summary())


def summary_of(row: Decision) -> dict[str, tuple[Outcome, int]]:
    """Return the outcome and the rank of every cluster in a cycle; cached, without the reasons."""
    names = decision_of(row).cycle.fleet.names
    return dict(zip(names, _summary(row.record_id), strict=True))


@lru_cache(maxsize=256)
def _panels(record_id: int) -> tuple[LanePanel, ...]:
    return placed_panels(_decision(record_id))


def panels_of(row: Decision) -> tuple[LanePanel, ...]:
    """Return the domains as a decision leaves them; cached, empty for a record of another engine."""
    return _panels(row.record_id) if is_readable(row) else ()


_FEW_STEPS, _LAST_STEPS = 6, 4
"""So many steps are all on the page of a placement; of more, its last ones."""


@lru_cache(maxsize=256)
def _last_steps(record_id: int) -> Strip | None:
    decision = _decision(record_id)
    total = decision.number_of_rounds
    if not total or not decision.cycle.policy.topology_spread_constraints:
        return None
    most = total if total <= _FEW_STEPS else _LAST_STEPS
    return strip_of(decision, total, most=most)


def last_steps(row: Decision) -> Strip | None:
    """Return the last steps of a decision with topology constraints; cached likewise."""
    return _last_steps(row.record_id) if is_readable(row) else None


@lru_cache(maxsize=256)
def exact_of(record_id: int) -> ExactRecord | None:
    """Return the exact search of an unfulfilled decision; None where it is not fast enough for a page."""
    return inline_search(_decision(record_id))


@lru_cache(maxsize=256)
def _problems(record_id: int) -> tuple[str, ...]:
    return tuple(trap_sentences(_decision(record_id), exact=exact_of(record_id)))


def problems_of(row: Decision) -> tuple[str, ...]:
    """Return sentences on what an unfulfilled or surprising cycle ran into.

    Cached, since finding out takes scheduler runs. Empty for a record of another engine.
    """
    return _problems(row.record_id) if is_readable(row) else ()


@lru_cache(maxsize=256)
def _fixes(record_id: int) -> tuple[Suggestion, ...]:
    exact = exact_of(record_id)
    if exact is not None and exact.is_possible:
        return ()  # the policy can be satisfied as it is
    return tuple(plausible(how_to_fulfil(_decision(record_id))))


def fixes_of(row: Decision) -> tuple[Suggestion, ...]:
    """Return the single changes that would fulfil the placement; cached likewise."""
    fixes = _fixes(row.record_id) if is_readable(row) else ()
    return fixes and in_service(fixes)


def in_service(
    suggestions: Iterable[Suggestion], *clusters: str
) -> tuple[Suggestion, ...]:
    """Leave out what is about clusters that are cordoned or leave the fleet today, or would select one."""
    away = set(withdrawn_names())
    return tuple(
        suggestion
        for suggestion in suggestions
        if away.isdisjoint(
            (*clusters, suggestion.change.facts.get("cluster"), *suggestion.gains)
        )
    )


def advice_today(advice: Advice) -> Advice:
    kept = in_service((*advice.helps, *advice.fails), advice.outcome.cluster)
    return replace(
        advice,
        helps=tuple(suggestion for suggestion in kept if suggestion.helps),
        fails=tuple(suggestion for suggestion in kept if not suggestion.helps),
    )


@lru_cache(maxsize=64)
def _advice(record_id: int, cluster: str) -> Advice:
    return why_not(_decision(record_id), cluster)


def id_prefix(text: str) -> str:
    """Return how an id starts, as `decisions_named` reads a prefix; "" for another text."""
    digits = text.lower().removeprefix("d-")
    return (
        f"d-{digits}"
        if len(digits) >= _SHORTEST_PREFIX and set(digits) <= set(hexdigits)
        else ""
    )


def records_named(prefix: str, *, most: int = 20) -> list[int]:
    """Return the keys of the records whose ids start so, as `decisions_named` reads a prefix."""
    start = id_prefix(prefix)
    if not start:
        return []
    return list(
        reachable_records()
        .filter(decision_id__startswith=start)
        .order_by("decision_id")
        .values_list("pk", flat=True)[:most]
    )


def decisions_named(prefix: str, *, most: int = 20) -> list[Decision]:
    """Return the latest cycle of each decision whose id starts so; the prefix `d-` may be left out.

    A prefix has 4 hex digits or more; a shorter one, or another text, finds nothing.
    """
    decisions = Decision.objects.filter(record__in=records_named(prefix, most=most))
    rows = Decision.objects.filter(
        pk__in=decisions.values("record").annotate(latest=Max("pk")).values("latest")
    ).select_related("record", "placement", "hub_decision__fleet_version")
    rows = rows.defer("record__content", "placement__document")
    return list(rows.order_by("record__decision_id"))


def readable_decisions(placement: Placement) -> QuerySet[Decision]:
    """Return the decisions that this engine can read, the newest first."""
    rows = Decision.objects.filter(placement=placement, record__engine=ENGINE_VERSION)
    rows = rows.select_related("record").defer("record__content")
    return rows.order_by("-number")


def latest_decision(placement: Placement) -> Decision | None:
    return readable_decisions(placement).first()


def ranking_decision(placement: Placement, latest: Decision | None) -> Decision | None:
    """Return the decision that explains the clusters: the last one to change them under the same policy.

    Where another policy kept them all without a ranking, it is the last one to change them.
    """
    if (
        latest is None
        or latest.number == 1
        or latest.joins_count
        or latest.leaves_count
    ):
        return latest
    rows = readable_decisions(placement).filter(
        CHANGES_CLUSTERS, number__lt=latest.number
    )
    decision = rows.filter(
        policy_number=latest.policy_number, wanted=latest.wanted
    ).first()
    return decision or (rows.first() if latest.is_fulfilled else None) or latest


def run_after(row: Decision) -> Rollout | StagedRun | None:
    """Return the run that rolled a decision out; None if there was none yet.

    Of rolling updates it is the one in progress then, or the next. A staged run fixes what was decided when
    it starts, so it is the first that was created since, or that waited for this decision.
    """
    if row.placement_id is None:
        return None
    rollouts = Rollout.objects.filter(placement=row.placement_id).defer(
        "sync_result", "waves"
    )
    in_progress = Q(ended_at__isnull=True) | Q(ended_at__gte=row.created_at)
    rolling = rollouts.filter(in_progress).order_by("number").first()

    since = Q(created_at__gte=row.created_at)
    earlier = Decision.objects.filter(placement=row.placement_id, number__lt=row.number)
    if not earlier.filter(policy_number=row.policy_number).exists():
        since |= Q(plan__policy_snapshot=str(row.policy_number))
    staged_runs = StagedRun.objects.filter(placement=row.placement_id)
    staged_runs = staged_runs.defer(*StagedRun.LONG_COLUMNS)
    staged = staged_runs.filter(since).order_by("pk").first()

    return min(
        [run for run in (rolling, staged) if run is not None],
        key=attrgetter("began_at"),
        default=None,
    )


class DecisionView:
    """One decision as pages show it: the record is unpacked once, and each fact derived once."""

    def __init__(self, row: Decision) -> None:
        self.row = row

    @cached_property
    def value(self) -> DecisionValue:
        return decision_of(self.row)

    @cached_property
    def replay(self) -> Replay:
        return Replay(self.value)

    @cached_property
    def outcomes(self) -> tuple[ClusterOutcome, ...]:
        return outcomes_of(self.row)

    @cached_property
    def problems(self) -> tuple[str, ...]:
        return problems_of(self.row)

    @cached_property
    def exact(self) -> ExactRecord | None:
        has_search = is_readable(self.row) and not self.row.is_fulfilled
        return exact_of(self.row.record_id) if has_search else None

    @property
    def compared_numbers(self) -> list[ComparedNumber]:
        return compared_numbers(self.exact) if self.exact else []

    @cached_property
    def fixes(self) -> tuple[Suggestion, ...]:
        return fixes_of(self.row)

    @cached_property
    def rollout(self) -> Rollout | StagedRun | None:
        return run_after(self.row)

    def advice(self, cluster: str) -> Advice:
        """Return why a cluster has its outcome, and what would change that.

        Raise KeyError for one outside the fleet.
        """
        return advice_today(_advice(self.row.record_id, cluster))
