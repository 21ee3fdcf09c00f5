"""Drafts: create, write, rebase, confirm and discard."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from clusters.operations.change_log import lock_fleet
from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.errors import UnknownObject
from placements.models import Draft, Placement
from placements.services.editor.validation import PlacementDraft
from placements.services.placements import changes_scheduling, save_placement
from placements.services.results import OperationResult, SaveResult
from placements.services.scheduling import PreviewOutdatedError, schedule_confirmed


class UnknownDraftError(UnknownObject):
    """This person has no draft of that number."""

    problem_type = "unknown-draft"


class DraftExists(Exception):
    """This person has a draft of the placement already."""

    def __init__(self, draft: Draft) -> None:
        super().__init__(str(draft))
        self.draft = draft


@dataclass(frozen=True, slots=True)
class ReviewedDraft:
    """What a user confirms after a review: the text, and the decision that was previewed."""

    digest: str
    decision_id: str


def draft_of(number: int, *, by: User) -> Draft:
    """Return a person's own draft. Raise UnknownDraftError."""
    draft = (
        Draft.objects.select_related("placement").filter(pk=number, owner=by).first()
    )
    if draft is None:
        raise UnknownDraftError(number)
    return draft


def start_draft(
    text: str,
    *,
    placement: Placement | None,
    by: User,
    now: datetime,
    base: dict[str, Any] | None = None,
    revision: int | None = None,
) -> Draft:
    """Start a draft, of the placement as it is or as it was at a revision, when its manifest was `base`.

    Raise DraftExists: a placement has one draft of each person at most.
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
        existing = Draft.objects.filter(owner=by, placement=placement).first()
        if existing is None:
            raise
        raise DraftExists(existing) from error


def write_draft(draft: Draft, text: str, *, now: datetime) -> None:
    if text != plain_manifest(draft.text):
        draft.text, draft.updated_at = text, now
        draft.save(update_fields=["text", "updated_at"])


def discard_draft(number: int, *, by: User) -> Draft:
    """Delete a draft and return what it was. Raise UnknownDraftError."""
    draft = draft_of(number, by=by)
    Draft.objects.filter(pk=draft.pk).delete()
    return draft


class Side(StrEnum):
    """Whose manifest is kept where a placement was saved after a draft was started."""

    MINE = "mine"
    THEIRS = "theirs"


@transaction.atomic
def rebase_draft(number: int, *, keep: Side, by: User, now: datetime) -> Draft:
    """Base a draft on what is saved now: with its text as it is, or with the saved manifest in place of it.

    Raise UnknownDraftError.
    """
    draft = draft_of(number, by=by)
    if draft.placement is not None:
        draft.base = draft.placement.document
        draft.revision = draft.placement.revision
        if keep is Side.THEIRS:
            draft.text = dump_yaml(draft.base)
        draft.updated_at = now
        draft.save(update_fields=["text", "base", "revision", "updated_at"])
    return draft


@transaction.atomic
def confirm_draft(
    number: int,
    *,
    reviewed: ReviewedDraft,
    by: User,
    now: datetime,
    confirmed: bool = False,
) -> SaveResult[Placement]:
    """Save a draft, schedule it as previewed, and delete the draft: all of it or nothing.

    The cycle that a worker would run runs here, which locks the fleet before the placement; `confirmed` as in
    `save_placement`. Raise UnknownDraftError, PreviewOutdatedError, RevisionConflict, UnschedulesEverything,
    InvalidManifest.
    """
    lock_fleet()
    row = draft_of(number, by=by)
    name = row.placement.full_name if row.placement else ""
    draft = PlacementDraft.parse(plain_manifest(row.text), name=name)
    if draft.digest != reviewed.digest:
        raise PreviewOutdatedError(is_text=True)
    if draft.manifest is None:
        raise InvalidManifest(draft.errors)

    # The cycle below shows whether clusters are left, so that the draft is scheduled once.
    must_keep_clusters = (
        not confirmed
        and row.placement is not None
        and changes_scheduling(row.placement, draft.manifest)
    )
    expected = row.revision if row.placement else 0
    try:
        result = save_placement(
            draft.data,
            manifest=draft.manifest,
            by=by,
            now=now,
            expected=expected,
            confirmed=True,
            address=name,
        )
    except InvalidManifest as invalid:
        raise InvalidManifest(draft.with_lines(invalid.errors)) from invalid
    if result.result is not OperationResult.UNCHANGED:
        schedule_confirmed(
            result.object,
            reviewed.decision_id,
            now=now,
            manifest=draft.manifest,
            must_keep_clusters=must_keep_clusters,
        )
    Draft.objects.filter(pk=row.pk).delete()
    return result
