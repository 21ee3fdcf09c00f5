"""Hubs, member clusters, and the counters of changes of the fleet."""

from clusters.models.channels import FORMER_KIND, ChannelKind, NotificationChannel
from clusters.models.hubs import Hub, HubGrant, HubRow
from clusters.models.members import (
    LONGEST_CLUSTER_NAME,
    LONGEST_LABEL_KEY,
    LONGEST_LABEL_VALUE,
    ClusterCredential,
    ClusterLabel,
    ClusterSetObject,
    ClusterTaint,
    ClusterTombstone,
    FleetChange,
    FleetState,
    FormerMember,
    MemberCluster,
    Membership,
    SimulatedPlacement,
)
from clusters.models.mirror import (
    BindingChange,
    HubCredential,
    HubStream,
    HubWrite,
    HubWriteState,
    MirroredObject,
)

__all__ = [
    "FORMER_KIND",
    "LONGEST_CLUSTER_NAME",
    "LONGEST_LABEL_KEY",
    "LONGEST_LABEL_VALUE",
    "BindingChange",
    "ChannelKind",
    "ClusterCredential",
    "ClusterLabel",
    "ClusterSetObject",
    "ClusterTaint",
    "ClusterTombstone",
    "FleetChange",
    "FleetState",
    "FormerMember",
    "Hub",
    "HubCredential",
    "HubGrant",
    "HubRow",
    "HubStream",
    "HubWrite",
    "HubWriteState",
    "MemberCluster",
    "Membership",
    "MirroredObject",
    "NotificationChannel",
    "SimulatedPlacement",
]
