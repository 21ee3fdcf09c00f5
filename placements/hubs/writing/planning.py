"""What an action on a live hub would write, what that would cause on the clusters, and who reverts it.

All of it is our calculation on the mirror of the hub in scope; the hub decides.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from clusters.fleet import Cluster, Fleet
from clusters.models import Hub
from clusters.models.hubs import HubIdentity
from clusters.queries import current_fleet
from fleetui.apimachinery.errors import FieldError, InvalidManifest, raise_errors
from fleetui.apimachinery.model import items_at, mapping_at
from fleetui.apimachinery.words import full_name, names_and_more
from fleetui.errors import CONFIRMATION_NEEDED, FleetError, UnknownObject
from placements.engine.rollout.staged_run import sorting_number, stage_members
from placements.engine.scheduling.scheduler import schedule
from placements.hubs.kinds.base import Manifest, text_of
from placements.hubs.queries import mirrored_object, mirrored_objects
from placements.hubs.write_requests import (
    KINDS,
    Path,
    Verb,
    WriteRequest,
    create_body,
    merge_patch,
)
from placements.hubs.writing.sending import HubWriter, version_of
from placements.manifests.binding import BindingState
from placements.manifests.placement import parse_placement
from placements.manifests.staged_update import StageSpec, parse_staged_strategy
from placements.models import Binding, Placement, StagedRun
from placements.services.results import CONFIRMATION
from placements.services.snapshots import draft_cycle

MOST_CLUSTERS = 2**31 - 1
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
    manifest: Manifest | None = None
    notes: tuple[str, ...] = ()
    foreign: tuple[Path, ...] = ()
    deselection: Deselection | None = None
    fields: Fields = field(default_factory=dict)
    live: Manifest | None = None

    @property
    def needs_confirmation(self) -> bool:
        return self.deselection is not None and self.deselection.needs_confirmation


@dataclass(frozen=True, slots=True)
class Planner:
    """What actions read: objects of the hub, or with no writer as the mirror has them."""

    hub: Hub
    person: str
    now: datetime
    writer: HubWriter | None = None

    def api_version(self, kind: str) -> str:
        return f"{KINDS[kind].group}/{version_of(self.hub, kind)}"

    def find(
        self,
        kind: str,
        name: str,
        namespace: str = "",
    ) -> Manifest | None:
        """Return an object, or None. Raise DriverUnavailable."""
        hub_kind = KINDS[kind]
        if self.writer is None:
            return mirrored_object(self.hub, hub_kind.group, kind, namespace, name)
        version = version_of(self.hub, kind)
        manifest = self.writer.read(f"{hub_kind.path(version, namespace)}/{name}")
        if manifest is None:
            return None
        return {**manifest, "kind": kind, "apiVersion": f"{hub_kind.group}/{version}"}

    def read(
        self,
        kind: str,
        name: str,
        namespace: str = "",
    ) -> Manifest:
        """Return an object. Raise UnknownObjectError, DriverUnavailable."""
        manifest = self.find(kind, name, namespace)
        if manifest is None:
            raise UnknownObjectError(kind, full_name(namespace, name))
        return manifest

    def mirrored(self, kind: str, **columns: Any) -> Iterable[Manifest]:
        return mirrored_objects(self.hub, kind, **columns)

    def create(self, manifest: Manifest) -> WriteRequest:
        kind, metadata = str(manifest["kind"]), mapping_at(manifest, "metadata")
        requested_by = self.person if self.hub.identity == HubIdentity.SHARED else ""
        body = create_body(
            manifest, api_version=self.api_version(kind), requested_by=requested_by
        )
        return WriteRequest(
            Verb.CREATE,
            KINDS[kind],
            version_of(self.hub, kind),
            str(metadata["name"]),
            body,
            str(metadata.get("namespace") or ""),
        )

    def patch(
        self,
        live: Manifest,
        values: Mapping[Path, Any],
        removed: Iterable[Path] = (),
    ) -> WriteRequest:
        return self.write(Verb.PATCH, live, merge_patch(live, values, removed))

    def write(
        self,
        verb: Verb,
        live: Manifest,
        body: Manifest,
        *,
        subresource: str = "",
    ) -> WriteRequest:
        kind, metadata = str(live["kind"]), mapping_at(live, "metadata")
        return WriteRequest(
            verb,
            KINDS[kind],
            version_of(self.hub, kind),
            str(metadata["name"]),
            body,
            str(metadata.get("namespace") or ""),
            subresource,
            uid=str(metadata.get("uid") or ""),
            resource_version=str(metadata.get("resourceVersion") or ""),
        )


def check_not_deleting(live: Manifest) -> None:
    if mapping_at(live, "metadata").get("deletionTimestamp"):
        raise WriteRefusedError("The object is being deleted on the hub.")


_OBJECTS = frozenset({"manifest", "base", "patch", "labels"})
_LONGEST = {"namespace": 63, "at": 40, "comment": 500}
_PATTERNS = {
    "eviction": (
        re.compile(r"fleetui-[a-z0-9]([-a-z0-9.]*[a-z0-9])?-[0-9a-f]{8}"),
        "fleetui-PLACEMENT-CLUSTER-01234567",
    ),
    "resourceSnapshotIndex": (re.compile(r"[0-9]{1,9}"), "an integer from 0"),
}


def checked_fields(
    entered: object,
    *,
    required: Sequence[str],
    optional: Sequence[str] = (),
    choices: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """Return the fields of an action that have a value. Raise InvalidManifest with the path of each error.

    A field has the same meaning in every action, apart from the choices of some.
    """
    if not isinstance(entered, Mapping):
        raise InvalidManifest.of("", "wrong-type", "Invalid value", "an object")
    names = (*required, *optional)
    fields = {str(key): one for key, one in entered.items() if one not in (None, "")}
    errors = [
        FieldError(name[:80], "unknown-field", "Unknown field", ", ".join(names))
        for name in map(str, entered)
        if name not in names
    ]
    errors += [
        FieldError(name, "required", "Required value")
        for name in required
        if name not in fields
    ]
    raise_errors(errors)
    for name, value in fields.items():
        check_field(name, value, choices.get(name, ()))
    return fields


def check_field(name: str, value: Any, choices: Sequence[str] = ()) -> None:
    """Raise InvalidManifest."""
    if name == "taints":  # the parser of clusters knows them
        return
    message = f"Invalid value: {str(value)[:80]!r}"
    if name in _OBJECTS:
        if not isinstance(value, Mapping):
            raise InvalidManifest.of(name, "wrong-type", "Invalid value", "an object")
    elif name == "numberOfClusters":
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= MOST_CLUSTERS:
            allowed = f"an integer from 0 to {MOST_CLUSTERS}"
            raise InvalidManifest.of(name, "out-of-range", message, allowed)
    elif choices:
        if value not in choices:
            message = message.replace("Invalid", "Unsupported", 1)
            raise InvalidManifest.of(name, "not-one-of", message, ", ".join(choices))
    else:
        check_text(name, value)
        pattern, allowed = _PATTERNS.get(name, (None, ""))
        if pattern and not pattern.fullmatch(value):
            raise InvalidManifest.of(name, "bad-format", "Invalid value", allowed)


def check_text(name: str, value: Any) -> None:
    longest = _LONGEST.get(name, 253)
    is_text = isinstance(value, str) and len(value) <= longest and value.isprintable()
    is_name = name != "comment"
    if not is_text or (is_name and "/" in value):
        allowed = f"a text of at most {longest} characters on one line"
        if is_name:
            allowed += ", without a slash"
        raise InvalidManifest.of(name, "bad-format", "Invalid value", allowed)


def document_of(manifest: Manifest) -> dict[str, Any]:
    metadata = mapping_at(manifest, "metadata")
    kept = {
        key: metadata[key]
        for key in ("name", "namespace", "labels", "annotations")
        if metadata.get(key)
    }
    document = {key: manifest.get(key) for key in ("apiVersion", "kind", "spec")}
    return {**document, "metadata": kept}


def deselection_of(manifest: Manifest) -> Deselection | None:
    """Return the clusters that a placement would leave; None where that cannot be calculated."""
    try:
        draft = parse_placement(document_of(manifest))
    except InvalidManifest:  # of a newer API: the hub accepted it
        return None
    saved = Placement.objects.filter(full_name=draft.full_name).first()
    if saved is None:
        return None
    decision = schedule(draft_cycle(draft, saved=saved, fleet=current_fleet().fleet))
    before = {
        binding.cluster for binding in decision.cycle.live_bindings if binding.is_active
    }
    after = {
        binding.cluster for binding in decision.bindings_after if binding.is_active
    }
    if decision.is_failed:
        return None
    return Deselection(draft.full_name, tuple(sorted(before - after)), len(before))


def stage_notes(strategy: Manifest, placement: str) -> tuple[str, ...]:
    """Return which clusters each stage of a run would have, and what makes the run fail: all names."""
    try:
        stages = parse_staged_strategy(document_of(strategy)).spec.stages
    except InvalidManifest as error:
        return (f"The strategy is not understood: {error.errors[0].path}.",)
    bindings = Binding.objects.filter(placement__full_name=placement)
    states = dict(bindings.values_list("cluster_name", "state"))
    leaving = {
        name for name, state in states.items() if state == BindingState.UNSCHEDULED
    }
    picked = states.keys() - leaving
    fleet = Fleet(
        [cluster for cluster in current_fleet().fleet if cluster.name in picked]
    )

    notes, counts, unsorted = [], Counter[str](), list[str]()
    for stage in stages:
        names = stage_members(stage, fleet)
        notes.append(_names_note(f"Stage {stage.name}", names))
        counts.update(names)
        key = stage.sorting_label_key
        for name in names if key else ():
            if sorting_number(fleet.clusters[fleet.positions[name]], key) is None:
                unsorted.append(f"{name} in stage {stage.name}")
    several = [name for name, number in counts.items() if number > 1]
    problems = {
        "Clusters in no stage; the run would fail": sorted(picked - counts.keys()),
        "Clusters in several stages; the run would fail": sorted(several),
        "Clusters without a whole number in the sorting label; the run would fail": unsorted,
        "Removed from after the last stage": sorted(leaving),
    }
    notes += [_names_note(words, names) for words, names in problems.items() if names]
    return tuple(notes)


def _names_note(words: str, names: Iterable[str]) -> str:
    return f"{words}: {', '.join(names) or 'no clusters'}."


def failing_runs(before: Manifest, after: Manifest) -> tuple[str, ...]:
    """Return the active runs that other labels of a cluster let fail: it changes its stage or place there."""
    name = str(mapping_at(before, "metadata")["name"])
    cluster = next((one for one in current_fleet().fleet if one.name == name), None)
    if cluster is None:
        return ()
    sides = [
        cluster.with_changes(labels=dict(mapping_at(document, "metadata", "labels")))
        for document in (before, after)
    ]
    bindings = Binding.objects.filter(cluster_name=name)
    placed = bindings.exclude(state=BindingState.UNSCHEDULED).values("placement")
    runs = StagedRun.objects.filter(ended_at=None, placement__in=placed)
    notes = []
    columns = ("full_name", "strategy", "placement_name")
    for run in runs.order_by("full_name").only(*columns):
        try:
            stages = parse_staged_strategy(run.strategy).spec.stages
        except InvalidManifest:
            continue
        was, becomes = (places_in(stages, side) for side in sides)
        if was != becomes:
            old, new = (
                ", ".join(document) or "no stage" for document in (was, becomes)
            )
            notes.append(
                f"Run {run.full_name} of {run.placement_name} would fail: {name} goes from {old} "
                f"to {new}, or changes its place there."
            )
    return tuple(notes)


def places_in(stages: Iterable[StageSpec], cluster: Cluster) -> dict[str, int | None]:
    """Return the stages that have a cluster, each with the number that it is sorted by."""
    alone = Fleet([cluster])
    return {
        stage.name: sorting_number(cluster, stage.sorting_label_key)
        for stage in stages
        if stage_members(stage, alone)
    }


_MANAGERS = frozenset({"argocd-controller", "kustomize-controller", "helm-controller"})
_ARGO = "argocd.argoproj.io/"
_TRACKING = (f"{_ARGO}instance", f"{_ARGO}tracking-id")


def gitops_marks(live: Manifest | None) -> tuple[str, ...]:
    """Return what shows that a GitOps tool manages an object, such as `field manager argocd-controller`."""
    metadata = mapping_at(live, "metadata")
    labels, annotations = (
        mapping_at(metadata, "labels"),
        mapping_at(metadata, "annotations"),
    )
    is_tracked = any(key in labels or key in annotations for key in _TRACKING)
    marks = []
    for entry in items_at(metadata, "managedFields"):
        name = text_of(mapping_at(entry).get("manager"))
        # Versions of Argo CD before server-side apply wrote as the client library.
        if (
            name in _MANAGERS
            or name.startswith("flux")
            or (name == "Go-http-client" and is_tracked)
        ):
            marks.append(f"field manager {name}")
    marks += [
        f"label {key}={text_of(labels[key])}"
        for key in (
            "app.kubernetes.io/managed-by",
            f"{_ARGO}instance",
            "kustomize.toolkit.fluxcd.io/name",
        )
        if labels.get(key)
    ]
    marks += [f"annotation {key}" for key in _TRACKING if key in annotations]
    return tuple(dict.fromkeys(marks))
