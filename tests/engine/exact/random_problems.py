"""Random PickN decisions of at most nine clusters, and the fleet on which greedy stops at 5 of 8."""

import random
from functools import cache

from clusters.fleet import Cluster, Fleet
from fleetui.apimachinery.model import Semantics
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import CycleKind, Decision
from placements.engine.scheduling.scheduler import schedule
from tests.builders import (
    binding,
    cluster,
    expression,
    fleet,
    labelled,
    pick_n,
    prefer,
    spread,
)

KEYS = {"region": "abc", "zone": "xyz", "env": "pq"}


def random_decision(rng: random.Random, *, most_hard: int = 3) -> Decision:
    """Draw until a cycle picks: labels may be absent, some clusters filtered, some placed already."""
    while True:
        clusters = [_cluster(rng, f"c{at}") for at in range(rng.randint(2, 9))]
        keys = rng.sample(list(KEYS), rng.randint(0, 3))
        hard = [rng.random() < 0.7 for _ in keys]
        if sum(hard) > most_hard:
            continue
        limits = [
            spread(key, rng.choice([1, 1, 2]), hard=is_hard)
            for key, is_hard in zip(keys, hard, strict=True)
        ]
        policy = pick_n(
            rng.randint(1, 8),
            spread=limits,
            prefer=[prefer(rng.choice([10, 30, -5]), labelled(tier="a"))]
            if rng.random() < 0.7
            else [],
            required=[expression("tier", "In", "a", "b")] if rng.random() < 0.4 else [],
        )
        placed = rng.sample(clusters, rng.choice([0, 0, 0, 1, 2]))
        bindings = tuple(
            binding(one.name, obsolete=rng.random() < 0.5) for one in placed
        )
        semantics = rng.choice([Semantics.FLEET, Semantics.KUBEFLEET])
        decision = schedule(Cycle(Fleet(clusters), policy, bindings, semantics))
        if decision.kind is CycleKind.PICK:
            return decision


def _cluster(rng: random.Random, name: str) -> Cluster:
    labels = {
        key: rng.choice(values) for key, values in KEYS.items() if rng.random() < 0.9
    }
    return cluster(
        name,
        labels,
        tier=rng.choice("abc"),
        not_eligible="noAgent" if rng.random() < 0.1 else None,
    )


@cache
def fleet_of_100() -> Fleet:
    """Make a fleet on which the greedy search stops at 5 of 8."""
    rng = random.Random(3)
    regions = [f"r{at}" for at in range(8)]
    zones = {region: [f"{region}-z{at}" for at in range(3)] for region in regions}
    providers = {
        region: rng.choice(["aws", "azure", "gcp", "onprem"]) for region in regions
    }
    clusters = []
    for at in range(100):
        region = rng.choices(regions, [1 / (place + 1) for place in range(8)])[0]
        labels = {
            "region": region,
            "zone": rng.choice(zones[region]),
            "provider": providers[region],
        }
        labels["env"] = rng.choices(["prod", "stage", "canary"], [6, 3, 1])[0]
        clusters.append(cluster(f"c{at:05}", {**labels, "tier": rng.choice("abc")}))
    return fleet(*clusters)


def dead_end(number: int = 8, semantics: Semantics = Semantics.FLEET) -> Decision:
    """Decide a placement on it: hard spread over region and env within tier a."""
    policy = pick_n(
        number, required=[labelled(tier="a")], spread=[spread("region"), spread("env")]
    )
    return schedule(Cycle(fleet_of_100(), policy, semantics=semantics))
