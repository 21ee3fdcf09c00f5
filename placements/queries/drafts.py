"""Reading drafts, and previewing what they would decide, with all that the editor shows of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from time import perf_counter

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import QuerySet

from clusters.queries import fleet_now
from placements.drafting.checking import Checked, check
from placements.drafting.fields import at
from placements.drafting.form import Form
from placements.explain.advice_wording import bound_sentence, trap_sentences
from placements.explain.previewing import PickLine, SpreadBars, passed_over, pick_lines, spread_bars
from placements.explain.sentences import policy_sentence
from placements.manifests import attach_lines
from placements.models import Draft, Placement
from placements.operations.immutable import immutability_faults
from placements.queries.fresh import from_scratch
from placements.queries.hub import hub_objects, names_among, selection_of
from placements.queries.planning import plan_of_preview
from placements.queries.preview import Preview, preview_over, previewed
from placements.scheduling.advice.feasibility import Bound, feasibility_bound
from placements.scheduling.cycle import Cycle
from placements.scheduling.door.ocm_placement import is_ocm_placement
from placements.scheduling.faults import Fault, Faults, Keys
from placements.scheduling.fleet import Fleet
from placements.scheduling.hub.objects import HubObject
from placements.scheduling.hub.selection import Selection
from placements.scheduling.outcomes import Outcome
from placements.scheduling.profile import profile_of
from placements.scheduling.scheduler import schedule
from placements.scheduling.spec import ClusterResourcePlacement, StrategyType, parse_placement
from placements.scheduling.spread.base import GroupStrategy
from placements.snapshots import cycles_of

_MOST_STEPS, _MOST_JUDGED, _MOST_PLANNED = 2_000, 1_000, 200
_MOST_SELECTORS = 10
_NAMING = ("group", "kind", "name")


@dataclass(frozen=True)
class DraftPreview:
    """What a draft would decide on the fleet as it is, and what led to it.

    `waves` counts the clusters of each planned wave; None for a staged placement, whose runs people start,
    and where a plan would keep somebody waiting who only types. So with `bound`, where finding it takes long.
    """

    preview: Preview
    sentence: str
    bound: Bound | None
    traps: tuple[str, ...]
    spreads: tuple[SpreadBars, ...]
    picks: tuple[PickLine, ...]
    passed: tuple[tuple[Outcome, int], ...]
    waves: tuple[int, ...] | None
    milliseconds: int

    @property
    def placed(self) -> int:
        """Count the clusters placed afterwards."""
        return sum(one.is_active for one in self.preview.decision.bindings_after)

    @property
    def bound_words(self) -> str:
        """Say how many can be reached, where there is something to say."""
        return bound_sentence(self.bound) if self.bound else ""


@dataclass(frozen=True)
class Look:
    """A text looked at: what it says, what it would decide, and the fleet and hub that this was found on."""

    checked: Checked
    shown: DraftPreview | None
    fleet: Fleet
    cycle: Cycle | None
    objects: tuple[HubObject, ...] = ()


def drafts_of(person: AbstractBaseUser | AnonymousUser, placement: Placement | None) -> QuerySet[Draft]:
    """Give a person's drafts of a placement, or of new ones, the latest first."""
    if not person.pk:
        return Draft.objects.none()
    return Draft.objects.filter(owner_id=person.pk, placement=placement).order_by("-updated_at", "-pk")


def look_at(text: str, *, saved: Placement | None, now: datetime, with_waves: bool = False) -> Look:
    """Check a text against the hub, and preview what can be; `with_waves` plans them at any size."""
    fleet = fleet_now().fleet
    objects = tuple(hub_objects())
    checked, selection = _with_hub(check(text, name=saved.name if saved else ""), saved, objects)
    if checked.trial is None:
        return Look(checked, None, fleet, None, objects)
    started = perf_counter()
    found = preview_over(checked.trial, saved=saved, selection=selection)
    shown = _shown(checked.trial, found, now=now, with_waves=with_waves)
    milliseconds = round((perf_counter() - started) * 1000)
    return Look(checked, replace(shown, milliseconds=milliseconds), fleet, found.decision.cycle, objects)


def look_afresh(placement: Placement, *, now: datetime) -> DraftPreview:
    """Preview what deciding a saved placement from scratch would change. Raises Faults of its selectors."""
    started = perf_counter()
    draft = parse_placement(placement.document)
    [(_, cycle)] = cycles_of([placement], fleet_now().fleet)
    found = previewed(
        draft,
        schedule(from_scratch(cycle)),
        saved=placement,
        selection=selection_of(draft),
        is_incremental=False,
    )
    shown = _shown(draft, found, now=now, with_waves=True)
    return replace(shown, milliseconds=round((perf_counter() - started) * 1000))


def object_names(form: Form, look: Look) -> dict[Keys, tuple[str, ...]]:
    """Give names of the objects that each selector of a form may mean."""
    found = {}
    for row in form.resources.rows[:_MOST_SELECTORS]:
        group, kind, typed = (_text_at(look.checked.data, row.keys, key) for key in _NAMING)
        found[row.keys] = names_among(look.objects, group, kind, typed)
    return found


def _text_at(data: object, keys: Keys, key: str) -> str:
    found = at(data, (*keys, key))
    return found if isinstance(found, str) else ""


def _with_hub(
    checked: Checked, saved: Placement | None, objects: Sequence[HubObject]
) -> tuple[Checked, Selection]:
    """Add the faults that only the hub tells: of the selectors, and of what may not be changed."""
    faults, selection = list(checked.faults), Selection(())
    draft, document = checked.draft, checked.document
    if draft is None or document is None:
        return checked, selection
    found: list[Fault] = []
    try:
        selection = selection_of(draft, objects)
    except Faults as at_fault:
        found += at_fault.faults
    if saved is None and Placement.objects.filter(name=draft.metadata.name).exists():
        found.append(_taken(draft.metadata.name))
    if saved is not None:
        had, has = (_has_policy(one) for one in (saved.document, document.data))
        before = parse_placement(saved.document)
        found += immutability_faults(before, draft, had_policy=had, has_policy=has)
    faults += attach_lines((document, fault) for fault in found)
    return replace(checked, faults=tuple(faults)), selection


def _taken(name: str) -> Fault:
    message = f"there is a placement {name} already: edit that one, or give this one another name"
    return Fault("metadata.name", "duplicate", message, "a name that is not taken")


def _has_policy(document: dict[str, dict[str, object]]) -> bool:
    return is_ocm_placement(document) or document["spec"].get("policy") is not None


def _shown(
    draft: ClusterResourcePlacement, found: Preview, *, now: datetime, with_waves: bool
) -> DraftPreview:
    decision = found.decision
    return DraftPreview(
        preview=found,
        sentence=policy_sentence(draft.spec.policy, draft.semantics, draft.spread_options),
        bound=feasibility_bound(decision.cycle) if _is_quick(decision.cycle) else None,
        traps=tuple(trap_sentences(decision, most_steps=_MOST_STEPS, with_bound=False)),
        spreads=tuple(spread_bars(decision)),
        picks=tuple(pick_lines(decision)),
        passed=tuple(passed_over(decision)),
        waves=_waves(draft, found, now=now) if with_waves or _is_small(found) else None,
        milliseconds=0,
    )


def _is_quick(cycle: Cycle) -> bool:
    """Tell whether a bound is found in a blink: rules that judge everybody anew in every round take long."""
    is_flat = isinstance(profile_of(cycle).strategy, GroupStrategy)
    return is_flat or len(cycle.fleet) <= _MOST_JUDGED


def _is_small(found: Preview) -> bool:
    return len(found.decision.bindings_after) <= _MOST_PLANNED


def _waves(draft: ClusterResourcePlacement, found: Preview, *, now: datetime) -> tuple[int, ...] | None:
    if draft.spec.strategy.type is StrategyType.EXTERNAL or found.decision.is_failed:
        return None
    return tuple(len(wave.actions) for wave in plan_of_preview(draft, found, now=now).waves)
