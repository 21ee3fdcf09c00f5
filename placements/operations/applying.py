"""Applying documents of every kind that the hub knows, all or none: the one operation behind `apply`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from django.contrib.auth.models import User
from django.db import transaction

from clusters.operations.joining import CLUSTER, Wanted, put_clusters
from placements.manifests import Document, attach_lines
from placements.operations.budgets import BUDGET, save_budget
from placements.operations.placements import PLACEMENT, save_placement
from placements.operations.resources import RESOURCE, apply_resources, name_of
from placements.operations.rollouts.evictions import apply_eviction
from placements.queries.disruptions import said_of
from placements.scheduling.door.disruption_documents import parse_disruption_budget, parse_eviction
from placements.scheduling.door.kinds import BUDGET_KIND, EVICTION_KIND, MEMBER_KIND, PLACEMENT_KIND
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
def apply_documents(documents: Sequence[Document], *, by: User | None, now: datetime) -> list[Result]:
    """Apply resources, member clusters, placements, budgets, evictions; the answer keeps the order given.

    Raises Faults with those of every document, each with its line; then nothing has changed.
    """
    faults: list[tuple[Document, Fault]] = []
    several = len(documents) > 1
    of_kind = {kind: [one for one in documents if _kind(one) == kind] for kind in (MEMBER_KIND, *_SAVERS)}
    resources = [one for one in documents if _kind(one) not in (MEMBER_KIND, *_SAVERS)]
    faults += _faults_of(resources, parse_manifest, several=several)
    faults += _faults_of(of_kind[MEMBER_KIND], parse_member, several=several)
    for kind, (read, _) in _SAVERS.items():
        faults += _faults_of(of_kind[kind], read, several=several)
    _refuse_twice(documents, faults)
    _raise(faults)
    results: dict[int, Result] = {}
    results |= _apply_resources(resources, by=by, now=now)
    results |= _put_members(of_kind[MEMBER_KIND], by=by, now=now)
    for kind, (_, save) in _SAVERS.items():
        for one in of_kind[kind]:
            try:
                results[id(one)] = save(one, by, now)
            except Faults as found:
                faults += _placed(one, found, several=several)
    _raise(faults)
    return [results[id(one)] for one in documents]


def _kind(document: Document) -> Any:
    return document.data.get("kind") if isinstance(document.data, dict) else None


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


def _save(document: Document, by: User | None, now: datetime) -> Result:
    saved = save_placement(document.data, by=by, now=now)
    return Result(PLACEMENT, saved.placement.name, saved.did, saved.caveats)


def _save_budget(document: Document, by: User | None, now: datetime) -> Result:
    saved = save_budget(document.data, by=by, now=now)
    return Result(BUDGET, saved.budget.name, saved.did)


def _evict(document: Document, by: User | None, now: datetime) -> Result:
    row, is_new = apply_eviction(document.data, by=by, now=now)
    return Result(EVICTION, str(row.name), row.outcome if is_new else UNCHANGED, said=said_of(row))


EVICTION, UNCHANGED = "eviction", "unchanged"
_SAVERS: Mapping[str, tuple[Callable[[Any], object], Callable[[Document, User | None, datetime], Result]]] = {
    PLACEMENT_KIND: (parse_placement, _save),
    BUDGET_KIND: (parse_disruption_budget, _save_budget),
    EVICTION_KIND: (parse_eviction, _evict),
}
"""How a kind is read and saved, in the order of saving."""
