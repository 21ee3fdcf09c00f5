"""A decision as bytes and back: picks, the columns they competed on, and the policy; and a fleet as bytes.

Names and what filters cite as evidence stay with the fleet, which is stored once per version; the blob
holds what belongs to this decision alone. Layout: four bytes with the length of a JSON header, the header,
the arrays that it lists; all of it compressed with zlib's fastest level, since higher ones cost ten times
as much for the same size.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placements.scheduling.bindings import Binding, BindingState
from placements.scheduling.candidates import Candidates
from placements.scheduling.cycle import Cycle
from placements.scheduling.decision import CycleKind, Decision, binding_facts
from placements.scheduling.fleet import (
    Cluster,
    Eligibility,
    EligibilityKind,
    Fleet,
    ResourceUsage,
    Taint,
)
from placements.scheduling.picks import Picks
from placements.scheduling.policy import Semantics, parse_policy
from placements.scheduling.profile import profile_of
from placements.scheduling.selectors import Malformed
from placements.scheduling.spread.base import Groups, Scores
from placements.scheduling.version import ENGINE_VERSION

Arrays = dict[str, NDArray[Any]]
_FASTEST = 1
_LENGTH_BYTES = 4


class UnreadableRecordError(ValueError):
    """A stored record was written by another engine, or does not belong to this fleet."""


def pack(decision: Decision) -> bytes:
    """Write a decision as bytes, without the fleet."""
    arrays = {name: _narrow(array) for name, array in _arrays(decision).items()}
    header = _header(decision)
    header["arrays"] = [[name, array.dtype.str, len(array)] for name, array in arrays.items()]
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    parts = (len(text).to_bytes(_LENGTH_BYTES, "big"), text, *(array.tobytes() for array in arrays.values()))
    return zlib.compress(b"".join(parts), _FASTEST)


def unpack(blob: bytes, fleet: Fleet) -> Decision:
    """Read a decision back, given the fleet it was made on. Raises UnreadableRecordError."""
    raw = zlib.decompress(blob)
    start = _LENGTH_BYTES + int.from_bytes(raw[:_LENGTH_BYTES], "big")
    header = json.loads(raw[_LENGTH_BYTES:start])
    if header["engine"] != ENGINE_VERSION:
        raise UnreadableRecordError(f"record of engine {header['engine']}, this one is {ENGINE_VERSION}")
    if header["clusters"] != len(fleet):
        raise UnreadableRecordError(f"record of {header['clusters']} clusters, this fleet has {len(fleet)}")
    decision = _decision(header, _read_arrays(header["arrays"], memoryview(raw)[start:]), fleet)
    if decision.id != header["id"]:
        raise UnreadableRecordError(f"record of {header['id']}, which is {decision.id} on this fleet")
    return decision


def pack_fleet(fleet: Fleet) -> bytes:
    """Write a fleet as bytes: all that a decision on it may ever cite. Equal fleets give equal bytes."""
    listed = [_cluster_facts(cluster) for cluster in fleet]
    text = json.dumps(listed, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return zlib.compress(text.encode(), _FASTEST)


def unpack_fleet(blob: bytes) -> Fleet:
    """Read a fleet back."""
    return Fleet(_cluster(facts) for facts in json.loads(zlib.decompress(blob)))


def _cluster_facts(cluster: Cluster) -> list[Any]:
    usage, eligibility = cluster.usage, cluster.eligibility
    return [
        cluster.name,
        dict(cluster.labels),
        [[taint.key, taint.value, taint.effect] for taint in cluster.taints],
        dict(cluster.properties),
        [dict(usage.capacity), dict(usage.allocatable), dict(usage.available)],
        [eligibility.kind, eligibility.reason],
    ]


def _cluster(facts: list[Any]) -> Cluster:
    name, labels, taints, properties, usage, (kind, reason) = facts
    return Cluster(
        name,
        labels,
        tuple(Taint(*taint) for taint in taints),
        properties,
        ResourceUsage(*usage),
        Eligibility(None if kind is None else EligibilityKind(kind), reason),
    )


def _header(decision: Decision) -> dict[str, Any]:
    cycle, candidates = decision.cycle, decision.candidates
    return {
        "engine": ENGINE_VERSION,
        "id": decision.id,
        "clusters": len(cycle.fleet),
        "semantics": cycle.semantics,
        "options": dict(cycle.options),
        "policy": cycle.policy.canonical(),
        "bindings": [binding_facts(binding) for binding in cycle.live_bindings],
        "kind": decision.kind,
        "kept": decision.kept,
        "unscheduled": decision.unscheduled,
        "notFound": decision.not_found,
        "fulfilled": decision.is_fulfilled,
        "malformed": [[one.cluster, one.property, one.text] for one in decision.malformed],
        "groups": None if candidates is None else [_group_facts(groups) for groups in candidates.groups],
        "ranDry": None if decision.picks is None else decision.picks.ran_dry,
    }


def _arrays(decision: Decision) -> Arrays:
    arrays: Arrays = {"chosen": decision.chosen}
    if decision.verdicts is not None:
        arrays["verdicts"] = decision.verdicts
    if decision.candidates is not None and decision.picks is not None:
        candidates = decision.candidates
        arrays |= {f"spread{index}": column for index, column in enumerate(decision.picks.spread)}
        arrays["affinity"] = candidates.affinity
        if candidates.preference is not candidates.affinity:
            arrays["preference"] = candidates.preference
        arrays["wasHere"] = candidates.was_here
        arrays["placed"] = candidates.placed
        for index, groups in enumerate(candidates.groups):
            arrays |= _group_arrays(groups, index)
    return arrays


def _narrow(array: NDArray[Any]) -> NDArray[Any]:
    """Use the smallest integers that hold the values, little end first on every machine."""
    if array.dtype == np.float64:
        return array.astype("<f8")
    low, high = int(array.min(initial=0)), int(array.max(initial=0))
    smallest = np.promote_types(np.min_scalar_type(low), np.min_scalar_type(high))
    return array.astype(smallest.newbyteorder("<"))


def _widen(array: NDArray[Any]) -> Scores:
    return array.astype(np.float64) if array.dtype.kind == "f" else array.astype(np.int64)


def _read_arrays(listed: list[list[Any]], raw: memoryview) -> Arrays:
    arrays: Arrays = {}
    offset = 0
    for name, dtype, length in listed:
        arrays[name] = np.frombuffer(raw, dtype=dtype, count=length, offset=offset)
        offset += arrays[name].nbytes
    return arrays


def _decision(header: Mapping[str, Any], arrays: Arrays, fleet: Fleet) -> Decision:
    cycle = _cycle(header, fleet)
    candidates, picks = None, None
    if header["groups"] is not None:
        candidates = _candidates(header, arrays, cycle)
        columns = (name for name in arrays if name.startswith("spread"))
        spread = tuple(_widen(arrays[name]) for name in columns)
        picks = Picks(arrays["chosen"].astype(np.int32), spread, ran_dry=header["ranDry"])
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
    )


def _cycle(header: Mapping[str, Any], fleet: Fleet) -> Cycle:
    semantics = Semantics(header["semantics"])
    return Cycle(
        fleet,
        parse_policy(header["policy"], semantics=semantics),
        tuple(_binding(facts) for facts in header["bindings"]),
        semantics,
        header["options"],
    )


def _binding(facts: Mapping[str, Any]) -> Binding:
    spread = facts["topologySpreadScore"]
    return Binding(
        facts["cluster"],
        BindingState(facts["state"]),
        is_current=facts["policy"] == "current",
        topology_spread_score=tuple(spread) if isinstance(spread, list) else spread,
        affinity_score=facts["affinityScore"],
        previous_state=BindingState(facts["previousState"]),
    )


def _candidates(header: Mapping[str, Any], arrays: Arrays, cycle: Cycle) -> Candidates:
    affinity = _widen(arrays["affinity"])
    return Candidates(
        strategy=profile_of(cycle).strategy,
        constraints=cycle.policy.topology_spread_constraints,
        groups=tuple(_read_groups(facts, arrays, index) for index, facts in enumerate(header["groups"])),
        failed=arrays["verdicts"].astype(np.uint8),
        affinity=affinity,
        preference=_widen(arrays["preference"]) if "preference" in arrays else affinity,
        was_here=arrays["wasHere"].astype(np.int64),
        placed=arrays["placed"].astype(np.int32),
    )


def _group_facts(groups: Groups) -> dict[str, Any]:
    return {"values": groups.values, "weights": groups.weights}


def _group_arrays(groups: Groups, index: int) -> Arrays:
    arrays: Arrays = {f"codes{index}": groups.codes}
    if groups.families is not None and groups.family_of is not None:
        arrays |= {f"families{index}": groups.families, f"familyOf{index}": groups.family_of}
    return arrays


def _read_groups(facts: Mapping[str, Any], arrays: Arrays, index: int) -> Groups:
    codes, families = arrays[f"codes{index}"].astype(np.int32), arrays.get(f"families{index}")
    values, weights = tuple(facts["values"]), tuple(facts["weights"])
    if families is None:
        return Groups(values, codes, weights=weights)
    family_of = arrays[f"familyOf{index}"].astype(np.int64)
    return Groups(values, codes, families.astype(np.int64), family_of, weights)
