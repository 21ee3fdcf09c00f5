"""What starts on clusters is written into their bindings; workers make the calls (lifecycle A.3)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleetui.wake import wake
from placements.models import Binding, ResourceSnapshot
from placements.operations.rollouts.asking import CARRY_OUT_DUE
from placements.rollout.failures import NO_FAILURE
from placements.rollout.state import Phase
from placements.scheduling.bindings import BindingState
from placements.standing import Held, Standing


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


def save_started(starts: Iterable[Started], standing: Standing) -> None:
    """Write rows that were started, note that in what the look began from, and wake who calls clusters.

    All rows that get the same are written in one statement: one with a case for each row takes seconds.
    """
    alike: dict[str, tuple[Mapping[str, Any], list[int]]] = {}
    for start in starts:
        standing.started[start.pk] = start.columns
        alike.setdefault(repr(start.columns), (start.columns, []))[1].append(start.pk)
    for columns, pks in alike.values():
        for first in range(0, len(pks), 500):
            Binding.objects.filter(pk__in=pks[first : first + 500]).update(**columns)
    wake(CARRY_OUT_DUE)
