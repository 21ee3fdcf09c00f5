"""A selection as it is stored: in parts of bounded size, with a hash of all (lifecycle A.16, B.3.2)."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from placements.scheduling.hub.objects import HubObject, canonical_json

PART_LIMIT = 800 * 1024


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the objects of a snapshot, in its order; parts are numbered from 0."""

    index: int
    objects: tuple[HubObject, ...]

    @property
    def size(self) -> int:
        """Give how many bytes the documents of its objects take."""
        return sum(each.size for each in self.objects)


def parts(objects: Iterable[HubObject], *, limit: int = PART_LIMIT) -> tuple[Part, ...]:
    """Split sanitised objects, in their order, into parts that hold at most `limit` bytes.

    An object that is larger by itself gets a part of its own; no objects are one empty part.
    """
    groups: list[list[HubObject]] = [[]]
    size = 0
    for each in objects:
        if groups[-1] and size + each.size > limit:
            groups.append([])
            size = 0
        groups[-1].append(each)
        size += each.size
    return tuple(Part(index, tuple(group)) for index, group in enumerate(groups))


def content_hash(objects: Iterable[HubObject]) -> str:
    """Give the SHA-256, in hexadecimal, of sanitised objects as one JSON list."""
    return sha256(b"[" + b",".join(canonical_json(each.content) for each in objects) + b"]").hexdigest()
