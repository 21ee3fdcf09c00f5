"""Every rule on the affinity of a policy: label selectors, property selectors, sorters, weights."""

from typing import Any

import pytest

from fleetui.apimachinery.errors import InvalidManifest
from placements.manifests.policy import PlacementPolicy, parse_policy
from tests.builders import expression, labelled, measured, prefer, sorted_by
from tests.documents import errors_in, measuring, preferring, requiring

TERMS = "policy.affinity.clusterAffinity.requiredDuringSchedulingIgnoredDuringExecution.clusterSelectorTerms"
PREFERRED = (
    "policy.affinity.clusterAffinity.preferredDuringSchedulingIgnoredDuringExecution"
)

ACCEPTED: dict[str, Any] = {
    "ten required terms": requiring(*[labelled(a="b")] * 10),
    "no required terms": requiring(),
    "an empty required term": requiring({}),
    "an empty label value": requiring(labelled(a="")),
    "a qualified label key": requiring(
        expression("topology.kubernetes.io/zone", "Exists")
    ),
    "weights at both ends": preferring(
        prefer(-100, labelled(a="b")), prefer(100, sorted_by("a"))
    ),
    "a resource property": measuring(
        ("resources.kubernetes-fleet.io/total-cpu", "Ge", "4")
    ),
    "a property path": measuring(
        ("kubernetes.azure.com/vm-sizes/Standard_D8s_v3/count", "Ge", "2")
    ),
    "a plain property": measuring(("cost", "Eq", "1e3")),
    "bounds that leave one value": measuring(("a", "Ge", "1Gi"), ("a", "Le", "1024Mi")),
    "many different values": measuring(
        ("a", "Ne", "1"), ("a", "Ne", "2"), ("b", "Lt", "1")
    ),
}


@pytest.mark.parametrize("raw", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_takes(raw: object) -> None:
    policy = parse_policy(raw)

    assert parse_policy(policy.to_plain()) == policy


REFUSED: dict[str, tuple[object, str, str]] = {
    "an extended resource, which makes a second slash": (
        measuring(
            ("resources.kubernetes-fleet.io/available-nvidia.com/gpu", "Gt", "0")
        ),
        f"{TERMS}[0].propertySelector.matchExpressions[0].name",
        "bad-format",
    ),
    "eleven required terms": (requiring(*[labelled(a="b")] * 11), TERMS, "too-many"),
    "required without terms": (
        {
            "affinity": {
                "clusterAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {}
                }
            }
        },
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
    "no preference": (
        preferring({"weight": 1}),
        f"{PREFERRED}[0].preference",
        "required",
    ),
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
        requiring(
            {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn"}]}}
        ),
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
        requiring(
            {
                "propertySelector": {
                    "matchExpressions": [{"name": "a", "operator": "Eq"}]
                }
            }
        ),
        f"{TERMS}[0].propertySelector.matchExpressions[0].values",
        "required",
    ),
    "an empty list of property values": (
        requiring(
            {
                "propertySelector": {
                    "matchExpressions": [{"name": "a", "operator": "Eq", "values": []}]
                }
            }
        ),
        f"{TERMS}[0].propertySelector.matchExpressions[0].values",
        "too-few",
    ),
    "two property values": (
        requiring(
            {
                "propertySelector": {
                    "matchExpressions": [
                        {"name": "a", "operator": "Eq", "values": ["1", "1"]}
                    ]
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
}


@pytest.mark.parametrize(("raw", "path", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_refuses(raw: object, path: str, code: str) -> None:
    assert errors_in(parse_policy, raw) == [(path, code)]


UNSATISFIABLE = {
    "two equalities": [("a", "Eq", "1"), ("a", "Eq", "2")],
    "equal and not equal": [("a", "Ne", "1k"), ("a", "Eq", "1000")],
    "an empty interval": [("a", "Gt", "5"), ("a", "Lt", "5")],
    "nothing between neighbours": [("a", "Gt", "1n"), ("a", "Lt", "2n")],
    "a half-open point": [("a", "Ge", "5"), ("a", "Lt", "5")],
    "an equality outside": [("a", "Le", "5"), ("a", "Eq", "6")],
    "one value left, and that one excluded": [
        ("a", "Ge", "5"),
        ("a", "Ne", "5"),
        ("a", "Le", "5"),
    ],
}


@pytest.mark.parametrize(
    "requirements", UNSATISFIABLE.values(), ids=UNSATISFIABLE.keys()
)
def test_requirements_on_one_property_must_leave_a_value(
    requirements: list[tuple[str, str, str]],
) -> None:
    last = len(requirements) - 1

    found = errors_in(parse_policy, measuring(*requirements))

    path = f"{TERMS}[0].propertySelector.matchExpressions[{last}]"
    assert found == [(path, "unsatisfiable-requirements")]


def test_requirements_of_different_terms_are_not_joined() -> None:
    parse_policy(requiring(measured("a", "Gt", "5"), measured("a", "Lt", "5")))


def test_unsatisfiable_requirements_are_seen_beside_a_malformed_one() -> None:
    found = errors_in(
        parse_policy, measuring(("a", "Gt", "5"), ("a", "Eq", "lots"), ("a", "Lt", "5"))
    )

    path = f"{TERMS}[0].propertySelector.matchExpressions"
    assert found == [
        (f"{path}[1].values[0]", "bad-format"),
        (f"{path}[2]", "unsatisfiable-requirements"),
    ]


def test_a_list_for_one_object_is_refused_and_looked_into() -> None:
    raw = preferring(
        {
            "weight": 1,
            "preference": [{"labelSelector": {"matchLabels": {"a": 1}, "b": 2}}],
        }
    )

    assert errors_in(parse_policy, raw) == [
        (f"{PREFERRED}[0].preference", "wrong-type"),
        (f"{PREFERRED}[0].preference[0].labelSelector.matchLabels.a", "wrong-type"),
        (f"{PREFERRED}[0].preference[0].labelSelector.b", "unknown-field"),
    ]


def test_not_exists_is_answered_with_the_right_word() -> None:
    with pytest.raises(InvalidManifest, match='Did you mean "DoesNotExist"'):
        parse_policy(requiring(expression("a", "NotExists")))


def test_a_number_for_text_is_answered_with_quotes() -> None:
    with pytest.raises(InvalidManifest, match="put it in quotes"):
        parse_policy(requiring({"labelSelector": {"matchLabels": {"level": 1}}}))


def test_terms_are_flat_tuples_even_when_there_are_none() -> None:
    policy = parse_policy(requiring(labelled(a="b")))

    assert [
        term.label_selector and term.label_selector.match_labels
        for term in policy.required_terms
    ] == [{"a": "b"}]
    assert (policy.preferred_terms, PlacementPolicy().required_terms) == ((), ())
