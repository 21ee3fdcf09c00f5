"""What starts on clusters is written into their bindings; workers make the calls (lifecycle A.3)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleetui.wake import wake
from placements.models import Binding, ResourceSnapshot
from placements.operations.rollouts.asking import CARRY_OUT_DUE
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
    }
    if content:
        facts |= {
            "state": BindingState.BOUND,
            "running_version": content.version,
            "resource_snapshot": content.snapshot,
            "override_snapshots": list(content.overrides),
        }
    for name, value in facts.items():
        setattr(binding, name, value)
    return binding


def save_started(bindings: Iterable[Binding]) -> None:
    """Write rows that were started, and wake the workers that call clusters."""
    Binding.objects.bulk_update(bindings, _STARTED, batch_size=200)
    wake(CARRY_OUT_DUE)


_STARTED = [
    "state",
    "phase",
    "phase_since",
    "running_version",
    "resource_snapshot",
    "override_snapshots",
    "timed_since",
    "attempts",
    "retry_at",
    "message",
    "work_at",
]
