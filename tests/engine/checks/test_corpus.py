"""Random fleets with values that are easily confused: nothing is found in a clean one, planted faults are.

The goals are those of `rules/foresight.md#checks`.
"""

import random
from collections.abc import Callable

import pytest

from clusters.fleet import Cluster, Fleet
from placements.engine.checks.examination import examine_fleet
from tests.builders import cluster

REGIONS = (
    "eastus",
    "eastus2",
    "westus2",
    "westus3",
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "europe-north1",
)
FLEETS = 60
Labels = list[dict[str, str]]


def _clean(seed: int) -> Labels:
    rng = random.Random(seed)
    size = rng.randint(30, 1000)
    regions = rng.sample(REGIONS, rng.randint(3, 6))
    provider = {region: rng.choice(("aws", "azure", "gcp")) for region in regions}
    weights = [1 / (place + 1) for place in range(len(regions))]
    found = []
    for region in rng.choices(regions, weights, k=size):
        labels = {
            "region": region,
            "zone": f"{region}-{rng.choice('abc')}",
            "provider": provider[region],
            "env": rng.choices(
                ("production", "prod-eu", "stage", "staging"), (5, 3, 2, 2)
            )[0],
            "hardware": rng.choice(("gpu", "gpus", "edge", "edges")),
        }
        found.append(labels)
    return found


def _fleet(several: Labels) -> Fleet:
    return Fleet(cluster(f"c{at:04}", labels) for at, labels in enumerate(several))


def _typo(word: str, rng: random.Random) -> str:
    """Swap two neighbours that differ, or drop a letter; digits stay."""
    places = [
        at
        for at in range(len(word) - 1)
        if word[at] != word[at + 1] and word[at : at + 2].isalpha()
    ]
    at = rng.choice(places)
    if rng.random() < 0.5:
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return word[:at] + word[at + 1 :]


def _misspell_key(several: Labels, rng: random.Random) -> tuple[str, str]:
    key = rng.choice(("region", "provider", "hardware"))
    written = _typo(key, rng)
    for labels in rng.sample(several, 1 + (len(several) >= 60)):
        labels[written] = labels.pop(key)
    return "H01", f"labels.{written}"


def _change_case(several: Labels, rng: random.Random) -> tuple[str, str]:
    labels = rng.choice(several)
    labels["env"] = labels["env"].title()
    return "H02", "labels.env"


def _misspell_value(several: Labels, rng: random.Random) -> tuple[str, str]:
    labels = rng.choice(several)
    labels["env"] = _typo(labels["env"], rng)
    return "H03", "labels.env"


def _move_zone(several: Labels, rng: random.Random) -> tuple[str, str]:
    labels = rng.choice(several)
    labels["region"] = rng.choice(
        [
            document["region"]
            for document in several
            if document["region"] != labels["region"]
        ]
    )
    return "H06", "labels.region"


@pytest.mark.nightly
def test_nothing_is_found_in_clean_fleets() -> None:
    for seed in range(FLEETS):
        assert examine_fleet(_fleet(_clean(seed))).findings == (), seed


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("plant", "goal"),
    [(_misspell_key, 60), (_change_case, 54), (_misspell_value, 43), (_move_zone, 11)],
)
def test_planted_faults_are_found(
    plant: Callable[[Labels, random.Random], tuple[str, str]], goal: int
) -> None:
    found = 0
    for seed in range(FLEETS):
        several = _clean(seed)
        planted = plant(several, random.Random(seed))
        found += planted in {
            (finding.rule, finding.path)
            for finding in examine_fleet(_fleet(several)).findings
        }

    assert found >= goal


def test_a_cluster_without_labels_is_no_fault() -> None:
    assert examine_fleet(Fleet([Cluster("a"), Cluster("b")])).findings == ()
