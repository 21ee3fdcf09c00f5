"""What a write would cause on the clusters: what an edit deselects, which staged runs fail, what a run does.

All of it is our calculation on the mirror of the hub in scope; the hub decides.
"""

from collections import Counter
from collections.abc import Iterable

from clusters.fleet import Fleet
from clusters.queries import current_fleet
from fleetui.apimachinery.errors import InvalidManifest
from placements.engine.rollout.staged_run import sorting_number, stage_members
from placements.engine.scheduling.scheduler import schedule
from placements.hubs.kinds.base import Manifest, mapping_at
from placements.hubs.writing.planning import Deselection
from placements.manifests.binding import BindingState
from placements.manifests.placement import parse_placement
from placements.manifests.staged_update import parse_staged_strategy
from placements.models import Binding, Placement, StagedRun
from placements.services.snapshots import draft_cycle

_METADATA = ("name", "namespace", "labels", "annotations")


def deselection_of(manifest: Manifest) -> Deselection | None:
    """Return the clusters that a placement would leave; None where that cannot be calculated."""
    metadata = {
        key: one
        for key, one in mapping_at(manifest, "metadata").items()
        if key in _METADATA and one
    }
    document = {
        **{key: manifest.get(key) for key in ("apiVersion", "kind", "spec")},
        "metadata": metadata,
    }
    try:
        draft = parse_placement(document)
    except InvalidManifest:  # of a newer API: the hub accepted it
        return None
    saved = Placement.objects.filter(full_name=draft.full_name).first()
    if saved is None:
        return None
    decision = schedule(draft_cycle(draft, saved=saved, fleet=current_fleet().fleet))
    before = {one.cluster for one in decision.cycle.live_bindings if one.is_active}
    after = {one.cluster for one in decision.bindings_after if one.is_active}
    if decision.is_failed:
        return None
    return Deselection(draft.full_name, tuple(sorted(before - after)), len(before))


def stage_notes(strategy: Manifest, placement: str) -> tuple[str, ...]:
    """Return which clusters each stage of a run would have, and what makes the run fail: all names."""
    hub_metadata = mapping_at(strategy, "metadata")
    metadata = {
        key: hub_metadata[key] for key in ("name", "namespace") if hub_metadata.get(key)
    }
    document = {
        **{key: strategy.get(key) for key in ("apiVersion", "kind", "spec")},
        "metadata": metadata,
    }
    try:
        manifest = parse_staged_strategy(document)
    except InvalidManifest as error:
        return (f"The strategy is not understood: {error.errors[0].path}.",)
    bindings = Binding.objects.filter(placement__full_name=placement).values_list(
        "cluster_name", "state"
    )
    states = dict(bindings)
    picked = {
        name for name, state in states.items() if state != BindingState.UNSCHEDULED
    }
    fleet = Fleet([one for one in current_fleet().fleet if one.name in picked])
    members = {
        stage.name: stage_members(stage, fleet) for stage in manifest.spec.stages
    }
    notes = [_names_note(f"Stage {name}", names) for name, names in members.items()]
    counts = Counter(name for names in members.values() for name in names)
    missing = sorted(picked - counts.keys())
    several = sorted(name for name, number in counts.items() if number > 1)
    unsorted = [
        f"{name} in stage {stage.name}"
        for stage in manifest.spec.stages
        if stage.sorting_label_key
        for name in members[stage.name]
        if sorting_number(
            fleet.clusters[fleet.positions[name]], stage.sorting_label_key
        )
        is None
    ]
    leaving = sorted(
        name for name, state in states.items() if state == BindingState.UNSCHEDULED
    )
    problems = (
        ("Clusters in no stage; the run would fail", missing),
        ("Clusters in several stages; the run would fail", several),
        (
            "Clusters without a whole number in the sorting label; the run would fail",
            unsorted,
        ),
        ("Removed from after the last stage", leaving),
    )
    return (*notes, *(_names_note(words, names) for words, names in problems if names))


def _names_note(words: str, names: Iterable[str]) -> str:
    return f"{words}: {', '.join(names) or 'no clusters'}."


def failing_runs(before: Manifest, after: Manifest) -> tuple[str, ...]:
    """Return the active runs that other labels of a cluster let fail: it changes its stage or place there."""
    sides = [dict(mapping_at(one, "metadata", "labels")) for one in (before, after)]
    name = str(mapping_at(before, "metadata")["name"])
    placements = Binding.objects.filter(cluster_name=name).exclude(
        state=BindingState.UNSCHEDULED
    )
    runs = StagedRun.objects.filter(
        ended_at=None, placement__in=placements.values("placement")
    )
    clusters = {one.name: one for one in current_fleet().fleet}
    if name not in clusters:
        return ()
    notes = []
    for run in runs.order_by("full_name").only(
        "full_name", "strategy", "placement_name"
    ):
        try:
            spec = parse_staged_strategy(run.strategy).spec
        except InvalidManifest:
            continue
        places = []
        for labels in sides:
            alone = Fleet([clusters[name]._replace(labels=labels)])
            inside = [stage for stage in spec.stages if stage_members(stage, alone)]
            places.append(
                {
                    one.name: sorting_number(alone.clusters[0], one.sorting_label_key)
                    for one in inside
                }
            )
        was, becomes = places
        if was != becomes:
            words = [", ".join(one) or "no stage" for one in places]
            notes.append(
                f"Run {run.full_name} of {run.placement_name} would fail: {name} goes from {words[0]} "
                f"to {words[1]}, or changes its place there."
            )
    return tuple(notes)
