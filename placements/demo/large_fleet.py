"""Clusters of a large fleet: plausible, the same every time, with the blemishes that real fleets have."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from random import Random

from placements.demo.demo import Document
from placements.demo.members import CORDON, SimulatedFault, Size, member
from placements.demo.names import unique_names

SEED = 20260820
GPU, DEDICATED = ("gpu", "true"), ("dedicated", "payments")
NEW_REGION = "me-south-1"
"""A region that opened lately: nothing there is in production yet."""

_LAB = (("r0", "e0"), ("r2", "e0"), ("r2", "e1"), ("r0", "e1"), ("r0", "e1"))
"""Rack and power feed of the clusters of the lab, in the order of their names (`design/ui.md` 0.2)."""


class Blemish(StrEnum):
    """What sets a cluster apart from the ordinary ones; each has at most one."""

    SILENT = "silent"
    UNHEALTHY = "unhealthy"
    CORDONED = "cordoned"
    GPU = "gpu"
    DEDICATED = "dedicated"
    NO_REGION = "no region"
    NO_ENV = "no env"
    REGION_SPELLED_OTHERWISE = "region spelled otherwise"
    ENV_SPELLED_OTHERWISE = "env spelled otherwise"


_PER_THOUSAND = {
    Blemish.SILENT: 12,
    Blemish.UNHEALTHY: 16,
    Blemish.CORDONED: 6,
    Blemish.GPU: 40,
    Blemish.DEDICATED: 20,
    Blemish.NO_REGION: 6,
    Blemish.NO_ENV: 6,
    Blemish.REGION_SPELLED_OTHERWISE: 3,
    Blemish.ENV_SPELLED_OTHERWISE: 3,
}
_FEWEST = 2
_FAULTS = {
    Blemish.SILENT: SimulatedFault.SILENT,
    Blemish.UNHEALTHY: SimulatedFault.UNHEALTHY,
}
_TAINTS = {Blemish.CORDONED: CORDON, Blemish.GPU: GPU, Blemish.DEDICATED: DEDICATED}
_OTHER_LABELS: Mapping[Blemish, Mapping[str, str]] = {
    Blemish.GPU: {"accelerator": "gpu"},
    Blemish.DEDICATED: {"team": "payments"},
    Blemish.REGION_SPELLED_OTHERWISE: {"provider": "aws", "region": "US-East-1", "zone": "us-east-1a"},
    Blemish.ENV_SPELLED_OTHERWISE: {"env": "Prod"},
}
_MISSING_LABELS = {Blemish.NO_REGION: ("region", "zone"), Blemish.NO_ENV: ("env",)}


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
_ENVS = {"prod": 55, "staging": 20, "test": 15, "canary": 10}
_TIERS = {"core": 62, "edge": 38}
_TEAMS = {
    "platform": 20,
    "shop": 18,
    "search": 14,
    "payments": 12,
    "media": 14,
    "data": 12,
    "mobile": 10,
}
_VERSIONS = {"v1.34": 34, "v1.33": 40, "v1.32": 20, "v1.31": 6}


def large_fleet(size: int, now: datetime) -> tuple[Document, ...]:
    """Make the clusters, of which five are a lab."""
    rng = Random(SEED + size)  # noqa: S311 -- a demo that is the same every time, no secret
    names = unique_names(size, rng)
    lab, others = sorted(names[: len(_LAB)]), names[len(_LAB) :]
    blemishes = _blemishes(len(others), rng)
    return (
        *(_lab_cluster(name, *place, now) for name, place in zip(lab, _LAB, strict=True)),
        *(
            _cluster(name, site, blemish, rng, now)
            for name, site, blemish in zip(others, _sites(len(others), rng), blemishes, strict=True)
        ),
    )


def _lab_cluster(name: str, rack: str, power: str, now: datetime) -> Document:
    labels = {"region": "hamburg", "zone": "hamburg-a", "provider": "own", "env": "test", "tier": "lab"}
    size = Size(nodes=1, cpu=16, busy_percent=5, millicents_per_cpu=1200)
    of_the_lab = {"team": "platform", "kubernetes-version": "v1.34", "rack": rack, "power": power}
    return member(name, {**labels, **of_the_lab}, now=now, size=size)


def _blemishes(count: int, rng: Random) -> list[Blemish | None]:
    """Deal the blemishes out: so many of each, at least two, to clusters drawn by lot."""
    dealt: list[Blemish | None] = []
    for blemish, share in _PER_THOUSAND.items():
        dealt += [blemish] * max(_FEWEST, round(count * share / 1000))
    dealt += [None] * (count - len(dealt))
    rng.shuffle(dealt)
    return dealt


def _sites(count: int, rng: Random) -> Iterator[Site]:
    """Give every region a cluster, and most of them where most of the fleet is."""
    yield from _SITES
    yield from rng.choices(_SITES, [site.weight for site in _SITES], k=count - len(_SITES))


def _cluster(name: str, site: Site, blemish: Blemish | None, rng: Random, now: datetime) -> Document:
    env = _drawn(_ENVS, rng)
    labels = {
        "region": site.region,
        "zone": f"{site.region}-{rng.choice(site.zones)}",
        "provider": site.provider,
        "env": "staging" if site.region == NEW_REGION and env in ("prod", "canary") else env,
        "tier": _drawn(_TIERS, rng),
        "team": _drawn(_TEAMS, rng),
        "kubernetes-version": _drawn(_VERSIONS, rng),
    }
    size = _size(labels["tier"], site, rng)
    if blemish is None:
        return member(name, labels, now=now, size=size)
    labels.update(_OTHER_LABELS.get(blemish, {}))
    for key in _MISSING_LABELS.get(blemish, ()):
        del labels[key]
    if blemish is Blemish.GPU:
        size = replace(size, cpu=64, millicents_per_cpu=size.millicents_per_cpu * 6)
    taints = [_TAINTS[blemish]] if blemish in _TAINTS else []
    return member(name, labels, now=now, size=size, taints=taints, fault=_FAULTS.get(blemish))


def _drawn(weights: Mapping[str, int], rng: Random) -> str:
    return rng.choices(tuple(weights), tuple(weights.values()))[0]


def _size(tier: str, site: Site, rng: Random) -> Size:
    """Draw a size: clusters at the edge are small, those of the core may be very large."""
    nodes: Sequence[int] = (1, 2, 3, 3, 5) if tier == "edge" else (5, 8, 12, 20, 40, 80)
    return Size(
        nodes=rng.choice(nodes),
        cpu=rng.choice((4, 8) if tier == "edge" else (8, 16, 32)),
        busy_percent=rng.randint(10, 90),
        millicents_per_cpu=site.millicents_per_cpu * rng.randint(90, 115) // 100,
    )
