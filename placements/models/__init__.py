"""Placements, their snapshots, decisions, bindings, the runs that carry them out, evictions and drains."""

from placements.models.bindings import Binding
from placements.models.decisions import Decision, DecisionRecord, FleetRecord
from placements.models.disruptions import DisruptionBudget, Drain, DrainStep, Eviction
from placements.models.placements import LONGEST_NAME, Placement
from placements.models.resources import Resource
from placements.models.rollouts import ClusterUpdate, Rollout
from placements.models.snapshots import PolicySnapshot, ResourceSnapshot, ResourceSnapshotPart

__all__ = [
    "LONGEST_NAME",
    "Binding",
    "ClusterUpdate",
    "Decision",
    "DecisionRecord",
    "DisruptionBudget",
    "Drain",
    "DrainStep",
    "Eviction",
    "FleetRecord",
    "Placement",
    "PolicySnapshot",
    "Resource",
    "ResourceSnapshot",
    "ResourceSnapshotPart",
    "Rollout",
]
