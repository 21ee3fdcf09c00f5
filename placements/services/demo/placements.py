"""Placement and resource documents of the demos, from short expressions."""

from collections.abc import Mapping, Sequence

from fleetui.apimachinery.kinds import PLACEMENT_KIND, PLACEMENT_VERSIONS
from placements.services.demo.model import Document

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
    """Return a placement; without selectors it selects the namespace with its name."""
    spec = {
        "resourceSelectors": list(selectors) or [selector("Namespace", name)],
        "policy": policy,
    }
    spec |= {"strategy": strategy} if strategy else {}
    metadata: Document = {
        "name": name,
        **({"annotations": dict(annotations)} if annotations else {}),
    }
    return _object(PLACEMENT_VERSIONS[0], PLACEMENT_KIND, metadata, spec=spec)


def selector(
    kind: str,
    name: str = "",
    *,
    group: str = "",
    labels: Mapping[str, str] | None = None,
) -> Document:
    choice: Document = (
        {"name": name}
        if labels is None
        else {"labelSelector": {"matchLabels": dict(labels)}}
    )
    return {"group": group, "version": "v1", "kind": kind, **choice}


def rolling(unavailable: str, surge: str, seconds: int) -> Document:
    budgets = {
        "maxUnavailable": unavailable,
        "maxSurge": surge,
        "unavailablePeriodSeconds": seconds,
    }
    return {"type": "RollingUpdate", "rollingUpdate": budgets}


def pick_fixed(*names: str) -> Document:
    return {"placementType": "PickFixed", "clusterNames": list(names)}


def pick_all(
    *, required: Sequence[Document] = (), tolerations: Sequence[Document] = ()
) -> Document:
    return {"placementType": "PickAll", **_common(required, (), tolerations)}


def pick_n(
    number: int,
    *,
    required: Sequence[Document] = (),
    prefer: Sequence[Document] = (),
    spread: Sequence[Document] = (),
    tolerations: Sequence[Document] = (),
) -> Document:
    constraints = {"topologySpreadConstraints": list(spread)} if spread else {}
    common = _common(required, prefer, tolerations)
    return {
        "placementType": "PickN",
        "numberOfClusters": number,
        **constraints,
        **common,
    }


def _common(
    required: Sequence[Document],
    prefer: Sequence[Document],
    tolerations: Sequence[Document],
) -> Document:
    affinity: Document = {}
    if required:
        terms = {"clusterSelectorTerms": list(required)}
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = terms
    if prefer:
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = list(prefer)
    fields: Document = {"affinity": {"clusterAffinity": affinity}} if affinity else {}
    return (
        {**fields, "tolerations": [dict(one) for one in tolerations]}
        if tolerations
        else fields
    )


def spread(
    key: str, max_skew: int = 1, *, hard: bool = True, **more: object
) -> Document:
    """Return a topology spread constraint; `more` are fields of other semantics."""
    effect = "DoNotSchedule" if hard else "ScheduleAnyway"
    return {
        "topologyKey": key,
        "maxSkew": max_skew,
        "whenUnsatisfiable": effect,
        **more,
    }


def labelled(**labels: str) -> Document:
    return {"labelSelector": {"matchLabels": labels}}


def expressions(*requirements: tuple[str, ...]) -> Document:
    terms = [
        {"key": key, "operator": operator, **({"values": values} if values else {})}
        for key, operator, *values in requirements
    ]
    return {"labelSelector": {"matchExpressions": terms}}


def measured(name: str, operator: str, value: str) -> Document:
    return {
        "propertySelector": {
            "matchExpressions": [
                {"name": name, "operator": operator, "values": [value]}
            ]
        }
    }


def sorted_by(name: str, order: str) -> Document:
    return {"propertySorter": {"name": name, "sortOrder": order}}


def prefer(weight: int, *terms: Document) -> Document:
    return {
        "weight": weight,
        "preference": {key: part for term in terms for key, part in term.items()},
    }


def tolerate(key: str, value: str) -> Document:
    return {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}


def application(
    name: str, *, team: str = "platform", replicas: int = 2, port: int = 8080
) -> list[Document]:
    """Return a namespace with an application in it: its settings, its deployment, its service."""
    container = {
        "name": name,
        "image": f"registry.example.com/{name}:1.4.2",
        "envFrom": [{"configMapRef": {"name": f"{name}-settings"}}],
        "ports": [{"containerPort": port}],
        "resources": {
            "requests": {"cpu": "250m", "memory": "256Mi"},
            "limits": {"memory": "512Mi"},
        },
    }
    settings = {"LOG_LEVEL": "info", "LISTEN": f":{port}"}
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [container]},
    }
    deployed = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": template,
    }
    ports = [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": port}]
    return [
        _object(
            "v1", "Namespace", {"name": name, "labels": {"app": name, "team": team}}
        ),
        _object("v1", "ConfigMap", _inside(name, f"{name}-settings"), data=settings),
        _object("apps/v1", "Deployment", _inside(name, name), spec=deployed),
        _object(
            "v1",
            "Service",
            _inside(name, name),
            spec={"selector": {"app": name}, "ports": ports},
        ),
    ]


def _inside(namespace: str, name: str) -> Document:
    return {"name": name, "namespace": namespace, "labels": {"app": namespace}}


def _object(
    api_version: str, kind: str, metadata: Document, **fields: object
) -> Document:
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def cluster_role(name: str, *kinds: str) -> Document:
    rules = [
        {"apiGroups": [""], "resources": list(kinds), "verbs": ["get", "list", "watch"]}
    ]
    return _object(
        "rbac.authorization.k8s.io/v1", "ClusterRole", {"name": name}, rules=rules
    )


def custom_kind(kind: str, *, group: str, labels: dict[str, str]) -> Document:
    """Return a CustomResourceDefinition whose objects accept any field."""
    plural = f"{kind.lower()}s"
    schema = {
        "openAPIV3Schema": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
        }
    }
    spec = {
        "group": group,
        "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
        "scope": "Namespaced",
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
    }
    metadata: Document = {"name": f"{plural}.{group}", "labels": labels}
    return _object(
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", metadata, spec=spec
    )
