"""Placements of Open Cluster Management to policies and back.

See `rules/other-schedulers.md#placements-of-open-cluster-management`.

An entry of a list with nothing but a comment in it, as the proposal's examples have, is left out, with a
warning.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fleetui.apimachinery.errors import (
    FieldError,
    InvalidManifest,
    Keys,
    ManifestWarning,
    split_path,
)
from fleetui.apimachinery.model import Semantics, mapping_at, parse_manifest, to_plain
from placements.manifests.ocm import (
    ConstraintType,
    OcmDocument,
    OcmSpec,
    ScoreType,
    SpreadPolicyTerm,
    SpreadTerm,
)
from placements.manifests.ocm_options import (
    OcmOptions,
    parse_ocm_options,
    refuse_weighted_limits,
)
from placements.manifests.policy import (
    PlacementPolicy,
    TopologySpreadConstraint,
    WhenUnsatisfiable,
    parse_policy,
)

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS = f"policy.affinity.clusterAffinity.{_REQUIRED}.clusterSelectorTerms"
_CONSTRAINTS = "policy.topologySpreadConstraints"


@dataclass(frozen=True, slots=True)
class ParsedOcmPlacement:
    """A parsed Placement: a policy and options of `ocm` semantics.

    `places` maps paths of the policy, which is arranged differently, to paths of the manifest.
    """

    name: str
    policy: PlacementPolicy
    options: OcmOptions
    warnings: tuple[ManifestWarning, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    spec: OcmSpec = field(default_factory=OcmSpec)


_SET_BY_MANIFEST = (
    "affinityTerms",
    "addOns",
    "balanceWeight",
    "clusterSets",
    "cpuWeight",
    "memoryWeight",
)


def parse_ocm_placement(
    document: object,
    *,
    options: object = None,
    path: str = "",
    options_path: str = "ocm",
) -> ParsedOcmPlacement:
    """Parse a Placement into a policy and options; `options` may accompany it. Raise InvalidManifest."""
    spec_path = f"{path}.spec" if path else "spec"
    parsed = parse_manifest(OcmDocument, document, semantics=Semantics.OCM, path=path)
    plain_options = parse_ocm_options(options, path=options_path).to_plain()
    # Options that accompany a document set only what it has no fields for.
    twice = [
        FieldError(
            f"{options_path}.{name}",
            "conflict",
            "Forbidden: set by the manifest itself",
            "no such field",
        )
        for name in _SET_BY_MANIFEST
        if name in mapping_at(options)
    ]
    if twice:
        raise InvalidManifest(twice)

    constraints = _constraints(parsed.spec)
    spec = parsed.spec
    raw_policy = _policy(spec, list(constraints.values()))
    policy = parse_policy(raw_policy, semantics=Semantics.OCM, path=spec_path)
    plain = _weights(spec)
    plain["clusterSets"] = list(spec.cluster_sets)
    plain["affinityTerms"] = [
        {
            "topologyKey": constraint.topology_key,
            "topologyKeyType": constraint.topology_key_type.value,
            "topologyWeights": [row.to_plain() for row in constraint.rows],
        }
        for constraint in spec.spread_constraints
        if constraint.type is ConstraintType.AFFINITY and constraint.rows
    ]
    chosen = parse_ocm_options({**plain_options, **plain})
    refuse_weighted_limits(
        policy, chosen, places=[f"{spec_path}.{place}" for place in constraints]
    )
    return ParsedOcmPlacement(
        parsed.metadata.name,
        policy,
        chosen,
        tuple(_warnings(spec, spec_path)),
        _places(spec, constraints, spec_path),
        spec,
    )


def _constraints(spec: OcmSpec) -> dict[str, dict[str, Any]]:
    """Return the constraints of a policy by their place in the spec, in the order in which they count."""
    constraints: dict[str, dict[str, Any]] = {}
    if spec.number_of_clusters is None:
        return constraints  # all clusters are selected: there is nothing to spread
    terms = enumerate(spec.spread_constraints)
    even = [
        (index, spread_term)
        for index, spread_term in terms
        if spread_term.type is ConstraintType.EVEN
    ]
    for index, spread_term in sorted(even, key=lambda term: term[1].order or 0):
        when = "ScheduleAnyway" if spread_term.max_skew is None else "DoNotSchedule"
        constraints[f"spreadConstraints[{index}]"] = _constraint(spread_term, when)
    if spec.spread_policy is not None:
        for index, term in enumerate(spec.spread_policy.spread_constraints):
            place = f"spreadPolicy.spreadConstraints[{index}]"
            constraints[place] = _constraint(term, term.when_unsatisfiable.value)
    return constraints


def _weights(spec: OcmSpec) -> dict[str, Any]:
    """Return the weights of the prioritizers as options.

    Of two weights of a built-in prioritizer the last counts. A hub takes one with an `addOn` beside it for
    another prioritizer, which counts as well, and so does each weight of an add-on.
    """
    is_exact = spec.prioritizer_policy.mode == "Exact"
    weights = {} if is_exact else {"Steady": 1, "Balance": 1}
    added: Counter[str] = Counter()
    add_ons = []
    configured = {
        configuration.score_coordinate.built_in
        for configuration in spec.prioritizer_policy.configurations
    }
    for configuration in spec.prioritizer_policy.configurations:
        coordinate = configuration.score_coordinate
        if coordinate.type is ScoreType.ADD_ON:
            add_ons.append(
                {**to_plain(coordinate.add_on), "weight": configuration.weight}
            )
        elif coordinate.add_on is None:
            weights[coordinate.built_in] = configuration.weight
        else:
            added[coordinate.built_in] += configuration.weight
    added.update(weights)
    plain: dict[str, Any] = {
        "cpuWeight": added["ResourceAllocatableCPU"],
        "memoryWeight": added["ResourceAllocatableMemory"],
        "addOns": add_ons,
    }
    # Options that accompany a document may set the weights that it leaves out.
    if is_exact or "Steady" in configured:
        plain["steadyWeight"] = 100 * added["Steady"]
    if is_exact or "Balance" in configured:
        plain["balanceWeight"] = added["Balance"]
    return plain


def _places(spec: OcmSpec, constraints: Iterable[str], path: str) -> dict[str, str]:
    spreads = (
        (f"{_CONSTRAINTS}[{index}]", place) for index, place in enumerate(constraints)
    )
    indices = [
        index
        for index, predicate in enumerate(spec.predicates)
        if predicate is not None
    ]
    predicates = (
        (f"{_TERMS}[{index}]", f"predicates[{place}].requiredClusterSelector")
        for index, place in enumerate(indices)
    )
    return {here: f"{path}.{there}" for here, there in (*spreads, *predicates)}


def _warnings(spec: OcmSpec, path: str) -> Iterator[ManifestWarning]:
    empty = [
        (f"predicates[{at}]", "requires")
        for at, predicate in enumerate(spec.predicates)
        if predicate is None
    ]
    empty += [
        (f"spreadConstraints[{at}].topologyWeights[{row}]", "prefers")
        for at, term in enumerate(spec.spread_constraints)
        for row, weight in enumerate(term.topology_weights)
        if weight is None
    ]
    yield from (
        ManifestWarning(
            "empty-entry", f"{path}.{place}", f"empty entry, {verb} nothing: ignored"
        )
        for place, verb in empty
    )
    yield from _hints(spec, path)
    if spec.decision_strategy is not None:
        yield ManifestWarning(
            "not-acted-on",
            f"{path}.decisionStrategy",
            "ignored: decision groups do not change which clusters are selected",
        )


def _hints(spec: OcmSpec, path: str) -> Iterator[ManifestWarning]:
    """Yield what a hub accepts and does otherwise than one may expect."""
    names: set[str] = set()
    for index, configuration in enumerate(spec.prioritizer_policy.configurations):
        place = f"{path}.prioritizerPolicy.configurations[{index}]"
        coordinate = configuration.score_coordinate
        if coordinate.type is ScoreType.ADD_ON:
            continue
        if coordinate.add_on is not None:
            message = "counted in addition to the default weight, since addOn is set"
            yield ManifestWarning("counted-twice", place, message)
        elif coordinate.built_in in names:
            yield ManifestWarning(
                "counted-twice",
                place,
                f"{coordinate.built_in} has another weight above: the last one counts",
            )
        else:
            names.add(coordinate.built_in)
    for index, predicate in enumerate(spec.predicates):
        selector = predicate and predicate.required_cluster_selector.cel_selector
        expressions = selector.cel_expressions if selector else ()
        if any("scores(" in text for text in expressions):
            place = f"{path}.predicates[{index}].requiredClusterSelector.celSelector"
            yield ManifestWarning(
                "expired-scores", place, "scores() reads expired scores as well"
            )


def _policy(spec: OcmSpec, constraints: list[dict[str, Any]]) -> dict[str, Any]:
    plain: dict[str, Any] = {"placementType": "PickAll"}
    if spec.number_of_clusters is not None:
        plain = {"placementType": "PickN", "numberOfClusters": spec.number_of_clusters}
        if constraints:
            plain["topologySpreadConstraints"] = constraints
    selectors = [
        predicate.required_cluster_selector.to_plain()
        for predicate in spec.predicates
        if predicate is not None
    ]
    if selectors:
        plain["affinity"] = {
            "clusterAffinity": {_REQUIRED: {"clusterSelectorTerms": selectors}}
        }
    tolerations: list[dict[str, Any]] = []
    for ocm_toleration in spec.tolerations:
        effect = (
            "NoSchedule"
            if ocm_toleration.effect == "NoSelect"
            else ocm_toleration.effect
        )
        toleration: dict[str, Any] = {
            "key": ocm_toleration.key,
            "operator": ocm_toleration.operator.value,
            "value": ocm_toleration.value,
            "effect": effect,
        }
        if ocm_toleration.toleration_seconds is not None:
            toleration["tolerationSeconds"] = ocm_toleration.toleration_seconds
        if toleration not in tolerations:
            tolerations.append(toleration)
    return {**plain, "tolerations": tolerations}


def _constraint(
    term: SpreadTerm | SpreadPolicyTerm, when_unsatisfiable: str
) -> dict[str, Any]:
    return {
        "topologyKey": term.topology_key,
        "topologyKeyType": term.topology_key_type.value,
        "maxSkew": term.max_skew or 1,
        "whenUnsatisfiable": when_unsatisfiable,
    }


Document = dict[str, Any]
Entry = TypeVar("Entry")


def with_policy(document: Document, policy: PlacementPolicy) -> Document:
    """Return the manifest with the differences between its own policy and this one: one step of advice.

    One constraint or predicate may have been removed, or some may differ; tolerations may have been added.
    Larger differences are not written, so the caller has to parse the result and compare. Raise
    InvalidManifest.
    """
    parsed, changed = parse_ocm_placement(document), deepcopy(document)
    today, spec = parsed.policy, changed["spec"]
    if policy.number_of_clusters != today.number_of_clusters:
        spec["numberOfClusters"] = policy.number_of_clusters
    for index, limit in _differing(
        today.topology_spread_constraints, policy.topology_spread_constraints
    ):
        place = split_path(parsed.places[f"{_CONSTRAINTS}[{index}]"])
        _set_limit(changed, place, limit)
    for index, term in _differing(today.required_terms, policy.required_terms):
        place = split_path(parsed.places[f"{_TERMS}[{index}]"])
        if term is None:
            _remove(changed, place[:-1])
            continue
        selector, plain = _value_at(changed, place), term.to_plain()
        for name in ("labelSelector", "claimSelector"):
            if name in plain:
                selector[name] = plain[name]
            else:
                selector.pop(name, None)
    added = policy.tolerations[len(today.tolerations) :]
    if added:
        spec["tolerations"] = [
            *(spec.get("tolerations") or []),
            *(toleration.to_plain() for toleration in added),
        ]
    return changed


def _differing(
    before: Sequence[Entry], after: Sequence[Entry]
) -> Iterator[tuple[int, Entry | None]]:
    """Yield the index of each entry that differs, with the new entry; None for one that was removed."""
    pairs = enumerate(zip(before, after, strict=False))
    differing = [(index, new) for index, (old, new) in pairs if old != new]
    if len(after) < len(before):
        yield (differing[0][0] if differing else len(after)), None
    else:
        yield from differing


def _value_at(document: Document, place: Keys) -> Any:
    node: Any = document
    for key in place:
        node = node[key]
    return node


def _remove(document: Document, place: Keys) -> None:
    """Remove an entry, and what contains it if nothing else is left in there; the spec stays."""
    holder = _value_at(document, place[:-1])
    del holder[place[-1]]
    if not holder and len(place) > 2:
        _remove(document, place[:-1])


def _set_limit(
    document: Document, place: Keys, limit: TopologySpreadConstraint | None
) -> None:
    """Write the limit of a constraint; without one, remove the constraint."""
    if limit is None:
        _remove(document, place)
        return
    entry = _value_at(document, place)
    if "type" not in entry:  # only the merged API has `whenUnsatisfiable`
        entry.update(
            maxSkew=limit.max_skew, whenUnsatisfiable=limit.when_unsatisfiable.value
        )
    elif limit.when_unsatisfiable is WhenUnsatisfiable.SCHEDULE_ANYWAY:
        entry.pop("maxSkew", None)
    else:
        entry["maxSkew"] = limit.max_skew
