"""Cases of OCM's own scheduler come out equal: filters, totals and the clusters that are decided.

They are the `basic` ones of `conformance/ocm-scheduler.jsonl`: labels, claims, taints, the four built-in
prioritizers and earlier decisions, with all clusters in one set.
"""

import json
import lzma
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clusters.case_manifest import parse_clusters
from clusters.fleet import Fleet
from fleetui.apimachinery.model import Semantics
from placements.engine.scheduling.candidates import candidates_of
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.scheduler import schedule
from placements.manifests.binding import parse_case_bindings
from placements.manifests.ocm_placement import parse_ocm_placement

FILE = Path(__file__).parents[2] / "data" / "conformance" / "ocm-scheduler-basic.jsonl.xz"
PLACEMENT = "cluster.open-cluster-management.io/placement"


def _cluster(document: Mapping[str, Any]) -> dict[str, Any]:
    metadata = document["metadata"]
    status = document.get("status", {})
    taints = document.get("spec", {}).get("taints", [])
    return {
        "name": metadata["name"],
        "labels": metadata.get("labels", {}),
        "taints": [
            {"key": one["key"], "value": one.get("value", ""), "effect": "NoSchedule"} for one in taints
        ],
        "properties": {one["name"]: one["value"] for one in status.get("clusterClaims", [])},
        "resourceUsage": {key: status.get(key, {}) for key in ("capacity", "allocatable")},
    }


def _cycle(case: Mapping[str, Any]) -> Cycle:
    own = []
    others: Counter[str] = Counter()
    placement = case["placement"]
    name, namespace = (placement["metadata"][key] for key in ("name", "namespace"))
    for one in case["objects"]:
        if one["kind"] == "PlacementDecision":
            names = [each["clusterName"] for each in one.get("status", {}).get("decisions", [])]
            metadata = one["metadata"]
            is_own = metadata["namespace"] == namespace
            is_own = is_own and metadata.get("labels", {}).get(PLACEMENT) == name
            if is_own:
                own += names
            else:
                others.update(names)
    clusters = [_cluster(one) for one in case["objects"] if one["kind"] == "ManagedCluster"]
    # A count of zero, since without any the decisions of this hub would be counted.
    balance = {one["name"]: 0 for one in clusters} | others
    parsed = parse_ocm_placement(placement, options={"balance": balance})
    bindings = [{"cluster": one, "state": "Bound", "policy": "current"} for one in dict.fromkeys(own)]
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
        "totals": {cycle.fleet.names[at]: int(candidates.preference[at]) for at in passes},
        "ranked": chosen if cycle.policy.number_of_clusters is not None else sorted(chosen),
    }


def _cases() -> Iterator[dict[str, Any]]:
    return map(json.loads, lzma.decompress(FILE.read_bytes()).splitlines())


def test_every_basic_case_comes_out_equal() -> None:
    differing = {}
    count = 0
    for case in _cases():
        count += 1
        expected = {key: case["expect"][key] for key in ("afterTaints", "totals", "ranked")}
        if case["placement"]["spec"].get("numberOfClusters") is None:
            expected["ranked"] = sorted(expected["ranked"])
        outcome = _outcome(case)
        if outcome != expected:
            differing[case["id"]] = (outcome, expected)

    assert count == 270
    assert differing == {}
