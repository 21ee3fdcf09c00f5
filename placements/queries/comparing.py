"""Two moments of a placement side by side: its policy, its manifest, its resources, what was decided."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from placements.explain.decision_diffs import DecisionDiff, decision_diff
from placements.explain.sentences import policy_sentence
from placements.explain.text_diffs import Piece, line_diff, sentence_diff
from placements.manifests import dump_yaml
from placements.models import Decision, Placement, PolicySnapshot, ResourceSnapshot
from placements.queries.records import decision_of, outcomes_of
from placements.queries.restoring import decisions_under, manifest_with, saved_until
from placements.scheduling.hub.secrets import without_secrets
from placements.scheduling.policy import PlacementPolicy
from placements.scheduling.semantics import Semantics
from placements.snapshots import policy_of

_SNAPSHOT = re.compile(r"([ps])(\d{1,9})")
_DECISION = re.compile(r"(?:d-)?([0-9a-f]{4,32})")
_MOST_PARTS = 8
"""Resource snapshots of more parts than this, each of up to 800 KiB, are compared by name alone."""


class UnknownSideError(LookupError):
    """The placement has no such snapshot or decision; or it has been pruned."""

    def __init__(self, name: str, key: str) -> None:
        allowed = "p3 for a policy, s3 for resources, or the id of a decision, at least 4 hex digits of it"
        super().__init__(f"{name} has nothing called {key[:40]!r}, or not any more (allowed: {allowed})")


class UnlikeSidesError(ValueError):
    """Resources were to be compared with a policy or a decision."""

    def __init__(self) -> None:
        super().__init__("resources can only be compared with resources; choose two of them")


@dataclass(frozen=True)
class Side:
    """One of the two moments; a policy is shown with the last decision that was made under it."""

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
        """Say what the policy asks for."""
        if self.policy is None or self.snapshot is None:
            return policy_sentence(self.policy) if self.policy else ""
        return policy_sentence(self.policy, Semantics(self.snapshot.semantics), self.snapshot.options)


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """One resource that came, went or changed; `lines` are None where the content was not compared."""

    did: str
    name: str
    lines: list[Piece] | None


@dataclass(frozen=True)
class Comparison:
    """What differs between two sides; None where they have nothing of that sort to compare."""

    before: Side
    after: Side
    sentence: list[Piece] | None
    manifest: list[Piece] | None
    decision: DecisionDiff | None
    resources: list[ResourceChange] | None
    same_resources: int = 0

    @property
    def sides(self) -> tuple[Side, Side]:
        """Give both, the earlier word first."""
        return self.before, self.after


def compare(placement: Placement, before: str, after: str) -> Comparison:
    """Compare two snapshots or decisions of a placement. Raises UnknownSideError, UnlikeSidesError."""
    old, new = side_of(placement, before), side_of(placement, after)
    if (old.resources is None) != (new.resources is None):
        raise UnlikeSidesError
    if old.resources and new.resources:
        changes = list(_resource_changes(old.resources, new.resources))
        same = new.resources.objects_count - sum(one.did != "went" for one in changes)
        return Comparison(old, new, None, None, None, changes, same)
    return Comparison(
        old,
        new,
        sentence_diff(old.sentence, new.sentence),
        line_diff(dump_yaml(old.manifest), dump_yaml(new.manifest)),
        _decided_differently(old.decision, new.decision),
        None,
    )


def _decided_differently(before: Decision | None, after: Decision | None) -> DecisionDiff | None:
    if before is None or after is None:
        return None
    return decision_diff(
        decision_of(before),
        decision_of(after),
        told_before=outcomes_of(before),
        told_after=outcomes_of(after),
    )


def side_of(placement: Placement, key: str) -> Side:
    """Find what a key of an address names. Raises UnknownSideError."""
    named, decided = _SNAPSHOT.fullmatch(key), _DECISION.fullmatch(key)
    found: Side | None = None
    if named and named[1] == "p":
        found = _policy_side(placement, int(named[2]))
    elif named:
        found = _resource_side(placement, int(named[2]))
    elif decided:
        found = _decision_side(placement, decided[1])
    if found is None:
        raise UnknownSideError(placement.name, key)
    return found


def _policy_side(placement: Placement, number: int) -> Side | None:
    row = placement.policy_snapshots.filter(number=number).first()
    if row is None:
        return None
    decision: Decision | None = decisions_under(placement, number).first()
    return Side(
        f"p{number}",
        f"policy #{number}",
        row.created_at,
        row.created_by,
        policy=policy_of(row, _wanted(placement, decision)),
        manifest=manifest_then(placement, row, until=row.created_at),
        decision=decision,
        snapshot=row,
    )


def _decision_side(placement: Placement, digits: str) -> Side | None:
    found = _decisions(placement).filter(record__decision_id__startswith=f"d-{digits}")
    row = found.order_by("-number").first()
    if row is None or found.exclude(record=row.record_id).exists():
        return None
    cycle = decision_of(row).cycle
    snapshot = placement.policy_snapshots.filter(number=row.policy_number).first()
    return Side(
        row.record.decision_id,
        f"decision {row.number}",
        row.created_at,
        row.asked_by,
        policy=cycle.policy,
        manifest=manifest_then(placement, snapshot, until=row.created_at),
        decision=row,
        snapshot=snapshot,
    )


def _resource_side(placement: Placement, number: int) -> Side | None:
    row = placement.resource_snapshots.filter(number=number).first()
    if row is None:
        return None
    return Side(f"s{number}", f"resources r{number}", row.created_at, row.created_by, resources=row)


def _decisions(placement: Placement) -> Any:
    return placement.decisions.select_related("record").defer("record__content")


def _wanted(placement: Placement, decision: Decision | None) -> int | None:
    return decision.wanted if decision else placement.number_of_clusters


def manifest_then(
    placement: Placement, snapshot: PolicySnapshot | None, *, until: datetime
) -> dict[str, Any]:
    """Give the manifest as it was saved last until then; without a note of that, today's with that policy."""
    if saved := saved_until(placement, until):
        return saved
    return (manifest_with(placement, snapshot) if snapshot else None) or placement.document


def _resource_changes(before: ResourceSnapshot, after: ResourceSnapshot) -> Iterator[ResourceChange]:
    names = [tuple(one) for one in (*before.identities, *after.identities)]
    compares = before.parts.count() + after.parts.count() <= _MOST_PARTS
    old, new = (_content(one, reads=compares) for one in (before, after))
    for name in dict.fromkeys(names):
        if name not in new:
            yield ResourceChange("went", _called(name), None)
        elif name not in old:
            yield ResourceChange("came", _called(name), None)
        elif old[name] != new[name]:
            yield ResourceChange("changed", _called(name), line_diff(*_texts(old[name], new[name])))


def _content(snapshot: ResourceSnapshot, *, reads: bool) -> dict[tuple[str, ...], Any]:
    """Give the manifests of a snapshot by identity; the identities alone when they are too many to read."""
    if not reads:
        return dict.fromkeys(map(tuple, snapshot.identities))
    manifests = (one for part in snapshot.parts.order_by("position") for one in part.manifests)
    return dict(zip(map(tuple, snapshot.identities), manifests, strict=True))


def _texts(old: Any, new: Any) -> tuple[str, str]:
    """Write both manifests, without what a Secret holds."""
    return dump_yaml(without_secrets(old)), dump_yaml(without_secrets(new, before=old))


def _called(identity: tuple[str, ...]) -> str:
    _, kind, namespace, name = identity
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
