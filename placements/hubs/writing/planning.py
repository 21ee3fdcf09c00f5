"""From what a person enters to the request that would be sent: objects of the hub, fields, refusals."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clusters.models import Hub
from clusters.models.hubs import HubIdentity
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.words import names_and_more
from fleetui.errors import CONFIRMATION_NEEDED, FleetError, UnknownObject
from placements.hubs.kinds.base import Manifest, mapping_at
from placements.hubs.queries import mirrored_object, mirrored_objects
from placements.hubs.write_bodies import Path, create_body, edit_body, merge_patch
from placements.hubs.write_requests import KINDS, Verb, WriteRequest
from placements.hubs.writing.sending import HubWriter, version_of
from placements.services.results import CONFIRMATION

LONGEST_TEXT = 500
MOST_LISTED = 20
UNCONFIRMED_SHARE = 0.5
"""An edit that deselects more than this part of the clusters has to be confirmed."""
Fields = Mapping[str, Any]


class UnknownObjectError(UnknownObject):
    problem_type = "unknown-object"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"the hub has no {kind} {name!r}")


class WriteRefusedError(FleetError):
    """The console does not send this, since the hub could not execute it; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Deselection:
    """The clusters that a placement would leave by an edit, of those that it is on; our calculation."""

    placement: str
    clusters: tuple[str, ...]
    before: int

    @property
    def is_total(self) -> bool:
        return 0 < self.before == len(self.clusters)

    @property
    def needs_confirmation(self) -> bool:
        return self.is_total or len(self.clusters) > self.before * UNCONFIRMED_SHARE

    def __str__(self) -> str:
        count, names = len(self.clusters), names_and_more(self.clusters, MOST_LISTED)
        return f"{self.placement} would leave {count:,} of {self.before:,} clusters: {names}"


class ConfirmationNeededError(FleetError):
    """An edit would remove a placement from all or most of its clusters, and is not confirmed."""

    problem_type = CONFIRMATION_NEEDED

    def __init__(self, deselection: Deselection) -> None:
        self.deselection = deselection
        super().__init__(f"{deselection}. Nothing was sent; confirm it first.")

    def problem_facts(self) -> dict[str, Any]:
        emptied = {
            "placement": self.deselection.placement,
            "clusters": list(self.deselection.clusters),
        }
        return {"confirm": CONFIRMATION, "placements": [emptied]}


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What would be sent; `request` is None where nothing would change.

    `fields` make the same request again. `manifest` is the whole object as it is wanted, `notes` are to be
    read before, `foreign` is left for a second write: fields to remove that other managers own.
    `deselection` is what an edit of a placement removes.
    """

    request: WriteRequest | None
    fields: Fields
    live: Manifest | None = None
    manifest: Manifest | None = None
    notes: tuple[str, ...] = ()
    foreign: tuple[Path, ...] = ()
    deselection: Deselection | None = None

    @property
    def needs_confirmation(self) -> bool:
        return self.deselection is not None and self.deselection.needs_confirmation


@dataclass(frozen=True, slots=True)
class Planner:
    """What planners read: objects of the hub, or with no writer as the mirror has them."""

    hub: Hub
    person: str
    now: datetime
    writer: HubWriter | None = None

    def version(self, kind: str) -> str:
        return version_of(self.hub, kind)

    def api_version(self, kind: str) -> str:
        return f"{KINDS[kind].group}/{self.version(kind)}"

    def find(self, kind: str, name: str, namespace: str = "") -> Manifest | None:
        """Return an object, or None. Raise DriverUnavailable."""
        hub_kind = KINDS[kind]
        if self.writer is None:
            return mirrored_object(self.hub, hub_kind.group, kind, namespace, name)
        manifest = self.writer.read(
            f"{hub_kind.path(self.version(kind), namespace)}/{name}"
        )
        return (
            None
            if manifest is None
            else {**manifest, "kind": kind, "apiVersion": self.api_version(kind)}
        )

    def read(self, kind: str, name: str, namespace: str = "") -> Manifest:
        """Return an object. Raise UnknownObjectError, DriverUnavailable."""
        manifest = self.find(kind, name, namespace)
        if manifest is None:
            raise UnknownObjectError(kind, f"{namespace}/{name}" if namespace else name)
        return manifest

    def seen(self, live: Manifest, resource_version: str) -> Manifest | None:
        """Return an object as the mirror has it, if that is in this version."""
        kind, metadata = KINDS[str(live["kind"])], mapping_at(live, "metadata")
        place = (str(metadata.get("namespace") or ""), str(metadata.get("name")))
        mirrored = mirrored_object(self.hub, kind.group, kind.kind, *place)
        version = (
            mapping_at(mirrored, "metadata").get("resourceVersion")
            if mirrored
            else None
        )
        return mirrored if version == resource_version else None

    def mirrored(self, kind: str, **columns: Any) -> Iterable[Manifest]:
        return mirrored_objects(self.hub, kind, **columns)

    def create(self, manifest: Manifest) -> WriteRequest:
        kind = str(manifest["kind"])
        requested_by = self.person if self.hub.identity == HubIdentity.SHARED else ""
        api_version = self.api_version(kind)
        body = create_body(manifest, api_version=api_version, requested_by=requested_by)
        metadata = body["metadata"]
        namespace = str(metadata.get("namespace", ""))
        return WriteRequest(
            Verb.CREATE,
            KINDS[kind],
            self.version(kind),
            metadata["name"],
            body,
            namespace,
        )

    def edit(
        self, live: Manifest, base: Manifest, draft: Manifest
    ) -> tuple[WriteRequest | None, tuple[Path, ...]]:
        """Return the apply of what a draft changes, and the removals that need a merge patch.

        A draft that only removes is that merge patch. Raise StaleBaseError.
        """
        body = edit_body(live, base, draft, manager=self.hub.field_manager)
        is_only_foreign = not body.changes.values and set(body.foreign) == set(
            body.changes.removed
        )
        if not body.changes:
            return None, ()
        if is_only_foreign:
            return self.patch(live, {}, body.foreign), ()
        return self._on(Verb.APPLY, live, body.content), body.foreign

    def patch(
        self, live: Manifest, values: Mapping[Path, Any], removed: Iterable[Path] = ()
    ) -> WriteRequest:
        return self._on(Verb.PATCH, live, merge_patch(live, values, removed))

    def delete(self, live: Manifest) -> WriteRequest:
        metadata = mapping_at(live, "metadata")
        conditions = {key: metadata.get(key) for key in ("uid", "resourceVersion")}
        body = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": conditions,
        }
        return self._on(Verb.DELETE, live, body)

    def apply_status(self, live: Manifest, body: Manifest) -> WriteRequest:
        return self._on(Verb.APPLY, live, body, subresource="status")

    def _on(
        self, verb: Verb, live: Manifest, body: Manifest, *, subresource: str = ""
    ) -> WriteRequest:
        kind, metadata = str(live["kind"]), mapping_at(live, "metadata")
        return WriteRequest(
            verb,
            KINDS[kind],
            self.version(kind),
            str(metadata["name"]),
            body,
            str(metadata.get("namespace") or ""),
            subresource,
            uid=str(metadata.get("uid") or ""),
            resource_version=str(metadata.get("resourceVersion") or ""),
        )


Plan = Callable[[Planner, Fields], WritePlan]


def check_fields(
    fields: object, *, required: Iterable[str], optional: Iterable[str] = ()
) -> Fields:
    """Return the fields of an action. Raise InvalidManifest for unknown and missing ones."""
    required = tuple(required)
    names = (*required, *optional)
    if not isinstance(fields, Mapping):
        raise InvalidManifest.of("", "wrong-type", "Invalid value", "an object")
    allowed = ", ".join(names)
    errors = [
        FieldError(str(one)[:80], "unknown-field", "Unknown field", allowed)
        for one in fields
        if one not in names
    ]
    errors += [
        FieldError(one, "required", "Required value")
        for one in required
        if fields.get(one) is None or fields[one] == ""
    ]
    if errors:
        raise InvalidManifest(errors)
    return fields


def text_field(fields: Fields, name: str, *, longest: int = 253) -> str:
    """Return a text, "" where there is none. Raise InvalidManifest."""
    value = fields.get(name)
    if value is None:
        return ""
    if (
        not isinstance(value, str)
        or len(value) > longest
        or not value.isprintable()
        or "/" in value
    ):
        allowed = f"a text of at most {longest} characters on one line, without a slash"
        raise InvalidManifest.of(name, "bad-format", "Invalid value", allowed)
    return value


def choice_field(fields: Fields, name: str, choices: Iterable[str]) -> str:
    """Return one of these values. Raise InvalidManifest."""
    value, allowed = fields.get(name), list(choices)
    if value not in allowed:
        message = f"Unsupported value: {str(value)[:80]!r}"
        raise InvalidManifest.of(name, "not-one-of", message, ", ".join(allowed))
    return str(value)


def number_field(fields: Fields, name: str, *, least: int, most: int) -> int:
    value = fields.get(name)
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not least <= value <= most
    ):
        message = f"Invalid value: {str(value)[:80]!r}"
        raise InvalidManifest.of(
            name, "out-of-range", message, f"an integer from {least} to {most}"
        )
    return value


def mapping_field(fields: Fields, name: str) -> Mapping[str, Any]:
    value = fields.get(name)
    if not isinstance(value, Mapping):
        raise InvalidManifest.of(name, "wrong-type", "Invalid value", "an object")
    return value
