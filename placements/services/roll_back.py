"""Rolling a placement back to a revision: its policy, its rollout strategy and its resources."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from placements.models import Placement
from placements.services.history.queries import (
    Document,
    Revision,
    revisions_of,
    spec_restores,
)
from placements.services.placements import save_placement
from placements.services.rollouts.operations import (
    ActionNotAllowed,
    check_possible,
    roll_back,
    why_not_roll_back,
)
from placements.services.teams import locked_placement


@dataclass(frozen=True, slots=True)
class Restoration:
    """What rolling back to a revision changes: the manifest that is saved, the resources; None for neither.

    `number` is that of the revision that follows.
    """

    target: Revision
    document: Document | None
    resources: int | None
    number: int

    def message(self, name: str) -> str:
        number = self.target.number
        words = f"Rolling back {name} to revision {number}, as revision {self.number}."
        if self.resources is None:
            return words
        return (
            f"{words} {name} is pinned to the resources of revision {number}: hub changes are not rolled out"
            " until you unpin it."
        )


def restorable(placement: Placement, revisions: Sequence[Revision]) -> list[Revision]:
    """Return the earlier of these revisions that differ from today's policy, strategy or resources."""
    earlier = [revision for revision in revisions[1:] if revision.resources]
    documents = spec_restores(placement, earlier)
    return [
        revision
        for revision in earlier
        if revision.at in documents or _has_others(placement, revision)
    ]


def _has_others(placement: Placement, one: Revision) -> bool:
    """Return whether a revision has other resources than are rolled out today."""
    resources, pinned = one.resources, placement.pinned_snapshot
    return resources is not None and (
        not resources.is_latest or pinned not in (None, resources.number)
    )


def restoration_of(
    placement: Placement,
    number: int | None,
    revisions: Sequence[Revision] | None = None,
) -> Restoration:
    """Return what rolling back to a revision, or to the one before, would change. Raise ActionNotAllowed.

    `revisions` are the `revisions_of` the placement, if they are known.
    """
    if revisions is None:
        revisions = revisions_of(placement)
    earlier = [revision for revision in revisions[1:] if revision.resources]
    wanted = earlier
    if number is None:
        wanted = restorable(placement, revisions) or earlier
    target = next(
        (revision for revision in wanted if number in (None, revision.number)), None
    )
    if target is None:
        known = (
            ", ".join(str(revision.number) for revision in reversed(earlier)) or "none"
        )
        raise ActionNotAllowed(
            f"{placement.full_name} cannot roll back to revision {number}; earlier revisions: {known}"
        )
    document = spec_restores(placement, [target]).get(target.at)
    is_other = _has_others(placement, target)
    if document is None and not is_other:
        raise ActionNotAllowed(
            f"{placement.full_name} has the policy and the resources of revision {number}"
        )
    return Restoration(
        target,
        document,
        target.resource_number if is_other else None,
        revisions[0].number + (document is not None) + is_other,
    )


@transaction.atomic
def roll_back_to(
    name: str,
    number: int | None,
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
    confirmed: bool = False,
) -> Restoration:
    """Make a new revision of the policy and the resources of an older one, or change nothing.

    The clusters are selected again and may be others. Raise what `save_placement` and `roll_back` raise.
    """
    placement = locked_placement(name, by=by, expected=expected)
    check_possible(why_not_roll_back(placement))
    restoration = restoration_of(placement, number)
    target = f"revision {restoration.target.number}"
    if restoration.document is not None:
        save_placement(
            restoration.document,
            by=by,
            now=now,
            confirmed=confirmed,
            trigger=f"rolled back to {target}",
        )
    if restoration.resources is not None:
        roll_back(name, restoration.resources, by=by, now=now, target=target)
    return restoration
