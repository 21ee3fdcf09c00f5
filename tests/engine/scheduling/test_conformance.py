"""The conformance cases come out equal (`docs/reference/cases.md`); the files are kept compressed."""

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from placements.services.simulate.cases import answers

FOLDER = Path(__file__).parents[2] / "data" / "conformance"
SIZES = {
    "guide-examples": 29,
    "fleet-topology-spread": 200,
    "kubefleet-topology-spread": 372,
    "kubefleet-scenarios": 400,
    "kubernetes-topology-spread": 171,
    "ocm-spread": 236,
    "quantities-and-names": 52,
    "ocm-documents": 11,
}


def _cases(name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    lines = lzma.decompress((FOLDER / f"{name}.jsonl.xz").read_bytes()).splitlines()
    return zip(map(json.loads, lines), answers(lines), strict=True)


def _differences(case: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in case["expect"]:
        return {} if "error" in answer else answer
    if "steps" not in case:
        return _unequal(case["expect"], answer)
    found: dict[str, Any] = {}
    for number, (expected, actual) in enumerate(
        zip(case["expect"], answer["steps"], strict=True)
    ):
        step = _unequal(_by_cluster(expected), _by_cluster({"error": None, **actual}))
        if step:
            found[f"step {number}"] = step
    return found


def _by_cluster(step: dict[str, Any]) -> dict[str, Any]:
    decisions = {decision["cluster"]: decision for decision in step["decisions"]}
    assert len(decisions) == len(step["decisions"]), "a cluster is listed twice"
    return {
        **{key: step[key] for key in step if key != "cycles"},
        "decisions": decisions,
    }


def _unequal(expected: dict[str, Any], actual: dict[str, Any]) -> dict[str, Any]:
    differing = (
        key for key, want in expected.items() if not _is_equal(actual.get(key), want)
    )
    return {key: (actual.get(key), expected[key]) for key in differing}


def _is_equal(actual: Any, want: Any) -> bool:
    """Compare numbers within 1e-6."""
    if isinstance(want, dict) and isinstance(actual, dict):
        return want.keys() == actual.keys() and all(
            _is_equal(actual[key], want[key]) for key in want
        )
    if isinstance(want, list) and isinstance(actual, list):
        return len(want) == len(actual) and all(map(_is_equal, actual, want))
    if isinstance(want, float) or isinstance(actual, float):
        return isinstance(actual, (int, float)) and abs(actual - want) <= 1e-6
    return bool(actual == want)


@pytest.mark.parametrize("name", SIZES)
def test_every_case_comes_out_equal(name: str) -> None:
    found = {case["id"]: _differences(case, answer) for case, answer in _cases(name)}

    assert len(found) == SIZES[name]
    assert {
        case: differences for case, differences in found.items() if differences
    } == {}


def _live_differences(
    expected: dict[str, Any], actual: dict[str, Any], listed: dict[str, Any]
) -> dict[str, Any]:
    """Compare a step that a real hub decided; `listed` are the clusters that it lists as not selected."""
    found = {}
    sides = {}
    for side, step in (("hub", expected), ("here", actual)):
        sides[side] = {
            binding["cluster"]: (
                binding["state"]
                == "Unscheduled",  # a rollout may have bound it within the step
                *(
                    binding[key]
                    for key in ("policy", "affinityScore", "topologySpreadScore")
                ),
            )
            for binding in step["bindings"]
        }
    if not _is_equal(
        *(
            {name: list(one) for name, one in sides[side].items()}
            for side in ("here", "hub")
        )
    ):
        found["bindings"] = sides
    if not _is_equal(actual["condition"], expected["condition"]):
        found["condition"] = {"here": actual["condition"], "hub": expected["condition"]}
    mine = {
        decision["cluster"]: decision
        for decision in actual["decisions"]
        if decision["selected"]
    }
    theirs = {
        decision["cluster"]: decision
        for decision in expected["decisions"]
        if decision["selected"]
    }
    if not _is_equal(mine, theirs):
        found["selected"] = {"here": mine, "hub": theirs}
    rest = {
        decision["cluster"]: decision
        for decision in expected["decisions"]
        if not decision["selected"]
    }
    if expected["list"] != "forgotten" and not _is_equal(listed, rest):
        found["not selected"] = {"here": listed, "hub": rest}
    return found


def test_what_a_real_hub_decided_comes_out_equal() -> None:
    found: dict[str, Any] = {}
    steps = 0
    for case, answer in _cases("kubefleet-live"):
        before: dict[str, Any] = {}
        for number, (expected, actual) in enumerate(
            zip(case["expect"], answer["steps"], strict=True)
        ):
            steps += 1
            fresh = {
                decision["cluster"]: decision
                for decision in actual["decisions"]
                if not decision["selected"]
            }
            listed = {"fresh": fresh, "kept": before, "forgotten": {}}[expected["list"]]
            if differences := _live_differences(expected, actual, listed):
                found[f"{case['id']} step {number}"] = differences
            before = listed

    assert found == {}
    assert steps == 198
