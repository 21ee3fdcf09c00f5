"""All recorded cases of OCM's own scheduler come out equal (`conformance/ocm-scheduler.jsonl`).

A document that a hub calls misconfigured is refused, with the path of its field. So are a few whose mistake
has no effect yet: the hub overlooks it until a cluster joins or a weight changes.
"""

import json
import lzma
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fleetui.apimachinery.errors import InvalidManifest
from placements.services.simulate.cases import answers
from placements.services.simulate.request import read_fleet

FOLDER = Path(__file__).parents[2] / "data" / "conformance"
FILES = (
    FOLDER / "ocm-scheduler-basic.jsonl.xz",
    FOLDER / "ocm-scheduler-full.jsonl.xz",
)
SHARED = Path("/work/shared/conformance/ocm-scheduler.jsonl")
CONFIGURATION = "placement.spec.prioritizerPolicy.configurations"
REFUSED_WITHOUT_EFFECT = {
    "ocm-misconfigured-0829": f"{CONFIGURATION}[1].scoreCoordinate.builtIn",
    "ocm-misconfigured-1173": f"{CONFIGURATION}[1].scoreCoordinate.builtIn",
    "ocm-misconfigured-1373": "placement.spec.tolerations[1].value",
    "ocm-misconfigured-2077": f"{CONFIGURATION}[0].scoreCoordinate.builtIn",
    "ocm-misconfigured-2373": f"{CONFIGURATION}[0].scoreCoordinate.addOn",
    "ocm-misconfigured-2797": f"{CONFIGURATION}[0].scoreCoordinate.addOn",
    "ocm-misconfigured-2965": f"{CONFIGURATION}[0].scoreCoordinate.addOn",
    "ocm-vector-cel-no-clusters-not-compiled": (
        "placement.spec.predicates[0].requiredClusterSelector.celSelector.celExpressions[0]"
    ),
    "ocm-vector-unknown-builtin-of-weight-0-is-nothing": (
        f"{CONFIGURATION}[0].scoreCoordinate.builtIn"
    ),
}
"""Mistakes that have no effect: a weight of 0, no available cluster, a toleration that no cluster needs."""


def _lines() -> Iterator[bytes]:
    for file in FILES:
        yield from lzma.decompress(file.read_bytes()).splitlines()


def _comparable(result: Mapping[str, Any], case: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a case is compared by: all but the scores of single prioritizers and OCM's own words."""
    compared = {key: one for key, one in result.items() if key not in ("id", "scores")}
    if "conditions" in compared:
        compared["conditions"] = sorted(
            (condition["type"], condition["status"], condition["reason"])
            for condition in result["conditions"]
        )
    if (
        "ranked" in compared
        and case["placement"]["spec"].get("numberOfClusters") is None
    ):
        compared["ranked"] = sorted(result["ranked"])
    return compared


def _differing(lines: list[bytes]) -> tuple[dict[str, Any], dict[str, str], int]:
    """Return the cases that differ, the refused ones without effect, the count of misconfigured ones."""
    differing: dict[str, Any] = {}
    refused: dict[str, str] = {}
    misconfigured = 0
    for line, answer in zip(lines, answers(lines), strict=True):
        case = json.loads(line)
        expected = case["expect"]
        if expected.get("outcome") == "Misconfigured":
            misconfigured += 1
            path = answer.get("error", {}).get("path", "")
            if not path.startswith("placement.spec."):
                differing[case["id"]] = answer
        elif "error" in answer:
            refused[case["id"]] = answer["error"]["path"]
        else:
            outcome = _comparable(answer, case)
            # Without available clusters the hub records no filters.
            wanted = _comparable(expected, case)
            late = {"afterPredicates", "afterTaints", "totals"} - wanted.keys()
            outcome = {key: one for key, one in outcome.items() if key not in late}
            if outcome != wanted:
                differing[case["id"]] = (outcome, wanted)
    return differing, refused, misconfigured


def test_every_recorded_case_comes_out_equal() -> None:
    differing, refused, misconfigured = _differing(list(_lines()))

    assert differing == {}
    assert refused.items() <= REFUSED_WITHOUT_EFFECT.items()
    assert misconfigured == 63


@pytest.mark.skipif(not SHARED.exists(), reason="the recording is not on this machine")
def test_all_902_cases_come_out_equal() -> None:
    lines = SHARED.read_bytes().splitlines()

    differing, refused, misconfigured = _differing(lines)

    assert (len(lines), misconfigured) == (902, 82)
    assert differing == {}
    assert refused == REFUSED_WITHOUT_EFFECT


@pytest.mark.parametrize(
    ("kind", "version", "fields"),
    [
        ("ManagedClusterSet", "v1beta2", {"metadata": {}}),
        ("ManagedClusterSetBinding", "v1beta2", {"metadata": {"namespace": "shop"}}),
        ("ManagedCluster", "v1", {}),
        (
            "AddOnPlacementScore",
            "v1alpha1",
            {"metadata": {"name": "usage"}, "status": 1},
        ),
        (
            "PlacementDecision",
            "v1beta1",
            {"metadata": {"name": "web"}, "status": {"decisions": [{}]}},
        ),
    ],
)
def test_an_object_without_what_a_hub_requires_is_refused_with_its_place(
    kind: str, version: str, fields: dict[str, Any]
) -> None:
    version = f"cluster.open-cluster-management.io/{version}"
    document = {"apiVersion": version, "kind": kind, **fields}
    placement = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {}}
    case = {"objects": [document], "placement": placement}

    (answer,) = answers([json.dumps(case).encode()])

    assert (answer["error"]["path"], answer["error"]["code"]) == (
        "objects[0]",
        "bad-format",
    )
    with pytest.raises(InvalidManifest, match=f"no valid {kind}"):
        read_fleet(json.dumps(document).encode())
