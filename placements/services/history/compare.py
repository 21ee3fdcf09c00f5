"""Two revisions of a placement compared: its policy, its manifest, its resources, its decision."""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from operator import attrgetter
from typing import Any

from django.core.cache import caches
from django.db.models import prefetch_related_objects

from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.model import Semantics
from fleetui.apimachinery.secrets import HubObject, sanitise, without_secrets
from fleetui.apimachinery.words import counted, full_name, names_and_more
from fleetui.errors import FleetError, UnknownObject
from placements.explain.decision_diffs import DecisionDiff, decision_diff
from placements.explain.diff import (
    Piece,
    cause_words,
    document_diff,
    sentence_diff,
)
from placements.explain.vocabulary import policy_sentence
from placements.manifests.policy import PlacementPolicy
from placements.models import (
    Decision,
    Placement,
    PolicySnapshot,
    ResourceSnapshot,
    ResourceSnapshotPart,
)
from placements.services.decisions.records import decision_of, outcomes_of
from placements.services.history.queries import (
    decisions_under,
    manifest_with,
    saved_until,
)
from placements.services.snapshots import policy_of

_SNAPSHOT = re.compile(r"([ps])(\d{1,9})")
_DECISION = re.compile(r"(?:d-)?([0-9a-f]{4,32})")
Contents = dict[tuple[str, ...], Any]
_MOST_PARTS = 8
"""Resource snapshots of more parts than this, each of up to 800 KiB, are compared by name alone."""
_CHANGES_NAMED = 2


class UnknownRevisionError(UnknownObject):
    problem_type = "unknown-revision"

    def __init__(self, name: str, key: str) -> None:
        allowed = "p3 for a policy, s3 for resources, or at least 4 hex digits of the id of a decision"
        super().__init__(
            f"{name} has no revision {key[:40]!r}, or it was pruned (allowed: {allowed})"
        )


class IncomparableRevisionsError(FleetError, ValueError):
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    problem_type = "incomparable"


@dataclass(frozen=True)
class RevisionSide:
    """One of the two revisions; a policy is shown with the last decision that was made under it."""

    key: str
    title: str
    at: datetime
    by: str
    policy: PlacementPolicy | None = None
    manifest: dict[str, Any] | None = None
    decision: Decision | None = None
    snapshot: PolicySnapshot | None = None
    resources: ResourceSnapshot | None = None

    @property
    def sentence(self) -> str:
        if self.policy is None or self.snapshot is None:
            return policy_sentence(self.policy) if self.policy else ""
        return policy_sentence(
            self.policy, Semantics(self.snapshot.semantics), self.snapshot.options
        )


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """One resource that was added, removed or changed; `lines` None: the content was not compared."""

    did: str
    name: str
    lines: list[Piece] | None


@dataclass(frozen=True)
class RevisionComparison:
    """What differs between two sides; None where they have nothing of that sort to compare."""

    before: RevisionSide
    after: RevisionSide
    sentence: list[Piece] | None = None
    manifest: list[Piece] | None = None
    decision: DecisionDiff | None = None
    resources: list[ResourceChange] | None = None
    same_resources: int = 0

    @property
    def sides(self) -> tuple[RevisionSide, RevisionSide]:
        return self.before, self.after


def compare(placement: Placement, before: str, after: str) -> RevisionComparison:
    """Compare two snapshots or decisions. Raise UnknownRevisionError, IncomparableRevisionsError."""
    old, new = side_of(placement, before), side_of(placement, after)
    if (old.resources is None) != (new.resources is None):
        raise IncomparableRevisionsError(
            "resource snapshots can only be compared with resource snapshots"
        )
    if old.resources and new.resources:
        has_content = (
            old.resources.parts.count() + new.resources.parts.count() <= _MOST_PARTS
        )
        contents = (
            _contents(snapshot, has_content=has_content)
            for snapshot in (old.resources, new.resources)
        )
        changes = _resource_changes(*contents)
        same = new.resources.objects_count - sum(
            change.did != "removed" for change in changes
        )
        return RevisionComparison(old, new, resources=changes, same_resources=same)

    decision = None
    if old.decision and new.decision:
        decision = decision_diff(
            decision_of(old.decision),
            decision_of(new.decision),
            outcomes_before=outcomes_of(old.decision),
            outcomes_after=outcomes_of(new.decision),
        )
    return RevisionComparison(
        old,
        new,
        sentence_diff(old.sentence, new.sentence),
        document_diff(old.manifest, new.manifest),
        decision,
    )


def side_of(placement: Placement, key: str) -> RevisionSide:
    """Return the revision that a key of an address names. Raise UnknownRevisionError."""
    numbered, identified = _SNAPSHOT.fullmatch(key), _DECISION.fullmatch(key)
    number = int(numbered[2]) if numbered else 0
    if numbered and numbered[1] == "s":
        if resources := placement.resource_snapshots.filter(number=number).first():
            at, by = resources.created_at, resources.created_by
            return RevisionSide(
                f"s{number}", f"resource snapshot {number}", at, by, resources=resources
            )
    elif numbered:
        if snapshot := placement.policy_snapshots.filter(number=number).first():
            at, by = snapshot.created_at, snapshot.created_by
            decision = decisions_under(placement, number).first()
            policy = policy_of(snapshot, _wanted_in(decision, placement))
            manifest = _manifest_at(placement, snapshot, until=at)
            title = f"policy snapshot {number}"
            return RevisionSide(
                f"p{number}", title, at, by, policy, manifest, decision, snapshot
            )
    elif identified:
        matches = (
            placement.decisions.select_related("record")
            .defer("record__content")
            .filter(record__decision_id__startswith=f"d-{identified[1]}")
        )
        row = matches.order_by("-number").first()
        if row and not matches.exclude(record=row.record_id).exists():
            at, by = row.created_at, row.triggered_by
            snapshot = placement.policy_snapshots.filter(
                number=row.policy_number
            ).first()
            policy = decision_of(row).cycle.policy
            manifest = _manifest_at(placement, snapshot, until=at)
            title = f"decision {row.number}"
            return RevisionSide(
                row.record.decision_id, title, at, by, policy, manifest, row, snapshot
            )
    raise UnknownRevisionError(placement.full_name, key)


def _manifest_at(
    placement: Placement, snapshot: PolicySnapshot | None, *, until: datetime
) -> dict[str, Any]:
    """Return the manifest as it was saved last until then; if not recorded, today's with that policy."""
    if saved := saved_until(placement, until):
        return saved
    if snapshot is None:
        return placement.document
    wanted = _wanted_in(decisions_under(placement, snapshot.number).first(), placement)
    return manifest_with(placement, snapshot, wanted) or placement.document


def _wanted_in(decision: Decision | None, placement: Placement) -> int | None:
    return placement.number_of_clusters if decision is None else decision.wanted


def changes_by_unpinning(
    placement: Placement, selected: Iterable[HubObject]
) -> list[ResourceChange]:
    """Compare what a pinned placement has with what it selects on the hub now."""
    latest = placement.resource_snapshots.get(is_latest=True)
    has_content = 2 * latest.parts.count() <= _MOST_PARTS
    new: Contents = {}
    for hub_object in selected:
        content = sanitise(plain_manifest(hub_object.content)) if has_content else None
        new[
            hub_object.api_version,
            hub_object.kind,
            hub_object.namespace,
            hub_object.name,
        ] = content
    return _resource_changes(_contents(latest, has_content=has_content), new)


def changed_count(before: ResourceSnapshot, after: ResourceSnapshot) -> int:
    """Return how many resources differ; kept, as snapshots never change."""

    def count() -> int:
        has_content = load_contents([before, after])
        contents = (
            _contents(snapshot, has_content=has_content) for snapshot in (before, after)
        )
        return sum(1 for _ in _differing(*contents))

    key = f"changed-resources/{before.pk}/{after.pk}"
    return caches["process"].get_or_set(key, count) or 0


def _contents(snapshot: ResourceSnapshot, *, has_content: bool) -> Contents:
    identities = [tuple(key) for key in snapshot.identities]
    if not has_content:
        return dict.fromkeys(identities)
    parts = sorted(snapshot.parts.all(), key=attrgetter("position"))
    manifests = (each for part in parts for each in plain_manifest(part.manifests))
    return dict(zip(identities, manifests, strict=True))


def load_contents(snapshots: Collection[ResourceSnapshot]) -> bool:
    """Read the parts of these snapshots with one query; return whether they are not too many."""
    parts = ResourceSnapshotPart.objects.filter(snapshot__in=snapshots)
    if not snapshots or parts.count() > _MOST_PARTS:
        return False
    prefetch_related_objects([*snapshots], "parts")
    return True


def resource_words(
    before: ResourceSnapshot | None, after: ResourceSnapshot, *, has_content: bool
) -> str:
    """Return in a line what differs: "ConfigMap a/b added, Deployment a/c: replicas 1 → 2 and 3 more"."""
    old: Contents = {}
    if before is not None:
        old = _contents(before, has_content=has_content)
    new = _contents(after, has_content=has_content)
    words = [
        f"{name}: {cause_words(*texts)}" if texts else f"{name} {did}"
        for did, name, texts in _differing(old, new)
    ]
    objects = counted(len(new), "object")
    return names_and_more(words, _CHANGES_NAMED) or f"{objects}, content changed"


def _resource_changes(old: Contents, new: Contents) -> list[ResourceChange]:
    changes = []
    for did, name, texts in _differing(old, new):
        lines = document_diff(*texts) if texts else None
        changes.append(ResourceChange(did, name, lines))
    return changes


def _differing(
    old: Contents, new: Contents
) -> Iterator[tuple[str, str, tuple[Any, Any] | None]]:
    """Yield what was done with each object that differs, its name, and both contents of a changed one."""
    for identity in dict.fromkeys([*old, *new]):
        _, kind, namespace, own = identity
        name = f"{kind} {full_name(namespace, own)}"
        if identity not in new:
            yield "removed", name, None
        elif identity not in old:
            yield "added", name, None
        elif old[identity] != new[identity]:
            shown = without_secrets(new[identity], before=old[identity])
            yield "changed", name, (without_secrets(old[identity]), shown)
