"""What a kind of hub declares: its streams, the versions it prefers, and what is read from its objects."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeAlias

from fleetui.apimachinery.kinds import api_path, api_version_of
from fleetui.apimachinery.words import with_group

Manifest: TypeAlias = Mapping[str, Any]


class Form(StrEnum):
    """How much of an object a stream requests."""

    FULL = "full"
    METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class StreamKind:
    """One kind of object that is listed and watched, identified by group and plural, never by kind alone.

    An optional stream may be absent or forbidden.
    """

    group: str
    plural: str
    kind: str
    is_namespaced: bool = False
    form: Form = Form.FULL
    is_required: bool = False

    @property
    def resource(self) -> str:
        return with_group(self.plural, self.group)

    def path(self, version: str, namespace: str = "") -> str:
        path = api_path(api_version_of(self.group, version))
        if namespace:
            path += f"/namespaces/{namespace}"
        return f"{path}/{self.plural}"


@dataclass(frozen=True, slots=True)
class Columns:
    """What queries need of an object beside its metadata; "" or None where the object does not have it.

    `owner` is the key of its placement, `[namespace/]name`. `state` and `policy_snapshot` are those of a
    binding, `heartbeat` is the time of the last heartbeat of a cluster as the hub wrote it.
    """

    owner: str = ""
    cluster: str = ""
    number: int | None = None
    is_latest: bool = False
    state: str = ""
    policy_snapshot: str = ""
    heartbeat: str = ""


@dataclass(frozen=True, slots=True)
class HubApi:
    """The API of one kind of hub.

    `without_quiet` returns an object without the fields of quiet events, or None where every event of its
    kind counts; `optional_groups` are mirrored as metadata where they are served.
    """

    name: str
    title: str
    groups: tuple[str, ...]
    streams: tuple[StreamKind, ...]
    versions: tuple[str, ...]
    columns: Callable[[StreamKind, Manifest], Columns]
    without_quiet: Callable[[StreamKind, Manifest], Manifest | None]
    binding_kinds: frozenset[str]
    optional_groups: tuple[str, ...] = ()

    @property
    def required(self) -> tuple[StreamKind, ...]:
        return tuple(stream for stream in self.streams if stream.is_required)


def moment_of(value: object) -> datetime | None:
    """Return the time that a hub wrote; None where it cannot be read."""
    try:
        moment = datetime.fromisoformat(text_of(value))
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC)


def text_of(value: object, *, longest: int = 253) -> str:
    """Return a text that fits a column, or ""; unprintable ones do not, since databases refuse some."""
    return (
        value
        if isinstance(value, str) and len(value) <= longest and value.isprintable()
        else ""
    )
