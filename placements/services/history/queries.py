"""The history of a placement: its snapshots and decisions in one list, and older policies as manifests."""

import json
from bisect import bisect
from collections.abc import (
    Mapping,
    Sequence,
)
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from django.db.models import (
    Case,
    Count,
    F,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
    Window,
)
from django.db.models.functions import Coalesce, Lag

from fleetui.apimachinery.grouping import grouped
from fleetui.apimachinery.model import (
    DEFAULT_SEMANTICS,
    omit_empty,
)
from fleetui.audit import events_of_life
from fleetui.hub_scope import LOCAL_HUB
from fleetui.pagination import BadCursorError
from placements.manifests.ocm import SPREAD_OPTIONS_ANNOTATION
from placements.manifests.placement import SEMANTICS_ANNOTATION, is_ocm_placement
from placements.manifests.strategy import StrategyType
from placements.models import (
    CHANGES_CLUSTERS,
    Decision,
    Placement,
    PolicySnapshot,
    ResourceSnapshot,
)

Document = dict[str, Any]
_SAVES_READ = 200
_LATER_SHOWN = 2


class EntryKind(StrEnum):
    POLICY = "policy"
    RESOURCES = "resources"
    DECISION = "decision"


_LETTERS = {EntryKind.POLICY: "p", EntryKind.RESOURCES: "s"}
_RANKS = {EntryKind.POLICY: 1, EntryKind.RESOURCES: 2, EntryKind.DECISION: 3}
"""Of what was created at the same time, the decision is listed above the policy that it followed from."""


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
        return f"{_LETTERS[self.kind]}{self.row.number}"

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


def history_of(
    placement: Placement,
    *,
    size: int,
    after: str | None = None,
    is_folded: bool = False,
) -> PlacementHistory:
    """Return one page of the history of a placement; `is_folded` without decisions that changed no cluster.

    Raise BadCursorError.
    """
    decisions = placement.decisions.select_related("record").defer("record__content")
    tables: tuple[tuple[EntryKind, QuerySet[Any]], ...] = (
        (EntryKind.POLICY, placement.policy_snapshots.all()),
        (EntryKind.RESOURCES, placement.resource_snapshots.all()),
        (
            EntryKind.DECISION,
            decisions.filter(CHANGES_CLUSTERS) if is_folded else decisions,
        ),
    )
    position = None if after is None else _parse_cursor(after)
    entries: list[HistoryEntry] = []
    for kind, rows in tables:
        below = rows
        if position is not None:
            at, rank, number = position
            below = rows.filter(created_at__lte=at)
            if _RANKS[kind] >= rank:
                below = below.exclude(
                    created_at=at, number__gte=number if _RANKS[kind] == rank else 0
                )
        # One more than needed for the row before the last, and one to know whether there is a next page.
        newest = below.order_by("-created_at", "-number")[: size + 2]
        entries += [
            HistoryEntry(kind, row, before)
            for row, before in pairwise([*newest, None])
            if row
        ]
    entries.sort(key=lambda entry: entry.position, reverse=True)
    page = entries[:size]
    return PlacementHistory(page, page[-1].cursor if len(entries) > size else None)


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


@dataclass(slots=True)
class Revision:
    """The specification of a placement from a time on: policy, number of clusters, strategy and resources.

    `number` is what every reader calls it; `changes_spec`: not only the resources changed. `fields` are those
    of the spec that are none of these, as they were saved, None where that is not recorded. `decision` is the
    first one under its policy and number of clusters, if these came with this revision.
    """

    at: datetime
    by: str
    number: int = 0
    changes_spec: bool = False
    fields: Document | None = None
    policy: int | None = None
    wanted: int | None = None
    strategy: Document | None = None
    resources: ResourceSnapshot | None = None
    decision: Decision | None = None
    spec_key: str = ""
    """The key of its policy and number in a comparison."""
    before: "Revision | None" = None

    @property
    def is_of_resources(self) -> bool:
        return self.before is not None and self.resources is not self.before.resources

    @property
    def resource_number(self) -> int:
        return self.resources.number if self.resources else 0

    def changes_since(self, before: "Revision") -> int:
        """Return how often the spec changed: more than once where older policies were pruned."""
        return max(1, (self.policy or 0) - (before.policy or 0))

    def complete(self, manifest: Document) -> Document:
        """Return a manifest that has the policy, with all else of the spec."""
        if is_ocm_placement(manifest):
            return manifest
        policy, rest = manifest["spec"]["policy"], self.fields or {}
        spec = {**rest, "policy": policy, **omit_empty(strategy=self.strategy)}
        return {**manifest, "spec": spec}

    def inherit(self, before: "Revision") -> None:
        """Take from the revision before what this one does not change."""
        if self.policy is None:
            self.policy = before.policy
        if self.decision is None and self.fields is None:
            self.wanted = before.wanted
        self.spec_key = self.spec_key or before.spec_key
        self.resources = self.resources or before.resources


def with_revision(placements: QuerySet[Placement]) -> QuerySet[Any]:
    """Return placements with `revision_with` their latest resources, as `revision_number`.

    `run_revision` is that of a staged run with these: it changes the placement to External first, which is
    a revision. `kept_snapshots` is how many resource snapshots there are.
    """
    kept = ResourceSnapshot.objects.filter(placement=OuterRef("pk")).order_by()
    number = Coalesce(Subquery(kept.filter(is_latest=True).values("number")[:1]), 0)
    rules = Case(When(hub=LOCAL_HUB, then=F("hub_changes")), default=0)
    count = kept.values("placement").values(count=Count("pk"))
    return placements.annotate(
        revision_number=F("spec_generation") + rules + number,
        run_revision=F("revision_number")
        + Case(When(strategy_type=StrategyType.EXTERNAL, then=0), default=1),
        kept_snapshots=Coalesce(Subquery(count), 0),
    )


def revision_number_of(placement: Placement) -> int:
    rows = with_revision(Placement.objects.filter(pk=placement.pk))
    number: int = rows.values_list("revision_number", flat=True).get()
    return number


def revisions_of(placement: Placement) -> list[Revision]:
    """Return all revisions of a placement that are recorded, the newest first."""
    saved = _saves_of(placement)
    by_time: dict[datetime, Revision] = {}
    by_policy: dict[int, Revision] = {}
    for snapshot in sorted(placement.policy_snapshots.all(), key=attrgetter("number")):
        revision = by_time.setdefault(
            snapshot.created_at, Revision(snapshot.created_at, snapshot.created_by)
        )
        revision.policy, revision.spec_key = snapshot.number, f"p{snapshot.number}"
        revision.changes_spec = True
        by_policy[snapshot.number] = revision
    for decision in _first_decisions(placement):
        known = by_policy.pop(decision.policy_number, None)
        if known is None:  # another number makes no policy snapshot
            changes = (
                (at, by)
                for at, by, old, new in saved
                if at <= decision.created_at
                and _number(old) != _number(new) == decision.wanted
            )
            at, by = next(changes, (decision.created_at, decision.triggered_by))
            known = by_time.setdefault(at, Revision(at, by, decision.policy_number))
            known.spec_key = decision.record.decision_id
        known.decision, known.wanted = decision, decision.wanted
        known.changes_spec = True
    strategy = _strategy_in(placement.document)
    fields = _other_fields(placement.document)
    for at, by, old, new in saved:
        if old["spec"] == new["spec"]:
            continue
        revision = by_time.setdefault(at, Revision(at, by))
        revision.changes_spec = True
        revision.strategy = _strategy_in(new)
        revision.fields = _other_fields(new)
        revision.wanted = _number(new)
        strategy = _strategy_in(old)
        fields = _other_fields(old)
    for resources in placement.resource_snapshots.order_by("number"):
        at = min(by_time) if by_time and resources.number == 0 else resources.created_at
        by_time.setdefault(at, Revision(at, resources.created_by)).resources = resources
    return _completed(by_time, strategy, fields, placement.revision_with(0))


class FurtherDecisions(NamedTuple):
    """The decisions of a revision beside the one that made it.

    `later` are the newest that changed clusters, such as by an eviction, and `more` is
    how many others did.
    A revision of resources alone has kept the clusters of the decision `kept`.
    """

    later: list[Decision]
    more: int
    kept: Decision | None


def further_decisions(
    placement: Placement, revisions: Sequence[Revision], page: Sequence[Revision]
) -> tuple[Decision | None, dict[datetime, FurtherDecisions]]:
    """Return the latest decision, and the further ones of a page by when revisions began."""
    later, kept = _further_numbers(placement, revisions, page)
    shown = [number for numbers in later.values() for number in numbers[:_LATER_SHOWN]]
    rows = (
        placement.decisions.filter(
            number__in=[placement.decisions_made, *shown, *kept.values()]
        )
        .select_related("record")
        .defer("record__content")
    )
    decisions = {row.number: row for row in rows}
    return decisions.get(placement.decisions_made), {
        at: FurtherDecisions(
            [
                decisions[number]
                for number in numbers[:_LATER_SHOWN]
                if number in decisions
            ],
            len(numbers[_LATER_SHOWN:]),
            decisions.get(kept.get(at, 0)),
        )
        for at, numbers in later.items()
    }


def _further_numbers(
    placement: Placement, revisions: Sequence[Revision], page: Sequence[Revision]
) -> tuple[dict[datetime, list[int]], dict[datetime, int]]:
    """Return the further decisions of revisions, newest first, and those they kept.

    A decision belongs to the last revision that began before it.
    """
    starts = [revision.at for revision in reversed(revisions)]
    changing = (
        placement.decisions.filter(CHANGES_CLUSTERS)
        .order_by("-number")
        .values_list("number", "created_at")
    )
    changes = grouped((bisect(starts, at), number) for number, at in changing)
    later = {
        revision.at: [
            number
            for number in changes.get(bisect(starts, revision.at), ())
            if not revision.decision or revision.decision.number != number
        ]
        for revision in page
    }
    kept = {
        revision.at: next((number for number, at in changing if at < revision.at), 0)
        for revision in page
        if not revision.changes_spec and not later[revision.at]
    }
    return later, kept


def _strategy_in(document: Document) -> Document:
    return document["spec"].get("strategy") or {}


def revision_titles(placement: Placement) -> dict[str, str]:
    """Return, by their keys, of which revisions policies and resources are: "policy of revisions 2 to 4"."""
    numbers: dict[str, list[int]] = {}
    for revision in revisions_of(placement):
        numbers.setdefault(revision.spec_key, []).append(revision.number)
        if revision.resources:
            numbers.setdefault(f"s{revision.resource_number}", []).append(
                revision.number
            )
    titles = {}
    for key, own in numbers.items():
        part = "resources" if key.startswith("s") else "policy"
        span = f"revision {own[0]}"
        if len(own) > 1:
            span = f"revisions {own[-1]} to {own[0]}"
        titles[key] = f"{part} of {span}"
    return titles


def _saves_of(placement: Placement) -> list[tuple[datetime, str, Document, Document]]:
    """Return time, author, and the manifest before and after the last saves, the newest first."""
    events = events_of_life("placement", placement.full_name)
    saves = events.filter(verb="changed", before__isnull=False, after__isnull=False)
    newest = saves.order_by("-id")[:_SAVES_READ]
    values = newest.values_list("at", "actor_name", "before", "after")
    return [(at, by, old, new) for at, by, old, new in values if old and new]


def _completed(
    by_time: Mapping[datetime, Revision],
    strategy: Document,
    fields: Document,
    generation: int,
) -> list[Revision]:
    """Return revisions, the newest first, with their numbers and what each kept of the one before.

    `strategy` and `fields` are those of the oldest, `generation` is that of the newest.
    """
    before = None
    for _, revision in sorted(by_time.items()):
        revision.before = before
        if before:
            revision.inherit(before)
        if revision.strategy is None:
            revision.strategy = strategy
        if revision.fields is None:
            revision.fields = fields
        strategy = revision.strategy
        fields = revision.fields
        before = revision
    revisions = [by_time[at] for at in sorted(by_time, reverse=True)]
    for revision in revisions:
        revision.number = generation + revision.resource_number
        if revision.changes_spec and revision.before:
            generation -= revision.changes_since(revision.before)
    return revisions


def _other_fields(document: Document) -> Document:
    """Return the fields of a spec that a revision does not have on its own."""
    if is_ocm_placement(document):
        return {}
    apart = ("policy", "strategy")
    return {key: value for key, value in document["spec"].items() if key not in apart}


def _first_decisions(placement: Placement) -> QuerySet[Decision]:
    """Return the first decision under each policy and number of clusters, the oldest first."""
    number = Coalesce("wanted", Value(-1))
    rows = placement.decisions.annotate(
        number_wanted=number,
        policy_before=Window(Lag("policy_number"), order_by="number"),
        number_before=Window(Lag(number), order_by="number"),
    )
    is_first = Q(policy_before=None) | ~Q(policy_before=F("policy_number"))
    rows = rows.filter(is_first | ~Q(number_before=F("number_wanted")))
    return rows.order_by("number").select_related("record").defer("record__content")


def _number(document: Document) -> int | None:
    spec = document["spec"]
    number: int | None = (spec.get("policy") or spec).get("numberOfClusters")
    return number


def spec_restores(
    placement: Placement, revisions: Sequence[Revision]
) -> dict[datetime, Document]:
    """Return the manifests with policy, number and strategy of revisions that differ from today's."""
    snapshots = {
        policy_snapshot.number: policy_snapshot
        for policy_snapshot in placement.policy_snapshots.all()
    }
    latest = next(
        (
            policy_snapshot
            for policy_snapshot in snapshots.values()
            if policy_snapshot.is_latest
        ),
        None,
    )
    if latest is None:
        return {}
    today = (
        latest.content_hash,
        placement.number_of_clusters,
        _strategy_in(placement.document),
        _other_fields(placement.document),
    )
    manifests = {}
    for revision in revisions:
        if revision.policy is None or revision.policy not in snapshots:
            continue
        snapshot = snapshots[revision.policy]
        wanted = revision.wanted
        if not revision.decision:
            wanted = wanted or placement.number_of_clusters
        if (snapshot.content_hash, wanted, revision.strategy, revision.fields) == today:
            continue
        if manifest := manifest_with(placement, snapshot, wanted):
            manifests[revision.at] = revision.complete(manifest)
    return manifests


def manifest_with(
    placement: Placement, snapshot: PolicySnapshot, number: int | None
) -> Document | None:
    """Return today's manifest with the policy of a snapshot, for a number of clusters.

    None where it is not recorded any more. The policy of a ClusterResourcePlacement is one part of it and can
    be written from the snapshot. That of a Placement of OCM is all of its spec, in other words than the
    snapshot's, and comes from its last save.
    """
    document = deepcopy(placement.document)
    if not is_ocm_placement(document):
        document["spec"]["policy"] = snapshot.policy_for(number)
        annotations = {SEMANTICS_ANNOTATION: "", SPREAD_OPTIONS_ANNOTATION: ""}
        if snapshot.semantics != DEFAULT_SEMANTICS:
            annotations[SEMANTICS_ANNOTATION] = snapshot.semantics
        if snapshot.options:
            annotations[SPREAD_OPTIONS_ANNOTATION] = json.dumps(snapshot.options)
        return _annotated(document, annotations)

    before = saved_until(placement, snapshot.created_at)
    if before is None:
        return None
    document["spec"] = deepcopy(before["spec"])
    if number is not None:
        document["spec"]["numberOfClusters"] = number
    options = (before["metadata"].get("annotations") or {}).get(
        SPREAD_OPTIONS_ANNOTATION, ""
    )
    return _annotated(document, {SPREAD_OPTIONS_ANNOTATION: options})


def _annotated(document: Document, annotations: dict[str, str]) -> Document:
    kept = {**(document["metadata"].pop("annotations", None) or {}), **annotations}
    if notes := {
        key: text for key, text in kept.items() if text or key not in annotations
    }:
        document["metadata"]["annotations"] = notes
    return document


def saved_until(placement: Placement, moment: datetime) -> Document | None:
    """Return the manifest as it was saved last until then, None where that is not recorded any more."""
    events = events_of_life("placement", placement.full_name)
    saves = events.filter(
        verb__in=("created", "changed"), at__lte=moment, after__isnull=False
    )
    return saves.order_by("-id").values_list("after", flat=True).first()


def decisions_under(placement: Placement, number: int) -> QuerySet[Decision]:
    return (
        placement.decisions.filter(policy_number=number)
        .order_by("-number")
        .select_related("record")
        .defer("record__content")
    )
