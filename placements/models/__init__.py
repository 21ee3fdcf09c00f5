"""Placements, their snapshots, decisions, bindings, runs, evictions, drains, plans, and saved what-ifs."""

from placements.models.assertions import (
    AssertionCheck,
    StoredChecksFile,
)
from placements.models.bindings import (
    Binding,
    Leftover,
    ObservedObjects,
    WaitingRemoval,
)
from placements.models.decisions import (
    CHANGES_CLUSTERS,
    Decision,
    DecisionRecord,
    FleetRecord,
)
from placements.models.disruptions import DisruptionBudget, Drain, DrainStep, Eviction
from placements.models.findings import FindingsCheck
from placements.models.hub_decisions import (
    DueJudgement,
    FleetVersion,
    HubDecision,
    ReplayInputs,
)
from placements.models.notifications import NotificationDelivery, NotificationRule
from placements.models.overrides import Override, OverrideSnapshot, OverrideTarget
from placements.models.placements import (
    AWAITS_DECISION,
    LONGEST_NAME,
    UNFULFILLED,
    Draft,
    Placement,
)
from placements.models.problems import NOTIFIED, Problem, ProblemBook, ProblemKind
from placements.models.resilience import (
    PlacementResilience,
    ResilienceLoss,
    ResilienceReport,
)
from placements.models.resources import Resource
from placements.models.rollouts import (
    WAITS_FOR_APPROVAL,
    ApprovalRequest,
    ClusterUpdate,
    Rollout,
    RolloutSample,
    Run,
    RunKind,
    StagedRun,
    StagedStrategy,
)
from placements.models.snapshots import (
    PolicySnapshot,
    ResourceSnapshot,
    ResourceSnapshotPart,
)
from placements.models.staleness import StalenessCheck, StalePick

__all__ = [
    "AWAITS_DECISION",
    "CHANGES_CLUSTERS",
    "LONGEST_NAME",
    "NOTIFIED",
    "UNFULFILLED",
    "WAITS_FOR_APPROVAL",
    "ApprovalRequest",
    "AssertionCheck",
    "Binding",
    "ClusterUpdate",
    "Decision",
    "DecisionRecord",
    "DisruptionBudget",
    "Draft",
    "Drain",
    "DrainStep",
    "DueJudgement",
    "Eviction",
    "FindingsCheck",
    "FleetRecord",
    "FleetVersion",
    "HubDecision",
    "Leftover",
    "NotificationDelivery",
    "NotificationRule",
    "ObservedObjects",
    "Override",
    "OverrideSnapshot",
    "OverrideTarget",
    "Placement",
    "PlacementResilience",
    "PolicySnapshot",
    "Problem",
    "ProblemBook",
    "ProblemKind",
    "ReplayInputs",
    "ResilienceLoss",
    "ResilienceReport",
    "Resource",
    "ResourceSnapshot",
    "ResourceSnapshotPart",
    "Rollout",
    "RolloutSample",
    "Run",
    "RunKind",
    "StagedRun",
    "StagedStrategy",
    "StalePick",
    "StalenessCheck",
    "StoredChecksFile",
    "WaitingRemoval",
]
