"""The Placement document of Open Cluster Management: predicates, spread, prioritizers, tolerations.

It becomes the policy and the options that `ocm` semantics run on (`spec/other-schedulers.md` 2.1, 6.4,
6.6). `v1alpha1` carries the proposal's `spreadConstraints`, `v1beta1` the merged `spreadPolicy`.
An entry of a list with nothing but a comment in it, as the proposal's examples have, is left out, with a
warning.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from placements.scheduling.door.kinds import OCM_GROUP
from placements.scheduling.door.ocm_options import (
    AffinityTerm,
    OcmOptions,
    parse_ocm_options,
    refuse_weighted_limits,
)
from placements.scheduling.door.ocm_spec import (
    OCM_KIND,
    SOFT_EFFECTS,
    ConstraintType,
    OcmDocument,
    OcmSpec,
    OcmToleration,
    SpreadPolicyTerm,
    SpreadTerm,
)
from placements.scheduling.door.parsing import mapping_at, parse_model
from placements.scheduling.faults import Caveat, Fault, Faults
from placements.scheduling.policy import PlacementPolicy, parse_policy
from placements.scheduling.semantics import Semantics

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class OcmWish:
    """What a Placement document asks for, as a policy and options of `ocm` semantics.

    `places` give the document's paths for those of the policy, which is arranged in another way.
    """

    name: str
    policy: PlacementPolicy
    options: OcmOptions
    caveats: tuple[Caveat, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)


def is_ocm_placement(document: object) -> bool:
    """Tell whether a document says that it is a Placement of Open Cluster Management."""
    if not isinstance(document, Mapping) or document.get("kind") != OCM_KIND:
        return False
    return str(document.get("apiVersion")).partition("/")[0] == OCM_GROUP


def parse_ocm_placement(
    document: object, *, options: object = None, path: str = "", options_path: str = "ocm"
) -> OcmWish:
    """Turn a Placement document into a policy and options; `options` may accompany it. Raises Faults."""
    spec_path = f"{path}.spec" if path else "spec"
    parsed = parse_model(OcmDocument, document, semantics=Semantics.OCM, path=path)
    given = parse_ocm_options(options, path=options_path).to_plain()
    _refuse_said_twice(options, options_path)
    constraints = _constraints(parsed.spec)
    policy = parse_policy(
        _policy(parsed.spec, list(constraints.values())), semantics=Semantics.OCM, path=spec_path
    )
    chosen = parse_ocm_options({**given, **_options(parsed.spec)})
    refuse_weighted_limits(policy, chosen, places=[f"{spec_path}.{place}" for place in constraints])
    caveats, places = tuple(_caveats(parsed.spec, spec_path)), _places(parsed.spec, constraints, spec_path)
    return OcmWish(parsed.metadata.name, policy, chosen, caveats, places)


def _refuse_said_twice(options: object, path: str) -> None:
    """Raise Faults for options that only a document without words of its own for them may have."""
    given = mapping_at(options)
    message = "is said by the document itself"
    faults = [
        Fault(f"{path}.{name}", "conflict", message, "no such field")
        for name in ("affinityTerms", "balanceWeight", "cpuWeight", "memoryWeight")
        if name in given
    ]
    if faults:
        raise Faults(faults)


def _places(spec: OcmSpec, constraints: Iterable[str], path: str) -> dict[str, str]:
    terms = f"policy.affinity.clusterAffinity.{_REQUIRED}.clusterSelectorTerms"
    spreads = (
        (f"policy.topologySpreadConstraints[{index}]", place) for index, place in enumerate(constraints)
    )
    written = [index for index, one in enumerate(spec.predicates) if one is not None]
    predicates = (
        (f"{terms}[{index}]", f"predicates[{place}].requiredClusterSelector")
        for index, place in enumerate(written)
    )
    return {here: f"{path}.{there}" for here, there in (*spreads, *predicates)}


def _caveats(spec: OcmSpec, path: str) -> Iterator[Caveat]:
    yield from _empty_entries(spec, path)
    if spec.cluster_sets:
        message = "cluster sets are not known here: every cluster of the fleet is taken to be in them"
        yield Caveat("not-acted-on", f"{path}.clusterSets", message)
    if spec.decision_strategy is not None:
        message = "decision groups change only how decisions are grouped, not which clusters are chosen"
        yield Caveat("not-acted-on", f"{path}.decisionStrategy", message)
    for index, one in enumerate(spec.tolerations):
        place = f"{path}.tolerations[{index}]"
        if one.effect in SOFT_EFFECTS:
            message = (
                f"taints are hard here, so there is no {one.effect} to tolerate; the toleration is dropped"
            )
            yield Caveat("not-acted-on", f"{place}.effect", message)
        if one.toleration_seconds is not None:
            message = "what is tolerated is tolerated for good here, not for a number of seconds"
            yield Caveat("not-acted-on", f"{place}.tolerationSeconds", message)


def _empty_entries(spec: OcmSpec, path: str) -> Iterator[Caveat]:
    for index, predicate in enumerate(spec.predicates):
        if predicate is None:
            yield _empty(f"{path}.predicates[{index}]", "asks nothing")
    for index, term in enumerate(spec.spread_constraints):
        place = f"{path}.spreadConstraints[{index}]"
        for row, weight in enumerate(term.topology_weights):
            if weight is None:
                yield _empty(f"{place}.topologyWeights[{row}]", "prefers nothing")


def _empty(path: str, words: str) -> Caveat:
    return Caveat("empty-entry", path, f"has nothing in it, so it {words}; left out")


def _policy(spec: OcmSpec, constraints: list[dict[str, Any]]) -> dict[str, Any]:
    plain: dict[str, Any] = {"placementType": "PickAll"}
    if spec.number_of_clusters is not None:
        plain = {"placementType": "PickN", "numberOfClusters": spec.number_of_clusters}
        if constraints:
            plain["topologySpreadConstraints"] = constraints
    terms = [one.required_cluster_selector.to_plain() for one in spec.predicates if one is not None]
    if terms:
        plain["affinity"] = {"clusterAffinity": {_REQUIRED: {"clusterSelectorTerms": terms}}}
    tolerations: list[dict[str, Any]] = []
    for toleration in map(_toleration, spec.tolerations):
        if toleration["effect"] not in SOFT_EFFECTS and toleration not in tolerations:
            tolerations.append(toleration)
    return {**plain, "tolerations": tolerations}


def _toleration(one: OcmToleration) -> dict[str, Any]:
    effect = "NoSchedule" if one.effect == "NoSelect" else one.effect
    return {"key": one.key, "operator": one.operator.value, "value": one.value, "effect": effect}


def _constraints(spec: OcmSpec) -> dict[str, dict[str, Any]]:
    """Give the Even constraints in their order, each under its place in the document's spec."""
    terms = enumerate(spec.spread_constraints)
    even = [(index, one) for index, one in terms if one.type is ConstraintType.EVEN]
    even.sort(key=lambda term: term[1].order or 0)
    merged = enumerate(spec.spread_policy.spread_constraints if spec.spread_policy else ())
    return {
        **{f"spreadConstraints[{index}]": _even(one) for index, one in even},
        **{f"spreadPolicy.spreadConstraints[{index}]": _merged(one) for index, one in merged},
    }


def _even(term: SpreadTerm) -> dict[str, Any]:
    is_hard = term.max_skew is not None
    return {
        "topologyKey": term.topology_key,
        "topologyKeyType": term.topology_key_type.value,
        "maxSkew": term.max_skew or 1,
        "whenUnsatisfiable": "DoNotSchedule" if is_hard else "ScheduleAnyway",
    }


def _merged(term: SpreadPolicyTerm) -> dict[str, Any]:
    return {
        "topologyKey": term.topology_key,
        "topologyKeyType": term.topology_key_type.value,
        "maxSkew": term.max_skew,
        "whenUnsatisfiable": term.when_unsatisfiable.value,
    }


def _options(spec: OcmSpec) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    affinity = [one for one in spec.spread_constraints if one.type is ConstraintType.AFFINITY and one.rows]
    if affinity:
        plain["affinityTerms"] = [
            AffinityTerm(
                topology_key=one.topology_key,
                topology_key_type=one.topology_key_type,
                topology_weights=one.rows,
            ).to_plain()
            for one in affinity
        ]
    weights = {one.score_coordinate.built_in: one.weight for one in spec.prioritizer_policy.configurations}
    is_exact = spec.prioritizer_policy.mode == "Exact"
    if is_exact or "Steady" in weights:
        plain["steadyWeight"] = 100 * weights.get("Steady", 0)
    if is_exact or "Balance" in weights:
        plain["balanceWeight"] = weights.get("Balance", 0)
    plain["cpuWeight"] = weights.get("ResourceAllocatableCPU", 0)
    plain["memoryWeight"] = weights.get("ResourceAllocatableMemory", 0)
    return plain
