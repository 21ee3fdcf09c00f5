"""What a document wishes for, whichever system it was written for, and the same under other semantics.

How a wish is carried over is written in `spec/other-schedulers.md` 6.4: what the other system has no word
for is left out, with a warning.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from placements.scheduling.bindings import Binding
from placements.scheduling.cycle import Cycle
from placements.scheduling.door.ocm_options import OcmOptions, parse_ocm_options, refuse_weighted_limits
from placements.scheduling.faults import Caveat, format_path
from placements.scheduling.fleet import Fleet
from placements.scheduling.policy import PlacementPolicy, Semantics, parse_policy
from placements.scheduling.spec import (
    SPREAD_OPTIONS_ANNOTATION,
    ClusterResourcePlacement,
    OcmPlacement,
    placement_caveats,
)

_REQUIRED = ("requiredDuringSchedulingIgnoredDuringExecution", "clusterSelectorTerms")
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_TERMS = f"policy.affinity.clusterAffinity.{'.'.join(_REQUIRED)}"
_WEIGHED = {
    "steadyWeight": "Steady",
    "balance": "Balance",
    "balanceWeight": "Balance",
    "cpuWeight": "ResourceAllocatableCPU",
    "memoryWeight": "ResourceAllocatableMemory",
    "domainWeights": "the weights of domains",
}
"""What the options that only `ocm` has are called in documents, where that is another name."""
_WEIGHS_BY_DEFAULT = ("steadyWeight", "balanceWeight")
_KUBERNETES_FIELDS = ("minDomains", "nodeAffinityPolicy", "nodeTaintsPolicy")


@dataclass(frozen=True)
class Wish:
    """A placement to simulate: its policy and options under the semantics of its document.

    `places` give the document's paths for parts of the policy, longest first.
    """

    name: str
    policy: PlacementPolicy
    semantics: Semantics
    options: Mapping[str, Any] = field(default_factory=dict)
    caveats: tuple[Caveat, ...] = ()
    places: Mapping[str, str] = field(default_factory=lambda: {"policy": "spec.policy"})

    def in_document(self, caveat: Caveat) -> Caveat:
        """Give a caveat about the policy with its path in the document."""
        for here, there in self.places.items():
            if caveat.path.startswith(here):
                return replace(caveat, path=there + caveat.path.removeprefix(here))
        return caveat

    def cycle(self, fleet: Fleet, bindings: tuple[Binding, ...]) -> Cycle:
        """Give the inputs of one cycle for this wish."""
        return Cycle(fleet, self.policy, bindings, self.semantics, self.options)


def wish_of_placement(placement: ClusterResourcePlacement) -> Wish:
    """Read the wish of a placement. Raises Faults for options that its semantics refuse."""
    name, caveats = placement.metadata.name, placement_caveats(placement)
    if isinstance(placement, OcmPlacement):
        policy, places = placement.spec.policy, placement.places
        return Wish(name, policy, Semantics.OCM, placement.spread_options, caveats, places)
    options: Mapping[str, Any] = placement.spread_options
    if placement.semantics is Semantics.OCM:
        options = _checked(placement.spec.policy, options)
    return Wish(name, placement.spec.policy, placement.semantics, options, caveats)


def _checked(policy: PlacementPolicy, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read the options of an annotation. Raises Faults."""
    path = format_path(("metadata", "annotations", SPREAD_OPTIONS_ANNOTATION))
    chosen = parse_ocm_options(dict(options), path=path)
    places = (f"spec.policy.topologySpreadConstraints[{index}]" for index in range(_spreads(policy)))
    refuse_weighted_limits(policy, chosen, places=list(places))
    return chosen.to_plain()


def _spreads(policy: PlacementPolicy) -> int:
    return len(policy.topology_spread_constraints)


def carried_over(wish: Wish, semantics: Semantics) -> Wish:
    """Give the same wish under other semantics, with a warning for everything that has no counterpart.

    Raises Faults for `ocm` options that the wish brings along and its own semantics never read.
    """
    if semantics is wish.semantics:
        return wish
    plain = wish.policy.canonical()
    lost = [*_leave_out_kubernetes(plain, semantics), *_leave_out_ocm(plain, wish, semantics)]
    # The door of the target would refuse what only its own documents must not say, such as large weights.
    policy = parse_policy(plain, semantics=Semantics.KUBERNETES)
    options: Mapping[str, Any] = {}
    if semantics is Semantics.OCM:
        options = _checked(policy, wish.options)
    places = {**_places_of_rows(wish), **wish.places}
    return Wish(wish.name, policy, semantics, options, (*wish.caveats, *lost), places)


def _places_of_rows(wish: Wish) -> dict[str, str]:
    """Give the places of affinity rows for the preferred terms that are made of them."""
    path = f"policy.affinity.clusterAffinity.{_PREFERRED}"
    rows = [term["topologyKey"] for term in _row_terms(wish) for _ in term["topologyWeights"]]
    return {
        f"{path}[{index}].preference": f"spec.spreadConstraints (Affinity to {key})"
        for index, key in enumerate(rows)
    }


def _row_terms(wish: Wish) -> list[Mapping[str, Any]]:
    """Give the affinity rows, by topology key, that can be carried over: those on labels."""
    terms = wish.options.get("affinityTerms", ()) if wish.semantics is Semantics.OCM else ()
    return [one for one in terms if one.get("topologyKeyType") != "Claim"]


def _has_rows(wish: Wish) -> bool:
    return wish.semantics is Semantics.OCM and bool(wish.options.get("affinityTerms"))


def _leave_out_kubernetes(plain: dict[str, Any], semantics: Semantics) -> Iterator[Caveat]:
    if semantics is Semantics.KUBERNETES:
        return
    for index, constraint in enumerate(plain.get("topologySpreadConstraints", [])):
        for name in _KUBERNETES_FIELDS:
            if constraint.pop(name, None) is not None:
                yield _left_out(f"policy.topologySpreadConstraints[{index}].{name}", semantics)


def _leave_out_ocm(plain: dict[str, Any], wish: Wish, semantics: Semantics) -> Iterator[Caveat]:
    constraints = plain.get("topologySpreadConstraints", [])
    for index, constraint in enumerate(constraints):
        if wish.semantics is Semantics.OCM and constraint["whenUnsatisfiable"] == "ScheduleAnyway":
            constraint["maxSkew"] = 1
        if constraint.pop("topologyKeyType", None) == "Claim":
            constraint["dropped"] = True
            yield _left_out(
                f"policy.topologySpreadConstraints[{index}]", semantics, "a claim as topology key"
            )
    if constraints:
        plain["topologySpreadConstraints"] = [one for one in constraints if "dropped" not in one]
    yield from _leave_out_claims(plain, semantics)
    yield from _prefer_rows(plain, wish, semantics)
    if lost := list(dict.fromkeys(_options_left_out(wish))):
        *most, last = lost
        yield _left_out("spec", semantics, f"{', '.join(most)} and {last}" if most else last)


def _options_left_out(wish: Wish) -> Iterator[str]:
    """Name what weighs, asked to or by default, and every other option that is not its default."""
    if wish.semantics is not Semantics.OCM:
        return
    defaults = {**OcmOptions().to_plain(), "balance": {}, "domainWeights": {}}
    for name, default in defaults.items():
        value = wish.options.get(name, default)
        if value != default or (name in _WEIGHS_BY_DEFAULT and value):
            yield _WEIGHED.get(name, name)


def _leave_out_claims(plain: dict[str, Any], semantics: Semantics) -> Iterator[Caveat]:
    affinity = plain.get("affinity", {}).get("clusterAffinity", {})
    for index, term in enumerate(affinity.get(_REQUIRED[0], {}).get(_REQUIRED[1], [])):
        if term.pop("claimSelector", None) is not None:
            yield _left_out(f"{_TERMS}[{index}].claimSelector", semantics, "a claim selector")


def _prefer_rows(plain: dict[str, Any], wish: Wish, semantics: Semantics) -> Iterator[Caveat]:
    """Turn affinity rows on labels into preferred terms of the same weights, in whose place they stood."""
    if not _has_rows(wish):
        return
    affinity, rows = plain.get("affinity", {}).get("clusterAffinity", {}), _row_terms(wish)
    if affinity.pop(_PREFERRED, None):
        path = f"policy.affinity.clusterAffinity.{_PREFERRED}"
        yield Caveat("left-out", path, "the affinity rows stand in their place; left out")
    if len(rows) < len(wish.options["affinityTerms"]):
        yield _left_out("spec.spreadConstraints", semantics, "affinity to a claim")
    if rows and plain["placementType"] == "PickN":
        preferred = [_preferred(term["topologyKey"], row) for term in rows for row in term["topologyWeights"]]
        plain.setdefault("affinity", {}).setdefault("clusterAffinity", {})[_PREFERRED] = preferred


def _preferred(key: str, row: Mapping[str, Any]) -> dict[str, Any]:
    requirement = {"key": key, "operator": row["operator"], "values": row.get("values", [])}
    selector = {"labelSelector": {"matchExpressions": [requirement]}}
    return {"weight": row["weight"], "preference": selector}


def _left_out(path: str, semantics: Semantics, what: str = "this field") -> Caveat:
    return Caveat("left-out", path, f"{semantics} semantics have no word for {what}; left out")
