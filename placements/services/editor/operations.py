"""Drafts: list, create, write, rebase, confirm and discard; their starting texts and plans."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import chain, count
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from clusters.fleet import Fleet, collector_paused
from clusters.operations.change_log import lock_fleet
from clusters.queries import current_fleet
from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.kinds import (
    NAMESPACED_PLACEMENT_KIND,
    PLACEMENT_KIND,
    PLACEMENT_VERSIONS,
)
from fleetui.apimachinery.words import counted
from fleetui.apimachinery.yaml import dump_yaml, written_name
from fleetui.audit import events_since
from fleetui.bulk import first_or_raise
from fleetui.errors import UnknownObject
from fleetui.permissions import AnyUser
from placements.engine.rollout.waves import WavePlan, plan_waves
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.scheduler import schedule
from placements.explain.diff import differences
from placements.manifests.placement import parse_placement
from placements.models import LONGEST_NAME, Draft, Placement
from placements.services.editor.preview import SchedulePreview
from placements.services.editor.validation import PlacementDraft
from placements.services.placements import changes_scheduling, save_placement
from placements.services.resources.queries import selection_of
from placements.services.results import PLACEMENT, OperationResult, SaveResult
from placements.services.rollout_state import load_rollout_context
from placements.services.rollouts.queries import applied_names
from placements.services.scheduling import PreviewOutdatedError, schedule_confirmed
from placements.services.snapshots import cycles_of

_USUAL_KEYS = (
    "region",
    "topology.kubernetes.io/region",
    "zone",
    "topology.kubernetes.io/zone",
)
STARTING_NAME = "my-placement"
_FEWEST_DOMAINS, _MOST_DOMAINS = 2, 24
_HEAD = f"""\
apiVersion: {PLACEMENT_VERSIONS[0]}
kind: {PLACEMENT_KIND}
metadata:
  name: {STARTING_NAME}
"""
_NAMESPACED_HEAD = f"""\
apiVersion: {PLACEMENT_VERSIONS[0]}
kind: {NAMESPACED_PLACEMENT_KIND}
metadata:
  name: {STARTING_NAME}
  namespace: ""
"""
_SELECTORS = """\
spec:
  resourceSelectors: []
  policy:
"""


@dataclass(frozen=True, slots=True)
class PlacementTemplate:
    """A start: its name in addresses, its title, what it is for, and the policy that it has on a fleet."""

    name: str
    title: str
    description: str
    policy: Callable[[Fleet], str]

    def text(self, fleet: Fleet, *, is_namespaced: bool = False) -> str:
        """Return the manifest of a placement of the cluster, or of a namespace that is still to be named."""
        return (
            (_NAMESPACED_HEAD if is_namespaced else _HEAD)
            + _SELECTORS
            + self.policy(fleet)
        )


def topology_key(fleet: Fleet) -> str:
    """Choose the label to spread over: a usual one that is there, else the one that most clusters have."""
    usual = next((key for key in _USUAL_KEYS if fleet.label(key).values), None)
    if usual:
        return usual
    keys = sorted({key for cluster in fleet for key in cluster.labels})
    fitting = [
        key
        for key in keys
        if _FEWEST_DOMAINS <= len(fleet.label(key).values) <= _MOST_DOMAINS
    ]
    return max(
        fitting,
        key=lambda key: int(fleet.label(key).is_present.sum()),
        default=_USUAL_KEYS[0],
    )


def _spread(fleet: Fleet, number: int | None, reason: str) -> str:
    """Return a policy that spreads over a label, by default one cluster for each domain."""
    key = topology_key(fleet)
    number = number or len(fleet.label(key).values) or 1
    return f"""\
    placementType: PickN
    numberOfClusters: {number}  # {reason}
    topologySpreadConstraints:
      - topologyKey: {key}
        maxSkew: 1
        whenUnsatisfiable: DoNotSchedule
"""


TEMPLATES = (
    PlacementTemplate(
        "several",
        "Spread across domains",
        "a few clusters, evenly over the domains of a label",
        lambda fleet: _spread(fleet, 3, "as many as you need"),
    ),
    PlacementTemplate(
        "ha-pair",
        "HA pair",
        "two clusters that do not share a domain",
        lambda fleet: _spread(fleet, 2, "one to serve, one to take over"),
    ),
    PlacementTemplate(
        "one-each",
        "One per domain",
        "as many clusters as the label has domains",
        lambda fleet: _spread(
            fleet, None, f"one for each {topology_key(fleet)} there is now"
        ),
    ),
    PlacementTemplate(
        "everywhere",
        "All clusters",
        "every ready cluster, also those that join later",
        lambda _: "    placementType: PickAll\n",
    ),
    PlacementTemplate(
        "by-name",
        "Named clusters",
        "exactly the clusters that you name",
        lambda _: "    placementType: PickFixed\n    clusterNames: []\n",
    ),
    PlacementTemplate(
        "staged",
        "Staged",
        "spread likewise; changes wait for a staged update run",
        lambda fleet: (
            _spread(fleet, 3, "as many as you need")
            + "  strategy:\n    type: External\n"
        ),
    ),
)


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


def own_drafts(person: AnyUser) -> QuerySet[Draft]:
    """Return a person's drafts with what they edit, the latest first."""
    if not person.pk:
        return Draft.objects.none()
    drafts = Draft.objects.filter(owner_id=person.pk).select_related("placement")
    return drafts.order_by("-updated_at", "-pk")


def drafts_of(person: AnyUser, placement: Placement | None) -> QuerySet[Draft]:
    """Return a person's drafts of a placement, or of new ones, the latest first."""
    return own_drafts(person).filter(placement=placement)


@dataclass(frozen=True, slots=True)
class DraftSummary:
    """A draft in a list; `title` is its name with its start and its changes."""

    row: Draft
    name: str
    title: str
    changes: str


def summaries_of(drafts: Iterable[Draft]) -> list[DraftSummary]:
    """Return the lines of these drafts, which are named after what they edit; each text is read once."""
    summaries = []
    for row in drafts:
        data = PlacementDraft.parse(plain_manifest(row.text)).data
        changes = (
            counted(len(differences(row.base or {}, data)), "change")
            if isinstance(data, dict)
            else "Invalid YAML"
        )
        name = f"New placement {written_name(data) or ''}".strip()
        if row.placement:
            name = row.placement.full_name
        title = f"{name} ({row.created_at:%H:%M}, {changes})"
        summaries.append(DraftSummary(row, name, title, changes))
    return summaries


def starting_text(
    template: str, *, copied: Placement | None, is_namespaced: bool = False
) -> str:
    """Return the text that a new placement starts from: a template, or a copy of another placement.

    Its name is not taken.
    """
    if copied is None:
        # The first one in place of one that does not exist.
        chosen = next(
            (
                placement_template
                for placement_template in TEMPLATES
                if placement_template.name == template
            ),
            TEMPLATES[0],
        )
        text = chosen.text(current_fleet().fleet, is_namespaced=is_namespaced)
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
    running = {
        cluster.name: cluster.running
        for cluster in context.state.clusters
        if cluster.running
    }
    names = applied_names(placement.pk) if applied is None else applied
    return plan_waves(context.state), {**target, **names}, running


def plan_of_revision(placement: Placement, *, now: datetime) -> WavePlan:
    """Plan the waves that rolling out another revision to all selected clusters would need."""
    state = load_rollout_context(placement, now=now, plans=True).state
    versions = {
        cluster.name: "another revision" for cluster in state.clusters if cluster.wanted
    }
    return plan_waves(state.with_wanted(versions))


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
    rows = Draft.objects.select_related("placement").filter(pk=number, owner=by)
    return first_or_raise(rows, UnknownDraftError(number))


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
