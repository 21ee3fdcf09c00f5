"""Values for tests, written short: only what matters to a test has to be said.

    fleet("a", cluster("b", region="east"))                  member clusters
    pick_n(3, spread=[spread("region")], prefer=[prefer(20, labelled(tier="edge"))])     a policy
    binding("a", "Bound", scores=(1, 20))                    what a placement has already
    decide(fleet("a"), pick_n(1), binding("b"))              the whole way to a Decision

Policies go through `parse_policy`, so no test can use one that is not valid. `cycle_of` reads a
case in the form of the conformance files.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from clusters.fleet import (
    Cluster,
    Eligibility,
    EligibilityKind,
    Fleet,
    ResourceUsage,
    Taint,
)
from fleetui.apimachinery.model import Semantics
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.scheduler import schedule
from placements.manifests.binding import BindingState, PlacedBinding
from placements.manifests.ocm_options import parse_ocm_options
from placements.manifests.policy import PlacementPolicy, parse_policy

Document = dict[str, Any]


def cluster(
    name: str,
    labels: Mapping[str, str] | None = None,
    *,
    taints: Sequence[Taint] = (),
    properties: Mapping[str, str] | None = None,
    usage: ResourceUsage | None = None,
    not_eligible: str | None = None,
    **more_labels: str,
) -> Cluster:
    """Make a member cluster, eligible unless a kind of ineligibility is given; the rest are its labels."""
    return Cluster(
        name,
        {**(labels or {}), **more_labels},
        taints=tuple(taints),
        properties=properties or {},
        usage=usage or ResourceUsage(),
        eligibility=Eligibility(EligibilityKind(not_eligible), not_eligible)
        if not_eligible
        else Eligibility(),
    )


def taint(key: str, value: str = "") -> Taint:
    """Make a taint; its only effect is NoSchedule."""
    return Taint(key, value)


def fleet(*clusters: Cluster | str) -> Fleet:
    """Make a fleet; a cluster without anything but a name is given as that name."""
    return Fleet(cluster(one) if isinstance(one, str) else one for one in clusters)


def grouped(key: str, **names: str) -> list[Cluster]:
    """Make clusters in groups: `grouped("zone", east="a b", west="c")`."""
    return [
        cluster(name, {key: value})
        for value, listed in names.items()
        for name in listed.split()
    ]


def policy(**fields: Any) -> PlacementPolicy:
    """Parse `spec.policy` given field by field, in the manifest's own words."""
    return parse_policy(fields)


def pick_all(
    *, required: Sequence[Document] = (), tolerations: Sequence[Document] = ()
) -> PlacementPolicy:
    """Make a PickAll policy."""
    return policy(placementType="PickAll", **_common(required, (), tolerations))


def pick_fixed(*names: str) -> PlacementPolicy:
    """Make a PickFixed policy."""
    return policy(placementType="PickFixed", clusterNames=list(names))


def pick_n(
    number: int,
    *,
    required: Sequence[Document] = (),
    prefer: Sequence[Document] = (),
    spread: Sequence[Document] = (),
    tolerations: Sequence[Document] = (),
) -> PlacementPolicy:
    """Make a PickN policy."""
    constraints = {"topologySpreadConstraints": list(spread)} if spread else {}
    common = _common(required, prefer, tolerations)
    return policy(
        placementType="PickN", numberOfClusters=number, **constraints, **common
    )


def _common(
    required: Sequence[Document],
    preferred: Sequence[Document],
    tolerations: Sequence[Document],
) -> Document:
    affinity: Document = {}
    if required:
        terms = {"clusterSelectorTerms": list(required)}
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = terms
    if preferred:
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = list(preferred)
    fields: Document = {"affinity": {"clusterAffinity": affinity}} if affinity else {}
    return {**fields, "tolerations": list(tolerations)} if tolerations else fields


def spread(key: str, max_skew: int = 1, *, hard: bool = True) -> Document:
    """Write a topology spread constraint, hard (DoNotSchedule) by default."""
    effect = "DoNotSchedule" if hard else "ScheduleAnyway"
    return {"topologyKey": key, "maxSkew": max_skew, "whenUnsatisfiable": effect}


def labelled(**labels: str) -> Document:
    """Write a term that matches clusters with these labels."""
    return {"labelSelector": {"matchLabels": labels}}


def expression(key: str, operator: str, *values: str) -> Document:
    """Write a term with one label requirement."""
    return {
        "labelSelector": {
            "matchExpressions": [
                {"key": key, "operator": operator, "values": list(values)}
            ]
        }
    }


def measured(name: str, operator: str, value: str) -> Document:
    """Write a term with one property requirement."""
    return {
        "propertySelector": {
            "matchExpressions": [
                {"name": name, "operator": operator, "values": [value]}
            ]
        }
    }


def sorted_by(name: str, order: str = "Descending") -> Document:
    """Write a preference by where a property lies between smallest and largest."""
    return {"propertySorter": {"name": name, "sortOrder": order}}


def prefer(weight: int, *terms: Document) -> Document:
    """Write a preferred term of the parts given."""
    return {
        "weight": weight,
        "preference": {key: part for term in terms for key, part in term.items()},
    }


def tolerate(**fields: str) -> Document:
    """Write a toleration in the manifest's own words."""
    return dict(fields)


def binding(
    cluster: str,
    state: str = "Bound",
    *,
    obsolete: bool = False,
    scores: tuple[float, float] | None = None,
    was: str = "Scheduled",
    deleting: bool = False,
) -> PlacedBinding:
    """Make a binding; `scores` are (topology spread, affinity), `was` the state before Unscheduled."""
    topology_spread, affinity = scores or (None, None)
    return PlacedBinding(
        cluster,
        BindingState(state),
        is_current=not obsolete,
        topology_spread_score=topology_spread,
        affinity_score=affinity,
        previous_state=BindingState(was),
        is_deleting=deleting,
    )


def cycle(
    fleet: Fleet,
    policy: PlacementPolicy | None = None,
    *bindings: PlacedBinding,
    semantics: str = "fleet",
) -> Cycle:
    """Make the inputs of one scheduling cycle."""
    return Cycle(fleet, policy or PlacementPolicy(), bindings, Semantics(semantics))


def decide(
    fleet: Fleet,
    policy: PlacementPolicy | None = None,
    *bindings: PlacedBinding,
    semantics: str = "fleet",
) -> Decision:
    """Run one scheduling cycle."""
    return schedule(cycle(fleet, policy, *bindings, semantics=semantics))


def cycle_of(case: Mapping[str, Any]) -> Cycle:
    """Make the inputs of one cycle from a case as the conformance files have it."""
    semantics = Semantics(case.get("semantics", "fleet"))
    return Cycle(
        Fleet(map(_cluster_of, case["clusters"])),
        parse_policy(case.get("policy"), semantics=semantics),
        tuple(map(_binding_of, case.get("bindings", ()))),
        semantics,
        parse_ocm_options(case["ocm"]).to_plain() if "ocm" in case else {},
    )


def _cluster_of(document: Mapping[str, Any]) -> Cluster:
    eligible = document.get("eligible", {"value": True})
    kind = (
        None
        if eligible["value"]
        else EligibilityKind(eligible.get("kind", "unspecified"))
    )
    return Cluster(
        document["name"],
        document.get("labels", {}),
        tuple(
            Taint(one["key"], one.get("value", ""), one["effect"])
            for one in document.get("taints", ())
        ),
        document.get("properties", {}),
        ResourceUsage(**document.get("resourceUsage", {})),
        Eligibility(kind, eligible.get("reason", "")),
    )


def _binding_of(document: Mapping[str, Any]) -> PlacedBinding:
    score = document.get("topologySpreadScore")
    return PlacedBinding(
        document["cluster"],
        BindingState(document["state"]),
        is_current=document["policy"] == "current",
        topology_spread_score=tuple(score) if isinstance(score, list) else score,
        affinity_score=document.get("affinityScore"),
        previous_state=BindingState(document.get("previousState", "Scheduled")),
    )
