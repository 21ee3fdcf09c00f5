"""Problems of any size for measuring: the same for the product and for the plain baseline.

Everything comes from one fixed seed, and names are shuffled against all else. A problem's clusters are
dictionaries as in the conformance files, so both sides start from the very same data.
"""

import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from clusters.fleet import (
    ELIGIBLE,
    Cluster,
    Eligibility,
    EligibilityKind,
    Fleet,
    collector_paused,
)
from fleetui.apimachinery.model import Semantics
from placements.engine.scheduling.cycle import Cycle
from placements.manifests.binding import BindingState, PlacedBinding
from placements.manifests.policy import PlacementPolicy, parse_policy
from tests.builders import (
    Document,
    expression,
    labelled,
    measured,
    pick_n,
    prefer,
    sorted_by,
    spread,
)

SEED = 20260710
SPREAD_KEYS = tuple(f"spread-{index}" for index in range(10))
_PREFERRED = [
    prefer(30, labelled(tier="edge")),
    prefer(-20, expression("stage", "In", "canary", "test")),
]
_MORE_PREFERRED = [
    prefer(5, expression("tier", "NotIn", "lab")),
    prefer(40, sorted_by("cpu")),
]
_REQUIRED = [
    {**labelled(tier="edge"), **measured("cpu", "Ge", "2")},
    expression("stage", "NotIn", "test"),
]
_TIERS, _STAGES = ("edge", "core", "lab"), ("prod", "canary", "test")
_UNHEALTHY = Eligibility(EligibilityKind.UNHEALTHY)


@dataclass(frozen=True)
class Problem:
    """A fleet and what a placement wants of it; `domains` are how many values each spread key has.

    Shapes: `uniform`; `zipf`, few values on most clusters; `stuck`, zipf with one domain per key without a
    candidate; `bound`, 30 % placed already; `missing_key`, 10 % without each key. Two preferred terms
    always score; with `is_selective` there are two required terms, two more preferred ones and a sorter.
    """

    name: str
    clusters: int
    wanted: int
    domains: tuple[int, ...] = ()
    max_skew: int = 5
    hard: bool = False
    shape: str = "uniform"
    is_selective: bool = False
    semantics: Semantics = Semantics.FLEET

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the topology keys."""
        return SPREAD_KEYS[: len(self.domains)]

    @property
    def rows(self) -> list[Document]:
        """Return the clusters as dictionaries, made once."""
        return _rows(self.clusters, self.domains, self.shape, self.is_selective)

    @property
    def placed(self) -> list[str]:
        """Return the clusters with a bound binding."""
        if self.shape != "bound":
            return []
        return random.Random(SEED).sample(
            [row["name"] for row in self.rows], self.clusters * 3 // 10
        )

    def fleet(self) -> Fleet:
        """Build the fleet from its dictionaries, without any column yet."""
        if self.is_selective or self.shape == "stuck":
            return Fleet(map(_cluster, self.rows))
        return Fleet(Cluster(row["name"], row["labels"]) for row in self.rows)

    def policy(self) -> PlacementPolicy:
        """Return the policy; its number includes what is placed already."""
        return pick_n(
            self.wanted + len(self.placed),
            required=_REQUIRED if self.is_selective else [],
            prefer=[*_PREFERRED, *_MORE_PREFERRED] if self.is_selective else _PREFERRED,
            spread=[spread(key, self.max_skew, hard=self.hard) for key in self.keys],
        )

    def cycle(self, fleet: Fleet) -> Cycle:
        """Return the inputs of a cycle on a fleet of this problem."""
        bindings = tuple(
            PlacedBinding(name, BindingState.BOUND) for name in self.placed
        )
        return Cycle(fleet, self.policy(), bindings, self.semantics)

    def case(self) -> dict[str, Any]:
        """Return the same as a case, for the plain baseline."""
        bindings = [
            {"cluster": name, "state": "Bound", "policy": "current"}
            for name in self.placed
        ]
        return {
            "clusters": self.rows,
            "bindings": bindings,
            "policy": self.policy().to_plain(),
        }


def _cluster(row: Document) -> Cluster:
    eligibility = _UNHEALTHY if "eligible" in row else ELIGIBLE
    return Cluster(
        row["name"],
        row["labels"],
        (),
        row.get("properties", {}),
        eligibility=eligibility,
    )


@lru_cache(maxsize=2)
def _rows(
    size: int, domains: tuple[int, ...], shape: str, is_selective: bool
) -> list[Document]:
    draw = random.Random(SEED)
    with collector_paused():
        numbers = draw.sample(range(size), size)
        columns = {
            "tier": draw.choices(_TIERS, k=size),
            "stage": draw.choices(_STAGES, k=size),
        }
        for key, domain in zip(SPREAD_KEYS, domains, strict=False):
            columns[key] = _column(draw, size, domain, shape)
        table = zip(*columns.values(), strict=True)
        rows: list[Document] = [
            {
                "name": f"cluster-{number:07}",
                "labels": {key: v for key, v in zip(columns, values, strict=True) if v},
            }
            for number, values in zip(numbers, table, strict=True)
        ]
        if is_selective:
            for row in rows:
                row["properties"] = {"cpu": f"{draw.randrange(1, 64_000)}m"}
        if shape == "stuck":
            rows[0]["eligible"] = {"value": False, "kind": "unhealthy", "reason": ""}
    return rows


def _column(draw: random.Random, size: int, domain: int, shape: str) -> list[str]:
    """Draw one label of every cluster; an empty text is a cluster without the key."""
    values = [f"v{index:06}" for index in range(domain)]
    if domain == size:
        return draw.sample(values, size)
    skewed = (
        [1 / (rank + 1) for rank in range(domain)]
        if shape in ("zipf", "stuck")
        else None
    )
    column = draw.choices(values, skewed, k=size)
    if shape == "missing_key":
        column = ["" if draw.random() < 0.1 else value for value in column]
    if shape == "stuck":
        column[0] = "no-cluster-can-be-picked"
    return column


def large_world(
    rng: random.Random, clusters: int, placements: int
) -> tuple[Fleet, list[Cycle]]:
    """Return a fleet of 8 regions, 24 zones and 4 providers, and placements of each type without bindings.

    Two of three PickN placements require one provider: they are in about a third of the domains.
    """
    rows = []
    for at in range(clusters):
        region = rng.choices(range(8), [1 / (k + 1) for k in range(8)])[0]
        labels = {
            "region": f"r{region}",
            "zone": f"r{region}-{rng.randrange(3)}",
            "provider": f"p{region % 4}",
        }
        rows.append(Cluster(f"c{at:04}", labels))
    fleet, cycles = Fleet(rows), []
    for _ in range(placements):
        kind = rng.choices(["PickAll", "PickFixed", "PickN"], [15, 10, 75])[0]
        policy: dict[str, Any] = {"placementType": kind}
        if kind == "PickFixed":
            policy["clusterNames"] = rng.sample(fleet.names, 5)
        if kind == "PickN":
            policy["numberOfClusters"] = rng.randint(1, 40)
            keys = rng.sample(("region", "zone", "provider"), rng.randint(0, 2))
            policy["topologySpreadConstraints"] = [
                {"topologyKey": key, "maxSkew": 2} for key in keys
            ]
            if rng.random() < 2 / 3:
                terms = [labelled(provider=f"p{rng.randrange(4)}")]
                required = {"clusterSelectorTerms": terms}
                affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
                policy["affinity"] = {"clusterAffinity": affinity}
        cycles.append(Cycle(fleet, parse_policy(policy)))
    return fleet, cycles
