"""What `next_actions` answers: what starts now, what waits and for what, when to ask again."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from placements.rollout.budget import Budgets
from placements.rollout.state import Phase


class Why(StrEnum):
    """What makes a version start on a cluster."""

    NEWER = "new"
    RETRY = "retry"
    UPDATE = "update"
    ADD = "add"


@dataclass(frozen=True, slots=True)
class StartUpdate:
    """Apply a version: NEWER where a cluster is not available, UPDATE where it is, ADD where nothing is."""

    cluster: str
    version: str
    why: Why
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Remove:
    """Take the placement's resources away from a cluster."""

    cluster: str
    attempt: int = 1


Action: TypeAlias = StartUpdate | Remove


class Block(StrEnum):
    """What keeps a cluster waiting."""

    PAUSED = "paused"
    STOPPED = "stopped"
    NOT_IN_FLEET = "not-in-fleet"
    UNREACHABLE = "unreachable"
    RETRY_LATER = "retry-later"
    BEING_REMOVED = "being-removed"
    UPDATE_FLOOR = "update-floor"
    REMOVAL_FLOOR = "removal-floor"
    CEILING = "ceiling"
    DELETION_LIMIT = "deletion-limit"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A cluster that waits: what runs, what is wanted, what would start, what blocks it (lifecycle A.8).

    `action` is None where a cluster went out of reach with its work under way; `since` is when it went out
    of reach. `until` is when a retry is due. From `forgettable_from` on an operator may forget the cluster
    (lifecycle A.11).
    """

    cluster: str
    block: Block
    action: Action | None
    running: str | None
    wanted: str | None
    until: datetime | None = None
    forgettable_from: datetime | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A cluster that is being worked on, or settles; `until` is when time alone makes it available."""

    cluster: str
    phase: Phase
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Removals that the floor holds back (lifecycle A.5): `found` of `asked_for` clusters were selected.

    `is_for_good` says that not even every selected cluster being available would let the last of them go.
    """

    found: int
    asked_for: int
    staying: tuple[str, ...]
    is_for_good: bool


class Verdict(StrEnum):
    """Work starts; it is under way or due later; all is done; only a change of the inputs helps."""

    STARTS = "starts"
    WAITS = "waits"
    FINISHED = "finished"
    HALTED = "halted"


@dataclass(frozen=True, slots=True)
class Answer:
    """What may happen now, and why not more.

    `actions` are in the order in which they start. `budgets` are those after the actions. Ask again at
    `until`, and whenever anything changes. `unreachable` names the selected clusters that count in N and
    cannot be available; `may_still_hold` those out of reach, or gone, that have resources of the placement
    as far as anyone knows.
    """

    verdict: Verdict
    actions: tuple[Action, ...]
    budgets: Budgets
    waiting: tuple[Waiting, ...] = ()
    under_way: tuple[UnderWay, ...] = ()
    until: datetime | None = None
    unreachable: tuple[str, ...] = ()
    may_still_hold: tuple[str, ...] = ()

    @property
    def held_back(self) -> HeldBack | None:
        """Tell which removals the floor holds back, None where it holds back none."""
        staying = tuple(each.cluster for each in self.waiting if each.block is Block.REMOVAL_FLOOR)
        removals, found = self.budgets.removals, self.budgets.updates.number
        return HeldBack(found, removals.number, staying, found < removals.floor) if staying else None
