"""What starts on clusters is written into their bindings; workers make the calls (lifecycle A.3)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from fleetui.wake import wake
from placements.models import Binding, ResourceSnapshot
from placements.operations.rollouts.asking import CARRY_OUT_DUE
from placements.rollout.failures import NO_FAILURE
from placements.rollout.state import Phase
from placements.scheduling.bindings import BindingState
from placements.standing import Held, Standing


class RolloutMovedError(Exception):
    """Somebody else looked at the rollout, or laid hands on it, meanwhile."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a cluster is to have: a version, and what it is made of."""

    version: str
    snapshot: ResourceSnapshot | None
    overrides: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Started:
    """A start that is to be written: into which row, and its columns."""

    pk: int
    columns: Mapping[str, Any]


def started(binding: Held, content: Content | None, *, attempt: int, now: datetime) -> Started:
    """Give what a start writes into the row, without content a removal.

    A call that is under way keeps its lease, and the next one waits for it.
    """
    facts: dict[str, Any] = {
        "phase": Phase.APPLYING if content else Phase.REMOVING,
        "phase_since": now,
        "attempts": attempt,
        "retry_at": None,
        "timed_since": None,
        "message": "",
        "work_at": now,
        **NO_FAILURE.columns(),
    }
    if content:
        facts |= {
            "state": BindingState.BOUND,
            "running_version": content.version,
            "resource_snapshot_id": content.snapshot.pk if content.snapshot else None,
            "override_snapshots": list(content.overrides),
        }
    return Started(binding.pk, facts)


def save_started(starts: Sequence[Started], standing: Standing) -> None:
    """Write rows that were started, note that in what the look began from, and wake who calls clusters.

    All rows that get the same are written in one statement: one with a case for each row takes seconds.
    Only in the transaction of the look, which holds the placement. Raises RolloutMovedError.
    """
    _refuse_moved(standing, {start.pk for start in starts})
    alike: dict[str, tuple[Mapping[str, Any], list[int]]] = {}
    for start in starts:
        standing.started[start.pk] = start.columns
        alike.setdefault(repr(start.columns), (start.columns, []))[1].append(start.pk)
    for columns, pks in alike.values():
        for first in range(0, len(pks), 500):
            Binding.objects.filter(pk__in=pks[first : first + 500]).update(**columns)
    wake(CARRY_OUT_DUE)


class _Stood(NamedTuple):
    """What of a binding a look counts on."""

    state: str
    phase: str
    running_version: str


def _refuse_moved(standing: Standing, starting: Collection[int]) -> None:
    """Raise RolloutMovedError where what a look counted on is not so any more.

    That is: where it starts something; who is picked; and what somebody else started meanwhile, an eviction
    or another look, as that took from the same budgets. Answers of other clusters are none of it: in a large
    rollout there are always some.
    """
    seen = (*standing.bindings, *standing.left_behind)
    before = {one.pk: _Stood(one.state, one.phase, one.running_version) for one in seen}
    locked = Binding.objects.select_for_update().filter(placement=standing.placement).order_by("pk")
    there = {pk: _Stood(*stood) for pk, *stood in locked.values_list("pk", *_Stood._fields)}
    moved = [pk for pk in {*before, *there} if before.get(pk) != there.get(pk)]
    if any(pk in starting or _disturbs(before.get(pk), there.get(pk)) for pk in moved):
        raise RolloutMovedError


def _disturbs(before: _Stood | None, after: _Stood | None) -> bool:
    """Tell whether a binding that moved changes who is picked, or was started by somebody else."""
    is_started = after is not None and after.phase in (Phase.APPLYING, Phase.REMOVING)
    return is_started or _is_picked(before) != _is_picked(after)


def _is_picked(stood: _Stood | None) -> bool:
    return stood is not None and stood.state != BindingState.UNSCHEDULED
