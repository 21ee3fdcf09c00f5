"""The kinds of a hub that become rows: of each the cluster-scoped one, and that of namespaces."""

from fleetui.apimachinery.kinds import (
    APPROVAL_KIND,
    NAMESPACED_APPROVAL_KIND,
    NAMESPACED_PLACEMENT_KIND,
    NAMESPACED_RUN_KIND,
    NAMESPACED_STRATEGY_KIND,
    PLACEMENT_KIND,
    STAGED_RUN_KIND,
    STAGED_STRATEGY_KIND,
)

PLACEMENT_KINDS = (PLACEMENT_KIND, NAMESPACED_PLACEMENT_KIND)
POLICY_KINDS = ("ClusterSchedulingPolicySnapshot", "SchedulingPolicySnapshot")
RESOURCE_KINDS = ("ClusterResourceSnapshot", "ResourceSnapshot")
BINDING_KINDS = ("ClusterResourceBinding", "ResourceBinding")
STRATEGY_KINDS = (STAGED_STRATEGY_KIND, NAMESPACED_STRATEGY_KIND)
RUN_KINDS = (STAGED_RUN_KIND, NAMESPACED_RUN_KIND)
APPROVAL_KINDS = (APPROVAL_KIND, NAMESPACED_APPROVAL_KIND)
