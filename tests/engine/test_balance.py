"""What is placed against the hard limits of topology spread, by the definition of each kind of rules."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placements.engine.balance import exceeded_limits
from placements.engine.limits import ExceededLimit
from placements.engine.scheduling.cycle import Cycle
from placements.manifests.policy import parse_policy
from tests.builders import cluster, cycle, cycle_of, fleet, grouped, pick_n, spread
from tests.effort import examples
from tests.engine.scheduling.plain_others import plain_counts
from tests.engine.scheduling.random_cases import cases
from tests.engine.scheduling.random_other_cases import kubernetes_cases, ocm_cases

Case = dict[str, Any]
REGIONS = grouped("region", east="e1 e2 e3", west="w1 w2")
ONE_HARD = pick_n(3, spread=[spread("region")])


def test_a_replacement_in_the_fullest_domain_exceeds_the_limit() -> None:
    placed = cycle(fleet(*REGIONS), ONE_HARD)

    assert exceeded_limits(placed, ["e1", "e2", "w1"]) == []
    assert exceeded_limits(placed, ["e1", "e2", "e3"]) == [
        ExceededLimit("region", 1, "east", 3, "west", 0, 3),
    ]


def test_a_soft_limit_is_never_exceeded() -> None:
    soft = cycle(fleet(*REGIONS), pick_n(3, spread=[spread("region", hard=False)]))

    assert exceeded_limits(soft, ["e1", "e2", "e3"]) == []


def test_a_cluster_without_the_key_or_outside_of_the_fleet_is_in_no_domain() -> None:
    placed = cycle(fleet(*REGIONS, "keyless"), ONE_HARD)

    assert exceeded_limits(placed, ["e1", "keyless", "gone"]) == []


@pytest.mark.parametrize("semantics", ["fleet", "kubefleet", "kubernetes"])
def test_a_domain_without_a_ready_cluster_holds_the_minimum_at_zero(
    semantics: str,
) -> None:
    north = cluster("n1", region="north", not_eligible="noAgent")
    placed = cycle(fleet(*REGIONS, north), ONE_HARD, semantics=semantics)

    assert exceeded_limits(placed, ["e1", "e2", "w1"]) == [
        ExceededLimit("region", 1, "east", 2, "north", 0, 2),
    ]


def test_ocm_compares_with_domains_that_have_a_candidate() -> None:
    north = cluster("n1", region="north", not_eligible="noAgent")

    assert (
        exceeded_limits(
            cycle(fleet(*REGIONS, north), ONE_HARD, semantics="ocm"), ["e1", "e2", "w1"]
        )
        == []
    )


def test_with_fewer_domains_than_min_domains_the_minimum_is_zero() -> None:
    constraint = {**spread("region"), "minDomains": 3}
    fields = {
        "placementType": "PickN",
        "numberOfClusters": 4,
        "topologySpreadConstraints": [constraint],
    }
    policy = parse_policy(
        fields, semantics=cycle(fleet(), semantics="kubernetes").semantics
    )
    placed = cycle(fleet(*REGIONS), policy, semantics="kubernetes")

    assert exceeded_limits(placed, ["e1", "e2", "w1", "w2"]) == [
        ExceededLimit("region", 1, "east", 2, "", 0, 2),
    ]


def _plain_counts(case: Case, placed: set[str]) -> list[dict[str, int]]:
    if case["semantics"] in ("ocm", "kubernetes"):
        return plain_counts(case, placed)
    by_constraint = []
    for constraint in case["policy"]["topologySpreadConstraints"]:
        values = {
            one["name"]: one["labels"].get(constraint["topologyKey"])
            for one in case["clusters"]
        }
        counts = Counter(values[name] for name in placed)
        by_constraint.append(
            {value: counts[value] for value in values.values() if value is not None}
        )
    return by_constraint


def _plain_skew(constraint: Case, counts: dict[str, int]) -> int:
    """Return the largest distance of a domain from the emptiest of its siblings."""
    if len(counts) < constraint.get("minDomains", 1):
        return max(counts.values(), default=0)
    families: dict[str, list[int]] = {}
    for name, count in counts.items():
        families.setdefault(name.rpartition("/")[0], []).append(count)
    return max(
        (max(several) - min(several) for several in families.values()), default=0
    )


@examples(400)
@given(cases(types=("PickN",)) | kubernetes_cases() | ocm_cases(), st.data())
def test_it_equals_a_plain_evaluation(case: Case, data: st.DataObject) -> None:
    names = [one["name"] for one in case["clusters"]]
    placed = data.draw(st.sets(st.sampled_from(names))) if names else set()

    found = exceeded_limits(cycle_of(case), [*placed, "gone"])

    expected = [
        (one["topologyKey"], one["maxSkew"], skew)
        for one, counts in zip(
            case["policy"]["topologySpreadConstraints"],
            _plain_counts(case, placed),
            strict=True,
        )
        if one["whenUnsatisfiable"] == "DoNotSchedule"
        and (skew := _plain_skew(one, counts)) > one["maxSkew"]
    ]
    assert [
        (limit.topology_key, limit.max_skew, limit.skew) for limit in found
    ] == expected
    for limit in found:
        assert limit.fullest_count - limit.emptiest_count == limit.skew


def test_a_cycle_without_a_policy_exceeds_nothing() -> None:
    assert exceeded_limits(Cycle(fleet(*REGIONS)), ["e1"]) == []
