"""Translation of a placement to other semantics (`rules/other-schedulers.md#translation`).

What the other system has no field for is left out, with a warning.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from clusters.fleet import Fleet
from fleetui.apimachinery.errors import ManifestWarning, format_path
from fleetui.apimachinery.model import Semantics
from fleetui.apimachinery.words import joined
from placements.engine.scheduling.cycle import Cycle
from placements.manifests.binding import PlacedBinding
from placements.manifests.ocm import SPREAD_OPTIONS_ANNOTATION
from placements.manifests.ocm_options import (
    OcmOptions,
    parse_ocm_options,
    refuse_weighted_limits,
)
from placements.manifests.placement import (
    ClusterResourcePlacement,
    OcmPlacement,
    placement_warnings,
)
from placements.manifests.policy import SOFT_EFFECTS, PlacementPolicy, parse_policy

_REQUIRED = ("requiredDuringSchedulingIgnoredDuringExecution", "clusterSelectorTerms")
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_TERMS = f"policy.affinity.clusterAffinity.{'.'.join(_REQUIRED)}"
_WEIGHED = {
    "steadyWeight": "Steady",
    "balance": "Balance",
    "balanceWeight": "Balance",
    "cpuWeight": "ResourceAllocatableCPU",
    "memoryWeight": "ResourceAllocatableMemory",
    "addOns": "scores of add-ons",
    "clusterSets": "cluster sets",
    "domainWeights": "the weights of domains",
}
"""What the options that only `ocm` has are called in documents, where that is another name."""


@dataclass(frozen=True)
class PlacementInput:
    """A policy under its semantics, with its options; `places` maps its paths to those of the manifest."""

    name: str
    policy: PlacementPolicy
    semantics: Semantics
    options: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[ManifestWarning, ...] = ()
    places: Mapping[str, str] = field(default_factory=lambda: {"policy": "spec.policy"})

    def in_document(self, warning: ManifestWarning) -> ManifestWarning:
        for here, there in self.places.items():
            if warning.path.startswith(here):
                return replace(warning, path=there + warning.path.removeprefix(here))
        return warning

    def cycle(self, fleet: Fleet, bindings: tuple[PlacedBinding, ...]) -> Cycle:
        return Cycle(fleet, self.policy, bindings, self.semantics, self.options)


def placement_input(placement: ClusterResourcePlacement) -> PlacementInput:
    """Return the input of a placement. Raise InvalidManifest for options that its semantics refuse."""
    name, warnings = placement.full_name, placement_warnings(placement)
    if isinstance(placement, OcmPlacement):
        policy, places = placement.spec.policy, placement.places
        return PlacementInput(
            name, policy, Semantics.OCM, placement.spread_options, warnings, places
        )
    options: Mapping[str, Any] = placement.spread_options
    if placement.semantics is Semantics.OCM:
        options = _check_options(placement.spec.policy, options)
    return PlacementInput(
        name, placement.spec.policy, placement.semantics, options, warnings
    )


def _check_options(
    policy: PlacementPolicy, options: Mapping[str, Any]
) -> Mapping[str, Any]:
    path = format_path(("metadata", "annotations", SPREAD_OPTIONS_ANNOTATION))
    chosen = parse_ocm_options(dict(options), path=path)
    count = len(policy.topology_spread_constraints)
    places = [
        f"spec.policy.topologySpreadConstraints[{index}]" for index in range(count)
    ]
    refuse_weighted_limits(policy, chosen, places=places)
    return chosen.to_plain()


def translate(placement_input: PlacementInput, semantics: Semantics) -> PlacementInput:
    """Return the same input under other semantics, with a warning for everything without a counterpart.

    Raise InvalidManifest for `ocm` options that come with it and that its own semantics never read.
    """
    if semantics is placement_input.semantics:
        return placement_input
    plain = placement_input.policy.to_plain()
    lost = [
        _left_out(f"policy.topologySpreadConstraints[{index}].{name}", semantics)
        for index, constraint in enumerate(plain.get("topologySpreadConstraints", []))
        for name in (
            ("minDomains", "nodeAffinityPolicy", "nodeTaintsPolicy")
            if semantics is not Semantics.KUBERNETES
            else ()
        )
        if constraint.pop(name, None) is not None
    ]
    lost += _leave_out_ocm(plain, placement_input, semantics)
    # The target's own parser would refuse what only its own manifests must not have, such as large weights.
    policy = parse_policy(plain, semantics=Semantics.KUBERNETES)
    options = (
        _check_options(policy, placement_input.options)
        if semantics is Semantics.OCM
        else {}
    )

    path = f"policy.affinity.clusterAffinity.{_PREFERRED}"
    rows = [
        term["topologyKey"]
        for term in _row_terms(placement_input)
        for _ in term["topologyWeights"]
    ]
    places_of_rows = {
        f"{path}[{index}].preference": f"spec.spreadConstraints (Affinity to {key})"
        for index, key in enumerate(rows)
    }

    return PlacementInput(
        placement_input.name,
        policy,
        semantics,
        options,
        (*placement_input.warnings, *lost),
        {**places_of_rows, **placement_input.places},
    )


def _row_terms(placement_input: PlacementInput) -> list[Mapping[str, Any]]:
    """Return the affinity rows, by topology key, that can be translated: those on labels."""
    if placement_input.semantics is not Semantics.OCM:
        return []
    terms = placement_input.options.get("affinityTerms", ())
    return [term for term in terms if term.get("topologyKeyType") != "Claim"]


def _leave_out_ocm(
    plain: dict[str, Any], placement_input: PlacementInput, semantics: Semantics
) -> Iterator[ManifestWarning]:
    constraints = plain.get("topologySpreadConstraints", [])
    for index, constraint in enumerate(constraints):
        if (
            placement_input.semantics is Semantics.OCM
            and constraint["whenUnsatisfiable"] == "ScheduleAnyway"
        ):
            constraint["maxSkew"] = 1
        if constraint.pop("topologyKeyType", None) == "Claim":
            constraint["dropped"] = True
            yield _left_out(
                f"policy.topologySpreadConstraints[{index}]",
                semantics,
                "a claim as topology key",
            )
    if constraints:
        plain["topologySpreadConstraints"] = [
            constraint for constraint in constraints if "dropped" not in constraint
        ]

    affinity = plain.get("affinity", {}).get("clusterAffinity", {})
    for index, term in enumerate(affinity.get(_REQUIRED[0], {}).get(_REQUIRED[1], [])):
        for name, what in (("claim", "a claim selector"), ("cel", "a CEL selector")):
            if term.pop(f"{name}Selector", None) is not None:
                yield _left_out(f"{_TERMS}[{index}].{name}Selector", semantics, what)
    yield from _leave_out_of_tolerations(plain, semantics)
    yield from _prefer_rows(plain, placement_input, semantics)
    if placement_input.semantics is not Semantics.OCM:
        return
    # What weighs, explicitly or by default, and every other option that is not its default.
    empty: dict[str, Any] = {
        "balance": {},
        "domainWeights": {},
        "addOns": [],
        "clusterSets": [],
    }
    defaults = {**OcmOptions().to_plain(), **empty}
    options = {**defaults, **placement_input.options}
    lost = dict.fromkeys(
        _WEIGHED.get(name, name)
        for name, default in defaults.items()
        if options[name] != default
        or (name in ("steadyWeight", "balanceWeight") and default)
    )
    if lost:
        yield _left_out("spec", semantics, joined(list(lost)))


def _leave_out_of_tolerations(
    plain: dict[str, Any], semantics: Semantics
) -> Iterator[ManifestWarning]:
    """Drop tolerations of effects that only OCM has, and the ends of the others."""
    kept = []
    for index, toleration in enumerate(plain.get("tolerations", [])):
        path = f"policy.tolerations[{index}]"
        if toleration.get("effect") in SOFT_EFFECTS:
            yield _left_out(path, semantics, f"the effect {toleration['effect']}")
            continue
        if toleration.pop("tolerationSeconds", None) is not None:
            yield _left_out(path, semantics, "the end of a toleration")
        kept.append(toleration)
    if "tolerations" in plain:
        plain["tolerations"] = kept


def _prefer_rows(
    plain: dict[str, Any], placement_input: PlacementInput, semantics: Semantics
) -> Iterator[ManifestWarning]:
    """Turn affinity rows on labels into preferred terms of the same weights, which they replace."""
    if (
        placement_input.semantics is not Semantics.OCM
        or not placement_input.options.get("affinityTerms")
    ):
        return
    affinity, rows = (
        plain.get("affinity", {}).get("clusterAffinity", {}),
        _row_terms(placement_input),
    )
    if affinity.pop(_PREFERRED, None):
        path = f"policy.affinity.clusterAffinity.{_PREFERRED}"
        yield ManifestWarning(
            "left-out", path, "replaced by the affinity rows; ignored"
        )
    if len(rows) < len(placement_input.options["affinityTerms"]):
        yield _left_out("spec.spreadConstraints", semantics, "affinity to a claim")
    if rows and plain["placementType"] == "PickN":
        preferred = []
        for key, row in (
            (term["topologyKey"], row)
            for term in rows
            for row in term["topologyWeights"]
        ):
            values = row.get("values", [])
            requirement = {"key": key, "operator": row["operator"], "values": values}
            selector = {"labelSelector": {"matchExpressions": [requirement]}}
            preferred.append({"weight": row["weight"], "preference": selector})
        plain.setdefault("affinity", {}).setdefault("clusterAffinity", {})[
            _PREFERRED
        ] = preferred


def _left_out(
    path: str, semantics: Semantics, what: str = "this field"
) -> ManifestWarning:
    return ManifestWarning(
        "left-out", path, f"{semantics} semantics have no equivalent of {what}; ignored"
    )
