"""Building blocks of a demo: clusters, placements and resources, from short expressions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from random import Random
from typing import Any, TypeAlias

from fleetui.apimachinery.kinds import (
    MEMBER_KIND,
    MEMBER_VERSIONS,
    PLACEMENT_KIND,
    PLACEMENT_VERSIONS,
)
from fleetui.apimachinery.model import omit_empty

Document: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """One change of one MemberCluster or ClusterResourcePlacement; `before` None: it came at that moment."""

    at: datetime
    who: str
    why: str
    before: Document | None
    after: Document

    @property
    def kind(self) -> str:
        return str(self.after["kind"])

    @property
    def name(self) -> str:
        return name_of(self.after)


@dataclass(frozen=True, slots=True)
class Demo:
    """A fleet, what its hub holds, and placements, as they are at the end of `history`.

    To load one with its past, save `at_first` and schedule every placement; then, for each step, save its
    `after` and schedule every placement again. To load it without a past, save the demo itself.
    """

    title: str
    clusters: tuple[Document, ...]
    resources: tuple[Document, ...]
    placements: tuple[Document, ...]
    history: tuple[HistoryStep, ...] = ()

    @property
    def at_first(self) -> "Demo":
        return replace(
            self,
            clusters=_undone(self.clusters, self.history),
            placements=_undone(self.placements, self.history),
            history=(),
        )


def name_of(document: Document) -> str:
    return str(document["metadata"]["name"])


def _undone(
    documents: Iterable[Document], history: tuple[HistoryStep, ...]
) -> tuple[Document, ...]:
    first = {(step.kind, step.name): step.before for step in reversed(history)}
    before = (
        first.get((document["kind"], name_of(document)), document)
        for document in documents
    )
    return tuple(document for document in before if document is not None)


SIMULATED_ANNOTATION = "fleetui.io/simulated"
NODES = "kubernetes-fleet.io/node-count"
CPU_COST, MEMORY_COST = "example.com/cost-per-cpu", "example.com/cost-per-gib"
CORDON = ("cordon-key", "cordon-value")
_JOINED_AGO, _SICK_AGO, _SILENT_AGO = (
    timedelta(days=40),
    timedelta(minutes=25),
    timedelta(hours=3),
)
_HEARTBEAT_SECONDS = 15


class DemoFault(StrEnum):
    """Fault of a simulated cluster: no heartbeat, or unhealthy."""

    SILENT = "silent"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True, slots=True)
class Size:
    """How large a cluster is and how busy; every node has `cpu` cores and 4 GiB for each of them."""

    nodes: int = 6
    cpu: int = 8
    busy_percent: int = 40
    millicents_per_cpu: int = 4000

    def status(self, now: datetime, fault: DemoFault | None) -> Document:
        silent_for = _SILENT_AGO if fault is DemoFault.SILENT else timedelta()
        reported = _timestamp(now - silent_for)
        milli = self.nodes * self.cpu * 1000
        shares = {
            "capacity": 100,
            "allocatable": 95,
            "available": 95 - self.busy_percent,
        }
        is_healthy = fault is not DemoFault.UNHEALTHY
        joined = _timestamp(now - _JOINED_AGO)
        since = joined if is_healthy else _timestamp(now - _SICK_AGO)
        properties = {
            NODES: str(self.nodes),
            CPU_COST: f"{self.millicents_per_cpu / 100_000:.5f}",
            MEMORY_COST: f"{self.millicents_per_cpu / 800_000:.5f}",
        }
        health = {
            "status": "True" if is_healthy else "False",
            "reason": "Healthy" if is_healthy else "NotReady",
        }
        conditions = [
            {
                "type": "Joined",
                "status": "True",
                "reason": "Joined",
                "lastTransitionTime": joined,
            },
            {"type": "Healthy", **health, "lastTransitionTime": since},
        ]
        usage = {
            name: {
                "cpu": f"{milli * share // 100}m",
                "memory": f"{milli * share * 4 // 100_000}Gi",
            }
            for name, share in shares.items()
        }
        return {
            "agentStatus": [
                {
                    "type": "MemberAgent",
                    "conditions": conditions,
                    "lastReceivedHeartbeat": reported,
                }
            ],
            "properties": {
                name: {"value": value, "observationTime": reported}
                for name, value in properties.items()
            },
            "resourceUsage": {**usage, "observationTime": reported},
        }


def member(
    name: str,
    labels: Mapping[str, str],
    *,
    now: datetime,
    size: Size | None = None,
    taints: Iterable[tuple[str, str]] = (),
    fault: DemoFault | None = None,
) -> Document:
    """Return a MemberCluster that has reported lately; taints are keys and values."""
    plain_taints = [
        {"key": key, "value": value, "effect": "NoSchedule"} for key, value in taints
    ]
    identity = {
        "kind": "ServiceAccount",
        "name": f"fleet-member-{name}",
        "namespace": "fleet-system",
        "apiGroup": "",
    }
    return {
        "apiVersion": MEMBER_VERSIONS[0],
        "kind": MEMBER_KIND,
        "metadata": {
            "name": name,
            "labels": dict(labels),
            **omit_empty(annotations=fault and {SIMULATED_ANNOTATION: fault.value}),
        },
        "spec": {
            "identity": identity,
            "heartbeatPeriodSeconds": _HEARTBEAT_SECONDS,
            **omit_empty(taints=plain_taints),
        },
        "status": (size or Size()).status(now, fault),
    }


def _timestamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_ADJECTIVES = """
amber azure bold brave bright brisk calm clever copper coral cosmic crimson daring dusky eager early fair
fancy fleet fond frosty gentle glad golden grand happy hardy hazel honest humble icy indigo ivory jade jolly
keen kind light lively loyal lucky lunar mellow merry mighty misty modest nimble noble olive pale patient
plucky polar proud quick quiet rapid ruby rustic sandy scarlet shy silent silver sleek smart solar spry
steady stormy sunny swift tidy vivid warm wild wise witty young
"""
_ANIMALS = """
badger bat bear beaver bison camel cat cheetah condor crane crow deer dolphin dove eagle elk falcon ferret
finch fish fox gazelle gecko goat goose hare hawk heron hippo horse ibex ibis jackal jaguar kestrel kiwi
koala lark lemur leopard lion lizard llama lynx marten mole moose moth newt ocelot orca oriole otter owl
panda parrot penguin plover puffin puma quail rabbit raven robin salmon seal shark
"""


def unique_names(count: int, rng: Random) -> list[str]:
    plain = sorted(
        {
            adjective + animal
            for adjective in _ADJECTIVES.split()
            for animal in _ANIMALS.split()
        }
    )
    rng.shuffle(plain)
    rounds = range(1, 1 + -(-count // len(plain)))
    names = [
        name if number == 1 else f"{name}-{number}"
        for number in rounds
        for name in plain
    ]
    return names[:count]


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
        **omit_empty(strategy=strategy),
    }
    metadata = omit_empty(name=name, annotations=dict(annotations or {}))
    return _object(PLACEMENT_VERSIONS[0], PLACEMENT_KIND, metadata, spec=spec)


def selector(
    kind: str,
    name: str = "",
    *,
    group: str = "",
    labels: Mapping[str, str] | None = None,
) -> Document:
    choice: Document = {"name": name}
    if labels is not None:
        choice = {"labelSelector": {"matchLabels": dict(labels)}}
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
    return {
        "placementType": "PickN",
        "numberOfClusters": number,
        **omit_empty(topologySpreadConstraints=list(spread)),
        **_common(required, prefer, tolerations),
    }


def _common(
    required: Sequence[Document],
    prefer: Sequence[Document],
    tolerations: Sequence[Document],
) -> Document:
    affinity = omit_empty(
        requiredDuringSchedulingIgnoredDuringExecution=omit_empty(
            clusterSelectorTerms=list(required)
        ),
        preferredDuringSchedulingIgnoredDuringExecution=list(prefer),
    )
    return omit_empty(
        affinity=omit_empty(clusterAffinity=affinity),
        tolerations=[dict(toleration) for toleration in tolerations],
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
        omit_empty(key=key, operator=operator, values=values)
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
