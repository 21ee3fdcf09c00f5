"""Conformance cases and scenarios, one JSON object per line (`docs/reference/cases.md`)."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clusters.case_manifest import parse_case_cluster, parse_clusters
from clusters.fleet import NO_SCHEDULE, Cluster, Fleet
from clusters.managed_cluster import parse_moment
from fleetui.apimachinery.errors import FieldError, InvalidManifest, format_path
from fleetui.apimachinery.fields import has_second_dash
from fleetui.apimachinery.model import Semantics, mapping_at, parse_semantics
from fleetui.apimachinery.yaml import load_json
from placements.engine.ocm_hub import BlockedSetError, OcmHub, parse_hub
from placements.engine.scheduling.candidates import candidates_of, filter_columns
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Decision
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
from placements.explain.decision_document import scores_of
from placements.explain.hub_status import HubStatus, hub_status
from placements.explain.ocm_status import decision_groups, satisfied_condition
from placements.manifests.binding import (
    BindingState,
    PlacedBinding,
    parse_case_bindings,
)
from placements.manifests.ocm_options import (
    AddOnWeight,
    parse_ocm_options,
    refuse_weighted_limits,
)
from placements.manifests.ocm_placement import ParsedOcmPlacement, parse_ocm_placement
from placements.manifests.policy import parse_policy

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
        raise InvalidManifest.of(
            "now",
            "bad-format",
            "Invalid value: must be a time",
            "such as 2026-06-01T12:00:00Z",
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
    unscheduled = (spec.number_of_clusters or len(ranked)) - len(ranked)
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
        for add_on in _add_ons(cycle)
        for position, scores in reported_scores(add_on, cycle.fleet)
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
    kept = {binding.cluster for binding in cycle.bindings}
    before = [cluster for cluster in hub.clusters if cluster.name in kept]
    now = cycle.moment
    if now is not None and (ends := list(_toleration_ends(cycle, before))):
        answer["requeueAfterSeconds"] = round((min(ends) - now).total_seconds())
    return answer


def _add_ons(cycle: Cycle) -> list[AddOnWeight]:
    return [add_on for add_on in cycle.ocm_options.add_ons if add_on.weight]


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
            first = next(
                toleration
                for toleration in tolerations
                if tolerates(toleration, taint, now)
            )
            seconds = first.toleration_seconds
            if seconds is not None and (end := toleration_end(taint, seconds)):
                yield end


Raw = Mapping[str, Any]
_FIELDS = {
    "relabel": ("labels", "labels"),
    "taint": ("taints", "taints"),
    "eligible": ("eligible", "eligibility"),
}
"""The key of a change, and the field of the cluster that it replaces."""
_CHANGES = ("add", "remove", *_FIELDS)


def run_scenario(case: Raw) -> list[dict[str, Any]]:
    """Run every step of a scenario; return the result of each. Raise InvalidManifest."""
    hub = _Hub(
        parse_semantics(case.get("semantics") or Semantics.KUBEFLEET.value),
        {cluster.name: cluster for cluster in parse_clusters(case.get("clusters"))},
    )
    return [
        hub.run(step, f"steps[{index}]")
        for index, step in enumerate(_items(case["steps"], "steps"))
    ]


@dataclass
class _Placed:
    """A binding and the policy snapshot under which it was decided."""

    binding: PlacedBinding
    snapshot: int

    def plain(self, latest: int) -> dict[str, Any]:
        return {
            "cluster": self.binding.cluster,
            "state": self.binding.state,
            "policy": "current" if self.snapshot == latest else "obsolete",
            "affinityScore": self.binding.affinity_score,
            "topologySpreadScore": self.binding.topology_spread_score,
        }


class _Hub:
    """The state of a hub between the cycles of one placement."""

    def __init__(self, semantics: Semantics, clusters: dict[str, Cluster]) -> None:
        self.semantics = semantics
        self.clusters = clusters
        self.placed: dict[str, _Placed] = {}
        self.snapshot = -1
        self.policy_of_snapshot: dict[str, Any] | None = None
        self.status: HubStatus | None = None

    def run(self, step: Raw, path: str) -> dict[str, Any]:
        """Change the fleet, bind, set the policy, and run a cycle; return its result."""
        for index, change in enumerate(_items(step.get("fleet"), f"{path}.fleet")):
            self._change_fleet(change, f"{path}.fleet[{index}]")
        for name in _items(
            step.get("bind"), f"{path}.bind", str, "the name of a cluster", "text"
        ):
            placed = self.placed.get(name)
            if placed is not None and placed.binding.state is BindingState.SCHEDULED:
                placed.binding = placed.binding._replace(state=BindingState.BOUND)
        policy = parse_policy(
            step.get("policy"), semantics=self.semantics, path=f"{path}.policy"
        )

        # No webhook writes defaults here: on a hub without one, an explicit PickAll differs from no policy.
        is_null = step.get("policy") is None and self.semantics is Semantics.KUBEFLEET
        content = None if is_null else policy.without_number()
        if content != self.policy_of_snapshot or self.snapshot < 0:
            self.policy_of_snapshot = content
            self.snapshot += 1
            self.status = None

        bindings = tuple(
            placed.binding._replace(is_current=placed.snapshot == self.snapshot)
            for placed in self.placed.values()
        )
        decision = schedule(
            Cycle(Fleet(self.clusters.values()), policy, bindings, self.semantics)
        )

        picked = set(decision.picked_names)
        for binding in decision.bindings_after:
            before = self.placed.get(binding.cluster)
            if before is not None and binding.cluster not in picked:
                before.binding = binding
            else:
                self.placed[binding.cluster] = _Placed(binding, self.snapshot)
        self.status = hub_status(decision) or self.status

        return {
            "bindings": [
                self.placed[name].plain(self.snapshot) for name in sorted(self.placed)
            ],
            "pickedOrder": list(decision.picked_names),
            "condition": self.status and self.status.condition,
            "decisions": [] if self.status is None else list(self.status.decisions),
            **({"error": True} if decision.is_failed else {}),
        }

    def _change_fleet(self, change: Raw, path: str) -> None:
        operation = change.get("op")
        if operation not in _CHANGES:
            message = "Unsupported value: not a change of the fleet"
            raise InvalidManifest.of(
                f"{path}.op", "not-one-of", message, ", ".join(_CHANGES)
            )
        if operation == "add":
            cluster = parse_case_cluster(change.get("cluster"), path=f"{path}.cluster")
            if cluster.name in self.clusters:
                message = f"Duplicate value: {cluster.name} is in the fleet already"
                raise InvalidManifest.of(f"{path}.cluster.name", "duplicate", message)
            self.clusters[cluster.name] = cluster
            return
        name = change.get("name")
        if not isinstance(name, str) or name not in self.clusters:
            message = "Invalid value: no such cluster in the fleet"
            raise InvalidManifest.of(f"{path}.name", "unknown-cluster", message)
        if operation == "remove":
            del self.clusters[name]
        else:
            key, field = _FIELDS[operation]
            new = parse_case_cluster({"name": name, key: change.get(key)}, path=path)
            self.clusters[name] = self.clusters[name].with_changes(
                **{field: getattr(new, field)}
            )


def _items(
    raw: object,
    path: str,
    kind: type = Mapping,
    noun: str = "an object",
    allowed: str = "an object",
) -> list[Any]:
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise InvalidManifest.of(
            path, "wrong-type", "Invalid value: must be a list", "a list"
        )
    for index, item in enumerate(raw):
        if not isinstance(item, kind):
            raise InvalidManifest.of(
                f"{path}[{index}]",
                "wrong-type",
                f"Invalid value: must be {noun}",
                allowed,
            )
    return raw


_KEYS = frozenset(
    {"id", "semantics", "clusters", "bindings", "policy", "placement", "ocm", "expect"}
)
_ALIKE = 0.8


def answers(lines: Iterable[bytes]) -> Iterator[Answer]:
    """Yield the result of each line; one that cannot be read or is invalid results in its first error."""
    for position, line in enumerate(lines, start=1):
        identity: Answer = {}
        try:
            case = load_json(line.decode())
            if not isinstance(case, dict):
                raise InvalidManifest.of(
                    "",
                    "wrong-type",
                    "Invalid value: must be a JSON object",
                    "one object per line",
                )
            if "id" in case:
                identity = {"id": case["id"]}
            if "steps" in case:
                answer = {"steps": run_scenario(case)}
            elif "objects" in case:
                answer = decide_hub_case(case)
            else:
                answer = _single(case)
            yield {**identity, **answer}
        except InvalidManifest as invalid:
            yield {**identity, "line": position, "error": _error(invalid.errors[0])}
        except UnicodeDecodeError:
            error = FieldError("", "not-text", "Must be UTF-8 text", "UTF-8")
            yield {"line": position, "error": _error(error)}


def _error(error: FieldError) -> Answer:
    return {"code": error.code, "path": error.path, "message": error.message}


def _single(case: Raw) -> Answer:
    decision = schedule(_cycle(case))
    if decision.is_failed:
        path = (
            "policy.topologySpreadConstraints"
            if case.get("placement") is None
            else "placement.spec"
        )
        return {"error": _error(failure_fault(decision, path))}
    return {
        "picked": list(decision.picked_names),
        "scores": scores_of(decision),
        "fulfilled": decision.is_fulfilled,
        "unscheduled": list(decision.unscheduled),
        "kept": list(decision.kept),
    }


def _cycle(case: Raw) -> Cycle:
    semantics, misplaced = parse_semantics(case.get("semantics")), []
    for key in sorted(case.keys() - _KEYS):  # others, such as a source, are free
        similar = difflib.get_close_matches(
            key.lower(), _KEYS - case.keys(), n=1, cutoff=_ALIKE
        )
        if similar:
            message = f'Unknown field. Did you mean "{similar[0]}"?'
            misplaced.append(FieldError(key, "unknown-field", message))
    if semantics is not Semantics.OCM:
        message = f"Forbidden: only allowed for ocm semantics, not for {semantics}"
        misplaced += [
            FieldError(key, "field-of-other-semantics", message, "no such field")
            for key in ("placement", "ocm")
            if case.get(key) is not None
        ]
    elif case.get("placement") is not None and case.get("policy") is not None:
        message = "Forbidden: not allowed together with placement"
        misplaced.append(FieldError("policy", "conflict", message, "one of the two"))
    if misplaced:
        raise InvalidManifest(misplaced)

    fleet = Fleet(parse_clusters(case.get("clusters")))
    bindings = parse_case_bindings(case.get("bindings"))
    if semantics is not Semantics.OCM:
        return Cycle(
            fleet,
            parse_policy(case.get("policy"), semantics=semantics),
            bindings,
            semantics,
        )
    if case.get("placement") is not None:
        placement = parse_ocm_placement(
            case["placement"], options=case.get("ocm"), path="placement"
        )
        return Cycle(
            fleet, placement.policy, bindings, semantics, placement.options.to_plain()
        )
    policy = parse_policy(case.get("policy"), semantics=semantics)
    options = parse_ocm_options(case.get("ocm"))
    refuse_weighted_limits(policy, options)
    return Cycle(fleet, policy, bindings, semantics, options.to_plain())


def failure_fault(decision: Decision, path: str) -> FieldError:
    """Return why the cycle failed, as an error: a malformed property, or what `path` requires."""
    if decision.is_unsatisfiable:
        number = decision.cycle.policy.number_of_clusters
        return FieldError(
            path, "unsatisfiable", f"Fewer than {number} clusters can be selected"
        )
    first = decision.malformed[0]
    place = format_path(("clusters", first.cluster, "properties", first.property))
    message = f"Invalid value: {first.text[:60]!r}: must be a quantity, since the policy compares it"
    if has_second_dash(first.property):
        message = (
            "Invalid name: KubeFleet cannot read a resource name with a second dash"
        )
    return FieldError(place, "malformed-property", message)
