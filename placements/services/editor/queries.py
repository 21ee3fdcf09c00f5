"""Drafts with their preview, as pages of the editor show them."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from time import perf_counter
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import QuerySet

from clusters.fleet import Fleet, collector_paused
from clusters.queries import current_fleet
from fleetui.apimachinery.errors import FieldError, InvalidManifest, Keys
from fleetui.apimachinery.secrets import HubObject
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.audit import events_since
from placements.engine.rollout.waves import WavePlan, plan_waves
from placements.engine.scheduling.scheduler import schedule
from placements.engine.selection import Selection
from placements.manifests.placement import ClusterResourcePlacement, parse_placement
from placements.models import LONGEST_NAME, Draft, Placement
from placements.services.disruption.restore import from_scratch
from placements.services.editor.form import PlacementForm, at
from placements.services.editor.hints import FormNotes, Suggestions, notes_of, suggestions
from placements.services.editor.preview import SchedulePreview, preview, preview_over
from placements.services.editor.templates import template_named
from placements.services.editor.validation import PlacementDraft
from placements.services.placements import immutable_field_errors, reserved_name_errors
from placements.services.resources.queries import hub_objects, names_among, selection_of
from placements.services.results import PLACEMENT
from placements.services.rollout_state import load_rollout_context
from placements.services.snapshots import cycles_of

_MOST_SELECTORS = 10
_MOST_PLANNED = 200


@dataclass(frozen=True)
class DraftPreview:
    """A draft on the fleet and hub as they are: fetched once, scheduled once.

    `schedule` is None where the text says too little; `errors` are those of the draft, with those that only
    the hub knows.
    """

    draft: PlacementDraft
    saved: Placement | None
    saved_manifest: ClusterResourcePlacement | None
    fleet: Fleet
    objects: tuple[HubObject, ...]
    errors: tuple[FieldError, ...]
    schedule: SchedulePreview | None
    milliseconds: int
    now: datetime

    @property
    def form(self) -> PlacementForm | None:
        return self.draft.form

    @property
    def decision_id(self) -> str:
        return self.schedule.decision.id if self.schedule else ""

    @cached_property
    def waves(self) -> tuple[int, ...] | None:
        return self.schedule.waves(now=self.now) if self.schedule else None

    @property
    def waves_while_typing(self) -> tuple[int, ...] | None:
        """The waves, None for so many clusters that planning would delay who types."""
        is_small = self.schedule is not None and len(self.schedule.placed_after) <= _MOST_PLANNED
        return self.waves if is_small else None

    @cached_property
    def notes(self) -> FormNotes:
        return notes_of(
            self.draft,
            self.errors,
            self.schedule.warnings if self.schedule else (),
            fleet=self.fleet,
            cycle=self.schedule.decision.cycle if self.schedule else None,
            bound=self.schedule.bound if self.schedule else None,
        )

    @cached_property
    def suggestions(self) -> dict[str, Suggestions]:
        """What every list of suggestions holds, by its id."""
        if self.form is None:
            return {}
        names: dict[Keys, tuple[str, ...]] = {}
        for row in self.form.resources.rows[:_MOST_SELECTORS]:
            values = (at(self.draft.data, (*row.keys, key)) for key in ("group", "kind", "name"))
            group, kind, typed = (one if isinstance(one, str) else "" for one in values)
            names[row.keys] = names_among(self.objects, group, kind, typed)
        return suggestions(self.form, self.fleet, names)


def preview_draft(draft: PlacementDraft, *, saved: Placement | None, now: datetime) -> DraftPreview:
    """Check a draft against the hub, and schedule what can be."""
    fleet, objects = current_fleet().fleet, tuple(hub_objects())
    saved_manifest = parse_placement(saved.document) if saved else None
    selection, errors = Selection(()), list(draft.errors)
    if draft.manifest is not None:
        name = draft.manifest.metadata.name
        found = reserved_name_errors(name)
        if saved is not None and saved_manifest is not None:
            documents = (saved.document, draft.data)
            found += immutable_field_errors(saved_manifest, draft.manifest, documents=documents)
        elif Placement.objects.filter(name=name).exists():
            message = f"a placement {name} exists already: edit that one, or give this one another name"
            found.append(FieldError("metadata.name", "duplicate", message, "a name that is not taken"))
        try:
            selection = selection_of(draft.manifest, objects)
        except InvalidManifest as invalid:
            found += invalid.faults
        errors += draft.with_lines(found)
    started, result = perf_counter(), None
    if draft.valid_part is not None:
        result = preview_over(saved, draft.valid_part, selection, fleet)
    milliseconds = round((perf_counter() - started) * 1000)
    return DraftPreview(
        draft, saved, saved_manifest, fleet, objects, tuple(errors), result, milliseconds, now
    )


def preview_reschedule(placement: Placement) -> SchedulePreview:
    """Preview what rescheduling a saved placement would change. Raise InvalidManifest of its selectors."""
    manifest = parse_placement(placement.document)
    selection = selection_of(manifest)
    [(_, cycle)] = cycles_of([placement], current_fleet().fleet)
    return SchedulePreview(
        manifest, schedule(from_scratch(cycle)), selection, placement, is_incremental=False
    )


def drafts_of(person: AbstractBaseUser | AnonymousUser, placement: Placement | None) -> QuerySet[Draft]:
    """Return a person's drafts of a placement, or of new ones, the latest first."""
    if not person.pk:
        return Draft.objects.none()
    return Draft.objects.filter(owner_id=person.pk, placement=placement).order_by("-updated_at", "-pk")


def starting_text(template: str, *, copied: Placement | None) -> str:
    """Return the text that a new placement starts from: a template, or a copy of another placement."""
    if copied is None:
        return template_named(template).text(current_fleet().fleet)
    name = f"{copied.name[: LONGEST_NAME - 5]}-copy"
    return dump_yaml({**copied.document, "metadata": {**copied.document["metadata"], "name": name}})


def manifest_at(placement: Placement, revision: int) -> tuple[dict[str, Any], int]:
    """Return the manifest at a revision, and that revision; today's where it is not recorded."""
    if revision < placement.revision:
        for event in events_since(PLACEMENT, placement.name, revision):
            if event.before:
                return event.before, revision
    return placement.document, placement.revision


@collector_paused()
def plan_now(placement: Placement, *, now: datetime) -> WavePlan:
    return plan_waves(load_rollout_context(placement, now=now).state)


def plan_of_draft(manifest: ClusterResourcePlacement, *, now: datetime) -> WavePlan:
    """Plan the waves that saving a manifest would need. Raise InvalidManifest as `preview`."""
    return preview(manifest).plan(now=now)
