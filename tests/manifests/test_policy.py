"""Every rule on `spec.policy` but its affinity: what is taken, what is refused, with path and code."""

from typing import Any

import pytest

from fleetui.apimachinery.errors import InvalidManifest, ManifestWarning
from fleetui.apimachinery.model import Semantics, parse_semantics
from placements.manifests.policy import (
    PlacementType,
    TopologySpreadConstraint,
    WhenUnsatisfiable,
    parse_policy,
    policy_warnings,
)
from tests.builders import labelled, prefer, spread, tolerate
from tests.documents import errors_in, pick_n, preferring, spreading, tolerating

PREFERRED = (
    "policy.affinity.clusterAffinity.preferredDuringSchedulingIgnoredDuringExecution"
)
SPREAD = "policy.topologySpreadConstraints"

ACCEPTED: dict[str, Any] = {
    "nothing": None,
    "an empty policy": {},
    "nulls": {
        "placementType": None,
        "affinity": None,
        "tolerations": None,
        "numberOfClusters": None,
    },
    "PickN of none": pick_n(numberOfClusters=0),
    "the largest number": pick_n(numberOfClusters=2**31 - 1),
    "PickFixed of none": {"placementType": "PickFixed", "clusterNames": []},
    "names with dots": {"placementType": "PickFixed", "clusterNames": ["a.b-c.d", "0"]},
    "the longest name": {"placementType": "PickFixed", "clusterNames": ["a" * 63]},
    "a hundred names": {
        "placementType": "PickFixed",
        "clusterNames": [f"c{i}" for i in range(100)],
    },
    "empty lists where a value would be forbidden": {
        "clusterNames": [],
        "topologySpreadConstraints": [],
    },
    "a constraint with its defaults": spreading({"topologyKey": "zone"}),
    "sixty constraints": spreading(*[spread("zone")] * 60),
    "every toleration there is": tolerating(
        {"operator": "Exists"},
        tolerate(key="a", operator="Exists", effect="NoSchedule"),
        tolerate(key="a", value="b"),
        tolerate(key="a", effect=""),
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("raw", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_takes(raw: object) -> None:
    policy = parse_policy(raw)

    assert parse_policy(policy.to_plain()) == policy


REFUSED: dict[str, tuple[object, str, str]] = {
    "text": ("PickAll", "policy", "wrong-type"),
    "an unknown type": (
        {"placementType": "PickSome"},
        "policy.placementType",
        "not-one-of",
    ),
    "a type in other letters": (
        {"placementType": "pickall"},
        "policy.placementType",
        "not-one-of",
    ),
    "a misspelt field": ({"number": 3}, "policy.number", "unknown-field"),
    "an attribute's name": (
        {"placement_type": "PickAll"},
        "policy.placement_type",
        "unknown-field",
    ),
    "an unknown field that is null": (
        {"clusters": None},
        "policy.clusters",
        "unknown-field",
    ),
    "PickN without a number": (
        {"placementType": "PickN"},
        "policy.numberOfClusters",
        "required",
    ),
    "a negative number": (
        pick_n(numberOfClusters=-1),
        "policy.numberOfClusters",
        "out-of-range",
    ),
    "a number over 31 bits": (
        pick_n(numberOfClusters=2**31),
        "policy.numberOfClusters",
        "out-of-range",
    ),
    "a number in quotes": (
        pick_n(numberOfClusters="3"),
        "policy.numberOfClusters",
        "wrong-type",
    ),
    "a fraction": (
        pick_n(numberOfClusters=3.0),
        "policy.numberOfClusters",
        "wrong-type",
    ),
    "true for a number": (
        pick_n(numberOfClusters=True),
        "policy.numberOfClusters",
        "wrong-type",
    ),
    "a number with PickAll": (
        {"numberOfClusters": 0},
        "policy.numberOfClusters",
        "forbidden-for-type",
    ),
    "names with PickAll": (
        {"clusterNames": ["a"]},
        "policy.clusterNames",
        "forbidden-for-type",
    ),
    "names with PickN": (
        pick_n(clusterNames=["a"]),
        "policy.clusterNames",
        "forbidden-for-type",
    ),
    "spread with PickAll": (
        {"topologySpreadConstraints": [spread("a")]},
        SPREAD,
        "forbidden-for-type",
    ),
    "affinity with PickFixed": (
        {"placementType": "PickFixed", "affinity": {}},
        "policy.affinity",
        "forbidden-for-type",
    ),
    "tolerations with PickFixed": (
        {"placementType": "PickFixed", "tolerations": [{"operator": "Exists"}]},
        "policy.tolerations",
        "forbidden-for-type",
    ),
    "preferences with PickAll": (
        {
            **preferring(prefer(1, labelled(a="b"))),
            "placementType": "PickAll",
            "numberOfClusters": None,
        },
        PREFERRED,
        "forbidden-for-type",
    ),
    "a name in capitals": (
        {"placementType": "PickFixed", "clusterNames": ["a", "B"]},
        "policy.clusterNames[1]",
        "bad-format",
    ),
    "a name too long": (
        {"placementType": "PickFixed", "clusterNames": ["a" * 64]},
        "policy.clusterNames[0]",
        "too-long",
    ),
    "a name twice": (
        {"placementType": "PickFixed", "clusterNames": ["a", "b", "a"]},
        "policy.clusterNames[2]",
        "duplicate",
    ),
    "no name but null": (
        {"placementType": "PickFixed", "clusterNames": [None]},
        "policy.clusterNames[0]",
        "wrong-type",
    ),
    "too many names": (
        {"placementType": "PickFixed", "clusterNames": [f"c{i}" for i in range(101)]},
        "policy.clusterNames",
        "too-many",
    ),
    "a name instead of a list": (
        {"placementType": "PickFixed", "clusterNames": "a"},
        "policy.clusterNames",
        "wrong-type",
    ),
    "no topology key": (
        spreading({"maxSkew": 1}),
        f"{SPREAD}[0].topologyKey",
        "required",
    ),
    "an empty topology key": (
        spreading(spread("")),
        f"{SPREAD}[0].topologyKey",
        "required",
    ),
    "a skew of 0": (
        spreading(spread("zone", 0)),
        f"{SPREAD}[0].maxSkew",
        "out-of-range",
    ),
    "a misspelt effect": (
        spreading({"topologyKey": "zone", "whenUnsatisfiable": "DoNotschedule"}),
        f"{SPREAD}[0].whenUnsatisfiable",
        "not-one-of",
    ),
    "sixty-one constraints": (spreading(*[spread("zone")] * 61), SPREAD, "too-many"),
    "minDomains": (
        spreading({"topologyKey": "zone", "minDomains": 2}),
        f"{SPREAD}[0].minDomains",
        "field-of-other-semantics",
    ),
    "nodeAffinityPolicy": (
        spreading({"topologyKey": "zone", "nodeAffinityPolicy": "Honor"}),
        f"{SPREAD}[0].nodeAffinityPolicy",
        "field-of-other-semantics",
    ),
    "nodeTaintsPolicy": (
        spreading({"topologyKey": "zone", "nodeTaintsPolicy": "Ignore"}),
        f"{SPREAD}[0].nodeTaintsPolicy",
        "field-of-other-semantics",
    ),
    "too many tolerations": (
        tolerating(*[tolerate(key=f"k{i}", operator="Exists") for i in range(101)]),
        "policy.tolerations",
        "too-many",
    ),
    "Exists with a value": (
        tolerating(tolerate(key="a", operator="Exists", value="b")),
        "policy.tolerations[0].value",
        "conflict",
    ),
    "Equal without a key": (
        tolerating(tolerate(value="b")),
        "policy.tolerations[0].key",
        "required",
    ),
    "a bad toleration key": (
        tolerating(tolerate(key="a/b/c")),
        "policy.tolerations[0].key",
        "bad-format",
    ),
    "a bad toleration value": (
        tolerating(tolerate(key="a", value="b c")),
        "policy.tolerations[0].value",
        "bad-format",
    ),
    "an unknown effect": (
        tolerating(tolerate(key="a", effect="NoExecute")),
        "policy.tolerations[0].effect",
        "not-one-of",
    ),
    "an unknown toleration operator": (
        tolerating(tolerate(key="a", operator="In")),
        "policy.tolerations[0].operator",
        "not-one-of",
    ),
    "a toleration twice, once with its default": (
        tolerating(
            tolerate(key="a", value="b"), tolerate(key="a", operator="Equal", value="b")
        ),
        "policy.tolerations[1]",
        "duplicate",
    ),
}


@pytest.mark.parametrize(("raw", "path", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_refuses(raw: object, path: str, code: str) -> None:
    assert errors_in(parse_policy, raw) == [(path, code)]


def test_all_faults_come_at_once_in_document_order() -> None:
    raw = {
        "tolerations": [
            {"operator": "Exists", "value": "x"},
            {"effect": "x", "key": "a"},
        ],
        "placementType": "PickN",
        "clusterNames": ["a", "a", 1],
        "topologySpreadConstraints": [{"maxSkew": 0, "skew": 1}],
    }

    assert errors_in(parse_policy, raw) == [
        ("policy.tolerations[0].value", "conflict"),
        ("policy.tolerations[1].effect", "not-one-of"),
        ("policy.clusterNames", "forbidden-for-type"),
        ("policy.clusterNames[1]", "duplicate"),
        ("policy.clusterNames[2]", "wrong-type"),
        (f"{SPREAD}[0].maxSkew", "out-of-range"),
        (f"{SPREAD}[0].skew", "unknown-field"),
        (f"{SPREAD}[0].topologyKey", "required"),
        ("policy.numberOfClusters", "required"),
    ]


def test_a_misspelt_field_is_answered_with_the_likely_one() -> None:
    with pytest.raises(InvalidManifest, match='Did you mean "maxSkew"'):
        parse_policy(spreading({"topologyKey": "zone", "maxskew": 1}))


def test_our_own_limit_says_that_it_is_ours() -> None:
    with pytest.raises(InvalidManifest, match="a limit of this console"):
        parse_policy(spreading(*[spread("zone")] * 61))


def test_paths_begin_where_the_caller_says() -> None:
    assert errors_in(parse_policy, {"x": 1}, path="spec.policy") == [
        ("spec.policy.x", "unknown-field")
    ]


def test_fields_of_kubernetes_semantics_are_taken_there() -> None:
    constraint = {
        "topologyKey": "zone",
        "minDomains": 2,
        "nodeAffinityPolicy": "Honor",
        "nodeTaintsPolicy": "Ignore",
    }

    policy = parse_policy(spreading(constraint), semantics=Semantics.KUBERNETES)

    assert policy.topology_spread_constraints[0].min_domains == 2


def test_a_number_of_domains_needs_a_hard_constraint() -> None:
    raw = spreading(
        {"topologyKey": "zone", "minDomains": 2, "whenUnsatisfiable": "ScheduleAnyway"}
    )

    found = errors_in(parse_policy, raw, semantics=Semantics.KUBERNETES)

    assert found == [(f"{SPREAD}[0].minDomains", "conflict")]


def test_absent_policy_and_plain_pick_all_are_the_same() -> None:
    forms: list[Any] = [None, {}, {"placementType": "PickAll"}, {"tolerations": []}]

    assert {str(parse_policy(form).to_plain()) for form in forms} == {
        "{'placementType': 'PickAll'}"
    }


def test_canonical_form_fills_defaults_and_keeps_order() -> None:
    policy = parse_policy(
        pick_n(
            topologySpreadConstraints=[
                {"topologyKey": "zone"},
                {"topologyKey": "region", "maxSkew": 2},
            ],
            tolerations=[
                {"value": "x", "key": "b"},
                {"key": "a", "operator": "Exists"},
            ],
        )
    )

    assert policy.to_plain() == {
        "placementType": "PickN",
        "numberOfClusters": 3,
        "topologySpreadConstraints": [
            {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"},
            {
                "topologyKey": "region",
                "maxSkew": 2,
                "whenUnsatisfiable": "DoNotSchedule",
            },
        ],
        "tolerations": [
            {"key": "b", "operator": "Equal", "value": "x"},
            {"key": "a", "operator": "Exists"},
        ],
    }


def test_only_the_number_stays_out_of_what_makes_a_new_snapshot() -> None:
    three, five = parse_policy(pick_n()), parse_policy(pick_n(numberOfClusters=5))

    assert three.without_number() == five.without_number() == {"placementType": "PickN"}


def test_values_are_typed_and_can_be_copied_with_a_change() -> None:
    policy = parse_policy(spreading({"topologyKey": "zone"}))

    more = policy.model_copy(update={"number_of_clusters": 4})

    assert policy.placement_type is PlacementType.PICK_N
    assert (
        policy.topology_spread_constraints[0].when_unsatisfiable
        is WhenUnsatisfiable.DO_NOT_SCHEDULE
    )
    assert (policy.number_of_clusters, more.number_of_clusters) == (3, 4)


def test_warns_about_what_does_nothing() -> None:
    policy = parse_policy(
        preferring(prefer(0, labelled(a="b")), {"weight": 5, "preference": {}})
    )

    assert policy_warnings(policy) == (
        ManifestWarning(
            "weight-zero", f"{PREFERRED}[0].weight", "a weight of 0 has no effect"
        ),
        ManifestWarning(
            "empty-term",
            f"{PREFERRED}[1].preference",
            "empty term: every cluster gets the weight",
        ),
    )


def test_warns_about_an_empty_list_of_names() -> None:
    policy = parse_policy({"placementType": "PickFixed", "clusterNames": []})

    assert [(warning.code, warning.path) for warning in policy_warnings(policy)] == [
        ("no-cluster-names", "policy.clusterNames")
    ]


@pytest.mark.parametrize(
    ("name", "code"),
    [("x", "not-one-of"), (7, "wrong-type")],
)
def test_unknown_semantics_are_refused(name: object, code: str) -> None:
    assert errors_in(parse_semantics, name) == [("semantics", code)]


def test_semantics_are_fleet_unless_named() -> None:
    assert [parse_semantics(None), parse_semantics("kubefleet")] == [
        Semantics.FLEET,
        Semantics.KUBEFLEET,
    ]


def test_code_may_use_attribute_names_where_documents_may_not() -> None:
    constraint = TopologySpreadConstraint(topology_key="zone", max_skew=2)

    assert parse_policy(spreading(spread("zone", 2))).topology_spread_constraints == (
        constraint,
    )
