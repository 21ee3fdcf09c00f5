"""Actions on many clusters at once: what they would change with the impact on placements, then all or none.

Page, REST and command run the actions on clusters of the table (`actions.py`) by these functions.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from django.contrib.auth.models import User
from django.db import transaction

from clusters.filters import ClusterFilter, clusters_matching
from clusters.fleet import Cluster, Fleet, Taint
from clusters.health import leaving
from clusters.manifest import parse_member
from clusters.operations.change_log import lock_fleet
from clusters.operations.edit import CORDON, UnknownClusterError, clusters_named
from clusters.queries import current_fleet
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.kinds import MEMBER_KIND, MEMBER_VERSIONS
from fleetui.apimachinery.words import counted
from fleetui.hub_backend import current_backend
from fleetui.permissions import FLEET, check_change
from fleetui.request_ids import with_request_id
from placements.services.actions import ACTIONS, Action, ActionKind
from placements.services.disruption.drains import running_drains
from placements.services.disruption.preview import drain_impact
from placements.services.fleet.forms import taint_text
from placements.services.loss.evaluation import Impact, impact_of

BULK_ACTIONS = {
    name: action
    for (kind, name), action in ACTIONS.items()
    if kind is ActionKind.CLUSTER
}
_MOST_ERRORS = 20


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """What an action changes on one cluster; empty if nothing.

    `conflict` is a reason to check it first, `refusal` one why the action is not possible.
    """

    name: str
    change: str
    conflict: str = ""
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class BulkPreview:
    """The clusters as they would be changed, and the impact on placements."""

    rows: tuple[ClusterChange, ...]
    impact: Impact

    @property
    def changing(self) -> int:
        return sum(bool(row.change) for row in self.rows)

    @property
    def conflicts(self) -> int:
        return sum(bool(row.conflict) for row in self.rows)

    @property
    def refusals(self) -> int:
        return sum(bool(row.refusal) for row in self.rows)


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What an action changed; its events have this `request_id`, by which it is undone."""

    action: Action
    request_id: str
    rows: tuple[ClusterChange, ...]

    @property
    def changed(self) -> list[str]:
        return [row.name for row in self.rows if row.change]

    @property
    def is_undone(self) -> bool:
        return self.action.is_undone and bool(self.changed)

    @property
    def message(self) -> str:
        changed = len(self.changed)
        if len(self.rows) == 1:
            return self.action.message.format(name=self.rows[0].name)
        if not changed:
            return f"Nothing to change on {counted(len(self.rows), 'cluster')}."
        words = self.action.message.format(name=counted(changed, "cluster"))
        unchanged = len(self.rows) - changed
        if unchanged:
            words += f" {counted(unchanged, 'cluster')} unchanged."
        return words


_OPTIONS = {"labels": ("labels",), "taints": ("add", "remove")}
"""By action."""


def read_options(action: Action, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the operation: from `labels` to set, None removes; taints to `add` and `remove`.

    Raise InvalidManifest for those that a manifest could not have, and for none where some are required.
    """
    allowed = _OPTIONS.get(action.name, ())
    options = {key: value for key, value in values.items() if value}
    if unknown := sorted(options.keys() - allowed):
        words = ", ".join(allowed) or "no options"
        raise InvalidManifest.of(
            unknown[0], "unknown-field", f"Unknown field {unknown[0]!r}", words
        )
    if allowed and not options:
        raise InvalidManifest.of(
            allowed[0], "required", "Required value", "at least one change"
        )
    labels = options.get("labels", {})
    if not isinstance(labels, dict):
        raise InvalidManifest.of(
            "labels", "wrong-type", "Invalid value: not an object", "labels by key"
        )
    put = {key: value for key, value in labels.items() if value is not None}
    for field in ("add", "remove"):
        _check_manifest(
            {**dict.fromkeys(labels, ""), **put}, options.get(field, []), field
        )
    if not labels:
        return options
    return {"put": put, "remove": sorted(labels.keys() - put.keys())}


def _check_manifest(labels: Mapping[str, Any], taints: Any, field: str) -> None:
    """Raise InvalidManifest, with the paths of the options, for what no manifest of a cluster may have."""
    metadata = {"name": "any", "labels": labels}
    document = {
        "apiVersion": MEMBER_VERSIONS[0],
        "kind": MEMBER_KIND,
        "metadata": metadata,
        "spec": {"identity": {"kind": "User", "name": "any"}, "taints": taints},
    }
    try:
        parse_member(document)
    except InvalidManifest as invalid:
        paths = {"metadata.labels": "labels", "spec.taints": field}
        placed = [
            replace(error, path=here + error.path.removeprefix(there))
            for error in invalid.errors
            for there, here in paths.items()
            if error.path.startswith(there)
        ]
        raise InvalidManifest(placed or invalid.errors) from invalid


def selected_clusters(
    names: Sequence[str], cluster_filter: ClusterFilter | None = None
) -> list[str]:
    """Return the names of the selected clusters in order: these, and all that match a filter.

    Raise InvalidManifest for a name that is not in the fleet, and without a cluster.
    """
    selected = set(names)
    if cluster_filter:
        selected.update(
            clusters_matching(cluster_filter).values_list("name", flat=True)
        )
    known = current_fleet().fleet.positions
    errors = [
        FieldError(
            f"names[{at}]",
            "bad-reference",
            f"Not found: {name[:63]!r}",
            "a member cluster",
        )
        for at, name in enumerate(names)
        if name not in known
    ]
    if not selected:
        errors.append(
            FieldError("names", "required", "Required value", "at least one cluster")
        )
    if errors:
        raise InvalidManifest(errors[:_MOST_ERRORS])
    return sorted(selected)


def preview_change(
    action: Action, options: Mapping[str, Any], names: Sequence[str], *, now: datetime
) -> BulkPreview:
    """Return what an action would change, and the placements that would be scheduled differently."""
    rows, after = _changes(current_fleet().fleet, action, options, names)
    if action.name == "drain":
        return BulkPreview(rows, drain_impact(*names, now=now))
    lost = [row.name for row in rows if row.change and action.name == "leave"]
    return BulkPreview(rows, impact_of(after, lost=lost))


@transaction.atomic
def change_clusters(
    action: Action,
    options: Mapping[str, Any],
    names: Sequence[str],
    *,
    by: User | None,
    now: datetime,
) -> BulkResult:
    """Run an action on clusters, all or none. Raise NotOfTeamError, and what the operation raises."""
    check_change(by, FLEET, role=action.role, what="these clusters")
    lock_fleet()
    rows, _ = _changes(current_fleet().fleet, action, options, names)
    identity = uuid4().hex
    with with_request_id(identity):
        operation = current_backend().operation(
            action.kind, action.name, action.operation
        )
        operation(names, **options, by=by, now=now)
    return BulkResult(action, identity, rows)


def _changes(
    fleet: Fleet, action: Action, options: Mapping[str, Any], names: Collection[str]
) -> tuple[tuple[ClusterChange, ...], list[Cluster]]:
    """Return what an action changes on clusters, and the clusters as it leaves them."""
    draining = (
        running_drains(names)
        if action.name in ("drain", "cancel-drain", "uncordon")
        else {}
    )
    refusals = {}
    if action.precondition is not None:
        refusals = {
            row.name: action.why_not(row, None, draining)
            for row in clusters_named(names)
        }
    rows = []
    clusters = []
    for name in names:
        if name not in fleet.positions:
            raise UnknownClusterError(name)
        cluster = fleet.clusters[fleet.positions[name]]
        after, change, conflict = _changed(cluster, action, options)
        if cluster.name in draining and action.name != "cancel-drain":
            conflict = "Drain in progress"
            change = "" if action.name == "drain" else change
        refusal = refusals.get(name, "")
        if refusal:
            change = ""
        rows.append(ClusterChange(name, change, conflict, refusal))
        clusters.append(after)
    return tuple(rows), clusters


_TAINTS: Mapping[str, Mapping[str, Any]] = {
    "cordon": {"add": [CORDON]},
    "uncordon": {"remove": [CORDON]},
    "drain": {"add": [CORDON]},
}
_WORDS = {"drain": "Cordon, and evict any placements"}
"""What is said of an action instead of its change of taints."""


def _changed(
    cluster: Cluster, action: Action, options: Mapping[str, Any]
) -> tuple[Cluster, str, str]:
    """Return a cluster as an action leaves it, the change in words, and what conflicts with it."""
    if action.name == "leave":
        if cluster.eligibility == leaving():
            return cluster, "", ""
        return cluster.with_changes(eligibility=leaving()), "Leaves the fleet", ""
    if action.name == "cancel-drain":
        return cluster, "Stops evicting", ""
    if action.name == "labels":
        return _relabeled(cluster, **options)
    after, change = _retainted(cluster, **_TAINTS.get(action.name, options))
    return after, _WORDS.get(action.name, change), ""


def _relabeled(
    cluster: Cluster, put: Mapping[str, str], remove: Collection[str]
) -> tuple[Cluster, str, str]:
    labels = {
        key: value
        for key, value in {**cluster.labels, **put}.items()
        if key not in remove
    }
    words = [
        f"− {key}={cluster.labels[key]}" for key in remove if key in cluster.labels
    ]
    conflicts = []
    for key, value in put.items():
        before = cluster.labels.get(key)
        if before is None:
            words.append(f"+ {key}={value}")
        elif before != value:
            words.append(f"{key}: {before} → {value}")
            conflicts.append(f"Replaces {key}={before}")
    return cluster.with_changes(labels=labels), ", ".join(words), ", ".join(conflicts)


def _retainted(
    cluster: Cluster,
    add: Sequence[Mapping[str, str]] = (),
    remove: Sequence[Mapping[str, str]] = (),
) -> tuple[Cluster, str]:
    added, removed = (
        [
            Taint(taint["key"], taint.get("value") or "", taint["effect"])
            for taint in several
        ]
        for several in (add, remove)
    )
    taints = tuple(taint for taint in cluster.taints if taint not in removed)
    taints += tuple(taint for taint in dict.fromkeys(added) if taint not in taints)
    words = [
        f"+ {taint_text(asdict(taint))}"
        for taint in taints
        if taint not in cluster.taints
    ]
    words += [
        f"− {taint_text(asdict(taint))}"
        for taint in cluster.taints
        if taint not in taints
    ]
    return cluster.with_changes(taints=taints), ", ".join(words)
