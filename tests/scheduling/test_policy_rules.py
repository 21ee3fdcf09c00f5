"""Every rule on `spec.policy`: what is taken, and what is refused with which path and code."""

from typing import Any

import pytest

from placements.scheduling.faults import Caveat, Faults
from placements.scheduling.policy import (
    PlacementPolicy,
    PlacementType,
    Semantics,
    WhenUnsatisfiable,
    parse_policy,
    parse_semantics,
    policy_caveats,
)
from tests.builders import expression, labelled, measured, prefer, sorted_by, spread, tolerate
from tests.documents import faults_in

Raw = dict[str, Any]

TERMS = "policy.affinity.clusterAffinity.requiredDuringSchedulingIgnoredDuringExecution.clusterSelectorTerms"
PREFERRED = "policy.affinity.clusterAffinity.preferredDuringSchedulingIgnoredDuringExecution"
SPREAD = "policy.topologySpreadConstraints"


def requiring(*terms: Any) -> Raw:
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"clusterSelectorTerms": list(terms)}}
    return {"placementType": "PickAll", "affinity": {"clusterAffinity": affinity}}


def preferring(*terms: Any) -> Raw:
    affinity = {"preferredDuringSchedulingIgnoredDuringExecution": list(terms)}
    return pick_n(affinity={"clusterAffinity": affinity})


def pick_n(**fields: Any) -> Raw:
    return {"placementType": "PickN", "numberOfClusters": 3, **fields}


def spreading(*constraints: Any) -> Raw:
    return pick_n(topologySpreadConstraints=list(constraints))


def tolerating(*tolerations: Any) -> Raw:
    return {"tolerations": list(tolerations)}


def measuring(*requirements: tuple[str, str, str]) -> Raw:
    found = [
        {"name": name, "operator": operator, "values": [value]} for name, operator, value in requirements
    ]
    return requiring({"propertySelector": {"matchExpressions": found}})


ACCEPTED = {
    "nothing": None,
    "an empty policy": {},
    "nulls": {"placementType": None, "affinity": None, "tolerations": None, "numberOfClusters": None},
    "PickN of none": pick_n(numberOfClusters=0),
    "the largest number": pick_n(numberOfClusters=2**31 - 1),
    "PickFixed of none": {"placementType": "PickFixed", "clusterNames": []},
    "names with dots": {"placementType": "PickFixed", "clusterNames": ["a.b-c.d", "0"]},
    "the longest name": {"placementType": "PickFixed", "clusterNames": ["a" * 63]},
    "a hundred names": {"placementType": "PickFixed", "clusterNames": [f"c{i}" for i in range(100)]},
    "empty lists where a value would be forbidden": {"clusterNames": [], "topologySpreadConstraints": []},
    "ten required terms": requiring(*[labelled(a="b")] * 10),
    "no required terms": requiring(),
    "an empty required term": requiring({}),
    "an empty label value": requiring(labelled(a="")),
    "a qualified label key": requiring(expression("topology.kubernetes.io/zone", "Exists")),
    "weights at both ends": preferring(prefer(-100, labelled(a="b")), prefer(100, sorted_by("a"))),
    "a resource property": measuring(("resources.kubernetes-fleet.io/total-cpu", "Ge", "4")),
    "an extended resource": measuring(("resources.kubernetes-fleet.io/available-nvidia.com/gpu", "Gt", "0")),
    "a property path": measuring(("kubernetes.azure.com/vm-sizes/Standard_D8s_v3/count", "Ge", "2")),
    "a plain property": measuring(("cost", "Eq", "1e3")),
    "bounds that leave one value": measuring(("a", "Ge", "1Gi"), ("a", "Le", "1024Mi")),
    "many different values": measuring(("a", "Ne", "1"), ("a", "Ne", "2"), ("b", "Lt", "1")),
    "a constraint with its defaults": spreading({"topologyKey": "zone"}),
    "sixty constraints": spreading(*[spread("zone")] * 60),
    "every toleration there is": tolerating(
        {"operator": "Exists"},
        tolerate(key="a", operator="Exists", effect="NoSchedule"),
        tolerate(key="a", value="b"),
        tolerate(key="a", effect=""),
    ),
}


@pytest.mark.parametrize("raw", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_takes(raw: object) -> None:
    policy = parse_policy(raw)

    assert parse_policy(policy.canonical()) == policy


REFUSED: dict[str, tuple[object, str, str]] = {
    "text": ("PickAll", "policy", "wrong-type"),
    "an unknown type": ({"placementType": "PickSome"}, "policy.placementType", "not-one-of"),
    "a type in other letters": ({"placementType": "pickall"}, "policy.placementType", "not-one-of"),
    "a misspelt field": ({"number": 3}, "policy.number", "unknown-field"),
    "an attribute's name": ({"placement_type": "PickAll"}, "policy.placement_type", "unknown-field"),
    "an unknown field that is null": ({"clusters": None}, "policy.clusters", "unknown-field"),
    "PickN without a number": ({"placementType": "PickN"}, "policy.numberOfClusters", "required"),
    "a negative number": (pick_n(numberOfClusters=-1), "policy.numberOfClusters", "out-of-range"),
    "a number over 31 bits": (pick_n(numberOfClusters=2**31), "policy.numberOfClusters", "out-of-range"),
    "a number in quotes": (pick_n(numberOfClusters="3"), "policy.numberOfClusters", "wrong-type"),
    "a fraction": (pick_n(numberOfClusters=3.0), "policy.numberOfClusters", "wrong-type"),
    "true for a number": (pick_n(numberOfClusters=True), "policy.numberOfClusters", "wrong-type"),
    "a number with PickAll": ({"numberOfClusters": 0}, "policy.numberOfClusters", "forbidden-for-type"),
    "names with PickAll": ({"clusterNames": ["a"]}, "policy.clusterNames", "forbidden-for-type"),
    "names with PickN": (pick_n(clusterNames=["a"]), "policy.clusterNames", "forbidden-for-type"),
    "spread with PickAll": ({"topologySpreadConstraints": [spread("a")]}, SPREAD, "forbidden-for-type"),
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
        {**preferring(prefer(1, labelled(a="b"))), "placementType": "PickAll", "numberOfClusters": None},
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
    "eleven required terms": (requiring(*[labelled(a="b")] * 11), TERMS, "too-many"),
    "required without terms": (
        {"affinity": {"clusterAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}},
        TERMS,
        "required",
    ),
    "a sorter that is required": (
        requiring(sorted_by("a")),
        f"{TERMS}[0].propertySorter",
        "misplaced",
    ),
    "a property selector that is preferred": (
        preferring(prefer(1, measured("a", "Eq", "1"))),
        f"{PREFERRED}[0].preference.propertySelector",
        "misplaced",
    ),
    "a weight too large": (
        preferring(prefer(101, labelled(a="b"))),
        f"{PREFERRED}[0].weight",
        "out-of-range",
    ),
    "a weight too small": (
        preferring(prefer(-101, labelled(a="b"))),
        f"{PREFERRED}[0].weight",
        "out-of-range",
    ),
    "no weight": (preferring({"preference": {}}), f"{PREFERRED}[0].weight", "required"),
    "no preference": (preferring({"weight": 1}), f"{PREFERRED}[0].preference", "required"),
    "an unknown sort order": (
        preferring(prefer(1, sorted_by("a", "Up"))),
        f"{PREFERRED}[0].preference.propertySorter.sortOrder",
        "not-one-of",
    ),
    "a sorter without an order": (
        preferring(prefer(1, {"propertySorter": {"name": "a"}})),
        f"{PREFERRED}[0].preference.propertySorter.sortOrder",
        "required",
    ),
    "a bad label key": (
        requiring({"labelSelector": {"matchLabels": {"a b": "c"}}}),
        f'{TERMS}[0].labelSelector.matchLabels["a b"]',
        "bad-format",
    ),
    "a bad label value": (
        requiring(labelled(a="b c")),
        f"{TERMS}[0].labelSelector.matchLabels.a",
        "bad-format",
    ),
    "a long label value": (
        requiring(labelled(a="b" * 64)),
        f"{TERMS}[0].labelSelector.matchLabels.a",
        "too-long",
    ),
    "a null label value": (
        requiring({"labelSelector": {"matchLabels": {"a": None}}}),
        f"{TERMS}[0].labelSelector.matchLabels.a",
        "wrong-type",
    ),
    "a number for a label value": (
        requiring({"labelSelector": {"matchLabels": {"example.com/level": 1}}}),
        f'{TERMS}[0].labelSelector.matchLabels["example.com/level"]',
        "wrong-type",
    ),
    "In without values": (
        requiring(expression("a", "In")),
        f"{TERMS}[0].labelSelector.matchExpressions[0].values",
        "too-few",
    ),
    "NotIn without values": (
        requiring({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn"}]}}),
        f"{TERMS}[0].labelSelector.matchExpressions[0].values",
        "too-few",
    ),
    "Exists with values": (
        requiring(expression("a", "Exists", "b")),
        f"{TERMS}[0].labelSelector.matchExpressions[0].values",
        "conflict",
    ),
    "DoesNotExist with values": (
        requiring(expression("a", "DoesNotExist", "b")),
        f"{TERMS}[0].labelSelector.matchExpressions[0].values",
        "conflict",
    ),
    "an unknown label operator": (
        requiring(expression("a", "Gt", "1")),
        f"{TERMS}[0].labelSelector.matchExpressions[0].operator",
        "not-one-of",
    ),
    "a bad value in a list": (
        requiring(expression("a", "In", "b", "-")),
        f"{TERMS}[0].labelSelector.matchExpressions[0].values[1]",
        "bad-format",
    ),
    "no property value": (
        requiring({"propertySelector": {"matchExpressions": [{"name": "a", "operator": "Eq"}]}}),
        f"{TERMS}[0].propertySelector.matchExpressions[0].values",
        "required",
    ),
    "an empty list of property values": (
        requiring(
            {"propertySelector": {"matchExpressions": [{"name": "a", "operator": "Eq", "values": []}]}}
        ),
        f"{TERMS}[0].propertySelector.matchExpressions[0].values",
        "too-few",
    ),
    "two property values": (
        requiring(
            {
                "propertySelector": {
                    "matchExpressions": [{"name": "a", "operator": "Eq", "values": ["1", "1"]}]
                }
            }
        ),
        f"{TERMS}[0].propertySelector.matchExpressions[0].values",
        "too-many",
    ),
    "a property value that is no quantity": (
        measuring(("a", "Eq", "lots")),
        f"{TERMS}[0].propertySelector.matchExpressions[0].values[0]",
        "bad-format",
    ),
    "an unknown property operator": (
        measuring(("a", "==", "1")),
        f"{TERMS}[0].propertySelector.matchExpressions[0].operator",
        "not-one-of",
    ),
    "a resource property without its figure": (
        measuring(("resources.kubernetes-fleet.io/cpu", "Eq", "1")),
        f"{TERMS}[0].propertySelector.matchExpressions[0].name",
        "bad-format",
    ),
    "an unknown figure of a resource": (
        measuring(("resources.kubernetes-fleet.io/used-cpu", "Eq", "1")),
        f"{TERMS}[0].propertySelector.matchExpressions[0].name",
        "bad-format",
    ),
    "a property path with a gap": (
        measuring(("example.com//count", "Eq", "1")),
        f"{TERMS}[0].propertySelector.matchExpressions[0].name",
        "bad-format",
    ),
    "no topology key": (spreading({"maxSkew": 1}), f"{SPREAD}[0].topologyKey", "required"),
    "an empty topology key": (spreading(spread("")), f"{SPREAD}[0].topologyKey", "required"),
    "a skew of 0": (spreading(spread("zone", 0)), f"{SPREAD}[0].maxSkew", "out-of-range"),
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
    "Equal without a key": (tolerating(tolerate(value="b")), "policy.tolerations[0].key", "required"),
    "a bad toleration key": (tolerating(tolerate(key="a/b/c")), "policy.tolerations[0].key", "bad-format"),
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
        tolerating(tolerate(key="a", value="b"), tolerate(key="a", operator="Equal", value="b")),
        "policy.tolerations[1]",
        "duplicate",
    ),
}


@pytest.mark.parametrize(("raw", "path", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_refuses(raw: object, path: str, code: str) -> None:
    assert faults_in(parse_policy, raw) == [(path, code)]


UNSATISFIABLE = {
    "two equalities": [("a", "Eq", "1"), ("a", "Eq", "2")],
    "equal and not equal": [("a", "Ne", "1k"), ("a", "Eq", "1000")],
    "an empty interval": [("a", "Gt", "5"), ("a", "Lt", "5")],
    "nothing between neighbours": [("a", "Gt", "1n"), ("a", "Lt", "2n")],
    "a half-open point": [("a", "Ge", "5"), ("a", "Lt", "5")],
    "an equality outside": [("a", "Le", "5"), ("a", "Eq", "6")],
    "one value left, and that one excluded": [("a", "Ge", "5"), ("a", "Ne", "5"), ("a", "Le", "5")],
}


@pytest.mark.parametrize("requirements", UNSATISFIABLE.values(), ids=UNSATISFIABLE.keys())
def test_requirements_on_one_property_must_leave_a_value(requirements: list[tuple[str, str, str]]) -> None:
    last = len(requirements) - 1

    found = faults_in(parse_policy, measuring(*requirements))

    path = f"{TERMS}[0].propertySelector.matchExpressions[{last}]"
    assert found == [(path, "unsatisfiable-requirements")]


def test_requirements_of_different_terms_are_not_joined() -> None:
    parse_policy(requiring(measured("a", "Gt", "5"), measured("a", "Lt", "5")))


def test_unsatisfiable_requirements_are_seen_beside_a_malformed_one() -> None:
    found = faults_in(parse_policy, measuring(("a", "Gt", "5"), ("a", "Eq", "lots"), ("a", "Lt", "5")))

    path = f"{TERMS}[0].propertySelector.matchExpressions"
    assert found == [(f"{path}[1].values[0]", "bad-format"), (f"{path}[2]", "unsatisfiable-requirements")]


def test_all_faults_come_at_once_in_document_order() -> None:
    raw = {
        "tolerations": [{"operator": "Exists", "value": "x"}, {"effect": "x", "key": "a"}],
        "placementType": "PickN",
        "clusterNames": ["a", "a", 1],
        "topologySpreadConstraints": [{"maxSkew": 0, "skew": 1}],
    }

    assert faults_in(parse_policy, raw) == [
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


def test_a_list_for_one_object_is_refused_and_looked_into() -> None:
    raw = preferring({"weight": 1, "preference": [{"labelSelector": {"matchLabels": {"a": 1}, "b": 2}}]})

    assert faults_in(parse_policy, raw) == [
        (f"{PREFERRED}[0].preference", "wrong-type"),
        (f"{PREFERRED}[0].preference[0].labelSelector.matchLabels.a", "wrong-type"),
        (f"{PREFERRED}[0].preference[0].labelSelector.b", "unknown-field"),
    ]


def test_not_exists_is_answered_with_the_right_word() -> None:
    with pytest.raises(Faults, match="write DoesNotExist"):
        parse_policy(requiring(expression("a", "NotExists")))


def test_a_misspelt_field_is_answered_with_the_likely_one() -> None:
    with pytest.raises(Faults, match="did you mean maxSkew"):
        parse_policy(spreading({"topologyKey": "zone", "maxskew": 1}))


def test_a_number_for_text_is_answered_with_quotes() -> None:
    with pytest.raises(Faults, match='put it in quotes: "1"'):
        parse_policy(requiring({"labelSelector": {"matchLabels": {"level": 1}}}))


def test_our_own_limit_says_that_it_is_ours() -> None:
    with pytest.raises(Faults, match="a limit of this console"):
        parse_policy(spreading(*[spread("zone")] * 61))


def test_paths_begin_where_the_caller_says() -> None:
    assert faults_in(parse_policy, {"x": 1}, path="spec.policy") == [("spec.policy.x", "unknown-field")]


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
    raw = spreading({"topologyKey": "zone", "minDomains": 2, "whenUnsatisfiable": "ScheduleAnyway"})

    found = faults_in(parse_policy, raw, semantics=Semantics.KUBERNETES)

    assert found == [(f"{SPREAD}[0].minDomains", "conflict")]


def test_absent_policy_and_plain_pick_all_are_the_same() -> None:
    forms = [None, {}, {"placementType": "PickAll"}, {"tolerations": []}]

    assert {str(parse_policy(form).canonical()) for form in forms} == {"{'placementType': 'PickAll'}"}


def test_canonical_form_fills_defaults_and_keeps_order() -> None:
    policy = parse_policy(
        pick_n(
            topologySpreadConstraints=[{"topologyKey": "zone"}, {"topologyKey": "region", "maxSkew": 2}],
            tolerations=[{"value": "x", "key": "b"}, {"key": "a", "operator": "Exists"}],
        )
    )

    assert policy.canonical() == {
        "placementType": "PickN",
        "numberOfClusters": 3,
        "topologySpreadConstraints": [
            {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"},
            {"topologyKey": "region", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"},
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
    assert policy.topology_spread_constraints[0].when_unsatisfiable is WhenUnsatisfiable.DO_NOT_SCHEDULE
    assert (policy.number_of_clusters, more.number_of_clusters) == (3, 4)


def test_terms_are_flat_tuples_even_when_there_are_none() -> None:
    policy = parse_policy(requiring(labelled(a="b")))

    assert [term.label_selector and term.label_selector.match_labels for term in policy.required_terms] == [
        {"a": "b"}
    ]
    assert (policy.preferred_terms, PlacementPolicy().required_terms) == ((), ())


def test_warns_about_what_does_nothing() -> None:
    policy = parse_policy(preferring(prefer(0, labelled(a="b")), {"weight": 5, "preference": {}}))

    assert policy_caveats(policy) == (
        Caveat("weight-zero", f"{PREFERRED}[0].weight", "a weight of 0 changes nothing; the term is skipped"),
        Caveat("empty-term", f"{PREFERRED}[1].preference", "asks nothing, so every cluster gets the weight"),
    )


def test_warns_about_an_empty_list_of_names() -> None:
    policy = parse_policy({"placementType": "PickFixed", "clusterNames": []})

    assert [(caveat.code, caveat.path) for caveat in policy_caveats(policy)] == [
        ("no-cluster-names", "policy.clusterNames")
    ]


@pytest.mark.parametrize(
    ("name", "code"),
    [("ocm", "semantics-not-supported"), ("kubernetes", "semantics-not-supported"), ("x", "not-one-of")],
)
def test_semantics_that_are_not_offered_are_refused(name: str, code: str) -> None:
    assert faults_in(parse_semantics, name) == [("semantics", code)]


def test_semantics_are_fleet_unless_named() -> None:
    assert [parse_semantics(None), parse_semantics("kubefleet")] == [Semantics.FLEET, Semantics.KUBEFLEET]
