"""What every format comes down to: one entry a cluster, with its place in the source."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from placements.manifests import Document
from placements.scheduling.faults import Fault, Keys, format_path


@dataclass(frozen=True, slots=True)
class Entry:
    """One cluster as its source has it, and what was wrong already in reading it.

    The line is either known, or looked up in `item`. `place_of` says where the source has what an object
    in the plain form, or a MemberCluster, has at some keys.
    """

    data: Any
    line: int | None = None
    item: Document | None = None
    faults: tuple[Fault, ...] = ()
    place_of: Callable[[Keys], str] = format_path
