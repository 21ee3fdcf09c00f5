"""Renders the chart with Helm, and the values with which tests do so."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.tools import program
from tests.runtime.processes import ROOT

CHART = ROOT / "deploy" / "helm" / "fleetui"
RELEASE = "fleetui"
SETS: dict[str, dict[str, Any]] = {
    "default": {},
    "evaluation": {
        "https": False,
        "hosts": ["localhost", "127.0.0.1"],
        "ingress": {"enabled": False},
        "trustedProxies": [],
        "secret": {
            "create": True,
            "values": {
                "DATABASE_URL": "postgres://fleetui:secret@postgres:5432/fleetui",
                "CELERY_BROKER_URL": "redis://redis:6379/0",
                "FLEETUI_SECRET_KEY": "k" * 50,
                "FLEETUI_CREDENTIAL_KEYS": "c" * 44,
                "FLEETUI_ADMIN_PASSWORD": "correct horse battery staple",
            },
        },
        "web": {"replicas": 1},
        "worker": {"replicas": 1},
    },
    "operators": {
        "database": {"secret": {"name": "fleetui-db-app", "key": "uri"}},
        "broker": {"secret": {"name": "fleetui-redis", "key": "url"}},
        "secret": {"name": "console"},
    },
    "everything": {
        "image": {
            "repository": "registry.example.com/team/fleetui",
            "digest": f"sha256:{'0' * 64}",
            "pullSecrets": [{"name": "registry-credentials"}],
        },
        "hosts": ["fleet.example.com", "console.example.com"],
        "oidc": {
            "issuer": "https://id.example.com/realms/fleet",
            "roles": "fleet-ops=operator;fleet-admins=administrator",
            "secret": {"name": "fleetui-oidc", "key": "client-secret"},
        },
        "extraEnv": [{"name": "FLEETUI_LOG_FORMAT", "value": "json"}],
        "ingress": {
            "className": "nginx",
            "annotations": {"cert-manager.io/cluster-issuer": "internal"},
        },
        "networkPolicies": {
            "clusterPorts": [443, 6443, 8443],
            "extraEgress": [{"ports": [{"port": 587, "protocol": "TCP"}]}],
        },
        "serviceAccount": {"annotations": {"example.com/role": "fleet"}, "token": True},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
        "web": {
            "replicas": 3,
            "podLabels": {"team": "platform"},
            "podAnnotations": {"example.com/scrape": "true"},
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"key": "platform", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "priorityClassName": "high",
        },
    },
}


def helm(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [program("helm"), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, **options
    )


def render(folder: Path, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the objects of the chart with some values."""
    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    run = helm("template", RELEASE, CHART, "--namespace", "fleetui", "--values", path)
    assert run.returncode == 0, run.stderr
    return [one for one in yaml.safe_load_all(run.stdout) if one]
