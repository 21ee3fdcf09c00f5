"""The output of Kustomize is accepted by an API server, and its controllers make what it describes."""

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.kubernetes.members import Administrator, Member, kubectl, policy_version
from tests.runtime.processes import ROOT, eventually

OVERLAYS = ROOT / "deploy" / "kubernetes" / "overlays"
MONITORS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {
            "kind": "ServiceMonitor",
            "plural": "servicemonitors",
            "singular": "servicemonitor",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


def kustomizer() -> str | None:
    """Return a kubectl whose Kustomize knows `labels`: that of an old version of the servers does not."""
    base = str(ROOT / "deploy" / "kubernetes" / "base")
    for program in (kubectl(), shutil.which("kubectl")):
        if program is None:
            continue
        probe = subprocess.run(
            [program, "kustomize", base], capture_output=True, text=True, check=False
        )
        if probe.returncode == 0:
            return program
    return None


@pytest.fixture
def admin(member: Member) -> Iterator[Administrator]:
    """Return the administrator of a cluster with the kind of the operator of Prometheus."""
    found = Administrator(member.client())
    found.create(MONITORS, CRD)
    eventually(lambda: found.has("/apis/monitoring.coreos.com/v1"))
    yield found
    for overlay in ("evaluation", "production"):
        found.purge_namespace(overlay)
    found.delete(f"{MONITORS}/{CRD['metadata']['name']}")  # type: ignore[index]


def test_overlays_are_applied_and_their_pods_are_made(
    admin: Administrator, clusters: Path
) -> None:
    program = kustomizer()
    if program is None:
        pytest.skip("needs a kubectl with Kustomize 4.1 or newer")
    served = ("apiVersion: policy/v1\n", f"apiVersion: policy/{policy_version()}\n")
    client = [kubectl(), "--kubeconfig", str(clusters / "c1" / "kubeconfig")]

    def apply(text: str) -> list[str]:
        command = [*client, "apply", "--server-side", "-f", "-"]
        run = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stderr
        return run.stdout.splitlines()

    def pods(namespace: str) -> Counter[str]:
        found = admin.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        return Counter(
            one["metadata"]["labels"]["app.kubernetes.io/component"] for one in found
        )

    def has_pods(namespace: str, wanted: Counter[str]) -> bool | None:
        return pods(namespace) == wanted or None

    # One is applied twice: nothing in it is refused the second time.
    for overlay, count in (("evaluation", 1), ("evaluation", 1), ("production", 3)):
        build = [program, "kustomize", str(OVERLAYS / overlay)]
        built = subprocess.run(build, capture_output=True, text=True, check=True)
        # Each in a namespace of its own: an update would wait for pods that no kubelet lets get ready.
        written = [
            one for one in yaml.safe_load_all(built.stdout.replace(*served)) if one
        ]
        for one in written:
            name = "name" if one["kind"] == "Namespace" else "namespace"
            assert one["metadata"][name] == "fleetui"
            one["metadata"][name] = overlay
        assert len(apply(yaml.safe_dump_all(written))) == len(written)
        wanted = Counter(web=count, worker=count, beat=1, migrate=1)
        eventually(partial(has_pods, overlay, wanted))

    namespace = "/api/v1/namespaces/production"
    selected = admin.get(f"{namespace}/services/fleetui")["spec"]["selector"]
    labels = [
        one["metadata"]["labels"] for one in admin.get(f"{namespace}/pods")["items"]
    ]
    assert len([one for one in labels if selected.items() <= one.items()]) == 3
    budgets = admin.get(
        f"/apis/policy/{policy_version()}/namespaces/production/poddisruptionbudgets"
    )["items"]
    assert {one["metadata"]["name"] for one in budgets} == {
        "fleetui-web",
        "fleetui-worker",
    }
