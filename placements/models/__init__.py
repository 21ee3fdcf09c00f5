"""Placements, their immutable snapshots, the decisions on them, and the bindings that follow."""

from placements.models.bindings import Binding
from placements.models.decisions import Decision, DecisionRecord, FleetRecord
from placements.models.placements import LONGEST_NAME, Placement
from placements.models.resources import Resource
from placements.models.snapshots import PolicySnapshot, ResourceSnapshot, ResourceSnapshotPart

__all__ = [
    "LONGEST_NAME",
    "Binding",
    "Decision",
    "DecisionRecord",
    "FleetRecord",
    "Placement",
    "PolicySnapshot",
    "Resource",
    "ResourceSnapshot",
    "ResourceSnapshotPart",
]
