"""Parsing the Placement document of Open Cluster Management."""

import json
from typing import Any

import pytest

from fleetui.apimachinery.errors import InvalidManifest
from placements.manifests.ocm_placement import parse_ocm_placement
from placements.manifests.placement import external_document
from tests.ocm_documents import STRATEGY, ocm_document


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


def affinity(key: str, *, rows: int = 1) -> dict[str, Any]:
    """Write an Affinity constraint with so many rows."""
    weights = [{"weight": 1, "operator": "Exists"}] * rows
    return {"type": "Affinity", "topologyKey": key, "topologyWeights": weights}


def merged(*terms: dict[str, Any]) -> dict[str, Any]:
    """Write the merged API's spread policy."""
    return {"numberOfClusters": 2, "spreadPolicy": {"spreadConstraints": list(terms)}}


def prioritizer(**coordinate: Any) -> dict[str, Any]:
    """Write a policy of one prioritizer."""
    return {"prioritizerPolicy": {"configurations": [{"scoreCoordinate": coordinate}]}}


def errors_in(spec: dict[str, Any], **accompanied: Any) -> list[tuple[str, str]]:
    """List paths and codes of what is wrong with a document of this spec."""
    with pytest.raises(InvalidManifest) as raised:
        parse_ocm_placement(document(**spec), **accompanied)
    return [(error.path, error.code) for error in raised.value.errors]


def test_the_first_example_of_the_proposal() -> None:
    rows = [
        {"weight": 20, "operator": "In", "values": ["us-east-1", "cn-hangzhou"]},
        {"weight": 10, "operator": "In", "values": ["us-west-1"]},
        {"weight": 20, "operator": "NotIn", "values": ["cn-shenzhen"]},
    ]
    preference = {
        "type": "Affinity",
        "topologyKey": "region",
        "topologyKeyType": "Label",
        "topologyWeights": rows,
    }

    parsed = parse_ocm_placement(
        document(
            numberOfClusters=10,
            spreadConstraints=[even("provider", maxSkew=2), preference],
        )
    )

    (constraint,) = parsed.policy.topology_spread_constraints
    assert (
        constraint.topology_key,
        constraint.max_skew,
        constraint.when_unsatisfiable,
    ) == (
        "provider",
        2,
        "DoNotSchedule",
    )
    assert [
        row.weight for row in parsed.options.affinity_terms[0].topology_weights
    ] == [20, 10, 20]


def test_the_second_example_of_the_proposal_takes_its_constraints_by_order() -> None:
    terms = [even("region", order=2), even("provider", maxSkew=2, order=1)]

    parsed = parse_ocm_placement(document(numberOfClusters=10, spreadConstraints=terms))

    assert [
        (constraint.topology_key, constraint.when_unsatisfiable)
        for constraint in parsed.policy.topology_spread_constraints
    ] == [
        ("provider", "DoNotSchedule"),
        ("region", "ScheduleAnyway"),
    ]


def test_the_merged_api_spreads_softly_by_default() -> None:
    policy = {
        "spreadConstraints": [
            {"topologyKey": "zone"},
            {"topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"},
        ]
    }

    parsed = parse_ocm_placement(
        document("v1beta1", numberOfClusters=2, spreadPolicy=policy)
    )

    assert [
        constraint.when_unsatisfiable
        for constraint in parsed.policy.topology_spread_constraints
    ] == [
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
        (
            "Additive",
            [
                {
                    "scoreCoordinate": {"type": "BuiltIn", "builtIn": "Steady"},
                    "weight": 3,
                }
            ],
            300,
            1,
        ),
        (
            "Exact",
            [{"scoreCoordinate": {"type": "BuiltIn", "builtIn": "Balance"}}],
            0,
            1,
        ),
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
            {
                "numberOfClusters": 2,
                "spreadConstraints": [even("zone"), even("rack", order=1)],
            },
            "spec.spreadConstraints[0].order",
            "required",
        ),
        (
            {
                "numberOfClusters": 2,
                "spreadConstraints": [even("zone", order=1), even("rack", order=1)],
            },
            "spec.spreadConstraints[1].order",
            "duplicate",
        ),
        (
            {
                "spreadConstraints": [
                    {"type": "Affinity", "topologyKey": "zone", "maxSkew": 1}
                ]
            },
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
                    "configurations": [
                        {"scoreCoordinate": {"type": "AddOn", "builtIn": "Steady"}}
                    ]
                }
            },
            "spec.prioritizerPolicy.configurations[0].scoreCoordinate.addOn",
            "required",
        ),
        (
            {
                "predicates": [
                    {
                        "requiredClusterSelector": {
                            "claimSelector": {"matchLabels": {"a": "b"}}
                        }
                    }
                ]
            },
            "spec.predicates[0].requiredClusterSelector.claimSelector.matchLabels",
            "unknown-field",
        ),
    ],
)
def test_refuses(spec: dict[str, Any], path: str, code: str) -> None:
    assert (path, code) in errors_in(spec)


def test_domain_weights_do_not_go_with_a_hard_limit() -> None:
    weights = {"domainWeights": {"zone": {"a": 2}}}

    with pytest.raises(
        InvalidManifest, match="not allowed for a key with domain weights"
    ):
        parse_ocm_placement(
            document(numberOfClusters=2, spreadConstraints=[even("zone", maxSkew=1)]),
            options=weights,
        )


@pytest.mark.parametrize(
    ("spec", "path", "message"),
    [
        (
            {
                "decisionStrategy": {
                    "groupStrategy": {"clustersPerDecisionGroup": "20%"}
                }
            },
            "spec.decisionStrategy",
            "ignored: decision groups do not change which clusters are selected",
        ),
    ],
)
def test_says_what_it_does_not_act_on(
    spec: dict[str, Any], path: str, message: str
) -> None:
    parsed = parse_ocm_placement(document(**spec))

    assert [(warning.path, warning.message) for warning in parsed.warnings] == [
        (path, message)
    ]


def test_a_warning_has_the_path_of_its_document_in_front() -> None:
    (warning,) = parse_ocm_placement(
        document(decisionStrategy={"groupStrategy": {}}), path="placement"
    ).warnings

    assert warning.path == "placement.spec.decisionStrategy"


def test_null_is_as_good_as_absent() -> None:
    toleration = {"key": "a", "operator": "Exists", "tolerationSeconds": None}

    parsed = parse_ocm_placement(
        document(clusterSets=None, decisionStrategy=None, tolerations=[toleration])
    )

    assert (len(parsed.policy.tolerations), parsed.warnings) == (1, ())


@pytest.mark.parametrize(
    ("fields", "effect"),
    [
        ({}, ""),
        ({"effect": "NoSelect"}, "NoSchedule"),
        ({"effect": "NoSchedule"}, "NoSchedule"),
    ],
)
def test_tolerates_hard_taints(fields: dict[str, str], effect: str) -> None:
    parsed = parse_ocm_placement(
        document(tolerations=[{"key": "a", "value": "b", **fields}])
    )

    assert [
        (toleration.key, toleration.value, toleration.effect)
        for toleration in parsed.policy.tolerations
    ] == [("a", "b", effect)]


def test_tolerations_keep_their_effect_and_their_end() -> None:
    tolerations = [
        {"key": "a", "operator": "Exists", "effect": "NoSelectIfNew"},
        {"key": "a", "operator": "Exists", "tolerationSeconds": 5},
        {"key": "a", "operator": "Exists", "tolerationSeconds": 10},
    ]

    policy = parse_ocm_placement(document(tolerations=tolerations)).policy

    assert [
        (toleration.effect, toleration.toleration_seconds)
        for toleration in policy.tolerations
    ] == [
        ("NoSelectIfNew", None),
        ("", 5),
        ("", 10),
    ]


@pytest.mark.parametrize(
    ("toleration", "field", "code"),
    [
        (
            {"key": "a", "operator": "Exists", "tolerationSecond": 1},
            "tolerationSecond",
            "unknown-field",
        ),
        ({"key": "a", "value": "x" * 1025}, "value", "too-long"),
        (
            {"key": "a", "operator": "Exists", "tolerationSeconds": "1"},
            "tolerationSeconds",
            "wrong-type",
        ),
        (
            {"key": "a", "operator": "Exists", "effect": "NoExecute"},
            "effect",
            "not-one-of",
        ),
        ({"key": "a b", "operator": "Exists"}, "key", "bad-format"),
        ({"value": "a"}, "key", "required"),
    ],
)
def test_refuses_a_toleration(
    toleration: dict[str, Any], field: str, code: str
) -> None:
    good = {"key": "a", "operator": "Exists", "effect": "NoSelectIfNew"}

    assert errors_in({"tolerations": [good, toleration]}) == [
        (f"spec.tolerations[1].{field}", code)
    ]


@pytest.mark.parametrize(
    ("spec", "path", "code"),
    [
        ({"clusterSets": "prod"}, "spec.clusterSets", "wrong-type"),
        ({"clusterSets": [1]}, "spec.clusterSets[0]", "wrong-type"),
        ({"decisionStrategy": "groups"}, "spec.decisionStrategy", "wrong-type"),
        ({"predicates": [{}] * 11}, "spec.predicates", "too-many"),
        (
            {
                "numberOfClusters": 2,
                "spreadConstraints": [even("a b", order=2), even("zone", order=1)],
            },
            "spec.spreadConstraints[0].topologyKey",
            "bad-format",
        ),
        (
            merged({"topologyKey": "zone"}, {"topologyKey": "-"}),
            "spec.spreadPolicy.spreadConstraints[1].topologyKey",
            "bad-format",
        ),
        (
            {"spreadConstraints": [affinity("zone"), affinity("a b")]},
            "spec.spreadConstraints[1].topologyKey",
            "bad-format",
        ),
        (
            {"spreadConstraints": [affinity("zone"), affinity("rack", rows=1001)]},
            "spec.spreadConstraints[1].topologyWeights",
            "too-many",
        ),
        (
            {
                "spreadConstraints": [
                    affinity("zone", rows=600),
                    affinity("rack", rows=600),
                ]
            },
            "spec.spreadConstraints[1].topologyWeights",
            "too-many",
        ),
    ],
)
def test_points_into_the_document(spec: dict[str, Any], path: str, code: str) -> None:
    assert (path, code) in errors_in(spec)


def test_names_of_claims_are_held_to_the_form_of_label_keys() -> None:
    claim = {"topologyKeyType": "Claim"}

    bad = errors_in({"spreadConstraints": [even("my claim", maxSkew=1) | claim]})
    good = parse_ocm_placement(
        document(numberOfClusters=2, spreadConstraints=[even("x.example.com") | claim])
    )

    assert ("spec.spreadConstraints[0].topologyKey", "bad-format") in bad
    assert good.policy.topology_spread_constraints[0].topology_key_type == "Claim"


def test_eleven_predicates_are_more_than_it_reads() -> None:
    with pytest.raises(
        InvalidManifest, match="Too many: 11: must have at most 10 items"
    ):
        parse_ocm_placement(document(predicates=[{}] * 11))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {
                "predicates": [
                    {
                        "requiredClusterSelector": {
                            "celSelector": {"celExpressions": ["true", "x == 1"]}
                        }
                    }
                ]
            },
            "spec.predicates[0].requiredClusterSelector.celSelector.celExpressions[1]: "
            "Invalid value: does not compile: undeclared reference to 'x' (allowed: a CEL expression)",
        ),
        (
            prioritizer(type="AddOn"),
            "spec.prioritizerPolicy.configurations[0].scoreCoordinate.addOn: Required value",
        ),
        (
            prioritizer(type="BuiltIn"),
            "spec.prioritizerPolicy.configurations[0].scoreCoordinate.builtIn: Required value",
        ),
    ],
)
def test_names_what_would_be_misconfigured(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidManifest) as raised:
        parse_ocm_placement(document(**spec))

    assert str(raised.value).splitlines() == [message]


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (
            {
                "numberOfClusters": 2,
                "spreadConstraints": [
                    even("zone", order=2, maxSkew=1),
                    affinity("rack"),
                    even("rack", order=1),
                ],
            },
            "spec.spreadConstraints[0].maxSkew",
        ),
        (
            merged(
                {"topologyKey": "rack"},
                {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
            ),
            "spec.spreadPolicy.spreadConstraints[1].maxSkew",
        ),
    ],
)
def test_a_limit_beside_domain_weights_is_shown_in_the_document(
    spec: dict[str, Any], path: str
) -> None:
    weights = {"domainWeights": {"zone": {"a": 2}}}

    assert errors_in(spec, options=weights) == [(path, "conflict")]
    assert errors_in(spec, options=weights, path="placement") == [
        (f"placement.{path}", "conflict")
    ]


def test_external_replaces_the_limits_of_rolling_updates_in_each_kind_of_placement() -> (
    None
):
    rolling = {"rollingUpdate": {"maxUnavailable": 1}, "applyStrategy": {"type": "X"}}
    fleet = external_document(
        {"kind": "A", "spec": {"policy": {}, "strategy": rolling}}
    )
    plain = external_document({"kind": "A", "spec": {}})
    ocm = external_document(ocm_document(annotations={STRATEGY: rolling}))

    assert fleet["spec"] == {
        "policy": {},
        "strategy": {"applyStrategy": {"type": "X"}, "type": "External"},
    }
    assert plain["spec"] == {"strategy": {"type": "External"}}
    assert json.loads(ocm["metadata"]["annotations"][STRATEGY]) == {
        "applyStrategy": {"type": "X"},
        "type": "External",
    }
