"""A case says one thing only: what its semantics would pass over unsaid is refused."""

import json
from typing import Any

import pytest

from placements.services.simulate.cases import Answer, answers

POLICY = {"placementType": "PickN", "numberOfClusters": 1}
PLACEMENT = {
    "apiVersion": "cluster.open-cluster-management.io/v1alpha1",
    "kind": "Placement",
    "metadata": {"name": "web"},
    "spec": {"numberOfClusters": 1},
}


def _answer(**case: Any) -> Answer:
    (answer,) = answers([json.dumps({"clusters": [{"name": "a"}], **case}).encode()])
    return answer


@pytest.mark.parametrize(
    ("case", "path", "code"),
    [
        (
            {"semantics": "ocm", "placement": PLACEMENT, "policy": POLICY},
            "policy",
            "conflict",
        ),
        (
            {"semantics": "kubernetes", "placement": PLACEMENT},
            "placement",
            "field-of-other-semantics",
        ),
        ({"placement": PLACEMENT}, "placement", "field-of-other-semantics"),
        ({"policy": POLICY, "ocm": {"u": 2}}, "ocm", "field-of-other-semantics"),
        ({"semantics": "ocm", "polic": POLICY}, "polic", "unknown-field"),
        (
            {"semantics": "ocm", "policy": POLICY, "binding": []},
            "binding",
            "unknown-field",
        ),
        ({"semantics": "ocm", "policy": POLICY, "OCM": {}}, "OCM", "unknown-field"),
        ({"semantics": "ocm", "ocm": {"u": -1}}, "ocm.u", "out-of-range"),
        (
            {"semantics": "ocm", "ocm": {"balance": {"a": -1}}},
            "ocm.balance.a",
            "out-of-range",
        ),
        (
            {"semantics": "ocm", "ocm": {"domainWeights": {"z": {"x": 0}}}},
            "ocm.domainWeights.z.x",
            "out-of-range",
        ),
        (
            {"semantics": "ocm", "placement": PLACEMENT, "ocm": {"cpuWeight": 1}},
            "ocm.cpuWeight",
            "conflict",
        ),
    ],
)
def test_refuses(case: dict[str, Any], path: str, code: str) -> None:
    answer = _answer(id="x", **case)

    assert (answer["id"], answer["line"]) == ("x", 1)
    assert (answer["error"]["path"], answer["error"]["code"]) == (path, code)


@pytest.mark.parametrize(
    "case",
    [
        {"semantics": "ocm", "placement": PLACEMENT, "policy": None},
        {"policy": POLICY, "ocm": None, "placement": None},
        {"policy": POLICY, "source": "a guide", "tags": ["spread"], "expect": {}},
    ],
)
def test_takes_null_for_absent_and_lets_strange_keys_be(case: dict[str, Any]) -> None:
    assert _answer(**case)["picked"] == ["a"]


def test_a_failed_cycle_names_the_document() -> None:
    placement = {**PLACEMENT, "spec": {"numberOfClusters": 2}}

    answer = _answer(
        semantics="ocm", placement=placement, ocm={"unsatisfiable": "error"}
    )

    assert (answer["error"]["path"], answer["error"]["code"]) == (
        "placement.spec",
        "unsatisfiable",
    )
    assert "line" not in answer
