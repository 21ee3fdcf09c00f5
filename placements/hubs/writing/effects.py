"""What a write would cause on the clusters: what an edit deselects, which staged runs fail, what a run does.

All of it is our calculation on the mirror of the hub in scope; the hub decides.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from clusters.fleet import Cluster, Fleet
from clusters.queries import current_fleet
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.model import mapping_at
from placements.engine.rollout.staged_run import sorting_number, stage_members
from placements.engine.scheduling.scheduler import schedule
from placements.hubs.kinds.base import Manifest
from placements.hubs.writing.planning import Deselection
from placements.manifests.binding import BindingState
from placements.manifests.placement import parse_placement
from placements.manifests.staged_update import StageSpec, parse_staged_strategy
from placements.models import Binding, Placement, StagedRun
from placements.services.snapshots import draft_cycle

_METADATA = ("name", "namespace", "labels", "annotations")


def document_of(manifest: Manifest) -> dict[str, Any]:
    """Return an object of the hub as parsers take it."""
    metadata = mapping_at(manifest, "metadata")
    kept = {key: metadata[key] for key in _METADATA if metadata.get(key)}
    document = {key: manifest.get(key) for key in ("apiVersion", "kind", "spec")}
    return {**document, "metadata": kept}


def deselection_of(manifest: Manifest) -> Deselection | None:
    """Return the clusters that a placement would leave; None where that cannot be calculated."""
    try:
        draft = parse_placement(document_of(manifest))
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
    try:
        stages = parse_staged_strategy(document_of(strategy)).spec.stages
    except InvalidManifest as error:
        return (f"The strategy is not understood: {error.errors[0].path}.",)
    bindings = Binding.objects.filter(placement__full_name=placement)
    leaving, picked = set[str](), set[str]()
    for name, state in bindings.values_list("cluster_name", "state"):
        side = leaving if state == BindingState.UNSCHEDULED else picked
        side.add(name)
    fleet = Fleet([one for one in current_fleet().fleet if one.name in picked])

    notes, counts, unsorted = [], Counter[str](), list[str]()
    for stage in stages:
        names = stage_members(stage, fleet)
        notes.append(_names_note(f"Stage {stage.name}", names))
        counts.update(names)
        key = stage.sorting_label_key
        for name in names if key else ():
            cluster = fleet.clusters[fleet.positions[name]]
            if sorting_number(cluster, key) is None:
                unsorted.append(f"{name} in stage {stage.name}")
    several = [name for name, number in counts.items() if number > 1]
    problems = {
        "Clusters in no stage; the run would fail": sorted(picked - counts.keys()),
        "Clusters in several stages; the run would fail": sorted(several),
        "Clusters without a whole number in the sorting label; the run would fail": unsorted,
        "Removed from after the last stage": sorted(leaving),
    }
    notes += [_names_note(words, names) for words, names in problems.items() if names]
    return tuple(notes)


def _names_note(words: str, names: Iterable[str]) -> str:
    return f"{words}: {', '.join(names) or 'no clusters'}."


def failing_runs(before: Manifest, after: Manifest) -> tuple[str, ...]:
    """Return the active runs that other labels of a cluster let fail: it changes its stage or place there."""
    name = str(mapping_at(before, "metadata")["name"])
    cluster = next((one for one in current_fleet().fleet if one.name == name), None)
    if cluster is None:
        return ()
    sides = [
        cluster._replace(labels=dict(mapping_at(one, "metadata", "labels")))
        for one in (before, after)
    ]
    bindings = Binding.objects.filter(cluster_name=name)
    placed = bindings.exclude(state=BindingState.UNSCHEDULED).values("placement")
    runs = StagedRun.objects.filter(ended_at=None, placement__in=placed)
    notes = []
    columns = ("full_name", "strategy", "placement_name")
    for run in runs.order_by("full_name").only(*columns):
        try:
            stages = parse_staged_strategy(run.strategy).spec.stages
        except InvalidManifest:
            continue
        was, becomes = (places_in(stages, side) for side in sides)
        if was != becomes:
            old, new = (", ".join(one) or "no stage" for one in (was, becomes))
            notes.append(
                f"Run {run.full_name} of {run.placement_name} would fail: {name} goes from {old} "
                f"to {new}, or changes its place there."
            )
    return tuple(notes)


def places_in(stages: Iterable[StageSpec], cluster: Cluster) -> dict[str, int | None]:
    """Return the stages that have a cluster, each with the number that it is sorted by."""
    alone = Fleet([cluster])
    return {
        stage.name: sorting_number(cluster, stage.sorting_label_key)
        for stage in stages
        if stage_members(stage, alone)
    }
