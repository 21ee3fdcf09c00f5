"""Decisions on fixed inputs: where they become others, the version of the engine is increased.

Else a new decision would have the id of a stored one that selected other clusters, and the verification of
records would report those that an older release wrote.
"""

import hashlib
import json
import random
from collections.abc import Iterator
from typing import Any

from clusters.fleet import Fleet
from fleetui.apimachinery.model import Semantics
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import ENGINE_VERSION
from placements.engine.scheduling.scheduler import schedule
from tests.builders import cluster, labelled, pick_n, prefer, spread

DECIDED_BY = ("3", "0fd8bdc37f25053a")
"""The version, and the digest of what it selects. Another digest under the same version is a fault."""
OPTIONS: dict[Semantics, tuple[dict[str, Any], ...]] = {
    Semantics.OCM: ({}, {"mode": "weighted"}, {"mode": "weighted", "nested": False})
}


def cycles() -> Iterator[Cycle]:
    """Yield cycles on uneven domains, also with most of them below one: in order, with their ties."""
    for number in range(12):
        chance = random.Random(number)
        zones = [chance.randrange(6) for _ in range(60)]
        fleet = Fleet(
            cluster(
                f"c{place:02}",
                region="other" if zone < number % 3 else "most",
                zone=f"z{zone}",
                tier=chance.choice(("core", "edge")),
            )
            for place, zone in enumerate(zones)
        )
        is_hard = number % 2 == 0
        policy = pick_n(
            30,
            spread=[
                spread(key, 1 + number % 4, hard=is_hard) for key in ("region", "zone")
            ],
            prefer=[prefer(40, labelled(tier="edge"))] if number % 4 == 3 else [],
        )
        for semantics in Semantics:
            for options in OPTIONS.get(semantics, ({},)):
                yield Cycle(fleet, policy, semantics=semantics, options=options)


def test_equal_inputs_lead_to_equal_decisions_of_one_engine() -> None:
    picked = [schedule(cycle).picked_names for cycle in cycles()]

    digest = hashlib.sha256(json.dumps(picked).encode()).hexdigest()[:16]
    assert (ENGINE_VERSION, digest) == DECIDED_BY
