"""What a simulated cluster holds, its book of what happened to it, and where both are kept."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from threading import Lock
from typing import Any, NamedTuple, Protocol

from clusters.drivers.base import ObjectRef, Refusal
from clusters.drivers.simulated.live import HeldObject

LONGEST_LOG = 200
MOST_COUNTS = 500
MOST_OBJECTS = 5_000
"""More than these a simulated cluster refuses, placements counted as objects; so its state stays small."""


class Stored(NamedTuple):
    """A state as JSON, and its revision: 0 when nothing was ever saved."""

    revision: int
    content: Mapping[str, Any]


class StateStore(Protocol):
    """Keeps the state of one simulated cluster."""

    def load(self) -> Stored:
        """Give what was saved last."""

    def save(self, content: Mapping[str, Any], *, expected: int) -> bool:
        """Save the next state if `expected` is still the revision; tell whether it was."""


class MemoryStore:
    """Keeps a state in this process."""

    def __init__(self) -> None:
        self._stored = Stored(0, {})
        self._lock = Lock()

    def load(self) -> Stored:
        """Give what was saved last."""
        return self._stored

    def save(self, content: Mapping[str, Any], *, expected: int) -> bool:
        """Save the next state if `expected` is still the revision."""
        with self._lock:
            if self._stored.revision != expected:
                return False
            self._stored = Stored(expected + 1, content)
            return True


@dataclass(frozen=True, slots=True)
class Held:
    """What a simulated cluster has of one placement; `since` is when it last changed."""

    version: str
    whole_version: str
    since: datetime
    objects: tuple[HeldObject, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """Give the JSON form."""
        return {
            "version": self.version,
            "whole_version": self.whole_version,
            "since": self.since.isoformat(),
            "objects": [one.to_plain() for one in self.objects],
            "refusals": [asdict(one) for one in self.refusals],
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Held":
        """Read the JSON form."""
        return cls(
            plain["version"],
            plain["whole_version"],
            datetime.fromisoformat(plain["since"]),
            tuple(HeldObject.from_plain(one) for one in plain["objects"]),
            tuple(Refusal(**{**one, "object": ObjectRef(**one["object"])}) for one in plain["refusals"]),
        )


class Entry(NamedTuple):
    """A call that reached the cluster: when, what it did, for which placement and version."""

    at: str
    what: str
    placement: str
    version: str


@dataclass(frozen=True)
class State:
    """All of a simulated cluster: what it holds by placement, and its book.

    What it holds stays JSON until someone asks for a placement: most calls are about one of many. `log` has
    the last calls, `changes` how often a placement was changed to a version; neither is lost with the
    cluster's state.
    """

    held: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    log: tuple[Entry, ...] = ()
    changes: Mapping[str, int] = field(default_factory=dict)

    def of(self, placement: str) -> Held | None:
        """Give what the cluster has of a placement."""
        found = self.held.get(placement)
        return Held.from_plain(found) if found else None

    def holding(self, placement: str, held: Held | None) -> "State":
        """Give the state with this of a placement, or with nothing of it."""
        others = {name: one for name, one in self.held.items() if name != placement}
        return replace(self, held={**others, placement: held.to_plain()} if held else others)

    def changes_to(self, placement: str, version: str) -> int:
        """Tell how often this placement was really changed to this version; "" is its removal."""
        return self.changes.get(f"{placement} {version}", 0)

    def room_beside(self, placement: str) -> int:
        """Tell how many objects this placement may have."""
        others = (one for name, one in self.held.items() if name != placement)
        return MOST_OBJECTS - sum(len(one["objects"]) + 1 for one in others)

    def without_lost(self, lost_at: datetime | None) -> "State":
        """Give the state as it is after what was there before a moment has been lost."""
        if lost_at is None:
            return self
        left = {
            name: one for name, one in self.held.items() if datetime.fromisoformat(one["since"]) >= lost_at
        }
        return replace(self, held=left)

    def noting(self, entry: Entry, *, is_change: bool) -> "State":
        """Write a call into the book; the oldest entries make room."""
        changes = dict(self.changes)
        if is_change:
            key = f"{entry.placement} {entry.version}"
            changes[key] = changes.pop(key, 0) + 1
        kept = dict(list(changes.items())[-MOST_COUNTS:])
        return replace(self, log=(*self.log, entry)[-LONGEST_LOG:], changes=kept)

    def to_plain(self) -> dict[str, Any]:
        """Give the JSON form; a list for the counts, as not every database keeps the order of keys."""
        return {
            "held": dict(self.held),
            "log": [list(entry) for entry in self.log],
            "changes": [list(item) for item in self.changes.items()],
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "State":
        """Read the JSON form."""
        return cls(
            plain.get("held", {}),
            tuple(Entry(*entry) for entry in plain.get("log", ())),
            dict(plain.get("changes", ())),
        )
