"""Cases of OCM's own scheduler come out equal: filters, totals and the clusters that are decided.

They are of `conformance/ocm-scheduler.jsonl`: all `basic` ones (labels, claims, taints, the four built-in
prioritizers and earlier decisions, with all clusters in one set), and those of the other kinds that need no
AddOn scores, no CEL, no taints that end or other effects; of their sets the result is taken as given.
"""

import json
import lzma
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clusters.case_manifest import parse_clusters
from clusters.fleet import Fleet
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.model import Semantics
from placements.engine.scheduling.candidates import candidates_of
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.scheduler import schedule
from placements.manifests.binding import parse_case_bindings
from placements.manifests.ocm_placement import parse_ocm_placement

FOLDER = Path(__file__).parents[2] / "data" / "conformance"
BASIC, OTHERS = (
    FOLDER / "ocm-scheduler-basic.jsonl.xz",
    FOLDER / "ocm-scheduler-full.jsonl.xz",
)
REFUSED_THOUGH_UNUSED = {
    "ocm-misconfigured-0829": "spec.prioritizerPolicy.configurations[1].scoreCoordinate.builtIn",
    "ocm-misconfigured-1173": "spec.prioritizerPolicy.configurations[1].scoreCoordinate.builtIn",
    "ocm-misconfigured-1373": "spec.tolerations[1].value",
    "ocm-misconfigured-2077": "spec.prioritizerPolicy.configurations[0].scoreCoordinate.builtIn",
    "ocm-vector-unknown-builtin-of-weight-0-is-nothing": (
        "spec.prioritizerPolicy.configurations[0].scoreCoordinate.builtIn"
    ),
}
"""Mistakes that the hub overlooks while they have no effect: a prioritizer of weight 0, a toleration that no
cluster needs. They are refused, with their field."""
SPREAD = "ocm-vector-spread-policy-has-no-effect"
"""Upstream reads no `spreadPolicy`; here it spreads, as its proposal says."""
PLACEMENT = "cluster.open-cluster-management.io/placement"


def _cluster(document: Mapping[str, Any]) -> dict[str, Any]:
    metadata = document["metadata"]
    status = document.get("status", {})
    taints = document.get("spec", {}).get("taints", [])
    return {
        "name": metadata["name"],
        "labels": metadata.get("labels", {}),
        "taints": [
            {"key": one["key"], "value": one.get("value", ""), "effect": "NoSchedule"}
            for one in taints
        ],
        "properties": {
            one["name"]: one["value"] for one in status.get("clusterClaims", [])
        },
        "resourceUsage": {
            key: status.get(key, {}) for key in ("capacity", "allocatable")
        },
    }


def _cycle(case: Mapping[str, Any]) -> Cycle:
    own = []
    others: Counter[str] = Counter()
    placement = case["placement"]
    name, namespace = (placement["metadata"][key] for key in ("name", "namespace"))
    for one in case["objects"]:
        if one["kind"] == "PlacementDecision":
            names = [
                each["clusterName"]
                for each in one.get("status", {}).get("decisions", [])
            ]
            metadata = one["metadata"]
            is_own = metadata["namespace"] == namespace
            is_own = is_own and metadata.get("labels", {}).get(PLACEMENT) == name
            if is_own:
                own += names
            else:
                others.update(names)
    clusters = [
        _cluster(one) for one in case["objects"] if one["kind"] == "ManagedCluster"
    ]
    # A count of zero, since without any the decisions of this hub would be counted.
    balance = {one["name"]: 0 for one in clusters} | others
    parsed = parse_ocm_placement(placement, options={"balance": balance})
    bindings = [
        {"cluster": one, "state": "Bound", "policy": "current"}
        for one in dict.fromkeys(own)
    ]
    return Cycle(
        Fleet(parse_clusters(clusters)),
        parsed.policy,
        parse_case_bindings(bindings),
        Semantics.OCM,
        parsed.options.to_plain(),
    )


def _outcome(case: Mapping[str, Any]) -> dict[str, Any]:
    cycle = _cycle(case)
    candidates = candidates_of(cycle)
    passes = candidates.passes.nonzero()[0].tolist()
    chosen = list(schedule(cycle).picked_names)
    return {
        "afterTaints": [cycle.fleet.names[at] for at in passes],
        "totals": {
            cycle.fleet.names[at]: int(candidates.preference[at]) for at in passes
        },
        "ranked": chosen
        if cycle.policy.number_of_clusters is not None
        else sorted(chosen),
    }


def _cases(file: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, lzma.decompress(file.read_bytes()).splitlines())


def _expected(case: Mapping[str, Any]) -> dict[str, Any]:
    expected = {key: case["expect"][key] for key in ("afterTaints", "totals", "ranked")}
    if case["placement"]["spec"].get("numberOfClusters") is None:
        expected["ranked"] = sorted(expected["ranked"])
    return expected


def test_every_basic_case_comes_out_equal() -> None:
    differing = {}
    count = 0
    for case in _cases(BASIC):
        count += 1
        expected = _expected(case)
        outcome = _outcome(case)
        if outcome != expected:
            differing[case["id"]] = (outcome, expected)

    assert count == 270
    assert differing == {}


def test_the_cases_of_other_kinds_that_need_nothing_more_come_out_equal() -> None:
    differing, refused, misconfigured = {}, {}, {}
    count = 0
    for case in _cases(OTHERS):
        available = case["expect"]["available"]
        case["objects"] = [
            one
            for one in case["objects"]
            if one["kind"] != "ManagedCluster" or one["metadata"]["name"] in available
        ]
        if case["expect"]["outcome"] == "Misconfigured":
            misconfigured[case["id"]] = _refusal(case)
        elif case["id"] in REFUSED_THOUGH_UNUSED:
            refused[case["id"]] = _refusal(case)
        elif case["id"] != SPREAD:
            count += 1
            outcome, expected = _outcome(case), _expected(case)
            if outcome != expected:
                differing[case["id"]] = (outcome, expected)

    assert (count, len(misconfigured)) == (174, 63)
    assert differing == {}
    assert refused == REFUSED_THOUGH_UNUSED
    assert [
        name for name, path in misconfigured.items() if not path.startswith("spec.")
    ] == []


def _refusal(case: Mapping[str, Any]) -> str:
    """Return the field for which a document is refused; "" where it is decided."""
    try:
        parse_ocm_placement(case["placement"])
    except InvalidManifest as error:
        return error.errors[0].path
    return ""
