"""Values of Secrets, planted wherever a manifest, a text or an edit may have them; each names its place."""

import base64
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User

from fleetui.apimachinery.yaml import dump_yaml
from placements.models import Placement, Resource
from placements.services.editor.operations import start_draft
from placements.services.overrides.operations import save_override
from placements.services.placements import save_placement
from placements.services.resources.operations import apply_resources
from placements.services.rollouts.controller import sync_due_rollouts
from placements.services.rollouts.worker import run_cluster_calls
from placements.services.scheduling import schedule_due
from tests.hubs.hub_documents import override, override_snapshot, placement
from tests.hubs.projecting import ProjectedHub
from tests.hubs.test_projection_placements import (
    bound,
    put_web,
    resource_snapshot,
    scheduled,
)
from tests.rows import pick_n_spec, placement_document
from tests.services.rollouts.overrides import for_clusters, for_resource, rule

COPY = "kubectl.kubernetes.io/last-applied-configuration"
LOGIN = {"group": "", "version": "v1", "kind": "Secret", "name": "login"}
_ENVELOPE = {
    "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
    "kind": "ResourceEnvelope",
}


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def secret(mark: str, name: str = "login") -> dict[str, Any]:
    """Write a Secret that has values everywhere; all of them begin with `planted-`, also in base64."""
    copy = f'{{"data": {{"password": "planted-{mark}-in-copy"}}}}'
    annotations = {
        COPY: copy,
        "example.com/note": f"it is planted-{mark}-in-strings today",
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "annotations": annotations,
            "labels": {"of": mark},
        },
        "type": "Opaque",
        "data": {
            "password": _encoded(f"planted-{mark}-in-data"),
            "other": _encoded(f"planted-{mark}-other"),
        },
        "stringData": {"token": f"planted-{mark}-in-strings"},
        "Data": {"password": f"planted-{mark}-unknown"},
        "stringdata": [f"planted-{mark}-misspelt"],
        "spec": {"template": {"deep": {"deeper": f"planted-{mark}-deep"}}},
    }


def envelope(mark: str) -> dict[str, Any]:
    metadata = {"name": "bundle", "namespace": "shop"}
    return {
        **_ENVELOPE,
        "metadata": metadata,
        "data": {"secret.yaml": secret(mark, "wrapped")},
    }


def cluster_envelope(mark: str, **data: Any) -> dict[str, Any]:
    """Write an envelope of objects in no namespace, with a Secret, which `apply` refuses there."""
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "reader"},
    }
    metadata = {"name": "cluster-bundle"}
    data |= {"role.yaml": role, "secret.yaml": secret(mark, "wrapped")}
    return {
        **_ENVELOPE,
        "kind": "ClusterResourceEnvelope",
        "metadata": metadata,
        "data": data,
    }


def plant_cluster_envelope(now: datetime) -> None:
    """Store a Secret in a ClusterResourceEnvelope, as an earlier release accepted it, and place it."""
    accepted = cluster_envelope("accepted")
    del accepted["data"]["secret.yaml"]
    apply_resources([accepted], by=None, now=now)
    rows = Resource.objects.filter(kind="ClusterResourceEnvelope")
    rows.update(content=cluster_envelope("bundled"))
    selector = {
        "group": "placement.kubernetes-fleet.io",
        "version": "v1beta1",
        "kind": "ClusterResourceEnvelope",
        "name": "cluster-bundle",
    }
    save_placement(
        placement_document(
            "bundle", {**pick_n_spec(1), "resourceSelectors": [selector]}
        ),
        by=None,
        now=now,
    )


def plant_live_hub(name: str = "rome") -> ProjectedHub:
    """Mirror a hub whose objects have values wherever its controllers and `kubectl apply` write them."""
    live = ProjectedHub(name)
    put_web(live)
    copies = secret("mirrored")["metadata"]["annotations"] | {
        COPY: str(secret("mirrored-copy"))
    }
    copies.pop("example.com/note")
    patch = {"op": "add", "path": "/Data/a", "value": "planted-mirrored-patch"}
    difference = {
        "kind": "Secret",
        "version": "v1",
        "name": "login",
        "namespace": "shop",
        "targetClusterObservedGeneration": 1,
        "observationTime": "2026-11-01T09:30:00Z",
        "observedDrifts": [
            {
                "path": "/data/a",
                "valueInHub": "planted-hub",
                "valueInMember": "planted-member",
            }
        ],
        "observedDiffs": [
            {
                "path": "/data/a",
                "valueInHub": "planted-hub",
                "valueInMember": "planted-member",
            }
        ],
    }
    differences = {"driftedPlacements": [difference], "diffedPlacements": [difference]}

    cluster_wide = override("tier")
    shop = {"group": "", "version": "v1", "kind": "Namespace", "name": "shop"}
    cluster_wide["spec"]["clusterResourceSelectors"] = [shop]
    namespaced = override("login", namespace="shop")
    namespaced["spec"]["resourceSelectors"] = [LOGIN]
    for document in (cluster_wide, namespaced):
        document["spec"]["policy"]["overrideRules"][0]["jsonPatchOverrides"] = [patch]
        document["metadata"]["annotations"] = copies
    frozen = override_snapshot("tier", 0)
    frozen["spec"]["overrideSpec"] = cluster_wide["spec"]
    frozen_in_shop = override_snapshot("login", 0, namespace="shop")
    frozen_in_shop["spec"]["overrideSpec"] = namespaced["spec"]
    live.put("ClusterResourceOverride", cluster_wide)
    live.put("ResourceOverride", namespaced)
    live.put("ClusterResourceOverrideSnapshot", frozen)
    live.put("ResourceOverrideSnapshot", frozen_in_shop)

    placed = placement("web")
    placed["metadata"]["annotations"] = copies
    placed["status"] = {
        **scheduled(),
        "placementStatuses": [{"clusterName": "paris", **differences}],
    }
    bound_there = bound("web", "paris")
    bound_there["status"] = {**bound_there["status"], **differences}
    bundles = [secret("mirrored"), envelope("mirrored"), cluster_envelope("mirrored")]
    resources = resource_snapshot("web")
    resources["spec"] = {"selectedResources": bundles}
    resources["metadata"]["annotations"] = copies
    live.put("ClusterResourcePlacement", placed)
    live.put("ClusterResourceBinding", bound_there)
    live.put("ClusterResourceSnapshot", resources)
    live.put("Namespace", {"metadata": {"name": "shop", "annotations": copies}})
    live.project()
    return live


def found_in(content: str | bytes) -> set[str]:
    """Return what of the planted values is in a text, also in base64 as a part of other base64."""
    text = content.decode(errors="replace") if isinstance(content, bytes) else content
    return {
        mark
        for mark in ("planted-", "cGxhbnRlZC", "BsYW50ZWQt", "wbGFudGVkL")
        if mark in text
    }


def plant(*, owner: User, now: datetime, of_shop: str = "all-of-shop") -> list[str]:
    """Plant two versions of everything, roll them out, and try a third; return addresses of drafts and runs.

    There is a namespace `shop` and a placement `web` of it. The drafts are those of the owner, and `of_shop`
    is the name of the override of the namespace.
    """
    apply_resources([secret("first"), envelope("wrapped")], by=None, now=now)
    patches: list[dict[str, Any]] = [
        {
            "op": "add",
            "path": "/data/added",
            "value": _encoded("planted-patch-in-data"),
        },
        {"op": "add", "path": "/stringData/added", "value": "planted-patch-in-strings"},
        {"op": "add", "path": "/Data/added", "value": "planted-patch-unknown"},
        {"op": "add", "path": "/spec", "value": {"a": {"b": "planted-patch-deep"}}},
    ]
    failing = {
        "op": "add",
        "path": "/data/missing/deeper",
        "value": "planted-patch-that-fails",
    }
    save_override(for_resource("login", rule(*patches), of=LOGIN), by=None, now=now)
    of_namespace = {
        "op": "add",
        "path": "/stringData",
        "value": {"all": "planted-patch-of-namespace"},
    }
    save_override(
        for_clusters(of_shop, rule(of_namespace, failing, region="west")),
        by=None,
        now=now,
    )
    plant_cluster_envelope(now)
    _work(now)
    apply_resources([secret("second"), envelope("again")], by=None, now=now)
    _work(now)

    web = Placement.objects.get(full_name="web")
    drafts = [
        start_draft(one, placement=None, by=owner, now=now)
        for one in drafted(web.document)
    ]
    return [f"/drafts/{draft.pk}/" for draft in drafts]


def drafted(document: dict[str, Any]) -> tuple[str, ...]:
    """Write drafts with values: with a second manifest, with a nested one, and one that is no YAML."""
    return (
        f"{dump_yaml(document)}---\n{dump_yaml(secret('drafted'))}---\n{dump_yaml(cluster_envelope('drafted'))}",
        dump_yaml({**document, "secret": secret("nested")}),
        f"{dump_yaml(secret('unreadable'))}\n  - :\n{{",
    )


def _work(now: datetime) -> None:
    for _ in range(20):
        done = schedule_due(now=now) + sync_due_rollouts(now=now)
        if not done + run_cluster_calls(now=now, threads=0, clock=lambda: now):
            return
