"""Applying documents of every kind that the hub knows, all or none: the one operation behind `apply`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from django.contrib.auth.models import User
from django.db import transaction

from clusters.operations.fleet_changes import lock_fleet
from clusters.operations.joining import CLUSTER, Wanted, put_clusters
from placements.manifests import Document, attach_lines
from placements.operations.budgets import BUDGET, save_budget
from placements.operations.emptying import Emptied, EmptiesPlacementError
from placements.operations.overrides import NOUNS, save_override
from placements.operations.placements import PLACEMENT, save_placement
from placements.operations.resources import RESOURCE, apply_resources, name_of
from placements.operations.rollouts.evictions import apply_eviction
from placements.operations.staged.approvals import APPROVAL, apply_approval
from placements.operations.staged.runs import STAGED_RUN, save_run
from placements.operations.staged.strategies import STAGED_STRATEGY, save_strategy
from placements.queries.disruptions import said_of
from placements.scheduling.door.disruption_documents import parse_disruption_budget, parse_eviction
from placements.scheduling.door.kinds import (
    APPROVAL_KIND,
    BUDGET_KIND,
    CLUSTER_OVERRIDE_KIND,
    EVICTION_KIND,
    MEMBER_KIND,
    OVERRIDE_KIND,
    PLACEMENT_KIND,
    STAGED_RUN_KIND,
    STAGED_STRATEGY_KIND,
)
from placements.scheduling.door.ocm_placement import is_ocm_placement
from placements.scheduling.door.ocm_spec import OCM_KIND
from placements.scheduling.door.override_documents import parse_cluster_override, parse_override
from placements.scheduling.door.staged_documents import (
    parse_approval_request,
    parse_staged_run,
    parse_staged_strategy,
)
from placements.scheduling.faults import Caveat, Fault, Faults
from placements.scheduling.hub.manifest import parse_manifest
from placements.scheduling.hub.objects import HubObject
from placements.scheduling.member import parse_member
from placements.scheduling.spec import parse_placement

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one document; `said` is a sentence where a word does not do."""

    kind: str
    name: str
    did: str
    caveats: tuple[Caveat, ...] = ()
    said: str = ""


@transaction.atomic
def apply_documents(
    documents: Sequence[Document], *, by: User | None, now: datetime, confirmed: bool = False
) -> list[Result]:
    """Apply resources, then member clusters, then what refers to them; the answer keeps the order given.

    `confirmed`: somebody knows which placements this unschedules everywhere. Raises Faults with those of
    every document, each with its line, else EmptiesPlacementError; then nothing has changed.
    """
    faults: list[tuple[Document, Fault]] = []
    several = len(documents) > 1
    resources = [one for one in documents if _kind(one) not in _OWN_KINDS]
    members = [one for one in documents if _kind(one) == MEMBER_KIND]
    faults += _faults_of(resources, parse_manifest, several=several)
    faults += _faults_of(members, parse_member, several=several)
    for kind, door in _DOORS.items():
        faults += _faults_of([one for one in documents if _kind(one) == kind], door.parse, several=several)
    _refuse_twice(documents, faults)
    _raise(faults)
    if members:  # before any placement, as whoever decides does: else a deadlock
        lock_fleet()
    results: dict[int, Result] = {}
    results |= _apply_resources(resources, by=by, now=now)
    results |= _put_members(members, by=by, now=now)
    results |= _save_others(documents, _Caller(by, now, confirmed=confirmed))
    return [results[id(one)] for one in documents]


@dataclass(frozen=True, slots=True)
class _Caller:
    """Who applies, when, and whether what this unschedules everywhere was confirmed."""

    by: User | None
    now: datetime
    confirmed: bool


def _save_others(documents: Sequence[Document], caller: _Caller) -> Mapping[int, Result]:
    """Save one by one what has a door of its own, kind after kind."""
    results: dict[int, Result] = {}
    emptied: list[Emptied] = []
    faults: list[tuple[Document, Fault]] = []
    several = len(documents) > 1
    for kind, door in _DOORS.items():
        for one in documents:
            if _kind(one) != kind:
                continue
            try:
                results[id(one)] = door.save(one.data, caller)
            except Faults as found:
                faults += _placed(one, found, several=several)
            except EmptiesPlacementError as found:
                emptied += found.emptied
    _raise(faults)
    if emptied:
        raise EmptiesPlacementError(emptied)
    return results


def _kind(document: Document) -> str | None:
    """Give the kind of a document; a Placement of another group than OCM's is a resource like any other."""
    kind = document.data.get("kind") if isinstance(document.data, dict) else None
    if kind == OCM_KIND and not is_ocm_placement(document.data):
        return None
    return kind if isinstance(kind, str) else None


def _faults_of(
    documents: Sequence[Document], read: Callable[[Any], object], *, several: bool
) -> list[tuple[Document, Fault]]:
    faults: list[tuple[Document, Fault]] = []
    for one in documents:
        try:
            read(one.data)
        except Faults as found:
            faults += _placed(one, found, several=several)
    return faults


def _placed(document: Document, found: Faults, *, several: bool) -> list[tuple[Document, Fault]]:
    """Say which document a fault is of, where there are several."""
    prefix = f"{_called(document)}: " if several else ""
    return [
        (document, Fault(one.path, one.code, f"{prefix}{one.message}", one.allowed, one.line))
        for one in found.faults
    ]


def _called(document: Document) -> str:
    data = document.data if isinstance(document.data, dict) else {}
    metadata = data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{data.get('kind', 'document')} {name or document.number}"


def _refuse_twice(documents: Sequence[Document], faults: list[tuple[Document, Fault]]) -> None:
    seen: set[tuple[str, ...]] = set()
    for one in documents:
        identity = _identity(one.data)
        if identity and identity in seen:
            message = f"{_called(one)} stands above already"
            faults.append((one, Fault("metadata.name", "duplicate", message, "each object once")))
        seen.add(identity)


def _identity(data: Any) -> tuple[str, ...]:
    """Give what tells objects apart, nothing for a document too odd to say."""
    metadata = data.get("metadata") if isinstance(data, dict) else None
    if not isinstance(metadata, dict):
        return ()
    group = str(data.get("apiVersion")).rpartition("/")[0]
    return group, str(data.get("kind")), str(metadata.get("namespace") or ""), str(metadata.get("name"))


def _raise(faults: list[tuple[Document, Fault]]) -> None:
    if faults:
        raise Faults(attach_lines(faults))


def _apply_resources(
    documents: Sequence[Document], *, by: User | None, now: datetime
) -> Mapping[int, Result]:
    if not documents:
        return {}
    applied = apply_resources([one.data for one in documents], by=by, now=now)
    return {
        id(document): Result(RESOURCE, name_of(HubObject.of(one.resource.content)), one.did)
        for document, one in zip(documents, applied, strict=True)
    }


def _put_members(documents: Sequence[Document], *, by: User | None, now: datetime) -> Mapping[int, Result]:
    if not documents:
        return {}
    put = put_clusters([Wanted(one.data) for one in documents], by=by, now=now)
    pairs = zip(documents, put, strict=True)
    return {id(document): Result(CLUSTER, one.name, one.did) for document, one in pairs}


def _save_override(data: Any, caller: _Caller) -> Result:
    saved = save_override(data, by=caller.by, now=caller.now)
    return Result(NOUNS[saved.override.kind], saved.override.label, saved.did)


def _save_placement(data: Any, caller: _Caller) -> Result:
    saved = save_placement(data, by=caller.by, now=caller.now, confirmed=caller.confirmed)
    return Result(PLACEMENT, saved.placement.name, saved.did, saved.caveats)


def _save_strategy(data: Any, caller: _Caller) -> Result:
    saved = save_strategy(data, by=caller.by, now=caller.now)
    return Result(STAGED_STRATEGY, saved.strategy.name, saved.did)


def _save_run(data: Any, caller: _Caller) -> Result:
    saved = save_run(data, by=caller.by, now=caller.now)
    return Result(STAGED_RUN, saved.run.name, saved.did)


def _apply_approval(data: Any, caller: _Caller) -> Result:
    return Result(APPROVAL, data["metadata"]["name"], apply_approval(data, by=caller.by, now=caller.now))


def _save_budget(data: Any, caller: _Caller) -> Result:
    saved = save_budget(data, by=caller.by, now=caller.now)
    return Result(BUDGET, saved.budget.name, saved.did)


def _evict(data: Any, caller: _Caller) -> Result:
    row, is_new = apply_eviction(data, by=caller.by, now=caller.now)
    return Result(EVICTION, str(row.name), row.outcome if is_new else UNCHANGED, said=said_of(row))


EVICTION, UNCHANGED = "eviction", "unchanged"


@dataclass(frozen=True, slots=True)
class _Door:
    """How documents of one kind are read, and saved."""

    parse: Callable[[Any], object]
    save: Callable[[Any, _Caller], Result]


_DOORS = {
    CLUSTER_OVERRIDE_KIND: _Door(parse_cluster_override, _save_override),
    OVERRIDE_KIND: _Door(parse_override, _save_override),
    PLACEMENT_KIND: _Door(parse_placement, _save_placement),
    OCM_KIND: _Door(parse_placement, _save_placement),
    BUDGET_KIND: _Door(parse_disruption_budget, _save_budget),
    EVICTION_KIND: _Door(parse_eviction, _evict),
    STAGED_STRATEGY_KIND: _Door(parse_staged_strategy, _save_strategy),
    STAGED_RUN_KIND: _Door(parse_staged_run, _save_run),
    APPROVAL_KIND: _Door(parse_approval_request, _apply_approval),
}
"""In the order of saving: what others refer to comes first."""
_OWN_KINDS = frozenset({MEMBER_KIND, *_DOORS})
