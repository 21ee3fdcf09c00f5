"""Serialization of decisions and fleets to bytes, and comparison of a stored decision with a repeated one.

Layout: four bytes with the length of a JSON header, the header, the arrays that it lists; all of it
compressed with zlib's fastest level, since higher ones cost ten times as much for the same size. Names and
evidence of filters are stored with the fleet, once per version.
"""

import json
import zlib
from collections.abc import Mapping
from datetime import datetime
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clusters.fleet import (
    Cluster,
    Eligibility,
    EligibilityKind,
    Fleet,
    ManagedObject,
    ResourceUsage,
    SeenNamespaces,
    Taint,
)
from clusters.managed_cluster import managed_from_plain, managed_to_plain
from fleetui.apimachinery.model import Semantics
from fleetui.errors import FleetError
from placements.engine.scheduling.candidates import Candidates, Picks
from placements.engine.scheduling.cycle import Batch, Cycle
from placements.engine.scheduling.decision import (
    ENGINE_VERSION,
    CycleKind,
    Decision,
    binding_facts,
    hub_facts,
)
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.selectors import Malformed
from placements.engine.scheduling.spread.base import Groups, Scores
from placements.manifests.binding import BindingState, PlacedBinding
from placements.manifests.policy import PlacementPolicy

Arrays = dict[str, NDArray[Any]]
_FASTEST = 1
_LENGTH_BYTES = 4


class UnreadableRecordError(FleetError, ValueError):
    """A stored record was written by another engine, or does not belong to this fleet."""

    status = 410
    problem_type = "unreadable-record"


def pack(decision: Decision) -> bytes:
    """Write a decision as bytes, without the fleet."""
    arrays = {name: _narrow(array) for name, array in _arrays(decision).items()}

    cycle, candidates = decision.cycle, decision.candidates
    header = {
        "engine": ENGINE_VERSION,
        "id": decision.id,
        "clusters": len(cycle.fleet),
        "semantics": cycle.semantics,
        "options": dict(cycle.options),
        "policy": cycle.policy.to_plain(),
        "bindings": [binding_facts(binding) for binding in cycle.live_bindings],
        "kind": decision.kind,
        "kept": decision.kept,
        "unscheduled": decision.unscheduled,
        "notFound": decision.not_found,
        "fulfilled": decision.is_fulfilled,
        "malformed": [
            [malformed.cluster, malformed.property, malformed.text]
            for malformed in decision.malformed
        ],
        "groups": None
        if candidates is None
        else [
            {"values": groups.values, "weights": groups.weights}
            for groups in candidates.groups
        ],
        "ranDry": None if decision.picks is None else decision.picks.ran_dry,
    }

    if cycle.namespace:
        header["namespace"] = cycle.namespace
    header |= hub_facts(cycle)
    if cycle.batch is not None:
        header |= {"batch": cycle.batch.to_plain(), "scores": decision.scores}
    header["arrays"] = [
        [name, array.dtype.str, len(array)] for name, array in arrays.items()
    ]
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    parts = (
        len(text).to_bytes(_LENGTH_BYTES, "big"),
        text,
        *(array.tobytes() for array in arrays.values()),
    )
    return zlib.compress(b"".join(parts), _FASTEST)


def unpack(blob: bytes, fleet: Fleet) -> Decision:
    """Return a stored decision, given the fleet it was made on. Raise UnreadableRecordError."""
    raw = zlib.decompress(blob)
    start = _LENGTH_BYTES + int.from_bytes(raw[:_LENGTH_BYTES], "big")
    header = json.loads(raw[_LENGTH_BYTES:start])
    if header["engine"] != ENGINE_VERSION:
        raise UnreadableRecordError(
            f"record of engine {header['engine']}, this one is {ENGINE_VERSION}"
        )
    if header["clusters"] != len(fleet):
        raise UnreadableRecordError(
            f"record of {header['clusters']} clusters, this fleet has {len(fleet)}"
        )
    arrays: Arrays = {}
    for name, dtype, length in header["arrays"]:
        arrays[name] = np.frombuffer(raw, dtype=dtype, count=length, offset=start)
        start += arrays[name].nbytes
    decision = _decision(header, arrays, fleet)
    if decision.id != header["id"]:
        raise UnreadableRecordError(
            f"record of {header['id']}, which is {decision.id} on this fleet"
        )
    return decision


def pack_fleet(fleet: Fleet) -> bytes:
    """Write a fleet as bytes: all that a decision on it may ever cite. Equal fleets have equal bytes.

    A cluster that collects its namespaces has a list more: their names, or null in it. One of a hub of Open
    Cluster Management has what the hub has of it after that, or after null.
    """
    rows = [
        [
            cluster.name,
            dict(cluster.labels),
            [[taint.key, taint.value, taint.effect] for taint in cluster.taints],
            dict(cluster.properties),
            [dict(usage.capacity), dict(usage.allocatable), dict(usage.available)],
            [cluster.eligibility.kind, cluster.eligibility.reason],
            *_optional_parts(cluster),
        ]
        for cluster, usage in ((cluster, cluster.usage) for cluster in fleet)
    ]
    text = json.dumps(rows, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return zlib.compress(text.encode(), _FASTEST)


def _optional_parts(cluster: Cluster) -> list[Any]:
    parts: list[Any] = []
    if cluster.namespaces is not None:
        names = cluster.namespaces.names
        parts = [[None if names is None else sorted(names)]]
    if cluster.managed is not None:
        return [*(parts or [None]), managed_to_plain(cluster.managed)]
    return parts


def unpack_fleet(blob: bytes) -> Fleet:
    rows = json.loads(zlib.decompress(blob))
    return Fleet(
        Cluster(
            name,
            labels,
            tuple(Taint(*taint) for taint in taints),
            properties,
            ResourceUsage(*usage),
            Eligibility(None if kind is None else EligibilityKind(kind), reason),
            *_read_parts(*parts),
        )
        for name, labels, taints, properties, usage, (kind, reason), *parts in rows
    )


def _read_parts(
    namespaces: list[list[str] | None] | None = None,
    managed: Mapping[str, Any] | None = None,
) -> tuple[SeenNamespaces | None, ManagedObject | None]:
    seen = None
    if namespaces is not None:
        (names,) = namespaces
        seen = SeenNamespaces(None if names is None else frozenset(names))
    return seen, managed_from_plain(managed)


def _arrays(decision: Decision) -> Arrays:
    arrays: Arrays = {"chosen": decision.chosen}
    if decision.verdicts is not None:
        arrays["verdicts"] = decision.verdicts
    if decision.candidates is not None and decision.picks is not None:
        candidates = decision.candidates
        arrays |= {
            f"spread{index}": column
            for index, column in enumerate(decision.picks.spread)
        }
        arrays["affinity"] = candidates.affinity
        if candidates.preference is not candidates.affinity:
            arrays["preference"] = candidates.preference
        arrays["wasHere"] = candidates.was_here
        arrays["placed"] = candidates.placed
        for index, groups in enumerate(candidates.groups):
            arrays[f"codes{index}"] = groups.codes
            if groups.families is not None and groups.family_of is not None:
                arrays |= {
                    f"families{index}": groups.families,
                    f"familyOf{index}": groups.family_of,
                }
    return arrays


def _narrow(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array with the smallest integers that hold the values, little end first on every machine."""
    if array.dtype == np.float64:
        return array.astype("<f8")
    low, high = int(array.min(initial=0)), int(array.max(initial=0))
    smallest = np.promote_types(np.min_scalar_type(low), np.min_scalar_type(high))
    return array.astype(smallest.newbyteorder("<"))


def _widen(array: NDArray[Any]) -> Scores:
    return (
        array.astype(np.float64) if array.dtype.kind == "f" else array.astype(np.int64)
    )


def _decision(header: Mapping[str, Any], arrays: Arrays, fleet: Fleet) -> Decision:
    cycle = Cycle(
        fleet,
        PlacementPolicy.from_plain(header["policy"]),  # validated before it was stored
        tuple(
            PlacedBinding(
                facts["cluster"],
                BindingState(facts["state"]),
                is_current=facts["policy"] == "current",
                topology_spread_score=tuple(spread)
                if isinstance(spread, list)
                else spread,
                affinity_score=facts["affinityScore"],
                previous_state=BindingState(facts["previousState"]),
            )
            for facts in header["bindings"]
            for spread in (facts["topologySpreadScore"],)
        ),
        Semantics(header["semantics"]),
        header["options"],
        header.get("namespace", ""),
        Batch(tuple(batch["leaves"]), tuple(batch["joins"]))
        if (batch := header.get("batch"))
        else None,
        datetime.fromisoformat(header["moment"]) if "moment" in header else None,
        header.get("clusterSets"),
    )

    candidates, picks = None, None
    if header["groups"] is not None:
        affinity = _widen(arrays["affinity"])
        candidates = Candidates(
            strategy=profile_of(cycle).strategy,
            constraints=cycle.policy.topology_spread_constraints,
            groups=tuple(
                _read_groups(facts, arrays, index)
                for index, facts in enumerate(header["groups"])
            ),
            failed=arrays["verdicts"].astype(np.uint8),
            affinity=affinity,
            preference=_widen(arrays["preference"])
            if "preference" in arrays
            else affinity,
            was_here=arrays["wasHere"].astype(np.int64),
            placed=arrays["placed"].astype(np.int32),
        )

        columns = (name for name in arrays if name.startswith("spread"))
        spread = tuple(_widen(arrays[name]) for name in columns)
        picks = Picks(
            arrays["chosen"].astype(np.int32), spread, ran_dry=header["ranDry"]
        )
    return Decision(
        cycle,
        CycleKind(header["kind"]),
        chosen=arrays["chosen"].astype(np.int32),
        kept=tuple(header["kept"]),
        unscheduled=tuple(header["unscheduled"]),
        not_found=tuple(header["notFound"]),
        is_fulfilled=header["fulfilled"],
        verdicts=arrays["verdicts"].astype(np.uint8) if "verdicts" in arrays else None,
        candidates=candidates,
        picks=picks,
        malformed=tuple(Malformed(*one) for one in header["malformed"]),
        scores=tuple(
            (tuple(spread) if isinstance(spread, list) else spread, affinity)
            for spread, affinity in header.get("scores", ())
        ),
    )


def _read_groups(facts: Mapping[str, Any], arrays: Arrays, index: int) -> Groups:
    codes, families = (
        arrays[f"codes{index}"].astype(np.int32),
        arrays.get(f"families{index}"),
    )
    values, weights = tuple(facts["values"]), tuple(facts["weights"])
    if families is None:
        return Groups(values, codes, weights=weights)
    family_of = arrays[f"familyOf{index}"].astype(np.int64)
    return Groups(values, codes, families.astype(np.int64), family_of, weights)


def difference(stored: Decision, again: Decision) -> str:
    """Return where deciding again first differs from what is stored; empty where everything is equal.

    Everything is the id, the picks in their order, the kept and the unscheduled clusters, and every column
    that the picks competed on.
    """
    if again.id != stored.id:
        return f"its id would be {again.id}"
    for step, (was, now) in enumerate(
        zip_longest(stored.picked_names, again.picked_names), start=1
    ):
        if was != now:
            return f"step {step} selected {was or 'nothing'}, and would select {now or 'nothing'}"
    for words, was, now in (
        ("what stays", stored.kept, again.kept),
        ("what is unscheduled", stored.unscheduled, again.unscheduled),
    ):
        if was != now:
            return f"{words} would be another list of {len(now)} clusters, not of {len(was)}"
    return (
        ""
        if _content(stored) == _content(again)
        else "its columns would hold other values"
    )


def _content(decision: Decision) -> bytes:
    return zlib.decompress(pack(decision))
