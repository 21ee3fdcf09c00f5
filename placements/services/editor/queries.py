"""What the pages of the editor and of plans read: drafts, their starting texts, plans."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, count
from typing import Any

from django.db.models import QuerySet

from clusters.fleet import collector_paused
from clusters.queries import current_fleet
from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.words import counted
from fleetui.apimachinery.yaml import dump_yaml, written_name
from fleetui.audit import events_since
from fleetui.permissions import AnyUser
from placements.engine.rollout.waves import WavePlan, plan_waves
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.scheduler import schedule
from placements.explain.diff import differences
from placements.manifests.placement import parse_placement
from placements.models import LONGEST_NAME, Draft, Placement
from placements.services.editor.preview import SchedulePreview
from placements.services.editor.templates import STARTING_NAME, template_named
from placements.services.editor.validation import PlacementDraft
from placements.services.resources.queries import selection_of
from placements.services.results import PLACEMENT
from placements.services.rollout_state import load_rollout_context
from placements.services.rollouts.queries import applied_names
from placements.services.snapshots import cycles_of


def preview_reschedule(
    placement: Placement, decision: Decision | None = None
) -> SchedulePreview:
    """Preview what rescheduling a saved placement would change. Raise InvalidManifest of its selectors.

    `decision`: the one of few moves, in place of that of all at once.
    """
    manifest = parse_placement(placement.document)
    selection = selection_of(manifest)
    if decision is None:
        [(_, cycle)] = cycles_of([placement], current_fleet().fleet)
        decision = schedule(cycle.rescheduled())
    return SchedulePreview(
        manifest, decision, selection, placement, is_incremental=False
    )


def drafts_of(person: AnyUser, placement: Placement | None) -> QuerySet[Draft]:
    """Return a person's drafts of a placement, or of new ones, the latest first."""
    if not person.pk:
        return Draft.objects.none()
    return Draft.objects.filter(owner_id=person.pk, placement=placement).order_by(
        "-updated_at", "-pk"
    )


@dataclass(frozen=True, slots=True)
class DraftSummary:
    """A draft in a list: its title, and how much it changes."""

    row: Draft
    title: str
    changes: str


def summaries_of(drafts: Iterable[Draft]) -> list[DraftSummary]:
    """Return the lines of these drafts, which are named after what they edit; each text is read once."""
    summaries = []
    for row in drafts:
        data = PlacementDraft.parse(plain_manifest(row.text)).data
        is_read = isinstance(data, dict)
        changes = (
            counted(len(differences(row.base or {}, data)), "change")
            if is_read
            else "Invalid YAML"
        )
        title = row.placement.full_name if row.placement else ""
        if not title:
            name = (
                written_name(data)
                if row.base and written_name(data) != written_name(row.base)
                else None
            )
            title = (
                f"New placement {name or ''}".strip()
                + f" ({row.created_at:%H:%M}, {changes})"
            )
        summaries.append(DraftSummary(row, title, changes))
    return summaries


def starting_text(
    template: str, *, copied: Placement | None, is_namespaced: bool = False
) -> str:
    """Return the text that a new placement starts from: a template, or a copy of another placement.

    Its name is not taken.
    """
    if copied is None:
        text = template_named(template).text(
            current_fleet().fleet, is_namespaced=is_namespaced
        )
        return text.replace(STARTING_NAME, _free_name(STARTING_NAME), 1)
    name = _free_name(f"{copied.name[: LONGEST_NAME - 8]}-copy", copied.namespace)
    return dump_yaml(
        {**copied.document, "metadata": {**copied.document["metadata"], "name": name}}
    )


def _free_name(name: str, namespace: str = "") -> str:
    """Return a name, or it with the first number from 2 on that no placement has."""
    rows = Placement.objects.filter(namespace=namespace, name__startswith=name)
    taken = set(rows.values_list("name", flat=True))
    numbered = (f"{name}-{number}" for number in count(2))
    return next(one for one in chain([name], numbered) if one not in taken)


def manifest_at(placement: Placement, revision: int) -> tuple[dict[str, Any], int]:
    """Return the manifest at a revision, and that revision; today's where it is not recorded."""
    if revision < placement.revision:
        for event in events_since(PLACEMENT, placement.full_name, revision):
            if event.before:
                return event.before, revision
    return placement.document, placement.revision


@collector_paused()
def plan_now(
    placement: Placement, *, now: datetime, applied: Mapping[str, str] | None = None
) -> tuple[WavePlan, dict[str, str], dict[str, str]]:
    """Return the plan of a placement, the names of its versions: "revision 4", and what clusters run.

    `applied` are the `applied_names`, if they are known.
    """
    context = load_rollout_context(placement, now=now, plans=True)
    versions = {cluster.wanted for cluster in context.state.clusters if cluster.wanted}
    target = (
        dict.fromkeys(
            versions, f"revision {placement.revision_with(context.target.number)}"
        )
        if context.target
        else {}
    )
    running = {one.name: one.running for one in context.state.clusters if one.running}
    names = applied_names(placement.pk) if applied is None else applied
    return plan_waves(context.state), {**target, **names}, running


def plan_of_revision(placement: Placement, *, now: datetime) -> WavePlan:
    """Plan the waves that rolling out another revision to all selected clusters would need."""
    state = load_rollout_context(placement, now=now, plans=True).state
    versions = {one.name: "another revision" for one in state.clusters if one.wanted}
    return plan_waves(state.with_wanted(versions))
