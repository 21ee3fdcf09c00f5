"""What each action plans: placements, overrides, budgets, evictions, staged runs, clusters."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from clusters.manifest import parse_member
from clusters.models import Hub
from clusters.operations.edit import CORDON
from fleetui.apimachinery.errors import InvalidManifest, raise_errors
from fleetui.apimachinery.fields import LONGEST_PART
from fleetui.apimachinery.kinds import BUDGET_KIND, EVICTION_KIND
from fleetui.apimachinery.model import items_at, mapping_at
from fleetui.apimachinery.patches import merged
from fleetui.apimachinery.words import counted, full_name, names_and_more
from placements.engine.disruption import (
    ClusterAvailability,
    EvictionContext,
    EvictionReason,
    Verdict,
    judge_eviction,
)
from placements.hubs.kinds.base import Manifest, moment_of, text_of
from placements.hubs.kinds.kubefleet import IS_LATEST_APPROVAL
from placements.hubs.queries import mirrored_objects
from placements.hubs.write_requests import (
    KINDS,
    OFFERED,
    Path,
    Verb,
    edit_body,
    identity_of,
    kind_of,
)
from placements.hubs.writing.planning import (
    MOST_LISTED,
    Planner,
    WritePlan,
    WriteRefusedError,
    check_field,
    check_not_deleting,
    deselection_of,
    failing_runs,
    stage_notes,
)
from placements.manifests.disruption import (
    DisruptionBudgetSpec,
    budget_errors,
    parse_disruption_budget,
)
from placements.manifests.override import parse_cluster_override, parse_override
from placements.manifests.placement import parse_placement
from placements.manifests.policy import PlacementType
from placements.manifests.staged_update import RunState, parse_staged_strategy

PLACEMENT, NAMESPACED_PLACEMENT = "ClusterResourcePlacement", "ResourcePlacement"
PLACEMENTS = (PLACEMENT, NAMESPACED_PLACEMENT)

SAVED = tuple(
    kind
    for kind, stream_kind in KINDS.items()
    if "apply" in OFFERED[stream_kind.plural]
)
DELETED = tuple(
    kind
    for kind, stream_kind in KINDS.items()
    if "delete" in OFFERED[stream_kind.plural]
)


_PARSERS: Mapping[str, Callable[[Any], object]] = {
    PLACEMENT: parse_placement,
    BUDGET_KIND: parse_disruption_budget,
    "ClusterResourceOverride": parse_cluster_override,
    "ResourceOverride": parse_override,
    "ClusterStagedUpdateStrategy": parse_staged_strategy,
}


def save(planner: Planner, fields: dict[str, Any], _: Manifest) -> WritePlan:
    """Plan the creation of an object, or the edit of one that a base or the hub has.

    `base` is the manifest that a draft was started from; without one it is the object as it is. `patch` is a
    merge patch of the object as it is on the hub, where the manifest may be behind it: right after another
    write the mirror has not seen that yet.
    """
    manifest = fields["manifest"]
    check_field("kind", manifest.get("kind"), SAVED)
    kind = manifest["kind"]
    if str(manifest.get("apiVersion")).partition("/")[0] != KINDS[kind].group:
        message = f"Unsupported value: {str(manifest.get('apiVersion'))[:80]!r}"
        allowed = planner.api_version(kind)
        raise InvalidManifest.of("apiVersion", "not-one-of", message, allowed)
    metadata = manifest.get("metadata")
    if not isinstance(metadata, Mapping):
        raise InvalidManifest.of("metadata", "wrong-type", "Invalid value", "an object")
    check_name(kind, metadata)
    if kind in _PARSERS:
        _PARSERS[kind](dict(manifest))

    base = fields.get("base")
    live = planner.find(kind, metadata["name"], metadata.get("namespace") or "")
    notes = budget_notes(planner, manifest) if kind == BUDGET_KIND else ()
    if live is None:
        if base is not None:
            raise WriteRefusedError(
                f"{kind} {metadata['name']} was deleted on the hub since the draft was started; "
                "create it as a new object."
            )
        return WritePlan(planner.create(manifest), manifest, notes)
    if "patch" in fields:
        base, manifest = live, merged(live, fields["patch"])
    return edited(planner, live, base or live, manifest, notes)


def edited(
    planner: Planner,
    live: Manifest,
    base: Manifest,
    manifest: Manifest,
    notes: tuple[str, ...] = (),
) -> WritePlan:
    """Plan the apply of what a draft changes; one that only removes is a merge patch.

    Raise StaleBaseError, WriteRefusedError.
    """
    check_not_deleting(live)
    body = edit_body(live, base, manifest, manager=planner.hub.field_manager)
    if not body.changes:
        return WritePlan(None, manifest, notes, live=live)
    foreign = body.foreign
    if not body.changes.values and set(foreign) == set(body.changes.removed):
        request, foreign = planner.patch(live, {}, foreign), ()
    else:
        request = planner.write(Verb.APPLY, live, body.content)
    if foreign:
        notes = (
            *notes,
            "Fields that other managers own are removed by a second write: review again then.",
        )
    deselection = deselection_of(manifest) if live.get("kind") in PLACEMENTS else None
    if deselection and deselection.clusters:
        notes = (*notes, f"{deselection}.")
    return WritePlan(request, manifest, notes, foreign, deselection, live=live)


def check_name(kind: str, metadata: Mapping[str, Any]) -> None:
    """Raise InvalidManifest unless the metadata names an object of this kind, namespaced or not."""
    name, namespace = metadata.get("name"), metadata.get("namespace") or ""
    if not name:
        raise InvalidManifest.of("metadata.name", "required", "Required value")
    check_field("name", name)
    check_field("namespace", namespace)
    is_namespaced = KINDS[kind].is_namespaced
    if is_namespaced and not namespace:
        message, allowed = "Required value", "a namespace"
    elif namespace and not is_namespaced:
        message, allowed = "Forbidden: the kind is cluster-scoped", "no value"
    else:
        return
    raise InvalidManifest.of("metadata.namespace", "conflict", message, allowed)


def budget_notes(planner: Planner, manifest: Manifest) -> tuple[str, ...]:
    """Return what has to be known of a budget. Raise InvalidManifest where it does not fit its placement."""
    name = mapping_at(manifest, "metadata")["name"]
    placement = planner.find(PLACEMENT, name)
    if placement is None:
        return (f"The hub has no placement {name} yet.",)
    type_name = placement_type(placement)
    if type_name in list(PlacementType):
        spec = parse_disruption_budget(dict(manifest)).spec
        raise_errors(budget_errors(spec, PlacementType(type_name)))
    return ()


def placement_type(placement: Manifest) -> str:
    policy = mapping_at(placement, "spec", "policy")
    return text_of(policy.get("placementType")) or PlacementType.PICK_ALL.value


def scale(planner: Planner, fields: dict[str, Any], live: Manifest) -> WritePlan:
    """Plan another number of clusters for a placement of type PickN."""
    if placement_type(live) != PlacementType.PICK_N:
        raise WriteRefusedError(
            f"Only a PickN placement has a number of clusters; this is {placement_type(live)}."
        )
    draft = deepcopy(dict(live))
    draft["spec"]["policy"]["numberOfClusters"] = fields["numberOfClusters"]
    notes = (
        ()
        if fields["numberOfClusters"]
        else (
            "Every cluster is unselected: the placement is removed from all of them.",
        )
    )
    return edited(planner, live, live, draft, notes)


def delete(planner: Planner, fields: dict[str, Any], live: Manifest) -> WritePlan:
    kind, metadata = str(live["kind"]), mapping_at(live, "metadata")
    notes: tuple[str, ...] = ()
    if kind in PLACEMENTS:
        owner = full_name(fields.get("namespace", ""), fields["name"])
        binding = "ResourceBinding" if "/" in owner else "ClusterResourceBinding"
        bindings = planner.mirrored(binding, owner=owner, is_deleting=False)
        names = {
            text_of(mapping_at(one, "spec").get("targetCluster")) for one in bindings
        }
        clusters = names_and_more(sorted(names - {""}), MOST_LISTED)
        removed_from = f"The placement is removed from {clusters or 'no cluster'}."
        notes = (
            removed_from,
            "Deleted immediately; disruption budgets are not consulted.",
        )
    elif kind.endswith("StagedUpdateRun"):
        notes = ("Bindings stay as they are.",)
    conditions = {key: metadata.get(key) for key in ("uid", "resourceVersion")}
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": conditions}
    return WritePlan(planner.write(Verb.DELETE, live, body), notes=notes)


def condition_of(live: Manifest, kind: str) -> Mapping[str, Any]:
    """Return a condition of the status, an empty object where there is none."""
    conditions = (
        mapping_at(condition) for condition in items_at(live, "status", "conditions")
    )
    return next(
        (condition for condition in conditions if condition.get("type") == kind), {}
    )


def status_of(live: Manifest, kind: str) -> str:
    """Return True, False, Unknown, or "" without this condition."""
    return text_of(condition_of(live, kind).get("status"))


_REFUSED = {
    EvictionReason.PICK_FIXED: "A PickFixed placement names its clusters: nothing can be evicted.",
    EvictionReason.BEING_DELETED: "The placement is being deleted.",
    EvictionReason.NOT_THERE: "The placement has no binding on this cluster.",
}


def evict(planner: Planner, fields: dict[str, Any], live: Manifest) -> WritePlan:
    """Plan the eviction of a placement from a cluster; `eviction` is the name of the object."""
    name, cluster = fields["placement"], fields["cluster"]
    verdict = hub_verdict(planner.hub, live, name, cluster)
    if verdict.why in _REFUSED:
        raise WriteRefusedError(_REFUSED[verdict.why])
    fields.setdefault("eviction", f"{eviction_prefix(name, cluster)}{uuid4().hex[:8]}")
    manifest = {
        "kind": EVICTION_KIND,
        "metadata": {"name": fields["eviction"]},
        "spec": {"placementName": name, "clusterName": cluster},
    }
    request = planner.create(manifest)
    return WritePlan(
        request,
        request.body,
        (
            sentence(verdict),
            "Without a taint that the placement does not tolerate, the scheduler may select it again.",
        ),
    )


def eviction_prefix(placement: str, cluster: str) -> str:
    """Return what the names of our evictions of a placement from a cluster start with."""
    parts = [one[:LONGEST_PART].strip("-.") for one in (placement, cluster)]
    return f"fleetui-{parts[0]}-{parts[1]}-"


def hub_verdict(
    hub: Hub,
    placement: Manifest,
    name: str,
    cluster: str,
) -> Verdict:
    """Return whether the hub would execute an eviction, as far as the mirror shows it."""
    kind = placement_type(placement)
    if kind not in list(PlacementType):
        return Verdict(EvictionReason.NO_BUDGET)
    bindings = {
        text_of(mapping_at(mirrored_object, "spec").get("targetCluster")): availability(
            mirrored_object
        )
        for mirrored_object in mirrored_objects(
            hub, "ClusterResourceBinding", owner=name
        )
    }
    number = mapping_at(placement, "spec", "policy").get("numberOfClusters")
    wanted = number if isinstance(number, int) else len(bindings)
    is_deleting = bool(mapping_at(placement, "metadata").get("deletionTimestamp"))
    context = EvictionContext(
        PlacementType(kind), bindings, wanted, is_being_deleted=is_deleting
    )
    return judge_eviction(context, cluster, budget_of(hub, name))


def availability(binding: Manifest) -> ClusterAvailability:
    state = mapping_at(binding, "spec").get("state")
    is_deleting = mapping_at(binding, "metadata").get("deletionTimestamp")
    if state == "Unscheduled" or is_deleting:
        return ClusterAvailability.LEAVING
    if state == "Scheduled":
        return ClusterAvailability.PLANNED
    if "False" in [status_of(binding, kind) for kind in ("Applied", "Overridden")]:
        return ClusterAvailability.FAILED
    if status_of(binding, "Available") == "True":
        return ClusterAvailability.AVAILABLE
    return ClusterAvailability.WORKING


def budget_of(hub: Hub, name: str) -> DisruptionBudgetSpec | None:
    for manifest in mirrored_objects(hub, BUDGET_KIND, name=name):
        keys = ("apiVersion", "kind", "metadata", "spec")
        try:
            return parse_disruption_budget({key: manifest[key] for key in keys}).spec
        except (InvalidManifest, KeyError):
            break
    return None


def sentence(verdict: Verdict) -> str:
    numbers = verdict.numbers
    counts, evictions = "", "0 evictions"
    if numbers:
        counts = f"{numbers.available} of {numbers.total} clusters are available"
        evictions = counted(numbers.allowed, "eviction")
    match verdict.why:
        case EvictionReason.WITHIN_BUDGET:
            return f"{counts}; the disruption budget allows {evictions} now."
        case EvictionReason.OVER_BUDGET:
            return f"{counts}; the disruption budget allows no eviction now. The hub will not execute it."
        case EvictionReason.MISCONFIGURED:
            return "The disruption budget does not fit the placement. The hub will not execute it."
        case EvictionReason.PLANNED:
            return (
                "Nothing was applied to the cluster yet. The hub will not execute it."
            )
        case EvictionReason.FAILED:
            return "The placement failed on the cluster; its disruption budget does not count."
        case EvictionReason.LEAVING:
            return "The placement is leaving the cluster already."
    return "No disruption budget limits this."


APPROVED, ACCEPTED = "Approved", "ApprovalAccepted"
REASON = "ApprovedInFleetUI"
LONGEST_NAME = 63
_FINISHED = ("True", "False")


def start_run(planner: Planner, fields: dict[str, Any], live: Manifest) -> WritePlan:
    """Plan a staged update run; one whose strategy does not fit the clusters fails on the hub."""
    placement, namespace = fields["placement"], fields.get("namespace", "")
    owner = full_name(namespace, placement)
    fields.setdefault("state", RunState.INITIALIZE.value)
    fields.setdefault("name", run_name(placement))
    kind = kind_of("StagedUpdateStrategy", namespace)
    stages = planner.read(kind, fields["strategy"], namespace)
    kind = kind_of("StagedUpdateRun", namespace)
    notes = (*preflight(planner, live, kind, owner), *stage_notes(stages, owner))
    metadata = {"name": fields["name"], "namespace": namespace}
    spec = {
        "placementName": placement,
        "stagedRolloutStrategyName": fields["strategy"],
        "state": fields["state"],
    }
    if "resourceSnapshotIndex" in fields:
        spec["resourceSnapshotIndex"] = fields["resourceSnapshotIndex"]
    request = planner.create({"kind": kind, "metadata": metadata, "spec": spec})
    return WritePlan(request, request.body, notes)


def run_name(placement: str) -> str:
    return f"{placement[: LONGEST_NAME - 9].strip('-.')}-{uuid4().hex[:8]}"


def preflight(
    planner: Planner,
    placement: Manifest,
    kind: str,
    owner: str,
) -> tuple[str, ...]:
    """Return what would make a run fail or wait. Raise WriteRefusedError while another one is active."""
    for run in planner.mirrored(kind, owner=owner):
        is_ended = status_of(run, "Succeeded") in _FINISHED
        if not is_ended and status_of(run, "Initialized") != "False":
            other = text_of(mapping_at(run, "metadata").get("name"))
            raise WriteRefusedError(
                f"Run {other} of this placement is active; pause or abort it first."
            )
    notes = []
    if mapping_at(placement, "spec", "strategy").get("type") != "External":
        notes.append(
            "The strategy of the placement is not External: the hub rolls it out itself."
        )
    if status_of(placement, f"{placement.get('kind')}Scheduled") != "True":
        notes.append(
            "The placement is not fulfilled: the run would fail, and a failed run does not continue."
        )
    return tuple(notes)


def change_state(planner: Planner, fields: dict[str, Any], live: Manifest) -> WritePlan:
    """Plan to start, pause or resume a staged update run."""
    state = fields["state"]
    before = text_of(mapping_at(live, "spec").get("state")) or RunState.INITIALIZE.value
    if (before, state) == (RunState.INITIALIZE.value, RunState.STOP.value):
        raise WriteRefusedError(f"A run in state {before} cannot go to {state}.")
    if status_of(live, "Succeeded") in _FINISHED:
        raise WriteRefusedError("The run has ended.")
    if before == state:
        return WritePlan(None)
    return WritePlan(planner.patch(live, {("spec", "state"): state}))


def approve(planner: Planner, fields: dict[str, Any], live: Manifest) -> WritePlan:
    """Plan an approval; `at` is the time of its condition, so that preview and request are the same."""
    if is_replaced(live):
        raise WriteRefusedError("A newer request replaced this one.")
    if is_approved(live):
        raise WriteRefusedError("The stage is approved already.")
    moment: datetime | None = planner.now
    if "at" in fields:
        moment = moment_of(fields["at"])
    if moment is None or abs((moment - planner.now).total_seconds()) > 3_600:
        raise InvalidManifest.of(
            "at", "bad-format", "Invalid value", "a time of the last hour"
        )
    fields["at"] = moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    message = f"approved by {planner.person}"
    if comment := fields.get("comment", "").strip():
        message += f": {comment}"
    condition = {
        "type": APPROVED,
        "status": "True",
        "reason": REASON,
        "message": message,
        "observedGeneration": mapping_at(live, "metadata").get("generation") or 1,
        "lastTransitionTime": fields["at"],
    }
    body = {**identity_of(live), "status": {"conditions": [condition]}}
    spec = mapping_at(live, "spec")
    run, stage = (
        text_of(spec.get(key)) for key in ("parentStageRollout", "targetStage")
    )
    request = planner.write(Verb.APPLY, live, body, subresource="status")
    return WritePlan(request, notes=(f"Run {run}, stage {stage}.",))


def is_replaced(request: Manifest) -> bool:
    labels = mapping_at(request, "metadata", "labels")
    return labels.get(IS_LATEST_APPROVAL, "true") != "true"


def is_approved(request: Manifest) -> bool:
    return "True" in [status_of(request, kind) for kind in (APPROVED, ACCEPTED)]


_LABELS, _TAINTS = ("metadata", "labels"), ("spec", "taints")


def change_labels(
    planner: Planner, fields: dict[str, Any], live: Manifest
) -> WritePlan:
    """Plan other labels of a cluster: null removes one, those that are not named stay."""
    before = mapping_at(live, *_LABELS)
    changed = {
        key: value
        for key, value in fields["labels"].items()
        if before.get(key) != value
    }
    after = {**before, **changed}
    draft = deepcopy(dict(live))
    draft["metadata"]["labels"] = {
        key: value for key, value in after.items() if value is not None
    }
    check_member(draft, "metadata.labels")
    if not changed:
        return WritePlan(None, draft)
    values: dict[Path, Any] = {(*_LABELS, key): value for key, value in changed.items()}
    return WritePlan(planner.patch(live, values), draft, failing_runs(live, draft))


def change_taints(
    planner: Planner, fields: dict[str, Any], live: Manifest
) -> WritePlan:
    """Plan other taints of a cluster: the whole list, since the hub has it as one value."""
    return with_taints(planner, live, fields.get("taints"))


def cordon(planner: Planner, _: dict[str, Any], live: Manifest) -> WritePlan:
    return with_taints(planner, live, [*other_taints(live), dict(CORDON)])


def uncordon(planner: Planner, _: dict[str, Any], live: Manifest) -> WritePlan:
    return with_taints(planner, live, other_taints(live))


def other_taints(live: Manifest) -> list[Any]:
    return [item for item in items_at(live, *_TAINTS) if not is_cordon(item)]


def is_cordon(taint: object) -> bool:
    fields = mapping_at(taint)
    return all((fields.get(key) or "") == value for key, value in CORDON.items())


def with_taints(planner: Planner, live: Manifest, taints: Any) -> WritePlan:
    draft = deepcopy(dict(live))
    draft["spec"] = {**mapping_at(live, "spec"), "taints": taints}
    check_member(draft, "spec.taints")
    if list(items_at(live, *_TAINTS)) == (taints or []):
        return WritePlan(None, draft)
    return WritePlan(planner.patch(live, {_TAINTS: taints}), draft)


def check_member(draft: Manifest, path: str) -> None:
    """Raise InvalidManifest where labels or taints are invalid; the rest is what the hub has accepted."""
    document = {key: draft[key] for key in ("apiVersion", "kind", "metadata", "spec")}
    try:
        parse_member(document)
    except InvalidManifest as error:
        errors = [
            field_error
            for field_error in error.errors
            if field_error.path.startswith(path)
        ]
        if errors:
            raise InvalidManifest(errors) from error
