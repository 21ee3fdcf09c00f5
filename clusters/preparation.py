"""The manifest that prepares a cluster: an account with few permissions.

See `rules/kubernetes-driver.md#preparation`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.fields import group_problem

NAMESPACE, ACCOUNT = "fleetui-system", "fleetui"
OBSERVER, PLACER = "fleetui-observer", "fleetui-placer"
VERBS = ("get", "create", "patch", "delete")
_RBAC = "rbac.authorization.k8s.io"
DEFAULT_KINDS: Mapping[str, tuple[str, ...]] = {
    "": (
        "namespaces",
        "configmaps",
        "secrets",
        "services",
        "serviceaccounts",
        "persistentvolumeclaims",
        "resourcequotas",
        "limitranges",
    ),
    "apps": ("deployments", "statefulsets", "daemonsets"),
    "batch": ("jobs", "cronjobs"),
    "networking.k8s.io": ("ingresses", "networkpolicies"),
    "policy": ("poddisruptionbudgets",),
    _RBAC: ("roles", "rolebindings"),
}
CLUSTER_ROLES = (_RBAC, ("clusterroles", "clusterrolebindings"))
DEFINITIONS = ("apiextensions.k8s.io", ("customresourcedefinitions",))


@dataclass(frozen=True, slots=True)
class Preparation:
    """What the account may do besides the default kinds.

    `everything`: as much as a cluster administrator. `recover` adds list on the chosen kinds except Secrets.
    """

    pods: bool = True
    cluster_roles: bool = False
    definitions: bool = False
    groups: tuple[str, ...] = ()
    recover: bool = False
    everything: bool = False


def preparation_documents(chosen: Preparation) -> list[dict[str, Any]]:
    """Return the documents of the manifest in their order. Raise InvalidManifest for a bad group."""
    for at, group in enumerate(chosen.groups):
        if not group or group_problem(group):
            raise InvalidManifest.of(
                f"groups[{at}]",
                "bad-format",
                "Invalid value: not an API group",
                "a DNS name",
            )
    namespaced = {"name": ACCOUNT, "namespace": NAMESPACE}
    observer = [_rule("", ("nodes",), ("list",))]
    if chosen.pods:
        observer.append(_rule("", ("pods",), ("list",)))
    account_rules = [
        _rule("", ("configmaps",), ("get", "list", "create", "patch", "delete")),
        {
            **_rule("", ("serviceaccounts/token",), ("create",)),
            "resourceNames": [ACCOUNT],
        },
    ]
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": namespaced},
        _role("Role", namespaced, account_rules),
        _binding("RoleBinding", namespaced, "Role", ACCOUNT),
        _role("ClusterRole", {"name": OBSERVER}, observer),
        _binding("ClusterRoleBinding", {"name": OBSERVER}, "ClusterRole", OBSERVER),
        _role("ClusterRole", {"name": PLACER}, _placer_rules(chosen)),
        _binding("ClusterRoleBinding", {"name": PLACER}, "ClusterRole", PLACER),
    ]


def _placer_rules(chosen: Preparation) -> list[dict[str, Any]]:
    kinds = list(DEFAULT_KINDS.items())
    if chosen.cluster_roles:
        kinds.append(CLUSTER_ROLES)
    if chosen.definitions:
        kinds.append(DEFINITIONS)
    kinds += ((group, ("*",)) for group in dict.fromkeys(chosen.groups))
    rules = [_rule(group, names, VERBS) for group, names in kinds]
    if chosen.everything:
        rules = [_rule("*", ("*",), (*VERBS, "bind", "escalate"))]
    if chosen.recover:
        # RBAC has no exceptions from a rule, and list on Secrets is never granted.
        without_secrets = [
            (group, [name for name in names if name != "secrets"])
            for group, names in kinds
        ]
        rules += [_rule(group, names, ("list",)) for group, names in without_secrets]
    return rules


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def _role(
    kind: str, metadata: Mapping[str, str], rules: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": kind,
        "metadata": dict(metadata),
        "rules": list(rules),
    }


def _binding(
    kind: str, metadata: Mapping[str, str], role_kind: str, role: str
) -> dict[str, Any]:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": kind,
        "metadata": dict(metadata),
        "roleRef": {"apiGroup": _RBAC, "kind": role_kind, "name": role},
        "subjects": [
            {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
        ],
    }
