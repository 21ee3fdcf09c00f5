"""Placements, their immutable snapshots, decisions, bindings, and the runs that carry them out."""

from placements.models.bindings import Binding
from placements.models.decisions import Decision, DecisionRecord, FleetRecord
from placements.models.overrides import Override, OverrideSnapshot, OverrideTarget
from placements.models.placements import LONGEST_NAME, Placement
from placements.models.resources import Resource
from placements.models.rollouts import ClusterUpdate, Rollout
from placements.models.snapshots import PolicySnapshot, ResourceSnapshot, ResourceSnapshotPart
from placements.models.staged import ApprovalRequest, StagedRun, StagedStrategy

__all__ = [
    "LONGEST_NAME",
    "ApprovalRequest",
    "Binding",
    "ClusterUpdate",
    "Decision",
    "DecisionRecord",
    "FleetRecord",
    "Override",
    "OverrideSnapshot",
    "OverrideTarget",
    "Placement",
    "PolicySnapshot",
    "Resource",
    "ResourceSnapshot",
    "ResourceSnapshotPart",
    "Rollout",
    "StagedRun",
    "StagedStrategy",
]
