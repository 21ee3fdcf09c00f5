"""Rows to frozen values and back: what a scheduling cycle starts from, and what it leaves behind."""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast

from clusters.queries import FleetView
from placements.balance import Usage
from placements.models import Binding, Placement, PolicySnapshot
from placements.scheduling.bindings import Binding as BindingValue
from placements.scheduling.bindings import BindingState
from placements.scheduling.cycle import Cycle
from placements.scheduling.fleet import Fleet, collector_paused
from placements.scheduling.policy import PlacementPolicy, Semantics, parse_policy
from placements.scheduling.spec import ClusterResourcePlacement


class BindingRow(NamedTuple):
    """What a cycle reads of a binding; plain values, as there may be thousands."""

    cluster_name: str
    state: str
    previous_state: str
    policy_snapshot_id: int
    topology_spread_score: Any
    affinity_score: float | None


@dataclass(frozen=True)
class Inputs:
    """Everything that one scheduling cycle of a placement reads; taken at one moment."""

    placement: Placement
    snapshot: PolicySnapshot
    bindings: tuple[Binding, ...]
    view: FleetView
    cycle: Cycle


def take(placement: Placement, view: FleetView) -> Inputs:
    """Take the inputs of a cycle for a placement that has a policy snapshot."""
    snapshot = PolicySnapshot.objects.get(placement=placement, is_latest=True)
    rows = tuple(Binding.objects.filter(placement=placement).order_by("cluster_name"))
    cycle = Usage().balanced(_cycle(placement, snapshot, rows, view.fleet))
    return Inputs(placement, snapshot, rows, view, cycle)


def cycles_of(placements: Collection[Placement], fleet: Fleet) -> Iterator[tuple[Placement, Cycle]]:
    """Give the cycle that each of these placements would run on a fleet; two queries for all of them.

    A third one where the rules of some read what the others have. One that is deleted meanwhile has none.
    """
    ids = [placement.pk for placement in placements]
    found = PolicySnapshot.objects.filter(placement__in=ids, is_latest=True)
    snapshots = {snapshot.placement_id: snapshot for snapshot in found}
    rows: dict[int, list[BindingRow]] = {}
    for placement_id, *values in _rows_of(Binding.objects.filter(placement__in=ids), "placement_id"):
        rows.setdefault(placement_id, []).append(BindingRow(*values))
    usage = Usage()
    for placement in placements:
        if placement.pk not in snapshots:
            continue
        cycle = _cycle(placement, snapshots[placement.pk], rows.get(placement.pk, ()), fleet)
        yield placement, usage.balanced(cycle)


def _cycle(
    placement: Placement, snapshot: PolicySnapshot, rows: Iterable[Binding | BindingRow], fleet: Fleet
) -> Cycle:
    return Cycle(
        fleet,
        policy_of(snapshot, placement.number_of_clusters),
        binding_values(rows, snapshot),
        Semantics(snapshot.semantics),
        snapshot.options,
    )


def draft_cycle(draft: ClusterResourcePlacement, *, saved: Placement | None, fleet: Fleet) -> Cycle:
    """Give the cycle that would run if the draft were saved over `saved`, or as a new placement."""
    bindings = bindings_under(draft, saved)
    return Usage().balanced(Cycle(fleet, draft.spec.policy, bindings, draft.semantics, draft.spread_options))


def bindings_under(draft: ClusterResourcePlacement, saved: Placement | None) -> tuple[BindingValue, ...]:
    """Give the bindings of a placement as the draft would find them: obsolete if it makes a new snapshot."""
    if saved is None:
        return ()
    snapshot = PolicySnapshot.objects.get(placement=saved, is_latest=True)
    rows = _rows_of(Binding.objects.filter(placement=saved).order_by("cluster_name"))
    is_same = content_hash(draft) == snapshot.content_hash
    return binding_values(map(BindingRow._make, rows), snapshot if is_same else None)


def policy_of(snapshot: PolicySnapshot, number: int | None) -> PlacementPolicy:
    """Give the policy of a snapshot with the placement's number of clusters."""
    wanted = {} if number is None else {"numberOfClusters": number}
    return parse_policy({**snapshot.policy, **wanted}, semantics=Semantics(snapshot.semantics))


def _rows_of(rows: QuerySet[Binding], *before: str) -> Iterator[tuple[Any, ...]]:
    """Read columns and then those of a `BindingRow`; scores come as text, since most are the same."""
    names = [_SCORE_TEXT if name == _SCORE else name for name in (*before, *BindingRow._fields)]
    place = names.index(_SCORE_TEXT)
    scores: dict[str | None, Any] = {None: None}
    with collector_paused():
        found = list(rows.annotate(**{_SCORE_TEXT: Cast(_SCORE, TextField())}).values_list(*names))
    for row in found:
        text = row[place]
        if text not in scores:
            scores[text] = json.loads(text)
        yield (*row[:place], scores[text], *row[place + 1 :])


_SCORE, _SCORE_TEXT = "topology_spread_score", "score_text"


def binding_values(
    rows: Iterable[Binding | BindingRow], latest: PolicySnapshot | None
) -> tuple[BindingValue, ...]:
    """Give bindings as values; those of another snapshot than the latest are obsolete."""
    latest_id = latest.pk if latest else None
    return tuple(_binding_value(row, is_current=row.policy_snapshot_id == latest_id) for row in rows)


def _binding_value(row: Binding | BindingRow, *, is_current: bool) -> BindingValue:
    score = row.topology_spread_score
    return BindingValue(
        row.cluster_name,
        _STATES[row.state],
        is_current=is_current,
        topology_spread_score=tuple(score) if isinstance(score, list) else score,
        affinity_score=row.affinity_score,
        previous_state=_STATES[row.previous_state],
    )


_STATES = {state.value: state for state in BindingState}


def content_hash(placement: ClusterResourcePlacement) -> str:
    """Hash what makes a new policy snapshot when it changes: not the number of clusters (lifecycle A.16)."""
    content = {
        "policy": placement.spec.policy.without_number(),
        "semantics": placement.semantics,
        "options": placement.spread_options,
    }
    return hash_of(content)


def hash_of(content: Mapping[str, Any]) -> str:
    """Give SHA-256 over canonical JSON."""
    text = json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
