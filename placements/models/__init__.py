"""Placements, their snapshots, decisions, bindings, runs, evictions, drains, and saved what-ifs."""

from placements.models.bindings import Binding
from placements.models.decisions import Decision, DecisionRecord, FleetRecord
from placements.models.disruptions import DisruptionBudget, Drain, DrainStep, Eviction
from placements.models.drafts import Draft
from placements.models.overrides import Override, OverrideSnapshot, OverrideTarget
from placements.models.placements import LONGEST_NAME, Placement
from placements.models.resources import Resource
from placements.models.rollouts import ClusterUpdate, Rollout, RolloutPoint
from placements.models.scenarios import Freshness, HypotheticalDecision, Scenario, StalePick
from placements.models.snapshots import PolicySnapshot, ResourceSnapshot, ResourceSnapshotPart
from placements.models.staged import ApprovalRequest, StagedRun, StagedStrategy

__all__ = [
    "LONGEST_NAME",
    "ApprovalRequest",
    "Binding",
    "ClusterUpdate",
    "Decision",
    "DecisionRecord",
    "DisruptionBudget",
    "Draft",
    "Drain",
    "DrainStep",
    "Eviction",
    "FleetRecord",
    "Freshness",
    "HypotheticalDecision",
    "Override",
    "OverrideSnapshot",
    "OverrideTarget",
    "Placement",
    "PolicySnapshot",
    "Resource",
    "ResourceSnapshot",
    "ResourceSnapshotPart",
    "Rollout",
    "RolloutPoint",
    "Scenario",
    "StagedRun",
    "StagedStrategy",
    "StalePick",
]
