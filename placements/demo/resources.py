"""What a hub holds for placements to take along: applications in namespaces, and cluster-wide things."""

from placements.demo.demo import Document


def application(name: str, *, team: str = "platform", replicas: int = 2, port: int = 8080) -> list[Document]:
    """Write a namespace with an application in it: its settings, its deployment, its service."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {"app": name, "team": team}},
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _inside(name, f"{name}-settings"),
            "data": {"LOG_LEVEL": "info", "LISTEN": f":{port}"},
        },
        _deployment(name, replicas, port),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _inside(name, name),
            "spec": {
                "selector": {"app": name},
                "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": port}],
            },
        },
    ]


def _inside(namespace: str, name: str) -> Document:
    return {"name": name, "namespace": namespace, "labels": {"app": namespace}}


def _deployment(name: str, replicas: int, port: int) -> Document:
    container = {
        "name": name,
        "image": f"registry.example.com/{name}:1.4.2",
        "envFrom": [{"configMapRef": {"name": f"{name}-settings"}}],
        "ports": [{"containerPort": port}],
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _inside(name, name),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
        },
    }


def cluster_role(name: str, *kinds: str) -> Document:
    """Write a role that may read some kinds everywhere."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": list(kinds), "verbs": ["get", "list", "watch"]}],
    }


def custom_kind(kind: str, *, group: str, labels: dict[str, str]) -> Document:
    """Write the definition of a kind of its own, whose objects take any field."""
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "labels": labels},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
