"""ClusterResourcePlacement documents, written short.

placement("web", pick_n(5, prefer=[prefer(20, labelled(system="critical"))], spread=[spread("region")]))
"""

from collections.abc import Mapping, Sequence

from placements.demo.demo import Document
from placements.scheduling.door.kinds import PLACEMENT_KIND, PLACEMENT_VERSIONS

ANYTHING: Document = {"operator": "Exists"}
"""The toleration of every taint."""


def placement(
    name: str,
    policy: Document,
    *,
    selectors: Sequence[Document] = (),
    annotations: Mapping[str, str] | None = None,
    strategy: Document | None = None,
) -> Document:
    """Write a placement: of the namespace of its own name, unless selectors say what else."""
    return {
        "apiVersion": PLACEMENT_VERSIONS[0],
        "kind": PLACEMENT_KIND,
        "metadata": {"name": name, **({"annotations": dict(annotations)} if annotations else {})},
        "spec": {
            "resourceSelectors": list(selectors) or [selector("Namespace", name)],
            "policy": policy,
            **({"strategy": strategy} if strategy else {}),
        },
    }


def selector(
    kind: str, name: str = "", *, group: str = "", labels: Mapping[str, str] | None = None
) -> Document:
    """Write a resource selector: one object by name, or some by their labels."""
    chosen: Document = {"name": name} if labels is None else {"labelSelector": {"matchLabels": dict(labels)}}
    return {"group": group, "version": "v1", "kind": kind, **chosen}


def rolling(unavailable: str, surge: str, seconds: int) -> Document:
    """Write a rolling update with its budgets."""
    budgets = {"maxUnavailable": unavailable, "maxSurge": surge, "unavailablePeriodSeconds": seconds}
    return {"type": "RollingUpdate", "rollingUpdate": budgets}


def pick_fixed(*names: str) -> Document:
    """Write a PickFixed policy."""
    return {"placementType": "PickFixed", "clusterNames": list(names)}


def pick_all(*, required: Sequence[Document] = (), tolerations: Sequence[Document] = ()) -> Document:
    """Write a PickAll policy."""
    return {"placementType": "PickAll", **_common(required, (), tolerations)}


def pick_n(
    number: int,
    *,
    required: Sequence[Document] = (),
    prefer: Sequence[Document] = (),
    spread: Sequence[Document] = (),
    tolerations: Sequence[Document] = (),
) -> Document:
    """Write a PickN policy."""
    constraints = {"topologySpreadConstraints": list(spread)} if spread else {}
    common = _common(required, prefer, tolerations)
    return {"placementType": "PickN", "numberOfClusters": number, **constraints, **common}


def _common(
    required: Sequence[Document], prefer: Sequence[Document], tolerations: Sequence[Document]
) -> Document:
    affinity: Document = {}
    if required:
        terms = {"clusterSelectorTerms": list(required)}
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = terms
    if prefer:
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = list(prefer)
    fields: Document = {"affinity": {"clusterAffinity": affinity}} if affinity else {}
    return {**fields, "tolerations": [dict(one) for one in tolerations]} if tolerations else fields


def spread(key: str, max_skew: int = 1, *, hard: bool = True, **more: object) -> Document:
    """Write a topology spread constraint; `more` are fields of other semantics."""
    effect = "DoNotSchedule" if hard else "ScheduleAnyway"
    return {"topologyKey": key, "maxSkew": max_skew, "whenUnsatisfiable": effect, **more}


def labelled(**labels: str) -> Document:
    """Write a term that matches clusters with these labels."""
    return {"labelSelector": {"matchLabels": labels}}


def expressions(*requirements: tuple[str, ...]) -> Document:
    """Write a term with requirements on labels: key, operator, values."""
    found = [_expression(*one) for one in requirements]
    return {"labelSelector": {"matchExpressions": found}}


def _expression(key: str, operator: str, *values: str) -> Document:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def measured(name: str, operator: str, value: str) -> Document:
    """Write a term with one requirement on a property."""
    return {
        "propertySelector": {"matchExpressions": [{"name": name, "operator": operator, "values": [value]}]}
    }


def sorted_by(name: str, order: str) -> Document:
    """Write a preference by where a property lies between smallest and largest."""
    return {"propertySorter": {"name": name, "sortOrder": order}}


def prefer(weight: int, *terms: Document) -> Document:
    """Write a preferred term of the parts given."""
    return {"weight": weight, "preference": {key: part for term in terms for key, part in term.items()}}


def tolerate(key: str, value: str) -> Document:
    """Write the toleration of one taint."""
    return {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}
