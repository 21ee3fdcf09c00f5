"""Clusters and placements of the large demo fleets; the same every time, with typical faults."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from random import Random
from typing import Any

from placements.manifests.ocm import SPREAD_OPTIONS_ANNOTATION
from placements.manifests.placement import SEMANTICS_ANNOTATION
from placements.services.demo.model import (
    ANYTHING,
    CORDON,
    CPU_COST,
    NODES,
    DemoFault,
    Document,
    Size,
    expressions,
    labelled,
    measured,
    member,
    name_of,
    pick_all,
    pick_fixed,
    pick_n,
    placement,
    prefer,
    rolling,
    selector,
    sorted_by,
    spread,
    tolerate,
    unique_names,
)

SEED = 20260820
GPU, DEDICATED = ("gpu", "true"), ("dedicated", "payments")
NEW_REGION = "me-south-1"
"""A region that opened lately: nothing there is in production yet."""

_LAB = (("r0", "e0"), ("r2", "e0"), ("r2", "e1"), ("r0", "e1"), ("r0", "e1"))
"""Rack and power feed of the clusters of the lab, in the order of their names."""


@dataclass(frozen=True, slots=True)
class Blemish:
    """What sets a cluster apart from the ordinary ones; each has at most one."""

    per_thousand: int
    fault: DemoFault | None = None
    taints: tuple[tuple[str, str], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    missing_labels: tuple[str, ...] = ()
    has_gpu: bool = False


_BLEMISHES = (
    Blemish(12, fault=DemoFault.SILENT),
    Blemish(16, fault=DemoFault.UNHEALTHY),
    Blemish(6, taints=(CORDON,)),
    Blemish(40, taints=(GPU,), labels={"accelerator": "gpu"}, has_gpu=True),
    Blemish(20, taints=(DEDICATED,), labels={"team": "payments"}),
    Blemish(6, missing_labels=("region", "zone")),
    Blemish(6, missing_labels=("env",)),
    Blemish(3, labels={"provider": "aws", "region": "US-East-1", "zone": "us-east-1a"}),
    Blemish(3, labels={"env": "Prod"}),
)
_FEWEST = 2
_TROUBLED_SIZE = 1000
"""Fleets of this size have clusters that do not work; a smaller demo is healthy but for one lesson."""


@dataclass(frozen=True, slots=True)
class Site:
    """A region of a provider: its zones, how much of the fleet is there, and what a core costs an hour."""

    region: str
    provider: str
    zones: str
    weight: int
    millicents_per_cpu: int


_SITES = (
    Site("us-east-1", "aws", "abc", 16, 3900),
    Site("us-west-2", "aws", "abc", 10, 3950),
    Site("eu-west-1", "aws", "abc", 9, 4300),
    Site("eu-central-1", "aws", "abc", 8, 4550),
    Site("ap-southeast-1", "aws", "ab", 6, 4800),
    Site("us-central1", "gcp", "abcf", 9, 3500),
    Site("europe-west4", "gcp", "abc", 7, 3850),
    Site("asia-east1", "gcp", "abc", 5, 4050),
    Site("westeurope", "azure", "123", 9, 4600),
    Site("northeurope", "azure", "123", 6, 4250),
    Site("southeastasia", "azure", "123", 4, 4700),
    Site("hamburg", "own", "ab", 6, 2400),
    Site("prague", "own", "a", 3, 2300),
    Site(NEW_REGION, "aws", "ab", 2, 5100),
)
_TEAMS = {
    "platform": 20,
    "shop": 18,
    "search": 14,
    "payments": 12,
    "media": 14,
    "data": 12,
    "mobile": 10,
}


def large_fleet(size: int, now: datetime) -> tuple[Document, ...]:
    """Return the clusters; five of them are a lab."""
    rng = Random(SEED + size)  # noqa: S311 -- a demo that is the same every time, no secret
    names = unique_names(size, rng)
    lab, others = sorted(names[: len(_LAB)]), names[len(_LAB) :]
    count = len(others)
    blemishes: list[Blemish | None] = []
    for blemish in _BLEMISHES:
        if blemish.fault is None or size >= _TROUBLED_SIZE:
            some = max(_FEWEST, round(count * blemish.per_thousand / 1000))
            blemishes += [blemish] * some
    blemishes += [None] * (count - len(blemishes))
    rng.shuffle(blemishes)
    labels = {
        "region": "hamburg",
        "zone": "hamburg-a",
        "provider": "own",
        "env": "test",
        "tier": "lab",
        "team": "platform",
        "kubernetes-version": "v1.34",
    }
    small = Size(nodes=1, cpu=16, busy_percent=5, millicents_per_cpu=1200)
    clusters = [
        member(name, {**labels, "rack": rack, "power": power}, now=now, size=small)
        for name, (rack, power) in zip(lab, _LAB, strict=True)
    ]
    sites = list(_SITES)  # each once, then by weight
    for index, (name, mark) in enumerate(zip(others, blemishes, strict=True)):
        if index == len(sites):
            sites += rng.choices(
                _SITES, [site.weight for site in _SITES], k=count - index
            )
        clusters.append(_cluster(name, sites[index], mark, rng, now))
    return tuple(clusters)


def _cluster(
    name: str,
    site: Site,
    blemish: Blemish | None,
    rng: Random,
    now: datetime,
) -> Document:
    env = _draw({"prod": 55, "staging": 20, "test": 15, "canary": 10}, rng)
    labels = {
        "region": site.region,
        "zone": f"{site.region}-{rng.choice(site.zones)}",
        "provider": site.provider,
        "env": "staging"
        if site.region == NEW_REGION and env in ("prod", "canary")
        else env,
        "tier": _draw({"core": 62, "edge": 38}, rng),
        "team": _draw(_TEAMS, rng),
        "kubernetes-version": _draw(
            {"v1.34": 34, "v1.33": 40, "v1.32": 20, "v1.31": 6}, rng
        ),
    }
    tier = labels["tier"]
    nodes: Sequence[int] = (1, 2, 3, 3, 5) if tier == "edge" else (5, 8, 12, 20, 40, 80)
    size = Size(
        nodes=rng.choice(nodes),
        cpu=rng.choice((4, 8) if tier == "edge" else (8, 16, 32)),
        busy_percent=rng.randint(10, 90),
        millicents_per_cpu=site.millicents_per_cpu * rng.randint(90, 115) // 100,
    )
    if blemish is None:
        return member(name, labels, now=now, size=size)
    labels.update(blemish.labels)
    for key in blemish.missing_labels:
        del labels[key]
    if blemish.has_gpu:
        size = replace(size, cpu=64, millicents_per_cpu=size.millicents_per_cpu * 6)
    return member(
        name, labels, now=now, size=size, taints=blemish.taints, fault=blemish.fault
    )


def _draw(weights: Mapping[str, int], rng: Random) -> str:
    return rng.choices(tuple(weights), tuple(weights.values()))[0]


LEFT_THE_FLEET = "gonewalrus"
"""A cluster that a PickFixed placement still names."""

_CPU_FREE, _CPU_ALL = (
    "resources.kubernetes-fleet.io/available-cpu",
    "resources.kubernetes-fleet.io/total-cpu",
)
_PROD, _EDGE, _CORE = labelled(env="prod"), labelled(tier="edge"), labelled(tier="core")
_CHEAP, _ROOMY = sorted_by(CPU_COST, "Ascending"), sorted_by(_CPU_FREE, "Descending")
_OCM, _KUBERNETES = {SEMANTICS_ANNOTATION: "ocm"}, {SEMANTICS_ANNOTATION: "kubernetes"}
_DEDICATED = labelled(team="payments")
_MODERN = expressions(("kubernetes-version", "In", "v1.33", "v1.34"))


# About spreading, then about preferences, then about required labels.
_FURTHER = {
    "checkout": pick_n(
        140,
        required=[_PROD],
        spread=[spread("provider", 20), spread("team", 10)],
    ),
    "sessions": pick_n(
        300, spread=[spread("region", 10), spread("env", 5, hard=False)]
    ),
    "thumbnails": pick_n(
        200,
        required=[_CORE],
        spread=[spread("region", 4, hard=False), spread("zone", 2, hard=False)],
    ),
    "feature-flags": pick_n(120, spread=[spread("kubernetes-version", 3)]),
    "telemetry-gateway": pick_n(
        160,
        required=[_EDGE, _CORE],
        spread=[spread("kubernetes-version", 40), spread("provider", 30)],
    ),
    "dns": pick_n(90, required=[_PROD], spread=[spread("zone", hard=False)]),
    "batch-reports": pick_n(60, prefer=[prefer(100, _CHEAP)], required=[_CORE]),
    "feature-store": pick_n(
        80,
        prefer=[
            prefer(40, labelled(team="data")),
            prefer(-30, labelled(env="canary")),
            prefer(20, _ROOMY),
        ],
        spread=[spread("provider", 40)],
    ),
    "recommendations": pick_n(
        50,
        required=[measured(_CPU_FREE, "Ge", "64")],
        prefer=[
            prefer(
                60,
                sorted_by(
                    "resources.kubernetes-fleet.io/available-memory", "Descending"
                ),
            ),
            prefer(25, _MODERN),
        ],
    ),
    "smoke-tests": pick_n(
        40,
        required=[labelled(env="test"), labelled(env="canary")],
        prefer=[prefer(30, sorted_by(NODES, "Ascending")), prefer(10, _EDGE)],
    ),
    "card-vault": pick_all(required=[_DEDICATED], tolerations=[tolerate(*DEDICATED)]),
    "warehouse": pick_all(required=[{**_CORE, **measured(_CPU_ALL, "Ge", "2000")}]),
    "upgrade-checks": pick_all(
        required=[
            expressions(("kubernetes-version", "In", "v1.31"), ("env", "NotIn", "prod"))
        ]
    ),
    "badge-printing": pick_n(
        30,
        required=[labelled(provider="own")],
        spread=[spread("zone", 2, hard=False)],
    ),
    "transcoding": pick_n(
        25,
        required=[labelled(team="media")],
        prefer=[prefer(50, _ROOMY)],
        tolerations=[ANYTHING],
    ),
}


def large_placements(clusters: Sequence[Document]) -> tuple[Document, ...]:
    """Return the common placements, and of a large fleet sixteen others.

    One of them names a cluster that left.
    """
    if len(clusters) < _TROUBLED_SIZE:
        return tuple(_common(clusters, many=1))
    policies = {
        **_FURTHER,
        "licences": pick_fixed(*_settled(clusters)[-7:], LEFT_THE_FLEET),
    }
    further = (
        placement(name, policy, annotations={"dns": _KUBERNETES}.get(name))
        for name, policy in policies.items()
    )
    return (*_common(clusters, many=12), *further)


def _common(clusters: Sequence[Document], *, many: int) -> Iterator[Document]:
    """Yield nine placements; `payments` has a pinned group, many `lab-replicas` have a dead end."""
    monitoring = [
        selector("Namespace", "monitoring"),
        selector(
            "CustomResourceDefinition",
            group="apiextensions.k8s.io",
            labels={"part-of": "monitoring"},
        ),
    ]
    policies = {
        "monitoring": pick_all(tolerations=[ANYTHING]),
        "storefront": pick_n(
            12 * many,
            required=[_PROD],
            prefer=[prefer(30, _CHEAP)],
            spread=[spread("region", hard=False), spread("provider", 2 * many)],
        ),
        "payments": pick_n(18 * many, required=[_PROD], spread=[spread("region")]),
        "edge-cache": pick_n(
            9 * many,
            required=[_EDGE],
            prefer=[prefer(50, _ROOMY)],
            spread=[spread("provider", many)],
        ),
        "inference": pick_all(
            required=[labelled(accelerator="gpu")], tolerations=[tolerate(*GPU)]
        ),
        "lab-replicas": pick_n(
            3 + (many > 1),
            required=[labelled(tier="lab")],
            spread=[spread("rack"), spread("power")],
        ),
        "archive": pick_fixed(*_settled(clusters)[: 4 * min(many, 6)]),
        "search-index": pick_n(
            10 * many,
            required=[
                {
                    **expressions(("env", "In", "prod", "staging")),
                    **measured(NODES, "Ge", "3"),
                }
            ],
            spread=[spread("region", 2, minDomains=3, nodeTaintsPolicy="Honor")],
        ),
        "mobile-api": pick_n(
            8 * many,
            required=[_MODERN],
            spread=[spread("region", 1), spread("env", 4, hard=False)],
        ),
    }
    options: dict[str, dict[str, Any]] = {
        "monitoring": {
            "selectors": monitoring,
            "strategy": rolling("20%", "20%", 30),
        },
        "storefront": {"strategy": rolling("25%", "10%", 60)},
        "edge-cache": {"strategy": {"type": "External"}},
        "search-index": {"annotations": _KUBERNETES},
        "mobile-api": {
            "annotations": {
                **_OCM,
                SPREAD_OPTIONS_ANNOTATION: '{"mode": "strict", "unsetPolicy": "exclude"}',
            }
        },
    }
    yield from (
        placement(name, policy, **options.get(name, {}))
        for name, policy in policies.items()
    )


def _settled(clusters: Sequence[Document]) -> list[str]:
    """Return the clusters that the settled sort of placement names: sound ones in production, by name."""
    return sorted(
        name_of(cluster)
        for cluster in clusters
        if cluster["metadata"]["labels"].get("env") == "prod"
        and "taints" not in cluster["spec"]
        and "annotations" not in cluster["metadata"]
    )
