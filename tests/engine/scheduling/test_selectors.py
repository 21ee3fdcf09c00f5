"""Label and property selectors over a whole fleet (`rules/scheduler.md#selectors-and-quantities`)."""

from typing import Any

import pytest

from clusters.fleet import Fleet
from placements.engine.scheduling.selectors import (
    Malformed,
    TermsColumn,
    match_any_term,
    match_labels,
)
from tests.builders import cluster, expression, fleet, labelled, measured, pick_all

FLEET = fleet(
    cluster("critical", system="critical", region="east"),
    cluster("dev", system="dev"),
    cluster("empty", system=""),
    cluster("none"),
)


def _matching(one: Fleet, *terms: dict[str, Any]) -> list[str]:
    passes = match_any_term(pick_all(required=terms).required_terms, one).passes
    return [name for name, matches in zip(one.names, passes, strict=True) if matches]


def _terms(one: Fleet, *terms: dict[str, Any]) -> TermsColumn:
    return match_any_term(pick_all(required=terms).required_terms, one)


@pytest.mark.parametrize(
    ("term", "matching"),
    [
        (labelled(system="critical"), ["critical"]),
        (labelled(system=""), ["empty"]),
        (labelled(system="critical", region="east"), ["critical"]),
        (labelled(system="critical", region="west"), []),
        (expression("system", "In", "critical", "dev"), ["critical", "dev"]),
        (expression("system", "In", "nowhere"), []),
        (expression("system", "NotIn", "critical"), ["dev", "empty", "none"]),
        (expression("system", "Exists"), ["critical", "dev", "empty"]),
        (expression("system", "DoesNotExist"), ["none"]),
        (expression("unknown", "NotIn", "x"), ["critical", "dev", "empty", "none"]),
        ({"labelSelector": {}}, ["critical", "dev", "empty", "none"]),
        ({}, ["critical", "dev", "empty", "none"]),
    ],
)
def test_matches_labels(term: dict[str, Any], matching: list[str]) -> None:
    assert _matching(FLEET, term) == matching


def test_an_absent_selector_matches_all() -> None:
    assert match_labels(None, FLEET).all()


def test_labels_and_expressions_must_all_hold() -> None:
    both = {
        "labelSelector": {
            "matchLabels": {"region": "east"},
            "matchExpressions": [{"key": "system", "operator": "Exists"}],
        }
    }
    one = fleet(
        cluster("r1", region="east", system="x"),
        cluster("r2", region="east"),
        cluster("r3", system="x"),
    )

    assert _matching(one, both) == ["r1"]


def test_one_of_several_terms_is_enough() -> None:
    assert _matching(
        FLEET, labelled(system="dev"), expression("system", "DoesNotExist")
    ) == ["dev", "none"]


def test_without_terms_everything_matches() -> None:
    assert _matching(FLEET) == list(FLEET.names)


def test_labels_and_properties_of_one_term_must_both_hold() -> None:
    one = fleet(
        cluster("large-east", region="east", properties={"cpu": "8"}),
        cluster("large-west", region="west", properties={"cpu": "8"}),
        cluster("small-east", region="east", properties={"cpu": "2"}),
    )

    assert _matching(
        one, {**labelled(region="east"), **measured("cpu", "Ge", "4")}
    ) == ["large-east"]


def test_an_absent_property_never_matches_not_even_ne() -> None:
    one = fleet("without", cluster("with", properties={"cpu": "2"}))

    assert _matching(one, measured("cpu", "Ne", "4")) == ["with"]


def test_properties_compare_as_quantities() -> None:
    one = fleet(
        cluster("a", properties={"memory": "1Gi"}),
        cluster("b", properties={"memory": "1000Mi"}),
    )

    assert _matching(one, measured("memory", "Eq", "1024Mi")) == ["a"]


def test_reports_a_property_that_is_no_quantity() -> None:
    one = fleet(
        cluster("a", properties={"cpu": "lots"}), cluster("b", properties={"cpu": "2"})
    )

    column = _terms(one, measured("cpu", "Ge", "1"))

    assert column.passes.tolist() == [False, True]
    assert column.malformed == (Malformed("a", "cpu", "lots"),)


def test_an_earlier_matching_term_hides_a_malformed_property() -> None:
    one = fleet(cluster("a", tier="edge", properties={"cpu": "lots"}))

    hidden = _terms(one, labelled(tier="edge"), measured("cpu", "Ge", "1"))
    seen = _terms(one, measured("cpu", "Ge", "1"), labelled(tier="edge"))

    assert hidden.malformed == ()
    assert seen.malformed == (Malformed("a", "cpu", "lots"),)
    assert hidden.passes.all()
    assert seen.passes.all()


def test_labels_that_do_not_match_hide_a_malformed_property() -> None:
    one = fleet(cluster("a", properties={"cpu": "lots"}))

    assert (
        _terms(one, {**labelled(tier="edge"), **measured("cpu", "Ge", "1")}).malformed
        == ()
    )


def test_an_earlier_requirement_that_fails_hides_a_malformed_property() -> None:
    one = fleet(cluster("a", properties={"nodes": "1", "cpu": "lots"}))
    needs = [
        {"name": "nodes", "operator": "Gt", "values": ["5"]},
        {"name": "cpu", "operator": "Gt", "values": ["5"]},
    ]

    in_order = _terms(one, {"propertySelector": {"matchExpressions": needs}})
    reversed_order = _terms(
        one, {"propertySelector": {"matchExpressions": needs[::-1]}}
    )

    assert in_order.malformed == ()
    assert reversed_order.malformed == (Malformed("a", "cpu", "lots"),)
