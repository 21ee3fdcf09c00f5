"""A manifest or a draft scheduled on the fleet as it is, without saving anything."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from time import perf_counter
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q, prefetch_related_objects

from clusters.fleet import Fleet, collector_paused
from clusters.queries import current_fleet, late_names
from fleetui.apimachinery.errors import (
    FieldError,
    InvalidManifest,
    Keys,
    ManifestWarning,
    format_path,
    raise_errors,
    split_path,
)
from fleetui.apimachinery.model import DEFAULT_SEMANTICS, parse_manifest
from fleetui.apimachinery.secrets import HubObject
from fleetui.apimachinery.words import counted, names_and_more
from placements.engine.advice.diagnosis import feasibility_bound
from placements.engine.checks.examination import fleet_warnings
from placements.engine.checks.findings import Finding
from placements.engine.checks.predicates import AssertionResult, AssertionState
from placements.engine.exact.record import ExactVerdict, SearchOptions, inline_search
from placements.engine.overlaps import Overlap, keys_of, overlaps_of, to_place
from placements.engine.rollout.state import EMPTY, Phase, RolloutState
from placements.engine.rollout.waves import Wave, WavePlan, plan_waves
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.scheduler import schedule
from placements.engine.scheduling.spread.base import GroupStrategy
from placements.engine.scheduling.warnings import decision_warnings
from placements.engine.selection import Selection, select
from placements.engine.selection import content_hash as content_hash_of_resources
from placements.explain.advice import bound_sentence, trap_sentences
from placements.explain.diff import differences
from placements.explain.lanes import LaneBlock, LanePanel, Mark, placed_panels
from placements.explain.preview import (
    PickLine,
    passed_over,
    pick_lines,
)
from placements.explain.steps import domain_words
from placements.explain.vocabulary import OUTCOME_WORDS, policy_sentence
from placements.manifests.binding import BindingState
from placements.manifests.placement import (
    ClusterResourcePlacement,
    ResourceSelector,
    is_reserved_namespace,
)
from placements.manifests.strategy import RollingUpdate, StrategyType
from placements.models import Binding, Placement, ResourceSnapshot
from placements.services.assertions import assertion_results, assertion_warning
from placements.services.checks import quick_findings
from placements.services.editor.form import NAMESPACE, PlacementForm, at
from placements.services.editor.hints import (
    FormNotes,
    Suggestions,
    edits_of,
    notes_of,
    suggestions,
    wanted_clusters,
)
from placements.services.editor.validation import PlacementDraft
from placements.services.placements import (
    immutable_field_errors,
    manifest_warnings,
    reserved_name_errors,
    staging_warnings,
)
from placements.services.resources.queries import (
    hub_objects,
    names_among,
    plain_objects,
    selectable_among,
    selection_of,
)
from placements.services.results import name_on_hub
from placements.services.rollout_state import (
    load_rollout_context,
    target_of,
    version_of,
    version_of_content,
)
from placements.services.snapshots import (
    applied_lately,
    content_hash,
    draft_cycle,
    placed_objects,
)
from placements.services.teams import placement_refusal

_MOST_CLUSTERS_FOR_BOUND = 1_000
_EXACT = SearchOptions(stages=("n",), limit_seconds=0.25, most_states=2_000)
_MOST_SELECTORS = 10
_MOST_CHOICES = 200  # a hub or a fleet may have too many for the list of a picker
_MOST_PLANNED = 200
_MOST_CHIPS, _MOST_KINDS = 20, 4
_NAMESPACE = ("", "Namespace")
_WITH_VERSION = (Phase.APPLYING, Phase.APPLIED, Phase.AVAILABLE)
_WITHOUT = (*EMPTY, Phase.REMOVING)
"""The phases of clusters on which nothing is to start: those that are wanted, and the others."""
# Codes of errors that a field has because another one was changed.
_CAUSED_ELSEWHERE = ("forbidden-for-type", "conflict")


@dataclass(frozen=True)
class SchedulePreview:
    """What saving a manifest would decide, against what is placed now; its explanations are found when used.

    `is_incremental`: the policy snapshot stays, so what is placed is kept and only the number may change.
    `snapshot`: a rollback rolls it out, not the resources on the hub.
    """

    manifest: ClusterResourcePlacement
    decision: Decision
    selection: Selection
    saved: Placement | None
    is_incremental: bool
    snapshot: ResourceSnapshot | None = None

    @cached_property
    def assertions(self) -> list[AssertionResult]:
        return assertion_results(
            self.manifest, self.decision, saved=self.saved, now=datetime.now(UTC)
        )

    @property
    def kept_assertions(self) -> int:
        return sum(result.state is AssertionState.HOLDS for result in self.assertions)

    @cached_property
    def fleet_warnings(self) -> tuple[ManifestWarning, ...]:
        return fleet_warnings(self.decision.cycle)

    @cached_property
    def warnings(self) -> tuple[ManifestWarning, ...]:
        of_fleet = (*self.fleet_warnings, *decision_warnings(self.decision))
        warnings = (
            *manifest_warnings(self.manifest),
            *self.final_changes,
            *self.selection.warnings,
            *map(self.manifest.in_document, of_fleet),
            *(
                assertion_warning(result)
                for result in self.assertions
                if result.is_broken
            ),
            *(overlap.warning for overlap in self.overlaps),
        )
        if self.bound is not None and self.bound < (
            wanted_clusters(self.manifest) or 0
        ):
            above = ManifestWarning(
                "above-maximum", "policy.numberOfClusters", self.bound_text
            )
            warnings = (*warnings, self.manifest.in_document(above))
        if late := sorted(set(self.joins).intersection(late_names())):
            message = f"{names_and_more(late, 3)}: heartbeat late. Not selected after 5m without one."
            warnings = (*warnings, ManifestWarning("heartbeat-late", "policy", message))
        return tuple(
            replace(warning, path=f"spec.{warning.path}")
            if warning.path.startswith("policy")
            else warning
            for warning in warnings
        )

    @cached_property
    def overlaps(self) -> tuple[Overlap, ...]:
        """The other placements that apply the same objects to some of the clusters."""
        name = self.saved.full_name if self.saved else self.manifest.full_name
        applied = {
            pk: placed
            for pk, placed in applied_lately().items()
            if placed.placement != name
        }
        if not applied:
            return ()
        mine = to_place(self.manifest, name, self.selection, self.placed_after)
        if self.snapshot:
            mine = mine._replace(objects=keys_of(self.snapshot.applied_identities))
        return overlaps_of(mine, placed_objects(applied, of=mine.objects))

    @cached_property
    def final_changes(self) -> tuple[ManifestWarning, ...]:
        return staging_warnings(self.saved, self.manifest)

    @cached_property
    def unlikely_results(self) -> tuple[str, ...]:
        """What is accepted only with a confirmation: nearly always a mistake, or for good."""
        cycle = self.decision.cycle
        constraints = cycle.policy.topology_spread_constraints
        keys = [
            cycle.fleet.topology(constraint.topology_key, constraint.topology_key_type)
            for constraint in constraints
        ]
        unlikely_results = []
        if not all(
            key.values for key in keys
        ):  # a review enters the rules for their words alone
            unlikely_results = [
                warning.message
                for warning in self.fleet_warnings
                if warning.code == "unknown-key"
                and warning.path.endswith(".topologyKey")
            ]
        resources = (
            self.snapshot.objects_count
            if self.snapshot
            else len(self.selection.objects)
        )
        return (
            *unlikely_results,
            *(change.message for change in self.final_changes),
            *(overlap.sentence for overlap in self.overlaps if not overlap.is_shared),
            *(() if resources else ("No resources are selected.",)),
        )

    @cached_property
    def joins(self) -> tuple[str, ...]:
        return tuple(
            name
            for name in self.decision.picked_names
            if name not in self.decision.cycle.placed_before
        )

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        return tuple(
            sorted(
                self.decision.cycle.placed_before.intersection(
                    self.decision.unscheduled
                )
            )
        )

    @cached_property
    def stays(self) -> tuple[str, ...]:
        return tuple(
            sorted(self.decision.cycle.placed_before.intersection(self.placed_after))
        )

    @cached_property
    def rescored(self) -> tuple[str, ...]:
        """The clusters that would stay with other scores than those that they were picked with."""
        before = {
            binding.cluster: binding
            for binding in self.decision.cycle.live_bindings
            if binding.is_active
        }
        return tuple(
            picked.cluster
            for picked in self.decision.picked
            if picked.cluster in before
            and (picked.topology_spread_score, picked.affinity_score)
            != (
                before[picked.cluster].topology_spread_score,
                before[picked.cluster].affinity_score,
            )
        )

    @cached_property
    def placed_after(self) -> tuple[str, ...]:
        return tuple(sorted(self.decision.placed_after))

    @cached_property
    def sentence(self) -> str:
        return policy_sentence(
            self.manifest.spec.policy,
            self.manifest.semantics,
            self.manifest.spread_options,
        )

    @cached_property
    def bound(self) -> int | None:
        """How many clusters can be reached, where that is found quickly.

        Rules that judge every cluster again in every round take too long on a large fleet.
        """
        cycle = self.decision.cycle
        is_flat = isinstance(profile_of(cycle).strategy, GroupStrategy)
        return (
            feasibility_bound(cycle)
            if is_flat or len(cycle.fleet) <= _MOST_CLUSTERS_FOR_BOUND
            else None
        )

    @property
    def bound_text(self) -> str:
        return bound_sentence(self.bound) if self.bound is not None else ""

    @cached_property
    def traps(self) -> tuple[str, ...]:
        exact = inline_search(self.decision, _EXACT)
        if exact is not None and exact.verdict is ExactVerdict.OPEN:
            exact = None
        return tuple(trap_sentences(self.decision, exact=exact, with_bound=False))

    @cached_property
    def panels(self) -> tuple[LanePanel, ...]:
        return placed_panels(self.decision, self.decision.cycle.placed_before)

    @cached_property
    def chips(self) -> list[LaneBlock]:
        """The first clusters in the order of selection, then kept and deselected ones, with domains."""
        numbers = {line.picked.cluster: line.place for line in self.picks}
        names = dict.fromkeys([*numbers, *self.placed_after, *self.leaves])
        fleet, gone = self.decision.cycle.fleet, frozenset(self.leaves)
        chips = []
        for name in islice(names, _MOST_CHIPS):
            mark = Mark.GONE if name in gone else Mark.PLACED
            if (
                self.decision.cycle.placed_before
                and name not in self.decision.cycle.placed_before
            ):
                mark = Mark.NEW
            words = domain_words(self.decision, name) if name in fleet.positions else ""
            chips.append(LaneBlock(mark, words, name, numbers.get(name, 0)))
        return chips

    @property
    def more_chips(self) -> int:
        return len(self.placed_after) + len(self.leaves) - len(self.chips)

    @cached_property
    def picks(self) -> tuple[PickLine, ...]:
        return tuple(pick_lines(self.decision))

    @property
    def more_picks(self) -> int:
        return max(0, len(self.decision.picked) - len(self.picks))

    @cached_property
    def passed_over(self) -> tuple[tuple[str, int], ...]:
        return tuple(
            (OUTCOME_WORDS[outcome], count)
            for outcome, count in passed_over(self.decision)
        )

    @property
    def is_staged(self) -> bool:
        return self.manifest.spec.strategy.type is StrategyType.EXTERNAL

    def plan(self, *, now: datetime) -> WavePlan:
        """Return the waves that saving would need; a pinned snapshot stays pinned."""
        manifest, saved = self.manifest, self.saved
        strategy = manifest.spec.strategy.rolling_update or RollingUpdate()
        with collector_paused():
            if saved is None:
                state = RolloutState((), manifest.spec.policy, strategy, now)
            else:
                context = load_rollout_context(saved, now=now, plans=True)
                state = replace(context.state, strategy=strategy)
            after: Iterable[str] = sorted(self.placed_after)
            if (
                not self.selection.objects
                and self.snapshot is None
                and (saved is None or saved.pinned_snapshot is None)
            ):
                holding = {
                    cluster.name for cluster in state.clusters if cluster.has_resources
                }
                after = [name for name in after if name in holding]
            versions = dict.fromkeys(after, self._version)
            return plan_waves(state.with_wanted(versions, manifest.spec.policy))

    def waves(self, *, now: datetime) -> tuple[Wave, ...] | None:
        """Return the waves of the plan.

        None where a staged update run decides that, and where there is nothing to roll out.
        """
        if self.is_staged or self.decision.is_failed:
            return None
        if self._is_rolled_out():
            return ()
        return self.plan(now=now).waves

    def _is_rolled_out(self) -> bool:
        """Return whether no cluster is to be called, in one query: a large placement has thousands."""
        if self.saved is None or self.joins or self.leaves:
            return False
        has_version = Q(applied_version=self._version, phase__in=_WITH_VERSION)
        ends = Q(state=BindingState.UNSCHEDULED)
        is_done = (~ends & has_version) | (ends & Q(phase__in=_WITHOUT))
        rows = Binding.objects.filter(placement=self.saved)
        return not rows.exclude(is_done).exists()

    @cached_property
    def _version(self) -> str:
        target = self.snapshot
        if target is None and self.saved and self.saved.pinned_snapshot is not None:
            target = target_of(self.saved)
        if target is not None:
            return version_of(target, self.manifest)
        hashed = content_hash_of_resources(plain_objects(self.selection.objects))
        return version_of_content(hashed, self.manifest)


def preview(manifest: ClusterResourcePlacement) -> SchedulePreview:
    """Schedule a manifest as saving it would. Raise InvalidManifest."""
    raise_errors(reserved_name_errors(manifest))
    saved = Placement.objects.filter(full_name=name_on_hub(manifest)).first()
    return preview_over(saved, manifest, selection_of(manifest), current_fleet().fleet)


def preview_over(
    saved: Placement | None,
    manifest: ClusterResourcePlacement,
    selection: Selection,
    fleet: Fleet,
) -> SchedulePreview:
    """Schedule a manifest that selects these resources as saving it over a placement, or as new, would."""
    is_incremental = False
    if saved is not None:
        prefetch_related_objects([saved], "policy_snapshots")
        kept = [
            snapshot for snapshot in saved.policy_snapshots.all() if snapshot.is_latest
        ]
        is_incremental = content_hash(manifest) in [
            snapshot.content_hash for snapshot in kept
        ]
    decision = schedule(draft_cycle(manifest, saved=saved, fleet=fleet))
    return SchedulePreview(manifest, decision, selection, saved, is_incremental)


@dataclass(frozen=True)
class DraftPreview:
    """A draft on the fleet and hub as they are: fetched once, scheduled once.

    `schedule` is None where the text is incomplete; `errors` are those of the draft, with those that only
    the hub knows; `base` is the manifest that the draft started from; `touched` are the names of the fields
    that a user touched, None once the form is submitted, and where all errors count.
    """

    draft: PlacementDraft
    saved: Placement | None
    fleet: Fleet
    objects: tuple[HubObject, ...]
    errors: tuple[FieldError, ...]
    schedule: SchedulePreview | None
    milliseconds: int
    now: datetime
    base: Any = None
    touched: frozenset[str] | None = None

    @property
    def form(self) -> PlacementForm | None:
        return self.draft.form

    @property
    def decision_id(self) -> str:
        return self.schedule.decision.id if self.schedule else ""

    @cached_property
    def shown_errors(self) -> tuple[FieldError, ...]:
        """The errors to show: until the form is submitted, those of what was touched."""
        return tuple(error for error in self.errors if self._is_shown(error))

    @property
    def pending_errors(self) -> tuple[FieldError, ...]:
        return tuple(error for error in self.errors if error not in self.shown_errors)

    def _is_shown(self, error: FieldError) -> bool:
        if self.touched is None:
            return True
        # A touched field or list may be the place of the error, around it or inside of it.
        place = f"{error.path}."
        for name in self.touched:
            if f"{name}.".startswith((place, f"{error.path}[")):
                return True
            if place.startswith((f"{name}.", f"{name}[")):
                return True
        if error.code in ("required", *_CAUSED_ELSEWHERE) or self.saved is not None:
            return error.code != "required"
        keys = split_path(error.path)
        return bool(at(self.draft.data, keys) != at(self.base, keys))

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What the checks find quickly enough while a user types."""
        if self.schedule is None or self.draft.manifest is None:
            return ()
        schedule = self.schedule
        return quick_findings(
            self.draft.manifest, schedule.decision.cycle, schedule.assertions
        )

    @cached_property
    def waves(self) -> tuple[Wave, ...] | None:
        return self.schedule.waves(now=self.now) if self.schedule else None

    @property
    def waves_while_typing(self) -> tuple[Wave, ...] | None:
        """The waves, None with so many clusters that planning would make typing slow."""
        is_small = (
            self.schedule is not None
            and len(self.schedule.placed_after) <= _MOST_PLANNED
        )
        return self.waves if is_small else None

    @cached_property
    def notes(self) -> FormNotes:
        return notes_of(
            self.draft,
            self.shown_errors,
            self.schedule.warnings if self.schedule else (),
            pending=self.pending_errors,
            fleet=self.fleet,
            resource_hints=self.resource_hints,
            absent_namespaces=self.absent_namespaces,
            edits=self.edits,
            cycle=self.schedule.decision.cycle if self.schedule else None,
            bound=self.schedule.bound if self.schedule else None,
        )

    @property
    def resource_hints(self) -> dict[str, str]:
        hints = {}
        for row in self.form.resources.rows[:_MOST_SELECTORS] if self.form else ():
            with suppress(InvalidManifest):
                raw = at(self.draft.data, row.keys)
                selector = parse_manifest(
                    ResourceSelector, raw, semantics=DEFAULT_SEMANTICS, path=""
                )
                selected = select(
                    (selector,), self.objects, namespace=self.draft.namespace, path=""
                ).objects
                kinds = dict.fromkeys(hub_object.kind for hub_object in selected)
                words = f"Selects {counted(len(selected), 'resource')}"
                more = f": {names_and_more(list(kinds), _MOST_KINDS)}" if kinds else ""
                hints[row.name] = f"{words}{more}"
        return hints

    @property
    def edits(self) -> dict[str, str]:
        if (
            self.form is None
            or self.saved is None
            or not isinstance(self.base, Mapping)
        ):
            return {}
        return edits_of(self.form, self.base)

    @cached_property
    def changes(self) -> int:
        """How many places differ from the saved manifest."""
        return len(differences(self.base or {}, self.draft.data))

    @property
    def absent_namespaces(self) -> dict[str, str]:
        """The Namespaces that fields name and that are not on the hub, by the name of the field."""
        keys = [
            (*row.keys, "name")
            for row in (self.form.resources.rows if self.form else ())
            if at(self.draft.data, (*row.keys, "kind")) == "Namespace"
        ]
        if self.draft.namespace and self.saved is None:
            keys.append(NAMESPACE)
        there = {
            hub_object.name
            for hub_object in self.objects
            if hub_object.key[:2] == _NAMESPACE
        }
        named = {format_path(key): at(self.draft.data, key) for key in keys}
        return {
            path: name
            for path, name in named.items()
            if isinstance(name, str)
            and name
            and name not in there
            and not is_reserved_namespace(name)
        }

    @cached_property
    def hub_choices(self) -> list[HubObject]:
        return selectable_among(self.objects, self.draft.namespace)[:_MOST_CHOICES]

    @property
    def cluster_choices(self) -> tuple[str, ...]:
        return tuple(self.fleet.names[:_MOST_CHOICES])

    @cached_property
    def suggestions(self) -> dict[str, Suggestions]:
        """What every list of suggestions holds, by its id."""
        if self.form is None:
            return {}
        names: dict[Keys, tuple[str, ...]] = {}
        if self.saved is None:
            names[NAMESPACE[:-1]] = names_among(self.objects, "", "Namespace", "")
        for row in self.form.resources.rows[:_MOST_SELECTORS]:
            values = (
                at(self.draft.data, (*row.keys, key))
                for key in ("group", "kind", "name")
            )
            group, kind, typed = (
                value if isinstance(value, str) else "" for value in values
            )
            names[row.keys] = names_among(
                self.objects, group, kind, typed, namespace=self.draft.namespace
            )
        return suggestions(self.form, self.fleet, names)


def preview_draft(
    draft: PlacementDraft,
    *,
    saved: Placement | None,
    now: datetime,
    by: User | None = None,
    base: Any = None,
    touched: frozenset[str] | None = None,
) -> DraftPreview:
    """Check a draft against the hub, and the grants of the user who will save it; schedule what can be.

    `base` and `touched` as in a `DraftPreview`.
    """
    fleet, objects = current_fleet().fleet, tuple(hub_objects())
    selection, errors = Selection(()), list(draft.errors)
    readable = draft.manifest or draft.valid_part
    if readable is not None:
        problems = reserved_name_errors(readable)
        if saved is None:
            name = name_on_hub(readable)
            if Placement.objects.filter(full_name=name).exists():
                message = f"a placement {name} exists already: edit that one, or give this one another name"
                problems.append(
                    FieldError(
                        "metadata.name",
                        "duplicate",
                        message,
                        "a name that is not taken",
                    )
                )
        try:
            selection = selection_of(readable, objects)
        except InvalidManifest as invalid:
            problems += invalid.errors
        if draft.manifest is not None:
            before = None
            if saved is not None:
                before = saved.document
                problems += immutable_field_errors(saved, draft.manifest, draft.data)
            if refusal := placement_refusal(
                by, draft.manifest, before=before, after=draft.data
            ):
                problems.append(FieldError("metadata.labels", "forbidden", refusal))
        errors += draft.with_lines(problems)
    started, result = perf_counter(), None
    if draft.valid_part is not None:
        result = preview_over(saved, draft.valid_part, selection, fleet)
    milliseconds = round((perf_counter() - started) * 1000)
    return DraftPreview(
        draft,
        saved,
        fleet,
        objects,
        tuple(errors),
        result,
        milliseconds,
        now,
        base,
        touched,
    )
