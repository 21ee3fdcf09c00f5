"""Drafts: begun with the first change, written with every other, carried over, confirmed or discarded."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from clusters.operations.fleet_changes import lock_fleet
from placements.drafting.checking import check
from placements.drafting.rebasing import Rebased, Side, rebase
from placements.manifests import attach_lines
from placements.models import Draft, Placement
from placements.operations.as_seen import PreviewOutdatedError, decide_as_seen
from placements.operations.did import Did
from placements.operations.placements import Saved, save_placement
from placements.scheduling.faults import Faults


class UnknownDraftError(LookupError):
    """This person has no draft of that number."""


class DraftThereError(Exception):
    """This person has a draft of the placement already."""

    def __init__(self, draft: Draft) -> None:
        super().__init__(str(draft))
        self.draft = draft


def draft_of(number: int, *, by: User) -> Draft:
    """Give a person's own draft. Raises UnknownDraftError."""
    found = Draft.objects.select_related("placement").filter(pk=number, owner=by).first()
    if found is None:
        raise UnknownDraftError(number)
    return found


def start_draft(
    text: str,
    *,
    placement: Placement | None,
    by: User,
    now: datetime,
    base: dict[str, Any] | None = None,
    revision: int | None = None,
) -> Draft:
    """Begin a draft, of the placement as it is or as it was at a revision, when its manifest was `base`.

    Raises DraftThereError: a placement has one draft of each person at most.
    """
    if placement is not None and base is None:
        base, revision = placement.document, placement.revision
    try:
        with transaction.atomic():
            return Draft.objects.create(
                owner=by,
                placement=placement,
                text=text,
                base=base,
                revision=revision or 0,
                created_at=now,
                updated_at=now,
            )
    except IntegrityError as error:
        there = Draft.objects.filter(owner=by, placement=placement).first()
        if there is None:
            raise
        raise DraftThereError(there) from error


def write_draft(draft: Draft, text: str, *, now: datetime) -> None:
    """Keep what was typed."""
    if text != draft.text:
        draft.text, draft.updated_at = text, now
        draft.save(update_fields=["text", "updated_at"])


def discard_draft(number: int, *, by: User) -> Draft:
    """Throw a draft away; give what it was. Raises UnknownDraftError."""
    draft = draft_of(number, by=by)
    Draft.objects.filter(pk=draft.pk).delete()
    return draft


def rebase_draft(number: int, *, by: User, now: datetime, keep: Side | None = None) -> Rebased:
    """Carry a draft over to what is saved now; where both changed the same, only when `keep` says what holds.

    Raises UnknownDraftError, CannotEditError, Faults.
    """
    with transaction.atomic():
        draft = draft_of(number, by=by)
        if draft.placement is None:
            return Rebased(draft.text, ())
        theirs = draft.placement.document
        done = rebase(draft.text, base=draft.base, theirs=theirs, keep=keep)
        if not done.overlaps or keep is not None:
            draft.text, draft.base, draft.revision = done.text, theirs, draft.placement.revision
            draft.updated_at = now
            draft.save(update_fields=["text", "base", "revision", "updated_at"])
    return done


def digest_of(text: str) -> str:
    """Give what tells one text from another."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Seen:
    """What somebody read in a review and confirms: the text, and the decision that was previewed."""

    digest: str
    decision_id: str


@transaction.atomic
def confirm_draft(number: int, *, seen: Seen, by: User, now: datetime, confirmed: bool = False) -> Saved:
    """Save a draft, decide it as its preview said, and let the draft go: all of it or nothing.

    The decision is made by the steps that a worker takes, which locks the fleet before the placement;
    `confirmed` as in `save_placement`. Raises UnknownDraftError, PreviewOutdatedError, StaleEditError,
    EmptiesPlacementError, Faults.
    """
    lock_fleet()
    draft = draft_of(number, by=by)
    if digest_of(draft.text) != seen.digest:
        raise PreviewOutdatedError(is_text=True)
    saved = _save(draft, by=by, now=now, confirmed=confirmed)
    if saved.did is not Did.UNCHANGED:
        decide_as_seen(saved.placement, seen.decision_id, now=now)
    Draft.objects.filter(pk=draft.pk).delete()
    return saved


def _save(draft: Draft, *, by: User, now: datetime, confirmed: bool) -> Saved:
    checked = check(draft.text, name=name_of(draft))
    document = checked.document
    if checked.faults or document is None:
        raise Faults(checked.faults)
    expected = draft.revision if draft.placement else 0
    try:
        return save_placement(document.data, by=by, now=now, expected=expected, confirmed=confirmed)
    except Faults as found:
        raise Faults(attach_lines((document, fault) for fault in found.faults)) from found


def name_of(draft: Draft) -> str:
    """Give the name of the placement that a draft edits, nothing for a new one."""
    return draft.placement.name if draft.placement else ""
