"""What kind of failure it was that a cluster met, and what was refused there, as facts."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class FailureKind(StrEnum):
    """Why a cluster does not have what belongs there."""

    OVERRIDE = "override"
    """An override could not be applied; nothing was sent to the cluster."""
    REFUSED = "refused"
    """The cluster answered no, to some objects or to all."""
    UNREACHABLE = "unreachable"
    """The cluster gave no answer, or none in time; nobody knows whether the call took effect."""


@dataclass(frozen=True, slots=True)
class ObjectFault:
    """An object that was refused, or is not available yet; `code` is for programs, `message` for people."""

    group: str
    version: str
    kind: str
    namespace: str
    name: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class OverrideFault:
    """The override that did not apply: its snapshot, the place in it, the object, and what is wrong."""

    override: str
    path: str
    object: str
    message: str


@dataclass(frozen=True, slots=True)
class Failure:
    """What a call came to where not all is well; without a kind nothing failed, but objects are not ready."""

    kind: FailureKind | None = None
    objects: tuple[ObjectFault, ...] = ()
    override: OverrideFault | None = None

    def columns(self) -> dict[str, Any]:
        """Give it as a binding keeps it."""
        plain: list[dict[str, str]] = [asdict(one) for one in self.objects]
        return {
            "failure": self.kind or "",
            "faulty_objects": plain,
            "faulty_override": asdict(self.override) if self.override else None,
        }


NO_FAILURE = Failure()


def objects_of(plain: Iterable[Mapping[str, str]]) -> tuple[ObjectFault, ...]:
    """Read objects back."""
    return tuple(ObjectFault(**one) for one in plain)
