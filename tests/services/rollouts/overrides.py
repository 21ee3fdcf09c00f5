"""Overrides for tests, written short."""

from collections.abc import Mapping
from typing import Any

VERSION = "placement.kubernetes-fleet.io/v1"
SHOP = {"group": "", "version": "v1", "kind": "Namespace", "name": "shop"}
WEB = {"group": "apps", "version": "v1", "kind": "Deployment", "name": "web"}


def annotate(**annotations: str) -> dict[str, Any]:
    """Return a patch that sets annotations."""
    return {"op": "add", "path": "/metadata/annotations", "value": annotations}


def rule(*patches: Mapping[str, Any], **labels: str) -> dict[str, Any]:
    """Return a rule for the clusters with these labels, without labels for all."""
    terms = [{"labelSelector": {"matchLabels": labels}}] if labels else []
    return {
        "clusterSelector": {"clusterSelectorTerms": terms},
        "jsonPatchOverrides": list(patches),
    }


def leaving_out(**labels: str) -> dict[str, Any]:
    """Return a rule that leaves the resources out."""
    return {**rule(**labels), "overrideType": "Delete", "jsonPatchOverrides": []}


def for_clusters(
    name: str,
    *rules: Mapping[str, Any],
    placement: str = "",
    of: Mapping[str, str] = SHOP,
) -> dict[str, Any]:
    """Write a ClusterResourceOverride of the namespace shop, or of something else."""
    for_one = {"placement": {"name": placement}} if placement else {}
    return {
        "apiVersion": VERSION,
        "kind": "ClusterResourceOverride",
        "metadata": {"name": name},
        "spec": {
            **for_one,
            "clusterResourceSelectors": [dict(of)],
            "policy": {"overrideRules": list(rules)},
        },
    }


def for_resource(
    name: str,
    /,
    *rules: Mapping[str, Any],
    of: Mapping[str, str] = WEB,
    **placement: str,
) -> dict[str, Any]:
    """Write a ResourceOverride of the Deployment web in the namespace shop."""
    for_one = {"placement": placement} if placement else {}
    return {
        "apiVersion": VERSION,
        "kind": "ResourceOverride",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            **for_one,
            "resourceSelectors": [dict(of)],
            "policy": {"overrideRules": list(rules)},
        },
    }
