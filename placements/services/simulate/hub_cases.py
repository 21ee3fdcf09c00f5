"""Cases that hold the objects of a hub of Open Cluster Management (`docs/reference/cases.md#hub-objects`)."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from datetime import datetime
from typing import Any

from clusters.fleet import NO_SCHEDULE, Cluster, Fleet
from clusters.managed_cluster import parse_moment
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.model import Semantics, mapping_at
from placements.engine.ocm_hub import BlockedSetError, OcmHub, parse_hub
from placements.engine.scheduling.candidates import candidates_of, filter_columns
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.filters.taint_toleration import (
    tolerates,
    toleration_end,
    untolerated,
)
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.scheduler import schedule
from placements.engine.scheduling.scores.ocm_prioritizers import (
    is_expired,
    reported_scores,
    weighed,
)
from placements.explain.ocm_status import decision_groups, satisfied_condition
from placements.manifests.ocm_options import AddOnWeight
from placements.manifests.ocm_placement import ParsedOcmPlacement, parse_ocm_placement

Answer = dict[str, Any]
DISABLED = "cluster.open-cluster-management.io/experimental-scheduling-disable"
_PRIORITIZERS = {
    "steady": "Steady",
    "balance": "Balance",
    "cpu": "ResourceAllocatableCPU",
    "memory": "ResourceAllocatableMemory",
}
_WELL_CONFIGURED = {
    "type": "PlacementMisconfigured",
    "status": "False",
    "reason": "Succeedconfigured",
    "message": "Placement configurations check pass",
}


def decide_hub_case(case: Mapping[str, Any]) -> Answer:
    """Run a cycle over the objects of a hub; return what OCM's scheduler would decide and write.

    A placement that it would call misconfigured, after which no cluster is selected, is an error with its
    path. Raise InvalidManifest.
    """
    objects = case.get("objects")
    if not isinstance(objects, list):
        raise InvalidManifest.of(
            "objects", "wrong-type", "Invalid value: must be a list", "a list"
        )
    try:
        now = parse_moment(case["now"]) if "now" in case else None
    except (TypeError, ValueError) as error:
        message = "Invalid value: must be a time"
        raise InvalidManifest.of(
            "now", "bad-format", message, "such as 2026-06-01T12:00:00Z"
        ) from error
    hub = parse_hub(objects)
    document = deepcopy(case.get("placement"))
    # Upstream has the field, and no code that reads it.
    mapping_at(document, "spec").pop("spreadPolicy", None)  # type: ignore[attr-defined]
    metadata = mapping_at(document, "metadata")
    namespace = str(metadata.get("namespace", ""))
    named = mapping_at(document, "spec").get("clusterSets") or []
    sets = hub.eligible_sets(namespace, named)
    is_off = mapping_at(metadata, "annotations").get(DISABLED) == "true"
    if is_off or metadata.get("deletionTimestamp"):
        return {"scheduled": False, "clusterSets": sets, "retries": False}
    placement = parse_ocm_placement(document, path="placement")
    options = placement.options.to_plain()
    fleet = Fleet(hub.clusters)
    plain = Cycle(fleet, placement.policy, (), Semantics.OCM, options, moment=now)
    try:
        cycle = hub.cycle(plain, f"{namespace}/{placement.name}")
    except BlockedSetError:
        return {"scheduled": False, "clusterSets": sets, "retries": True}
    columns = filter_columns(cycle, profile_of(cycle))
    members = columns["cluster sets"]
    names = cycle.fleet.names
    return {
        "scheduled": True,
        "clusterSets": sets,
        "available": [names[at] for at in members.nonzero()[0]],
        "afterPredicates": [
            names[at] for at in (members & columns["affinity"]).nonzero()[0]
        ],
        **_decided(cycle, hub, placement, namespace, sets, int(members.sum())),
    }


def _decided(
    cycle: Cycle,
    hub: OcmHub,
    placement: ParsedOcmPlacement,
    namespace: str,
    sets: list[str],
    available: int,
) -> Answer:
    spec = placement.spec
    candidates = candidates_of(cycle)
    names = cycle.fleet.names
    passing = candidates.passes.nonzero()[0].tolist()
    ranked = list(schedule(cycle).picked_names)
    number = spec.number_of_clusters
    unscheduled = (number or len(ranked)) - len(ranked)
    positions = cycle.fleet.positions
    selected = [cycle.fleet.clusters[positions[name]] for name in ranked]
    satisfied = satisfied_condition(
        bound=hub.bound_sets(namespace),
        named=spec.cluster_sets,
        eligible=sets,
        available=available,
        selected=len(ranked),
        unscheduled=unscheduled,
    )
    has_expired = any(
        is_expired(scores, cycle.moment)
        for one in _add_ons(cycle)
        for position, scores in reported_scores(one, cycle.fleet)
        if position in passing
    )
    answer = {
        "afterTaints": [names[at] for at in passing],
        "scores": list(_scores(cycle, passing)),
        "totals": {
            names[at]: round(float(candidates.preference[at])) for at in passing
        },
        "ranked": ranked,
        "unscheduled": unscheduled,
        "groups": decision_groups(spec, selected, placement.name),
        "numberOfSelectedClusters": len(ranked),
        "conditions": [_WELL_CONFIGURED, satisfied],
        "outcome": "Warning" if has_expired else "Success",
        "retries": has_expired,
    }
    kept = {one.cluster for one in cycle.bindings}
    before = [one for one in hub.clusters if one.name in kept]
    now = cycle.moment
    if now is not None and (ends := list(_toleration_ends(cycle, before))):
        answer["requeueAfterSeconds"] = round((min(ends) - now).total_seconds())
    return answer


def _add_ons(cycle: Cycle) -> list[AddOnWeight]:
    return [one for one in cycle.ocm_options.add_ons if one.weight]


def _scores(cycle: Cycle, passing: list[int]) -> Iterator[Answer]:
    """Yield the prioritizers by name and weight, with the scores of the clusters that pass the filters."""
    add_ons = iter(_add_ons(cycle))
    entries = []
    candidates = candidates_of(cycle).passes
    for source, weight, score in weighed(cycle.ocm_options, cycle, candidates):
        if source in _PRIORITIZERS:
            name = _PRIORITIZERS[source]
        else:
            add_on = next(add_ons)
            name = f"AddOn/{add_on.resource_name}/{add_on.score_name}"
        # Steady counts 1 here, and 100 upstream.
        factor = 100 if source == "steady" else 1
        clusters = {
            cycle.fleet.names[at]: round(float(score[at])) * factor for at in passing
        }
        entry = {"prioritizer": name, "weight": round(weight / factor)}
        entries.append({**entry, "clusters": clusters})
    yield from sorted(entries, key=lambda one: (one["prioritizer"], one["weight"]))


def _toleration_ends(cycle: Cycle, clusters: list[Cluster]) -> Iterator[datetime]:
    """Yield when the tolerations end of clusters that are selected and tolerated at the moment.

    Per taint that is the first toleration that tolerates it, even if a later one has no end.
    """
    tolerations = cycle.policy.tolerations
    now = cycle.moment
    for cluster in clusters:
        if untolerated(cluster.taints, tolerations, now=now, is_selected=True):
            continue
        for taint in cluster.taints:
            if taint.effect != NO_SCHEDULE:
                continue  # accepted without a toleration
            first = next(one for one in tolerations if tolerates(one, taint, now))
            seconds = first.toleration_seconds
            if seconds is not None and (end := toleration_end(taint, seconds)):
                yield end
