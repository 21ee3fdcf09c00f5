"""Reasons: a code and its facts; `placements/explain/vocabulary.py` turns them into sentences."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class ReasonCode(StrEnum):
    """Every reason that a record can have for the outcome of a cluster."""

    PICKED = "picked"
    PICKED_ALL = "picked-all"
    PICKED_BY_NAME = "picked-by-name"
    PICKED_BY_PLAN = "picked-by-plan"
    KEPT = "kept"
    CLUSTER_LEFT = "cluster-left"
    POLICY_CHANGED = "policy-changed"
    SCALED_DOWN = "scaled-down"
    CHOSEN_AGAIN = "chosen-again"
    MOVED_BY_PLAN = "moved-by-plan"
    NOT_NAMED = "not-named"
    SCALING_DOWN = "scaling-down"
    NOTHING_TO_DO = "nothing-to-do"
    NOT_IN_BATCH = "not-in-batch"
    NO_NAMES = "no-names"
    CYCLE_FAILED = "cycle-failed"
    REQUIRED_AFFINITY = "required-affinity"
    NOT_ELIGIBLE = "not-eligible"
    NAMESPACE_MISSING = "namespace-missing"
    UNTOLERATED_TAINT = "untolerated-taint"
    ALREADY_PLACED = "already-placed"
    NOT_IN_CLUSTER_SET = "not-in-cluster-set"
    MISSING_TOPOLOGY_KEY = "missing-topology-key"
    TOPOLOGY_SPREAD = "topology-spread"
    OUTRANKED = "outranked"


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason for an outcome; facts are plain data, ready for JSON."""

    code: ReasonCode
    facts: Mapping[str, Any] = field(default_factory=dict)
    is_deciding: bool = False
