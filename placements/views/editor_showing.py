"""What stands in the editor: faults, warnings and hints at their fields and lines, and the preview."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetui.events import events_since
from placements.drafting.fields import slug
from placements.drafting.form import Form
from placements.drafting.hints import hints, offers
from placements.explain.diffs import differences
from placements.explain.previewing import Beginning, beginning
from placements.explain.wording import counted
from placements.models import Draft, Placement
from placements.operations.placements import PLACEMENT
from placements.queries.drafts import DraftPreview, Look, object_names
from placements.scheduling.faults import Caveat, Fault, Keys, split_path
from placements.scheduling.policy import PlacementType
from placements.scheduling.spec import ClusterResourcePlacement, OcmPlacement, StrategyType

NAMES_SHOWN, WAVES_SHOWN = 20, 12
_OF_TYPE = {
    PlacementType.PICK_ALL: {"required", "tolerations"},
    PlacementType.PICK_N: {"required", "preferred", "spread", "tolerations", "number"},
    PlacementType.PICK_FIXED: {"names"},
}
_LISTS = ("required", "preferred", "spread", "tolerations")
_TOLD_BY_HINTS = frozenset({"unknown-key", "single-group", "clusters-lack-key"})
_PLACES = {"number": "spec.policy.numberOfClusters", "names": "spec.policy.clusterNames"}


@dataclass
class Beside:
    """What is said beside a field, a row or a list."""

    name: str
    faults: list[Fault] = field(default_factory=list)
    warnings: list[Caveat] = field(default_factory=list)
    hint: str = ""
    left_out: bool = False
    is_warning: bool = False

    @property
    def id(self) -> str:
        """Give its id in the page."""
        return f"beside-{slug(self.name)}"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the gutter."""

    number: int
    mark: str


def showing(look: Look, placement: Placement | None) -> dict[str, Any]:
    """Give the context of the editor's templates."""
    checked, shown = look.checked, look.shown
    form, warnings = checked.form, _warnings(shown)
    besides, faults_left, warnings_left = _besides(look, warnings)
    return {
        "checked": checked,
        "form": form,
        "besides": besides,
        "faults": checked.faults,
        "faults_left": faults_left,
        "warnings": warnings,
        "warnings_left": warnings_left,
        "offers": offers(form, look.fleet, object_names(form, look)) if form else {},
        "shown": shown,
        "left_out": _left_out(look),
        "is_ocm": isinstance(checked.draft, OcmPlacement),
        "preview": shown.preview if shown else None,
        "changes": _changes(shown) if shown else [],
        "sections": _sections(form) if form else {},
        "misfits": _misfits(checked.faults),
        "gutter": _gutter(checked.text, checked.faults),
        "fleet_size": len(look.fleet),
        "is_saved": placement is not None,
        **_words(look, warnings),
    }


def decided(shown: DraftPreview, draft: ClusterResourcePlacement) -> dict[str, Any]:
    """Give the context of what a preview says of the decision, where there is no editor beside it."""
    return {
        "shown": shown,
        "preview": shown.preview,
        "changes": _changes(shown),
        "warnings": _warnings(shown),
        "result_words": _result(shown),
        "beginning": _beginning(shown),
        "waves_words": _waves(draft, shown),
        "more_picks": _more_picks(shown),
    }


def _words(look: Look, warnings: list[Caveat]) -> dict[str, Any]:
    shown = look.shown
    return {
        "faults_words": counted(len(look.checked.faults), "fault"),
        "warnings_words": counted(len(warnings), "warning"),
        "result_words": _result(shown) if shown else "",
        "beginning": _beginning(shown) if shown else None,
        "waves_words": _waves(look.checked.trial, shown) if shown else "",
        "more_picks": _more_picks(shown) if shown else 0,
    }


def _beginning(shown: DraftPreview) -> Beginning:
    return beginning(shown.preview.decision.cycle, is_incremental=shown.preview.is_incremental)


def _result(shown: DraftPreview) -> str:
    policy = shown.preview.decision.cycle.policy
    if policy.placement_type is PlacementType.PICK_N:
        return f"{shown.placed:,} of {policy.number_of_clusters or 0:,} picked"
    if policy.placement_type is PlacementType.PICK_FIXED:
        return f"{shown.placed:,} of {len(policy.cluster_names):,} placed"
    return f"{shown.placed:,} picked"


def _more_picks(shown: DraftPreview) -> int:
    return max(0, len(shown.preview.decision.picked) - len(shown.picks))


def _waves(draft: ClusterResourcePlacement | None, shown: DraftPreview) -> str:
    if draft and draft.spec.strategy.type is StrategyType.EXTERNAL:
        return "Staged: changes wait until somebody starts a run."
    if shown.waves is None:
        return "The review plans the waves of the rollout."
    if not shown.waves:
        return "Nothing is left to roll out."
    counts = ", ".join(map(str, shown.waves[:WAVES_SHOWN])) + (
        ", …" if len(shown.waves) > WAVES_SHOWN else ""
    )
    clusters = "cluster" if shown.waves == (1,) else "clusters"
    return f"Rolls out in {counted(len(shown.waves), 'wave')}: {counts} {clusters}."


def conflict(draft: Draft | None, placement: Placement | None) -> dict[str, Any]:
    """Give what somebody else saved since a draft began, and who; nothing where nobody did."""
    if draft is None or placement is None or placement.revision == draft.revision:
        return {"is_stale": False, "theirs": [], "savers": []}
    return {
        "is_stale": True,
        "theirs": differences(draft.base, placement.document),
        "savers": events_since(PLACEMENT, placement.name, draft.revision),
    }


def _warnings(shown: DraftPreview | None) -> list[Caveat]:
    if shown is None:
        return []
    return [
        Caveat(one.code, f"spec.{one.path}" if one.path.startswith("policy") else one.path, one.message)
        for one in shown.preview.caveats
    ]


def _besides(look: Look, warnings: list[Caveat]) -> tuple[dict[str, Beside], list[Fault], list[Caveat]]:
    """Sort faults and warnings to their fields, rows and lists; give also those that have none."""
    form = look.checked.form
    if form is None:
        return {}, list(look.checked.faults), warnings
    besides = {name: Beside(name) for name in _targets(form)}
    places = {keys: name for name, keys in _targets(form).items()}
    faults_left: list[Fault] = []
    warnings_left: list[Caveat] = []
    for fault in look.checked.faults:
        target = _nearest(places, fault.path)
        (besides[target].faults if target else faults_left).append(fault)
    for one in warnings:
        is_told = one.code in _TOLD_BY_HINTS and one.path.endswith(".topologyKey")
        path = one.path.removesuffix(".topologyKey") if is_told else one.path
        # Where something is left out, the places in warnings are not those in the form.
        target = "" if look.checked.left_out else _nearest(places, path)
        if target and is_told:
            besides[target].is_warning = True
        else:
            (besides[target].warnings if target else warnings_left).append(one)
    said = hints(
        form,
        look.checked.data,
        cycle=look.cycle,
        draft=look.checked.trial,
        fleet=look.fleet,
        bound=look.shown.bound if look.shown else None,
    )
    for name, words in said.items():
        if name in besides:
            besides[name].hint = words
    for path in _outermost(look.checked.left_out):
        if path in besides:
            besides[path].left_out = True
    return besides, faults_left, warnings_left


def _outermost(paths: Iterable[str]) -> list[str]:
    """Leave out what is inside something else that is listed."""
    listed = sorted(paths, key=len)
    return [one for one in listed if not any(one != other and one.startswith(other) for other in listed)]


def _left_out(look: Look) -> list[str]:
    """Name what the preview leaves out, as the form calls it; by its path where there is no form for it."""
    form = look.checked.form
    nouns = {group.keys: group.noun for group in form.all_groups} if form else {}
    found = []
    for path in _outermost(look.checked.left_out):
        *around, last = split_path(path)
        noun = nouns.get(tuple(around))
        if isinstance(last, int):
            found.append(f"{noun} {last + 1}" if noun else path)
        else:
            found.append(last if form else path)
    return found


def _targets(form: Form) -> dict[str, Keys]:
    """Give the names of all that something can be said beside, with their places; fields come last."""
    sections = _sections(form)
    groups = {one.name: one.keys for one in form.all_groups if one.rows or one.can_add}
    rows = {row.name: row.keys for group in form.all_groups for row in group.rows}
    found = {**groups, **rows, **{one.name: one.keys for one in form.fields}}
    hidden = {getattr(form, part).name for part in _LISTS if not sections[part]}
    hidden |= {path for part, path in _PLACES.items() if not sections[part]}
    if not sections["rolling"]:
        hidden |= {one.name for one in form.strategy if one.name != "spec.strategy.type"}
    return {name: keys for name, keys in found.items() if name not in hidden}


def _nearest(places: Mapping[Keys, str], path: str) -> str:
    keys = split_path(path)
    ends = range(len(keys), 1, -1)
    return next((places[keys[:end]] for end in ends if keys[:end] in places), "")


def _changes(shown: DraftPreview) -> list[tuple[str, str, tuple[str, ...], int, int]]:
    """Give who joins, leaves and stays: words, sign, the first names, how many more, how many in all."""
    found = shown.preview
    named: Iterable[tuple[str, str, tuple[str, ...]]] = (
        ("join", "joins", found.joins),
        ("leave", "leaves", found.leaves),
        ("stay", "", found.stays),
    )
    return [
        (
            f"{verb}s" if len(names) == 1 else verb,
            sign,
            names[:NAMES_SHOWN],
            max(0, len(names) - NAMES_SHOWN),
            len(names),
        )
        for verb, sign, names in named
    ]


def _sections(form: Form) -> dict[str, bool]:
    """Tell which parts of the form to show: those that go with the placement type, and what is filled in."""
    chosen = form.named("spec.policy.placementType")
    value = chosen.value if chosen else ""
    usual = _OF_TYPE.get(PlacementType(value), set()) if value in list(PlacementType) else set(_PLACES)
    filled = {name for name in _LISTS if getattr(form, name).rows}
    filled |= {name for name, path in _PLACES.items() if (one := form.named(path)) and one.value}
    staged = form.named("spec.strategy.type")
    parts = {name: name in usual | filled for name in (*_LISTS, *_PLACES)}
    return parts | {"rolling": staged is None or staged.value != "External"}


def _misfits(faults: Iterable[Fault]) -> list[str]:
    """Name what does not go with the chosen placement type or strategy, to be taken away with one button."""
    return [
        one.path
        for one in faults
        if one.code == "forbidden-for-type"
        or (one.code == "conflict" and one.path.endswith(".rollingUpdate"))
    ]


def _gutter(text: str, faults: Iterable[Fault]) -> list[Line]:
    marked = {fault.line for fault in faults}
    count = text.count("\n") + (not text.endswith("\n"))
    return [Line(number, "✗" if number in marked else "") for number in range(1, count + 1)]
