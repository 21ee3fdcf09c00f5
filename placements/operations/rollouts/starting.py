"""What starts on clusters is written into their bindings; workers make the calls (lifecycle A.3)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleetui.wake import wake
from placements.models import Binding, ResourceSnapshot
from placements.operations.rollouts.asking import CARRY_OUT_DUE
from placements.rollout.failures import NO_FAILURE
from placements.rollout.state import Phase
from placements.scheduling.bindings import BindingState


@dataclass(frozen=True, slots=True)
class Content:
    """What a cluster is to have: a version, and what it is made of."""

    version: str
    snapshot: ResourceSnapshot | None
    overrides: Sequence[int] = ()


def started(binding: Binding, content: Content | None, *, attempt: int, now: datetime) -> Binding:
    """Put a start into the row, without content a removal.

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
    for name, value in facts.items():
        setattr(binding, name, value)
    return binding


def save_started(bindings: Iterable[Binding]) -> None:
    """Write rows that were started, and wake the workers that call clusters.

    All rows that get the same are written in one statement: one with a case for each row takes seconds.
    """
    alike: dict[str, tuple[dict[str, Any], list[int]]] = {}
    for binding in bindings:
        columns = {name: getattr(binding, name) for name in _STARTED}
        alike.setdefault(repr(columns), (columns, []))[1].append(binding.pk)
    for columns, pks in alike.values():
        for start in range(0, len(pks), 500):
            Binding.objects.filter(pk__in=pks[start : start + 500]).update(**columns)
    wake(CARRY_OUT_DUE)


_STARTED = [
    "state",
    "phase",
    "phase_since",
    "running_version",
    "resource_snapshot_id",
    "override_snapshots",
    "timed_since",
    "attempts",
    "retry_at",
    "message",
    "work_at",
    *NO_FAILURE.columns(),
]
