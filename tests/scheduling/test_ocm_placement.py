"""The Placement document of Open Cluster Management at its door."""

from typing import Any

import pytest

from placements.scheduling.door.ocm_placement import parse_ocm_placement
from placements.scheduling.faults import Faults


def document(version: str = "v1alpha1", **spec: Any) -> dict[str, Any]:
    """Write a Placement."""
    return {
        "apiVersion": f"cluster.open-cluster-management.io/{version}",
        "kind": "Placement",
        "metadata": {"name": "demo-placement", "namespace": "default"},
        "spec": spec,
    }


def even(key: str, **fields: Any) -> dict[str, Any]:
    """Write an Even constraint on a label."""
    return {"type": "Even", "topologyKey": key, "topologyKeyType": "Label", **fields}


def test_the_first_example_of_the_proposal() -> None:
    rows = [
        {"weight": 20, "operator": "In", "values": ["us-east-1", "cn-hangzhou"]},
        {"weight": 10, "operator": "In", "values": ["us-west-1"]},
        {"weight": 20, "operator": "NotIn", "values": ["cn-shenzhen"]},
    ]
    affinity = {
        "type": "Affinity",
        "topologyKey": "region",
        "topologyKeyType": "Label",
        "topologyWeights": rows,
    }

    wish = parse_ocm_placement(
        document(numberOfClusters=10, spreadConstraints=[even("provider", maxSkew=2), affinity])
    )

    (constraint,) = wish.policy.topology_spread_constraints
    assert (constraint.topology_key, constraint.max_skew, constraint.when_unsatisfiable) == (
        "provider",
        2,
        "DoNotSchedule",
    )
    assert [row.weight for row in wish.options.affinity_terms[0].topology_weights] == [20, 10, 20]


def test_the_second_example_of_the_proposal_takes_its_constraints_by_order() -> None:
    terms = [even("region", order=2), even("provider", maxSkew=2, order=1)]

    wish = parse_ocm_placement(document(numberOfClusters=10, spreadConstraints=terms))

    assert [
        (one.topology_key, one.when_unsatisfiable) for one in wish.policy.topology_spread_constraints
    ] == [
        ("provider", "DoNotSchedule"),
        ("region", "ScheduleAnyway"),
    ]


def test_the_merged_api_spreads_softly_unless_told_otherwise() -> None:
    policy = {
        "spreadConstraints": [
            {"topologyKey": "zone"},
            {"topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"},
        ]
    }

    wish = parse_ocm_placement(document("v1beta1", numberOfClusters=2, spreadPolicy=policy))

    assert [one.when_unsatisfiable for one in wish.policy.topology_spread_constraints] == [
        "ScheduleAnyway",
        "DoNotSchedule",
    ]


def test_without_a_number_it_takes_all_that_pass() -> None:
    assert parse_ocm_placement(document()).policy.placement_type == "PickAll"


@pytest.mark.parametrize(
    ("mode", "configurations", "steady", "balance"),
    [
        ("Additive", [], 100, 1),
        ("Exact", [], 0, 0),
        ("Additive", [{"scoreCoordinate": {"type": "BuiltIn", "builtIn": "Steady"}, "weight": 3}], 300, 1),
        ("Exact", [{"scoreCoordinate": {"type": "BuiltIn", "builtIn": "Balance"}}], 0, 1),
    ],
)
def test_prioritizers_set_the_weights(
    mode: str, configurations: list[Any], steady: int, balance: int
) -> None:
    policy = {"mode": mode, "configurations": configurations}

    options = parse_ocm_placement(document(prioritizerPolicy=policy)).options

    assert (options.steady_weight, options.balance_weight) == (steady, balance)


@pytest.mark.parametrize(
    ("spec", "path", "code"),
    [
        ({"spreadConstraints": [even("zone")]}, "spec.numberOfClusters", "required"),
        (
            {"numberOfClusters": 2, "spreadConstraints": [even("zone"), even("rack", order=1)]},
            "spec.spreadConstraints[0].order",
            "required",
        ),
        (
            {"numberOfClusters": 2, "spreadConstraints": [even("zone", order=1), even("rack", order=1)]},
            "spec.spreadConstraints[1].order",
            "duplicate",
        ),
        (
            {"spreadConstraints": [{"type": "Affinity", "topologyKey": "zone", "maxSkew": 1}]},
            "spec.spreadConstraints[0].maxSkew",
            "conflict",
        ),
        (
            {"spreadConstraints": [{"type": "Affinity", "topologyKey": "zone"}]},
            "spec.spreadConstraints[0].topologyWeights",
            "required",
        ),
        ({"numberOfCluster": 2}, "spec.numberOfCluster", "unknown-field"),
        (
            {
                "prioritizerPolicy": {
                    "configurations": [{"scoreCoordinate": {"type": "AddOn", "builtIn": "Steady"}}]
                }
            },
            "spec.prioritizerPolicy.configurations[0].scoreCoordinate.type",
            "not-one-of",
        ),
    ],
)
def test_refuses(spec: dict[str, Any], path: str, code: str) -> None:
    with pytest.raises(Faults) as raised:
        parse_ocm_placement(document(**spec))

    assert (path, code) in [(fault.path, fault.code) for fault in raised.value.faults]


def test_domain_weights_do_not_go_with_a_hard_limit() -> None:
    weights = {"domainWeights": {"zone": {"a": 2}}}

    with pytest.raises(Faults, match="cannot have a hard maxSkew as well"):
        parse_ocm_placement(
            document(numberOfClusters=2, spreadConstraints=[even("zone", maxSkew=1)]), options=weights
        )
