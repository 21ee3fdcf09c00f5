"""Two revisions of a placement compared: its policy, its manifest, its resources, its decision."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleetui.apimachinery.model import Semantics
from fleetui.apimachinery.secrets import without_secrets
from fleetui.apimachinery.yaml import dump_yaml
from placements.explain.decision_diffs import DecisionDiff, decision_diff
from placements.explain.diff import Piece, line_diff, sentence_diff
from placements.explain.vocabulary import policy_sentence
from placements.manifests.policy import PlacementPolicy
from placements.models import Decision, Placement, PolicySnapshot, ResourceSnapshot
from placements.services.decisions.records import decision_of, outcomes_of
from placements.services.history.queries import decisions_under, manifest_with, saved_until
from placements.services.snapshots import policy_of

_SNAPSHOT = re.compile(r"([ps])(\d{1,9})")
_DECISION = re.compile(r"(?:d-)?([0-9a-f]{4,32})")
_MOST_PARTS = 8
"""Resource snapshots of more parts than this, each of up to 800 KiB, are compared by name alone."""


class UnknownRevisionError(LookupError):
    """The placement has no such snapshot or decision, or it was pruned."""

    def __init__(self, name: str, key: str) -> None:
        allowed = "p3 for a policy, s3 for resources, or at least 4 hex digits of the id of a decision"
        super().__init__(f"{name} has no revision {key[:40]!r}, or it was pruned (allowed: {allowed})")


class IncomparableRevisionsError(ValueError):
    """Resources cannot be compared with a policy or a decision."""

    def __init__(self) -> None:
        super().__init__("resource snapshots can only be compared with resource snapshots")


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
        return policy_sentence(self.policy, Semantics(self.snapshot.semantics), self.snapshot.options)


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
    """Compare two snapshots or decisions of a placement.

    Raise UnknownRevisionError, IncomparableRevisionsError.
    """
    old, new = side_of(placement, before), side_of(placement, after)
    if (old.resources is None) != (new.resources is None):
        raise IncomparableRevisionsError
    if old.resources and new.resources:
        changes = _resource_changes(old.resources, new.resources)
        same = new.resources.objects_count - sum(one.did != "went" for one in changes)
        return RevisionComparison(old, new, resources=changes, same_resources=same)

    decision = None
    if old.decision and new.decision:
        decision = decision_diff(
            decision_of(old.decision),
            decision_of(new.decision),
            told_before=outcomes_of(old.decision),
            told_after=outcomes_of(new.decision),
        )
    return RevisionComparison(
        old,
        new,
        sentence_diff(old.sentence, new.sentence),
        line_diff(dump_yaml(old.manifest), dump_yaml(new.manifest)),
        decision,
    )


def side_of(placement: Placement, key: str) -> RevisionSide:
    """Return the revision that a key of an address names. Raise UnknownRevisionError."""
    snapshot, decision = _SNAPSHOT.fullmatch(key), _DECISION.fullmatch(key)
    side: RevisionSide | None = None
    if snapshot and snapshot[1] == "p":
        side = _policy_side(placement, int(snapshot[2]))
    elif snapshot:
        number = int(snapshot[2])
        row = placement.resource_snapshots.filter(number=number).first()
        if row is not None:
            title = f"resources r{number}"
            side = RevisionSide(f"s{number}", title, row.created_at, row.created_by, resources=row)
    elif decision:
        side = _decision_side(placement, decision[1])
    if side is None:
        raise UnknownRevisionError(placement.name, key)
    return side


def _policy_side(placement: Placement, number: int) -> RevisionSide | None:
    row = placement.policy_snapshots.filter(number=number).first()
    if row is None:
        return None
    decision = decisions_under(placement, number).first()
    wanted = decision.wanted if decision else placement.number_of_clusters
    return RevisionSide(
        f"p{number}",
        f"policy #{number}",
        row.created_at,
        row.created_by,
        policy=policy_of(row, wanted),
        manifest=_manifest_at(placement, row, until=row.created_at),
        decision=decision,
        snapshot=row,
    )


def _decision_side(placement: Placement, digits: str) -> RevisionSide | None:
    decisions = placement.decisions.select_related("record").defer("record__content")
    matches = decisions.filter(record__decision_id__startswith=f"d-{digits}")
    row = matches.order_by("-number").first()
    if row is None or matches.exclude(record=row.record_id).exists():
        return None
    snapshot = placement.policy_snapshots.filter(number=row.policy_number).first()
    return RevisionSide(
        row.record.decision_id,
        f"decision {row.number}",
        row.created_at,
        row.triggered_by,
        policy=decision_of(row).cycle.policy,
        manifest=_manifest_at(placement, snapshot, until=row.created_at),
        decision=row,
        snapshot=snapshot,
    )


def _manifest_at(placement: Placement, snapshot: PolicySnapshot | None, *, until: datetime) -> dict[str, Any]:
    """Return the manifest as it was saved last until then; if not recorded, today's with that policy."""
    if saved := saved_until(placement, until):
        return saved
    return (manifest_with(placement, snapshot) if snapshot else None) or placement.document


def _resource_changes(before: ResourceSnapshot, after: ResourceSnapshot) -> list[ResourceChange]:
    has_content = before.parts.count() + after.parts.count() <= _MOST_PARTS
    contents: list[dict[tuple[str, ...], Any]] = []
    for one in (before, after):
        identities = [tuple(key) for key in one.identities]
        manifests = (each for part in one.parts.order_by("position") for each in part.manifests)
        contents.append(
            dict(zip(identities, manifests, strict=True)) if has_content else dict.fromkeys(identities)
        )
    (old, new), changes = contents, []
    for identity in dict.fromkeys([*old, *new]):
        _, kind, namespace, own = identity
        name = f"{kind} {namespace}/{own}" if namespace else f"{kind} {own}"
        if identity not in new:
            changes.append(ResourceChange("went", name, None))
        elif identity not in old:
            changes.append(ResourceChange("came", name, None))
        elif old[identity] != new[identity]:
            texts = (
                dump_yaml(without_secrets(old[identity])),
                dump_yaml(without_secrets(new[identity], before=old[identity])),
            )
            changes.append(ResourceChange("changed", name, line_diff(*texts)))
    return changes
