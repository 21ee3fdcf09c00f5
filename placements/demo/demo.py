"""What a demo holds, and what had happened to it before it is shown."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias

Document: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """One change of one MemberCluster or ClusterResourcePlacement; `before` None: it came at that moment."""

    at: datetime
    who: str
    why: str
    before: Document | None
    after: Document

    @property
    def kind(self) -> str:
        """Give the kind of the object that changed."""
        return str(self.after["kind"])

    @property
    def name(self) -> str:
        """Give the name of the object that changed."""
        return name_of(self.after)


@dataclass(frozen=True, slots=True)
class Demo:
    """A fleet, what its hub holds, and placements, as they are at the end of `history`.

    To load one with its past, save `at_first` and schedule every placement; then, for each step, save its
    `after` and schedule every placement again. To load it without a past, save the demo itself.
    """

    title: str
    clusters: tuple[Document, ...]
    resources: tuple[Document, ...]
    placements: tuple[Document, ...]
    history: tuple[HistoryStep, ...] = ()

    @property
    def at_first(self) -> "Demo":
        """Give the demo as it was before the first step."""
        return replace(
            self,
            clusters=_undone(self.clusters, self.history),
            placements=_undone(self.placements, self.history),
            history=(),
        )


def name_of(document: Document) -> str:
    """Give the name of an object."""
    return str(document["metadata"]["name"])


def _undone(documents: Iterable[Document], history: tuple[HistoryStep, ...]) -> tuple[Document, ...]:
    """Put in the place of every document what stood there before the first step that changed it."""
    first = {(step.kind, step.name): step.before for step in reversed(history)}
    before = (first.get((one["kind"], name_of(one)), one) for one in documents)
    return tuple(one for one in before if one is not None)
