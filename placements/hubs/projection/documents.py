"""Objects of a live hub, read leniently: what is not understood is recorded by its path and left out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from django.db import DataError, IntegrityError

from clusters.hub_state import HubState
from clusters.models import Hub, MirroredObject
from fleetui.apimachinery.model import items_at, mapping_at
from fleetui.apimachinery.words import full_name
from placements.hubs.kinds.base import Manifest, text_of
from placements.hubs.queries import state_of
from placements.hubs.trimming import unpack
from placements.hubs.watching.mirror import moment_of

FAULTS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    DataError,
    IntegrityError,
)
"""What an unexpected object makes a projection raise; the object is marked, and others continue."""
MOST_PATHS = 20
"""Paths that are recorded for one object; the first ones are enough to see what is wrong."""


@dataclass(frozen=True, slots=True)
class HubMoment:
    """A moment on our clock and on that of the hub; while the hub is not live, eligibility is frozen.

    Without `has_events` nothing has changed on the hub: rows are made again from the same objects.
    """

    now: datetime
    hub_now: datetime
    is_live: bool
    has_events: bool = True

    @classmethod
    def of(
        cls,
        hub: Hub,
        *,
        now: datetime,
        has_events: bool = True,
    ) -> "HubMoment":
        state, _, _ = state_of(hub, now=now)
        offset = timedelta(seconds=hub.clock_offset_seconds or 0.0)
        return cls(now, now + offset, state == HubState.LIVE, has_events)


@dataclass(slots=True)
class HubDocument:
    """A mirrored object and its content; `not_understood` gathers the paths of what is left out.

    `error` is the reason why no row is created from it.
    """

    row: MirroredObject
    content: Manifest
    not_understood: list[str] = field(default_factory=list)
    error: str = ""

    @classmethod
    def of(cls, row: MirroredObject) -> "HubDocument":
        return cls(row, unpack(bytes(row.manifest)))

    @property
    def uid(self) -> UUID:
        try:
            return UUID(self.row.uid)
        except ValueError:
            return uuid5(NAMESPACE_OID, self.row.uid)

    @property
    def revision(self) -> int:
        """Return the generation, which the API server gives every object whose definition has a schema."""
        return self.row.generation or 1

    @property
    def full_name(self) -> str:
        return full_name(self.row.namespace, self.row.name)

    @property
    def spec(self) -> Manifest:
        return mapping_at(self.content, "spec")

    @property
    def created_at(self) -> datetime:
        return self.moment("metadata", "creationTimestamp") or self.row.seen_at

    @property
    def deleting_since(self) -> datetime | None:
        if not self.row.is_deleting:
            return None
        return self.moment("metadata", "deletionTimestamp") or self.row.seen_at

    def reject(self, path: str) -> None:
        if path not in self.not_understood and len(self.not_understood) < MOST_PATHS:
            self.not_understood.append(path)

    def moment(self, *keys: str) -> datetime | None:
        return self.moment_in(
            mapping_at(self.content, *keys[:-1]), keys[-1], path=".".join(keys)
        )

    def moment_in(
        self,
        values: Manifest,
        key: str,
        *,
        path: str,
    ) -> datetime | None:
        value = values.get(key)
        moment = moment_of(value) if isinstance(value, str) else None
        if value is not None and moment is None:
            self.reject(path)
        return moment

    def texts(self, *keys: str) -> dict[str, str]:
        path = ".".join(keys)
        texts = {}
        for name, value in mapping_at(self.content, *keys).items():
            if isinstance(value, str):
                texts[name] = value
            else:
                self.reject(f"{path}.{name}")
        return texts

    def conditions(self, *keys: str) -> dict[str, Mapping[str, Any]]:
        return self.conditions_in(
            mapping_at(self.content, *keys[:-1]), keys[-1], path=".".join(keys)
        )

    def conditions_in(
        self,
        values: Manifest,
        key: str,
        *,
        path: str,
    ) -> dict[str, Mapping[str, Any]]:
        conditions = {}
        for index, one in enumerate(items_at(values, key)):
            condition = mapping_at(one)
            kind = condition.get("type")
            status = condition.get("status")
            if isinstance(kind, str) and isinstance(status, str):
                conditions[kind] = condition
            else:
                self.reject(f"{path}[{index}]")
        return conditions

    def transition(
        self,
        values: Manifest,
        kind: str,
        *,
        path: str,
        status: str = "True",
    ) -> datetime | None:
        """Return since when a condition of these values has a status; None if it has another one."""
        condition = self.conditions_in(
            values, "conditions", path=f"{path}.conditions"
        ).get(kind, {})
        if condition.get("status") != status:
            return None
        at = self.moment_in(
            condition, "lastTransitionTime", path=f"{path}.conditions.{kind}"
        )
        return at or self.created_at

    def manager(self, part: str, *, without: str = "") -> str:
        """Return who wrote `metadata`, `spec` or `status` last; "" if managed fields do not have it."""
        entries = [
            one
            for one in map(
                mapping_at, items_at(self.content, "metadata", "managedFields")
            )
            if part in items_at(one, "paths")
            and one.get("manager") not in (None, without)
        ]
        newest = max(entries, key=lambda one: str(one.get("time") or ""), default={})
        return text_of(newest.get("manager"), longest=128)

    def manifest(self, spec: Manifest) -> dict[str, Any]:
        """Return the manifest as its author could have written it, with this spec."""
        metadata: dict[str, Any] = {"name": self.row.name}
        if self.row.namespace:
            metadata["namespace"] = self.row.namespace
        for key in ("labels", "annotations"):
            texts = self.texts("metadata", key)
            if texts:
                metadata[key] = texts
        return {
            "apiVersion": self.content["apiVersion"],
            "kind": self.row.kind,
            "metadata": metadata,
            "spec": dict(spec),
        }


def save_marks(documents: Iterable[HubDocument]) -> None:
    """Write what is not understood of these objects, and why they have no row, where that changed."""
    marked = []
    for one in documents:
        row = one.row
        if (row.not_understood, row.projection_error) != (
            one.not_understood,
            one.error,
        ):
            row.not_understood = one.not_understood
            row.projection_error = one.error
            row.is_unresolved = bool(one.not_understood or one.error)
            marked.append(row)
    MirroredObject.objects.bulk_update(
        marked, ["not_understood", "projection_error", "is_unresolved"]
    )
