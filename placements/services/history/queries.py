"""The history of a placement: its snapshots and decisions in one list, and older policies as manifests."""

import json
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from typing import Any

from django.db.models import Max, QuerySet

from fleetui.apimachinery.model import DEFAULT_SEMANTICS
from fleetui.models import Event
from fleetui.pagination import BadCursorError
from placements.manifests.ocm import SPREAD_OPTIONS_ANNOTATION
from placements.manifests.placement import SEMANTICS_ANNOTATION, is_ocm_placement
from placements.models import CHANGES_CLUSTERS, Decision, Placement, PolicySnapshot, ResourceSnapshot

Document = dict[str, Any]


class EntryKind(StrEnum):
    """What a line of the history is about."""

    POLICY = "policy"
    RESOURCES = "resources"
    DECISION = "decision"


_RANKS = {EntryKind.POLICY: 1, EntryKind.RESOURCES: 2, EntryKind.DECISION: 3}
"""Of what was created at the same time, the decision stands above the policy that it followed from."""
_TITLES = {EntryKind.POLICY: "policy #", EntryKind.RESOURCES: "resources r", EntryKind.DECISION: "decision "}


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One line of the history, and the row of the same kind before it, if that is still kept."""

    kind: EntryKind
    row: PolicySnapshot | ResourceSnapshot | Decision
    before: PolicySnapshot | ResourceSnapshot | Decision | None

    @property
    def key(self) -> str:
        """Its key in an address: `p3`, `s3`, or the id of the decision."""
        if isinstance(self.row, Decision):
            return self.row.record.decision_id
        return f"{'p' if self.kind is EntryKind.POLICY else 's'}{self.row.number}"

    @property
    def title(self) -> str:
        """What it is and its number: "policy #3", "resources r2", "decision 7"."""
        return f"{_TITLES[self.kind]}{self.row.number}"

    @property
    def position(self) -> tuple[datetime, int, int]:
        return self.row.created_at, _RANKS[self.kind], self.row.number

    @property
    def cursor(self) -> str:
        at, rank, number = self.position
        return f"{at.isoformat()}~{rank}~{number}"


@dataclass(frozen=True, slots=True)
class PlacementHistory:
    """One page, newest first, and the cursor of the next; None at the end."""

    entries: list[HistoryEntry]
    after: str | None


@dataclass(frozen=True, slots=True)
class PolicyRestore:
    """The manifest with an older policy, None where it is not recorded; `is_current`: it changes nothing."""

    manifest: Document | None
    is_current: bool


def history_of(
    placement: Placement, *, size: int, after: str | None = None, is_folded: bool = False
) -> PlacementHistory:
    """Return one page of the history of a placement; `is_folded` without decisions that changed no cluster.

    Raise BadCursorError.
    """
    decisions = placement.decisions.select_related("record").defer("record__content")
    tables: tuple[tuple[EntryKind, QuerySet[Any]], ...] = (
        (EntryKind.POLICY, placement.policy_snapshots.all()),
        (EntryKind.RESOURCES, placement.resource_snapshots.all()),
        (EntryKind.DECISION, decisions.filter(CHANGES_CLUSTERS) if is_folded else decisions),
    )
    position = None if after is None else _parse_cursor(after)
    entries: list[HistoryEntry] = []
    for kind, rows in tables:
        below = rows
        if position is not None:
            at, rank, number = position
            below = rows.filter(created_at__lte=at)
            if _RANKS[kind] >= rank:
                below = below.exclude(created_at=at, number__gte=number if _RANKS[kind] == rank else 0)
        # One more than needed for the row before the last, and one to know whether there is a next page.
        newest = below.order_by("-created_at", "-number")[: size + 2]
        entries += [HistoryEntry(kind, row, before) for row, before in pairwise([*newest, None]) if row]
    entries.sort(key=lambda entry: entry.position, reverse=True)
    page = entries[:size]
    return PlacementHistory(page, page[-1].cursor if len(entries) > size else None)


def cursor_above(placement: Placement, number: int) -> str | None:
    """Return the cursor of the page that begins with a policy; None where that is no longer kept."""
    row = placement.policy_snapshots.filter(number=number).first()
    return f"{row.created_at.isoformat()}~{_RANKS[EntryKind.POLICY]}~{number + 1}" if row else None


def _parse_cursor(cursor: str) -> tuple[datetime, int, int]:
    at, _, rest = cursor.partition("~")
    rank, _, number = rest.partition("~")
    if not (rank.isdecimal() and number.isdecimal() and len(rest) < 12):
        raise BadCursorError
    try:
        moment = datetime.fromisoformat(at)
        if moment.tzinfo is None:
            raise BadCursorError
        return moment.astimezone(UTC), int(rank), int(number)
    except (ValueError, OverflowError) as error:
        raise BadCursorError from error


def policy_restores(placement: Placement, snapshots: Iterable[PolicySnapshot]) -> dict[int, PolicyRestore]:
    """Return what restoring each of these policy snapshots would bring to the editor, by their numbers."""
    older = list(snapshots)
    # A live hub may have a policy of a newer API.
    latest = placement.policy_snapshots.filter(is_latest=True).first()
    numbers = numbers_under(placement, [one.number for one in older])
    return {
        one.number: PolicyRestore(
            manifest_with(placement, one, numbers[one.number]),
            is_current=latest is not None
            and one.content_hash == latest.content_hash
            and numbers[one.number] == placement.number_of_clusters,
        )
        for one in older
    }


def number_restores(placement: Placement, decisions: Iterable[Decision]) -> dict[int, Document]:
    """Return manifests with the policy and number of clusters of decisions, by the number of the decision.

    Another number of clusters makes no policy snapshot, so these are the decisions that restoring their
    policy would not bring back.
    """
    several = [one for one in decisions if one.wanted is not None]
    policies = {one.policy_number for one in several}
    snapshots = {one.number: one for one in placement.policy_snapshots.filter(number__in=policies)}
    last = numbers_under(placement, list(snapshots))
    found = {}
    for one in several:
        snapshot = snapshots.get(one.policy_number)
        number = last.get(one.policy_number)
        restored = placement.number_of_clusters if snapshot and snapshot.is_latest else number
        if (
            snapshot
            and one.wanted != restored
            and (manifest := manifest_with(placement, snapshot, one.wanted))
        ):
            found[one.number] = manifest
    return found


def manifest_with(placement: Placement, snapshot: PolicySnapshot, number: int | None) -> Document | None:
    """Return today's manifest with the policy of a snapshot, for a number of clusters.

    None where it is not recorded any more. The policy of a ClusterResourcePlacement is one part of it and can
    be written from the snapshot. That of a Placement of OCM is all of its spec, in other words than the
    snapshot's, and comes from its last save.
    """
    document = deepcopy(placement.document)
    if not is_ocm_placement(document):
        wanted = {} if number is None else {"numberOfClusters": number}
        document["spec"]["policy"] = {**snapshot.policy, **wanted}
        semantics = "" if snapshot.semantics == DEFAULT_SEMANTICS else snapshot.semantics
        options = json.dumps(snapshot.options) if snapshot.options else ""
        return _annotated(document, {SEMANTICS_ANNOTATION: semantics, SPREAD_OPTIONS_ANNOTATION: options})

    before = saved_until(placement, snapshot.created_at)
    if before is None:
        return None
    document["spec"] = deepcopy(before["spec"])
    if number is not None:
        document["spec"]["numberOfClusters"] = number
    options = (before["metadata"].get("annotations") or {}).get(SPREAD_OPTIONS_ANNOTATION, "")
    return _annotated(document, {SPREAD_OPTIONS_ANNOTATION: options})


def _annotated(document: Document, annotations: dict[str, str]) -> Document:
    kept = {**(document["metadata"].pop("annotations", None) or {}), **annotations}
    if notes := {key: text for key, text in kept.items() if text or key not in annotations}:
        document["metadata"]["annotations"] = notes
    return document


def saved_until(placement: Placement, moment: datetime) -> Document | None:
    """Return the manifest as it was saved last until then, None where that is not recorded any more."""
    saved = Event.objects.filter(kind="placement", name=placement.full_name, verb__in=("created", "changed"))
    within = saved.filter(at__gte=placement.created_at, at__lte=moment, after__isnull=False)
    event = within.order_by("-id").first()
    return event.after if event else None


def numbers_under(placement: Placement, policies: Sequence[int]) -> dict[int, int | None]:
    """Return numberOfClusters as it was last under each policy; another number makes no policy snapshot."""
    decisions = placement.decisions.filter(policy_number__in=policies)
    last = decisions.values("policy_number").annotate(last=Max("number")).values("last")
    rows = placement.decisions.filter(number__in=last).values_list("policy_number", "wanted")
    return dict.fromkeys(policies, placement.number_of_clusters) | dict(rows)


def decisions_under(placement: Placement, number: int) -> QuerySet[Decision]:
    decisions = placement.decisions.filter(policy_number=number).order_by("-number")
    return decisions.select_related("record").defer("record__content")
